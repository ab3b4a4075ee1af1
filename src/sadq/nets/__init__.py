"""Networks: layers, encoders, heads, and the value network made of them."""

from sadq.nets.bayesian import BayesianHead
from sadq.nets.encoders import VectorEncoder
from sadq.nets.heads import CategoricalHead, QuantileHead, ScalarHead
from sadq.nets.layers import Linear, NoisyLinear, with_noise
from sadq.nets.levels import FractionHead, ImplicitHead
from sadq.nets.value import Ensemble, ValueNetwork

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
