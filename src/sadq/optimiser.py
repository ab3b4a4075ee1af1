"""Adam for members of a fleet: learning rates are traced, and a member that diverges is frozen rather than stopped."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from sadq.types import Array, PyTree

ADAM = optax.scale_by_adam(eps=1e-8)
"""Without the learning rate, which is multiplied in apart so that it may differ by member."""


class Trainable(NamedTuple):
    """Parameters with their Adam moments."""

    parameters: PyTree
    moments: PyTree


def trainable(parameters: PyTree) -> Trainable:
    """Parameters before their first step."""
    return Trainable(parameters, ADAM.init(parameters))


class Descent(NamedTuple):
    """The outcome of a gradient step."""

    trained: Trainable
    diverged_at: Array  # i32[]


def descend(
    before: Trainable,
    gradient: PyTree,
    loss: Array,
    rate: Array,
    diverged_at: Array,
    step: Array,
    max_norm: float | None = None,
) -> Descent:
    """One Adam step, or none at all from the first loss on that is not finite.

    Nothing can stop inside a vmap, so a diverged member keeps its last finite parameters by selection. `diverged_at` is
    the env step where that happened, -1 while all is well.
    """
    healthy = (diverged_at < 0) & jnp.isfinite(loss)
    if max_norm is not None:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)))
        gradient = jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, max_norm / norm), gradient)
    # A loss just short of overflow has gradients beyond it. Dropping those keeps every parameter finite without a pass
    # over all of them; the loss overflows soon after.
    gradient = jax.tree.map(lambda leaf: jnp.clip(jnp.nan_to_num(leaf), -1e18, 1e18), gradient)
    direction, moments = ADAM.update(gradient, before.moments)
    parameters = jax.tree.map(lambda old, change: old - rate * change, before.parameters, direction)
    trained = jax.tree.map(lambda new, old: jnp.where(healthy, new, old), Trainable(parameters, moments), before)
    return Descent(trained, jnp.where((diverged_at < 0) & ~healthy, step, diverged_at))
