"""What came of the arms on one environment: scores by seed, interquartile means, contrasts and verdicts."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sadq.errors import SadqError
from sadq.experiment.evaluations import mean_return
from sadq.experiment.folder import EVALUATIONS, RunFolder
from sadq.experiment.scores import final_return
from sadq.report import stats, verdicts
from sadq.report.stats import Estimate, interval, number
from sadq.report.verdicts import MEASURES, Contrast
from sadq.studies.arms import Arm
from sadq.studies.tables import Table


class Outcome:
    """An arm's run read back, finished unless that is not asked for: M seeds, S evaluations."""

    def __init__(self, arm: Arm, folder: Path, finished: bool = True):
        self.arm, self.folder = arm, folder
        self.run, self.config, self.header = RunFolder.open(folder)
        result = self.run.finished
        if result is None and finished:
            raise SadqError(f"{folder} is not finished: repeat the command that began it.")
        self.result: dict[str, Any] = result or {}
        self.seeds = [member["seed"] for member in self.header["members"]]
        rows = self.run.evaluations
        if not rows:
            raise SadqError(f"{folder} has no evaluations: restore its {EVALUATIONS}, or train it again elsewhere.")
        self.steps = np.array(sorted({row["step"] for row in rows}))
        places = {step: column for column, step in enumerate(self.steps.tolist())}
        self.returns = np.full((len(self.seeds), self.steps.size), np.nan)
        for row in rows:
            self.returns[row["member"], places[row["step"]]] = mean_return(row)

    def scores(self, threshold: float | None, until: float = math.inf) -> dict[str, dict[int, float]]:
        """Measure -> seed -> value, of the evaluations up to a step; NaN where there is nothing to reach."""
        values = verdicts.measured(self.steps, self.returns, threshold, until)
        return {name: dict(zip(self.seeds, each.tolist(), strict=True)) for name, each in values.items()}

    def reached(self, threshold: float | None) -> int:
        """How many seeds ever got there."""
        return 0 if threshold is None else int((self.returns >= threshold).any(axis=1).sum())


@dataclass(frozen=True)
class Judged:
    """Arms on one environment, each against the one that it is compared with."""

    environment: str
    outcomes: Sequence[Outcome]
    bases: Mapping[str, str]
    threshold_given: float | None = None
    seed: int = 0
    """Of the bootstraps."""

    @cached_property
    def threshold(self) -> float | None:
        """The one that was asked for, or one that is worth reaching here; None where nothing was learned."""
        if self.threshold_given is not None:
            return self.threshold_given
        first = [value for outcome in self.outcomes for value in outcome.returns[:, 0].tolist()]
        return verdicts.common_threshold(first, [final_return(outcome.returns) for outcome in self.outcomes])

    @cached_property
    def scores(self) -> dict[str, dict[str, dict[int, float]]]:
        """Arm -> measure -> seed -> value."""
        return {outcome.arm.label: outcome.scores(self.threshold) for outcome in self.outcomes}

    @cached_property
    def contrasts(self) -> dict[str, list[Contrast]]:
        """Arm -> its contrasts with its base, a measure each, corrected over all of them together."""
        places = [(label, name) for label in self.bases for name in MEASURES]
        outcomes = {outcome.arm.label: outcome for outcome in self.outcomes}
        compared = {}
        for label, base in self.bases.items():
            pair = outcomes[base], outcomes[label]
            # Whole chunks of arms that collect otherwise end at other steps.
            until = min(int(outcome.steps[-1]) for outcome in pair)
            compared[label] = pair[0].scores(self.threshold, until), pair[1].scores(self.threshold, until)
        found = [
            verdicts.contrast(
                MEASURES[name],
                compared[label][0][name],
                compared[label][1][name],
                self.seed,
                self.environment,
                self.bases[label],
                label,
            )
            for label, name in places
        ]
        grouped: dict[str, list[Contrast]] = {label: [] for label in self.bases}
        for (label, _), one in zip(places, verdicts.corrected(found), strict=True):
            grouped[label].append(one)
        return grouped

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """Arm -> the answer in words."""
        return {label: verdicts.verdict(label, self.bases[label], found) for label, found in self.contrasts.items()}

    @cached_property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Arm -> measure -> its interquartile mean over the seeds."""
        return {
            label: {
                name: stats.aggregate(
                    [[*values.values()]], stats.generator_for(self.seed, name, "arm", self.environment, label)
                )
                for name, values in scores.items()
            }
            for label, scores in self.scores.items()
        }

    @property
    def diverged(self) -> bool:
        """Whether any member stood still from some step on."""
        return any(member["status"] == "diverged" for one in self.outcomes for member in one.result["members"])

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers must know."""
        parts = {"diverged_at": "seed {}", "model_diverged_at": "the model of seed {}"}
        lacking = [
            f"{outcome.arm.label}: seed {seed} lacks an evaluation, so it is left out of what that is needed for."
            for outcome in self.outcomes
            for seed, curve in zip(outcome.seeds, outcome.returns, strict=True)
            if not np.isfinite(curve).all()
        ]
        return lacking + [
            f"{outcome.arm.label}: {what.format(member['seed'])} diverged at step {member[name]:,} and stood still after."
            for outcome in self.outcomes
            for member in outcome.result["members"]
            for name, what in parts.items()
            if member.get(name) is not None
        ]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data, which depends on nothing but the runs: no clock, no place."""
        return {
            "environment": self.environment,
            "threshold": self.threshold,
            "arms": [self._arm(outcome) for outcome in self.outcomes],
            "contrasts": [
                {
                    "arm": label,
                    "base": self.bases[label],
                    "outcome": verdicts.overall(found),
                    "verdict": self.verdicts[label],
                    "measures": {one.measure.name: one.as_dict() for one in found},
                }
                for label, found in self.contrasts.items()
            ],
            "notes": self.notes,
        }

    def _arm(self, outcome: Outcome) -> dict[str, Any]:
        label, members = outcome.arm.label, outcome.result["members"]
        return {
            "arm": label,
            "agent": outcome.arm.agent,
            "alpha": list(outcome.config.alpha) if outcome.config.alpha else None,
            "settings": dict(outcome.arm.settings),
            "steps": int(outcome.steps[-1]),
            "interquartile_mean": {name: dataclasses.asdict(one) for name, one in self.estimates[label].items()},
            "reached_threshold": outcome.reached(self.threshold),
            "members": [
                {"seed": seed, "status": member["status"]}
                | {name: values[seed] for name, values in self.scores[label].items()}
                for seed, member in zip(outcome.seeds, members, strict=True)
            ],
        }

    def lines(self) -> list[str]:
        """A table and the verdicts, for a terminal."""
        reach = "a threshold" if self.threshold is None else number(self.threshold)
        head = ["arm", "seeds", f"steps to {reach}", "area under the curve", "final return"]
        rows = []
        for outcome in self.outcomes:
            label = outcome.arm.label
            cells = [interval(self.estimates[label][name]) for name in MEASURES]
            cells[0] += f", {outcome.reached(self.threshold)} of {len(outcome.seeds)} there"
            rows.append([label, str(len(outcome.seeds)), *cells, *self._against(label)])
        about = (
            "Interquartile means with 95% bootstrap intervals; what follows `against` is of the area under the curve."
        )
        table = Table([*head, "against", "P(improvement)", "paired wins", "p (Holm)"], rows, [about])
        return [f"{self.environment}:", *table.lines(), *self.verdicts.values(), *self.notes]

    def _against(self, label: str) -> list[str]:
        """What an arm's row says of its base, by the area under the curve."""
        if label not in self.bases:
            return ["", "", "", ""]
        area = next(one for one in self.contrasts[label] if one.measure is verdicts.AREA_UNDER_CURVE)
        chances = interval(area.improvement), number(area.win_share), f"{area.corrected_p:.3g}"
        return [self.bases[label], *chances]
