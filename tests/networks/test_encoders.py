"""Encoders: dense layers over all the numbers of an observation, of whatever shape and type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.errors import SadqError
from sadq.networks import Dense

KEY = keys.member_key(3)


def by_hand(encoder, observation: np.ndarray) -> np.ndarray:
    features = np.asarray(observation, np.float64).reshape(-1)
    for layer in encoder.layers:
        features = np.maximum(features @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64), 0)
    return features


def test_dense_layers_by_hand():
    encoder = Dense((7, 5)).build((3,), KEY)
    assert [layer.weight.shape for layer in encoder.layers] == [(3, 7), (7, 5)] and Dense((7, 5)).features == 5
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


@pytest.mark.parametrize("hidden", [(), (0,), (8, -1), [8], (8.0,)])
def test_sizes_that_make_no_layers_are_refused(hidden):
    with pytest.raises(SadqError, match="at least one layer"):
        Dense(hidden)
