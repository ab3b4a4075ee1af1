"""Networks: layers, encoders, heads, and the value network made of them."""

from sadq.networks.bayesian import BayesianHead
from sadq.networks.encoders import VectorEncoder
from sadq.networks.heads import CategoricalHead, QuantileHead, ScalarHead
from sadq.networks.layers import Linear, NoisyLinear, with_noise
from sadq.networks.levels import FractionHead, ImplicitHead
from sadq.networks.value import Ensemble, ValueNetwork

__all__ = [
    "BayesianHead",
    "CategoricalHead",
    "Ensemble",
    "FractionHead",
    "ImplicitHead",
    "Linear",
    "NoisyLinear",
    "QuantileHead",
    "ScalarHead",
    "ValueNetwork",
    "VectorEncoder",
    "with_noise",
]
