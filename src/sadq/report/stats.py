"""Statistics over a handful of seeds: stratified bootstraps, paired differences, exact sign flips and Holm's correction.

Scores of several environments are strata: a list with an array of one score a seed for each environment, already on one
scale. One environment is a list of one.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from sadq.report.runs import Floats

LEVEL = 0.95
LIMITS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
RESAMPLES = 10_000
ENUMERATED_PAIRS = 20  # 2^20 subsets of differences are looked through in 0.05 s
SAMPLED_FLIPS = 50_000
SIGNIFICANCE = 0.05
POWER = 0.8
MOST_SEEDS = 1_000  # beyond which the number needed says only that nobody will run them
LARGEST_EXPONENT = 8  # of ten, in a number that is written out
TIE = 1e-12  # relative: sums of the same numbers in another order are no difference
# Seeds -> how often a "95%" percentile interval of the mean really holds the mean of normal data (simulated).
COVERAGE = {3: 0.75, 5: 0.84, 10: 0.90, 20: 0.93}

Statistic = Callable[..., Floats]  # (values, axis) -> the statistic along that axis
Subsets = tuple[Floats, Floats, bool]  # of differences: their sums, their sizes, whether these are all


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
    mean: Estimate  # with all shifts that the sign-flip test would not reject as its interval
    level: float  # how often such an interval holds the centre of symmetric differences: 95% takes 6 pairs
    interquartile_mean: Estimate
    win_share: float  # share of pairs in which the guided agent is ahead, ties counted half
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
    return aggregate([values], rng, statistic, resamples)


def aggregate(
    strata: Sequence[ArrayLike], rng: Generator, statistic: Statistic = interquartile_mean, resamples: int = RESAMPLES
) -> Estimate:
    """The statistic of all finite scores together, with the interval of a bootstrap that redraws each stratum apart."""
    known = [_finite(scores) for scores in strata]
    together = np.concatenate([*known, np.empty(0)])
    if together.size == 0 or max(scores.size for scores in known) < 2:
        return Estimate(float(statistic(together, axis=0)) if together.size else math.nan, None, None, together.size)
    drawn = [scores[rng.integers(scores.size, size=(resamples, scores.size))] for scores in known if scores.size]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=1), axis=1), LIMITS).tolist()
    return Estimate(float(statistic(together, axis=0)), low, high, together.size)


def probability_of_improvement(
    base: Sequence[ArrayLike], other: Sequence[ArrayLike], rng: Generator, resamples: int = RESAMPLES
) -> Estimate:
    """How often a run of `other` beats a run of `base` drawn independently of it, ties counted half (as rliable has it).

    The mean over the strata of the Mann-Whitney statistic, divided by its greatest value; seeds are not paired. Each
    agent's runs are redrawn apart, stratum by stratum.
    """
    value, resampled, count, shows_spread = 0.0, np.zeros(resamples), 0, False
    pairs = [(_finite(left), _finite(right)) for left, right in zip(base, other, strict=True)]
    pairs = [(left, right) for left, right in pairs if left.size and right.size]
    for left, right in pairs:
        ahead = (np.sign(right[:, None] - left[None, :]) + 1) / 2
        rows = rng.multinomial(right.size, np.full(right.size, 1 / right.size), size=resamples)
        columns = rng.multinomial(left.size, np.full(left.size, 1 / left.size), size=resamples)
        value += ahead.mean() / len(pairs)
        resampled += ((rows @ ahead) * columns).sum(axis=1) / (ahead.size * len(pairs))
        count += min(left.size, right.size)
        shows_spread |= max(left.size, right.size) > 1
    if not shows_spread:
        return Estimate(value if pairs else math.nan, None, None, count)
    low, high = np.quantile(resampled, LIMITS).tolist()
    return Estimate(float(value), low, high, count)


def _finite(values: ArrayLike) -> Floats:
    values = np.asarray(values, dtype=np.float64)
    return np.sort(values[np.isfinite(values)])  # so that the order of members does not matter


def curve_interval(values: Floats, rng: Generator, resamples: int = 2_000) -> tuple[Floats, ...]:
    """(mean[T], low[T], high[T]) over the members of values[M, T] that have a value there."""
    if not values.size:
        return values[0], values[0], values[0]
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


def subsets(values: Floats, rng: Generator) -> Subsets:
    """All subsets of the values, the empty one first, or many random ones with their complements."""
    if values.size > ENUMERATED_PAIRS:
        chosen = rng.integers(2, size=(SAMPLED_FLIPS // 2, values.size))
        # The observed pattern is one of the possible ones: counted once, by the empty subset, and no p-value is zero.
        chosen[0] = 0
        chosen = chosen[(np.ptp(chosen, axis=1) > 0) | (np.arange(len(chosen)) == 0)]
        sums, sizes = chosen @ values, chosen.sum(axis=1).astype(np.float64)
        return np.concatenate([sums, values.sum() - sums]), np.concatenate([sizes, values.size - sizes]), False
    sums, sizes = np.zeros(1), np.zeros(1)
    for value in values:
        sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
    return sums, sizes, True


def sign_flip_test(differences: Floats, rng: Generator, drawn: Subsets | None = None) -> tuple[float, bool]:
    """(two-sided p-value, whether it is exact): how many of all sign patterns give a mean at least as far from zero."""
    differences = differences[differences != 0]  # a zero keeps its value under either sign, so it cancels out
    positive, _, exact = drawn or subsets(differences, rng)
    total, tie = differences.sum(), TIE * np.abs(differences).sum()
    # The signs of a subset stay and all others turn: the sum is then twice that of the subset, less the total.
    extreme = int(np.count_nonzero(np.abs(2 * positive - total) >= abs(total) - tie))
    return extreme / positive.size, exact


def sign_flip_interval(differences: Floats, rng: Generator, drawn: Subsets | None = None) -> tuple[Estimate, float]:
    """(the mean with all shifts that the test does not reject, the level of that interval).

    The means of all subsets cut the line into 2^n pieces, each of which holds the centre of independent symmetric
    differences equally often (Hartigan, 1969). With fewer than 6 pairs the whole range of them holds less than 95%.
    """
    count = differences.size
    if count < 2:
        return Estimate(float(differences[0]) if count else math.nan, None, None, count), 0.0
    sums, sizes, _ = drawn or subsets(differences, rng)
    means = sums[sizes > 0] / sizes[sizes > 0]
    pieces = means.size + 1
    cut = max(1, math.floor(LIMITS[0] * pieces + 1e-9))
    means = np.partition(means, (cut - 1, means.size - cut))
    low, high = float(means[cut - 1]), float(means[-cut])
    return Estimate(float(differences.mean()), low, high, count), 1 - 2 * cut / pieces


def paired(base: ArrayLike, guided: ArrayLike, rng: Generator) -> Paired:
    """Compares two agents whose values at one index come from the same seed; pairs without a finite value drop out."""
    pairs = np.array([base, guided], dtype=np.float64)
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    differences = pairs[1] - pairs[0]
    differences[np.abs(differences) <= TIE * np.abs(pairs).max(axis=0)] = 0.0
    # What has to be drawn is drawn once for both: each with a chance of its own, they could contradict each other.
    drawn = subsets(np.sort(differences), rng) if differences.size > ENUMERATED_PAIRS else None
    p_value, exact = sign_flip_test(differences, rng, drawn)
    mean, level = sign_flip_interval(np.sort(differences), rng, drawn)
    least = min(1.0, 2.0 ** (1 - int(np.count_nonzero(differences))))
    return Paired(
        differences=tuple(differences.tolist()),
        mean=mean,
        level=level,
        interquartile_mean=estimate(differences, rng, interquartile_mean),
        win_share=float(np.mean((np.sign(differences) + 1) / 2)) if differences.size else math.nan,
        p_value=p_value,
        smallest_p=least if exact else max(least, 2 / SAMPLED_FLIPS),
        exact=exact,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number (Holm, 1979), in their own order: the least times m, the next times m - 1."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return corrected[np.argsort(order, kind="stable")].tolist()


def seeds_to_settle(differences: Sequence[float], comparisons: int = 1) -> int | None:
    """Pairs with which a test finds a difference as large as this one in 4 of 5 repetitions; None: over 1,000.

    The size of a paired t-test by normal quantiles (Guenther, 1981), corrected as Holm corrects the first of several
    comparisons, and never less than the sign flips need to reach that level at all: of signs, which tied pairs have none.
    """
    significance, pairs = SIGNIFICANCE / comparisons, len(differences)
    spread = float(np.std(differences, ddof=1)) if pairs > 1 else 0.0
    mean = abs(float(np.mean(differences))) if pairs else 0.0
    if mean <= TIE * (mean + spread):
        return None
    normal = NormalDist()
    one, other = normal.inv_cdf(1 - significance / 2), normal.inv_cdf(POWER)
    needed = ((one + other) * spread / mean) ** 2 + one**2 / 2
    if needed > MOST_SEEDS:
        return None
    least = _draws(math.ceil(1 - math.log2(significance)), int(np.count_nonzero(differences)) / pairs)
    return max(least, math.ceil(needed))


def _draws(least: int, share: float) -> int:
    """Draws that hold at least so many of what makes up a share, in 4 of 5 repetitions."""
    draws = least
    while sum(math.comb(draws, few) * share**few * (1 - share) ** (draws - few) for few in range(least)) > 1 - POWER:
        draws += 1
    return draws


def number(value: float, signed: bool = False, scale: float | None = None) -> str:
    """A value with as many digits as a reader can use, or as suit a larger number beside it, `scale`."""
    if not math.isfinite(value):
        return "not known"
    size = abs(value) if scale is None else scale
    leading = math.floor(math.log10(size)) if size else 0
    decimals = max(0, min(2, 3 - leading), 1 - leading)
    digits = f"{abs(value):,.{decimals}f}" if decimals <= 5 else f"{abs(value):.1e}"
    if leading > LARGEST_EXPONENT and value:
        digits = f"{abs(value):.3e}"
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
    return sentence
