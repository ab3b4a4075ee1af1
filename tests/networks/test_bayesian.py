"""A Bayesian head: its weights are the posterior's mean until they are drawn, and no gradient moves them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core.posterior import Posterior, sample
from sadq.errors import SadqError
from sadq.networks import Bayesian, BayesianHead, Dense, HeadShape, Mover, Network

KEY, WIDTH, ACTIONS = keys.member_key(3), 8, 3
WEIGHTS = jnp.arange(24.0).reshape(ACTIONS, WIDTH)
OBSERVATION = jnp.array([0.5, -2.0])


def make(**settings) -> BayesianHead:
    return Bayesian(**settings).build(HeadShape(WIDTH, ACTIONS), KEY)


def believing(head: BayesianHead) -> BayesianHead:
    """With a posterior that differs by action and weight."""
    root = jnp.stack([jnp.tril(jnp.full((WIDTH, WIDTH), 0.1)) + scale * jnp.eye(WIDTH) for scale in (0.1, 0.5, 1.0)])
    return eqx.tree_at(lambda one: one.posterior, head, Posterior(WEIGHTS, root))


def test_it_begins_with_its_prior():
    head = make(prior_deviation=2.0)
    assert not head.weights.any() and not head.posterior.mean.any()
    np.testing.assert_allclose(head.posterior.root, np.tile(2.0 * np.eye(WIDTH), (ACTIONS, 1, 1)))


def test_it_is_linear_in_its_features_and_its_weights_take_no_gradient():
    network = Network(Dense((WIDTH,)).build((2,), KEY), make().holding(WEIGHTS))
    head = network.head
    phi = np.maximum(np.asarray(network.encode(OBSERVATION)) @ head.hidden.weight + head.hidden.bias, 0)
    np.testing.assert_allclose(head.phi(network.encode(OBSERVATION)), phi, rtol=1e-5)
    np.testing.assert_allclose(network.mean(OBSERVATION), np.asarray(WEIGHTS) @ phi, rtol=1e-5)
    np.testing.assert_allclose(network(OBSERVATION).mean, network.mean(OBSERVATION), rtol=1e-6)
    gradient = jax.grad(lambda own: jnp.sum(own.mean(OBSERVATION)))(network)
    assert not gradient.head.weights.any() and not any(leaf.any() for leaf in gradient.head.posterior)
    assert gradient.head.hidden.weight.any() and gradient.encoder.layers[0].weight.any()


def test_a_draw_is_one_of_the_posterior_and_settling_takes_it_back():
    head = believing(make())
    drawn = head.drawn(KEY)
    np.testing.assert_allclose(drawn.weights, sample(head.posterior, KEY), rtol=1e-6)
    assert (np.abs(np.asarray(drawn.weights - WEIGHTS)) > 1e-4).all()
    assert (drawn.weights != head.drawn(keys.member_key(4)).weights).all()
    for one in (head, drawn, drawn.holding(7 * WEIGHTS)):
        np.testing.assert_array_equal(one.settled().weights, WEIGHTS)
    np.testing.assert_array_equal(drawn.holding(7 * WEIGHTS).weights, 7 * WEIGHTS)
    np.testing.assert_array_equal(drawn.posterior.mean, WEIGHTS, "a draw leaves the posterior what it is")


def test_draws_have_the_posterior_s_moments():
    head = believing(make())
    drawn = np.asarray(jax.vmap(lambda key: head.drawn(key).weights)(keys.range_of(KEY, 0, 20_000)))
    for action in range(ACTIONS):
        root = np.asarray(head.posterior.root[action])
        np.testing.assert_allclose(drawn[:, action].mean(axis=0), WEIGHTS[action], atol=0.05)
        np.testing.assert_allclose(np.cov(drawn[:, action].T), root @ root.T, atol=0.06)


def test_what_every_sample_has_of_its_own_is_nothing():
    head = believing(make())
    assert head.sampled(KEY) is head


def test_only_the_features_are_moved():
    network = Network(Dense((WIDTH,)).build((2,), KEY), make())
    marks = network.movers()
    assert marks.head.weights is Mover.NOTHING and set(jax.tree.leaves(marks.head.posterior)) == {Mover.NOTHING}
    assert set(jax.tree.leaves((marks.encoder, marks.head.hidden))) == {Mover.RUN}


@pytest.mark.parametrize(("huber", "loss"), [(None, 9.0), (1.0, 2.5)])
def test_its_loss_is_the_one_that_was_asked_for(huber, loss):
    taken = make(huber=huber)(jnp.ones(WIDTH)).taken(jnp.int32(1))
    np.testing.assert_allclose(taken.loss_to(taken.backup(3.0, 1.0)), loss, rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"prior_deviation": 0.0},
        {"noise_deviation": -1.0},
        {"samples": 0},
        {"chunk": 0},
        {"refit_interval": 0},
        {"resample_interval": 0},
        {"huber": 0.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(SadqError, match=next(iter(settings))):
        Bayesian(**settings)


def test_phi_may_have_a_width_of_its_own():
    head = Bayesian().build(HeadShape(WIDTH, ACTIONS, hidden=5), KEY)
    assert head.hidden.weight.shape == (WIDTH, 5) and head.weights.shape == (ACTIONS, 5)
    assert head.posterior.root.shape == (ACTIONS, 5, 5)
    assert head.drawn(KEY).mean(jnp.ones(WIDTH)).shape == (ACTIONS,)
