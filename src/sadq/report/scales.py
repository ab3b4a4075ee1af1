"""Axes: round places for ticks, and where a value lies between the ends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sadq.report.runs import Floats

ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """From values to shares of an axis, 0 at its beginning and 1 at its end."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def __call__(self, values: Floats | Sequence[float]) -> Floats:
        values = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.logarithmic:
            # A value of zero has no place on this scale: it is cut off at the bottom.
            values, low, high = np.log10(np.maximum(values, low)), math.log10(low), math.log10(high)
        return np.clip((values - low) / (high - low), -0.02, 1.02)

    def words(self) -> list[tuple[float, str]]:
        """(share, what stands there) of every tick."""
        return [(float(self([tick])[0]), compact(tick, spacing(self.ticks))) for tick in self.ticks]


def scale_of(values: Sequence[Floats], logarithmic: bool = False, ticks: int = 5, holds: Sequence[float] = ()) -> Scale:
    """A scale that holds all finite values, and those named besides, with a little room at both ends."""
    known = np.concatenate([*(np.ravel(each) for each in values), np.asarray(holds, dtype=np.float64)])
    known = known[np.isfinite(known)]
    if logarithmic and (known > 0).any():
        return _logarithmic(known[known > 0])
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = 0.5 * abs(high) or 0.5
        low, high = low - room, high + room
    step = _round_step((high - low) / ticks)
    margin = 0.04 * (high - low)
    places = np.arange(math.ceil((low - margin) / step), math.floor((high + margin) / step) + 1) * step
    return Scale(low - margin, high + margin, tuple(places.tolist()))


def _logarithmic(known: Floats) -> Scale:
    low, high = math.log10(known.min()), math.log10(known.max())
    low, high = low - 0.05 * max(high - low, 0.4), high + 0.05 * max(high - low, 0.4)
    decades = range(math.floor(low), math.ceil(high) + 1)
    parts = (1,) if high - low > 2 else (1, 2, 5)
    places = [part * 10.0**decade for decade in decades for part in parts]
    inside = [place for place in places if low <= math.log10(place) <= high]
    every = max(1, math.ceil(len(inside) / 7))
    return Scale(10.0**low, 10.0**high, tuple(inside[::every]), logarithmic=True)


def steps_scale(last: float) -> Scale:
    """Env steps from zero to the last."""
    last = max(float(last), 1.0)
    step = _round_step(last / 4)
    return Scale(0.0, last, tuple((np.arange(0, math.floor(last / step) + 1) * step).tolist()))


def _round_step(rough: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return next(part * magnitude for part in ROUND if part * magnitude >= 0.9 * rough)


def spacing(values: Sequence[float] | Floats) -> float:
    """Between the two nearest; 0 where there are fewer."""
    return float(np.diff(values).min()) if len(values) > 1 else 0.0


def compact(value: float, apart: float = 0.0) -> str:
    """`40k`, `1.5M`, `0.25`, `1e-5`: as short as a tick's label must be that is told from the next, so far `apart`."""
    size = abs(value)
    enough = math.ceil(math.log10(size / apart)) + 2 if size > apart > 0 else 0
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit * 0.9999:
            return _signed(f"{size / unit:.{max(4, enough)}g}{letter}", value)
    if 0 < size < 1e-3:
        digits, _, exponent = f"{size:.3g}".partition("e")
        return _signed(f"{digits}e{int(exponent)}" if exponent else f"{size:.0e}".replace("e-0", "e-"), value)
    return _signed(f"{size:.{max(6, enough)}g}", value)


def _signed(text: str, value: float) -> str:
    return ("\N{MINUS SIGN}" if value < 0 else "") + text.replace("e-", "e\N{MINUS SIGN}")
