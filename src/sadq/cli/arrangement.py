"""A command line's words in one order, those that stand for themselves first, whichever way they were given."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from typing import Any, Literal

from sadq.axes import AXES
from sadq.errors import SadqError
from sadq.experiment.config import Config

NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)
HELP = frozenset({"-h", "--help"})
TRUTHS = frozenset({"true", "false"})


def arranged(arguments: list[str], *commands: type) -> list[str]:
    """What belongs to no option, then the options with their values.

    An option that takes several values takes the words after it that are of the kind of the first: numbers, `name=value`,
    or the names that it knows. Free words it takes all, so what belongs to no option stands before such a one.
    """
    kinds = dict(_kinds(Config)) | {name: hint for command in commands for name, hint in _kinds(command)}
    free, options, words = list[str](), list[str](), list(arguments)
    while words:
        word = words.pop(0)
        if not _is_option(word):
            free.append(word)
            continue
        hint = kinds.get(word.replace("_", "-"), Any)
        truth = words[0].lower() if words and words[0].lower() in TRUTHS else None
        if hint is bool and truth is not None:  # a switch, told in the words of options that may also be None
            options.append(word if truth == "true" else _opposite(word))
            del words[0]
            continue
        options.append(word)
        if "=" in word or word in HELP:
            continue
        if bool in typing.get_args(hint) and truth is not None:
            words[0] = truth.capitalize()
        count = _values(words, hint)
        if count == 0 and typing.get_origin(hint) is tuple:  # which would be read as a choice of none
            raise SadqError(f"{word} was given without a value: write one or more after it, or leave it out.")
        options += words[:count]
        del words[:count]
    return free + options


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-" and not NUMBER.match(word)


def _opposite(switch: str) -> str:
    """`--part.no-name` of `--part.name`, and the other way round."""
    part, dot, name = switch.removeprefix("--").rpartition(".")
    return f"--{part}{dot}{name.removeprefix('no-') if name.startswith('no-') else f'no-{name}'}"


def _values(words: list[str], hint: Any) -> int:
    """How many of the words that follow an option are its values."""
    ahead = next((index for index, word in enumerate(words) if _is_option(word)), len(words))
    if hint is bool or not ahead:
        return 0
    several = typing.get_origin(hint) is tuple
    entry = typing.get_args(hint)[0] if several else None
    if typing.get_origin(entry) is Literal:
        known = typing.get_args(entry)  # the first is read as one of them whatever it is, to be refused as such
        return next((index for index in range(1, ahead) if words[index] not in known), ahead)
    if "=" in words[0]:
        return next((index for index in range(ahead) if "=" not in words[index]), ahead)
    if NUMBER.match(words[0]):
        return next((index for index in range(ahead) if not NUMBER.match(words[index])), ahead)
    return ahead if several and entry is str else 1


def _kinds(part: Any, prefix: str = "--") -> Iterator[tuple[str, Any]]:
    """Every option with the type of its values, of all choices that could be made."""
    hints = typing.get_type_hints(part, include_extras=False)
    for field in dataclasses.fields(part):
        option, hint = prefix + field.name.replace("_", "-"), hints[field.name]
        yield option, hint
        if hint is bool:
            yield f"{prefix}no-{field.name.replace('_', '-')}", bool
        if field.name in AXES:
            for name in AXES[field.name]:
                yield from _kinds(AXES[field.name].entry(name), f"{option}.")
        elif dataclasses.is_dataclass(field.default):
            yield from _kinds(type(field.default), f"{option}.")
