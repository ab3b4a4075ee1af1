"""Adam for members of a fleet: learning rates are traced, and a member that diverges is frozen rather than stopped.

A second group of parameters may learn by RMSprop at a rate of its own, as FQF's fractions do.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array, PyTree

DECAY_1, DECAY_2, EPSILON = 0.9, 0.999, 1e-8
RMSPROP_DECAY, RMSPROP_EPSILON = 0.95, 1e-5
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


class Separate(NamedTuple):
    """The parameters that learn by RMSprop, and their learning rate."""

    marks: PyTree  # of bool, known when tracing
    rate: Array


def clipped(gradient: PyTree, max_norm: float, exempt: PyTree = None) -> PyTree:
    """The gradient, shortened to a global norm of at most `max_norm`; exempt leaves neither count nor change."""
    leaves, structure = jax.tree.flatten(gradient)
    skipped = [False] * len(leaves) if exempt is None else jax.tree.leaves(exempt)
    counted = [leaf for leaf, skip in zip(leaves, skipped, strict=True) if not skip]
    scale = jnp.minimum(1.0, max_norm / jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in counted)))
    pairs = zip(leaves, skipped, strict=True)
    return jax.tree.unflatten(structure, [leaf if skip else leaf * scale for leaf, skip in pairs])


def descend(
    before: Trainable,
    gradient: PyTree,
    loss: Array,
    rate: Array | float,
    diverged_at: Array,
    step: Array,
    separate: Separate | None = None,
) -> Descent:
    """One Adam step, or none at all from the first loss on that is not finite.

    Nothing can stop inside a vmap, so a diverged member keeps its last finite parameters by selection. `diverged_at` is
    the env step where that happened, -1 while all is well.
    """
    healthy = (diverged_at < 0) & jnp.isfinite(loss)
    count = before.moments.steps + 1
    # Adam's two bias corrections are numbers, so they are put into the step size and epsilon: one root and one division
    # per parameter instead of one and three.
    correction = jnp.sqrt(1 - DECAY_2**count)
    size, epsilon = rate * correction / (1 - DECAY_1**count), EPSILON * correction

    def adam(parameter: Array, first: Array, second: Array, slope: Array) -> tuple[Array, Array, Array]:
        mean = DECAY_1 * first + (1 - DECAY_1) * slope
        square = DECAY_2 * second + (1 - DECAY_2) * jnp.square(slope)
        return parameter - size * mean / (jnp.sqrt(square) + epsilon), mean, square

    def rmsprop(parameter: Array, first: Array, second: Array, slope: Array) -> tuple[Array, Array, Array]:
        assert separate is not None
        square = RMSPROP_DECAY * second + (1 - RMSPROP_DECAY) * jnp.square(slope)
        return parameter - separate.rate * slope / (jnp.sqrt(square) + RMSPROP_EPSILON), first, square

    def moved(
        separately: bool, parameter: Array, first: Array, second: Array, slope: Array
    ) -> tuple[Array, Array, Array]:
        # A loss just short of overflow has gradients beyond it. Dropping those keeps every number finite without a pass
        # over all of them; the loss overflows soon after.
        slope = jnp.where(jnp.abs(slope) <= LARGEST_GRADIENT, slope, 0.0)
        changed, mean, square = (rmsprop if separately else adam)(parameter, first, second, slope)
        return (
            jnp.where(healthy, changed, parameter),
            jnp.where(healthy, mean, first),
            jnp.where(healthy, square, second),
        )

    leaves, structure = jax.tree.flatten(before.parameters)
    marks = [False] * len(leaves) if separate is None else jax.tree.leaves(separate.marks)
    rest = (jax.tree.leaves(tree) for tree in (before.moments.first, before.moments.second, gradient))
    columns = zip(*(moved(*values) for values in zip(marks, leaves, *rest, strict=True)), strict=True)
    parameters, first, second = (jax.tree.unflatten(structure, column) for column in columns)
    trained = Trainable(parameters, Moments(jnp.where(healthy, count, before.moments.steps), first, second))
    return Descent(trained, jnp.where((diverged_at < 0) & ~healthy, step, diverged_at))
