"""Traces: what a figure draws of a line, thinned to what can be seen, with the interval over its seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sadq.experiment.scores import final_return
from sadq.report.lines import Curve, Line
from sadq.report.runs import Floats, Integers
from sadq.report.stats import LIMITS, curve_interval, generator_for

POINTS = 200  # as many as a figure's pixels can tell apart
LINES_WITH_SEEDS = 4  # with more curves than this, thin lines would bury the means
SMOOTHED_FROM = 50  # evaluations; of fewer, a running mean would hide the shape
GRID = 101  # scores at which a profile is looked at
RESAMPLES = 2_000


@dataclass(frozen=True)
class Trace:
    """One line of a figure: mean and interval [T] at x [T], and its seeds [M, T'] at their own places [T']."""

    label: str
    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    seeds_x: Floats
    seeds: Floats


def trace_of(line: Line, curve: Curve, smoothed: bool, seed: int, *names: str) -> Trace:
    """A recorded quantity over steps; smoothed, the running mean of the last five, which ends at the final score."""
    seeds_x, seeds = thinned(*curve)
    x, values = seeds_x, seeds
    if smoothed:
        means = [final_return(curve[1][:, :end]) for end in range(1, curve[0].size + 1)]
        x, values = thinned(curve[0], np.stack(means, axis=1))
    generator = generator_for(seed, line.run.name, line.label, *names)
    mean, low, high = curve_interval(values, generator, RESAMPLES)
    return Trace(line.label, x, mean, low, high, seeds_x, seeds)


def profile_of(label: str, strata: Sequence[Floats], grid: Floats, seed: int, *names: str) -> Trace:
    """The share of runs that score at least so much, at every score of the grid; each stratum is redrawn apart."""
    generator = generator_for(seed, label, "profile", *names)
    known = [scores[np.isfinite(scores)] for scores in strata]
    known = [scores for scores in known if scores.size]
    above = [(scores[:, None] >= grid[None, :]).astype(np.float64) for scores in known]
    share = np.mean([each.mean(axis=0) for each in above], axis=0)
    resampled = np.zeros((RESAMPLES, grid.size))
    for each in above:
        count = len(each)
        drawn = generator.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        resampled += drawn @ each / (count * len(above))
    low, high = np.quantile(resampled, LIMITS, axis=0)
    if max(len(each) for each in above) < 2:  # one run shows no spread
        low = high = np.full(grid.size, np.nan)
    return Trace(label, grid, share, low, high, grid[:0], np.zeros((0, 0)))


def grid_of(scores: Sequence[Floats]) -> Floats:
    """Places from the least to the greatest score, with both ends; empty where there are fewer than two."""
    known = np.concatenate([np.ravel(each) for each in scores]) if scores else np.zeros(0)
    known = np.unique(known[np.isfinite(known)])
    return np.linspace(known[0], known[-1], GRID) if known.size > 1 else known[:0]


def reached_by(line: Line, threshold: float, seed: int) -> Trace:
    """The share of a line's seeds that have reached the threshold by each of its evaluations."""
    x = line.run.steps.astype(np.float64)
    reached = np.maximum.accumulate(line.returns >= threshold, axis=1).astype(np.float64)
    generator = generator_for(seed, line.run.name, line.label, "reached")
    mean, low, high = curve_interval(reached, generator, RESAMPLES)
    return Trace(line.label, x, mean, low, high, x[:0], np.zeros((0, 0)))


def thinned(steps: Integers, values: Floats, points: int = POINTS) -> tuple[Floats, Floats]:
    """At most `points` points, each the mean over a stretch of the curve; stretches without a value are left out."""
    known = np.isfinite(values)
    some = known.any(axis=0)
    steps, values, known = steps[some], values[:, some], known[:, some]
    starts = np.arange(0, steps.size, -(-steps.size // points) or 1)
    count = np.add.reduceat(known, starts, axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        means = np.add.reduceat(np.where(known, values, 0.0), starts, axis=1) / count
    lengths = np.diff(np.append(starts, steps.size))
    return np.add.reduceat(steps.astype(np.float64), starts) / lengths, means
