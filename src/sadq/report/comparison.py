"""What a run is worth: scores per member, summaries over seeds, and base agents paired with their +SADQ twins."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sadq.experiment.scores import area_under_curve, final_return
from sadq.report.runs import Floats, Member, Run
from sadq.report.stats import Estimate, Paired, conclusion, estimate, generator_for, interquartile_mean, paired

MEASURES = {"final_return": "Final return", "area_under_curve": "Area under the curve"}


@dataclass(frozen=True)
class Line:
    """The members of one run that differ only by their seed: one row of a table, one curve of a plot."""

    run: Run
    indices: tuple[int, ...]
    label: str = ""

    @property
    def members(self) -> list[Member]:
        return [self.run.members[index] for index in self.indices]

    @property
    def alpha(self) -> float | None:
        return self.members[0].alpha

    @property
    def seeds(self) -> list[int]:
        return [member.seed for member in self.members]

    @property
    def returns(self) -> Floats:
        """[members of this line, S]"""
        return self.run.returns[list(self.indices)]

    @property
    def overestimation(self) -> Floats:
        """[members of this line, S]"""
        return self.run.overestimation[list(self.indices)]

    def metric(self, name: str) -> Floats | None:
        """[members of this line, T], or None where the run did not record it."""
        values = self.run.metrics.get(name)
        if values is None or not np.isfinite(values[list(self.indices)]).any():
            return None
        return values[list(self.indices)]

    def scores(self, until: int | None = None) -> dict[str, Floats]:
        """Each measure per member, of the evaluations up to a step."""
        kept = self.run.steps.size if until is None else int(np.searchsorted(self.run.steps, until, side="right"))
        returns = self.returns[:, :kept]
        return {
            "final_return": final_return(returns),
            "area_under_curve": area_under_curve(self.run.steps[:kept], returns),
        }


@dataclass(frozen=True)
class Summary:
    """One line's scores over its seeds."""

    line: Line
    mean: dict[str, Estimate]
    interquartile_mean: dict[str, Estimate]
    overestimation: Estimate

    def as_dict(self) -> dict[str, Any]:
        line, scores = self.line, self.line.scores()
        overestimation = final_return(line.overestimation)
        return {
            "label": line.label,
            "run": line.run.name,
            "folder": str(line.run.folder),
            "environment": line.run.environment,
            "agent": line.run.agent,
            "alpha": line.alpha,
            "finished": line.run.finished,
            "steps": line.run.last_step,
            "planned_steps": line.run.planned_steps,
            "mean": {name: asdict(value) for name, value in self.mean.items()},
            "interquartile_mean": {name: asdict(value) for name, value in self.interquartile_mean.items()},
            "overestimation": asdict(self.overestimation),
            "members": [
                {
                    "seed": member.seed,
                    "diverged": member.diverged,
                    "diverged_at": member.diverged_at,
                    **{name: float(values[index]) for name, values in scores.items()},
                    "overestimation": float(overestimation[index]),
                }
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


@dataclass(frozen=True)
class Comparison:
    """A base agent and its +SADQ twin on the seeds they share, up to the last step that both have reached."""

    base: Line
    guided: Line
    seeds: tuple[int, ...]
    until: int
    measures: dict[str, Measured]

    def as_dict(self) -> dict[str, Any]:
        return {
            "environment": self.base.run.environment,
            "base": {"label": self.base.label, "run": self.base.run.name},
            "guided": {"label": self.guided.label, "run": self.guided.run.name},
            "seeds": list(self.seeds),
            "until_step": self.until,
            "measures": {
                name: {
                    "base": asdict(measured.base),
                    "guided": asdict(measured.guided),
                    "by_seed": [
                        {"seed": seed, "base": float(base), "guided": float(guided)}
                        for seed, base, guided in zip(
                            self.seeds, measured.base_values, measured.guided_values, strict=True
                        )
                    ],
                    "difference": asdict(measured.difference),
                    "conclusion": conclusion(measured.difference),
                }
                for name, measured in self.measures.items()
            },
        }


def lines_of(runs: Sequence[Run]) -> list[Line]:
    """The runs as lines, a sweep as one line per value swept, with labels that tell all lines of a game apart.

    A member that repeats another's seed and settings is in no line: counted twice, it would narrow the intervals.
    """
    lines = []
    for run in runs:
        groups: dict[str, list[int]] = defaultdict(list)
        for index, member in enumerate(run.members):
            if member not in run.members[:index]:
                groups[json.dumps(member.settings, sort_keys=True)].append(index)
        lines += [Line(run, tuple(indices)) for indices in groups.values()]
    named = []
    for line in lines:
        alike = [other for other in lines if _kind(other) == _kind(line)]
        varying = [name for name in line.members[0].settings if len({_setting(other, name) for other in alike}) > 1]
        named.append(replace(line, label=", ".join([line.run.agent, *(_in_words(line, name) for name in varying)])))
    taken = [(line.run.environment, line.label) for line in named]
    return [
        replace(line, label=f"{line.label} ({line.run.name})") if taken.count(key) > 1 else line
        for line, key in zip(named, taken, strict=True)
    ]


def summarise(line: Line, seed: int = 0) -> Summary:
    """The line's scores with their intervals; `seed` is the bootstrap's."""
    names = (line.run.name, line.label)
    scores = line.scores()
    return Summary(
        line,
        {name: estimate(values, generator_for(seed, *names, name)) for name, values in scores.items()},
        {
            name: estimate(values, generator_for(seed, *names, name, "middle"), interquartile_mean)
            for name, values in scores.items()
        },
        estimate(final_return(line.overestimation), generator_for(seed, *names, "overestimation")),
    )


def comparisons_of(lines: Sequence[Line], seed: int = 0) -> list[Comparison]:
    """Every guided line with the base lines of its game: those of equal settings, if any has them, else all."""
    found = []
    for guided in (line for line in lines if line.run.guided):
        bases = [
            line
            for line in lines
            if not line.run.guided and _kind(line) == (guided.run.environment, guided.run.base_agent)
        ]
        equal = [line for line in bases if _shared_settings_agree(line, guided)]
        found += [compare(base, guided, seed) for base in equal or bases]
    return found


def compare(base: Line, guided: Line, seed: int = 0) -> Comparison:
    """Pairs the two lines by seed."""
    until = min(base.run.last_step, guided.run.last_step)
    seeds = sorted(set(base.seeds) & set(guided.seeds))
    base_scores, guided_scores = base.scores(until), guided.scores(until)
    measures = {}
    for name in MEASURES:
        names = (base.run.name, base.label, guided.run.name, guided.label, name)
        left = base_scores[name][[base.seeds.index(each) for each in seeds]]
        right = guided_scores[name][[guided.seeds.index(each) for each in seeds]]
        known = np.isfinite(left) & np.isfinite(right)
        measures[name] = Measured(
            left,
            right,
            # The streams of `summarise`, for a reader who meets one quantity twice expects one interval.
            estimate(left[known], generator_for(seed, base.run.name, base.label, name)),
            estimate(right[known], generator_for(seed, guided.run.name, guided.label, name)),
            paired(left, right, generator_for(seed, *names)),
        )
    return Comparison(base, guided, tuple(seeds), until, measures)


def notes_on(run: Run, lines: Sequence[Line]) -> Iterable[str]:
    """Everything about a run that a reader of its numbers must know."""
    for note in run.notes:
        yield f"{run.name}: {note}."
    if not run.finished:
        planned = f" of {run.planned_steps:,}" if run.planned_steps else ""
        yield (
            f"{run.name} is unfinished: its numbers are those of the first {run.last_step:,}{planned} steps, and whether "
            "a member diverged is known only at the end."
        )
    for line in lines:
        if len(line.indices) == 1:
            yield f"{line.label} in {run.name} has one seed, which shows no spread, so no interval is given."
        scores = line.scores()["area_under_curve"]
        for member, score in zip(line.members, scores, strict=True):
            if not math.isfinite(score) and run.steps.size:
                yield f"{run.name}: seed {member.seed} lacks an evaluation, so it has no score and is in no mean."
    for member in run.members:
        if member.diverged:
            at = "" if member.diverged_at is None else f" at step {member.diverged_at:,}"
            yield (
                f"{run.name}: seed {member.seed} diverged{at} and kept its last finite parameters from then on; "
                "its evaluations are included."
            )
    for repeated in sorted(set(range(len(run.members))) - {index for line in lines for index in line.indices}):
        yield f"{run.name}: member {repeated} repeats the seed and settings of another and is counted once."


def _kind(line: Line) -> tuple[str, str]:
    return line.run.environment, line.run.agent


def _setting(line: Line, name: str) -> str:
    return json.dumps(line.members[0].settings.get(name), sort_keys=True)


def _in_words(line: Line, name: str) -> str:
    value = line.members[0].settings[name]
    shown = f"{value:g}" if isinstance(value, int | float) else str(value)
    return f"{'α' if name == 'alpha' else name.replace('_', ' ')} = {shown}"


def _shared_settings_agree(left: Line, right: Line) -> bool:
    shared = (left.members[0].settings.keys() & right.members[0].settings.keys()) - {"alpha"}
    return all(_setting(left, name) == _setting(right, name) for name in shared)
