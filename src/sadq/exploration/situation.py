"""What behaviour may look at: E lanes at one step, their values, and the randomness of the step.

What can be drawn for a whole collect at once is, and is handed in as numbers; rarer draws fold the step's key.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.bootstrap import best_action
from sadq.networks.network import Network, ensemble_keys, ensemble_means, over_networks, settled
from sadq.types import Array, Key, Mask, PyTree


class Noise(NamedTuple):
    """The randomness of one step of E lanes."""

    coin: Array  # f32[E], uniform: whether to deviate
    lottery: Array  # f32[E, A], uniform: the legal action with the largest number is a uniformly drawn one
    key: Key  # for what few rules need


def draw_noise(key: Key, lanes: int, actions: int) -> Noise:
    """Everything that one step needs, in a single random call."""
    numbers = jax.random.uniform(key, (lanes, 1 + actions))
    return Noise(numbers[:, 0], numbers[:, 1:], key)


class Situation(NamedTuple):
    """What a rule may look at."""

    networks: Network  # [K, ...] on every leaf
    values: Array  # f32[E, K, A]: expected returns by network, under fresh noise where there is any
    observation: Array  # [E, *observation shape]
    mask: Mask  # bool[E, A]: legal actions; None for all
    fresh: Array  # bool[E]: an episode begins here
    step: Array  # i32[]: env steps so far
    stride: int  # env steps that this step adds
    epsilon: Array  # f32[]: the probability of a deviation
    noise: Noise
    intended: Any = None  # i32[E]: the actions that are meant, for a deviation to replace

    @property
    def expected(self) -> Array:
        """The networks' average: f32[E, A]."""
        return jnp.mean(self.values, axis=1)


class Rule:
    """How actions come about: what is meant, what is done instead, or both; its memory has a leading axis E, or is `()`."""

    def init(self, lanes: int, networks: Network) -> PyTree:
        """The memory before the first step."""
        return ()

    def begin(self, networks: Network, key: Key, memory: PyTree) -> PyTree:
        """What may be drawn once for a whole collect, whose networks stand still."""
        return memory

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        """(actions i32[E], memory)."""
        raise TypeError(f"{type(self).__name__} has no act: a rule gives the actions of a step.")


def noisy_values(networks: Network, observation: Array, mask: Mask, key: Key) -> Array:
    """Expected returns by network as behaviour sees them, with whatever the networks draw: f32[E, K, A]."""
    size = jax.tree.leaves(networks)[0].shape[0]
    noise_keys = ensemble_keys(keys.purpose(key, "network"), size)
    drawn = over_networks(lambda network, noise_key: network.drawn(noise_key), networks, noise_keys)
    level_keys = keys.range_of(keys.purpose(key, "levels"), 0, observation.shape[0])

    def of_lane(seen: Array, legal: Mask, level_key: Key) -> Array:
        sampled = over_networks(lambda network: network.sampled(level_key), drawn)
        return ensemble_means(sampled, seen, legal)

    return jax.vmap(of_lane)(observation, mask, level_keys)


def settled_values(networks: Network, observation: Array, mask: Mask) -> Array:
    """Expected returns as evaluation sees them: f32[E, A], averaged over the networks."""
    at_mean = settled(networks)
    return jax.vmap(lambda seen, legal: jnp.mean(ensemble_means(at_mean, seen, legal), axis=0))(observation, mask)


def best_actions(values: Array, mask: Mask) -> Array:
    """`best_action` of every lane: i32[E]."""
    return jax.vmap(best_action, (0, None if mask is None else 0))(values, mask)


def random_actions(now: Situation) -> Array:
    """A uniform legal action for every lane: i32[E]."""
    return best_actions(now.noise.lottery, now.mask)
