"""A stream has the paper's sizes, and dueling is V + A - mean A, over the legal actions where some are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.networks import ActionStream, Dense, HeadShape, Network, NoisyLinear, Scalar
from sadq.networks.layers import draw_layers

KEY = keys.member_key(3)
OBSERVATION = jnp.linspace(-1, 1, 6)
FEATURES = jnp.linspace(0, 1, 8)


def network(dueling: bool) -> Network:
    encoder = Dense((32, 16)).build((6,), keys.purpose(KEY, "encoder"))
    return Network(encoder, Scalar().build(HeadShape(16, 3, dueling), keys.purpose(KEY, "head")))


def test_each_stream_adds_a_hidden_layer_of_the_last_size():
    sizes = {leaf.shape for leaf in jax.tree.leaves(network(dueling=True)) if leaf.ndim == 2}
    assert sizes == {(6, 32), (32, 16), (16, 32), (16, 3), (16, 1)}
    assert {leaf.shape for leaf in jax.tree.leaves(network(dueling=False)) if leaf.ndim == 2} == {
        (6, 32),
        (32, 16),
        (16, 16),
        (16, 3),
    }


def parts(net: Network) -> tuple[np.ndarray, np.ndarray]:
    """(V [1], A [3]) of a dueling network, from its layers."""
    stream = net.head.stream
    hidden = jax.nn.relu(stream.hidden(net.encode(OBSERVATION)))
    return np.asarray(stream.value(hidden[16:])), np.asarray(stream.advantage(hidden[:16]))


def test_dueling_is_value_plus_advantage_without_its_mean():
    net = network(dueling=True)
    value, advantage = parts(net)
    np.testing.assert_allclose(net(OBSERVATION).mean, value + advantage - advantage.mean(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", [[True, True, True], [True, False, True], [False, True, False]])
def test_a_mask_limits_the_dueling_mean(mask):
    net, mask = network(dueling=True), np.array(mask)
    value, advantage = parts(net)
    expected = value + advantage - advantage[mask].mean()
    np.testing.assert_allclose(net(OBSERVATION, jnp.asarray(mask)).mean, expected, rtol=1e-5, atol=1e-6)


def test_a_mask_that_allows_nothing_leaves_values_finite():
    values = network(dueling=True)(jnp.ones(6), jnp.zeros(3, bool)).mean
    assert np.isfinite(values).all()


@pytest.mark.parametrize("dueling", [False, True])
def test_atoms_lie_together_by_action(dueling):
    """f32[A, N]: the n-th number of an action is one dueling network of its own, with or without a mask."""
    stream = ActionStream(HeadShape(8, 3, dueling), 4, KEY)
    hidden = jax.nn.relu(stream.hidden(FEATURES))
    advantage = np.asarray(stream.advantage(hidden[:8])).reshape(3, 4)
    expected = advantage
    if dueling:
        expected = advantage + np.asarray(stream.value(hidden[8:])) - advantage.mean(axis=0)
    np.testing.assert_allclose(stream(FEATURES), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stream(FEATURES, jnp.ones(3, bool)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dueling", "noisy"), [(False, False), (True, False), (True, True)])
def test_the_averaged_stream_gives_the_mean_of_the_numbers(dueling, noisy):
    stream = ActionStream(HeadShape(8, 3, dueling, noisy), 4, KEY)
    for own in (stream, draw_layers(stream, KEY)):
        for mask in (None, jnp.array([True, False, True])):
            short = own.averaged()(FEATURES, mask)
            assert short.shape == (3, 1)
            np.testing.assert_allclose(short[:, 0], own(FEATURES, mask).mean(axis=1), rtol=1e-5, atol=1e-6)
    if noisy:
        assert not np.allclose(stream(FEATURES), draw_layers(stream, KEY)(FEATURES))


def test_a_noisy_dueling_stream_has_noise_of_its_own_in_either_half():
    stream = ActionStream(HeadShape(8, 3, dueling=True, noisy=True), 1, KEY)
    layers = (stream.hidden, stream.advantage, stream.value)
    assert all(isinstance(layer, NoisyLinear) for layer in layers)
    assert [layer.blocks for layer in layers] == [2, 1, 1]
    plain = ActionStream(HeadShape(8, 3, noisy=True), 1, KEY)
    assert plain.hidden.blocks == 1 and plain.value is None


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_the_hidden_layer_may_have_a_width_of_its_own(dueling, noisy):
    stream = ActionStream(HeadShape(8, 3, dueling, noisy, hidden=5), 4, KEY)
    assert stream.hidden.weight.shape == (8, 10 if dueling else 5) and stream.advantage.weight.shape == (5, 12)
    assert stream(FEATURES).shape == (3, 4) and (stream.value is None) != dueling
    masked = stream(FEATURES, jnp.ones(3, bool))
    np.testing.assert_allclose(stream(FEATURES), masked, rtol=1e-5, atol=1e-6)


def test_it_is_as_wide_as_the_features_unless_it_is_told():
    for shape in (HeadShape(8, 3, True), HeadShape(8, 3, True, hidden=8)):
        assert shape.width == 8
        np.testing.assert_array_equal(
            ActionStream(shape, 4, KEY)(FEATURES), ActionStream(HeadShape(8, 3, True), 4, KEY)(FEATURES)
        )
