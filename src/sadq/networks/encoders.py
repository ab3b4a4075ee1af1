"""From an observation to features."""

from collections.abc import Sequence

import equinox as eqx
import jax

from sadq import keys
from sadq.networks.layers import Linear
from sadq.types import Array, Key


class VectorEncoder(eqx.Module):
    """Fully connected layers, each followed by a ReLU."""

    layers: list[Linear]

    def __init__(self, inputs: int, sizes: Sequence[int], key: Key):
        widths = [inputs, *sizes]
        self.layers = [
            Linear(width, outputs, keys.at(key, index))
            for index, (width, outputs) in enumerate(zip(widths, sizes, strict=False))
        ]

    def __call__(self, observation: Array) -> Array:
        features = observation
        for layer in self.layers:
            features = jax.nn.relu(layer(features))
        return features
