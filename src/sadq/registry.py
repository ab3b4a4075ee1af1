"""An axis of choices: a registry of named, frozen dataclasses, each with its own settings and nobody else's.

`HEADS.register("categorical")` over a class lets a config, the command line, `sadq list` and a checkpoint speak of it by
that name; a user's own entry, registered the same way, works wherever a built-in one does. This module imports no JAX.
"""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sadq.errors import SadqError


class Axis:
    """The entries of one axis by name."""

    def __init__(self, name: str, meaning: str):
        self.name, self.meaning = name, meaning
        self._entries: dict[str, type] = {}

    def register(self, name: str, replace: bool = False) -> Callable[[type], type]:
        """A decorator that adds a frozen dataclass under a name."""

        def add(entry: type) -> type:
            if not isinstance(name, str) or not name or not set(name) <= _NAME_LETTERS:
                raise SadqError(
                    f"{self.name} {name!r} cannot be registered, expected a name of letters, digits, - and _."
                )
            if not (isinstance(entry, type) and dataclasses.is_dataclass(entry) and _is_frozen(entry)):
                raise SadqError(
                    f"{self.name} {name} was registered with {entry!r}, expected a frozen dataclass: its fields are the "
                    "entry's settings."
                )
            known = self._entries.get(name)
            # The same class again, as after a reload of its module, replaces itself.
            same = known is not None and known.__qualname__ == entry.__qualname__
            if known is not None and not replace and not same:
                raise SadqError(f"{self.name} {name} is registered already: choose another name, or replace=True.")
            self._entries[name] = entry
            return entry

        return add

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def entry(self, name: str) -> type:
        """The class behind a name; an unknown one is refused with what there is."""
        if not isinstance(name, str) or name not in self._entries:
            near = difflib.get_close_matches(str(name), self._entries, n=1)
            offer = f" (did you mean {near[0]}?)" if near else ""
            there = f"{', '.join(self._entries)}; an entry of your own" if self._entries else "one of your own, which"
            raise SadqError(
                f"{self.name} = {name!r} is unknown{offer}: expected {there} is known once its module is imported "
                "(--import)."
            )
        return self._entries[name]

    def name_of(self, choice: Any) -> str:
        """The name under which a choice's class, or the class itself, is registered."""
        kind = choice if isinstance(choice, type) else type(choice)
        for name, entry in self._entries.items():
            if kind is entry:
                return name
        raise SadqError(
            f"{self.name} was given {choice!r}, expected one of {', '.join(self._entries) or 'none so far'} or an entry "
            f"that was registered as {self.name}."
        )

    def choice(self, value: Any, adjusted: Iterable[Any] = ()) -> Any:
        """A choice from itself, or from its class or name: then as it is among `adjusted`, or with default settings."""
        if isinstance(value, str):
            value = self.entry(value)
        name = self.name_of(value)
        if not isinstance(value, type):
            return value
        for one in adjusted:
            if type(one) is value:
                return one
        missing = [field.name for field in dataclasses.fields(value) if default_of(field) is dataclasses.MISSING]
        if missing:
            raise SadqError(
                f"{self.name} {name} cannot be chosen by its name: its setting {missing[0]} has no default; give it one."
            )
        return value()


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """A setting's default, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def changes(choice: Any) -> dict[str, Any]:
    """The settings of a choice that are not its class's defaults."""
    settings = {field.name: (getattr(choice, field.name), default_of(field)) for field in dataclasses.fields(choice)}
    return {name: value for name, (value, default) in settings.items() if value != default}


_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def _is_frozen(entry: type) -> bool:
    return bool(entry.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def require(choice: Any, condition: bool, setting: str, expected: str) -> None:
    """Refuse a setting of a choice in one sentence; meant for its `__post_init__`."""
    if not condition:
        value = getattr(choice, setting)
        raise SadqError(f"{type(choice).__name__}: {setting} = {value!r} {expected}.")


def at_least(choice: Any, smallest: int, *settings: str, or_none: bool = False) -> None:
    """Refuse settings that are not whole numbers of at least `smallest`, or None where that is one."""
    for setting in settings:
        value = getattr(choice, setting)
        fine = isinstance(value, int) and not isinstance(value, bool) and value >= smallest
        expected = f"must be a whole number of at least {smallest}{', or None' if or_none else ''}"
        require(choice, fine or (or_none and value is None), setting, expected)


def positive(choice: Any, *settings: str, or_none: bool = False) -> None:
    """Refuse settings that are not positive, finite numbers, or None where that is one."""
    for setting in settings:
        fine = _number(choice, setting) and 0 < getattr(choice, setting) < 3e38
        expected = f"must be positive{', or None' if or_none else ''}"
        require(choice, fine or (or_none and getattr(choice, setting) is None), setting, expected)


def not_negative(choice: Any, *settings: str) -> None:
    """Refuse settings that are not finite numbers of zero or more."""
    for setting in settings:
        value_is_fine = _number(choice, setting) and 0 <= getattr(choice, setting) < 3e38
        require(choice, value_is_fine, setting, "must be 0 or more")


def share(choice: Any, *settings: str) -> None:
    """Refuse settings that are not numbers in [0, 1]."""
    for setting in settings:
        require(choice, _number(choice, setting) and 0 <= getattr(choice, setting) <= 1, setting, "must lie in [0, 1]")


def one_of(choice: Any, setting: str, *values: str) -> None:
    """Refuse a setting that is none of the given words."""
    require(choice, getattr(choice, setting) in values, setting, f"must be one of {', '.join(values)}")


def layer_sizes(choice: Any, setting: str) -> None:
    """Refuse a setting that does not name at least one layer of size 1 or more."""
    sizes = getattr(choice, setting)
    fine = isinstance(sizes, tuple) and sizes and all(isinstance(size, int) and size >= 1 for size in sizes)
    require(choice, bool(fine), setting, "must name at least one layer, of size 1 or more")


def _number(choice: Any, setting: str) -> bool:
    value = getattr(choice, setting)
    return isinstance(value, int | float) and not isinstance(value, bool)
