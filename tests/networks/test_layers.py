"""Layers have the paper's bounds; noisy ones are an outer product written out, and their mean until they are drawn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.networks import Dense, HeadShape, Linear, Network, NoisyLinear, Scalar
from sadq.networks.layers import draw_layers

KEY = keys.member_key(3)
INPUTS = jnp.linspace(-1, 1, 4)


def shaped(numbers: np.ndarray) -> np.ndarray:
    return np.sign(numbers) * np.sqrt(np.abs(numbers))


def test_a_layer_is_drawn_within_one_over_the_root_of_its_inputs():
    layer = Linear(400, 300, KEY)
    for drawn in (layer.weight, layer.bias):
        assert float(jnp.abs(drawn).max()) <= 0.05
        assert float(jnp.abs(drawn).max()) > 0.045
    assert abs(float(layer.weight.std()) - 0.05 / np.sqrt(3)) < 1e-3
    assert not any(np.array_equal(layer.bias, row) for row in np.asarray(layer.weight))


def test_a_layer_is_a_product_and_a_bias():
    layer = Linear(4, 3, KEY)
    expected = np.asarray(INPUTS, np.float64) @ np.asarray(layer.weight) + np.asarray(layer.bias)
    np.testing.assert_allclose(layer(INPUTS), expected, rtol=1e-5, atol=1e-6)
    other = layer.replaced(jnp.zeros((4, 3)), jnp.arange(3.0))
    np.testing.assert_array_equal(other(INPUTS), [0, 1, 2])


# Noise


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
    np.testing.assert_allclose(drawn.bias, layer.bias + layer.bias_spread * at_output, rtol=1e-5)
    # Within a block the noise has rank one; two blocks side by side have rank two.
    whole = (np.asarray(drawn.weight) - np.asarray(layer.weight)) / np.asarray(spread)
    assert np.linalg.matrix_rank(whole[:, :width], tol=1e-3) == 1
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


# Networks of such layers


def network(noisy: bool, dueling: bool = True) -> Network:
    encoder = Dense((8,)).build((4,), keys.purpose(KEY, "encoder"))
    return Network(encoder, Scalar().build(HeadShape(8, 3, dueling, noisy), keys.purpose(KEY, "head")))


def test_a_network_without_noise_is_returned_as_it_is():
    plain = network(noisy=False)
    drawn = plain.drawn(KEY)
    assert jax.tree.structure(drawn) == jax.tree.structure(plain)
    assert all(one is other for one, other in zip(jax.tree.leaves(drawn), jax.tree.leaves(plain), strict=True))


def test_the_noise_of_a_network_is_fresh_by_key_and_by_layer():
    noisy = network(noisy=True)
    one, same, other = (noisy.drawn(keys.member_key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.mean(INPUTS), same.mean(INPUTS))
    assert (np.asarray(one.mean(INPUTS)) != np.asarray(other.mean(INPUTS))).all()
    stream, mean = one.head.stream, noisy.head.stream
    assert all(isinstance(layer, Linear) for layer in (stream.hidden, stream.advantage, stream.value))
    # Each layer has the noise of its own key: that of its place among the noisy layers.
    layers = ((stream.hidden, mean.hidden), (stream.advantage, mean.advantage), (stream.value, mean.value))
    for index, (drawn, own) in enumerate(layers):
        expected = own.drawn(keys.at(keys.member_key(0), index))
        np.testing.assert_array_equal(drawn.weight, expected.weight)
        np.testing.assert_array_equal(drawn.bias, expected.bias)
        assert (drawn.bias != own.bias).all()


def test_a_noisy_network_acts_by_its_mean_when_undrawn():
    """However wide the spreads are: undrawn it has the values of the plain network of the same key."""
    noisy, plain = network(noisy=True), network(noisy=False)
    wide = jax.tree_util.tree_map_with_path(
        lambda path, leaf: 100 * leaf if "spread" in jax.tree_util.keystr(path) else leaf, noisy
    )
    for one in (noisy, wide):
        np.testing.assert_allclose(one.mean(INPUTS), plain.mean(INPUTS), rtol=1e-6)
        np.testing.assert_allclose(one(INPUTS).mean, plain.mean(INPUTS), rtol=1e-5)
    assert not np.allclose(wide.drawn(KEY).mean(INPUTS), plain.mean(INPUTS), rtol=0.1)


def test_a_draw_is_final():
    """What was drawn has nothing left to draw, so that all samples of a batch share it."""
    drawn = network(noisy=True).drawn(KEY)
    again = drawn.drawn(keys.member_key(8))
    assert jax.tree.all(jax.tree.map(lambda one, other: one is other, drawn, again))
    assert not any(isinstance(node, NoisyLinear) for node in jax.tree.leaves(drawn, is_leaf=_is_noisy))


def _is_noisy(node) -> bool:
    return isinstance(node, NoisyLinear)


def test_gradients_reach_means_and_spreads():
    noisy = network(noisy=True)
    gradient = jax.grad(lambda net: jnp.sum(net.drawn(KEY).mean(INPUTS) ** 2))(noisy)
    for layer in (gradient.head.stream.hidden, gradient.head.stream.advantage, gradient.head.stream.value):
        assert np.abs(layer.mean.weight).max() > 0 and np.abs(layer.weight_spread).max() > 0


def test_layers_are_drawn_wherever_they_lie_in_a_tree():
    tree = {"first": [NoisyLinear(2, 2, KEY), jnp.ones(3)], "second": NoisyLinear(2, 2, KEY)}
    drawn = draw_layers(tree, KEY)
    assert isinstance(drawn["first"][0], Linear) and drawn["first"][1] is tree["first"][1]
    assert (drawn["first"][0].weight != drawn["second"].weight).all(), "equal layers, each with a draw of its own"
