"""What earns a model a hearing: Cohen's kappa by hand, running means, and what agreement and cost each give it."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core.hearing import BEARABLE, MEMORY, Record

DEAR, CHEAP = 1e6, 1e-6
"""What hearing the model lowers targets by, where actions differ by 1."""


def of(base: list[int], model: list[int], action_count: int = 3) -> Record:
    return Record.of_batch(jnp.array(base), jnp.array(model), action_count, jnp.float32(7.0), jnp.float32(2.0))


def record(agreement: float, lowering: float, gap: float = 1.0) -> Record:
    return Record(*map(jnp.float32, (agreement, 0.0, lowering, gap)))


def test_agreement_is_cohens_kappa():
    # Same on 4 of 5; by chance 3/5 * 2/5 + 1/5 * 2/5 + 1/5 * 1/5.
    found = of([0, 0, 0, 1, 2], [0, 0, 1, 1, 2])
    np.testing.assert_allclose(found, (0.8, 0.36, 7.0, 2.0), rtol=1e-6)
    np.testing.assert_allclose(found.agreement, (0.8 - 0.36) / (1 - 0.36), rtol=1e-6)


@pytest.mark.parametrize(
    ("base", "model", "expected"),
    [
        ([0, 1, 2, 0], [0, 1, 2, 0], 1.0),
        ([0, 0, 1, 1], [0, 1, 0, 1], 0.0),
        ([0, 0, 0, 0], [0, 1, 2, 0], 0.0),  # who always takes the same action has not looked at the state
        ([2, 2, 2, 2], [2, 2, 2, 2], 0.0),  # nor have two of them
        ([0, 0, 1, 1], [1, 1, 0, 0], -1.0),
    ],
)
def test_agreement_counts_from_chance(base, model, expected):
    np.testing.assert_allclose(of(base, model).agreement, expected, atol=1e-6)


def test_everything_is_averaged_over_updates_from_nothing_on():
    running = Record.empty().then(of([0, 1], [0, 1])).then(of([0, 1], [1, 0]))
    kept = 1 - 1 / MEMORY
    so_far = 1 - kept**2
    np.testing.assert_allclose(running, (kept / MEMORY, 0.5 * so_far, 7 * so_far, 2 * so_far), rtol=1e-5)


@pytest.mark.parametrize(
    ("agreement", "heard"), [(-0.5, 0.0), (0.0, 0.0), (0.1, 0.0), (0.15, 0.5), (0.2, 1.0), (0.9, 1.0)]
)
def test_a_model_is_heard_wholly_from_twice_the_agreement_that_it_needs(agreement, heard):
    np.testing.assert_allclose(record(agreement, DEAR).heard(jnp.float32(0.2), 0.1), heard, atol=1e-5)
    assert record(agreement, CHEAP).heard(jnp.float32(0.2), 0.1) == 1, "noise that costs nothing needs no agreement"


@pytest.mark.parametrize(("gaps", "heard"), [(0.0, 1.0), (0.5, 1.0), (2 / 3, 0.5), (1.0, 0.0), (9.0, 0.0)])
def test_a_model_that_does_not_agree_is_heard_where_that_is_bearable(gaps, heard):
    """In units of what is not, with a weight of a half; so twice of that is lowered by the whole weight."""
    found = record(0.0, 2 * gaps * BEARABLE * 3, gap=3.0).heard(jnp.float32(0.5), 0.1)
    np.testing.assert_allclose(found, heard, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_before_the_first_batch_no_model_is_heard(alpha):
    assert Record.empty().heard(jnp.float32(alpha), 0.1) == 0


def test_a_lowering_below_nothing_is_bearable():
    """Double's action may be worth less to the target network than the model's."""
    assert record(0.0, -1.0).heard(jnp.float32(0.2), 0.1) == 1
