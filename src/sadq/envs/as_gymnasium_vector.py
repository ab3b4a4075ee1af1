"""Many copies of a native environment as a gymnasium.vector.VectorEnv: one compiled step for all of them."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from sadq import keys
from sadq.envs import base
from sadq.envs.as_gymnasium import NativeEnvironment
from sadq.envs.base import Environment
from sadq.envs.contract import MASK
from sadq.errors import SadqError
from sadq.types import Array, Key, PyTree


class NativeVectorEnvironment(gymnasium.vector.VectorEnv):
    """`num_envs` copies, on JAX's default device, with NumPy arrays of all their observations, rewards and ends.

    Copy i is what `NativeEnvironment` is with seed + i, step by step. A copy whose episode has ended begins the next one
    at the following step, which ignores its action and gives no reward, as Gymnasium's own vectors do by default;
    `infos["measures"]` comes with the end.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, environment: Environment, num_envs: int, low: float = -np.inf, high: float = np.inf):
        """`low` and `high` bound every entry of the observation, within what its type can hold."""
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise SadqError(f"num_envs is {num_envs!r}, expected a whole number from 1: give one.")
        single = NativeEnvironment(environment, low, high)
        self.environment, self.num_envs = environment, num_envs
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator] = []
        self._begin = jax.jit(jax.vmap(single._begin_traced))
        self._advance = jax.jit(self._advance_traced)
        self._restart = jax.jit(self._restart_traced)
        self._measure = jax.jit(jax.vmap(environment.measures))
        self._step = jax.vmap(single._advance_traced)
        self._timed: base.Timed | None = None
        self._keys: Key | None = None
        self._steps = np.zeros(num_envs, np.int32)
        self._ended = np.zeros(num_envs, bool)

    @property
    def states(self) -> PyTree:
        """The native environments' states, [num_envs] on every leaf."""
        return self._started().state

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seeds = [seed + index for index in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is None:
            seeds = [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise SadqError(f"reset got {len(seeds)} seeds, expected one for each of {self.num_envs} environments.")
        known = self._generators or [np.random.default_rng() for _ in range(self.num_envs)]
        self._generators = [
            generator if one is None else np.random.default_rng(one)
            for one, generator in zip(seeds, known, strict=True)
        ]
        self._keys = self._drawn(np.ones(self.num_envs, bool), None)
        self._steps[:] = 0
        self._ended[:] = False
        self._timed, observation = self._begin(self._keys)
        seen = np.array(observation)
        return seen, self._infos(seen)

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        timed, actions = self._started(), np.asarray(actions)
        legal = isinstance(self.single_action_space, spaces.Discrete) and actions.shape == (self.num_envs,)
        if not legal or actions.dtype.kind not in "iu" or not self.action_space.contains(actions.astype(np.int64)):
            raise SadqError(
                f"environment {self.environment.name} got actions {actions!r}, expected {self.num_envs} whole numbers from "
                f"0 to {self.environment.action_count - 1}: pass such."
            )
        began = self._ended.copy()
        if began.any():
            self._keys = self._drawn(began, self._keys)
            self._steps[began] = 0
        if began.all():
            self._timed, observation = self._begin(self._keys)
            nothing = np.zeros(self.num_envs, bool)
            self._ended = nothing
            seen = np.array(observation)
            return seen, np.zeros(self.num_envs), nothing.copy(), nothing.copy(), self._infos(seen)
        advance = self._restart if began.any() else self._advance
        self._timed, outcome = advance(timed, actions.astype(np.int32), self._keys, self._steps, began)
        self._steps[~began] += 1
        seen, terminated, truncated = (
            np.array(part) for part in (outcome.observation, outcome.terminated, outcome.truncated)
        )
        self._ended = terminated | truncated
        return seen, np.array(outcome.reward, np.float64), terminated, truncated, self._infos(seen)

    def _started(self) -> base.Timed:
        if self._timed is None:
            raise SadqError(f"environment {self.environment.name} was used before it was reset: call reset first.")
        return self._timed

    def _drawn(self, chosen: np.ndarray, before: Key | None) -> Key:
        """Keys of new episodes where chosen; the others keep theirs."""
        numbers = np.array(
            [generator.integers(2**31) if new else 0 for generator, new in zip(self._generators, chosen, strict=True)]
        )
        drawn = jax.vmap(keys.member_key)(jnp.asarray(numbers, jnp.int32))
        if before is None:
            return drawn
        return jax.tree.map(lambda new, old: _where(jnp.asarray(chosen), new, old), drawn, before)

    def _infos(self, observation: np.ndarray) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        if self.environment.has_masks:
            infos[MASK] = np.array(jax.vmap(self.environment.legal)(jnp.asarray(observation)))
            infos[f"_{MASK}"] = np.ones(self.num_envs, bool)
        if self._ended.any():
            measured = {name: np.array(values) for name, values in self._measure(self._started().state).items()}
            if measured:
                own = {f"_{name}": self._ended.copy() for name in measured}
                infos |= {"measures": measured | own, "_measures": self._ended.copy()}
        return infos

    def _advance_traced(
        self, timed: base.Timed, actions: Array, own_keys: Key, steps: Array, began: Array
    ) -> tuple[base.Timed, base.Step]:
        return self._step(timed, actions, own_keys, steps)

    def _restart_traced(
        self, timed: base.Timed, actions: Array, own_keys: Key, steps: Array, began: Array
    ) -> tuple[base.Timed, base.Step]:
        """The same, where some episodes begin instead."""
        fresh, observation = self._begin(own_keys)
        stepped, outcome = self._step(timed, actions, own_keys, steps)
        timed = jax.tree.map(lambda new, old: _where(began, new, old), fresh, stepped)
        return timed, base.Step(
            _where(began, observation, outcome.observation),
            jnp.where(began, 0.0, outcome.reward),
            outcome.terminated & ~began,
            outcome.truncated & ~began,
        )


def _where(chosen: Array, new: Array, old: Array) -> Array:
    return jnp.where(chosen.reshape(chosen.shape + (1,) * (new.ndim - 1)), new, old)
