"""What a result file keeps of a run's course: mean curves, thinned, and of every seed the numbers that claims are about."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sadq.experiment.evaluations import json_number
from sadq.experiment.scores import FINAL_EVALUATIONS, final_return
from sadq.studies.judged import Outcome

POINTS = 50
"""Of a curve of metrics, each the mean over a stretch of the run; its evaluations are all kept."""
LATE = 0.1
"""The part of a run, at its end, whose mean is what a metric ends at."""
MODEL_LOSS = "model_state_loss"
FALLEN, FALLEN_LOG = 0.95, 0.9
"""Of a model's fall of its loss, on a linear and on a logarithmic scale, what counts as converged."""
SETTLED = 0.9
"""Of the way to its final return, what ends the phase in which a seed rises."""
PROMINENT = 0.05
"""Of a peak's height, the fall after it that makes it one."""
HIGH = 0.5
"""Of the greatest value, what a peak reaches at least; lower ones are of networks that have learned nothing yet."""


def extras(outcome: Outcome, metrics: Sequence[str]) -> dict[str, Any]:
    """Curves over the seeds, the peak of Delta-Q, time spent, and of each member what its course comes to."""
    result = outcome.result
    tables = {name: metric_table(outcome, name) for name in dict.fromkeys((*metrics, "delta_q", MODEL_LOSS))}
    found: dict[str, Any] = {
        "curve": {
            "steps": outcome.steps.tolist(),
            "mean": _numbers(outcome.returns.mean(axis=0)),
            "deviation": _numbers(outcome.returns.std(axis=0)),
        },
        "metrics": {},
        "updates": _updates(outcome),
        "seconds": {name: result[name] for name in ("wall_seconds", "compile_seconds", "steps_per_second")},
        "members": _evaluated(outcome) | _discrepancy(*tables["delta_q"]) | _model(outcome, *tables[MODEL_LOSS]),
        "measures": _measures(outcome),
    }
    for name in metrics:
        steps, values = tables[name]
        if steps.size:
            thinned = found["metrics"][name] = _thinned(steps, values.mean(axis=0))
            if name == "delta_q":
                peak = first_peak(np.array(thinned["mean"], np.float64))
                found["delta_q_peak"] = {"step": thinned["steps"][peak], "value": thinned["mean"][peak]}
    return found


def metric_table(outcome: Outcome, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps[T], values[M, T]) of a metric, at the steps where all members have one."""
    by_step: dict[int, dict[int, float]] = {}
    for row in outcome.run.metrics:
        if row.get(name) is not None:
            by_step.setdefault(row["step"], {})[row["member"]] = row[name]
    members = range(len(outcome.seeds))
    whole = {step: values for step, values in sorted(by_step.items()) if len(values) == len(members)}
    table = [[values[member] for values in whole.values()] for member in members]
    return np.array(list(whole), np.int64), np.array(table, np.float64)


def _evaluated(outcome: Outcome) -> dict[str, list[float | None]]:
    """Where each member's returns begin, their best stretch, how they fluctuate late, and what was predicted of them."""
    returns = outcome.returns
    # From one evaluation to the next, so that what is still learned does not count as unsteady.
    late = np.diff(returns[:, returns.shape[1] // 2 :], axis=1)
    fluctuation = np.sqrt((late**2).mean(axis=1) / 2) if late.size else np.full(len(returns), np.nan)
    stretch = min(FINAL_EVALUATIONS, returns.shape[1])
    running = np.lib.stride_tricks.sliding_window_view(returns, stretch, axis=1).mean(axis=2)
    first, final = returns[:, 0], final_return(returns)
    settled = outcome.steps[(running >= (first + SETTLED * (final - first))[:, None]).argmax(axis=1) + stretch // 2]
    over = np.full(returns.shape, np.nan)
    places = {step: column for column, step in enumerate(outcome.steps.tolist())}
    for row in outcome.run.evaluations:
        over[row["member"], places[row["step"]]] = np.nan if (v := row.get("overestimation")) is None else v
    return {
        "first_return": _numbers(first),
        "best_return": _numbers(running.max(axis=1)),
        "settled_step": _numbers(np.where(final > first, settled, np.nan)),
        "late_fluctuation": _numbers(fluctuation),
        "overestimation": _numbers(final_return(over)),
    }


def _discrepancy(steps: np.ndarray, values: np.ndarray) -> dict[str, list[float | None]]:
    """When each member's Delta-Q first peaks, over stretches of the run, how high, how low it gets after and ends."""
    if not steps.size:
        return {}
    pieces = _pieces(steps)
    smooth = np.stack([values[:, piece].mean(axis=1) for piece in pieces], axis=1)
    middles = np.array([steps[piece].mean() for piece in pieces])
    peaks = [first_peak(course) for course in smooth]
    return {
        "delta_q_peak": _numbers(np.array([course[peak] for course, peak in zip(smooth, peaks, strict=True)])),
        "delta_q_peak_step": _numbers(middles[peaks]),
        "delta_q_dip": _numbers(np.array([course[peak:].min() for course, peak in zip(smooth, peaks, strict=True)])),
        "delta_q_last": _numbers(_late(values)),
    }


def first_peak(values: np.ndarray) -> int:
    """Where values[T] are greatest before they fall by 5%, from half of their maximum or more; else where greatest."""
    highest = np.maximum.accumulate(values)
    fallen = np.flatnonzero((values < (1 - PROMINENT) * highest) & (highest >= HIGH * np.nanmax(values)))
    return int(np.nanargmax(values[: fallen[0]] if fallen.size else values))


def _model(outcome: Outcome, steps: np.ndarray, values: np.ndarray) -> dict[str, list[float | None]]:
    """What each member's model's loss begins and ends at, its mean logarithm, and the updates until it had converged."""
    if not steps.size or (values <= 0).any():
        return {}
    first, last = values[:, 0], _late(values)
    config = outcome.config

    def updates(level: np.ndarray) -> list[float | None]:
        reached = steps[(values <= level[:, None]).argmax(axis=1)] - config.learning_starts
        made = reached / config.collect * config.guidance.updates_per_collect
        return _numbers(np.where(last < first, made, np.nan))

    return {
        "model_loss_first": _numbers(first),
        "model_loss_last": _numbers(last),
        "model_loss_log10": _numbers(np.log10(values).mean(axis=1)),
        "model_updates_linear": updates(last + (1 - FALLEN) * (first - last)),
        "model_updates_log": updates(last * (first / last) ** (1 - FALLEN_LOG)),
    }


def _updates(outcome: Outcome) -> dict[str, int | None]:
    """Of the values and, where there is one, of the model, in the whole run; a pacing may have left some out."""
    config = outcome.config
    collects = (int(outcome.steps[-1]) - config.learning_starts) // config.collect
    guided = outcome.arm.guided
    return {
        "value": collects * config.updates_per_collect,
        "model": collects * config.guidance.updates_per_collect if guided else None,
    }


def _late(values: np.ndarray) -> np.ndarray:
    return np.asarray(values[:, -max(1, round(LATE * values.shape[1])) :].mean(axis=1))


def _pieces(steps: np.ndarray) -> list[np.ndarray]:
    return np.array_split(np.arange(steps.size), min(POINTS, steps.size))


def _thinned(steps: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """The means over at most so many stretches of the run, each at its last step."""
    pieces = _pieces(steps)
    return {
        "steps": [int(steps[piece[-1]]) for piece in pieces],
        "mean": _numbers(np.array([values[piece].mean() for piece in pieces])),
    }


def _measures(outcome: Outcome) -> dict[str, list[float | None]]:
    """What the environment measured beside returns, over the evaluations that the final return is of: name -> by member."""
    found: dict[str, list[float | None]] = {}
    for member in range(len(outcome.seeds)):
        rows = [row["measures"] for row in outcome.run.evaluations if row["member"] == member and "measures" in row]
        last = rows[-FINAL_EVALUATIONS:]
        for name in last[-1] if last else ():
            known = all(row[name] is not None for row in last)
            found.setdefault(name, []).append(json_number(np.mean([row[name] for row in last])) if known else None)
    return found


def _numbers(values: np.ndarray) -> list[float | None]:
    return [json_number(value) for value in values.tolist()]
