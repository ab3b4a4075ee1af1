"""Networks: layers, encoders and heads, and the value network made of them; imports `core`."""

from sadq.networks.bayesian import Bayesian, BayesianHead
from sadq.networks.convolutions import Convolution
from sadq.networks.encoders import ENCODERS, Dense, DenseEncoder, Nature, NatureEncoder
from sadq.networks.heads import (
    HEADS,
    Categorical,
    CategoricalHead,
    Head,
    Look,
    Mover,
    Quantile,
    QuantileHead,
    Scalar,
    ScalarHead,
)
from sadq.networks.layers import Linear, NoisyLinear
from sadq.networks.levels import Fraction, FractionHead, Implicit, ImplicitHead
from sadq.networks.network import Network, ensemble_keys, ensemble_means, make_ensemble, over_networks
from sadq.networks.stream import ActionStream, HeadShape
