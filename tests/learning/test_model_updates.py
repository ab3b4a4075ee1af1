"""Model updates that take only some of their slots: which, what is kept, and a fleet whose members differ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import TableModel, filled_ring, numbers, phase_of, table_guidance, table_learner, table_model

from sadq.core.schedules import Adaptive, Credit, EverySlot
from sadq.errors import SadqError
from sadq.learning.model_updates import SIDE_BY_SIDE, any_member, at_most_once, model_update, paced
from sadq.types import Transition

STATES, ACTIONS, COLLECTS = 4, 3, 12
KEY = jax.random.key(0)


class Reconstructing(TableModel):
    """Its loss tells the part that a pacing looks at."""

    def loss(self, transition: Transition, key: jax.Array, features):
        total, parts = super().loss(transition, key, features)
        return total, parts | {"model_state_loss": total - parts["model_reward_loss"]}


MODEL = table_model(
    jax.random.normal(KEY, (STATES, ACTIONS)),
    jax.random.randint(KEY, (STATES, ACTIONS), 0, STATES),
    kind=Reconstructing,
)


def trained(pacing, updates: int = 2, collects: int = COLLECTS, hyper=None):
    """(state after some learning phases, how many model updates had been made after each, metrics of the last)."""
    learner = table_learner(STATES, ACTIONS, guidance=table_guidance(MODEL, ACTIONS, updates=updates, pacing=pacing))
    hyper = numbers(alpha=0.5, model_learning_rate=0.01) if hyper is None else hyper
    contents = filled_ring(learner)
    learn = jax.jit(lambda state, index: learner.learn(state, hyper, contents, learner.sampler.init(), index))
    state, counts = learner.init(hyper), []
    for index in range(collects):
        state, _, metrics = learn(state, jnp.int32(index))
        counts.append(int(state.model.steps))
    return state, counts, metrics


def equal(one, other) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def test_credit_by_hand():
    pacing, credit, taken = Adaptive(threshold=0.5, fraction=0.4), Credit(jnp.float32(0), jnp.float32(0.1)), []
    for slot in range(6):
        due, credit = pacing.due(credit, jnp.int32(slot))
        taken.append(bool(due))
    assert taken == [False, False, True, False, True, False]  # 0.4 0.8 1.2-1 0.6 1.0-1 0.4
    np.testing.assert_allclose(credit.earned, 0.4, atol=1e-6)
    due, credit = pacing.due(credit._replace(reconstruction=jnp.float32(0.5)), jnp.int32(6))
    assert due and np.isclose(credit.earned, 0.4, atol=1e-6)  # a whole credit is earned and spent


def test_in_phase_the_shared_counter_decides():
    pacing = Adaptive(threshold=0.5, fraction=0.4, in_phase=True)
    slots = jnp.arange(10)
    low, high = Credit(jnp.float32(0), jnp.float32(0.1)), Credit(jnp.float32(0), jnp.float32(0.9))
    taken = jax.vmap(lambda slot: pacing.due(low, slot)[0])(slots)
    assert np.flatnonzero(taken).tolist() == [2, 4, 7, 9]
    assert jax.vmap(lambda slot: pacing.due(high, slot)[0])(slots).all()


def test_a_model_that_reconstructs_badly_is_updated_in_every_slot_as_without_pacing():
    state, counts, metrics = trained(Adaptive(threshold=1e-30))
    plain, plain_counts, plain_metrics = trained(EverySlot())
    assert counts == plain_counts == list(range(2, 2 * COLLECTS + 1, 2))
    for one, other in zip(jax.tree.leaves(state._replace(pacing=None)), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)  # two programs may round differently
    assert metrics.pop("model_updates") == 1
    for name, value in plain_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("in_phase", [False, True])
def test_a_model_that_reconstructs_well_is_updated_at_the_reduced_rate(in_phase):
    """The first slot is always taken, for nothing is known yet; then a quarter of them."""
    state, counts, metrics = trained(Adaptive(threshold=1e30, fraction=0.25, in_phase=in_phase), updates=1)
    expected = {False: [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3], True: [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]}
    assert counts == expected[in_phase]
    assert float(state.pacing.reconstruction) > 0
    assert np.isnan(metrics["model_state_loss"]) != in_phase  # in the last slot one was made only in phase
    assert np.isfinite(metrics["loss"])


def test_in_phase_slots_are_counted_over_the_whole_run():
    """Three slots a collect, of which every fifth is taken after the very first: numbers 0, 4, 9, 14, 19, 24."""
    _, counts, _ = trained(Adaptive(threshold=1e30, fraction=0.2, in_phase=True), updates=3, collects=9)
    assert counts == [sum(slot in (0, 4, 9, 14, 19, 24) for slot in range(3 * done)) for done in range(1, 10)]


def test_a_slot_left_out_leaves_the_model_as_it_was():
    pacing = Adaptive(threshold=1e30, fraction=0.25)
    before, _, _ = trained(pacing, updates=1, collects=3)
    after, _, _ = trained(pacing, updates=1, collects=4)
    assert equal(before.model, after.model)
    assert float(after.pacing.earned) == float(before.pacing.earned) + 0.25


def test_members_side_by_side_take_the_slots_that_they_would_take_alone():
    """One member's model reconstructs perfectly from the start, the other's never: they share a branch, not a choice."""
    learner = table_learner(STATES, ACTIONS, guidance=table_guidance(MODEL, ACTIONS, pacing=Adaptive(1.0, 0.25)))
    hyper = numbers(alpha=0.5, model_learning_rate=0.01)
    contents, memory = filled_ring(learner), learner.sampler.init()
    start = learner.init(hyper)
    good = start._replace(pacing=Credit(jnp.float32(0), jnp.float32(0.1)))

    def learn(state, index):
        return learner.learn(state, hyper, contents, memory, index)[0]

    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), start, good)
    side_by_side = jax.jit(jax.vmap(learn, in_axes=(0, None), axis_name=SIDE_BY_SIDE))
    alone = jax.jit(learn)
    solo = [start, good]
    for index in range(5):
        together = side_by_side(together, jnp.int32(index))
        solo = [alone(state, jnp.int32(index)) for state in solo]
    assert together.model.steps.tolist() == [int(state.model.steps) for state in solo] == [5, 2]
    for index, state in enumerate(solo):
        mine = jax.tree.map(lambda leaf: leaf[index], together)
        for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_no_member_is_due_for_is_not_computed():
    """Under vmap a condition of one's own becomes a selection, for all; one that all share ends the loop."""

    def doubled(own: jax.Array) -> tuple[jax.Array, jax.Array]:
        return at_most_once(any_member(own > 0), lambda one: (2 * one, jnp.sin(one)), own, jnp.nan)

    together = jax.vmap(doubled, axis_name=SIDE_BY_SIDE)
    text = str(jax.make_jaxpr(together)(jnp.ones(3)))
    assert "while[" in text and "select_n" not in text
    np.testing.assert_allclose(together(jnp.array([-1.0, 3.0])), [[-2, 6], np.sin([-1, 3])], rtol=1e-6)
    np.testing.assert_array_equal(together(jnp.array([-1.0, -3.0])), [[-1, -3], [np.nan, np.nan]])
    np.testing.assert_allclose(doubled(jnp.float32(3)), [6, np.sin(3)], rtol=1e-6)
    assert bool(any_member(jnp.bool_(True))) and not bool(any_member(jnp.bool_(False)))
    every = jax.vmap(any_member, axis_name=SIDE_BY_SIDE)
    assert every(jnp.array([False, True, False])).all() and not every(jnp.zeros(3, bool)).any()


def test_what_is_left_as_it_is_stays_where_it_is():
    """A model that is given away is not copied on its way through a slot that leaves it out, as a branch would."""
    model = jnp.ones((256, 256))

    def slot(model: jax.Array, due: jax.Array) -> tuple[jax.Array, jax.Array]:
        return at_most_once(due, lambda one: (one + 1, jnp.sum(one)), model, jnp.nan)

    program = jax.jit(slot, donate_argnums=0).lower(model, jnp.bool_(True)).compile().as_text()
    outside_the_loop = program[program.index("ENTRY") :]
    assert "while(" in outside_the_loop and "f32[256,256]{1,0} copy(" not in outside_the_loop


def test_a_model_that_tells_no_reconstruction_is_refused_in_a_sentence():
    blind = table_model(MODEL.rewards, jnp.zeros((STATES, ACTIONS), int))
    learner = table_learner(STATES, ACTIONS, guidance=table_guidance(blind, ACTIONS, pacing=Adaptive()))
    hyper = numbers()
    state, phase = learner.init(hyper), phase_of(learner, hyper)
    batch = learner.store.one_step(filled_ring(learner), jnp.arange(4))

    def update(before):
        return model_update(learner.guidance, before, phase, KEY, batch)

    with pytest.raises(SadqError, match=r"This pacing needs .* model_state_loss, but this one tells model_reward_loss"):
        paced(Adaptive(), state, jnp.int32(0), update)
