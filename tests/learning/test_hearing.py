"""A model that must earn its hearing: what an update remembers, and what follows from it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    numbers,
    one_hot,
    phase_of,
    state_of,
    table_guidance,
    table_learner,
    table_model,
    table_network,
    update_of,
)

from sadq.core.bootstrap import Choice
from sadq.core.hearing import MEMORY, Record
from sadq.learning.guidance import Seen
from sadq.learning.learner import Learner
from sadq.learning.state import LearnerState
from sadq.types import Batch, Transition
from tiny import KEY

VALUES = [[1.0, 0.0], [0.0, 1.0]]
MODEL = table_model([[0.0, 5.0], [0.0, 5.0]], [[0, 0], [0, 0]])
"""Prefers the second action everywhere, with which the values of the second state agree."""


def learner_needing(agreement: float | None) -> Learner:
    return table_learner(2, 2, guidance=table_guidance(MODEL, 2, agreement=agreement))


def seen(*following: int) -> Seen:
    count = len(following)
    states, off = one_hot(2, *following), jnp.zeros(count, bool)
    action, reward = jnp.zeros(count, int), jnp.zeros(count)
    batch = Batch(states, action, reward, states, jnp.full(count, 0.5))
    return Seen(batch, Transition(states, action, reward, states, off, off), off)


def state(agreement: float | None) -> LearnerState:
    """Before whose update no end of what is bootstrapped was seen."""
    remembered = None if agreement is None else Record(*map(jnp.float32, (agreement, 0.0, 1.0)))
    return state_of(table_network(VALUES), model=MODEL)._replace(record=remembered)


@pytest.mark.parametrize(("agreement", "alpha"), [(0.0, 1.0), (0.1, 1.0), (0.15, 0.6), (0.2, 0.2), (1.0, 0.2)])
def test_a_model_is_heard_as_far_as_it_agreed(agreement, alpha):
    found = learner_needing(0.1).targets(state(agreement), numbers(alpha=0.2), KEY, seen(0, 1))
    np.testing.assert_allclose(found.diagnostics["alpha"][0], alpha, rtol=1e-5)
    # The base's actions are worth 1; the model's is worth 0 at the first state.
    np.testing.assert_allclose(found.bootstrap[0], [alpha, 1.0], rtol=1e-5)


def test_without_enough_agreement_a_target_is_the_base_s_to_the_bit():
    plain = table_learner(2, 2).targets(state_of(table_network(VALUES)), numbers(), KEY, seen(0, 1))
    found = learner_needing(0.1).targets(state(0.1), numbers(alpha=0.2), KEY, seen(0, 1))
    np.testing.assert_array_equal(found.returns.values, plain.returns.values)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1 / 3, 0.0])
def test_a_model_that_is_heard_wholly_has_the_weight_of_one_that_need_not_agree_to_the_bit(alpha):
    free, earned = (
        learner_needing(needed).targets(state(needed and 1.0), numbers(alpha=alpha), KEY, seen(0, 1)).diagnostics
        for needed in (None, 0.1)
    )
    np.testing.assert_array_equal(earned["alpha"], free["alpha"])


def test_every_update_remembers_how_far_both_agreed_and_how_much_was_bootstrapped():
    """They agree on three of four samples; by chance on three too, for the model always takes the same action."""
    learner, hyper = learner_needing(0.1), numbers(alpha=0.2)
    run = jax.jit(lambda own: learner.value_update(own, phase_of(learner, hyper), update_of(seen(1, 0, 1, 1))))
    after, _, measured = run(state(0.4))
    of_batch = np.array([0.75, 0.75, 0.5])
    before = np.array([0.4, 0.0, 1.0])
    np.testing.assert_allclose(after.record, before + (of_batch - before) / MEMORY, rtol=1e-5)
    np.testing.assert_allclose(measured["agreement"], [after.record.agreement] * 4, rtol=1e-6)


def test_of_a_base_of_several_actions_the_heaviest_one_agrees_or_not():
    """The model takes the second action everywhere; the base names the first one first, and weighs it less."""

    def several(online_q, target_q, mask=None):
        return Choice(jnp.array([0, 1]), jnp.array([0.4, 0.6]))

    found = replace(learner_needing(0.1), bootstrap=several).targets(state(0.0), numbers(alpha=0.2), KEY, seen(0, 1))
    assert found.record.same[0] == 1 and found.diagnostics["disagreement"][0].tolist() == [0.0, 0.0]


def test_without_a_need_nothing_is_remembered():
    learner, hyper = learner_needing(None), numbers(alpha=0.2)
    after, _, measured = learner.value_update(state(None), phase_of(learner, hyper), update_of(seen(1, 0)))
    assert after.record is None and "agreement" not in measured
    assert learner.init(hyper).record is None
    assert learner_needing(0.1).init(hyper).record == Record.empty()
