"""Agreement beyond chance: Cohen's kappa by hand, its running mean, and the share of its weight that it gives a model."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core.agreement import MEMORY, ChoiceAgreement


def of(base: list[int], model: list[int], action_count: int = 3) -> ChoiceAgreement:
    return ChoiceAgreement.of_batch(jnp.array(base), jnp.array(model), action_count)


def test_agreement_is_cohens_kappa():
    # Same on 4 of 5; by chance 3/5 * 2/5 + 1/5 * 2/5 + 1/5 * 1/5.
    found = of([0, 0, 0, 1, 2], [0, 0, 1, 1, 2])
    np.testing.assert_allclose(found, (0.8, 0.36), rtol=1e-6)
    np.testing.assert_allclose(found.beyond_chance, (0.8 - 0.36) / (1 - 0.36), rtol=1e-6)


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
    np.testing.assert_allclose(of(base, model).beyond_chance, expected, atol=1e-6)


def test_agreement_is_averaged_over_updates_from_nothing_on():
    one, other = of([0, 1], [0, 1]), of([0, 1], [1, 0])
    running = ChoiceAgreement.of_nothing().then(one).then(other)
    kept = 1 - 1 / MEMORY
    np.testing.assert_allclose(running.same, kept / MEMORY, rtol=1e-5)
    np.testing.assert_allclose(running.by_chance, 0.5 * (1 - kept**2), rtol=1e-5)
    assert ChoiceAgreement.of_nothing().beyond_chance == 0


@pytest.mark.parametrize(
    ("agreement", "trust"), [(-0.5, 0.0), (0.0, 0.0), (0.1, 0.0), (0.15, 0.5), (0.2, 1.0), (0.9, 1.0)]
)
def test_a_model_is_trusted_wholly_from_twice_the_agreement_that_it_needs(agreement, trust):
    found = ChoiceAgreement(jnp.float32(agreement), jnp.float32(0.0))
    np.testing.assert_allclose(found.trust(0.1), trust, atol=1e-5)
