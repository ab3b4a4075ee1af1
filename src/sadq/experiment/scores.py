"""The numbers that a learning curve is reduced to: where it ends, its area, and when it reaches a threshold."""

import numpy as np

FINAL_EVALUATIONS = 5


def final_return(returns: np.ndarray) -> np.ndarray:
    """The mean of the last 5 evaluations (of all, where there are fewer), per member: returns[M, S] -> [M].

    NaN where one of them is missing, rather than the mean of other evaluations than the other members'.
    """
    if returns.shape[1] == 0:
        return np.full(returns.shape[0], np.nan)
    return np.asarray(returns[:, -FINAL_EVALUATIONS:].mean(axis=1))


def area_under_curve(steps: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """The time average of all evaluations, per member: steps[S], returns[M, S] -> [M].

    The curve through the evaluations, straight between them (trapezoids), is integrated from the first to the last
    step and divided by the steps in between, so it is in units of return whatever the run's length. A single
    evaluation is its own average; NaN where an evaluation is missing.
    """
    if steps.size < 2:
        return final_return(returns)
    return np.asarray(np.trapezoid(returns, steps, axis=1) / (steps[-1] - steps[0]))


def steps_to_threshold(steps: np.ndarray, returns: np.ndarray, threshold: float) -> np.ndarray:
    """The step at which each member's curve first reaches the threshold: steps[S], returns[M, S] -> [M].

    Straight between evaluations, as the area has it. A member that never gets there counts by the last step, so that
    differences in time are never made larger by when a run happened to end. NaN where an evaluation before is missing.
    """
    if steps.size == 0:
        return np.full(returns.shape[0], np.nan)
    times = np.full(returns.shape[0], float(steps[-1]))
    for member, curve in enumerate(returns):
        reached = np.flatnonzero(curve >= threshold)
        last = reached[0] if reached.size else steps.size - 1
        if not np.isfinite(curve[: last + 1]).all():
            times[member] = np.nan
        elif reached.size and last > 0:
            share = (threshold - curve[last - 1]) / (curve[last] - curve[last - 1])
            times[member] = steps[last - 1] + share * (steps[last] - steps[last - 1])
        elif reached.size:
            times[member] = steps[0]
    return times
