"""From a config to its value network and exploration rule."""

from collections.abc import Callable

import jax

from sadq import keys
from sadq.agents import HEADS
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.exploration.rules import (
    Counteractive,
    EpsilonGreedy,
    Exploration,
    Greedy,
    TemporallyExtended,
    Thompson,
    UpperConfidence,
)
from sadq.networks.bayesian import BayesianHead
from sadq.networks.encoders import VectorEncoder
from sadq.networks.heads import CategoricalHead, Head, QuantileHead, ScalarHead
from sadq.networks.levels import FractionHead, ImplicitHead
from sadq.networks.value import Ensemble, Network, ValueNetwork
from sadq.types import Key

SUPPORTS = {
    "Acrobot-v1": (-100.0, 0.0),
    "BitFlip": (0.0, 1.0),
    "CartPole-v0": (0.0, 100.0),
    "CartPole-v1": (0.0, 100.0),
    "LunarLander-v3": (-300.0, 300.0),
}
"""The range of discounted returns at gamma 0.99, for C51 where the config names none; the paper's presets do."""

UNKNOWN_SUPPORT = (-100.0, 100.0)


def support_of(config: Config, environment: str) -> tuple[float, float]:
    """The smallest and the largest return that a categorical head can represent."""
    if config.distribution.support is not None:
        return config.distribution.support
    return SUPPORTS.get("BitFlip" if environment.startswith("BitFlip") else environment, UNKNOWN_SUPPORT)


def make_head(config: Config, environment: str, actions: int, key: Key) -> Head:
    """The head that the agent's row names."""
    row, features, own = config.row, config.hidden[-1], config.distribution
    match row.head:
        case "scalar":
            return ScalarHead(features, actions, row.dueling, config.huber, key, row.noisy)
        case "bayesian":
            return BayesianHead(features, actions, config.huber, key)
        case "categorical":
            support = support_of(config, environment)
            return CategoricalHead(features, actions, row.dueling, own.atoms, support, key, row.noisy)
        case "quantile":
            return QuantileHead(features, actions, row.dueling, own.quantiles, own.huber, own.mixing, key, row.noisy)
        case "implicit":
            by_level = own.levels, own.cosines, own.huber, own.mixing
            return ImplicitHead(features, actions, row.dueling, *by_level, key, row.noisy)
        case "fraction":
            by_level = own.levels, own.cosines, own.huber, own.mixing
            return FractionHead(features, actions, row.dueling, *by_level, key, row.noisy)
    raise SadqError(f"Unknown head {row.head!r}: expected one of {', '.join(HEADS)}.")


def network_maker(config: Config, environment: str, inputs: int, actions: int) -> Callable[[Key], Network]:
    """A function from a key to a network with the initial weights of that key."""

    def make(key: Key) -> ValueNetwork:
        encoder = VectorEncoder(inputs, config.hidden, keys.purpose(key, "encoder"))
        return ValueNetwork(encoder, make_head(config, environment, actions, keys.purpose(key, "head")))

    def make_ensemble(key: Key) -> Ensemble:
        size = config.row.ensemble
        return Ensemble(jax.vmap(make)(keys.range_of(key, 0, size)), size)

    return make if config.row.ensemble == 1 else make_ensemble


def make_exploration(config: Config) -> Exploration:
    """The rule that the agent's row names."""
    own = config.behaviour
    rules: dict[str, Callable[[], Exploration]] = {
        "epsilon": EpsilonGreedy,
        "greedy": Greedy,
        "epsilon-z": lambda: TemporallyExtended(own.repeat_exponent, own.repeat_longest),
        "counteractive": lambda: Counteractive(own.counteractive_starts),
        "thompson": lambda: Thompson(config.bayesian.resample_interval),
        "ucb": lambda: UpperConfidence(own.ucb_width),
    }
    return rules[config.row.exploration]()
