"""Command-line options: modules to import, choices by name, and fields read by tyro, each complaint one sentence."""

import contextlib
import dataclasses
import difflib
import importlib
import io
import os
import sys
import typing
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Any

import tyro

from sadq.axes import AXES
from sadq.cli.words import single_seed, split, take
from sadq.envs.contract import one_line
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.registry import Axis

PLAIN: dict[Any, str] = {bool: "nothing", int: "a whole number", float: "a number", str: "a word"}
HIDDEN = ("preset", "agent", "adjusted")
"""Fields of a config that are not options: the words before them say the first two."""


def import_modules(arguments: list[str]) -> list[str]:
    """The arguments without `--import MODULE`, each such module imported, from the folder we are in or from Python's."""
    modules, rest = take(arguments, "--import")
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for _, name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            reason = one_line(error).rstrip(".")
            raise SadqError(f"--import {name} failed: {reason}; give a module that can be imported.") from error
    return rest


def axis_options(part: Any = Config, prefix: str = "--") -> Iterator[tuple[str, Axis]]:
    """Every option that chooses an entry by its name, with its axis."""
    for field in dataclasses.fields(part):
        if field.name in AXES:
            yield prefix + field.name, AXES[field.name]
        elif dataclasses.is_dataclass(field.default):
            yield from axis_options(field.default, f"{prefix}{field.name}.")


class Draft(Config):
    def __post_init__(self) -> None:
        """A draft is checked only once it is whole."""


def read_config(command: type, flags: list[str], base: Config, program: str, **changes: Any) -> tuple[Any, Config]:
    """(the command's own options, the config that `changes` and the flags make of `base`)."""
    axes = dict(axis_options())
    names, flags = take(flags, *axes)
    own, flags = single_seed(flags)
    draft = Draft(**(vars(base) | changes | own))
    for option, name in names:
        path = option.removeprefix("--")
        as_row = name == "None" and getattr(Config, path, draft) is None
        draft = _with(draft, path, None if as_row else axes[option].choice(name, base.adjusted))
    shown, choices = _typed(draft, command), {}
    for option, axis in axes.items():
        used = attrgetter(option.removeprefix("--"))(shown)
        default = used if used is None else axis.name_of(used)
        choices[option] = f"{', '.join(axis) or 'an entry of your own'} (default: {default})"
    options = parse(type(shown), flags, shown, program, choices)
    touched = {word.split(".")[0].removeprefix("--") for word in flags}
    values = {name: getattr(options, name) for name in vars(draft)}
    for name, before in vars(draft).items():
        if name in AXES and before is None and name not in touched:
            values[name] = None  # which is what the row says
        elif name not in AXES and dataclasses.is_dataclass(values[name]):
            values[name] = dataclasses.replace(before, **vars(values[name]))
    return options, Config(**values)


def _with(part: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    return dataclasses.replace(part, **{name: _with(getattr(part, name), rest, value) if rest else value})


def _typed(part: Any, *bases: type) -> Any:
    """The same values in a class whose fields have the types of their choices, whose settings tyro then offers."""
    values, kinds = dict(vars(part)), []
    for name, value in vars(part).items():
        if name in AXES:
            values[name] = value if value is not None else getattr(part.row, name, None)
        elif dataclasses.is_dataclass(value):
            values[name] = _typed(value)
        elif name not in HIDDEN:
            continue
        hidden = name in HIDDEN or values[name] is None
        kinds.append((name, tyro.conf.Suppress[Any] if hidden else type(values[name])))  # type: ignore[misc]
    bases = (*bases, type(part))
    described = {"__doc__": bases[0].__doc__}
    kind = dataclasses.make_dataclass(type(part).__name__, kinds, bases=bases, namespace=described, frozen=True)
    return kind(**values)


def parse(kind: type, arguments: list[str], default: Any, program: str, choices: dict[str, str] | None = None) -> Any:
    """tyro's reading of the arguments, with its complaints turned into one sentence.

    `choices` are options that were read before, each with what it takes.
    """
    choices = choices or {}
    if "-h" in arguments or "--help" in arguments:
        width = max(map(len, choices), default=0)
        by_name = [f"  {option:{width}} NAME   {names}" for option, names in choices.items()]
        lines = [kind.__doc__ or "", "", "choices by name; the settings of those in use follow:", *by_name]
        description = "\n".join(lines) if choices else None
        return tyro.cli(kind, args=["--help"], default=default, prog=program, description=description)

    def read(*words: str) -> Any:
        # tyro would print a box of several lines; ours is one sentence.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return tyro.cli(kind, args=words, default=default, prog=program)

    try:
        return read(*arguments)
    except SystemExit:
        raise SadqError(_complaint(read, arguments, _option_names(kind) | choices, choices, program)) from None


def _complaint(
    read: Callable[..., Any], arguments: list[str], known: dict[str, str], choices: dict[str, str], program: str
) -> str:
    """Which option cannot be read, found by trying each of them alone."""
    positional, flags = split(arguments)

    def fits(*words: str) -> bool:
        with contextlib.suppress(SystemExit):
            read(*words)
            return True
        return False

    if len(positional) > 1 and not fits(*positional) and fits(*positional[:-1]):
        return f"{program} has no place for {positional[-1]!r}, the last of {' '.join(positional)}: see `{program} --help`."
    starts = [index for index, word in enumerate(flags) if word.startswith("--") or index == 0]
    # A command without choices begins with a word; without it no option can be tried alone.
    for start, end in pairwise([*starts, len(flags)] if positional or choices else []):
        option, *values = flags[start:end]
        name = option.split("=")[0].replace("_", "-")
        if name not in known:
            return f"Unknown field {option}: {_offer(name, known, choices, program)}"
        if not fits(*positional, option, *values):
            given = " ".join([option.partition("=")[2], *values]).strip() or "nothing"
            return f"{name} cannot be {given!r}: it takes {known[name]}; see `{program} --help`."
    return f"{program} cannot read {' '.join(arguments) or 'an empty line'!r}: see `{program} --help`."


def _offer(name: str, known: dict[str, str], choices: dict[str, str], program: str) -> str:
    """What may have been meant by an unknown option."""
    axis = name.rpartition(".")[0]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.85 if axis in choices else 0.6)
    if near:
        return f"did you mean {near[0]}?"
    if axis in choices:
        settings = ", ".join(option for option in known if option.startswith(f"{axis}.")) or "no settings"
        return f"the chosen {axis.removeprefix('--')} has {settings}; {axis} NAME chooses another one."
    return f"`{program} --help` lists the fields."


def _option_names(kind: type, prefix: str = "--") -> dict[str, str]:
    """Every option of a command with what it takes."""
    names: dict[str, str] = {}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        option, hint = prefix + field.name.replace("_", "-"), hints[field.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            names |= _option_names(hint, f"{option}.")
        elif hint is not Any:
            names[option] = PLAIN.get(hint) or str(hint).replace("typing.", "")
            if hint is bool:
                names[f"{prefix}no-{option.removeprefix(prefix)}"] = "nothing"
    return names
