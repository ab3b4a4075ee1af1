"""What behaviour looks at: noise by key, values as they are drawn, and values as evaluation sees them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lanes import ACTIONS, LANES, MASK, NOISE, bayesian_networks, situation, small_networks
from scipy import stats

from sadq import keys
from sadq.exploration import best_actions, random_actions
from sadq.exploration.situation import draw_noise, noisy_values, settled_values
from sadq.networks import Implicit, Scalar
from sadq.networks.network import first_network

KEY = keys.member_key(7)
SEEN = jax.random.normal(keys.member_key(3), (5, 2))
SAME = jnp.tile(SEEN[:1], (5, 1))


def test_noise_is_a_function_of_its_key_alone():
    same = draw_noise(keys.member_key(0), LANES, ACTIONS)
    other = draw_noise(keys.member_key(1), LANES, ACTIONS)
    assert jax.tree.all(jax.tree.map(lambda one, two: bool((one == two).all()), NOISE, same))
    assert not np.array_equal(NOISE.coin, other.coin)


def test_coins_and_lotteries_are_uniform_and_independent():
    assert NOISE.coin.shape == (LANES,) and NOISE.lottery.shape == (LANES, ACTIONS)
    numbers = np.column_stack([NOISE.coin, NOISE.lottery])
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(numbers.T) - np.eye(1 + ACTIONS)).max() < 0.1


def test_a_random_action_is_uniform_among_the_legal():
    drawn = np.bincount(np.asarray(random_actions(situation())), minlength=ACTIONS)
    assert stats.chisquare(drawn).pvalue > 1e-3
    drawn = np.bincount(np.asarray(random_actions(situation(mask=MASK))), minlength=ACTIONS)
    assert drawn[1] == drawn[3] == 0 and stats.chisquare(drawn[[0, 2]]).pvalue > 1e-3


def test_the_first_of_the_best_legal_actions_is_the_best():
    values = jnp.array([[1.0, 2.0, 2.0, 0.0], [5.0, 2.0, 2.0, 0.0]])
    np.testing.assert_array_equal(best_actions(values, None), [1, 0])
    legal = jnp.array([[True, False, True, True], [False, False, False, True]])
    np.testing.assert_array_equal(best_actions(values, legal), [2, 3])


def test_what_is_expected_is_the_networks_average():
    values = jax.random.normal(KEY, (6, 3, ACTIONS))
    np.testing.assert_allclose(situation(values).expected, np.asarray(values).mean(axis=1), rtol=1e-6)


# Values of networks that draw something


def test_a_step_draws_its_noise_once_for_all_lanes():
    networks = small_networks(Scalar(), noisy=True, dueling=True)
    values = np.asarray(noisy_values(networks, SAME, None, KEY))
    assert values.shape == (5, 1, ACTIONS)
    np.testing.assert_allclose(values, np.tile(values[:1], (5, 1, 1)), rtol=1e-6)
    drawn = first_network(networks).drawn(keys.purpose(KEY, "network"))
    np.testing.assert_allclose(values[0, 0], drawn.mean(SAME[0]), rtol=1e-5, atol=1e-6)
    other = noisy_values(networks, SAME, None, keys.member_key(8))
    assert (np.abs(values - np.asarray(other)) > 1e-6).all()
    assert (np.abs(values[:, 0] - np.asarray(settled_values(networks, SAME, None))) > 1e-6).all()


def test_the_networks_of_an_ensemble_draw_apart():
    alike = jax.tree.map(
        lambda leaf: jnp.tile(leaf, (3, *(1 for _ in leaf.shape[1:]))), small_networks(Scalar(), noisy=True)
    )
    values = np.asarray(noisy_values(alike, SEEN, None, KEY))  # equal weights, so only noise tells them apart
    assert values.shape == (5, 3, ACTIONS) and len(np.unique(values[0, :, 0])) == 3


def test_every_lane_has_levels_of_its_own():
    networks = small_networks(Implicit(levels=3, cosines=4))
    values = np.asarray(noisy_values(networks, SAME, None, KEY))[:, 0]
    assert len(np.unique(values[:, 0])) == 5
    own = first_network(networks).sampled(keys.at(keys.purpose(KEY, "levels"), 2))
    np.testing.assert_allclose(values[2], own.mean(SAME[2]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3])
def test_without_anything_to_draw_values_are_the_networks_own(size):
    networks = small_networks(Scalar(), size)
    values = np.asarray(noisy_values(networks, SEEN, None, KEY))
    for index in range(size):
        alone = jax.tree.map(lambda leaf: leaf[index], networks)
        np.testing.assert_allclose(values[:, index], jax.vmap(alone.mean)(SEEN), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(settled_values(networks, SEEN, None), values.mean(axis=1), rtol=1e-5, atol=1e-6)


def test_a_mask_reaches_the_dueling_mean():
    networks = small_networks(Scalar(), dueling=True)
    legal = jnp.tile(jnp.array([True, False, True, False]), (5, 1))
    expected = jax.vmap(first_network(networks).mean)(SEEN, legal)
    plain = jax.vmap(first_network(networks).mean)(SEEN)
    assert (np.abs(np.asarray(expected - plain)) > 1e-4).all()
    np.testing.assert_allclose(noisy_values(networks, SEEN, legal, KEY)[:, 0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(settled_values(networks, SEEN, legal), expected, rtol=1e-5, atol=1e-6)


def test_evaluation_settles_what_a_head_keeps_drawn():
    """A Bayesian last layer: behaviour's values are those of the weights held, evaluation's of the posterior's mean."""
    mean = jnp.arange(12.0).reshape(3, 4) / 10
    networks = bayesian_networks(mean, jnp.tile(jnp.eye(4), (3, 1, 1)))
    held = eqx.tree_at(lambda one: one.head.weights, networks, -mean[None])
    phi = jax.vmap(lambda seen: first_network(held).head.phi(first_network(held).encode(seen)))(SEEN)
    np.testing.assert_allclose(noisy_values(held, SEEN, None, KEY)[:, 0], -phi @ mean.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(settled_values(held, SEEN, None), phi @ mean.T, rtol=1e-5, atol=1e-6)
    assert phi.any()
