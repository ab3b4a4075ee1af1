"""How values become behaviour. Randomness is drawn ahead, for a whole collect at once, and handed in as numbers."""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from sadq.core.bootstrap import best_action
from sadq.types import Array, Key, PyTree


class Noise(NamedTuple):
    """The random numbers of one step of E environments."""

    coin: Array  # f32[E], uniform: whether to explore
    lottery: Array  # f32[E, A], uniform: the legal action with the largest number is a uniformly drawn one


def draw_noise(key: Key, environments: int, actions: int) -> Noise:
    """Everything that one step needs, in a single random call."""
    numbers = jax.random.uniform(key, (environments, 1 + actions))
    return Noise(numbers[:, 0], numbers[:, 1:])


class Exploration(Protocol):
    """A rule with a memory of its own per environment; `()` where it needs none."""

    def init(self, environments: int) -> PyTree:
        """The memory before the first step."""

    def act(
        self, values: Array, memory: PyTree, noise: Noise, epsilon: Array, mask: Array | None
    ) -> tuple[Array, PyTree]:
        """(actions i32[E], memory) from values f32[E, A] and the legal actions bool[E, A], or None for all."""


def best_actions(values: Array, mask: Array | None) -> Array:
    """`best_action` of every environment: i32[E]."""
    return jax.vmap(best_action, (0, None if mask is None else 0))(values, mask)


class EpsilonGreedy:
    """A uniform legal action with probability epsilon, a coin per environment, else the best one."""

    def init(self, environments: int) -> tuple[()]:
        return ()

    def act(
        self, values: Array, memory: tuple[()], noise: Noise, epsilon: Array, mask: Array | None
    ) -> tuple[Array, tuple[()]]:
        explore = noise.coin < epsilon
        return jnp.where(explore, best_actions(noise.lottery, mask), best_actions(values, mask)), memory


EXPLORATIONS: dict[str, Exploration] = {"epsilon": EpsilonGreedy()}
