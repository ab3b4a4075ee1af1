"""A native environment as an ordinary gymnasium.Env, for other libraries and for a look at single steps."""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from sadq import keys
from sadq.envs import base
from sadq.envs.base import Environment
from sadq.envs.contract import MASK
from sadq.errors import SadqError
from sadq.types import Array, Key, PyTree


class NativeEnvironment(gymnasium.Env):
    """One copy of a native environment, compiled for the CPU, with NumPy observations.

    `reset(seed=...)` fixes all that follows, further resets included. Where actions may be illegal,
    `info["action_mask"]` names the legal ones; at the end of an episode `info["measures"]` holds what the environment
    measures of it. Within a training run the environment itself is far faster than this copy.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, environment: Environment, low: float = -np.inf, high: float = np.inf):
        """`low` and `high` bound every entry of the observation, within what its type can hold."""
        if environment.actors > 1:
            raise SadqError(
                f"environment {environment.name} holds {environment.actors} actors, expected one, for a gymnasium.Env "
                "takes one action a step: use the environment itself."
            )
        self.environment = environment
        dtype = np.dtype(environment.observation_dtype)
        if dtype.kind in "iu":
            low, high = max(low, np.iinfo(dtype).min), min(high, np.iinfo(dtype).max)
        self.observation_space = spaces.Box(low, high, environment.observation_shape, dtype.type)
        self.action_space = spaces.Discrete(environment.action_count)
        self._device = jax.devices("cpu")[0]
        self._timed: base.Timed | None = None
        self._begin = jax.jit(self._begin_traced)
        self._advance = jax.jit(self._advance_traced)
        self._measure = jax.jit(environment.measures)
        self._key: Key | None = None
        self._steps = 0

    @property
    def state(self) -> PyTree:
        """The native environment's state, for drawing and for policies that look at it."""
        return self._started().state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        with jax.default_device(self._device):
            self._key = keys.member_key(int(self.np_random.integers(2**31)))
            self._steps = 0
            self._timed, observation = self._begin(self._key)
        seen = np.array(observation)
        return seen, self._info(seen)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        timed = self._started()
        if not self.action_space.contains(action):
            raise SadqError(
                f"environment {self.environment.name} got action {action!r}, expected 0 to "
                f"{self.environment.action_count - 1}: pass a legal one."
            )
        with jax.default_device(self._device):
            self._timed, outcome = self._advance(timed, np.int32(action), self._key, np.int32(self._steps))
            self._steps += 1
            observation = np.array(outcome.observation)
            terminated, truncated = bool(outcome.terminated), bool(outcome.truncated)
            info = self._info(observation)
            if terminated or truncated:
                measures = self._measure(self._timed.state)
                info["measures"] = {name: float(value) for name, value in measures.items()}
        return observation, float(outcome.reward), terminated, truncated, info

    def _started(self) -> base.Timed:
        if self._timed is None:
            raise SadqError(f"environment {self.environment.name} was used before it was reset: call reset first.")
        return self._timed

    def _info(self, observation: np.ndarray) -> dict[str, Any]:
        legal = self.environment.legal(jax.numpy.asarray(observation)) if self.environment.has_masks else None
        return {} if legal is None else {MASK: np.array(legal)}

    def _begin_traced(self, key: Key) -> tuple[base.Timed, Array]:
        timed = base.reset(self.environment, keys.purpose(key, "reset"))
        return timed, self.environment.observe(timed.state)

    def _advance_traced(self, timed: base.Timed, action: Array, key: Key, step: Array) -> tuple[base.Timed, base.Step]:
        return base.step(self.environment, timed, action, keys.at(keys.purpose(key, "transition"), step))
