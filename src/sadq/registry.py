"""An axis of choices: a registry of named, frozen dataclasses, each with its own settings and nobody else's.

`HEADS.register("categorical")` over a class lets a config, the command line, `sadq list` and a checkpoint speak of it by
that name; a user's own entry, registered the same way, works wherever a built-in one does. This module imports no JAX.
"""

import dataclasses
import difflib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar

from sadq.errors import SadqError


class Axis:
    """The entries of one axis by name."""

    def __init__(self, name: str, meaning: str, *asks: str):
        """`asks` are the methods and numbers that every entry must have."""
        self.name, self.meaning, self.asks = name, meaning, asks
        self._entries: dict[str, type] = {}

    def register(self, name: str, replace: bool = False) -> Callable[[type], type]:
        """A decorator that adds a frozen dataclass under a name."""

        def add(entry: type) -> type:
            if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_-]+", name):
                expected = "expected a name of letters, digits, - and _"
                raise SadqError(f"{self.name} {shown(name)} cannot be registered, {expected}.")
            parameters = getattr(entry, "__dataclass_params__", None)
            if not isinstance(entry, type) or parameters is None or not parameters.frozen:
                expected = "expected a frozen dataclass: its fields are the entry's settings"
                raise SadqError(f"{self.name} {name} was registered with {shown(entry)}, {expected}.")
            has = {part for kind in entry.__mro__ for part in vars(kind)}
            has |= {field.name for field in dataclasses.fields(entry)}
            if lacking := [part for part in self.asks if part not in has]:
                expected = f"which every {self.name} has: add {'it' if len(lacking) == 1 else 'them'}"
                raise SadqError(f"{self.name} {name} cannot be registered without {', '.join(lacking)}, {expected}.")
            # The same class again, as after a reload of its module, replaces itself.
            known = self._entries.get(name, entry)
            if not replace and (known.__module__, known.__qualname__) != (entry.__module__, entry.__qualname__):
                raise SadqError(f"{self.name} {name} is registered already: choose another name, or replace=True.")
            self._entries[name] = typed(entry)
            return entry

        return add

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, value: object) -> bool:
        """Whether this is the name, the class or a choice of an entry."""
        if isinstance(value, str):
            return value in self._entries
        return (value if isinstance(value, type) else type(value)) in self._entries.values()

    def entry(self, name: str) -> type:
        """The class behind a name; an unknown one is refused with what there is."""
        if not isinstance(name, str) or name not in self._entries:
            near = difflib.get_close_matches(str(name), self._entries, n=1)
            offer = f" (did you mean {near[0]}?)" if near else ""
            there = f"{', '.join(self._entries)}; an entry of your own" if self._entries else "one of your own, which"
            once = "is known once its module is imported (--import)"
            raise SadqError(f"{self.name} = {shown(name)} is unknown{offer}: expected {there} {once}.")
        return self._entries[name]

    def name_of(self, choice: Any) -> str:
        """The name under which a choice's class, or the class itself, is registered."""
        kind = choice if isinstance(choice, type) else type(choice)
        for name, entry in self._entries.items():
            if kind is entry:
                return name
        there = ", ".join(self._entries) or "none so far"
        expected = f"expected one of {there} or an entry that was registered as {self.name}"
        raise SadqError(f"{self.name} was given {shown(choice)}, {expected}.")

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
        for field in dataclasses.fields(value):
            if default_of(field) is dataclasses.MISSING:
                missing = f"its setting {field.name} has no default"
                raise SadqError(f"{self.name} {name} cannot be chosen by its name: {missing}; give it one.")
        return value()


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """A setting's default, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def changes(choice: Any) -> dict[str, Any]:
    """The settings of a choice that are not its class's defaults."""
    defaults = {field.name: default_of(field) for field in dataclasses.fields(choice)}
    return {name: getattr(choice, name) for name, default in defaults.items() if getattr(choice, name) != default}


def shown(value: Any) -> str:
    """A value on one line of bounded length, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


Kind = TypeVar("Kind", bound=type)
WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    type(None): "None",
}
MANY: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "texts"}


def typed(kind: Kind) -> Kind:
    """Let a dataclass refuse what is not of its fields' types, in a sentence; NumPy's numbers and arrays, and lists, are
    taken for the numbers and tuples that they hold. A default may be anything.
    """
    made: Any = kind.__init__  # type: ignore[misc]
    if getattr(made, "is_typed", False):
        return kind
    # What a factory would make is made anew for each: nobody can give that very thing.
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}

    @functools.cache
    def known() -> tuple[inspect.Signature, dict[str, Any]]:
        # Not before it is asked for: an annotation may name what its module defines later, or only a type checker knows.
        try:
            return inspect.signature(made), typing.get_type_hints(kind)
        except Exception:
            return inspect.signature(made), {}

    @functools.wraps(made)
    def init(self: Any, *given: Any, **named: Any) -> None:
        signature, hints = known()
        bound = signature.bind(self, *given, **named)
        for name, value in bound.arguments.items():
            if name in defaults and name in hints and value is not defaults[name]:
                try:
                    bound.arguments[name] = fitted(value, hints[name])
                except TypeError:
                    expected = f"{name} = {shown(value)} must be {_expected(hints[name])}"
                    raise SadqError(f"{kind.__name__}: {expected}.") from None
        made(*bound.args, **bound.kwargs)

    init.is_typed = True  # type: ignore[attr-defined]
    kind.__init__ = init  # type: ignore[misc]
    return kind


def fitted(value: Any, hint: Any) -> Any:
    """A value as one of a type; what cannot be one is a TypeError."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return value
    if origin in (types.UnionType, typing.Union):
        for option in options:
            try:
                return fitted(value, option)
            except TypeError:
                continue
        raise TypeError
    plain = value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value
    if origin is tuple:
        several = isinstance(plain, list | tuple | range)
        if not several or (... not in options and len(plain) != len(options)):
            raise TypeError
        kinds = [options[0]] * len(plain) if ... in options else options
        return tuple(fitted(one, each) for one, each in zip(plain, kinds, strict=True))
    if origin is Literal:
        if not any(plain is option or (type(plain) is type(option) and plain == option) for option in options):
            raise TypeError
        return plain
    if hint in (int, float):
        right = isinstance(plain, int if hint is int else int | float) and not isinstance(plain, bool)
        if not right or (isinstance(plain, int) and abs(plain) > 10**300):  # beyond what a float can be
            raise TypeError
        return hint(plain)
    if hint in (bool, str):
        if not isinstance(plain, hint):
            raise TypeError
        return hint(plain)
    wanted = origin or hint
    if isinstance(wanted, type) and not getattr(wanted, "_is_protocol", False) and not isinstance(value, wanted):
        raise TypeError
    return value


def _expected(hint: Any) -> str:
    """A type in words."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(_expected, options))
    if origin is tuple:
        many = MANY.get(options[0], "values") if options else "values"
        return f"a tuple of {many}" if not options or ... in options else f"a tuple of {len(options)} {many}"
    if origin is Literal:
        return f"one of {', '.join(map(str, options))}"
    name = getattr(origin or hint, "__name__", str(hint))
    if dataclasses.is_dataclass(hint):
        return f"{name}({', '.join(f'{field.name}=...' for field in dataclasses.fields(hint))})"
    return WORDS.get(hint, f"of type {name}")


def require(choice: Any, condition: bool, setting: str, expected: str) -> None:
    """Refuse a setting of a choice in one sentence; meant, as all below, for its `__post_init__`."""
    if not condition:
        raise SadqError(f"{type(choice).__name__}: {setting} = {shown(getattr(choice, setting))} {expected}.")


def _refuser(fits: Callable[[Any], bool], expected: str) -> Callable[..., None]:
    """A function that refuses the settings of a choice that do not fit; a swept one is a tuple of values that do."""

    def refuse(choice: Any, *settings: str, or_none: bool = False, swept: bool = False) -> None:
        for setting in settings:
            value = getattr(choice, setting)
            if swept:
                several = (
                    isinstance(value, tuple) and value != () and all(isinstance(one, int | float) for one in value)
                )
                require(choice, several, setting, "must be a tuple of numbers: one, or several for a sweep")
            fine = all(map(fits, value)) if swept else fits(value) or (or_none and value is None)
            require(choice, fine, setting, f"{expected}, or None" if or_none else expected)

    return refuse


COUNTED = 2**31


def _number(value: Any, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


positive = _refuser(lambda value: _number(value) and 0 < value < 3e38, "must be positive")
not_negative = _refuser(lambda value: _number(value) and 0 <= value < 3e38, "must be 0 or more")
share = _refuser(lambda value: _number(value) and 0 <= value <= 1, "must lie in [0, 1]")
layer_sizes = _refuser(
    lambda sizes: (
        isinstance(sizes, tuple) and sizes != () and all(_number(one, int) and 1 <= one < COUNTED for one in sizes)
    ),
    "must name at least one layer, of size 1 or more and below 2^31",
)


def at_least(choice: Any, smallest: int, *settings: str, or_none: bool = False) -> None:
    """Refuse settings that are not whole numbers of at least `smallest`."""
    expected = f"must be a whole number of at least {smallest}"
    _refuser(lambda value: _number(value, int) and value >= smallest, expected)(choice, *settings, or_none=or_none)
    for setting in settings:
        require(choice, (getattr(choice, setting) or 0) < COUNTED, setting, "must be below 2^31: counters have 32 bits")


def one_of(choice: Any, setting: str, *values: str) -> None:
    """Refuse a setting that is none of the given words."""
    _refuser(lambda value: value in values, f"must be one of {', '.join(values)}")(choice, setting)
