"""The engine's car-following and braking formulas, elementwise over vehicles.

In double precision every operation is rounded as the engine's: along a queue that sets off, an error in the last bit
grows several times from each vehicle to the next, until somebody goes first who should not.
"""

import jax.numpy as jnp

from sadq.types import Array

INFEASIBLE = -100.0
_TINY_SPEED = 1e-8
_HUGE = 1e300

Number = Array | float


def rounded(product: Array) -> Array:
    """A product that the compiler must not fuse with the sum it goes into; single precision is left to it."""
    return jnp.minimum(product, _HUGE) if product.dtype == jnp.float64 else product


def no_collision_speed(
    leader_speed: Array, leader_brake: Array, speed: Array, brake: Array, gap: Array, interval: Number, target: Number
) -> Array:
    """The highest next speed that still stops `target` behind a leader who brakes from now on; -100 if there is none."""
    c = rounded(speed * interval) / 2 + target - 0.5 * leader_speed * leader_speed / leader_brake - gap
    a = 0.5 / brake
    b = 0.5 * interval
    needed = rounded(4 * a * c)
    stopping = 0.5 / a * (jnp.sqrt(jnp.maximum(b * b - needed, 0.0)) - b)
    reaching = 2 * leader_speed - rounded(leader_brake * interval) + 2 * (gap - target) / interval
    return jnp.where(b * b < needed, INFEASIBLE, jnp.minimum(stopping, reaching))


def headway_speed(leader_speed: Array, speed: Array, gap: Array, headway: Array, interval: Number) -> Array:
    """The next speed that keeps the wished time gap to the leader."""
    closing = jnp.maximum(speed - leader_speed, 0.0)
    reached = gap + rounded((leader_speed + closing / 2) * interval) - rounded(speed * interval) / 2
    return reached / (headway + interval / 2)


def stop_before_speed(distance: Array, speed: Array, acceleration: Array, brake: Array, interval: Number) -> Array:
    """The next speed towards a stop within `distance`: go on accelerating while there is room, else even braking."""
    next_speed = speed + rounded(acceleration * interval)
    needed = rounded((speed + next_speed) * interval) / 2 + next_speed * next_speed / brake / 2
    # The engine divides by speed + 1e-8, so that a whole number of steps counts as one less; in single precision that
    # sum would be lost, hence the larger of the two.
    divisor = speed + jnp.maximum(_TINY_SPEED, 2 * jnp.finfo(speed.dtype).eps * speed)
    steps = 2 * distance / divisor / interval
    braking = speed - speed / jnp.where(steps >= 1, jnp.floor(steps), jnp.maximum(steps, _TINY_SPEED))
    return jnp.where(needed < distance, next_speed, braking)


def min_brake_distance(speed: Array, brake: Array) -> Array:
    """How far a vehicle still goes if it brakes as hard as it can."""
    return 0.5 * speed * speed / brake


def run_up(speed: Array, target: Array, acceleration: Array, interval: Number) -> tuple[Array, Array]:
    """(distance, steps) that a vehicle below its target speed needs to get there."""
    exact = (target - speed) / acceleration / interval
    whole = jnp.floor(exact)
    reached = speed + rounded(whole * acceleration) / interval
    distance = rounded((speed + reached) * (whole * interval)) / 2
    last = jnp.where(reached < target, rounded((reached + target) * interval) / 2, 0.0)
    return distance + last, jnp.ceil(exact)


def reach_steps(
    distance: Array,
    speed: Array,
    target: Array,
    acceleration: Array,
    interval: Number,
    run_up_distance: Array,
    run_up_steps: Array,
) -> Array:
    """Steps that a vehicle needs for a distance above 0, accelerating to its target speed as usual."""
    fast = jnp.ceil(distance / jnp.maximum(speed, target))  # above its target speed it keeps its speed
    root = jnp.sqrt(rounded(speed * speed) + rounded(2 * acceleration * jnp.maximum(distance, 0.0)))
    still_speeding = jnp.ceil((root - speed) / acceleration / interval)
    cruising = run_up_steps + jnp.ceil((distance - run_up_distance) / target / interval)
    return jnp.where(speed > target, fast, jnp.where(run_up_distance > distance, still_speeding, cruising))
