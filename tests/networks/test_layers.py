"""Noisy layers against an outer product written out, and what is shared by whom."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.networks import Ensemble, Linear, NoisyLinear, QuantileHead, ScalarHead, ValueNetwork, VectorEncoder, with_noise

KEY = keys.member_key(3)
INPUTS = jnp.linspace(-1, 1, 4)


def shaped(numbers: np.ndarray) -> np.ndarray:
    return np.sign(numbers) * np.sqrt(np.abs(numbers))


def test_spreads_begin_at_half_over_the_root_of_the_inputs():
    layer = NoisyLinear(16, 6, KEY)
    np.testing.assert_allclose(layer.weight_spread, 0.5 / 4)
    np.testing.assert_allclose(layer.bias_spread, 0.5 / 4)
    assert layer.weight_spread.shape == (16, 6) and layer.bias_spread.shape == (6,)
    assert np.abs(layer.weight).max() <= 1 / 4 and np.abs(layer.weight).max() > 0.2


def test_undrawn_it_is_its_mean_layer():
    layer = NoisyLinear(4, 6, KEY)
    np.testing.assert_array_equal(layer(INPUTS), Linear(4, 6, KEY)(INPUTS))


@pytest.mark.parametrize("blocks", [1, 2])
def test_noise_is_an_outer_product_in_every_block(blocks):
    # Spreads that differ everywhere, so that nothing can be mixed up without notice.
    spread = jnp.arange(1.0, 25.0).reshape(4, 6)
    layer = eqx.tree_at(
        lambda one: (one.weight_spread, one.bias_spread),
        NoisyLinear(4, 6, KEY, blocks=blocks),
        (spread, jnp.arange(1.0, 7.0)),
    )
    draw = keys.member_key(8)
    normal = np.asarray(jax.random.normal(draw, (4 * blocks + 6,)), np.float64)
    drawn, width = layer.drawn(draw), 6 // blocks
    at_output = shaped(normal[4 * blocks :])
    for block in range(blocks):
        at_input = shaped(normal[4 * block : 4 * block + 4])
        columns = slice(block * width, (block + 1) * width)
        noise = np.outer(at_input, at_output[columns])
        expected = np.asarray(layer.weight)[:, columns] + np.asarray(spread)[:, columns] * noise
        np.testing.assert_allclose(drawn.weight[:, columns], expected, rtol=1e-5, atol=1e-6)
        # Within a block the noise has rank one; two blocks side by side have rank two.
        assert np.linalg.matrix_rank(noise) == 1
    np.testing.assert_allclose(drawn.bias, layer.bias + layer.bias_spread * at_output, rtol=1e-5)
    whole = (np.asarray(drawn.weight) - np.asarray(layer.weight)) / np.asarray(spread)
    assert np.linalg.matrix_rank(whole, tol=1e-3) == blocks


def test_noise_has_mean_zero_and_the_variance_of_its_shape():
    """E f(e)^2 = E|e| = sqrt(2 / pi): so the noise of a weight has that variance squared, and of a bias itself."""
    layer = NoisyLinear(2, 2, KEY)
    drawn = jax.vmap(layer.drawn)(keys.range_of(KEY, 0, 20_000))
    weight = (np.asarray(drawn.weight) - np.asarray(layer.weight)) / np.asarray(layer.weight_spread)
    bias = (np.asarray(drawn.bias) - np.asarray(layer.bias)) / np.asarray(layer.bias_spread)
    np.testing.assert_allclose(weight.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(weight.var(axis=0), 2 / np.pi, rtol=0.05)
    np.testing.assert_allclose(bias.mean(axis=0), 0, atol=0.04)
    np.testing.assert_allclose(bias.var(axis=0), np.sqrt(2 / np.pi), rtol=0.05)


def network(noisy: bool, dueling: bool = True, key=KEY) -> ValueNetwork:
    encoder = VectorEncoder(4, (8,), keys.purpose(key, "encoder"))
    return ValueNetwork(encoder, ScalarHead(8, 3, dueling, None, keys.purpose(key, "head"), noisy))


def test_a_network_without_noise_is_returned_as_it_is():
    plain = network(noisy=False)
    drawn = plain.with_noise(KEY)
    assert jax.tree.structure(drawn) == jax.tree.structure(plain)
    assert all(one is other for one, other in zip(jax.tree.leaves(drawn), jax.tree.leaves(plain), strict=True))


def test_the_noise_of_a_network_is_fresh_by_key_and_by_layer():
    noisy = network(noisy=True)
    one, same, other = (noisy.with_noise(keys.member_key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.mean(INPUTS), same.mean(INPUTS))
    assert (np.asarray(one.mean(INPUTS)) != np.asarray(other.mean(INPUTS))).all()
    stream, mean = one.head.stream, noisy.head.stream
    assert all(isinstance(layer, Linear) for layer in (stream.hidden, stream.advantage, stream.value))
    # Equal keys for two layers would show in their biases' noise, whose shape is a function of the key alone.
    noises = [
        np.asarray(drawn.bias - own.bias) / np.asarray(own.bias_spread)
        for drawn, own in ((stream.advantage, mean.advantage), (stream.value, mean.value))
    ]
    assert not np.isclose(noises[0][-1], noises[1][-1])


def test_a_noisy_network_acts_by_its_mean_when_undrawn():
    noisy, plain = network(noisy=True), network(noisy=False)
    np.testing.assert_array_equal(noisy.mean(INPUTS), noisy.mean(INPUTS))
    np.testing.assert_allclose(noisy.mean(INPUTS), plain.mean(INPUTS), rtol=1e-6)


def test_a_batch_shares_one_draw():
    noisy, batch = network(noisy=True).with_noise(KEY), jnp.tile(INPUTS, (5, 1))
    values = np.asarray(jax.vmap(noisy.mean)(batch))
    np.testing.assert_array_equal(values, np.tile(values[:1], (5, 1)))


def test_gradients_reach_means_and_spreads():
    noisy = network(noisy=True)
    gradient = jax.grad(lambda net: jnp.sum(net.with_noise(KEY).mean(INPUTS) ** 2))(noisy)
    for layer in (gradient.head.stream.hidden, gradient.head.stream.advantage, gradient.head.stream.value):
        assert np.abs(layer.mean.weight).max() > 0 and np.abs(layer.weight_spread).max() > 0


def test_the_networks_of_an_ensemble_draw_apart():
    members = jax.vmap(lambda _: network(noisy=True))(jnp.arange(3))  # equal weights, so only noise tells them apart
    values = np.asarray(Ensemble(members, 3).with_noise(KEY).values(INPUTS))
    assert values.shape == (3, 3)
    assert len(np.unique(values[:, 0])) == 3


def test_a_noisy_quantile_head_averages_the_layers_that_were_drawn():
    head = QuantileHead(8, 3, True, 5, 1.0, "interpolate", KEY, noisy=True)
    features = jnp.linspace(0, 1, 8)
    for own in (head, with_noise(head, KEY)):
        np.testing.assert_allclose(own.mean(features), own(features).mean, rtol=1e-5, atol=1e-6)
    assert not np.allclose(head.mean(features), with_noise(head, KEY).mean(features))
