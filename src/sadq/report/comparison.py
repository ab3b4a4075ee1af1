"""What lines are worth: scores over their seeds, and one against another where like is compared with like."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sadq.errors import SadqError
from sadq.experiment.scores import final_return
from sadq.report import likeness, stats, verdicts
from sadq.report.lines import Line
from sadq.report.verdicts import MEASURES, STEPS_TO_THRESHOLD, Contrast

SCORES = ("final_return", "area_under_curve")
RANGE_FROM = ("discount", "reward_scale", "reward_clip")
"""What an estimated range of returns follows from, beside the environment."""


class Summary:
    """One line's scores over its seeds; `seed` is the bootstrap's."""

    def __init__(self, line: Line, seed: int = 0):
        self.line, self.scores = line, line.scores()
        self.mean = {name: line.estimate(values, seed, name) for name, values in self.scores.items()}
        self.overestimation = self.mean.pop("overestimation")
        self.interquartile_mean = {
            name: line.estimate(self.scores[name], seed, name, "middle", statistic=stats.interquartile_mean)
            for name in SCORES
        }
        # What the environment measures, averaged as the final return is.
        self.measured = {
            name: line.estimate(final_return(values), seed, "measures", name)
            for name, (_, values) in line.measures.items()
        }

    def as_dict(self) -> dict[str, Any]:
        line, run = self.line, self.line.run
        return {
            "label": line.label,
            "run": run.name,
            "folder": str(run.folder),
            "environment": line.environment,
            "agent": run.agent,
            "alpha": line.alpha,
            "finished": run.finished,
            "steps": run.last_step,
            "planned_steps": run.planned_steps,
            "mean": self.mean,
            "interquartile_mean": self.interquartile_mean,
            "overestimation": self.overestimation,
            "measures": self.measured,
            "members": [
                {"seed": member.seed, "diverged": member.diverged, "diverged_at": member.diverged_at}
                | {name: float(values[index]) for name, values in self.scores.items()}
                for index, member in enumerate(line.members)
            ],
        }


class Comparison:
    """A line against a base on the seeds they share, up to the last step that both have reached."""

    def __init__(self, base: Line, other: Line, threshold: float | None, seed: int = 0):
        self.base, self.other, self.threshold = base, other, threshold
        self.environment = base.environment
        self.until = min(base.run.last_step, other.run.last_step)
        self.seeds = tuple(sorted(set(base.seeds) & set(other.seeds)))
        self.unlike = unlike(base, other)
        self.values = {
            name: (by_seed(base, name, self.until, threshold), by_seed(other, name, self.until, threshold))
            for name in MEASURES
            if name != STEPS_TO_THRESHOLD.name or threshold is not None
        }
        if not self.until:  # agents of one seed are still the same then, and that says nothing of how they learn
            self.values = {}
        names = (self.environment, base.label, other.label)
        self.contrasts = [
            verdicts.contrast(MEASURES[name], *values, seed, *names) for name, values in self.values.items()
        ]

    @property
    def alike(self) -> bool:
        return not self.unlike

    @property
    def outcome(self) -> str:
        return verdicts.overall(self.contrasts) if self.alike else "unlike"

    @property
    def warning(self) -> str:
        """Which settings other than the arms' own are different."""
        words = [f"{likeness.spoken(name)} ({one} against {other})" for name, (one, other) in self.unlike.items()]
        return (
            f"{self.other.label} and {self.base.label} on {self.environment} are not alike apart from what is "
            f"compared: {', '.join(words)}. Their difference may come from that, so no verdict is given."
        )

    def reached(self, line: Line) -> int:
        """How many seeds of one of the two get to the threshold, of those that were evaluated until the first one's end."""
        found = line.returns[:, line.run.steps <= self.until] >= (
            math.inf if self.threshold is None else self.threshold
        )
        return int(found.any(axis=1).sum())

    def contrast(self, name: str) -> Contrast | None:
        return next((one for one in self.contrasts if one.measure.name == name), None)

    def verdict(self) -> str:
        other, base = self.other.spoken, self.base.spoken
        if self.alike and not self.until:
            return f"Nothing can be said of {other} against {base}: not both were evaluated after their training began."
        return verdicts.verdict(other, base, self.contrasts) if self.alike else self.warning

    def as_dict(self) -> dict[str, Any]:
        measures = {}
        for one in self.contrasts:
            base, other = self.values[one.measure.name]
            rows = [{"seed": seed, "base": base[seed], "other": other[seed]} for seed in self.seeds]
            measures[one.measure.name] = one.as_dict() | {"by_seed": rows}
        return {
            "environment": self.environment,
            "base": {"label": self.base.label, "run": self.base.run.name},
            "other": {"label": self.other.label, "run": self.other.run.name},
            "seeds": self.seeds,
            "until_step": self.until,
            "threshold": self.threshold,
            "unlike": {name: list(values) for name, values in self.unlike.items()},
            "outcome": self.outcome,
            "verdict": self.verdict(),
            "measures": measures,
        }


def unlike(base: Line, other: Line) -> dict[str, tuple[str, str]]:
    """Settings in which two lines differ, apart from what makes them the arms that they are."""
    found = likeness.unlike(base.known_settings, other.known_settings, (*base.declared, *other.declared))
    # A range is filled in for heads that must know one; that another head has none is no difference in settings.
    apart = [likeness.part(name) for name in likeness.differing(base.known_settings, other.known_settings)]
    other_head = base.run.base_agent != other.run.base_agent or "head" in apart
    # Nor is an estimate that came out otherwise because of what it is made from.
    if (other_head and "null" in found.get("return_range", ())) or set(RANGE_FROM) & set(apart):
        found.pop("return_range", None)
    if base.run.agent != other.run.agent:
        return found
    told = f"{base.label}{other.label}"  # of two lines of one agent the labels say what they were meant to differ in
    return {name: values for name, values in found.items() if f"{likeness.spoken(name)} = " not in told}


def by_seed(line: Line, measure: str, until: int, threshold: float | None) -> dict[int, float]:
    """A measure of every seed of a line, from its evaluations up to a step."""
    values = verdicts.measured(line.run.steps, line.returns, threshold, until)[measure]
    return dict(zip(line.seeds, values.tolist(), strict=True))


def thresholds_of(lines: Sequence[Line], given: float | None = None) -> dict[str, float | None]:
    """Environment -> the return that is worth reaching there, or the one given; None where nothing was learned."""
    found: dict[str, float | None] = {}
    for environment in dict.fromkeys(line.environment for line in lines):
        here = [line for line in lines if line.environment == environment and line.run.steps.size > 1]
        first = [value for line in here for value in line.returns[:, 0].tolist()]
        learned = verdicts.common_threshold(first, [line.scores()["final_return"] for line in here])
        found[environment] = learned if given is None else given
    return found


def comparisons_of(
    lines: Sequence[Line],
    seed: int = 0,
    against: str | None = None,
    threshold: float | None = None,
    bases: Mapping[str, str] | None = None,
) -> list[Comparison]:
    """Every line that has something to be compared with, p-values corrected for how many an environment has of them.

    `bases` says it of a study's arms, each by its spelling: what is corrected is then what the study corrected.
    """
    thresholds = thresholds_of(lines, threshold)
    pairs = pairs_of(lines, against) if bases is None else _declared(lines, bases)
    found = [Comparison(base, other, thresholds[base.environment], seed) for base, other in pairs]
    for environment in thresholds:
        fair = [each for each in found if each.alike and each.environment == environment]
        corrected = iter(verdicts.corrected([one for each in fair for one in each.contrasts]))
        for each in fair:
            each.contrasts = [next(corrected) for _ in each.contrasts]
    return found


def pairs_of(lines: Sequence[Line], against: str | None = None) -> list[tuple[Line, Line]]:
    """(base, other): with the base that was asked for; else guided lines with their plain twins, others with the first."""
    pairs: list[tuple[Line, Line]] = []
    named = {name for line in lines for name in names_of(line)}
    if against is not None and against not in named:
        raise SadqError(f"No run here is called {against!r}: compare against one of {', '.join(sorted(named))}.")
    for environment in dict.fromkeys(line.environment for line in lines):
        here = [line for line in lines if line.environment == environment]
        if against is not None:
            bases = [line for line in here if against in names_of(line)]
            pairs += [(base, other) for other in here if other not in bases for base in bases]
            continue
        found: list[tuple[Line, Line]] = []
        for index, line in enumerate(here):
            twins = _twins(line, here) if line.run.guided else []
            first = [(here[0], line)] if index and (line, here[0]) not in found else []  # and no pair both ways round
            found += twins or first
        pairs += found
    return pairs


def _declared(lines: Sequence[Line], bases: Mapping[str, str]) -> list[tuple[Line, Line]]:
    """(base, other) of the lines whose arms are compared."""
    pairs = [(base, other) for other in lines for base in lines if base.environment == other.environment]
    return [(base, other) for base, other in pairs if other.run.arm and bases.get(other.run.arm) == base.run.arm]


def names_of(line: Line) -> tuple[str, ...]:
    """What a line may be called by."""
    return line.label, line.run.agent, line.run.name


def _twins(guided: Line, here: Sequence[Line]) -> list[tuple[Line, Line]]:
    """A guided line with the plain lines of its agent: those that have its settings, the arm of just that name, or all."""
    bases = [line for line in here if line.run.agent == guided.run.base_agent]
    same = [base for base in bases if not likeness.unlike(base.known_settings, guided.known_settings)]
    if same:
        return [(base, guided) for base in same]
    named = [base for base in bases if guided.run.arm and base.run.arm == guided.run.base_agent]
    equal = [base for base in named or bases if not unlike(base, guided)]
    return [(base, guided) for base in equal or bases]


def apart(lines: Sequence[Line]) -> list[str]:
    """A sentence for every two runs that only look comparable: their environments are made with other settings."""
    found = []
    by_name: dict[str, list[str]] = {}
    for line in lines:
        by_name.setdefault(str(line.run.header["config"]["environment"]), []).append(line.environment)
    for environments in by_name.values():
        others = list(dict.fromkeys(environments))
        if len(others) > 1 and not any(line.settings.get("game") for line in lines if line.environment in others):
            found.append(f"Runs on {' and on '.join(others)} are kept apart: other settings make another environment.")
    return found


def record(value: Any) -> Any:
    """Plain data for JSON, which knows no NaN: a number that is not known becomes null."""
    return json.loads(json.dumps(value, default=asdict), parse_constant=lambda name: None)
