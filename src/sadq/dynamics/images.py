"""Frames to features and back: the convolutions of Mnih et al. (2015), and the sub-pixel ones of Shi et al. (2016).

Frames are f32[F, H, W] in [0, 1], the newest last, as the observation has them; in between images are channel-last.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.errors import SadqError
from sadq.networks.convolutions import Convolution, size_after
from sadq.networks.layers import Linear
from sadq.types import Array, Key

KERNELS = (8, 4, 3)
STRIDES = (4, 2, 1)
ENLARGEMENTS = (2, 2, 3)
SMALLEST = 36  # the side of an image of which the last convolution just sees one patch

activation = jax.nn.silu


def check_frames(observation_shape: tuple[int, ...], drawn: bool) -> None:
    """Refuse observations that cannot be read, or cannot be `drawn` by the decoder."""
    if len(observation_shape) != 3:
        expected = "expected a stack of images, (frames, height, width): choose model gaussian for numbers"
        raise SadqError(f"Model rssm was given observations of shape {observation_shape}, {expected}.")
    sides, unit = observation_shape[1:], math.prod(ENLARGEMENTS)
    if min(sides) < SMALLEST:
        raise SadqError(f"Model rssm was given images of {sides}, expected sides of at least {SMALLEST} pixels.")
    if drawn and any(side % unit for side in sides):
        expected = f"expected sides that are multiples of {unit}, as 84: resize them, or choose space embedding"
        raise SadqError(f"Model rssm was given images of {sides}, {expected}.")


class FrameEncoder(eqx.Module):
    """Three convolutions, flattened: f32[F, H, W] -> f32[features]."""

    layers: list[Convolution]

    def __init__(self, frames: int, channels: Sequence[int], key: Key):
        widths = [frames, *channels]
        self.layers = [
            Convolution(widths[index], widths[index + 1], KERNELS[index], STRIDES[index], keys.at(key, index))
            for index in range(len(KERNELS))
        ]

    def __call__(self, frames: Array) -> Array:
        image = jnp.moveaxis(frames, 0, -1)
        for layer in self.layers:
            image = activation(layer(image))
        return image.reshape(-1)

    def features(self, height: int, width: int) -> int:
        """How many numbers an image of this size becomes."""
        for kernel, stride in zip(KERNELS, STRIDES, strict=True):
            height, width = (size_after(side, kernel, stride) for side in (height, width))
        return height * width * self.layers[-1].linear.bias.size


class FrameDecoder(eqx.Module):
    """A coarse image by one dense layer, then enlarged by three sub-pixel convolutions: f32[L] -> f32[F, H, W].

    Each computes, at every place, all pixels that the place becomes; nothing is computed on a larger image than needed.
    """

    coarse: Linear
    layers: list[Convolution]
    shape: tuple[int, int, int] = eqx.field(static=True)  # of the coarse image

    def __init__(self, inputs: int, frame_shape: tuple[int, ...], channels: Sequence[int], key: Key):
        frames, height, width = frame_shape
        unit = math.prod(ENLARGEMENTS)
        self.shape = (height // unit, width // unit, channels[0])
        self.coarse = Linear(inputs, math.prod(self.shape), keys.purpose(key, "coarse"))
        widths = [*channels, frames]
        self.layers = [
            Convolution(widths[index], widths[index + 1] * factor**2, 3, 1, keys.at(key, index))
            for index, factor in enumerate(ENLARGEMENTS)
        ]

    def __call__(self, latent: Array) -> Array:
        image = self.coarse(latent).reshape(self.shape)
        for factor, layer in zip(ENLARGEMENTS, self.layers, strict=True):
            padded = jnp.pad(activation(image), ((1, 1), (1, 1), (0, 0)))
            image = pixels(layer.precise(padded) if layer is self.layers[-1] else layer(padded), factor)
        return jnp.moveaxis(image, -1, 0)


def pixels(image: Array, factor: int) -> Array:
    """[H, W, factor * factor * C] -> [factor * H, factor * W, C]: the channels of a place become its pixels."""
    height, width, _ = image.shape
    parts = image.reshape(height, width, factor, factor, -1)
    return parts.transpose(0, 2, 1, 3, 4).reshape(height * factor, width * factor, -1)
