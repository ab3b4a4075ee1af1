"""Discrete latents against numbers worked out by hand, with the gradients that each stop leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core.latents import balanced_kl, divergence, mixed_probabilities, straight_through_sample

KEY = keys.member_key(3)
FAR = (jnp.array([[0.9, 0.1]]), jnp.array([[0.1, 0.9]]))  # 0.8 ln 9 = 1.758 nats apart
NEAR = (jnp.array([[0.5, 0.5]]), jnp.array([[0.25, 0.75]]))  # ln 2 - ln 3 / 2 = 0.1438 nats apart


def test_every_class_keeps_a_share_of_the_uniform_distribution():
    """softmax(0, ln 3) = (1/4, 3/4); a fifth of (1/2, 1/2) in it makes (0.3, 0.7)."""
    logits = jnp.array([[0.0, np.log(3.0)], [0.0, 0.0]])
    np.testing.assert_allclose(mixed_probabilities(logits, 0.2), [[0.3, 0.7], [0.5, 0.5]], rtol=1e-6)
    certain = mixed_probabilities(jnp.array([[0.0, 1000.0]]))
    np.testing.assert_allclose(certain, [[0.005, 0.995]], rtol=1e-5)


def test_samples_are_one_hot_and_as_frequent_as_their_probabilities():
    probabilities = jnp.array([[0.1, 0.2, 0.7], [0.005, 0.99, 0.005]])
    drawn = jax.vmap(straight_through_sample, in_axes=(None, 0))(probabilities, keys.range_of(KEY, 0, 4000))
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_array_equal(jnp.sum(drawn, axis=-1), 1.0)
    np.testing.assert_allclose(jnp.mean(drawn, axis=0), probabilities, atol=0.03)


def test_a_sample_has_the_gradient_of_its_probabilities():
    logits, weights = jax.random.normal(KEY, (2, 4, 5))

    def through(sample):
        return jax.grad(lambda at: jnp.sum(weights * sample(mixed_probabilities(at))))(logits)

    expected = through(lambda probabilities: probabilities)
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(through(lambda one: straight_through_sample(one, KEY)), expected, rtol=1e-6)


def test_the_divergence_is_summed_over_the_variables():
    first = jnp.concatenate([NEAR[0], FAR[0], NEAR[0]])
    second = jnp.concatenate([NEAR[1], FAR[1], NEAR[0]])
    by_hand = [0.5 * np.log(2) + 0.5 * np.log(2 / 3), 0.8 * np.log(9), 0.0]
    np.testing.assert_allclose(divergence(first, second), sum(by_hand), rtol=1e-5)
    # It is not symmetric: the other way round the first variable gives ln(1/2) / 4 + 3 ln(3/2) / 4.
    np.testing.assert_allclose(divergence(*NEAR[::-1]), 0.25 * np.log(0.5) + 0.75 * np.log(1.5), rtol=1e-5)


def test_the_balanced_divergence_by_hand():
    np.testing.assert_allclose(balanced_kl(*FAR), 1.1 * 0.8 * np.log(9), rtol=1e-5)
    np.testing.assert_allclose(balanced_kl(*NEAR), 1.1, rtol=1e-6)
    weighted = balanced_kl(*FAR, dynamics=3.0, representation=0.5, free_nats=0.25)
    np.testing.assert_allclose(weighted, 3.5 * 0.8 * np.log(9), rtol=1e-5)
    np.testing.assert_allclose(balanced_kl(*NEAR, free_nats=0.1), 1.1 * 0.143841, rtol=1e-4)


def test_each_side_is_moved_by_its_own_term_only():
    """d KL / dq = ln q - ln p + 1, weighted 0.1; d KL / dp = -q / p, weighted 1."""
    to_posterior, to_prior = jax.grad(balanced_kl, argnums=(0, 1))(*FAR)
    np.testing.assert_allclose(to_posterior, [[0.1 * (np.log(9) + 1), 0.1 * (1 - np.log(9))]], rtol=1e-5)
    np.testing.assert_allclose(to_prior, [[-9.0, -1 / 9]], rtol=1e-5)


@pytest.mark.parametrize("side", [0, 1])
def test_below_the_free_nats_nothing_moves(side):
    np.testing.assert_array_equal(jax.grad(balanced_kl, argnums=side)(*NEAR), 0.0)


def test_the_free_nats_are_each_sample_s_own():
    """The mean of max(1, .), not the max of 1 and the mean: one sample far apart pulls, whatever its neighbours do."""
    batch = tuple(jnp.stack([far, near, near, near]) for far, near in zip(FAR, NEAR, strict=True))
    losses = jax.vmap(balanced_kl)(*batch)
    np.testing.assert_allclose(losses, [1.1 * 0.8 * np.log(9), 1.1, 1.1, 1.1], rtol=1e-5)
    pull = jax.grad(lambda prior: jnp.mean(jax.vmap(balanced_kl)(batch[0], prior)))(batch[1])
    assert (pull[0] != 0).all() and (pull[1:] == 0).all()


def test_without_a_uniform_share_the_divergence_of_decided_variables_is_finite():
    """Against NumPy, with logarithms of the softmax; classes that are farther behind than float32 can tell are floored."""

    def loss(first, second):
        return balanced_kl(*(mixed_probabilities(logits, 0.0) for logits in (first, second)))

    def logarithms(logits):
        shifted = logits - logits.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    first, second = np.random.default_rng(0).normal(size=(2, 8, 6)).astype(np.float32)
    one, other = logarithms(first.astype(np.float64)), logarithms(second.astype(np.float64))
    expected = (np.exp(one) * (one - other)).sum()
    np.testing.assert_allclose(loss(first, second), 1.1 * expected, rtol=1e-5)
    value, gradients = jax.value_and_grad(loss, (0, 1))(200 * first, 200 * second)
    assert np.isfinite(value) and value > 1.1 * expected
    assert all(np.isfinite(gradient).all() for gradient in gradients)
