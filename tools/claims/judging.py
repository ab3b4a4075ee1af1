"""How a claim is decided: by where an interval lies, never by how a curve looks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from claims.records import BySeed, Results, Source
from sadq.report import stats
from sadq.report.stats import Estimate, generator_for, interval, number

HOLDS, FAILS, OPEN, LATER = "holds", "does not hold", "not distinguishable", "not yet run"
VERDICTS = (HOLDS, FAILS, OPEN, LATER)


@dataclass(frozen=True)
class Finding:
    """What was measured of a claim, and what follows from it."""

    verdict: str
    measured: str = ""
    seeds: tuple[int, ...] = ()  # how many each arm has
    source: Source | None = None  # whence it is


NOT_RUN = Finding(LATER)


@dataclass(frozen=True)
class Claim:
    """A sentence, figure or table of the paper, on one preset where it is about several."""

    name: str
    where: str
    says: str
    rule: Callable[[Results], Finding]
    artefact: str
    preset: str | None = None  # None: about none, or about all of its presets together


def middle(values: BySeed, *names: str) -> Estimate:
    """The interquartile mean over seeds, with its bootstrap interval; `names` say of what, for its random stream."""
    return stats.aggregate([list(values.values())], generator_for(0, *names))


def paired(base: BySeed, other: BySeed, *names: str) -> Estimate:
    """Other minus base over the seeds that both have, with the interval of all shifts that sign flips do not reject."""
    shared = [seed for seed in base if seed in other]
    return stats.paired([base[s] for s in shared], [other[s] for s in shared], generator_for(0, *names)).mean


def below(found: Estimate, limit: float) -> str:
    """Whether all of an interval lies below a limit, none of it, or neither."""
    if found.low is None or found.high is None or not math.isfinite(found.value):
        return OPEN
    return HOLDS if found.high < limit else FAILS if found.low > limit else OPEN


def above(found: Estimate, limit: float) -> str:
    return {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}[below(found, limit)]


def within(found: Estimate, limit: float) -> str:
    """Whether all of an interval lies nearer to zero than a limit, all of it further away, or neither."""
    if found.low is None or found.high is None:
        return OPEN
    if -limit < found.low and found.high < limit:
        return HOLDS
    return FAILS if found.high < -limit or found.low > limit else OPEN


def all_of(verdicts: Iterable[str]) -> str:
    """Holds where every part does, and fails where one does."""
    found = set(verdicts)
    return next((one for one in (FAILS, LATER, OPEN) if one in found), HOLDS)


def combined(function: Callable[..., float], *values: BySeed) -> BySeed:
    """A number of each seed from several."""
    shared = [seed for seed in values[0] if all(seed in each for each in values)]
    return {seed: function(*(each[seed] for each in values)) for seed in shared}


def mean_of(values: Sequence[BySeed]) -> BySeed:
    """Over several arms, seed by seed."""
    return combined(lambda *each: float(np.mean(each)), *values)


def trend(values: Sequence[BySeed], *names: str) -> Estimate:
    """How much a number changes from one arm to the next, along a row of arms: the least-squares slope of each seed."""
    places = np.arange(len(values)) - (len(values) - 1) / 2
    slopes = combined(lambda *each: float(places @ np.array(each) / (places @ places)), *values)
    return paired(dict.fromkeys(slopes, 0.0), slopes, *names)


def percent(found: Estimate) -> str:
    """`12% [8, 17]`."""
    if found.low is None or found.high is None:
        return f"{_minus(100 * found.value)}%"
    return f"{_minus(100 * found.value)}% [{_minus(100 * found.low)}, {_minus(100 * found.high)}]"


def _minus(value: float) -> str:
    return number(round(value), scale=1000.0) if math.isfinite(value) else "not known"


def listed(labels: Sequence[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels) or "none"


def counts(outcomes: Mapping[str, str], words: Mapping[str, str]) -> str:
    """`better: a, b; worse: none`, in the order of the words."""
    return "; ".join(
        f"{title}: {listed([label for label, one in outcomes.items() if one == outcome])}"
        for outcome, title in words.items()
    )


def signed(found: Estimate) -> str:
    return interval(found, signed=True)
