"""The user's own form of observations and actions, a Gymnasium space, and the flat numbers that networks deal with.

Observations: a Box or MultiBinary keeps its shape, everything else becomes a vector, as `gymnasium.spaces.flatten` would
make it: Discrete and each entry of a MultiDiscrete one-hot, a Dict its parts in the order of the space (Gymnasium sorts
their keys), a Tuple its parts from first to last, an array in row-major order. Actions: a MultiDiscrete or MultiBinary is
numbered as `numpy.unravel_index` does, the first entry as the most significant digit.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from sadq.errors import SadqError

MOST_NUMBERS = 65_536
"""Of an observation that has one-hot parts."""
MOST_ACTIONS = 4096
"""Of a joint action space: a network has an output for each."""

ARRAY, CHOICES, DICT, TUPLE = "array", "choices", "dict", "tuple"


class Misfit(Exception):
    """A value that is not of a form: what was found, and what was expected."""

    def __init__(self, found: str, expected: str):
        super().__init__(f"{found}, expected {expected}")
        self.found, self.expected = found, expected


@dataclass(frozen=True)
class Form:
    """A space as far as its values' form goes, in plain data that a run's record can hold."""

    kind: str
    shape: tuple[int, ...] = ()
    """Of an array, or of choices; a Discrete has ()."""
    counts: tuple[int, ...] = ()
    """How many values each choice has, in row-major order."""
    starts: tuple[int, ...] = ()
    """The smallest value of each choice."""
    keys: tuple[str, ...] = ()
    parts: tuple["Form", ...] = ()
    dtype: str = "int64"
    """The type of joint actions."""

    @property
    def size(self) -> int:
        """Numbers of a flat value."""
        if self.kind == ARRAY:
            return math.prod(self.shape)
        return sum(self.counts) if self.kind == CHOICES else sum(part.size for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: list(value) for name, value in vars(self).items() if isinstance(value, tuple)}
        return {"kind": self.kind, "dtype": self.dtype} | found | {"parts": [part.as_json() for part in self.parts]}

    @classmethod
    def from_json(cls, data: Any) -> "Form":
        """What `as_json` wrote; ValueError for anything else."""
        if not isinstance(data, dict) or data.get("kind") not in (ARRAY, CHOICES, DICT, TUPLE):
            raise ValueError("this is no form of observations or actions")
        shape, counts, starts = (tuple(int(one) for one in data[name]) for name in ("shape", "counts", "starts"))
        keys, parts = tuple(map(str, data["keys"])), tuple(map(cls.from_json, data["parts"]))
        dtype = str(data.get("dtype", "int64"))  # of older versions always
        form = cls(data["kind"], shape, counts, starts, keys, parts, dtype)
        entries = math.prod(form.shape) if form.kind == CHOICES else 0
        named = len(parts) if form.kind == DICT else 0
        lengths = len(form.counts), len(form.starts), len(keys)
        whole = np.dtype(dtype).kind in "iu"
        if lengths != (entries, entries, named) or min(form.counts, default=1) < 1 or form.size < 1 or not whole:
            raise ValueError("this form does not fit together")
        return form


def observation_form(name: str, space: spaces.Space[Any]) -> Form:
    """The form of an environment's observations, or the sentence that refuses its space."""
    form = _form_of(space)
    if form is None or form.size < 1:
        odd = space if form is not None else _odd_part(space)
        within = "" if odd is space else f", in which {odd} has no numbers to flatten"
        raise SadqError(
            f"environment {name} has observation space {space}{within}, expected a Box, Discrete, MultiBinary or "
            "MultiDiscrete with at least one entry, or a Dict or Tuple of these: wrap it so that it has one."
        )
    if form.kind != ARRAY and form.size > MOST_NUMBERS:
        raise SadqError(
            f"environment {name} has observations of {form.size:,} numbers once its choices are one-hot, expected at most "
            f"{MOST_NUMBERS:,}: wrap it so that they are numbers in a Box."
        )
    return form


def action_form(name: str, space: spaces.Space[Any]) -> Form:
    """The form of an environment's actions, or the sentence that refuses its space."""
    if isinstance(space, spaces.MultiBinary):
        shape = tuple(map(int, space.shape))
        form = Form(CHOICES, shape, (2,) * math.prod(shape), (0,) * math.prod(shape))
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.size:
        form = replace(_choices(space), dtype=np.dtype(space.dtype).name)
    elif isinstance(space, spaces.Discrete):
        form = _choices(space)
    else:
        raise SadqError(
            f"environment {name} has action space {space}, expected Discrete, MultiDiscrete or MultiBinary with at least "
            "one choice: wrap it so that its actions are numbered."
        )
    joint = math.prod(form.counts)
    if form.shape and joint > MOST_ACTIONS:
        sizes = " x ".join(map(str, form.counts[:8])) + (" x ..." if len(form.counts) > 8 else "")
        many = f"{joint:,}" if joint < 10**12 else f"about 10^{math.log10(joint):.0f}"
        raise SadqError(
            f"environment {name} has {sizes} = {many} joint actions, expected at most {MOST_ACTIONS:,}, for a network has "
            "an output for each: wrap it so that there are fewer choices, or one actor for each of them."
        )
    return form


def flattened(form: Form, value: Any) -> tuple[np.ndarray, bool]:
    """(flat numbers [n, size], whether it was one value and not a batch of n); Misfit for what is not of the form.

    A batch is of the same form with a leading axis n on every array, as vector environments give it.
    """
    pieces, single = list[np.ndarray](), None
    for where, part, leaf in _leaves(form, value, ""):
        array = numbers_of(leaf)
        if array is None:
            raise Misfit(f"{_told(leaf)}{where}", f"{_described(part)}")
        if part.shape not in (array.shape, array.shape[1:]):
            raise Misfit(f"shape {array.shape}{where}", f"shape {part.shape}, or with a leading axis for a batch")
        if single not in (None, array.shape == part.shape):
            raise Misfit("one value in some parts and a batch in others", "the same in all")
        single = array.shape == part.shape
        pieces.append(_flat(part, array.reshape(-1, math.prod(part.shape)), where))
    if len({len(piece) for piece in pieces}) > 1:
        raise Misfit(f"batches of {sorted({len(piece) for piece in pieces})} values", "as many in all parts")
    return np.concatenate(pieces, axis=1), bool(single)


def action_of(form: Form, number: int) -> np.ndarray:
    """The user's own action of a number."""
    return actions_of(form, np.array([number]))[0]


def actions_of(form: Form, numbers: np.ndarray) -> np.ndarray:
    """The user's own actions of numbers [n]: [n, *shape]."""
    digits = np.stack(np.unravel_index(numbers, form.counts), axis=-1) + np.array(form.starts)
    return digits.reshape(len(numbers), *form.shape).astype(form.dtype)


def joint_legal(form: Form, value: Any) -> Any:
    """What is legal as booleans of every joint action, where `value` says it of every choice by itself; else `value`.

    By itself: a tuple of an array a choice, as Gymnasium's `sample` takes it, or all of these in one row, as Stable-
    Baselines3's contributions have it. What has the shape of the joint choices is read as legality of joint actions; Misfit
    for a row that may be either.
    """
    parts = [numbers_of(one) for one in value] if isinstance(value, tuple | list) else []
    masks = [part for part in parts if part is not None]
    if [mask.size for mask in masks] != list(form.counts) or len(parts) != len(masks) or len(masks) < 2:
        array = numbers_of(value)
        if array is not None and array.shape == form.counts:
            return array.reshape(-1)
        if array is None or array.shape != (sum(form.counts),):
            return value
        if array.size == math.prod(form.counts):
            expected = f"a tuple of arrays, one for each choice, or an array of the joint shape {form.counts}"
            raise Misfit(f"{array.size} entries that may be of choices or of joint actions", expected)
        masks = np.split(array, np.cumsum(form.counts)[:-1])
    joint = np.ones((), bool)
    for mask in masks:
        joint = np.logical_and.outer(joint, mask.astype(bool))
    return joint.reshape(-1)


def cast(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Observations in the type that networks take, uint8 or float32; Misfit for what that cannot hold."""
    expected = "whole numbers from 0 to 255, since its observation space is uint8"
    if dtype != np.uint8:
        expected = "numbers finite in float32"
        with np.errstate(over="ignore"):
            fits = np.isfinite(array.astype(dtype))
    elif array.dtype != np.uint8:
        with np.errstate(invalid="ignore"):
            fits = (array >= 0) & (array <= 255) & (array % 1 == 0)
    else:
        return array
    if not fits.all():
        raise Misfit(str(array[~fits][0]), expected)
    return array.astype(dtype)


def _form_of(space: spaces.Space[Any]) -> Form | None:
    """None for a space with a part that has no form."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return Form(ARRAY, tuple(map(int, space.shape)))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _choices(space)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keys: tuple[Any, ...] = tuple(space.spaces) if isinstance(space, spaces.Dict) else ()
        found = [_form_of(part) for part in _parts(space)]
        parts = tuple(part for part in found if part is not None)
        if all(isinstance(key, str) for key in keys) and len(parts) == len(found):
            return Form(DICT if isinstance(space, spaces.Dict) else TUPLE, keys=keys, parts=parts)
    return None


def _parts(space: Any) -> list[Any]:
    return list(space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces)


def _choices(space: Any) -> Form:
    if isinstance(space, spaces.Discrete):
        return Form(CHOICES, (), (int(space.n),), (int(space.start),))
    starts = np.broadcast_to(space.start, space.nvec.shape)
    counts, firsts = (tuple(map(int, one.ravel())) for one in (space.nvec, starts))
    return Form(CHOICES, tuple(map(int, space.shape)), counts, firsts)


def _odd_part(space: Any) -> Any:
    """The part of a space that has no form."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return next((_odd_part(part) for part in _parts(space) if _form_of(part) is None), space)
    return space


def _leaves(form: Form, value: Any, where: str) -> Iterator[tuple[str, Form, Any]]:
    """(where it is, its form, its value) for every array of a value."""
    if form.kind == DICT:
        if not isinstance(value, Mapping) or set(value) != set(form.keys):
            found = f"the keys {', '.join(map(str, value))}" if isinstance(value, Mapping) else _told(value)
            raise Misfit(f"{found}{where}", f"a dictionary of {', '.join(form.keys)}")
        for key, part in zip(form.keys, form.parts, strict=True):
            yield from _leaves(part, value[key], f" at {key!r}{where}")
    elif form.kind == TUPLE:
        if not isinstance(value, tuple | list) or len(value) != len(form.parts):
            raise Misfit(f"{_told(value)}{where}", f"a tuple of {len(form.parts)}")
        for index, part in enumerate(form.parts):
            yield from _leaves(part, value[index], f" at {index}{where}")
    else:
        yield where, form, value


def _flat(form: Form, rows: np.ndarray, where: str) -> np.ndarray:
    """Arrays [n, entries] as flat numbers [n, size]."""
    if form.kind == ARRAY:
        return rows.astype(np.float64)
    numbers = rows - np.array(form.starts) if rows.dtype.kind in "iub" else np.full(rows.shape, -1)
    bad = (numbers < 0) | (numbers >= np.array(form.counts))
    if bad.any():
        raise Misfit(f"the value {rows[bad][0]}{where}", _described(form))
    hot = np.zeros((len(rows), sum(form.counts)))
    firsts = np.cumsum((0, *form.counts[:-1]))
    hot[np.arange(len(rows))[:, None], numbers + firsts] = 1.0
    return hot


def numbers_of(value: Any) -> np.ndarray | None:
    """An array of numbers; None where it is something else."""
    try:
        array = np.asarray(value)
    except Exception:  # rows of different lengths, or whatever an object of the user's raises
        return None
    return array if array.dtype.kind in "fbiu" else None


def _described(form: Form) -> str:
    if form.kind == ARRAY:
        return f"an array of shape {form.shape}"
    if form.shape:
        return f"{len(form.counts)} whole numbers, each within its choices"
    return f"a whole number from {form.starts[0]} to {form.starts[0] + form.counts[0] - 1}"


def _told(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:100]}..."
