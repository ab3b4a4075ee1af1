"""From an observation to features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.networks.layers import Linear
from sadq.registry import Axis, layer_sizes
from sadq.types import Array, Key

ENCODERS = Axis("encoder", "how an observation becomes features")


@ENCODERS.register("dense")
@dataclass(frozen=True)
class Dense:
    """Fully connected layers over all the numbers of an observation."""

    hidden: tuple[int, ...] = (128, 128)
    """Sizes of the layers; each head adds one of the last size."""

    def __post_init__(self) -> None:
        layer_sizes(self, "hidden")

    @property
    def features(self) -> int:
        return self.hidden[-1]

    def build(self, observation_shape: tuple[int, ...], key: Key) -> "DenseEncoder":
        return DenseEncoder(math.prod(observation_shape), self.hidden, key)


class DenseEncoder(eqx.Module):
    """Fully connected layers, each followed by a ReLU."""

    layers: list[Linear]

    def __init__(self, inputs: int, sizes: Sequence[int], key: Key):
        widths = [inputs, *sizes]
        self.layers = [
            Linear(width, outputs, keys.at(key, index))
            for index, (width, outputs) in enumerate(zip(widths, sizes, strict=False))
        ]

    def __call__(self, observation: Array) -> Array:
        features = observation.reshape(-1).astype(jnp.float32)
        for layer in self.layers:
            features = jax.nn.relu(layer(features))
        return features
