"""CartPole-v0 and -v1 with Gymnasium's dynamics: keep a pole upright by pushing its cart left or right."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from sadq.envs.base import Environment
from sadq.registry import typed
from sadq.types import Array, Key

TIME_STEP = 0.02
GRAVITY = 9.8
FORCE = 10.0
TOTAL_MASS = 1.1
POLE_MASS = 0.1
POLE_HALF_LENGTH = 0.5
MAX_POSITION = 2.4
MAX_ANGLE = 12 * 2 * math.pi / 360


@typed
@dataclasses.dataclass(frozen=True)
class CartPole(Environment):
    """Reward 1 a step, the last one included; the state is its own observation."""

    max_steps: int = 200
    observation_size: int = dataclasses.field(default=4, init=False)
    action_count: int = dataclasses.field(default=2, init=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        return {200: "CartPole-v0", 500: "CartPole-v1"}.get(self.max_steps, "CartPole")

    def initial(self, key: Key) -> Array:
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    def transition(self, state: Array, action: Array, key: Key) -> tuple[Array, Array, Array]:
        velocity, angle, angular_velocity = state[1], state[2], state[3]
        force = jnp.where(action == 1, FORCE, -FORCE)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (force + POLE_MASS * POLE_HALF_LENGTH * angular_velocity * angular_velocity * sine) / TOTAL_MASS
        inertia = POLE_HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine * cosine / TOTAL_MASS)
        angular_acceleration = (GRAVITY * sine - cosine * push) / inertia
        acceleration = push - POLE_MASS * POLE_HALF_LENGTH * angular_acceleration * cosine / TOTAL_MASS
        rate = jnp.stack([velocity, acceleration, angular_velocity, angular_acceleration])
        reached = state + TIME_STEP * rate
        terminated = (jnp.abs(reached[0]) > MAX_POSITION) | (jnp.abs(reached[2]) > MAX_ANGLE)
        return reached, jnp.float32(1.0), terminated

    def observe(self, state: Array) -> Array:
        return state
