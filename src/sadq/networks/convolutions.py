"""Convolutions as matrix products, the form that stays fast where every member of a fleet has weights of its own.

A fleet adds an axis to the weights. A product with one more axis is a batched product, which accelerators are made for; a
convolution with one more axis becomes one in groups, for which their kernels are worse.
"""

import equinox as eqx
import jax.numpy as jnp

from sadq.errors import SadqError
from sadq.networks.layers import Linear
from sadq.types import Array, Key


class Convolution(eqx.Module):
    """A convolution over an image [height, width, channels], without padding, initialised as PyTorch does.

    The stride s must divide the kernel k: the image is cut into blocks of s x s pixels, and a patch is (k / s)^2 blocks
    that lie together, so that patches are a few shifted views of the blocks rather than one view for each of k^2 pixels.
    """

    linear: (
        Linear  # inputs: by row and column of the block in its patch, then of the pixel in its block, then by channel
    )
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int, key: Key):
        if kernel % stride:
            raise SadqError(f"A convolution's kernel of {kernel} is no multiple of its stride of {stride}.")
        self.linear = Linear(kernel * kernel * channels_in, channels_out, key)
        self.kernel, self.stride = kernel, stride

    def __call__(self, image: Array) -> Array:
        """[height, width, channels out]."""
        return self.linear(self.patches(self._cast(image)))

    def precise(self, image: Array) -> Array:
        """The same with sums kept in float32 whatever the type of the weights."""
        return self.linear.precise(self.patches(self._cast(image)))

    def _cast(self, image: Array) -> Array:
        # Before it is cut into patches, which are larger than it.
        return image.astype(self.linear.weight.dtype)

    def patches(self, image: Array) -> Array:
        """What each output sees: [height, width, kernel * kernel * channels]."""
        stride, across = self.stride, self.kernel // self.stride
        height, width = (size // stride for size in image.shape[:2])
        # What is left over at the lower and right edges is in no patch.
        cut = image[: height * stride, : width * stride].reshape(height, stride, width, stride, -1)
        blocks = cut.transpose(0, 2, 1, 3, 4).reshape(height, width, -1)
        height, width = height - across + 1, width - across + 1
        views = [blocks[y : y + height, x : x + width] for y in range(across) for x in range(across)]
        return jnp.concatenate(views, axis=-1)


def size_after(size: int, kernel: int, stride: int) -> int:
    """How many places a kernel has along an axis of `size`; none or fewer: 0."""
    return max(0, (size - kernel) // stride + 1)
