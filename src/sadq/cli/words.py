"""Words of a command line: what stands before its options, and options that are read before the others."""

from typing import Any

from sadq.errors import SadqError


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """(what stands before the first option, the options)."""
    first = next((index for index, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return arguments[:first], arguments[first:]


def take(arguments: list[str], *options: str) -> tuple[list[tuple[str, str]], list[str]]:
    """((option, its name) for each of these that was given, the other arguments)."""
    taken, rest, words = [], [], iter(arguments)
    for word in words:
        option, joined, name = word.partition("=")
        if option not in options:
            rest.append(word)
            continue
        name = name if joined else next(words, "")
        if not name or name.startswith("-"):
            raise SadqError(f"{option} was given without a name: write one after it.")
        taken.append((option, name))
    return taken, rest


def single_seed(flags: list[str]) -> tuple[dict[str, Any], list[str]]:
    """What `--seed N` says of a config, that one seed, and the other flags."""
    taken, rest = take(flags, "--seed")
    if not taken:
        return {}, rest
    if len(taken) > 1 or any(word.split("=")[0] == "--seeds" for word in rest):
        raise SadqError("--seed names a single one and was given with others: name them all, as in --seeds 3 7.")
    if not taken[0][1].isdigit():
        raise SadqError(f"--seed cannot be {taken[0][1]!r}: it takes a whole number, as in --seed 7.")
    return {"seeds": (int(taken[0][1]),)}, rest
