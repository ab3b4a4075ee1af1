"""The two numbers that a learning curve is reduced to."""

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
