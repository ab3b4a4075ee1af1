"""Schedules at their ends, at hand-computed points, and the long-run rate of the model-update credit."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core.schedules import (
    Adaptive,
    exploration_rate,
    importance_exponent,
    learning_rate_factor,
    model_update_credit,
)
from sadq.errors import SadqError


def test_exponential_exploration_has_a_time_constant():
    steps = jnp.array([0, 100, 200, 10_000])
    expected = [1.0, 0.1 + 0.9 / math.e, 0.1 + 0.9 / math.e**2, 0.1]
    np.testing.assert_allclose(exploration_rate(steps, 1.0, 0.1, 100), expected, rtol=1e-5)


def test_linear_exploration_ends_at_the_ramp():
    steps = jnp.array([0, 25, 100, 10_000])
    np.testing.assert_allclose(exploration_rate(steps, 1.0, 0.2, 100, "linear"), [1.0, 0.8, 0.2, 0.2], rtol=1e-6)


def test_learning_rate_factor():
    progress = jnp.array([0.0, 0.25, 1.0, 2.0])
    np.testing.assert_array_equal(learning_rate_factor(progress, "linear"), [1.0, 0.75, 0.0, 0.0])
    assert learning_rate_factor(jnp.float32(0.5), "constant") == 1


def test_importance_exponent_rises_to_one_and_stays():
    np.testing.assert_allclose(importance_exponent(jnp.array([0.0, 0.5, 1.0, 2.0]), 0.4), [0.4, 0.7, 1, 1], rtol=1e-6)


def run_credit(reconstructions: jax.Array, fraction: float) -> np.ndarray:
    def slot(credit: jax.Array, reconstruction: jax.Array) -> tuple[jax.Array, jax.Array]:
        due, credit = model_update_credit(credit, reconstruction, 0.5, fraction)
        return credit, due

    return np.asarray(jax.lax.scan(slot, jnp.float32(0), reconstructions)[1])


def test_an_unlearned_model_is_updated_in_every_slot():
    assert run_credit(jnp.full(50, 0.5), 0.4).all()  # at the threshold still unlearned


@pytest.mark.parametrize("fraction", [0.2, 0.4, 0.75])
def test_a_learned_model_is_updated_at_the_reduced_rate(fraction: float):
    due = run_credit(jnp.full(1000, 0.4), fraction)
    assert abs(due.sum() - 1000 * fraction) <= 1
    assert np.diff(np.flatnonzero(due)).max() <= math.ceil(1 / fraction)


def test_credit_by_hand_across_the_threshold():
    """Halves accumulate while learned; a slot above the threshold is always due and keeps the half that was saved."""
    due = run_credit(jnp.array([0.1, 0.1, 0.1, 0.9, 0.1, 0.1]), 0.5)
    assert due.tolist() == [False, True, False, True, True, False]


def test_a_share_of_slots_is_more_than_none_and_at_most_all():
    assert Adaptive(fraction=1.0).fraction == 1
    for fraction in (0.0, -0.1, 1.1):
        with pytest.raises(SadqError, match="fraction"):
            Adaptive(fraction=fraction)
