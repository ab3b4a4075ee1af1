"""What a run is worth: scores per member, summaries over seeds, and base agents paired with their +SADQ twins."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sadq.experiment.scores import area_under_curve, final_return
from sadq.report import stats
from sadq.report.runs import Floats, Run
from sadq.report.stats import Estimate, Paired, generator_for, interquartile_mean

MEASURES = {"final_return": "Final return", "area_under_curve": "Area under the curve"}


class Line:
    """The members of one run that differ only by their seed: one row of a table, one curve of a plot."""

    def __init__(self, run: Run, indices: list[int]):
        self.run, self.indices, self.label = run, tuple(indices), run.agent
        self.kind = run.environment, run.agent
        self.members = [run.members[index] for index in indices]
        self.seeds = [member.seed for member in self.members]
        self.settings, self.alpha = self.members[0].settings, self.members[0].alpha
        self.returns, self.overestimation = run.returns[indices], run.overestimation[indices]
        found = {"returns": (run.steps, self.returns), "overestimation": (run.steps, self.overestimation)}
        found |= {name: (run.metric_steps, table[indices]) for name, table in run.metrics.items()}
        # Recorded quantity -> steps [T] and values [members of this line, T], where there is any.
        self.curves = {name: curve for name, curve in found.items() if np.isfinite(curve[1]).any()}

    def scores(self, until: int | None = None) -> dict[str, Floats]:
        """What each member's evaluations up to a step come to."""
        steps = self.run.steps if until is None else self.run.steps[self.run.steps <= until]
        returns = self.returns[:, : steps.size]
        return {
            "final_return": final_return(returns),
            "area_under_curve": area_under_curve(steps, returns),
            "overestimation": final_return(self.overestimation[:, : steps.size]),
        }

    def estimate(self, values: Floats, seed: int, *names: str, statistic: stats.Statistic = np.mean) -> Estimate:
        """Over this line's seeds; the random stream is that of the bootstrap's `seed` and what the names stand for."""
        return stats.estimate(values, generator_for(seed, self.run.name, self.label, *names), statistic)


class Summary:
    """One line's scores over its seeds; `seed` is the bootstrap's."""

    def __init__(self, line: Line, seed: int = 0):
        self.line, self.scores = line, line.scores()
        self.mean = {name: line.estimate(values, seed, name) for name, values in self.scores.items()}
        self.overestimation = self.mean.pop("overestimation")
        self.interquartile_mean = {
            name: line.estimate(self.scores[name], seed, name, "middle", statistic=interquartile_mean)
            for name in MEASURES
        }

    def as_dict(self) -> dict[str, Any]:
        line, run = self.line, self.line.run
        return {
            "label": line.label,
            "run": run.name,
            "folder": str(run.folder),
            "environment": run.environment,
            "agent": run.agent,
            "alpha": line.alpha,
            "finished": run.finished,
            "steps": run.last_step,
            "planned_steps": run.planned_steps,
            "mean": self.mean,
            "interquartile_mean": self.interquartile_mean,
            "overestimation": self.overestimation,
            "members": [
                {"seed": member.seed, "diverged": member.diverged, "diverged_at": member.diverged_at}
                | {name: float(values[index]) for name, values in self.scores.items()}
                for index, member in enumerate(line.members)
            ],
        }


@dataclass(frozen=True)
class Measured:
    """One measure of a comparison: both agents' values by seed, their means, and the paired difference."""

    base_values: Floats
    guided_values: Floats
    base: Estimate
    guided: Estimate
    difference: Paired


class Comparison:
    """A base agent and its +SADQ twin on the seeds they share, up to the last step that both have reached."""

    def __init__(self, base: Line, guided: Line, seed: int = 0):
        self.base, self.guided = base, guided
        self.until = min(base.run.last_step, guided.run.last_step)
        self.seeds = tuple(sorted(set(base.seeds) & set(guided.seeds)))
        self.measures = {}
        for name in MEASURES:
            left = base.scores(self.until)[name][[base.seeds.index(shared) for shared in self.seeds]]
            right = guided.scores(self.until)[name][[guided.seeds.index(shared) for shared in self.seeds]]
            known = np.isfinite(left) & np.isfinite(right)
            # The streams of a summary, for a reader who meets one quantity twice expects one interval.
            estimates = base.estimate(left[known], seed, name), guided.estimate(right[known], seed, name)
            generator = generator_for(seed, base.run.name, base.label, guided.run.name, guided.label, name)
            self.measures[name] = Measured(left, right, *estimates, stats.paired(left, right, generator))

    def as_dict(self) -> dict[str, Any]:
        measures = {}
        for name, measured in self.measures.items():
            pairs = zip(self.seeds, measured.base_values.tolist(), measured.guided_values.tolist(), strict=True)
            measures[name] = {
                "base": measured.base,
                "guided": measured.guided,
                "by_seed": [{"seed": seed, "base": base, "guided": guided} for seed, base, guided in pairs],
                "difference": measured.difference,
                "conclusion": stats.conclusion(measured.difference),
            }
        return {
            "environment": self.base.run.environment,
            "base": {"label": self.base.label, "run": self.base.run.name},
            "guided": {"label": self.guided.label, "run": self.guided.run.name},
            "seeds": self.seeds,
            "until_step": self.until,
            "measures": measures,
        }


def lines_of(runs: Sequence[Run]) -> list[Line]:
    """The runs as lines, a sweep as one line per value swept, with labels that tell all lines of a game apart."""
    lines = []
    for run in runs:
        settings = [member.settings for member in run.members]
        groups: dict[int, list[int]] = defaultdict(list)
        for index, member in enumerate(run.members):
            if member not in run.members[:index]:  # counted twice, it would narrow the intervals
                groups[settings.index(member.settings)].append(index)
        lines += [Line(run, indices) for indices in groups.values()]
    for line in lines:
        for name, value in line.settings.items():
            if any(other.kind == line.kind and other.settings.get(name) != value for other in lines):
                shown = f"{value:g}" if isinstance(value, int | float) else value
                line.label += f", {'α' if name == 'alpha' else name.replace('_', ' ')} = {shown}"
    named = [(line.run.environment, line.label) for line in lines]
    for line, key in zip(lines, named, strict=True):
        if named.count(key) > 1:
            line.label += f" ({line.run.name})"
    return lines


def comparisons_of(lines: Sequence[Line], seed: int = 0) -> list[Comparison]:
    """Every guided line with the base lines of its game: those of equal settings, if any has them, else all."""
    found = []
    for guided in (line for line in lines if line.run.guided):
        settings = {name: value for name, value in guided.settings.items() if name != "alpha"}
        bases = [line for line in lines if line.kind == (guided.run.environment, guided.run.base_agent)]
        # They agree in all that both have if it does not matter which of the two overrides the other.
        equal = [base for base in bases if base.settings | settings == settings | base.settings]
        found += [Comparison(base, guided, seed) for base in equal or bases]
    return found


def notes_on(run: Run, lines: Sequence[Line]) -> Iterator[str]:
    """Everything about a run that a reader of its numbers must know."""
    yield from (f"{run.name}: {note}." for note in run.notes)
    if not run.finished:
        planned = f" of {run.planned_steps:,}" if run.planned_steps else ""
        yield (
            f"{run.name} is unfinished: its numbers are those of the first {run.last_step:,}{planned} steps, and "
            "whether a member diverged is known only at the end."
        )
    for line in lines:
        if len(line.indices) == 1:
            yield f"{line.label} in {run.name} has one seed, which shows no spread, so no interval is given."
        for seed, score in zip(line.seeds, line.scores()["area_under_curve"], strict=True):
            if run.steps.size and not math.isfinite(score):
                yield f"{run.name}: seed {seed} lacks an evaluation, so it has no score and is in no mean."
    for member in run.members:
        if member.diverged:
            yield (
                f"{run.name}: seed {member.seed} diverged at step {member.diverged_at:,} and kept its last finite "
                "parameters from then on; its evaluations are included."
            )
    for repeated in sorted(set(range(len(run.members))) - {index for line in lines for index in line.indices}):
        yield f"{run.name}: member {repeated} repeats the seed and settings of another and is counted once."
