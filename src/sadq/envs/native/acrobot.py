"""Acrobot-v1 with Gymnasium's "book" dynamics: swing a two-link pendulum above a line, torque on the middle joint."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.envs.base import Environment
from sadq.registry import typed
from sadq.types import Array, Key

TIME_STEP = 0.2
GRAVITY = 9.8
MAX_VELOCITY_1 = 4 * math.pi
MAX_VELOCITY_2 = 9 * math.pi


class AcrobotState(NamedTuple):
    """Angles and angular velocities of both links.

    The integrator works on these four scalars, as elementwise arithmetic that fuses into few kernels; between steps they
    are kept as one vector, which a loop carries in one copy rather than four.
    """

    angle_1: Array  # of the first link, 0 hangs down
    angle_2: Array  # of the second link, relative to the first
    velocity_1: Array
    velocity_2: Array


@typed
@dataclasses.dataclass(frozen=True)
class Acrobot(Environment):
    """Reward -1 a step until the tip is one link length above the pivot."""

    max_steps: int = 500
    name: str = dataclasses.field(default="Acrobot-v1", init=False)
    observation_size: int = dataclasses.field(default=6, init=False)
    action_count: int = dataclasses.field(default=3, init=False)

    def initial(self, key: Key) -> Array:
        return jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)

    def transition(self, state: Array, action: Array, key: Key) -> tuple[Array, Array, Array]:
        moved = _runge_kutta(AcrobotState(*state), jnp.float32(action - 1))
        reached = AcrobotState(
            _wrapped(moved.angle_1),
            _wrapped(moved.angle_2),
            jnp.clip(moved.velocity_1, -MAX_VELOCITY_1, MAX_VELOCITY_1),
            jnp.clip(moved.velocity_2, -MAX_VELOCITY_2, MAX_VELOCITY_2),
        )
        terminated = -jnp.cos(reached.angle_1) - jnp.cos(reached.angle_2 + reached.angle_1) > 1.0
        return jnp.stack(reached), jnp.where(terminated, 0.0, -1.0), terminated

    def observe(self, state: Array) -> Array:
        angle_1, angle_2, velocity_1, velocity_2 = state
        parts = jnp.cos(angle_1), jnp.sin(angle_1), jnp.cos(angle_2), jnp.sin(angle_2), velocity_1, velocity_2
        return jnp.stack(parts)


def _derivative(state: AcrobotState, torque: Array) -> AcrobotState:
    """The equations of motion at Gymnasium's constants: masses, lengths and inertias 1, centres of mass at 0.5."""
    angle_1, angle_2, velocity_1, velocity_2 = state
    cosine, sine = jnp.cos(angle_2), jnp.sin(angle_2)
    d1 = 3.5 + cosine
    d2 = 1.25 + 0.5 * cosine
    phi2 = 0.5 * GRAVITY * jnp.sin(angle_1 + angle_2)
    phi1 = -(0.5 * velocity_2 + velocity_1) * velocity_2 * sine + 1.5 * GRAVITY * jnp.sin(angle_1) + phi2
    ratio = d2 / d1
    acceleration_2 = (torque + ratio * phi1 - 0.5 * velocity_1 * velocity_1 * sine - phi2) / (1.25 - d2 * ratio)
    acceleration_1 = -(d2 * acceleration_2 + phi1) / d1
    return AcrobotState(velocity_1, velocity_2, acceleration_1, acceleration_2)


def _runge_kutta(state: AcrobotState, torque: Array) -> AcrobotState:
    """One classical fourth-order step of length `TIME_STEP`, unrolled."""

    def ahead(slope: AcrobotState, time: float) -> AcrobotState:
        return AcrobotState(*(value + time * rate for value, rate in zip(state, slope, strict=True)))

    k1 = _derivative(state, torque)
    k2 = _derivative(ahead(k1, TIME_STEP / 2), torque)
    k3 = _derivative(ahead(k2, TIME_STEP / 2), torque)
    k4 = _derivative(ahead(k3, TIME_STEP), torque)
    slopes = zip(k1, k2, k3, k4, strict=True)
    return ahead(AcrobotState(*((a + 2.0 * b + 2.0 * c + d) / 6.0 for a, b, c, d in slopes)), TIME_STEP)


def _wrapped(angle: Array) -> Array:
    """The same angle in [-pi, pi); Gymnasium loops instead, with the same result."""
    return angle - 2.0 * math.pi * jnp.floor((angle + math.pi) / (2.0 * math.pi))
