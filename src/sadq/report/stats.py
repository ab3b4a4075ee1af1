"""Statistics over a handful of seeds: bootstrap intervals, paired differences and an exact sign-flip test."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from sadq.report.runs import Floats

LEVEL = 0.95
LIMITS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
RESAMPLES = 10_000
ENUMERATED_PAIRS = 12
SAMPLED_FLIPS = 50_000
SIGNIFICANCE = 0.05
TIE = 1e-12  # relative: sums of the same numbers in another order are no difference
# Seeds -> how often a "95%" percentile interval of the mean really holds the mean of normal data (simulated).
COVERAGE = {3: 0.75, 5: 0.84, 10: 0.90, 20: 0.93}

Statistic = Callable[..., Floats]  # (values, axis) -> the statistic along that axis


@dataclass(frozen=True)
class Estimate:
    """A statistic over `count` seeds; no interval for fewer than two, which show no spread."""

    value: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True)
class Paired:
    """Guided minus base, seed by seed."""

    differences: tuple[float, ...]
    mean: Estimate
    interquartile_mean: Estimate
    improvement: float  # share of pairs in which the guided agent is ahead, ties counted half
    p_value: float  # two-sided, of the hypothesis that the sign of every difference is a coin flip
    smallest_p: float  # the least p-value that so many pairs (those tied aside) could have given
    exact: bool

    @property
    def wins(self) -> int:
        return sum(difference > 0 for difference in self.differences)

    @property
    def ties(self) -> int:
        return self.differences.count(0)


def generator_for(seed: int, *names: str) -> Generator:
    """A stream of its own for every named quantity, so that adding a run to a report changes no other interval."""
    return np.random.default_rng([seed, zlib.crc32("\x1f".join(names).encode())])


def interquartile_mean(values: Floats, axis: int = 0) -> Floats:
    """The mean without the lowest and the highest quarter, each rounded down to whole values."""
    count = values.shape[axis]
    middle = np.sort(values, axis=axis).take(range(count // 4, count - count // 4), axis=axis)
    return np.asarray(middle.mean(axis=axis))


def estimate(values: ArrayLike, rng: Generator, statistic: Statistic = np.mean, resamples: int = RESAMPLES) -> Estimate:
    """The statistic of the finite values, with its percentile-bootstrap interval."""
    values = np.asarray(values, dtype=np.float64)
    values = np.sort(values[np.isfinite(values)])  # so that the order of members does not matter
    count = values.size
    if count < 2:
        return Estimate(float(values[0]) if count else float("nan"), None, None, count)
    drawn = values[rng.integers(count, size=(resamples, count))]
    low, high = np.quantile(statistic(drawn, axis=1), LIMITS).tolist()
    return Estimate(float(statistic(values, axis=0)), low, high, count)


def curve_interval(values: Floats, rng: Generator, resamples: int = 2_000) -> tuple[Floats, ...]:
    """(mean[T], low[T], high[T]) over the members of values[M, T] that have a value there."""
    known = np.isfinite(values)
    filled, counts = np.where(known, values, 0.0), known.sum(axis=0)
    members = len(values)
    # Whole members are redrawn, the same for every step: a member's values at neighbouring steps are not independent.
    drawn = rng.multinomial(members, np.full(members, 1 / members), size=resamples).astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean = filled.sum(axis=0) / counts
        resampled = (drawn @ filled) / (drawn @ known)
    # A resample that drew no member with a value at some step is empty there, and only there.
    limits = np.nanquantile(np.where(counts < 2, 0.0, resampled), LIMITS, axis=0)
    return mean, *np.where(counts < 2, np.nan, limits)


def sign_flip_test(differences: Floats, rng: Generator) -> tuple[float, bool]:
    """(two-sided p-value, whether it is exact): how many of all sign patterns give a mean at least as far from zero."""
    differences = differences[differences != 0]  # a zero keeps its value under either sign, so it cancels out
    count, exact = differences.size, differences.size <= ENUMERATED_PAIRS
    every = product((-1.0, 1.0), repeat=count)
    signs = np.array(list(every)) if exact else rng.choice((-1.0, 1.0), size=(SAMPLED_FLIPS, count))
    observed = abs(differences.sum()) - TIE * np.abs(differences).sum()
    extreme = int(np.count_nonzero(np.abs(signs @ differences) >= observed))
    # The observed pattern is one of the possible ones, so a sample counts it too and its p-value is never zero.
    return (extreme / len(signs) if exact else (1 + extreme) / (1 + len(signs))), exact


def paired(base: ArrayLike, guided: ArrayLike, rng: Generator) -> Paired:
    """Compares two agents whose values at one index come from the same seed; pairs without a finite value drop out."""
    pairs = np.array([base, guided], dtype=np.float64)
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    differences = pairs[1] - pairs[0]
    differences[np.abs(differences) <= TIE * np.abs(pairs).max(axis=0)] = 0.0
    p_value, exact = sign_flip_test(differences, rng)
    return Paired(
        differences=tuple(differences.tolist()),
        mean=estimate(differences, rng),
        interquartile_mean=estimate(differences, rng, interquartile_mean),
        improvement=float(np.mean((np.sign(differences) + 1) / 2)) if differences.size else float("nan"),
        p_value=p_value,
        smallest_p=float(np.clip(2.0 ** (1 - np.count_nonzero(differences)), 1 / (1 + SAMPLED_FLIPS), 1.0)),
        exact=exact,
    )


def number(value: float, signed: bool = False, scale: float | None = None) -> str:
    """A value with as many digits as a reader can use, or as suit a larger number beside it, `scale`."""
    if not math.isfinite(value):
        return "not known"
    size = abs(value) if scale is None else scale
    leading = math.floor(math.log10(size)) if size else 0
    decimals = max(0, min(2, 3 - leading), 1 - leading)
    digits = f"{abs(value):,.{decimals}f}" if decimals <= 5 else f"{abs(value):.1e}"
    sign = "\N{MINUS SIGN}" if value < 0 else "+" if signed else ""
    return sign + digits if digits.strip("0.") else digits


def interval(estimate: Estimate, signed: bool = False) -> str:
    """`0.97 [0.93, 1.00]`, or the value alone where one seed allows no interval."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if low is None or high is None:
        return number(value, signed)
    scale = max(abs(value), abs(low), abs(high))
    return f"{number(value, signed, scale)} [{number(low, scale=scale)}, {number(high, scale=scale)}]"


def p_in_words(value: float) -> str:
    return f"p = {value:.3g}" if value >= 0.001 else "p < 0.001"


def conclusion(result: Paired) -> str:
    """What the pairs allow to say, and no more than that."""
    count = len(result.differences)
    if count == 0:
        return "No seed has a score in both runs, so nothing can be compared."
    if count == 1:
        return "One seed shows no spread: nothing can be concluded from a single pair."
    if result.ties == count:
        return f"All {count} pairs are tied, so with {count} seeds this is not distinguishable from zero."
    test = f"{'exact' if result.exact else 'sampled'} two-sided sign-flip test: {p_in_words(result.p_value)}"
    if result.p_value <= SIGNIFICANCE:
        caution = ", though so few seeds say little about its size" if count < 10 else ""
        return f"With {count} seeds this is distinguishable from zero ({test}){caution}."
    sentence = f"With {count} seeds this is not distinguishable from zero ({test})."
    if result.smallest_p > SIGNIFICANCE:
        tied = f", {result.ties} of them tied," if result.ties else ""
        sentence += (
            f" Little can be concluded: {count} pairs{tied} cannot give a p-value below "
            f"1/{round(1 / result.smallest_p)}, even if all of them agree."
        )
    elif count < 10:
        sentence += " So few seeds can show only a large and consistent difference."
    if (result.mean.low or 0.0) > 0 or (result.mean.high or 0.0) < 0:
        sentence += " The interval excludes zero, but bootstrap intervals over so few seeds are too narrow."
    return sentence
