"""Convolutions written as matrix products are convolutions, and stay so where many members have weights of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.errors import SadqError
from sadq.networks import Convolution
from sadq.networks.convolutions import size_after

KEY = keys.member_key(3)
NATURE = [(4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
CASES = [
    *zip(NATURE, [(84, 84), (20, 20), (9, 9)], strict=True),
    ((4, 32, 8, 4), (12, 21)),  # pixels are left over
    ((3, 5, 6, 2), (13, 10)),
    ((1, 2, 3, 3), (8, 11)),
    ((2, 3, 1, 1), (3, 5)),
]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def plain(layer: Convolution, image: jax.Array) -> jax.Array:
    """The same by XLA's own convolution."""
    stride, across = layer.stride, layer.kernel // layer.stride
    by_block = layer.linear.weight.reshape(across, across, stride, stride, image.shape[-1], -1)
    weight = by_block.transpose(0, 2, 1, 3, 4, 5).reshape(layer.kernel, layer.kernel, image.shape[-1], -1)
    numbers = ("NHWC", "HWIO", "NHWC")
    found = jax.lax.conv_general_dilated(
        image[None], weight, (stride, stride), "VALID", dimension_numbers=numbers, precision="highest"
    )
    return found[0] + layer.linear.bias


@pytest.mark.parametrize(("shape", "sides"), CASES)
def test_it_is_a_convolution(shape, sides):
    layer = Convolution(*shape, KEY)
    found, expected = jax.jit(lambda image: (layer(image), plain(layer, image)))(normal(*sides, shape[0]))
    assert found.shape == (*(size_after(side, *shape[2:]) for side in sides), shape[1])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", NATURE)
def test_its_gradients_are_those_of_a_convolution(shape):
    layer = Convolution(*shape, KEY)
    image = normal(20, 21, shape[0])

    def gradients(function):
        return jax.jit(jax.grad(lambda *inputs: jnp.mean(jnp.sin(function(*inputs))), argnums=(0, 1)))(layer, image)

    found, expected = gradients(lambda own, seen: own(seen)), gradients(plain)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(other).max() > 0
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)


def test_members_have_what_each_has_alone():
    make = jax.jit(lambda key: Convolution(4, 8, 4, 2, key))
    members = [make(keys.at(KEY, member)) for member in range(3)]
    layers, images = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members), normal(3, 5, 12, 10, 4)
    together = jax.jit(jax.vmap(jax.vmap(lambda layer, image: layer(image), (None, 0))))(layers, images)
    one_by_one = jax.jit(lambda layer, seen: jax.vmap(layer)(seen))
    for member, layer in enumerate(members):
        np.testing.assert_allclose(together[member], one_by_one(layer, images[member]), rtol=1e-4, atol=1e-5)
    assert len(np.unique(np.asarray(layers.linear.bias))) == 3 * 8


def test_it_is_drawn_within_one_over_the_root_of_what_an_output_sees():
    linear = Convolution(4, 64, 8, 4, KEY).linear
    assert linear.weight.shape == (8 * 8 * 4, 64) and linear.bias.shape == (64,)
    for drawn in (linear.weight, linear.bias):
        assert 0.9 / 16 < float(jnp.abs(drawn).max()) <= 1 / 16
    assert abs(float(linear.weight.std()) - 1 / 16 / np.sqrt(3)) < 1e-3


def test_a_stride_that_does_not_divide_its_kernel_is_refused():
    with pytest.raises(SadqError, match="kernel of 3 is no multiple of its stride of 2"):
        Convolution(4, 8, 3, 2, KEY)


def test_places_of_a_kernel_are_counted():
    assert [size_after(84, 8, 4), size_after(20, 4, 2), size_after(9, 3, 1)] == [20, 9, 7]
    assert [size_after(7, 8, 4), size_after(3, 8, 4), size_after(8, 8, 4), size_after(11, 8, 4)] == [0, 0, 1, 1]
