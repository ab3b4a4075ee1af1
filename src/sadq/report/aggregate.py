"""Aggregates over environments: scores on one scale, interquartile means and probabilities of improvement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sadq.experiment.scores import final_return
from sadq.report import stats
from sadq.report.lines import Line
from sadq.report.runs import Floats
from sadq.report.stats import Estimate, generator_for

HUMAN = "human_normalised"  # what Atari games measure themselves on one scale


@dataclass(frozen=True)
class Aggregate:
    """Arms that were run on every one of several environments."""

    environments: tuple[str, ...]
    strata: dict[str, list[Floats]]  # label -> the normalised final scores of its seeds in each environment
    middle: dict[str, Estimate]
    improvement: dict[tuple[str, str], Estimate]  # (base, other) -> how often the other is ahead

    def as_dict(self) -> dict[str, Any]:
        return {
            "environments": self.environments,
            "interquartile_mean": self.middle,
            "probability_of_improvement": [
                {"base": base, "other": other, "estimate": found} for (base, other), found in self.improvement.items()
            ],
        }


def aggregate(lines: Sequence[Line], seed: int = 0) -> Aggregate | None:
    """Over all environments, for the arms that each of them has; None where there are fewer than two of either."""
    environments = tuple(dict.fromkeys(line.environment for line in lines))
    by_place = {(line.environment, line.label): line for line in lines}
    labels = [
        label
        for label in dict.fromkeys(line.label for line in lines)
        if all((environment, label) in by_place for environment in environments)
    ]
    if len(environments) < 2 or not labels:
        return None
    strata: dict[str, list[Floats]] = {label: [] for label in labels}
    for environment in environments:
        scores = normalised([line for line in lines if line.environment == environment])
        if scores is None:
            return None
        for label in labels:
            strata[label].append(scores[label])
    bases = [(plain, other) for other in labels for plain in labels if other.startswith(f"{plain}+")]
    pairs = bases or [(labels[0], other) for other in labels[1:]]
    return Aggregate(
        environments,
        strata,
        {label: stats.aggregate(found, generator_for(seed, label, "aggregate")) for label, found in strata.items()},
        {
            (base, other): stats.probability_of_improvement(
                strata[base], strata[other], generator_for(seed, base, other, "improvement")
            )
            for base, other in pairs
        },
    )


def normalised(lines: Sequence[Line]) -> dict[str, Floats] | None:
    """Label -> final scores where untrained agents have 0 and the best arm 1 (on Atari: random play and a human's)."""
    if all(HUMAN in line.measures for line in lines):
        return {line.label: final_return(line.measures[HUMAN][1]) for line in lines}
    scores = {line.label: line.scores()["final_return"] for line in lines}
    first = np.concatenate([line.returns[:, :1].ravel() for line in lines])
    known = [found[np.isfinite(found)] for found in scores.values()]
    if not np.isfinite(first).any() or not all(found.size for found in known):
        return None
    start = float(np.nanmean(first))
    best = max(float(stats.interquartile_mean(found)) for found in known)
    if best <= start:
        return None
    return {label: (found - start) / (best - start) for label, found in scores.items()}
