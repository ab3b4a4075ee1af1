"""Configs as JSON and back, each mismatch named."""

import dataclasses
import types
import typing
from typing import Any, Literal

from sadq.experiment.validation import check


def to_json(config: Any) -> dict[str, Any]:
    """A config as plain JSON data."""
    return dataclasses.asdict(config)


def from_json(kind: type, data: Any, where: str = "config") -> Any:
    """A dataclass from JSON data; unknown or missing fields and wrong types are named."""
    if dataclasses.is_dataclass(kind):
        check(isinstance(data, dict), f"{where} is not a table of fields, as a run's config.json should hold.")
        hints = typing.get_type_hints(kind)
        unknown = set(data) - set(hints)
        check(not unknown, f"{where} has the unknown field {min(unknown, default='')!r}: it is from another version.")
        missing = set(hints) - set(data)
        check(not missing, f"{where} lacks the field {min(missing, default='')!r}: it is from another version.")
        return kind(**{name: from_json(hints[name], data[name], f"{where}.{name}") for name in data})
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        options = [option for option in typing.get_args(kind) if option is not type(None)]
        return None if data is None else from_json(options[0], data, where)
    if typing.get_origin(kind) is tuple:
        check(isinstance(data, list), f"{where} is {data!r}, expected a list.")
        return tuple(from_json(typing.get_args(kind)[0], entry, where) for entry in data)
    if typing.get_origin(kind) is Literal:
        check(data in typing.get_args(kind), f"{where} is {data!r}, expected one of {typing.get_args(kind)}.")
        return data
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    check(isinstance(data, kind), f"{where} is {data!r}, expected {kind.__name__}.")
    return data
