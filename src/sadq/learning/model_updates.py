"""Updates of the dynamics model, Eq. (m_loss): k slots after each collect, of which a pacing may take only some."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.schedules import Pacing
from sadq.dynamics.protocol import DynamicsModel
from sadq.errors import SadqError
from sadq.learning.guidance import Guidance
from sadq.learning.metrics import means, scan_with_metrics
from sadq.learning.optimiser import Pace, descend
from sadq.learning.state import LearnerState, Phase, Stretch
from sadq.networks.heads import Mover
from sadq.networks.network import first_network
from sadq.replay.samplers import uniform
from sadq.replay.store import Store
from sadq.types import Array, Key, Metrics, PyTree, Transition

SIDE_BY_SIDE = "members side by side"
"""The name of the axis along which a fleet's members are computed together, where they are."""

RECONSTRUCTION = "model_state_loss"
"""The part of a model's loss that its pacing looks at."""


def learn_model(
    guidance: Guidance, store: Store, state: LearnerState, phase: Phase, contents: PyTree, which: Stretch
) -> tuple[LearnerState, Metrics]:
    """Of the k slots for a model update some, on batches of their own: always uniform, always one-step."""
    first = phase.collect * guidance.updates + which.first
    update_keys = keys.range_of(phase.hyper.stream("model-update"), first, which.length)

    def positions(key: Key) -> Array:
        return uniform(store, phase.rows, keys.purpose(key, "sample"), guidance.batch_size, steps=1)

    def update(state: LearnerState, inputs: tuple[Key, Array, Transition]) -> tuple[LearnerState, Metrics]:
        key, slot, batch = inputs
        if state.pacing is None:
            return model_update(guidance, state, phase, key, batch)
        return paced(guidance.pacing, state, slot, lambda before: model_update(guidance, before, phase, key, batch))

    batches = store.one_step(contents, jax.vmap(positions)(update_keys))
    slots = first + jnp.arange(which.length)
    state, measured = scan_with_metrics(update, state, (update_keys, slots, batches))
    return state, means(measured, known=jnp.nanmean if state.pacing is not None else jnp.mean)


def model_update(
    guidance: Guidance, state: LearnerState, phase: Phase, key: Key, batch: Transition
) -> tuple[LearnerState, Metrics]:
    """One gradient step of the dynamics model; one that diverges is frozen, and values go on learning."""
    assert state.model is not None
    encode = first_network(state.target).computing().encode
    loss = jax.value_and_grad(lambda model: guidance.model_loss(model, batch, key, encode), has_aux=True)
    (value, parts), gradient = loss(state.model.parameters)
    movers = model_movers(state.model.parameters)
    how = {Mover.RUN: Pace(guidance.optimiser, phase.hyper.model_learning_rate)}
    return state._replace(model=descend(state.model, gradient, value, how, movers, phase.step)), parts


def model_movers(model: DynamicsModel) -> PyTree:
    """For every parameter of a model, what changes it; one may say so itself, as a network's head does."""
    own: Any = model
    return own.movers() if hasattr(own, "movers") else jax.tree.map(lambda _: Mover.RUN, own)


def any_member(condition: Array) -> Array:
    """Whether it holds for any member that is computed together with this one.

    The answer is one for all of them, so that a branch on it stays a branch: on a member's own condition it would be a
    selection, which computes both sides.
    """
    try:
        return jax.lax.pmax(condition.astype(jnp.int32), SIDE_BY_SIDE) > 0
    except NameError:  # alone
        return condition


def at_most_once(
    due: Array, body: Callable[[PyTree], tuple[PyTree, PyTree]], carry: PyTree, nothing: PyTree
) -> tuple[PyTree, PyTree]:
    """`body(carry)` where it is due, else the carry as it is, with `nothing`.

    A loop of one round or none, since its carry stays where it is. A branch writes what it returns to another place, and
    copies it back: a model of 35 million parameters with its running means, twice where nothing is done.
    """

    def once(state: tuple[Array, PyTree, PyTree]) -> tuple[Array, PyTree, PyTree]:
        return jnp.bool_(False), *body(state[1])

    _, carry, found = jax.lax.while_loop(lambda state: state[0], once, (due, carry, nothing))
    return carry, found


def paced(
    pacing: Pacing, state: LearnerState, slot: Array, update: Callable[[LearnerState], tuple[LearnerState, Metrics]]
) -> tuple[LearnerState, Metrics]:
    """One slot: the update where it is due, else the model as it was, with parts of its loss that are no numbers."""
    due, memory = pacing.due(state.pacing, slot)
    shapes = jax.eval_shape(update, state)[1]
    if RECONSTRUCTION not in shapes:
        told = ", ".join(shapes) or "nothing"
        expected = f"needs a model whose loss tells its part {RECONSTRUCTION}, but this one tells {told}"
        raise SadqError(f"This pacing {expected}: add that part, or choose pacing every.")

    def taken(model: PyTree) -> tuple[PyTree, Metrics]:
        after, parts = update(state._replace(model=model))
        chosen = jax.tree.map(lambda new, old: jnp.where(due, new, old), after.model, model)
        return chosen, {name: jnp.where(due, part, jnp.nan) for name, part in parts.items()}

    nothing = {name: jnp.full(part.shape, jnp.nan, part.dtype) for name, part in shapes.items()}
    model, parts = at_most_once(any_member(due), taken, state.model, nothing)
    told = pacing.told(memory, jnp.mean(parts[RECONSTRUCTION]))
    memory = jax.tree.map(lambda new, old: jnp.where(due, new, old), told, memory)
    parts["model_updates"] = jnp.broadcast_to(due * 1.0, parts[RECONSTRUCTION].shape)
    return state._replace(model=model, pacing=memory), parts
