"""The two numbers a learning curve is reduced to."""

import numpy as np

FINAL_EVALUATIONS = 5


def final_return(returns: np.ndarray) -> float:
    """The mean of the last five evaluations, [S] in order."""
    return float(np.mean(returns[-FINAL_EVALUATIONS:]))


def area_under_curve(steps: np.ndarray, returns: np.ndarray) -> float:
    """The time average of the curve: its trapezoidal area over its steps, or its only value."""
    span = steps[-1] - steps[0]
    return float(np.trapezoid(returns, steps) / span) if span > 0 else float(np.mean(returns))
