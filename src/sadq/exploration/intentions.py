"""Which action is meant: the one that looks best, or best under what the values' uncertainty allows."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.ensembles import upper_confidence
from sadq.core.posterior import sample
from sadq.exploration.situation import Rule, Situation, best_actions
from sadq.networks.network import Network, first_network
from sadq.registry import Axis, at_least, not_negative
from sadq.types import Array, Key, PyTree

INTENTIONS = Axis("intended", "which action is meant", "init", "begin", "act")


@INTENTIONS.register("best")
@dataclass(frozen=True)
class Best(Rule):
    """The action with the largest expected return."""

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        return best_actions(now.expected, now.mask), memory


@INTENTIONS.register("ucb")
@dataclass(frozen=True)
class UpperConfidence(Rule):
    """SUNRISE: the action with the largest mean + width * standard deviation over the ensemble."""

    width: float = 1.0
    """Standard deviations of the ensemble that are added to its mean (lambda)."""

    def __post_init__(self) -> None:
        not_negative(self, "width")

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        optimistic = jax.vmap(lambda values: upper_confidence(values, self.width))(now.values)
        return best_actions(optimistic, now.mask), memory


class KeptDraws(NamedTuple):
    """Draws of a Bayesian last layer."""

    current: Array  # f32[E, A, H]: that every lane acts by
    following: Array  # f32[E, A, H]: for an episode that begins in this collect


@INTENTIONS.register("thompson")
@dataclass(frozen=True)
class Thompson(Rule):
    """BDQN: the best action under one draw of the last layer, kept per lane until its episode or an interval ends.

    The draws are made once a collect: whether a lane needs one differs by member, and a branch on that would, for a
    fleet on an accelerator, draw at every step.
    """

    interval: int = 1000
    """Env steps after which every lane changes to another draw, as it also does for every episode."""

    def __post_init__(self) -> None:
        at_least(self, 1, "interval")

    def init(self, lanes: int, networks: Network) -> KeptDraws:
        _, *shape = networks.head.weights.shape  # type: ignore[attr-defined]
        nothing = jnp.zeros((lanes, *shape))
        return KeptDraws(nothing, nothing)

    def begin(self, networks: Network, key: Key, memory: KeptDraws) -> KeptDraws:
        posterior = first_network(networks).head.posterior
        lane_keys = keys.range_of(key, 0, memory.current.shape[0])
        return memory._replace(following=jax.vmap(lambda lane_key: sample(posterior, lane_key))(lane_keys))

    def act(self, now: Situation, memory: KeptDraws) -> tuple[Array, KeptDraws]:
        due = now.step // self.interval > (now.step - now.stride) // self.interval
        current = jnp.where((now.fresh | due)[:, None, None], memory.following, memory.current)
        network = first_network(now.networks)

        def values(weights: Array, seen: Array) -> Array:
            return network.head.holding(weights).mean(network.encode(seen))

        return best_actions(jax.vmap(values)(current, now.observation), now.mask), memory._replace(current=current)
