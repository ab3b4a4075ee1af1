"""How often our 95% intervals hold the truth, by simulation: seeds and distributions as learning curves give them.

    PYTHONPATH=src python benchmarks/coverage.py --trials 2000 --out benchmarks/results/coverage.json

Three distributions of a seed's score: normal, skewed (a gamma of shape 2), and solved or not (4 in 5 seeds near 1, others
near 0). Intervals: the percentile bootstrap of the mean and of the interquartile mean of one environment, the stratified
one of the interquartile mean over six environments, the one of the probability of improvement, and the inverted sign-flip
test of paired differences, which here are drawn from the distribution themselves.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
from measure import say, write_json

from sadq.report import stats
from sadq.report.stats import Estimate

SEEDS = (3, 5, 10, 20, 50)
ENVIRONMENTS = 6
RESAMPLES = 1000
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def solved_or_not(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (generator.random(shape) < 0.8) + generator.normal(scale=0.05, size=shape)


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "skewed": lambda generator, shape: generator.gamma(2.0, size=shape),
    "solved or not": solved_or_not,
}


def holds(found: Estimate, truth: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def coverage(draw: Draw, seeds: int, trials: int, generator: np.random.Generator) -> dict[str, float]:
    """Interval -> the share of trials in which it held what it is of."""
    many = draw(generator, (1_000_000,))
    mean, middle = float(many.mean()), float(stats.interquartile_mean(many))
    # An improvement by half a deviation: how often one run beats another, from pairs of them.
    gain = 0.5 * float(many.std())
    ahead = float(np.mean(many[::2] + gain > many[1::2]))
    hits: dict[str, list[bool]] = {}
    for _ in range(trials):
        one, other = draw(generator, (seeds,)), draw(generator, (seeds,)) + gain
        several = [draw(generator, (seeds,)) for _ in range(ENVIRONMENTS)]
        found = {
            "mean": (stats.estimate(one, generator, np.mean, RESAMPLES), mean),
            "interquartile mean": (stats.aggregate([one], generator, resamples=RESAMPLES), middle),
            "interquartile mean, six environments": (stats.aggregate(several, generator, resamples=RESAMPLES), middle),
            "probability of improvement": (
                stats.probability_of_improvement([one], [other], generator, RESAMPLES),
                ahead,
            ),
            "paired difference": (stats.sign_flip_interval(one, generator)[0], mean),
        }
        for name, (estimate, truth) in found.items():
            hits.setdefault(name, []).append(holds(estimate, truth))
    return {name: round(float(np.mean(each)), 4) for name, each in hits.items()}


def table(record: dict[str, Any]) -> str:
    """Markdown: a row an interval and a distribution, a column a number of seeds."""
    lines = ["| interval | distribution | " + " | ".join(f"{seeds} seeds" for seeds in SEEDS) + " |"]
    lines.append("|---|---|" + "---|" * len(SEEDS))
    for name in next(iter(record["coverage"].values()))[str(SEEDS[0])]:
        for distribution, by_seeds in record["coverage"].items():
            cells = " | ".join(f"{by_seeds[str(seeds)][name]:.0%}" for seeds in SEEDS)
            lines.append(f"| {name} | {distribution} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/coverage.json"))
    parser.add_argument("--table", action="store_true", help="print what the file holds as a table")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.out.read_text())))
        return
    record: dict[str, Any] = {"machine": machine.describe(("numpy",)), "trials": options.trials, "coverage": {}}
    for index, (name, draw) in enumerate(DISTRIBUTIONS.items()):
        found = record["coverage"][name] = {}
        for seeds in SEEDS:
            found[str(seeds)] = coverage(draw, seeds, options.trials, np.random.default_rng([index, seeds]))
            say(f"{name}, {seeds} seeds: {found[str(seeds)]}")
    write_json(options.out, record)
    print(table(record))


if __name__ == "__main__":
    main()
