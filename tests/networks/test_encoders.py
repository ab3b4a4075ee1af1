"""Encoders: dense layers over all the numbers of an observation, and convolutions over a stack of images."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.errors import SadqError
from sadq.networks import ENCODERS, Convolution, Dense, HeadShape, Nature, Network, Quantile

KEY = keys.member_key(3)


def by_hand(encoder, observation: np.ndarray) -> np.ndarray:
    features = np.asarray(observation, np.float64).reshape(-1)
    for layer in encoder.layers:
        features = np.maximum(features @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64), 0)
    return features


def test_dense_layers_by_hand():
    encoder = Dense((7, 5)).build((3,), KEY)
    assert [layer.weight.shape for layer in encoder.layers] == [(3, 7), (7, 5)]
    observation = jnp.array([0.5, -1.0, 2.0])
    np.testing.assert_allclose(encoder(observation), by_hand(encoder, observation), rtol=1e-5, atol=1e-6)
    assert (np.asarray(encoder(observation)) > 0).any()


def test_layers_are_drawn_apart():
    first, second = Dense((6, 6)).build((6,), KEY).layers
    assert not np.isin(first.weight, second.weight).any()


def test_images_of_bytes_are_read_as_numbers():
    """uint8[4, 4, 1]: 255 is 255, not -1, and nothing wraps in the first product."""
    encoder = Dense((8,)).build((4, 4, 1), KEY)
    image = jax.random.randint(KEY, (4, 4, 1), 0, 256).astype(jnp.uint8).at[0, 0, 0].set(255)
    features = encoder(image)
    assert features.shape == (8,) and features.dtype == jnp.float32
    np.testing.assert_allclose(features, by_hand(encoder, np.asarray(image)), rtol=1e-4, atol=1e-3)
    assert np.max(features) > 1


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ((), "at least one layer"),
        ((0,), "at least one layer"),
        ((8, -1), "at least one layer"),
        ((8.0,), "whole numbers"),
    ],
)
def test_sizes_that_make_no_layers_are_refused(hidden, expected):
    with pytest.raises(SadqError, match=expected):
        Dense(hidden)


def test_a_list_of_sizes_is_taken_for_a_tuple():
    assert Dense([8, 4]) == Dense((8, 4))


# Convolutions

STACK = np.random.default_rng(0).integers(0, 256, (4, 84, 84)).astype(np.uint8)
SMALL = Nature(channels=(6, 5), kernels=(4, 3), strides=(2, 1), hidden=10)


def small_network(key=KEY) -> Network:
    features = 3 * 4 * 5
    encoder = SMALL.build((3, 12, 14), keys.purpose(key, "encoder"))
    shape = HeadShape(features, 3, dueling=True, hidden=SMALL.head_width)
    return Network(encoder, Quantile(4).build(shape, keys.purpose(key, "head")))


def filled(seed: int) -> Network:
    """With any numbers in it: drawing initial weights takes longer to compile than all else here."""
    random = np.random.default_rng(seed)
    made = jax.eval_shape(small_network)
    return jax.tree.map(lambda leaf: (random.normal(size=leaf.shape) / 5).astype(leaf.dtype), made)


@functools.cache
def nature():
    return Nature().build((4, 84, 84), KEY)


@jax.jit
def seen_by(encoder, observation: jax.Array) -> jax.Array:
    return encoder(observation)


def test_nature_has_the_sizes_of_its_paper():
    assert Nature().head_width == 2048 and ENCODERS.choice("nature") == Nature()
    encoder = nature()
    assert [layer.linear.weight.shape for layer in encoder.layers] == [(256, 32), (512, 64), (576, 64)]
    features = seen_by(encoder, STACK)
    assert features.shape == (3136,) and features.dtype == jnp.float32
    assert (np.asarray(features) >= 0).all() and (np.asarray(features) > 0).any()


def test_nature_by_hand():
    """Layer by layer, on shares of 255 with the channels last; a layer is drawn by its place."""
    encoder, image = nature(), np.moveaxis(STACK, 0, -1) / np.float32(255)
    shapes = [(4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
    for index, (layer, shape) in enumerate(zip(encoder.layers, shapes, strict=True)):
        expected = Convolution(*shape, keys.at(KEY, index))
        np.testing.assert_array_equal(layer.linear.weight, expected.linear.weight)
        image = np.maximum(seen_by(expected, image), 0)
    np.testing.assert_allclose(seen_by(encoder, STACK), image.reshape(-1), rtol=1e-4, atol=1e-5)


def test_bytes_are_shares_of_255_and_floats_are_shares_already():
    features = seen_by(nature(), STACK)
    shares = STACK.astype(np.float32) / np.float32(255)
    np.testing.assert_allclose(features, seen_by(nature(), shares), rtol=1e-4, atol=1e-6)
    assert not np.allclose(features, seen_by(nature(), STACK.astype(np.float32)))


def test_gradients_reach_every_layer_and_a_predicted_image():
    network, image = filled(0), np.random.default_rng(0).random((3, 12, 14), np.float32)
    gradient, by_image = jax.jit(jax.grad(lambda own, seen: jnp.sum(own.mean(seen) ** 2), argnums=(0, 1)))(
        network, image
    )
    for layer in gradient.encoder.layers:
        assert np.abs(layer.linear.weight).max() > 0 and np.abs(layer.linear.bias).max() > 0
    assert by_image.shape == image.shape and np.abs(by_image).max() > 0


def test_members_see_what_each_sees_alone():
    members = [filled(seed) for seed in range(3)]
    networks = jax.tree.map(lambda *leaves: np.stack(leaves), *members)
    images = np.random.default_rng(0).integers(0, 256, (3, 5, 3, 12, 14)).astype(np.uint8)

    def value_and_gradient(network: Network, seen: jax.Array):
        return jax.value_and_grad(lambda own: jnp.mean(jax.vmap(own.mean)(seen) ** 2))(network)

    together = jax.jit(jax.vmap(value_and_gradient))(networks, images)
    one_by_one = jax.jit(value_and_gradient)
    for member, network in enumerate(members):
        alone = one_by_one(network, images[member])
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(one[member], other, rtol=1e-4, atol=1e-6)


def test_heads_on_images_are_as_wide_as_they_are_told():
    head = jax.eval_shape(small_network).head
    assert head.stream.hidden.weight.shape == (3 * 4 * 5, 20) and head.stream.advantage.weight.shape == (10, 12)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((6,), "expected a stack of images"),
        ((84, 84), "expected a stack of images"),
        ((1, 4, 84, 84), "expected a stack of images"),
        ((4, 35, 84), "too small"),
        ((4, 84, 7), "too small"),
    ],
)
def test_what_is_no_stack_of_images_is_refused(shape, why):
    with pytest.raises(SadqError, match=why) as refused:
        Nature().build(shape, KEY)
    assert str(shape) in str(refused.value)


def test_the_smallest_image_becomes_one_place_of_the_last_layer():
    smallest = (4, 36, 36)
    seen = jax.eval_shape(lambda key: Nature().build(smallest, key)(jnp.zeros(smallest)), KEY)
    assert seen.shape == (64,)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"channels": ()}, "at least one layer"),
        ({"kernels": (8, 4)}, "must name 3 layers"),
        ({"strides": (4, 2, 1, 1)}, "must name 3 layers"),
        ({"strides": (3, 2, 1)}, "must each divide its kernel"),
        ({"hidden": 0}, "whole number of at least 1"),
    ],
)
def test_settings_that_make_no_network_are_refused(settings, why):
    with pytest.raises(SadqError, match=why):
        Nature(**settings)
