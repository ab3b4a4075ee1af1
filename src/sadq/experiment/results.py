"""A run in numbers: a chunk's metrics as rows, which parts diverged and when, and what a member came to."""

import math
from typing import Any

import numpy as np

from sadq.experiment.evaluations import json_number, mean_return
from sadq.experiment.folder import RunFolder
from sadq.experiment.scores import area_under_curve, final_return
from sadq.fleet.members import MemberState

Diverged = dict[tuple[str, int], int]
"""("values" or "model", member) -> the env step at which it diverged."""

AFTER_DIVERGING = {"values": "the others go on", "model": "its values go on learning with the model as it was"}

LEFT_OUT = {"step", "member", "steps_per_second", "episodes", "alpha"}
"""Metrics that a member's result does not repeat."""


def diverged_at(state: MemberState, members: int) -> Diverged:
    learner, found = state.learner, Diverged()
    for what, trained in (("values", learner.online), ("model", learner.model)):
        steps = [] if trained is None else np.asarray(trained.diverged_at)[:members].tolist()
        found |= {(what, member): step for member, step in enumerate(steps) if step >= 0}
    return found


def told_of_diverging(what: str, member: str, step: int) -> str:
    return (
        f"Member {member} diverged at step {step}: the loss of its {what} was not finite; that stays frozen at its last "
        f"finite parameters, {AFTER_DIVERGING[what]}."
    )


def metric_rows(metrics: dict[str, np.ndarray], step: int, rate: float, diverged: Diverged) -> list[dict[str, Any]]:
    """One row a member: the mean of every metric over the chunk's collects that have something to report.

    What stays away before learning starts, or in slots that a pacing left out, is no number; but where a part of a
    member diverged, a loss that is no number is what there is to report.
    """

    def over_chunk(name: str, values: np.ndarray, member: int) -> float:
        part = "model" if name.startswith("model_") else "values"
        known = values if (part, member) in diverged else values[~np.isnan(values)]
        return float(known.mean()) if known.size else math.nan

    episodes, total = metrics["episodes"].sum(axis=1), metrics["episode_return"].sum(axis=1)
    learned = {name: values for name, values in sorted(metrics.items()) if name not in ("episodes", "episode_return")}
    return [
        {
            "step": step,
            "member": member,
            "training_return": json_number(total[member] / count) if count else None,
            "episodes": int(count),
            **{name: json_number(over_chunk(name, values[member], member)) for name, values in learned.items()},
            "steps_per_second": round(rate, 1),
        }
        for member, count in enumerate(episodes)
    ]


def member_result(index: int, member: dict[str, Any], folder: RunFolder, diverged: Diverged) -> dict[str, Any]:
    """What a member came to, from the rows of its run."""
    own = [row for row in folder.evaluations if row["member"] == index]
    whole = [row for row in own if math.isfinite(mean_return(row))] or own
    steps = np.array([row["step"] for row in whole])
    returns = np.array([[mean_return(row) for row in whole]])
    values, model = diverged.get(("values", index)), diverged.get(("model", index))
    last: dict[str, Any] = next((row for row in reversed(folder.metrics) if row["member"] == index), {})
    return {
        **member,
        "status": "ok" if values is None else "diverged",
        "diverged_at": values,
        **({} if model is None else {"model_diverged_at": model}),
        # No numbers where not one evaluation was whole, as in an environment that fails from its first step on.
        "final_return": _finite(final_return(returns)[0]),
        "area_under_curve": _finite(area_under_curve(steps, returns)[0]),
        **{name: own[-1][name] for name in ("overestimation", "measures") if name in own[-1]},
        "effective_alpha": last.get("alpha"),
        **{name: value for name, value in last.items() if name not in LEFT_OUT},
    }


def _finite(score: float) -> float | None:
    return float(score) if math.isfinite(score) else None


def trained_seconds(wall_seconds: float, compile_seconds: float) -> float:
    """What is left of the time of a run without compilation; all of it where programs were compiled beside one another, so
    that in a short run these seconds sum to more than passed."""
    return wall_seconds - compile_seconds if wall_seconds > compile_seconds else wall_seconds
