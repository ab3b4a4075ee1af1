"""Statistics over a handful of seeds: bootstrap intervals, paired differences and an exact sign-flip test."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.random import Generator

from sadq.report.runs import Floats

LEVEL = 0.95
RESAMPLES = 10_000
CURVE_RESAMPLES = 2_000
ENUMERATED_PAIRS = 12
SAMPLED_FLIPS = 50_000
SIGNIFICANCE = 0.05
TIE = 1e-12  # relative: sums of the same numbers in another order are no difference

COVERAGE = {3: 0.75, 5: 0.84, 10: 0.90, 20: 0.93}
"""Seeds -> how often a "95%" percentile interval of the mean really holds the mean of normal data (simulated)."""

Statistic = Callable[..., Floats]
"""(values, axis) -> the statistic along that axis."""


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
    improvement: float
    """Share of pairs in which the guided agent is ahead, ties counted half."""

    p_value: float
    """Two-sided, of the hypothesis that the sign of every difference is a coin flip."""

    smallest_p: float
    """The least p-value that so many pairs (those tied aside) could have given."""

    exact: bool

    @property
    def wins(self) -> int:
        return sum(difference > 0 for difference in self.differences)

    @property
    def ties(self) -> int:
        return sum(difference == 0 for difference in self.differences)


def generator_for(seed: int, *names: str) -> Generator:
    """A stream of its own for every named quantity, so that adding a run to a report changes no other interval."""
    return np.random.default_rng([seed, zlib.crc32("\x1f".join(names).encode())])


def interquartile_mean(values: Floats, axis: int = 0) -> Floats:
    """The mean without the lowest and the highest quarter, each rounded down to whole values."""
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=axis)
    count = ordered.shape[axis]
    kept: Floats = np.take(ordered, np.arange(count // 4, count - count // 4), axis=axis)
    return np.asarray(kept.mean(axis=axis))


def estimate(
    values: Floats | list[float],
    generator: Generator,
    statistic: Statistic = np.mean,
    resamples: int = RESAMPLES,
) -> Estimate:
    """The statistic of the finite values, with its percentile-bootstrap interval."""
    values = np.asarray(values, dtype=np.float64)
    values = np.sort(values[np.isfinite(values)])  # so that the order of members does not matter
    count = values.size
    if count < 2:
        return Estimate(float(values[0]) if count else float("nan"), None, None, count)
    drawn = values[generator.integers(count, size=(resamples, count))]
    low, high = np.quantile(statistic(drawn, axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(statistic(values, axis=0)), float(low), float(high), count)


def curve_interval(values: Floats, generator: Generator, resamples: int = CURVE_RESAMPLES) -> tuple[Floats, ...]:
    """(mean[T], low[T], high[T]) over the members of values[M, T] that have a value there.

    Whole members are redrawn, the same for every step, for a member's values at neighbouring steps are not independent.
    """
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    count = values.shape[0]
    drawn = generator.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / known.sum(axis=0)
        resampled = (drawn @ filled) / (drawn @ known)
    low, high = np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    spread = known.sum(axis=0) >= 2
    if spread.any():
        limits = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        # A resample that drew no member with a value at some step is empty there, and only there.
        low[spread], high[spread] = np.nanquantile(resampled[:, spread], limits, axis=0)
    return mean, low, high


def improvement_probability(differences: Floats) -> float:
    """Share of differences above zero, ties counted half; NaN of none."""
    return float(np.mean((np.sign(differences) + 1) / 2)) if differences.size else float("nan")


def sign_flip_test(differences: Floats, generator: Generator) -> tuple[float, bool]:
    """(two-sided p-value, whether it is exact): how many of all sign patterns give a mean at least as far from zero."""
    differences = differences[differences != 0]  # a zero keeps its value under either sign, so it cancels out
    count = differences.size
    exact = count <= ENUMERATED_PAIRS
    if not count:
        return 1.0, True
    if exact:
        signs = np.array(list(product((-1.0, 1.0), repeat=count)))
    else:
        signs = generator.choice((-1.0, 1.0), size=(SAMPLED_FLIPS, count))
    observed = abs(differences.sum()) - TIE * np.abs(differences).sum()
    extreme = int(np.count_nonzero(np.abs(signs @ differences) >= observed))
    # The observed pattern is one of the possible ones, so a sample counts it too and its p-value is never zero.
    return (extreme / len(signs), True) if exact else ((1 + extreme) / (1 + len(signs)), False)


def paired(base: Floats | list[float], guided: Floats | list[float], generator: Generator) -> Paired:
    """Compares two agents whose values at one index come from the same seed; pairs without a finite value drop out."""
    base, guided = np.asarray(base, dtype=np.float64), np.asarray(guided, dtype=np.float64)
    known = np.isfinite(base) & np.isfinite(guided)
    base, guided = base[known], guided[known]
    differences = guided - base
    differences[np.abs(differences) <= TIE * np.maximum(np.abs(base), np.abs(guided))] = 0.0
    p_value, exact = sign_flip_test(differences, generator)
    smallest = 2.0 ** (1 - int(np.count_nonzero(differences))) if differences.any() else 1.0
    return Paired(
        differences=tuple(float(difference) for difference in differences),
        mean=estimate(differences, generator),
        interquartile_mean=estimate(differences, generator, interquartile_mean),
        improvement=improvement_probability(differences),
        p_value=p_value,
        smallest_p=smallest if exact else max(smallest, 1 / (1 + SAMPLED_FLIPS)),
        exact=exact,
    )


def number(value: float | None, signed: bool = False, scale: float | None = None) -> str:
    """A value with as many digits as a reader can use, or as suit a larger number beside it, `scale`."""
    if value is None or not math.isfinite(value):
        return "not known"
    size = abs(value) if scale is None else scale
    leading = math.floor(math.log10(size)) if size else 0
    decimals = min(max(2 - max(leading - 1, 0), 0), 2) if leading >= -1 else 1 - leading
    digits = f"{abs(value):,.{decimals}f}" if decimals <= 5 else f"{abs(value):.1e}"
    if not digits.strip("0."):
        return digits
    return ("\N{MINUS SIGN}" if value < 0 else "+" if signed else "") + digits


def interval(estimate: Estimate, signed: bool = False) -> str:
    """`0.97 [0.93, 1.00]`, or the value alone where one seed allows no interval."""
    if estimate.low is None or estimate.high is None:
        return number(estimate.value, signed)
    scale = max(abs(estimate.value), abs(estimate.low), abs(estimate.high))
    limits = f"[{number(estimate.low, scale=scale)}, {number(estimate.high, scale=scale)}]"
    return f"{number(estimate.value, signed, scale)} {limits}"


def p_in_words(value: float) -> str:
    """`p = 0.375`, or `p < 0.001`."""
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
    low, high = result.mean.low, result.mean.high
    if low is not None and high is not None and (low > 0 or high < 0):
        sentence += " The interval excludes zero, but bootstrap intervals over so few seeds are too narrow."
    return sentence
