"""What a user gives in Python, as what is worked with: an argument in any sensible form, or the sentence that refuses it."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sadq.envs import forms
from sadq.errors import SadqError
from sadq.experiment import storage
from sadq.registry import fitted, shown

MOST_SEEDS = 100_000


def seeds_of(given: Any) -> tuple[int, ...]:
    """Seeds from a list of them, or from how many there are to be."""
    try:
        return fitted(given, tuple[int, ...])
    except TypeError:
        expected = f"seeds = {{}} must be how many, from 1 to {MOST_SEEDS:,}, or a list of whole numbers."
        return tuple(range(whole(given, expected, 1, MOST_SEEDS)))


def whole(given: Any, sentence: str, smallest: int, largest: int | None = None) -> int:
    """A whole number within bounds, or the sentence with what was given instead."""
    with contextlib.suppress(TypeError):
        number = fitted(given, int)
        if smallest <= number and (largest is None or number <= largest):
            return number
    raise SadqError(sentence.format(shown(given)))


def number(given: Any, sentence: str) -> float:
    """A number, or the sentence with what was given instead."""
    with contextlib.suppress(TypeError):
        if not math.isnan(found := fitted(given, float)):
            return found
    raise SadqError(sentence.format(shown(given)))


def text(name: str, given: Any) -> str:
    if not isinstance(given, str):
        raise SadqError(f"{name} = {shown(given)} must be a text: the name of one.")
    return given


def path_of(given: Any) -> Path:
    if not isinstance(given, str | os.PathLike) or "\0" in str(given):
        raise SadqError(f"{shown(given)} is no path: give the name of a folder.")
    return Path(given)


def check_writable(path: Path, problem: str, advice: str) -> None:
    """Refuse, before anything was spent on what is to be in it, a file that cannot be written; its folder is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write(storage.temporary(path), b"")
        storage.drop(storage.temporary(path))
    except OSError as error:
        raise SadqError(f"{problem}: {error.strerror}; {advice}.") from error


def callbacks_of(given: Any) -> list[Any]:
    """Callbacks from one, several or none."""
    several = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    for one in several:
        if isinstance(one, type):
            raise SadqError(f"callback = {shown(one)} is a class: give an object of it, {one.__name__}(...).")
        if not callable(one):
            raise SadqError(f"callback = {shown(one)} must be a function that takes a `Progress`, or a list of such.")
    return several


@contextlib.contextmanager
def following(callbacks: list[Any], source: Any) -> Iterator[None]:
    """Tells callbacks that want to know whom they follow, and that it is over, however that came."""
    begun = []
    try:
        for callback in callbacks:
            if hasattr(callback, "begin"):
                callback.begin(source)
            begun.append(callback)
        yield
    finally:
        for callback in begun:
            if hasattr(callback, "end"):
                callback.end()


def observations_of(
    given: Any, shape: tuple[int, ...], dtype: Any, form: forms.Form | None = None
) -> tuple[np.ndarray, bool]:
    """(observations [n, *shape], whether it was one and not a batch); a `form` is the environment's own."""
    if form is not None:
        with _told("Cannot act on an observation with"):
            array, single = forms.flattened(form, given)
    else:
        expected = f"{shape} or (n, {', '.join(map(str, shape))})"
        found = forms.numbers_of(given)
        if found is None:
            raise SadqError(f"Cannot act on {shown(given)}: expected an array of numbers of shape {expected}.")
        if shape not in (found.shape, found.shape[1:]):
            raise SadqError(f"Cannot act on an observation of shape {found.shape}: expected {expected}.")
        array, single = found.reshape(-1, *shape), found.shape == shape
    with _told("Cannot act on an observation with"):
        return forms.cast(array, dtype), single


def masks_of(given: Any, actions: int, single: bool, count: int, form: forms.Form | None = None) -> np.ndarray:
    """Legal actions bool[n, A], refused where they are of another size or allow nothing; a `form` is of joint actions."""
    if form is not None:
        rows = [given] if single else given if isinstance(given, list | np.ndarray) else []
        with _told("action_masks have"):
            given = [forms.joint_legal(form, one) for one in rows]
    masks, expected = forms.numbers_of(given), ((actions,), (1, actions)) if single else ((count, actions),)
    if masks is None or masks.shape not in expected or masks.dtype.kind not in "biu":
        found = shown(given) if masks is None else f"of shape {masks.shape} and type {masks.dtype}"
        raise SadqError(f"action_masks are {found}: expected booleans of shape {expected[0]}.")
    masks = masks.astype(bool).reshape(-1, actions)
    if not masks.any(axis=1).all():
        raise SadqError("action_masks allow no action at all for an observation: expected one at least.")
    return masks


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """A misfit as the sentence that refuses it."""
    try:
        yield
    except forms.Misfit as misfit:
        raise SadqError(f"{what} {misfit.found}: expected {misfit.expected}.") from misfit
