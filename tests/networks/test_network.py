"""A network is an encoder and a head that are callable apart; an ensemble is the same with an axis K on every leaf."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.errors import SadqError
from sadq.networks import (
    Bayesian,
    Categorical,
    Dense,
    Fraction,
    Head,
    HeadShape,
    Implicit,
    Mover,
    Network,
    Quantile,
    Scalar,
    ensemble_keys,
    ensemble_means,
    make_ensemble,
    over_networks,
)
from sadq.networks.network import first_network, of_parameters, settled

KEY, WIDTH, ACTIONS = keys.member_key(3), 8, 3
OBSERVATION = jnp.array([0.5, -2.0])
HEADS = [Scalar(), Categorical(5), Quantile(5), Implicit(4, 5), Fraction(4, 5), Bayesian()]
every_head = pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)


def maker(head: Any, **shape: Any):
    def make(key) -> Network:
        encoder = Dense((WIDTH,)).build((2,), keys.purpose(key, "encoder"))
        return Network(encoder, head.build(HeadShape(WIDTH, ACTIONS, **shape), keys.purpose(key, "head")))

    return make


def alone(networks: Network, index: int) -> Network:
    return jax.tree.map(lambda leaf: leaf[index], networks)


def bitwise(left: Any, right: Any) -> bool:
    return jax.tree.structure(left) == jax.tree.structure(right) and all(
        np.array_equal(one, other) for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    )


@every_head
def test_encoder_and_head_are_callable_apart(head):
    network = alone(filled(head, 1), 0)
    features = network.encode(OBSERVATION)
    assert features.shape == (WIDTH,)
    assert bitwise(network(OBSERVATION), network.head(features))
    np.testing.assert_array_equal(network.mean(OBSERVATION), network.head.mean(features))


def test_a_head_can_be_exchanged():
    one, other = maker(Scalar())(KEY), maker(Scalar())(keys.member_key(4))
    mixed = one.with_head(other.head)
    np.testing.assert_array_equal(mixed.mean(OBSERVATION), other.head.mean(one.encode(OBSERVATION)))
    assert one.with_head(one.head) is one


def test_each_of_the_three_draws_reaches_its_part():
    noisy, levels = maker(Scalar(), noisy=True)(KEY), maker(Implicit(4, 5))(KEY)
    assert noisy.sampled(KEY) is noisy and noisy.settled() is noisy
    assert (noisy.drawn(KEY).mean(OBSERVATION) != noisy.mean(OBSERVATION)).all()
    np.testing.assert_array_equal(levels.sampled(KEY)(OBSERVATION).midpoints, jax.random.uniform(KEY, (4,)))
    assert bitwise(levels.drawn(KEY), levels), "levels are a sample's, not a batch's"
    bayesian = maker(Bayesian())(KEY)
    held = bayesian.with_head(bayesian.head.holding(jnp.ones((ACTIONS, WIDTH))))
    assert bitwise(held.drawn(KEY), held), "a last layer is drawn by whoever keeps it"
    assert bitwise(held.settled(), bayesian)


@every_head
def test_every_parameter_has_one_that_moves_it(head):
    network = alone(filled(head, 1), 0)
    marks = network.movers()
    assert jax.tree.structure(marks) == jax.tree.structure(network)
    assert set(jax.tree.leaves(marks.encoder)) == {Mover.RUN}
    assert bitwise(jax.tree.leaves(marks.head), jax.tree.leaves(network.head.movers()))


# Ensembles


def test_one_network_alone_takes_the_key_itself():
    assert (jax.random.key_data(ensemble_keys(KEY, 1)) == jax.random.key_data(KEY)[None]).all()
    several = jax.random.key_data(ensemble_keys(KEY, 3))
    np.testing.assert_array_equal(several, jax.random.key_data(keys.range_of(KEY, 0, 3)))


def value_and_gradient(network: Network):
    """Of everything that a network may draw: a last layer, levels and noise."""

    def loss(network):
        drawn = network.with_head(network.head.drawn(KEY)).drawn(KEY).sampled(KEY)
        return jnp.sum(jnp.square(drawn.mean(OBSERVATION) - 1)), drawn.mean(OBSERVATION)

    return jax.value_and_grad(loss, has_aux=True)(network)


def filled(head: Any, size: int) -> Network:
    """Networks with any numbers in them: drawing initial weights takes longer to compile than all else here."""
    made = jax.eval_shape(maker(head, noisy=isinstance(head, Scalar)), KEY)
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: random.normal(size=(size, *leaf.shape)).astype(leaf.dtype) / 2, made)


def in_ensemble(networks: Network):
    return over_networks(value_and_gradient, networks), ensemble_means(networks, OBSERVATION)


def on_its_own(network: Network):
    return value_and_gradient(network), network.mean(OBSERVATION)


@every_head
def test_an_ensemble_of_one_is_the_network_alone_to_the_bit(head):
    ensemble = filled(head, 1)
    apart = jax.jit(on_its_own)(alone(ensemble, 0))
    assert bitwise(first_network(jax.jit(in_ensemble)(ensemble)), apart)
    (loss, _), gradient = apart[0]
    assert loss > 0 and any(leaf.any() for leaf in jax.tree.leaves(gradient))


@every_head
def test_an_ensemble_of_five_is_five_networks(head):
    ensemble, single = filled(head, 5), jax.jit(on_its_own)
    together = jax.tree.map(np.asarray, jax.jit(in_ensemble)(ensemble))
    for index in range(5):
        pairs = zip(
            jax.tree.leaves(alone(together, index)), jax.tree.leaves(single(alone(ensemble, index))), strict=True
        )
        for one, other in pairs:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert len(np.unique(together[0][0][0])) == 5


class Holding(eqx.Module):
    held: Any


@pytest.mark.parametrize("leaf", [2, 0.5, True, "text", jax.nn.relu, jnp.arange(3), jnp.ones(2, bool), KEY])
def test_a_module_whose_leaf_is_no_array_of_floats_is_refused(leaf):
    with pytest.raises(
        SadqError, match=r"^encoder has .* in \.held\['a'\], expected an array of floats: mark .*static"
    ):
        of_parameters("encoder", Holding({"a": leaf}))


@pytest.mark.parametrize("leaf", [jnp.ones(2), np.ones((), np.float32), jnp.ones(2, jnp.bfloat16), None, ()])
def test_a_module_of_floats_is_taken_as_it_is(leaf):
    module = Holding(leaf)
    assert of_parameters("encoder", module, Holding) is module
    with pytest.raises(SadqError, match="^head Holding is no Head: let its class be a subclass of that.$"):
        of_parameters("head", module, Head)


@pytest.mark.parametrize("size", [1, 3])
def test_each_network_begins_with_weights_of_its_own_key(size):
    make = jax.jit(maker(Scalar()))
    ensemble = make_ensemble(make, KEY, size)
    for index, key in enumerate([KEY] if size == 1 else [keys.at(KEY, index) for index in range(size)]):
        assert bitwise(alone(ensemble, index), make(key))


@pytest.mark.parametrize("size", [1, 3])
def test_over_networks_takes_and_gives_the_axis_on_every_leaf(size):
    stacked = {"a": jnp.arange(2.0 * size).reshape(size, 2), "b": jnp.arange(float(size))}
    found = over_networks(lambda tree, add: (tree["a"] + add, tree["b"] * add), stacked, jnp.full(size, 10.0))
    np.testing.assert_array_equal(found[0], np.asarray(stacked["a"]) + 10)
    np.testing.assert_array_equal(found[1], np.asarray(stacked["b"]) * 10)


def test_the_networks_of_an_ensemble_draw_apart():
    one = filled(Scalar(), 1)
    alike = jax.tree.map(
        lambda leaf: np.tile(leaf, (3, *(1 for _ in leaf.shape[1:]))), one
    )  # only noise tells them apart
    drawn = over_networks(lambda network, key: network.drawn(key), alike, ensemble_keys(KEY, 3))
    values = np.asarray(ensemble_means(drawn, OBSERVATION))
    assert values.shape == (3, ACTIONS) and len(np.unique(values[:, 0])) == 3


def test_all_networks_are_settled():
    networks = filled(Bayesian(), 2)
    assert not np.isin(networks.head.weights, networks.head.posterior.mean).any()
    np.testing.assert_array_equal(settled(networks).head.weights, networks.head.posterior.mean)
