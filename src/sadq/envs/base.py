"""The contract of a native environment: pure functions of one environment, batched by the caller."""

import abc
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from sadq.errors import SadqError
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
    fixed_length: ClassVar[bool] = False
    """Whether every episode lasts exactly `max_steps`: resets are then made only when they are due."""

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

    def for_evaluation(self) -> "Environment":
        """The twin that evaluations use, where episodes to learn from and to be judged by come from different data."""
        return self

    def measures(self, state: PyTree) -> dict[str, Array]:
        """What an episode came to beside its return, read from its last state: name -> f32[]."""
        return {}

    def policies(self) -> dict[str, Callable]:
        """Simple policies to compare with, by name; see `envs/policies.py` for what one is."""
        from sadq.envs.policies import uniform

        return {"random": uniform(self)}

    def draw(self, states: PyTree, path: Path) -> Path:
        """Draw an episode, its states stacked along their first axis, into a file; gives the file's path."""
        raise SadqError(f"environment {self.name} cannot be drawn: leave video out.")

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the environment's data come from, as JSON for a run's record."""
        return {}

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
