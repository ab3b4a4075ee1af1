"""Configs as JSON and back, each mismatch named; a choice is written as its name and its settings."""

import contextlib
import dataclasses
import json
import types
import typing
from typing import Any, Literal

from sadq.axes import AXES, axis_of
from sadq.errors import SadqError
from sadq.registry import default_of, shown


def to_json(value: Any, name: str = "") -> Any:
    """A config, or the part of one that stands in the field `name`, as plain JSON data."""
    if isinstance(value, tuple):
        return [to_json(entry, name) for entry in value]
    if not dataclasses.is_dataclass(value):
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            expected = "expected finite numbers, texts, booleans, None, tuples and frozen dataclasses of these"
            raise SadqError(f"{name} = {shown(value)} cannot be written into a config.json: {expected}.") from None
        return value
    kind: dict[str, Any] = {}
    if name == "adjusted":
        kind["axis"] = name = axis_of(type(value)) or ""
    if name in AXES:
        kind["kind"] = AXES[name].name_of(value)
    return kind | {field.name: to_json(getattr(value, field.name), field.name) for field in dataclasses.fields(value)}


def from_json(kind: Any, data: Any, where: str = "config", filled: list[str] | None = None) -> Any:
    """A dataclass from JSON data; unknown fields and wrong types are named.

    Fields that are missing, as in a run of a version that had none of them, get their defaults, and go into `filled`.
    """
    filled = [] if filled is None else filled
    if dataclasses.is_dataclass(kind):
        _check(isinstance(data, dict), f"{where} is not a table of fields, as a run's config.json should hold.")
        hints, fields = typing.get_type_hints(kind), {field.name: field for field in dataclasses.fields(kind)}
        odd = min(map(str, set(data) - set(fields)), default=None)
        _check(odd is None, f"{where} has the unknown field {odd!r}: it is from another version.")
        for name in [name for name in fields if name not in data]:
            default = default_of(fields[name])
            known = default is not dataclasses.MISSING
            _check(known, f"{where} lacks the field {name!r}, which has no default: it is from another version.")
            filled.append(f"{where}.{name} = {default!r}".removeprefix("config."))
        values = {name: _field(name, hints[name], data[name], f"{where}.{name}", filled) for name in data}
        return kind(**values)  # type: ignore[operator]
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        options = tuple(option for option in options if option is not type(None) or data is None)
        for option in options:
            with contextlib.suppress(SadqError):
                found: list[str] = []
                value = from_json(option, data, where, found)
                filled += found
                return value
        return from_json(options[0], data, where)  # what fits none is refused as the first refuses it
    if tuple in (origin, kind):
        _check(isinstance(data, list), f"{where} is {data!r}, expected a list.")
        kinds = options if options and ... not in options else [*options[:1], Any][:1] * len(data)
        _check(len(kinds) == len(data), f"{where} has {len(data)} entries, expected {len(kinds)}.")
        return tuple(from_json(each, entry, where, filled) for each, entry in zip(kinds, data, strict=True))
    if origin is Literal:
        _check(data in options, f"{where} is {data!r}, expected one of {options}.")
        return data
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        _check(abs(data) < 2**1000, f"{where} is too large a number.")
        return float(data)
    expected = object if kind is Any else origin or kind
    fits = isinstance(data, expected) and (expected is not int or not isinstance(data, bool))
    _check(fits, f"{where} is {data!r}, expected {expected.__name__}.")
    return data


def _check(condition: bool, sentence: str) -> None:
    if not condition:
        raise SadqError(sentence)


def _field(name: str, kind: Any, data: Any, where: str, filled: list[str]) -> Any:
    """A field's value: on an axis, the choice that its kind names."""
    if name == "adjusted" and isinstance(data, list):
        tables = [dict(from_json(dict, one, where)) for one in data]
        return tuple(_field(one.pop("axis", ""), Any, one, where, filled) for one in tables)
    if isinstance(name, str) and name in AXES and isinstance(data, dict) and "kind" in data:
        settings = dict(data)
        return from_json(AXES[name].entry(settings.pop("kind")), settings, where, filled)
    return from_json(kind, data, where, filled)
