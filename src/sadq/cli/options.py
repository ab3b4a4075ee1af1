"""Command-line options read by tyro, with its complaints turned into one sentence."""

import contextlib
import dataclasses
import difflib
import io
from typing import Any

import tyro

from sadq.errors import SadqError
from sadq.experiment.config import Config

PLAIN: dict[Any, str] = {bool: "nothing", int: "a whole number", float: "a number", str: "a word"}


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """(what stands before the first option, the options)."""
    first = next((index for index, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return arguments[:first], arguments[first:]


def parse(kind: type, arguments: list[str], default: Any, program: str) -> Any:
    """tyro's reading of the arguments, with its complaints turned into one sentence."""
    if "-h" in arguments or "--help" in arguments:
        return tyro.cli(kind, args=["--help"], default=default, prog=program)
    try:
        return _read(kind, arguments, default, program)
    except SystemExit:
        raise SadqError(_complaint(kind, arguments, default, program)) from None


def _read(kind: type, arguments: list[str], default: Any, program: str) -> Any:
    # tyro would print a box of several lines; ours is one sentence.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return tyro.cli(kind, args=arguments, default=default, prog=program)


def _complaint(kind: type, arguments: list[str], default: Any, program: str) -> str:
    """Which option cannot be read, found by trying each of them alone."""
    positional, flags = split(arguments)
    known = _option_names(kind)
    groups: list[list[str]] = []
    for word in flags:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    for group in groups:
        name = group[0].split("=")[0].replace("_", "-")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            offer = f"did you mean {near[0]}?" if near else f"`{program} --help` lists the fields."
            return f"Unknown field {group[0]}: {offer}"
        try:
            _read(kind, [*positional, *group], default, program)
        except SystemExit:
            given = " ".join(group[1:]) or "nothing"
            return f"{name} cannot be {given!r}: it takes {known[name]}; see `{program} --help`."
        except SadqError as error:
            return str(error)
    return f"{program} cannot read {' '.join(arguments) or 'an empty line'!r}: see `{program} --help`."


def _option_names(kind: type, prefix: str = "--") -> dict[str, str]:
    """Every option of a command with the type it takes."""
    names: dict[str, str] = {}
    for field in dataclasses.fields(kind):
        option = prefix + field.name.replace("_", "-")
        if "Suppress" in str(field.type):
            continue
        if field.name == "config":
            names |= _option_names(Config)
        elif isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            names |= _option_names(field.type, f"{option}.")
        else:
            names[option] = PLAIN.get(field.type) or str(field.type).replace("typing.", "")
            if field.type is bool:
                names[f"{prefix}no-{option.removeprefix(prefix)}"] = "nothing"
    return names
