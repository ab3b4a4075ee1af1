"""From an observation to features: dense layers, or convolutions over a stack of images.

An encoder's choice has `build(observation_shape, key)`, and may say by `head_width` how wide the hidden layer of a head is:
else as wide as there are features. By `full_byte` it says as what number it reads a byte of 255, for models to agree with.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.errors import SadqError
from sadq.networks.convolutions import Convolution, size_after
from sadq.networks.layers import Linear
from sadq.registry import Axis, at_least, layer_sizes, require
from sadq.types import Array, Key

ENCODERS = Axis("encoder", "how an observation becomes features", "build")


@ENCODERS.register("dense")
@dataclass(frozen=True)
class Dense:
    """Fully connected layers over all the numbers of an observation."""

    full_byte: ClassVar[float] = 255.0

    hidden: tuple[int, ...] = (128, 128)
    """Sizes of the layers; each head adds one of the last size."""

    def __post_init__(self) -> None:
        layer_sizes(self, "hidden")

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


@ENCODERS.register("nature")
@dataclass(frozen=True)
class Nature:
    """Convolutions over a stack of images, [images, height, width] (Mnih et al., 2015)."""

    full_byte: ClassVar[float] = 1.0

    channels: tuple[int, ...] = (32, 64, 64)
    """Of every layer."""
    kernels: tuple[int, ...] = (8, 4, 3)
    """The sides of their kernels, in pixels."""
    strides: tuple[int, ...] = (4, 2, 1)
    """Pixels from one place of a kernel to the next; each must divide its kernel."""
    hidden: int = 2048
    """Width of the hidden layer that each head adds."""

    def __post_init__(self) -> None:
        layer_sizes(self, "channels", "kernels", "strides")
        at_least(self, 1, "hidden")
        for setting in ("kernels", "strides"):
            number = len(getattr(self, setting))
            require(
                self, number == len(self.channels), setting, f"must name {len(self.channels)} layers, as channels do"
            )
        divides = all(kernel % stride == 0 for kernel, stride in zip(self.kernels, self.strides, strict=True))
        require(self, divides, "strides", f"must each divide its kernel, of {self.kernels}")

    @property
    def head_width(self) -> int:
        return self.hidden

    def build(self, observation_shape: tuple[int, ...], key: Key) -> "NatureEncoder":
        given = f"encoder nature was given observations of shape {observation_shape}"
        if len(observation_shape) != 3:
            raise SadqError(f"{given}, expected a stack of images, (images, height, width).")
        sides: tuple[int, ...] = observation_shape[1:]
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            sides = tuple(size_after(side, kernel, stride) for side in sides)
        if not all(sides):
            small = f"whose images are too small for kernels of {self.kernels} with strides of {self.strides}"
            raise SadqError(f"{given}, {small}: choose others, or larger images.")
        widths = (observation_shape[0], *self.channels)
        shapes = zip(widths, self.channels, self.kernels, self.strides, strict=False)
        return NatureEncoder([Convolution(*shape, keys.at(key, index)) for index, shape in enumerate(shapes)])


class NatureEncoder(eqx.Module):
    """Convolutions, each followed by a ReLU. Bytes are read as shares of 255, other numbers as such shares already."""

    layers: list[Convolution]

    def __call__(self, observation: Array) -> Array:
        scale = 255 if observation.dtype == jnp.uint8 else 1
        image = jnp.moveaxis(observation, 0, -1).astype(jnp.float32) / scale
        for layer in self.layers:
            image = jax.nn.relu(layer(image))
        return image.reshape(-1)
