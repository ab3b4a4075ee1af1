"""The paper's mathematics as pure functions on one sample, free of networks and of this library's learner."""

from sadq.core.bootstrap import Choice, double, greedy, successor_guided
from sadq.core.gates import batch_reliability, fixed, sample_reliability, value_gap
from sadq.core.returns import Categorical, CategoricalTarget, Quantile, QuantileTarget, Scalar, project
from sadq.core.rollout import Prediction, bellman_estimate, rollout_scores

__all__ = [
    "Categorical",
    "CategoricalTarget",
    "Choice",
    "Prediction",
    "Quantile",
    "QuantileTarget",
    "Scalar",
    "batch_reliability",
    "bellman_estimate",
    "double",
    "fixed",
    "greedy",
    "project",
    "rollout_scores",
    "sample_reliability",
    "successor_guided",
    "value_gap",
]
