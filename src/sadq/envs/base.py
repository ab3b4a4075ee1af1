"""The contract of a native environment: pure functions of one environment, batched by the caller."""

import abc
from typing import NamedTuple

import jax.numpy as jnp

from sadq.types import Array, Key, PyTree


class Environment(abc.ABC):
    """A deterministic or stochastic environment written in JAX.

    Subclasses are frozen dataclasses: their fields are constants of the compiled program. State is any pytree of
    arrays. Time limits are kept outside, by `reset` and `step` of this module, so that a subclass has dynamics only.
    """

    name: str
    observation_size: int
    action_count: int
    max_steps: int  # an episode is truncated after this many steps

    @abc.abstractmethod
    def initial(self, key: Key) -> PyTree:
        """The state that an episode starts from."""

    @abc.abstractmethod
    def transition(self, state: PyTree, action: Array, key: Key) -> tuple[PyTree, Array, Array]:
        """(next state, reward f32[], terminated bool[]) of taking `action` i32[] in `state`."""

    @abc.abstractmethod
    def observe(self, state: PyTree) -> Array:
        """The observation f32[D] of a state."""

    def legal(self, observation: Array) -> Array | None:
        """Which actions are legal, bool[A], read from an observation; None where all of them always are.

        It takes an observation rather than a state so that it also works on a state that a model predicted.
        """
        return None

    @property
    def has_masks(self) -> bool:
        """Whether some action may be illegal somewhere."""
        return type(self).legal is not Environment.legal


class Timed(NamedTuple):
    """An environment's state with the number of steps since its episode began."""

    state: PyTree
    elapsed: Array  # i32[]


class Step(NamedTuple):
    """What an environment answers to an action."""

    observation: Array  # f32[D], of the state reached
    reward: Array  # f32[]
    terminated: Array  # bool[]
    truncated: Array  # bool[], never together with `terminated`


def reset(environment: Environment, key: Key) -> Timed:
    """Begin an episode."""
    return Timed(environment.initial(key), jnp.int32(0))


def step(environment: Environment, timed: Timed, action: Array, key: Key) -> tuple[Timed, Step]:
    """Take one step, and truncate the episode at the environment's limit."""
    state, reward, terminated = environment.transition(timed.state, action, key)
    elapsed = timed.elapsed + 1
    truncated = (elapsed >= environment.max_steps) & ~terminated
    outcome = Step(environment.observe(state), jnp.float32(reward), terminated, truncated)
    return Timed(state, elapsed), outcome
