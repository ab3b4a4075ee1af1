"""Lines: the members of a run that differ only by their seed, under labels that tell all lines of a game apart."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sadq.experiment.scores import area_under_curve, final_return
from sadq.report import likeness, stats
from sadq.report.runs import Floats, Integers, Run
from sadq.report.stats import Estimate, generator_for

NAMED = 3  # settings that a label can hold; beyond that the run's name says more

Curve = tuple[Integers, Floats]  # steps [T], values [members of a line, T]


class Line:
    """The members of one run that differ only by their seed: one row of a table, one curve of a plot."""

    def __init__(self, run: Run, indices: list[int]):
        self.run, self.indices, self.label = run, tuple(indices), run.arm or run.agent
        self.members = [run.members[index] for index in indices]
        self.seeds = [member.seed for member in self.members]
        self.settings, self.alpha = self.members[0].settings, self.members[0].alpha
        game = self.settings.get("game")  # of a fleet that plays several
        self.environment = run.environment if game is None else f"atari/{game}"
        self.kind = self.environment, self.label
        self.known_settings = likeness.settings_of(run.header["config"], self.settings, run.guided)
        self.returns, self.overestimation = run.returns[indices], run.overestimation[indices]
        found = {"returns": (run.steps, self.returns), "overestimation": (run.steps, self.overestimation)}
        found |= {name: (run.metric_steps, table[indices]) for name, table in run.metrics.items()}
        # Recorded quantity -> its curve, where there is any.
        self.curves = _with_values(found)
        self.measures = _with_values({name: (run.steps, table[indices]) for name, table in run.measures.items()})

    def scores(self) -> dict[str, Floats]:
        """What each member's evaluations come to."""
        return {
            "final_return": final_return(self.returns),
            "area_under_curve": area_under_curve(self.run.steps, self.returns),
            "overestimation": final_return(self.overestimation),
        }

    def estimate(self, values: Floats, seed: int, *names: str, statistic: stats.Statistic = np.mean) -> Estimate:
        """Over this line's seeds; the random stream is that of the bootstrap's `seed` and what the names stand for."""
        return stats.estimate(values, generator_for(seed, self.run.name, self.label, *names), statistic)

    @property
    def spoken(self) -> str:
        """Its name in a sentence: a guided line says its weight."""
        if self.run.arm:
            return self.label
        agent, _, rest = self.label.partition(", ")
        rest = rest or ("" if self.alpha is None else f"α = {self.alpha:g}")
        return f"{agent} ({rest})" if rest else agent

    @property
    def declared(self) -> tuple[str, ...]:
        """The settings that a study's spelling of this line names: they are what it is compared for."""
        spelled = (self.run.arm or "").partition(":")[2]
        return tuple(one.partition("=")[0].strip() for one in spelled.split(",") if "=" in one)


def _with_values(curves: dict[str, Curve]) -> dict[str, Curve]:
    return {name: curve for name, curve in curves.items() if np.isfinite(curve[1]).any()}


def lines_of(runs: Sequence[Run]) -> list[Line]:
    """The runs as lines, a sweep as one line per value swept."""
    lines = []
    for run in runs:
        settings = [member.settings for member in run.members]
        groups: dict[int, list[int]] = defaultdict(list)
        for index, member in enumerate(run.members):
            if member not in run.members[:index]:  # counted twice, it would narrow the intervals
                groups[settings.index(member.settings)].append(index)
        lines += [Line(run, indices) for indices in groups.values()]
    for line in lines:
        line.label += _distinction(line, [other for other in lines if other.kind == line.kind])
    named = [(line.environment, line.label) for line in lines]
    for line, key in zip(lines, named, strict=True):
        if named.count(key) > 1:
            line.label += f" ({line.run.name})"
    return lines


def _distinction(line: Line, siblings: Sequence[Line]) -> str:
    """The settings that tell a line from others of its agent and game, if these are few."""
    apart: dict[str, Any] = {}
    for other in siblings:
        apart |= likeness.differing(line.known_settings, other.known_settings)
    apart = {name: line.known_settings.get(name, "none") for name in apart if name not in likeness.UNRELATED}
    if len(apart) > NAMED:
        return ""
    return "".join(f", {likeness.spoken(name)} = {_shown(value)}" for name, value in apart.items())


def _shown(value: str) -> str:
    """`[0.0005]` and `0.0005` read alike."""
    try:
        number = json.loads(value)
    except ValueError:
        return value
    number = number[0] if isinstance(number, list) and len(number) == 1 else number
    return f"{number:g}" if isinstance(number, int | float) and not isinstance(number, bool) else value


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
                yield f"{run.name}: seed {seed} lacks an evaluation, so it is in no mean that needs it."
    for member, curve in zip(run.members, run.returns, strict=True):
        whole = bool(np.isfinite(curve).all())
        if member.diverged:
            yield (
                f"{run.name}: seed {member.seed} diverged at step {member.diverged_at:,} and kept its last finite "
                f"parameters from then on{'; its evaluations are included' * whole}."
            )
        if member.model_diverged_at is not None:
            yield (
                f"{run.name}: the model of seed {member.seed} diverged at step {member.model_diverged_at:,} and kept its "
                "last finite parameters from then on; its values went on learning."
            )
    for repeated in sorted(set(range(len(run.members))) - {index for line in lines for index in line.indices}):
        yield f"{run.name}: member {repeated} repeats the seed and settings of another and is counted once."
