"""The posterior over last layers against its closed form in double precision, and its draws against both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core.posterior import (
    PRIOR_RETURNS,
    Evidence,
    Posterior,
    evidence,
    infer,
    no_evidence,
    prior,
    residual_deviation,
    sample,
)

ACTIONS, WIDTH, COUNT = 4, 3, 40
PRIOR, NOISE = 2.0, 0.5
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(COUNT, WIDTH)).astype(np.float32)
RETURNS = RANDOM.normal(size=COUNT).astype(np.float32)
# Unequal counts, and action 2 never taken.
TAKEN = np.repeat([0, 1, 3], [25, 14, 1]).astype(np.int32)


def closed_form(features, returns) -> tuple[np.ndarray, np.ndarray]:
    """(mean, covariance) of one action, in float64 and without any trick."""
    features, returns = np.asarray(features, np.float64), np.asarray(returns, np.float64)
    covariance = np.linalg.inv(features.T @ features / NOISE**2 + np.eye(WIDTH) / PRIOR**2)
    return covariance @ features.T @ returns / NOISE**2, covariance


def inferred(weights=None) -> Posterior:
    counted = jnp.ones(COUNT) if weights is None else jnp.asarray(weights, jnp.float32)
    return infer(evidence(FEATURES, TAKEN, RETURNS, counted, ACTIONS), PRIOR, NOISE)


@pytest.mark.parametrize("action", range(ACTIONS))
def test_each_action_has_the_closed_form_of_its_own_transitions(action):
    found, own = inferred(), action == TAKEN
    mean, covariance = closed_form(FEATURES[own], RETURNS[own])
    np.testing.assert_allclose(found.mean[action], mean, rtol=1e-4, atol=1e-5)
    root = np.asarray(found.root[action], np.float64)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-4, atol=1e-5)


def test_one_feature_by_hand():
    """Features 1 and 2, returns 1 and 4, sigma = sigma_n = 1: precision 1 + 4 + 1 = 6, mean (1 + 8) / 6."""
    seen = evidence(jnp.array([[1.0], [2.0]]), jnp.array([0, 0]), jnp.array([1.0, 4.0]), jnp.ones(2), 1)
    np.testing.assert_array_equal(seen.gram, [[[5.0]]])
    np.testing.assert_array_equal(seen.moment, [[9.0]])
    np.testing.assert_array_equal(seen.power, [17.0])
    np.testing.assert_array_equal(seen.returns, [2.0])
    found = infer(seen, 1.0, 1.0)
    np.testing.assert_allclose(found.mean, [[1.5]], rtol=1e-5)
    np.testing.assert_allclose(found.root**2, [[[1 / 6]]], rtol=1e-5)


def test_an_action_without_data_keeps_the_prior():
    found, before = inferred(), prior(ACTIONS, WIDTH, PRIOR)
    np.testing.assert_array_equal(found.mean[2], 0)
    np.testing.assert_allclose(found.root[2], before.root[2], rtol=1e-5)
    np.testing.assert_allclose(before.root[0] @ before.root[0].T, PRIOR**2 * np.eye(WIDTH))
    assert before.mean.shape == (ACTIONS, WIDTH) and not before.mean.any()


def test_evidence_of_batches_adds_up_and_what_weighs_nothing_counts_nothing():
    whole = evidence(FEATURES, TAKEN, RETURNS, jnp.ones(COUNT), ACTIONS)
    halves = [
        evidence(*(x[cut] for x in (FEATURES, TAKEN, RETURNS)), jnp.ones(20), ACTIONS)
        for cut in np.split(np.arange(40), 2)
    ]
    for one, other in zip(whole, jax.tree.map(jnp.add, *halves), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    counted = np.arange(COUNT) % 3 > 0
    mean, _ = closed_form(FEATURES[counted & (TAKEN == 0)], RETURNS[counted & (TAKEN == 0)])
    np.testing.assert_allclose(inferred(counted).mean[0], mean, rtol=1e-4, atol=1e-5)


def test_every_sum_of_the_evidence_counts_by_weight_and_action():
    weights = np.where(np.arange(COUNT) % 3 > 0, 1.0, 0.5).astype(np.float32)
    found = evidence(FEATURES, TAKEN, RETURNS, jnp.asarray(weights), ACTIONS)
    for action in range(ACTIONS):
        own = weights * (action == TAKEN)
        np.testing.assert_allclose(found.gram[action], (own[:, None] * FEATURES).T @ FEATURES, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.moment[action], FEATURES.T @ (own * RETURNS), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.power[action], np.sum(own * RETURNS**2), rtol=1e-5)
        np.testing.assert_allclose(found.returns[action], own.sum(), rtol=1e-6)
    nothing = no_evidence(ACTIONS, WIDTH)
    assert jax.tree.map(jnp.shape, nothing) == jax.tree.map(jnp.shape, found)
    assert not any(leaf.any() for leaf in nothing)


@pytest.mark.parametrize("counted", [np.ones(COUNT), np.arange(COUNT) % 3 > 0])
def test_the_residual_deviation_is_that_of_the_returns_from_the_fit(counted):
    counted = np.asarray(counted, np.float32)
    seen = evidence(FEATURES, TAKEN, RETURNS, jnp.asarray(counted), ACTIONS)
    for mean in (infer(seen, PRIOR, NOISE).mean, jnp.zeros((ACTIONS, WIDTH)), jnp.full((ACTIONS, WIDTH), 0.7)):
        predicted = np.sum(FEATURES * np.asarray(mean)[TAKEN], axis=1)
        squares = np.sum(counted * (RETURNS - predicted) ** 2)
        expected = np.sqrt((squares + PRIOR_RETURNS) / (counted.sum() + PRIOR_RETURNS))
        np.testing.assert_allclose(residual_deviation(seen, mean), expected, rtol=1e-4)


def test_the_residual_deviation_begins_at_one_and_forgets_it():
    """Six returns of deviation 1 are believed before any: n perfect fits leave sqrt(6 / (6 + n))."""
    assert PRIOR_RETURNS == 6
    assert residual_deviation(no_evidence(1, 1), jnp.zeros((1, 1))) == 1
    for count in (1, 6, 1000):
        fitted = evidence(jnp.full((count, 1), 2.0), jnp.zeros(count, int), jnp.full(count, 6.0), jnp.ones(count), 1)
        found = residual_deviation(fitted, jnp.array([[3.0]]))
        np.testing.assert_allclose(found, np.sqrt(6 / (6 + count)), rtol=1e-5)
    # Rounding may explain more than there was: a fit of large returns never becomes the root of less than nothing.
    overdone = fitted._replace(power=fitted.power - 50_000.0)
    np.testing.assert_allclose(residual_deviation(overdone, jnp.array([[3.0]])), np.sqrt(6 / 1006), rtol=1e-5)


def test_features_that_repeat_each_other_leave_everything_finite():
    """Ten thousand copies of one direction: a precision whose condition number float32 cannot hold."""
    gram = 1e4 * jnp.ones((1, 8, 8))
    found = infer(Evidence(gram, 1e4 * jnp.ones((1, 8)), jnp.full(1, 1e4), jnp.full(1, 1e4)), 1e3, 0.1)
    assert np.isfinite(found.mean).all() and np.isfinite(found.root).all()
    np.testing.assert_allclose(found.mean.sum(), 1.0, rtol=1e-2)


def test_the_jitter_is_relative_to_the_mean_of_the_diagonal():
    """A prior of 1/2 in eight dimensions is a precision of 4 (1 + 1e-6)."""
    found = infer(no_evidence(1, 8), 0.5, 1.0)
    np.testing.assert_allclose(found.root[0], 0.5 * (1 - 0.5e-6) * np.eye(8), rtol=2e-7)


def test_a_draw_is_the_mean_and_a_rotated_standard_normal():
    found, key = inferred(), keys.member_key(2)
    noise = np.asarray(jax.random.normal(key, (ACTIONS, WIDTH)))
    expected = np.asarray(found.mean) + np.stack([root @ own for root, own in zip(found.root, noise, strict=True)])
    np.testing.assert_allclose(sample(found, key), expected, rtol=1e-4, atol=1e-5)


def test_draws_have_the_posterior_s_mean_and_covariance():
    found, count = inferred(), 20_000
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: sample(found, key)))(keys.range_of(keys.member_key(1), 0, count)))
    assert drawn.shape == (count, ACTIONS, WIDTH)
    for action in range(ACTIONS):
        root = np.asarray(found.root[action], np.float64)
        covariance = root @ root.T
        spread = np.sqrt(np.diag(covariance))
        own = drawn[:, action]
        assert (np.abs(own.mean(axis=0) - found.mean[action]) < 5 * spread / np.sqrt(count)).all()
        error = np.cov(own.T) - covariance
        assert (np.abs(error) < 5 * np.outer(spread, spread) * np.sqrt(2 / count)).all()
    across = np.corrcoef(drawn[:, 0, 0], drawn[:, 1, 0])[0, 1]
    assert abs(across) < 5 / np.sqrt(count), "actions are drawn apart"
