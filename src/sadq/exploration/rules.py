"""How values become behaviour: one rule for E environments at once, with a memory of its own where it needs one.

What can be drawn for a whole collect at once is, and is handed in as numbers; rarer draws fold the step's key.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.core.bootstrap import best_action, legal_values
from sadq.core.ensembles import upper_confidence
from sadq.core.posterior import Posterior, sample
from sadq.networks.value import Network, ValueNetwork
from sadq.types import Array, Key, PyTree


class Noise(NamedTuple):
    """The randomness of one step of E environments."""

    coin: Array  # f32[E], uniform: whether to explore
    lottery: Array  # f32[E, A], uniform: the legal action with the largest number is a uniformly drawn one
    key: Key  # for what few rules need


def draw_noise(key: Key, environments: int, actions: int) -> Noise:
    """Everything that one step needs, in a single random call."""
    numbers = jax.random.uniform(key, (environments, 1 + actions))
    return Noise(numbers[:, 0], numbers[:, 1:], key)


class Situation(NamedTuple):
    """What a rule may look at."""

    network: Network
    posterior: Posterior | None  # of a Bayesian head
    observation: Array  # f32[E, D]
    mask: Array | None  # bool[E, A]: legal actions; None for all
    fresh: Array  # bool[E]: an episode begins here
    step: Array  # i32[]: env steps so far
    epsilon: Array  # f32[]
    noise: Noise


class Exploration(Protocol):
    """A rule; its memory has a leading axis E, or is `()`."""

    def init(self, environments: int, network: Network) -> PyTree:
        """The memory before the first step."""

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        """(actions i32[E], memory)."""


def best_actions(values: Array, mask: Array | None) -> Array:
    """`best_action` of every environment: i32[E]."""
    return jax.vmap(best_action, (0, None if mask is None else 0))(values, mask)


def random_actions(now: Situation) -> Array:
    """A uniform legal action for every environment: i32[E]."""
    return best_actions(now.noise.lottery, now.mask)


def member_values(now: Situation) -> Array:
    """Expected returns by ensemble member, under fresh noise where the network has any: f32[E, K, A]."""
    network = now.network.with_noise(keys.purpose(now.noise.key, "network"))
    if not network.draws_levels:
        return jax.vmap(network.values)(now.observation, now.mask)
    level_keys = keys.range_of(keys.purpose(now.noise.key, "levels"), 0, now.observation.shape[0])
    return jax.vmap(network.values)(now.observation, now.mask, level_keys)


def expected_values(now: Situation) -> Array:
    """The members' average: f32[E, A]."""
    return jnp.mean(member_values(now), axis=1)


@dataclass(frozen=True)
class Greedy:
    """The best action; whatever explores is in the network's noise."""

    def init(self, environments: int, network: Network) -> tuple[()]:
        return ()

    def act(self, now: Situation, memory: tuple[()]) -> tuple[Array, tuple[()]]:
        return best_actions(expected_values(now), now.mask), memory


@dataclass(frozen=True)
class EpsilonGreedy:
    """A uniform legal action with probability epsilon, a coin per environment, else the best one."""

    def init(self, environments: int, network: Network) -> tuple[()]:
        return ()

    def act(self, now: Situation, memory: tuple[()]) -> tuple[Array, tuple[()]]:
        best = best_actions(expected_values(now), now.mask)
        return jnp.where(now.noise.coin < now.epsilon, random_actions(now), best), memory


class Repetition(NamedTuple):
    """An action under way."""

    action: Array  # i32[E]
    remaining: Array  # i32[E]: steps for which it is still to be taken


@dataclass(frozen=True)
class TemporallyExtended:
    """epsilon-z-greedy (Dabney et al., 2021; TEG): a random action is kept for n steps, n ~ n^-exponent up to `longest`.

    A repetition ends with its episode, or where its action becomes illegal.
    """

    exponent: float = 2.0
    longest: int = 100

    def init(self, environments: int, network: Network) -> Repetition:
        return Repetition(jnp.zeros(environments, jnp.int32), jnp.zeros(environments, jnp.int32))

    def durations(self, key: Key, count: int) -> Array:
        """Lengths i32[count], by inverting the cumulative distribution."""
        shares = np.arange(1, self.longest + 1, dtype=np.float64) ** -self.exponent
        cumulative = jnp.asarray(np.cumsum(shares) / shares.sum(), jnp.float32)[:-1]
        return 1 + jnp.sum(jax.random.uniform(key, (count, 1)) >= cumulative, axis=1, dtype=jnp.int32)

    def act(self, now: Situation, memory: Repetition) -> tuple[Array, Repetition]:
        going = (memory.remaining > 0) & ~now.fresh
        if now.mask is not None:
            going &= jnp.take_along_axis(now.mask, memory.action[:, None], axis=1)[:, 0]
        begins = ~going & (now.noise.coin < now.epsilon)
        length = self.durations(keys.purpose(now.noise.key, "duration"), begins.shape[0])
        kept = jnp.where(begins, random_actions(now), memory.action)
        remaining = jnp.where(begins, length, jnp.where(going, memory.remaining, 0))
        action = jnp.where(remaining > 0, kept, best_actions(expected_values(now), now.mask))
        return action, Repetition(kept, jnp.maximum(remaining - 1, 0))


@dataclass(frozen=True)
class Counteractive:
    """CoAct (Korkmaz, 2025): with probability epsilon the action that looks worst, before `starts` env steps any."""

    starts: int = 1600

    def init(self, environments: int, network: Network) -> tuple[()]:
        return ()

    def act(self, now: Situation, memory: tuple[()]) -> tuple[Array, tuple[()]]:
        values = expected_values(now)
        # Not the best action of the negated values: legal ones are kept, and the first of equals, as everywhere.
        worst = jnp.argmin(jax.vmap(lambda own, legal: legal_values(own, legal, jnp.inf))(values, now.mask), axis=1)
        surprising = jnp.where(now.step < self.starts, random_actions(now), worst.astype(jnp.int32))
        return jnp.where(now.noise.coin < now.epsilon, surprising, best_actions(values, now.mask)), memory


@dataclass(frozen=True)
class UpperConfidence:
    """SUNRISE: the action with the largest mean + width * standard deviation over the ensemble."""

    width: float = 1.0

    def init(self, environments: int, network: Network) -> tuple[()]:
        return ()

    def act(self, now: Situation, memory: tuple[()]) -> tuple[Array, tuple[()]]:
        optimistic = jax.vmap(lambda values: upper_confidence(values, self.width))(member_values(now))
        return best_actions(optimistic, now.mask), memory


@dataclass(frozen=True)
class Thompson:
    """BDQN: act by one draw of the last layer, kept per environment until its episode or `interval` env steps end."""

    interval: int = 1000

    def init(self, environments: int, network: Network) -> Array:
        assert isinstance(network, ValueNetwork)
        return jnp.zeros((environments, *network.bayesian_head.weights.shape))

    def act(self, now: Situation, memory: Array) -> tuple[Array, Array]:
        network, posterior, environments = now.network, now.posterior, now.observation.shape[0]
        assert isinstance(network, ValueNetwork) and posterior is not None
        redrawn = now.fresh | (now.step // self.interval > (now.step - environments) // self.interval)

        def draw() -> Array:
            own = keys.range_of(keys.purpose(now.noise.key, "posterior"), 0, environments)
            fresh = jax.vmap(lambda key: sample(posterior, key))(own)
            return jnp.where(redrawn[:, None, None], fresh, memory)

        weights = jax.lax.cond(jnp.any(redrawn), draw, lambda: memory)
        values = jax.vmap(lambda own, seen: network.with_weights(own).mean(seen))(weights, now.observation)
        return best_actions(values, now.mask), weights
