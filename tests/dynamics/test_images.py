"""Reading and drawing frames, against convolutions written as loops over places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.dynamics.images import FrameDecoder, FrameEncoder, check_frames, pixels
from sadq.errors import SadqError

KEY = keys.member_key(4)


def silu(values: np.ndarray) -> np.ndarray:
    return values / (1 + np.exp(-values))


def convolved(layer, image: np.ndarray) -> np.ndarray:
    """A kernel laid over one place after the other; its rows are sorted by blocks, then pixels, then channels."""
    kernel, stride = layer.kernel, layer.stride
    weight, bias = np.asarray(layer.linear.weight), np.asarray(layer.linear.bias)
    across = kernel // stride
    height, width = ((side - kernel) // stride + 1 for side in image.shape[:2])
    output = np.empty((height, width, bias.size))
    for row, column in np.ndindex(height, width):
        patch = image[row * stride : row * stride + kernel, column * stride : column * stride + kernel]
        blocks = patch.reshape(across, stride, across, stride, -1).transpose(0, 2, 1, 3, 4)
        output[row, column] = blocks.reshape(-1) @ weight + bias
    return output


def test_frames_are_read_by_three_convolutions():
    encoder = FrameEncoder(2, (3, 4, 5), KEY)
    frames = jax.random.uniform(KEY, (2, 44, 36))
    image = np.moveaxis(np.asarray(frames), 0, -1)
    for layer in encoder.layers:
        image = silu(convolved(layer, image))
    np.testing.assert_allclose(encoder(frames), image.reshape(-1), rtol=1e-4, atol=1e-6)
    assert [(layer.kernel, layer.stride) for layer in encoder.layers] == [(8, 4), (4, 2), (3, 1)]
    assert encoder.features(44, 36) == image.size == 2 * 1 * 5
    assert encoder.features(84, 84) == 7 * 7 * 5


def test_frames_are_drawn_place_by_place():
    decoder = FrameDecoder(6, (2, 24, 36), (3, 4, 5), KEY)
    latent = jax.random.normal(KEY, (6,))
    image = np.asarray(decoder.coarse(latent)).reshape(2, 3, 3)
    for factor, layer in zip((2, 2, 3), decoder.layers, strict=True):
        places = convolved(layer, np.pad(silu(image), ((1, 1), (1, 1), (0, 0))))
        height, width, channels = places.shape
        image = np.empty((height * factor, width * factor, channels // factor**2))
        for row, column, down, right in np.ndindex(height, width, factor, factor):
            own = places[row, column].reshape(factor, factor, -1)[down, right]
            image[row * factor + down, column * factor + right] = own
    drawn = decoder(latent)
    assert drawn.shape == (2, 24, 36)
    np.testing.assert_allclose(drawn, np.moveaxis(image, -1, 0), rtol=1e-4, atol=1e-6)


def test_the_channels_of_a_place_become_its_pixels():
    """One place with the channels 0 ... 7: four pixels of two channels."""
    np.testing.assert_array_equal(pixels(jnp.arange(8.0).reshape(1, 1, 8), 2)[..., 0], [[0, 2], [4, 6]])


@pytest.mark.parametrize(
    ("shape", "drawn", "words"),
    [
        ((6,), True, "stack of images"),
        ((84, 84), True, "stack of images"),
        ((4, 84, 35), False, "at least 36"),
        ((4, 24, 84), True, "at least 36"),
        ((4, 84, 80), True, "multiples of 12"),
    ],
)
def test_observations_of_another_kind_are_refused(shape, drawn, words):
    with pytest.raises(SadqError, match=words):
        check_frames(shape, drawn)


def test_what_is_only_read_need_not_be_a_multiple():
    check_frames((4, 84, 80), False)
    check_frames((1, 36, 48), True)
