"""Verdicts: does one arm do better than another? Every measure, corrected for their number, and the answer in words."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sadq.errors import SadqError
from sadq.experiment.scores import area_under_curve, final_return, steps_to_threshold
from sadq.registry import fitted, shown
from sadq.report import stats
from sadq.report.runs import Floats, Integers
from sadq.report.stats import Estimate, Paired, generator_for, interval, number, p_in_words


@dataclass(frozen=True)
class Measure:
    """What a run is judged by: one number a seed."""

    name: str
    title: str
    higher_is_better: bool = True


STEPS_TO_THRESHOLD = Measure("steps_to_threshold", "steps to the threshold", higher_is_better=False)
AREA_UNDER_CURVE = Measure("area_under_curve", "area under the curve")
FINAL_RETURN = Measure("final_return", "final return")
MEASURES = {measure.name: measure for measure in (STEPS_TO_THRESHOLD, AREA_UNDER_CURVE, FINAL_RETURN)}
"""In the order in which a verdict speaks of them: those that use the whole curve tell agents apart with fewer seeds."""

THRESHOLD_SHARE = 0.8


def measured(steps: Integers, returns: Floats, threshold: float | None, until: float = math.inf) -> dict[str, Floats]:
    """Measure -> its value of each member, from a curve up to a step: steps[S], returns[M, S] -> [M].

    A curve that was evaluated at other steps than the one beside it is cut between two of its own evaluations, so that
    both end at one step: else the later end alone would count as a later arrival. NaN where there is nothing to reach.
    """
    count = int(np.count_nonzero(steps <= until))
    known = returns[:, :count]
    places, curve = steps[:count].astype(np.float64), known
    if 0 < count < steps.size and steps[count - 1] < until:
        share = (until - steps[count - 1]) / (steps[count] - steps[count - 1])
        there = known[:, -1] + share * (returns[:, count] - known[:, -1])
        places, curve = np.append(places, until), np.column_stack([known, there])
    unknown = np.full(len(returns), np.nan)
    return {
        STEPS_TO_THRESHOLD.name: unknown if threshold is None else steps_to_threshold(places, curve, threshold),
        AREA_UNDER_CURVE.name: area_under_curve(places, curve),
        FINAL_RETURN.name: final_return(known),
    }


def common_threshold(first: ArrayLike, final: Sequence[ArrayLike]) -> float | None:
    """A return that is worth reaching: 80% of the way from untrained agents to the best arm.

    `first` has the evaluations at step 0 of all arms together, `final` each arm's final returns; so it favours no arm.
    Values that are not known are left out. None where nothing was learned: there is nothing to reach.
    """
    begins, *ends = (known[np.isfinite(known)] for known in (np.asarray(each, np.float64) for each in (first, *final)))
    ends = [each for each in ends if each.size]
    if not begins.size or not ends:
        return None
    start, best = float(begins.mean()), max(float(stats.interquartile_mean(each)) for each in ends)
    return start + THRESHOLD_SHARE * (best - start) if best > start else None


def threshold_of(given: Any) -> float | None:
    """The threshold that was asked for, if any; what is no return to reach is refused."""
    with contextlib.suppress(TypeError):
        threshold: float | None = fitted(given, float | None)
        if threshold is None or math.isfinite(threshold):
            return threshold
    raise SadqError(
        f"threshold = {shown(given)} must be a finite number, the return to be reached: leave it out or give one."
    )


@dataclass(frozen=True)
class Contrast:
    """One arm against a base on one measure: each over all its seeds, and both over the seeds they share."""

    measure: Measure
    base: Estimate  # interquartile means
    other: Estimate
    improvement: Estimate  # how often a run of the other arm is the better of two drawn independently
    difference: Paired  # other minus base, whichever is better
    corrected_p: float
    comparisons: int  # how many the p-value was corrected for

    @property
    def outcome(self) -> str:
        """better, worse, equal (seed by seed), undecided, or unknown where no two seeds can be paired."""
        pairs = self.difference
        if len(pairs.differences) < 2:
            return "unknown"
        if pairs.ties == len(pairs.differences):
            return "equal"
        if self.corrected_p > stats.SIGNIFICANCE:
            return "undecided"
        return "better" if (pairs.mean.value > 0) == self.measure.higher_is_better else "worse"

    @property
    def win_share(self) -> float:
        """Share of shared seeds on which the other arm is the better one, ties counted half."""
        share = self.difference.win_share
        return share if self.measure.higher_is_better else 1 - share

    @property
    def difference_in_words(self) -> str:
        """With the level of its interval where that is not the 95% of all others, as with fewer than six pairs."""
        pairs = self.difference
        known = pairs.mean.low is not None and pairs.level < stats.LEVEL - 1e-3
        return interval(pairs.mean, signed=True) + f" at {pairs.level:.0%}" * known

    @property
    def seeds_to_settle(self) -> int | None:
        """Seeds with which a difference as large as the one seen would be found 4 times in 5; None: over 1,000."""
        return stats.seeds_to_settle(self.difference.differences, self.comparisons)

    @property
    def can_settle(self) -> bool:
        """Whether so many pairs could give a small enough p-value at all."""
        return self.difference.smallest_p * self.comparisons <= stats.SIGNIFICANCE

    def as_dict(self) -> dict[str, Any]:
        pairs, needed = self.difference, self.seeds_to_settle
        settled = self.outcome in ("better", "worse", "equal")
        return {
            "measure": self.measure.name,
            "outcome": self.outcome,
            "base": dataclasses.asdict(self.base),
            "other": dataclasses.asdict(self.other),
            "difference": dataclasses.asdict(pairs.mean) | {"level": pairs.level},
            "differences": list(pairs.differences),
            "p_value": pairs.p_value,
            "exact": pairs.exact,
            "corrected_p_value": self.corrected_p,
            "comparisons": self.comparisons,
            "probability_of_improvement": dataclasses.asdict(self.improvement),
            "paired_wins": self.win_share,
            "seeds_to_settle": needed,
            "more_seeds": 0 if settled else None if needed is None else max(1, needed - len(pairs.differences)),
        }


def contrast(
    measure: Measure, base: Mapping[int, float], other: Mapping[int, float], seed: int = 0, *names: str
) -> Contrast:
    """Two arms by their seeds' values; `names` say what they are, for the random streams of `seed`'s bootstraps."""
    shared = [one for one in base if one in other]
    strata = [[*base.values()]], [[*other.values()]]
    ordered = strata if measure.higher_is_better else strata[::-1]

    def resampling(what: str) -> np.random.Generator:
        return generator_for(seed, measure.name, what, *names)

    pairs = stats.paired([base[one] for one in shared], [other[one] for one in shared], resampling("difference"))
    return Contrast(
        measure,
        stats.aggregate(strata[0], resampling("base")),
        stats.aggregate(strata[1], resampling("other")),
        stats.probability_of_improvement(*ordered, resampling("improvement")),
        pairs,
        pairs.p_value,
        1,
    )


def corrected(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The same with Holm's correction over all of them that could be compared: arms and measures alike."""
    compared = [index for index, one in enumerate(contrasts) if one.outcome not in ("unknown", "equal")]
    p_values = stats.holm([contrasts[index].difference.p_value for index in compared])
    found = list(contrasts)
    for index, p_value in zip(compared, p_values, strict=True):
        found[index] = dataclasses.replace(found[index], corrected_p=p_value, comparisons=len(compared))
    return found


def overall(contrasts: Sequence[Contrast]) -> str:
    """One word for an arm against its base: better, worse, mixed, equal, undecided or unknown."""
    outcomes = {one.outcome for one in contrasts}
    if {"better", "worse"} <= outcomes:
        return "mixed"
    ranked = ("better", "worse", "undecided", "equal", "unknown")
    return next((one for one in ranked if one in outcomes), "unknown")


def pairs_in(contrasts: Sequence[Contrast]) -> int:
    """How many seeds have a score in both arms, on the measure that has most of them."""
    return max((len(one.difference.differences) for one in contrasts), default=0)


def verdict(other: str, base: str, contrasts: Sequence[Contrast]) -> str:
    """The answer in words, from the measures of one arm against its base."""
    outcome = overall(contrasts)
    pairs = pairs_in(contrasts)
    if outcome == "unknown":
        why = "one seed shows no spread" if pairs else "no seed has a score in both"
        return f"Nothing can be said of {other} against {base}: {why}."
    if outcome == "equal":
        return f"{other} and {base} have the same scores on each of {pairs} seeds."
    settled = [one for one in contrasts if one.outcome in ("better", "worse")]
    doubtful = [one for one in contrasts if one.outcome == "undecided"]
    if outcome == "undecided":
        head = f"No difference between {other} and {base} is detectable at {pairs} seeds"
        return f"{head}: {_findings(doubtful, pairs)}. {_outlook(doubtful)}"
    opening = {"better": "is better than", "worse": "is worse than", "mixed": "is better and worse than"}[outcome]
    caution = ", though so few seeds say little about by how much" if pairs < 10 else ""
    head = f"{other} {opening} {base} at {pairs} seeds{caution}: {_findings(settled, pairs)}."
    if not doubtful:
        return head
    return f"{head} No difference is detectable in {_findings(doubtful, pairs)}. {_outlook(doubtful)}"


def _findings(contrasts: Sequence[Contrast], seeds: int) -> str:
    return "; ".join(_finding(one, seeds) for one in contrasts)


def _finding(one: Contrast, seeds: int) -> str:
    """A measure in numbers, and over how many seeds where that is not as many as the verdict speaks of."""
    count, own = one.comparisons, len(one.difference.differences)
    fewer = f" over {own} seeds" if own < seeds else ""
    chance = p_in_words(one.corrected_p) + (f" after Holm's correction for {count}" if count > 1 else "")
    return (
        f"{one.measure.title}{fewer} {number(one.other.value)} against {number(one.base.value)}, paired difference "
        f"{one.difference_in_words} ({chance})"
    )


def _outlook(doubtful: Sequence[Contrast]) -> str:
    """How many more seeds would settle the easiest of the open measures."""
    pairs = pairs_in(doubtful)
    if not any(one.can_settle for one in doubtful):
        least = math.ceil(1 - math.log2(stats.SIGNIFICANCE / max(one.comparisons for one in doubtful)))
        ties = min(one.difference.ties for one in doubtful)
        those = f"{pairs} seeds, of which {ties} {'is' if ties == 1 else 'are'} tied," if ties else f"{pairs} seeds"
        rest = "the others" if ties else "all of them"
        return f"{those} cannot settle it even if {rest} agree: that takes at least {least}{' others' * bool(ties)}."
    needed = [(one.seeds_to_settle or math.inf, one.measure.title) for one in doubtful]
    seeds, title = min(needed, key=lambda pair: pair[0])
    if math.isinf(seeds):
        return f"Differences as small as these would take more than {stats.MOST_SEEDS:,} seeds to settle."
    more = max(1, int(seeds) - pairs)
    return f"About {more} more seed{'s' * (more > 1)} would settle a difference in {title} as large as this one."
