"""What a result file keeps of a run's course: its mean curves, thinned, and what its environment measures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sadq.experiment.evaluations import json_number
from sadq.experiment.scores import FINAL_EVALUATIONS
from sadq.studies.judged import Outcome

POINTS = 50
"""Of a curve of metrics; its evaluations are all kept."""


def extras(outcome: Outcome, metrics: Sequence[str]) -> dict[str, Any]:
    """Curves over the seeds, the peak of Delta-Q, time spent, and each member's final measures."""
    result = outcome.result
    found: dict[str, Any] = {
        "curve": {
            "steps": outcome.steps.tolist(),
            "mean": _numbers(outcome.returns.mean(axis=0)),
            "deviation": _numbers(outcome.returns.std(axis=0)),
        },
        "metrics": {},
        "seconds": {name: result[name] for name in ("wall_seconds", "compile_seconds", "steps_per_second")},
        "measures": [_measures(outcome, index) for index in range(len(outcome.seeds))],
    }
    for name in metrics:
        steps, values = metric_curve(outcome, name)
        if values.size:
            if name == "delta_q":
                peak = int(np.nanargmax(values))
                found["delta_q_peak"] = {"step": int(steps[peak]), "value": json_number(values[peak])}
            found["metrics"][name] = _thinned(steps, values)
    return found


def metric_curve(outcome: Outcome, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps[T], the mean over members[T]) of a metric, where all members have one."""
    by_step: dict[int, list[float]] = {}
    for row in outcome.run.metrics:
        if row.get(name) is not None:
            by_step.setdefault(row["step"], []).append(row[name])
    whole = {step: values for step, values in sorted(by_step.items()) if len(values) == len(outcome.seeds)}
    return np.array(list(whole), np.int64), np.array([np.mean(values) for values in whole.values()])


def _thinned(steps: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """The means over at most so many stretches of the run, each at its last step."""
    pieces = np.array_split(np.arange(steps.size), min(POINTS, steps.size))
    return {
        "steps": [int(steps[piece[-1]]) for piece in pieces],
        "mean": _numbers(np.array([values[piece].mean() for piece in pieces])),
    }


def _measures(outcome: Outcome, member: int) -> dict[str, float | None]:
    """What the environment measured beside returns, over the evaluations that the final return is of."""
    rows = [row["measures"] for row in outcome.run.evaluations if row["member"] == member and "measures" in row]
    last = rows[-FINAL_EVALUATIONS:]
    return {
        name: json_number(np.mean([row[name] for row in last]))
        for name in (last[-1] if last else {})
        if all(row[name] is not None for row in last)
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    return [json_number(value) for value in values.tolist()]
