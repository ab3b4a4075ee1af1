"""Heads give the returns they promise, and their short cut to the mean is the mean of the whole return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core import Choice
from sadq.networks import (
    BayesianHead,
    CategoricalHead,
    Ensemble,
    FractionHead,
    ImplicitHead,
    QuantileHead,
    ScalarHead,
    ValueNetwork,
    VectorEncoder,
)

KEY, WIDTH, ACTIONS = keys.member_key(3), 8, 3
FEATURES = jax.random.uniform(keys.member_key(1), (WIDTH,))
MASK = jnp.array([True, False, True])


def make(kind: str, dueling: bool = False, mixing: str = "interpolate", noisy: bool = False):
    match kind:
        case "scalar":
            return ScalarHead(WIDTH, ACTIONS, dueling, None, KEY, noisy)
        case "categorical":
            return CategoricalHead(WIDTH, ACTIONS, dueling, 11, (-3.0, 5.0), KEY, noisy)
        case "quantile":
            return QuantileHead(WIDTH, ACTIONS, dueling, 7, 1.0, mixing, KEY, noisy)
        case "implicit":
            return ImplicitHead(WIDTH, ACTIONS, dueling, 6, 5, 1.0, mixing, KEY, noisy)
        case "fraction":
            return FractionHead(WIDTH, ACTIONS, dueling, 6, 5, 1.0, mixing, KEY, noisy)
    return BayesianHead(WIDTH, ACTIONS, None, KEY)


KINDS = ("scalar", "categorical", "quantile", "implicit", "fraction")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dueling", [False, True])
def test_the_short_cut_is_the_mean_of_the_whole_return(kind, dueling):
    head = jax.tree.map(lambda leaf: 3 * leaf, make(kind, dueling))
    for mask in (None, MASK):
        for key in (None, keys.member_key(9)):
            whole, short = head(FEATURES, mask, key).mean, head.mean(FEATURES, mask, key)
            assert short.shape == (ACTIONS,) and np.ptp(short) > 0.01
            np.testing.assert_allclose(short, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["quantile", "implicit", "fraction"])
def test_both_ways_have_the_same_gradient(kind):
    head = make(kind, dueling=True)
    slopes = [
        jax.grad(lambda own: jnp.sum(value(own) * jnp.arange(3.0)))(head)
        for value in (lambda own: own(FEATURES).mean, lambda own: own.mean(FEATURES))
    ]
    for one, other in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dueling_mask_moves_all_values_by_the_same_amount(kind):
    """V + A - mean A: a mask changes which A are averaged, and so a constant."""
    head = make(kind, dueling=True)
    if kind == "categorical":
        moved = np.asarray(head(FEATURES, MASK).logits - head(FEATURES).logits)
    elif kind == "scalar":
        moved = np.asarray(head(FEATURES, MASK).values - head(FEATURES).values)
    else:
        moved = np.asarray(head(FEATURES, MASK).values - head(FEATURES).values)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[:1], moved.shape), atol=1e-5)
    assert np.abs(moved).max() > 1e-3


def test_a_categorical_head_spreads_its_atoms_evenly_over_its_support():
    returns = make("categorical")(FEATURES)
    np.testing.assert_allclose(returns.atoms, np.linspace(-3, 5, 11), rtol=1e-6)
    assert returns.logits.shape == (ACTIONS, 11)
    np.testing.assert_allclose(returns.probabilities.sum(axis=1), 1, rtol=1e-6)


def test_a_quantile_head_has_the_middles_of_equal_parts():
    returns = make("quantile")(FEATURES)
    np.testing.assert_allclose(returns.midpoints, [1 / 14, 3 / 14, 5 / 14, 7 / 14, 9 / 14, 11 / 14, 13 / 14], rtol=1e-6)
    np.testing.assert_allclose(returns.widths, 1 / 7, rtol=1e-6)
    assert returns.values.shape == (ACTIONS, 7)


@pytest.mark.parametrize("kind", ["quantile", "implicit", "fraction"])
@pytest.mark.parametrize(("mixing", "parts"), [("interpolate", 1), ("mixture", 2)])
def test_the_kind_of_mixing_reaches_the_target(kind, mixing, parts):
    returns = make(kind, mixing=mixing)(FEATURES)
    choice = Choice(jnp.array([0, 2]), jnp.array([0.3, 0.7]))
    target = returns.under(choice)
    assert target.values.shape[0] == parts
    np.testing.assert_allclose(target.mean, 0.3 * returns.mean[0] + 0.7 * returns.mean[2], rtol=1e-4, atol=1e-6)


# Bayesian


def test_a_bayesian_head_is_linear_in_its_features_and_its_weights_take_no_gradient():
    head = make("bayesian")
    assert not head.weights.any()
    network = ValueNetwork(VectorEncoder(2, (WIDTH,), KEY), head).with_weights(jnp.arange(24.0).reshape(3, 8))
    observation = jnp.array([0.5, -2.0])
    phi = np.maximum(np.asarray(network.encoder(observation)) @ head.hidden.weight + head.hidden.bias, 0)
    np.testing.assert_allclose(network.mean(observation), np.arange(24.0).reshape(3, 8) @ phi, rtol=1e-5)
    np.testing.assert_allclose(network(observation).mean, network.mean(observation), rtol=1e-6)
    gradient = jax.grad(lambda own: jnp.sum(own.mean(observation)))(network)
    assert not gradient.head.weights.any()
    assert gradient.head.hidden.weight.any() and gradient.encoder.layers[0].weight.any()


# Ensembles


@pytest.mark.parametrize("kind", ["scalar", "categorical", "implicit"])
def test_an_ensemble_averages_its_members(kind):
    def one(key):
        return ValueNetwork(
            VectorEncoder(2, (WIDTH,), key), jax.tree.map(lambda leaf: leaf * jax.random.uniform(key), make(kind))
        )

    members = jax.vmap(one)(keys.range_of(KEY, 0, 4))
    ensemble, observation = Ensemble(members, 4), jnp.array([0.5, -2.0])
    apart = np.stack([jax.tree.map(lambda leaf: leaf[index], members).mean(observation) for index in range(4)])
    np.testing.assert_allclose(ensemble.values(observation), apart, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ensemble.mean(observation), apart.mean(axis=0), rtol=1e-5, atol=1e-6)
    assert ensemble.draws_levels == (kind == "implicit")
