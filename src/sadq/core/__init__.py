"""The paper's and the agents' mathematics: pure functions on one sample, without networks; imports `types` only."""

from sadq.core.bootstrap import Choice, Double, Greedy, double, greedy, guided
from sadq.core.gates import BatchReliability, Fixed, SampleReliability, value_gap, within_allowance
from sadq.core.returns import (
    CategoricalReturn,
    CategoricalTarget,
    QuantileReturn,
    QuantileTarget,
    ScalarReturn,
    project,
)
from sadq.core.rollout import Prediction, bellman_estimate, rollout_scores
