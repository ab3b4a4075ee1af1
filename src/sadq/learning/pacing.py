"""Model updates that take only some of their slots, decided by every member for itself, in a fleet that moves as one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from sadq.core.schedules import Pacing
from sadq.errors import SadqError
from sadq.learning.state import LearnerState
from sadq.types import Array, Metrics, PyTree

SIDE_BY_SIDE = "members side by side"
"""The name of the axis along which a fleet's members are computed together, where they are."""

RECONSTRUCTION = "model_state_loss"
"""The part of a model's loss that its pacing looks at."""


def any_member(condition: Array) -> Array:
    """Whether it holds for any member that is computed together with this one.

    The answer is one for all of them, so that a branch on it stays a branch: on a member's own condition it would be a
    selection, which computes both sides.
    """
    try:
        return jax.lax.pmax(condition.astype(jnp.int32), SIDE_BY_SIDE) > 0
    except NameError:  # alone
        return condition


def paced(
    pacing: Pacing, state: LearnerState, slot: Array, update: Callable[[], tuple[LearnerState, Metrics]]
) -> tuple[LearnerState, Metrics]:
    """One slot: the update where it is due, else the model as it was, with parts of its loss that are no numbers."""
    due, memory = pacing.due(state.pacing, slot)
    shapes = jax.eval_shape(update)[1]
    if RECONSTRUCTION not in shapes:
        told = ", ".join(shapes) or "nothing"
        expected = f"needs a model whose loss tells its part {RECONSTRUCTION}, but this one tells {told}"
        raise SadqError(f"This pacing {expected}: add that part, or choose pacing every.")

    def taken() -> tuple[PyTree, Metrics]:
        after, parts = update()
        chosen = jax.tree.map(lambda new, old: jnp.where(due, new, old), after.model, state.model)
        return chosen, {name: jnp.where(due, part, jnp.nan) for name, part in parts.items()}

    def left() -> tuple[PyTree, Metrics]:
        return state.model, {name: jnp.full(part.shape, jnp.nan, part.dtype) for name, part in shapes.items()}

    model, parts = jax.lax.cond(any_member(due), taken, left)
    told = pacing.told(memory, jnp.mean(parts[RECONSTRUCTION]))
    memory = jax.tree.map(lambda new, old: jnp.where(due, new, old), told, memory)
    parts["model_updates"] = jnp.broadcast_to(due * 1.0, parts[RECONSTRUCTION].shape)
    return state._replace(model=model, pacing=memory), parts
