"""Layers have the paper's sizes and bounds, and dueling is V + A - mean A."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.networks import Linear, ScalarHead, ValueNetwork, VectorEncoder

KEY = keys.member_key(3)


def test_a_layer_is_drawn_within_one_over_the_root_of_its_inputs():
    layer = Linear(400, 300, KEY)
    for drawn in (layer.weight, layer.bias):
        assert float(jnp.abs(drawn).max()) <= 0.05
        assert float(jnp.abs(drawn).max()) > 0.045
    assert abs(float(layer.weight.std()) - 0.05 / np.sqrt(3)) < 1e-3


def network(dueling: bool, actions: int = 3) -> ValueNetwork:
    encoder = VectorEncoder(6, (32, 16), keys.purpose(KEY, "encoder"))
    return ValueNetwork(encoder, ScalarHead(16, actions, dueling, None, keys.purpose(KEY, "head")))


def test_each_stream_adds_a_hidden_layer_of_the_last_size():
    sizes = {leaf.shape for leaf in jax.tree.leaves(network(dueling=True)) if leaf.ndim == 2}
    assert sizes == {(6, 32), (32, 16), (16, 32), (16, 3), (16, 1)}
    assert {leaf.shape for leaf in jax.tree.leaves(network(dueling=False)) if leaf.ndim == 2} == {
        (6, 32),
        (32, 16),
        (16, 16),
        (16, 3),
    }


def streams(net: ValueNetwork, observation) -> tuple[np.ndarray, np.ndarray]:
    """(V [1], A [3]) of a dueling network, from its layers."""
    stream = net.head.stream
    hidden = jax.nn.relu(stream.hidden(net.encoder(observation)))
    return np.asarray(stream.value(hidden[16:])), np.asarray(stream.advantage(hidden[:16]))


def test_dueling_is_value_plus_advantage_without_its_mean():
    net, observation = network(dueling=True), jnp.linspace(-1, 1, 6)
    value, advantage = streams(net, observation)
    np.testing.assert_allclose(net(observation).mean, value + advantage - advantage.mean(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", [[True, True, True], [True, False, True], [False, True, False]])
def test_a_mask_limits_the_dueling_mean(mask):
    net, observation, mask = network(dueling=True), jnp.linspace(-1, 1, 6), np.array(mask)
    value, advantage = streams(net, observation)
    expected = value + advantage - advantage[mask].mean()
    np.testing.assert_allclose(net(observation, jnp.asarray(mask)).mean, expected, rtol=1e-5, atol=1e-6)


def test_a_mask_that_allows_nothing_leaves_values_finite():
    values = network(dueling=True)(jnp.ones(6), jnp.zeros(3, bool)).mean
    assert np.isfinite(values).all()
