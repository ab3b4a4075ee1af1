"""Adam for members of a fleet: learning rates are traced, and a member that diverges is frozen rather than stopped."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array, PyTree

DECAY_1, DECAY_2, EPSILON = 0.9, 0.999, 1e-8
LARGEST_GRADIENT = 1e18  # its square is still finite


class Moments(NamedTuple):
    """Adam's running means of the gradient and of its square."""

    steps: Array  # i32[]
    first: PyTree
    second: PyTree


class Trainable(NamedTuple):
    """Parameters with their Adam moments."""

    parameters: PyTree
    moments: Moments


def trainable(parameters: PyTree) -> Trainable:
    """Parameters before their first step."""
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return Trainable(parameters, Moments(jnp.int32(0), zeros, zeros))


class Descent(NamedTuple):
    """The outcome of a gradient step."""

    trained: Trainable
    diverged_at: Array  # i32[]


def descend(
    before: Trainable,
    gradient: PyTree,
    loss: Array,
    rate: Array | float,
    diverged_at: Array,
    step: Array,
    max_norm: float | None = None,
) -> Descent:
    """One Adam step, or none at all from the first loss on that is not finite.

    Nothing can stop inside a vmap, so a diverged member keeps its last finite parameters by selection. `diverged_at` is
    the env step where that happened, -1 while all is well.
    """
    healthy = (diverged_at < 0) & jnp.isfinite(loss)
    scale: Array | float = 1.0
    if max_norm is not None:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)))
        scale = jnp.minimum(1.0, max_norm / norm)
    count = before.moments.steps + 1
    # Adam's two bias corrections are numbers, so they are put into the step size and epsilon: one root and one division
    # per parameter instead of one and three.
    correction = jnp.sqrt(1 - DECAY_2**count)
    size, epsilon = rate * correction / (1 - DECAY_1**count), EPSILON * correction

    def moved(parameter: Array, first: Array, second: Array, slope: Array) -> tuple[Array, Array, Array]:
        slope = slope * scale
        # A loss just short of overflow has gradients beyond it. Dropping those keeps every number finite without a pass
        # over all of them; the loss overflows soon after.
        slope = jnp.where(jnp.abs(slope) <= LARGEST_GRADIENT, slope, 0.0)
        mean = DECAY_1 * first + (1 - DECAY_1) * slope
        square = DECAY_2 * second + (1 - DECAY_2) * jnp.square(slope)
        changed = parameter - size * mean / (jnp.sqrt(square) + epsilon)
        return (
            jnp.where(healthy, changed, parameter),
            jnp.where(healthy, mean, first),
            jnp.where(healthy, square, second),
        )

    leaves, structure = jax.tree.flatten(before.parameters)
    rest = (jax.tree.leaves(tree) for tree in (before.moments.first, before.moments.second, gradient))
    columns = zip(*(moved(*values) for values in zip(leaves, *rest, strict=True)), strict=True)
    parameters, first, second = (jax.tree.unflatten(structure, column) for column in columns)
    trained = Trainable(parameters, Moments(jnp.where(healthy, count, before.moments.steps), first, second))
    return Descent(trained, jnp.where((diverged_at < 0) & ~healthy, step, diverged_at))
