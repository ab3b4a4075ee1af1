"""Gates: hand-computed weights, the limits of a perfect and of a useless model, and masks."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core import batch_reliability, fixed, sample_reliability, value_gap
from sadq.core.gates import GATES

ALPHA = jnp.float32(0.2)
TARGET_Q = jnp.array([[0.0, 4.0, 1.0], [2.0, 2.0, 4.0]])  # gaps 4 and 2, mean 3; greedy actions 1 and 2
SCORES = jnp.array([[3.0, 1.0, 0.0], [0.5, 0.0, 0.0]])  # preferred action 0 twice, by 2 and by 0.5
MASK = jnp.array([[True, False, True], [True, True, False]])  # greedy actions 2 and 0; gaps 1 and 0


def test_value_gap():
    assert value_gap(TARGET_Q[0]) == 4
    assert value_gap(jnp.array([1.0, 9.0, -9.0, 3.0]), jnp.array([True, False, False, True])) == 2
    assert value_gap(jnp.array([1.0, jnp.nan, -jnp.inf]), jnp.array([True, False, False])) == 0


def test_fixed_is_the_same_for_every_sample():
    assert fixed(ALPHA, TARGET_Q, SCORES, jnp.full(2, 1e9)).tolist() == [ALPHA, ALPHA]


def test_batch_reliability_by_hand():
    """A mean error of 1.5 against a mean gap of 3 leaves half of the model's weight: 1 - 0.8 / 2."""
    weights = batch_reliability(ALPHA, TARGET_Q, SCORES, jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(weights, [0.6, 0.6], rtol=1e-6)


def test_batch_reliability_counts_legal_actions_only():
    """The legal gaps are 1 and 0, mean 0.5: an error of 0.25 is half of it."""
    poisoned = jnp.where(MASK, TARGET_Q, jnp.nan)
    weights = batch_reliability(ALPHA, poisoned, SCORES, jnp.array([0.5, 0.0]), MASK)
    np.testing.assert_allclose(weights, [0.6, 0.6], rtol=1e-6)


def test_sample_reliability_by_hand():
    """With a mean error of 1, a preference by 2 is heard and one by 0.5 is not."""
    weights = sample_reliability(ALPHA, TARGET_Q, SCORES, jnp.array([0.0, 2.0]))
    assert weights.tolist() == [ALPHA, 1.0]


def test_sample_reliability_compares_legal_actions_only():
    """Legally the first sample's score prefers 0 over 2 by 3, the second's 0 over itself by nothing."""
    poisoned_q, poisoned_scores = jnp.where(MASK, TARGET_Q, jnp.inf), jnp.where(MASK, SCORES, jnp.nan)
    weights = sample_reliability(ALPHA, poisoned_q, poisoned_scores, jnp.array([2.5, 2.5]), MASK)
    assert weights.tolist() == [ALPHA, 1.0]


@pytest.mark.parametrize("name", ["batch", "sample"])
@pytest.mark.parametrize("mask", [None, jnp.ones((2, 3), bool)])
def test_limits(name: str, mask):
    gate = GATES[name]
    perfect = gate(ALPHA, TARGET_Q, SCORES, jnp.zeros(2), mask)
    useless = gate(ALPHA, TARGET_Q, SCORES, jnp.full(2, 1e6), mask)
    np.testing.assert_allclose(perfect, [0.2, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(useless, [1.0, 1.0])


@pytest.mark.parametrize("name", GATES)
def test_a_base_agent_stays_one_bit_for_bit(name: str):
    weights = GATES[name](jnp.float32(1), TARGET_Q, SCORES, jnp.array([0.1, 0.3]))
    np.testing.assert_array_equal(weights, [1.0, 1.0])


def test_batch_reliability_without_any_gap_falls_back_to_the_base():
    weights = batch_reliability(ALPHA, jnp.ones((2, 3)), SCORES, jnp.array([0.1, 0.1]))
    np.testing.assert_array_equal(weights, [1.0, 1.0])
