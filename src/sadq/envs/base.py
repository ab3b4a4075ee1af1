"""The contract of a native environment: pure functions of one environment, and what runs many of them as lanes."""

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sadq.errors import SadqError
from sadq.types import Array, Key, PyTree


class Environment(abc.ABC):
    """A deterministic or stochastic environment written in JAX.

    Subclasses are frozen dataclasses: their fields are constants of the compiled program. State is any pytree of
    arrays. Time limits are kept outside, by `reset` and `step` of this module, so that a subclass has dynamics only.

    An environment may hold several actors, which one network plays: each has an observation, a reward and legal actions
    of its own, and their episode ends for all of them at once.
    """

    name: str
    observation_size: int
    """Entries of an observation that is a vector; where it is not, `observation_shape` is overridden instead."""
    action_count: int
    actors: int = 1
    """N; where it is not 1, observations, actions and rewards have a leading axis N."""
    max_steps: int  # an episode is truncated after this many steps
    fixed_length: ClassVar[bool] = False
    """Whether every episode lasts exactly `max_steps`: resets are then made only when they are due."""
    drawings: ClassVar[tuple[str, ...]] = ()
    """Endings of the files that `draw` can write, as ".gif"; none: it says so itself."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one actor's observation: what everyone but the environment itself reads."""
        return (self.observation_size,)

    @property
    def observation_dtype(self) -> np.dtype[Any]:
        """The type of an observation's entries: float32, or uint8 for images."""
        return np.dtype(np.float32)

    @abc.abstractmethod
    def initial(self, key: Key) -> PyTree:
        """The state that an episode starts from."""

    @abc.abstractmethod
    def transition(self, state: PyTree, action: Array, key: Key) -> tuple[PyTree, Array, Array]:
        """(next state, reward f32[], terminated bool[]) of taking `action` i32[] in `state`; N actors: f32[N], i32[N]."""

    @abc.abstractmethod
    def observe(self, state: PyTree) -> Array:
        """The observation of a state, as `observation_shape` says; with N actors theirs, [N, *observation_shape]."""

    def legal(self, observation: Array) -> Array | None:
        """Which actions are legal, bool[A], read from one actor's observation; None where all of them always are.

        It takes an observation rather than a state so that it also works on a state that a model predicted.
        """
        return None

    def for_evaluation(self) -> "Environment":
        """The twin that evaluations use, where episodes to learn from and to be judged by come from different data."""
        return self

    def measures(self, state: PyTree) -> dict[str, Array]:
        """What an episode came to beside its return, read from its last state: name -> f32[]."""
        return {}

    def trouble(self, measures: Mapping[str, float]) -> str | None:
        """Why the rewards of an episode with these measures are no numbers, and what to do; None where it cannot tell.

        A member whose evaluation meets such an episode is frozen, and the others go on.
        """
        return None

    def policies(self) -> dict[str, Callable]:
        """Simple policies to compare with, by name; see `envs/fixed_policies.py` for what one is."""
        from sadq.envs.fixed_policies import uniform

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
    """What an environment answers to an action, or to one of each of its N actors."""

    observation: Array  # [*observation_shape], or [N, *observation_shape], of the state reached
    reward: Array  # f32[], or f32[N]
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


# A fleet runs E environments of N actors as E * N lanes, the actors of an environment side by side. What a network deals
# with (observations, masks, actions, rewards, ends) is by lane; states and keys are by environment. With one actor, a
# lane is an environment.


def reset_lanes(environment: Environment, reset_keys: Key) -> tuple[Timed, Array]:
    """Begin an episode with each key [E]: (states [E], observations [E * N, *observation_shape])."""
    timed = jax.vmap(lambda key: reset(environment, key))(reset_keys)
    return timed, observe_lanes(environment, timed)


def observe_lanes(environment: Environment, timed: Timed) -> Array:
    """What the actors see in states [E]: [E * N, *observation_shape]."""
    return _joined(environment, jax.vmap(environment.observe)(timed.state))


def legal_lanes(environment: Environment, observation: Array) -> Array | None:
    """The legal actions bool[L, A] at observations [L, *observation_shape]; None where all of them always are."""
    return jax.vmap(environment.legal)(observation) if environment.has_masks else None


def step_lanes(environment: Environment, timed: Timed, action: Array, step_keys: Key) -> tuple[Timed, Step]:
    """Take actions i32[E * N] in states [E] with keys [E]: (states [E], the answer with every part by lane)."""
    if environment.actors > 1:
        action = action.reshape(-1, environment.actors)
    timed, outcome = jax.vmap(lambda *one: step(environment, *one))(timed, action, step_keys)
    return timed, Step(
        _joined(environment, outcome.observation),
        _joined(environment, outcome.reward),
        to_lanes(environment, outcome.terminated),
        to_lanes(environment, outcome.truncated),
    )


def to_lanes(environment: Environment, value: Array) -> Array:
    """What is the environments' [E, ...], for each of their actors: [E * N, ...]."""
    return value if environment.actors == 1 else jnp.repeat(value, environment.actors, axis=0)


def of_environments(environment: Environment, value: Array) -> Array:
    """The inverse of `to_lanes`, for what is the same for all actors of an environment: [E * N, ...] -> [E, ...]."""
    return value if environment.actors == 1 else value[:: environment.actors]


def over_actors(environment: Environment, value: Array) -> Array:
    """The sum over each environment's actors, as a return is that of all its actors: [E * N] -> [E]."""
    return value if environment.actors == 1 else jnp.sum(value.reshape(-1, environment.actors), axis=1)


def _joined(environment: Environment, value: Array) -> Array:
    """[E, N, ...] -> [E * N, ...]; with one actor there is no axis N."""
    return value if environment.actors == 1 else value.reshape(-1, *value.shape[2:])
