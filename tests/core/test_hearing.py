"""What earns a model a hearing: Cohen's kappa by hand, running means, and what agreement and short episodes each give it."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core.hearing import BEARABLE, MEMORY, UNBEARABLE, Record

LONG, SHORT = 1.0, 0.0
"""Discounts of what is bootstrapped in a row without an end, and not at all."""


def of(base: list[int], model: list[int], action_count: int = 3) -> Record:
    discount = jnp.where(jnp.arange(len(base)) == 0, 0.0, 0.5)
    return Record.of_batch(jnp.array(base), jnp.array(model), action_count, discount)


def record(agreement: float, discount: float) -> Record:
    return Record(*map(jnp.float32, (agreement, 0.0, discount)))


def test_agreement_is_cohens_kappa():
    # Same on 4 of 5; by chance 3/5 * 2/5 + 1/5 * 2/5 + 1/5 * 1/5.
    found = of([0, 0, 0, 1, 2], [0, 0, 1, 1, 2])
    np.testing.assert_allclose(found, (0.8, 0.36, 0.4), rtol=1e-6)
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


def test_everything_is_averaged_over_updates_from_no_agreement_and_no_end_on():
    running = Record.empty().then(of([0, 1], [0, 1])).then(of([0, 1], [1, 0]))
    kept = 1 - 1 / MEMORY
    so_far = 1 - kept**2
    np.testing.assert_allclose(running, (kept / MEMORY, 0.5 * so_far, kept**2 + 0.25 * so_far), rtol=1e-5)


@pytest.mark.parametrize(
    ("agreement", "heard"), [(-0.5, 0.0), (0.0, 0.0), (0.1, 0.0), (0.15, 0.5), (0.2, 1.0), (0.9, 1.0)]
)
def test_a_model_is_heard_wholly_from_twice_the_agreement_that_it_needs(agreement, heard):
    np.testing.assert_allclose(record(agreement, LONG).heard(jnp.float32(0.2), 0.1), heard, atol=1e-5)
    assert record(agreement, SHORT).heard(jnp.float32(0.2), 0.1) == 1, "where nothing adds up, no agreement is needed"


@pytest.mark.parametrize(
    ("gaps", "heard"),
    [(1.0, 1.0), (BEARABLE, 1.0), ((BEARABLE + UNBEARABLE) / 2, 0.5), (UNBEARABLE, 0.0), (100.0, 0.0)],
)
@pytest.mark.parametrize("alpha", [0.2, 0.5])
def test_a_model_that_does_not_agree_is_heard_where_it_can_do_little(gaps, heard, alpha):
    """A weight of w takes a gap of w from every target: w * d now, as much of what d of it is made of, and so on."""
    in_all = gaps / (1 - alpha)
    discount = in_all / (1 + in_all)
    assert np.isclose((1 - alpha) * sum(discount**step for step in range(1, 4000)), gaps, rtol=1e-4)
    np.testing.assert_allclose(record(0.0, discount).heard(jnp.float32(alpha), 0.1), heard, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5])
def test_before_the_first_batch_no_model_is_heard(alpha):
    assert Record.empty().heard(jnp.float32(alpha), 0.1) == 0


@pytest.mark.parametrize(
    ("alpha", "discount", "length", "heard"),
    [(0.2, 0.99, 8, 1), (0.5, 0.8, 200, 1), (0.5, 0.99, 29, 0), (0.2, 0.99, 80, 0), (0.2, 0.99, 1000, 0)],
)
def test_what_it_comes_to_in_the_paper_s_environments(alpha, discount, length, heard):
    """BitFlip, O-Cloud, CityFlow, Acrobot, LunarLander: one target in an episode bootstraps nothing."""
    share = discount * (1 - 1 / length)
    assert record(0.0, share).heard(jnp.float32(alpha), 0.1) == heard
