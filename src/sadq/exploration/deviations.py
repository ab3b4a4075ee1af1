"""What a deviation from the intended action is: any action, any action for a while, the worst one, or none."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.core.bootstrap import legal_values
from sadq.exploration.situation import Rule, Situation, random_actions
from sadq.networks.network import Network
from sadq.registry import Axis, at_least, not_negative
from sadq.types import Array, Key, PyTree

DEVIATIONS = Axis("deviation", "what happens with probability epsilon instead", "init", "begin", "act")


@DEVIATIONS.register("never")
@dataclass(frozen=True)
class Never(Rule):
    """Epsilon is 0: whatever explores is in the networks or in what is meant."""

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        return now.intended, memory


class Repetition(NamedTuple):
    """An action under way."""

    action: Array  # i32[E]
    remaining: Array  # i32[E]: steps for which it is still to be taken


@DEVIATIONS.register("random")
@dataclass(frozen=True)
class RandomAction(Rule):
    """A uniform legal action with probability epsilon, a coin per lane; it may be kept for n steps, n ~ n^-exponent.

    A repetition ends with its episode, or where its action becomes illegal.
    """

    exponent: float = 2.0
    """How fast the probability of n falls."""
    longest: int = 1
    """The largest n; 1: an action is for one step."""

    def __post_init__(self) -> None:
        not_negative(self, "exponent")
        at_least(self, 1, "longest")

    def init(self, lanes: int, networks: Network) -> PyTree:
        if self.longest == 1:
            return super().init(lanes, networks)
        return Repetition(jnp.zeros(lanes, jnp.int32), jnp.zeros(lanes, jnp.int32))

    def durations(self, key: Key, count: int) -> Array:
        """Lengths i32[count], by inverting the cumulative distribution."""
        shares = np.arange(1, self.longest + 1, dtype=np.float64) ** -self.exponent
        cumulative = jnp.asarray(np.cumsum(shares) / shares.sum(), jnp.float32)[:-1]
        return 1 + jnp.sum(jax.random.uniform(key, (count, 1)) >= cumulative, axis=1, dtype=jnp.int32)

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        if self.longest == 1:
            return jnp.where(now.noise.coin < now.epsilon, random_actions(now), now.intended), memory
        going = (memory.remaining > 0) & ~now.fresh
        if now.mask is not None:
            going &= jnp.take_along_axis(now.mask, memory.action[:, None], axis=1)[:, 0]
        begins = ~going & (now.noise.coin < now.epsilon)
        length = self.durations(keys.purpose(now.noise.key, "duration"), begins.shape[0])
        kept = jnp.where(begins, random_actions(now), memory.action)
        remaining = jnp.where(begins, length, jnp.where(going, memory.remaining, 0))
        return jnp.where(remaining > 0, kept, now.intended), Repetition(kept, jnp.maximum(remaining - 1, 0))


@DEVIATIONS.register("epsilon-z")
@dataclass(frozen=True)
class EpsilonZ(RandomAction):
    """epsilon-z-greedy (Dabney et al., 2021; TEG): a random action that is kept for up to 100 steps."""

    longest: int = 100


@DEVIATIONS.register("counteractive")
@dataclass(frozen=True)
class Counteractive(Rule):
    """CoAct (Korkmaz, 2025): with probability epsilon the action that looks worst."""

    starts: int = 1600
    """Env steps before which a deviation is uniform rather than the worst; 0: never uniform."""

    def __post_init__(self) -> None:
        at_least(self, 0, "starts")

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        # Not the best action of the negated values: legal ones are kept, and the first of equals, as everywhere.
        lowest = jax.vmap(lambda values, legal: legal_values(values, legal, jnp.inf))(now.expected, now.mask)
        worst = jnp.argmin(lowest, axis=1).astype(jnp.int32)
        surprising = jnp.where(now.step < self.starts, random_actions(now), worst)
        return jnp.where(now.noise.coin < now.epsilon, surprising, now.intended), memory
