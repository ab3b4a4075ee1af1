"""One fused pass of an optimiser over the parameters: learning rates are traced, and what diverges is frozen."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sadq.core.optimisers import Moving, Optimiser
from sadq.networks.heads import Mover
from sadq.types import Array, PyTree

LARGEST_GRADIENT = 1e18  # its square is still finite


class Trainable(NamedTuple):
    """Parameters with their optimiser's running means, and whether they still learn."""

    parameters: PyTree
    first: PyTree  # None in place of parameters that nothing moves; likewise below
    second: PyTree
    steps: Array  # i32[]
    diverged_at: Array  # i32[]: the env step whose update was not finite, -1 while all is well


class Pace(NamedTuple):
    """How parameters of one kind move."""

    optimiser: Optimiser
    rate: Array | float


def trainable(parameters: PyTree, movers: PyTree | None = None) -> Trainable:
    """Parameters before their first step; `movers` names those that nothing moves."""
    marks = jax.tree.map(lambda _: Mover.RUN, parameters) if movers is None else movers
    zeros = jax.tree.map(lambda mark, leaf: None if mark is Mover.NOTHING else jnp.zeros_like(leaf), marks, parameters)
    return Trainable(parameters, zeros, zeros, jnp.int32(0), jnp.int32(-1))


def clipped(gradient: PyTree, max_norm: float, movers: PyTree) -> PyTree:
    """The gradient, shortened to a global norm of at most `max_norm`; what the run does not move stays as it is."""
    leaves, structure = jax.tree.flatten(gradient)
    counts = [mark is Mover.RUN for mark in jax.tree.leaves(movers)]
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf, counted in zip(leaves, counts, strict=True) if counted))
    scale = jnp.minimum(1.0, max_norm / norm)
    pairs = zip(leaves, counts, strict=True)
    return jax.tree.unflatten(structure, [leaf * scale if counted else leaf for leaf, counted in pairs])


def descend(
    before: Trainable, gradient: PyTree, loss: Array, how: dict[Mover, Pace], movers: PyTree, env_step: Array
) -> Trainable:
    """One step, or none at all from the first loss on that is not finite.

    Nothing can stop inside a vmap, so what has diverged keeps its last finite parameters by selection.
    """
    healthy = (before.diverged_at < 0) & jnp.isfinite(loss)
    count = before.steps + 1

    def moved(mark: Mover, slope: Array, at: Moving) -> Moving:
        if mark is Mover.NOTHING:
            return at
        pace = how[mark]
        # A loss just short of overflow has gradients beyond it. Dropping those keeps every number finite without a pass
        # over all of them; the loss overflows soon after.
        slope = jnp.where(jnp.abs(slope) <= LARGEST_GRADIENT, slope, 0.0)
        after = pace.optimiser.move(at, slope, pace.rate, count)
        return Moving(*(jnp.where(healthy, new, old) for new, old in zip(after, at, strict=True)))

    structure: Any = jax.tree.structure(before.parameters)
    arrays = (structure.flatten_up_to(tree) for tree in before[:3])
    columns = zip(jax.tree.leaves(movers), jax.tree.leaves(gradient), map(Moving, *arrays), strict=True)
    after = zip(*(moved(*column) for column in columns), strict=True)
    return Trainable(
        *(jax.tree.unflatten(structure, column) for column in after),  # type: ignore[misc]
        steps=jnp.where(healthy, count, before.steps),
        diverged_at=jnp.where((before.diverged_at < 0) & ~healthy, env_step, before.diverged_at),
    )
