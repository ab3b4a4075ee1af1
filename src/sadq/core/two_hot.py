"""A scalar as a distribution over symexp-spaced bins: b_i = symexp(x_i), x evenly spaced in [-20, 20].

A value is encoded as weights on the two bins around it (two-hot) whose mean is the value; a prediction is the mean under
a softmax. The cross-entropy between them has gradients that do not grow with the value, whatever the scale of rewards.
"""

import jax
import jax.numpy as jnp
import numpy as np

from sadq.types import Array

BIN_COUNT = 255
LARGEST_EXPONENT = 20.0


def symlog(value: Array) -> Array:
    """sign(x) * ln(1 + |x|)."""
    return jnp.sign(value) * jnp.log1p(jnp.abs(value))


def symexp(value: Array) -> Array:
    """The inverse of `symlog`: sign(x) * (exp|x| - 1)."""
    return jnp.sign(value) * jnp.expm1(jnp.abs(value))


def symexp_bins(count: int = BIN_COUNT, largest: float = LARGEST_EXPONENT) -> np.ndarray:
    """An odd number of bins f32[N]: zero in the middle, and every other one exactly mirrored."""
    exponents = np.linspace(0.0, largest, count // 2 + 1)
    positive = np.expm1(exponents[1:])
    return np.concatenate([-positive[::-1], [0.0], positive]).astype(np.float32)


BINS = symexp_bins()


def encode(value: Array, bins: np.ndarray = BINS) -> Array:
    """The weights f32[N] of one value f32[]: on the two bins around it, the nearer one the more.

    Values beyond the outermost bins count as those.
    """
    edges = jnp.asarray(bins)
    value = jnp.clip(value, edges[0], edges[-1])
    below = jnp.clip(jnp.sum(edges <= value) - 1, 0, len(bins) - 2)
    share = (value - edges[below]) / (edges[below + 1] - edges[below])
    index = jnp.arange(len(bins))
    return jnp.where(index == below, 1 - share, 0.0) + jnp.where(index == below + 1, share, 0.0)


def expectation(weights: Array, bins: np.ndarray = BINS) -> Array:
    """The mean f32[] under weights f32[N] that sum to one.

    Each bin is added to its mirror image first: the outer ones are a billion times a usual reward, so that in any other
    order what should cancel would leave its rounding error behind.
    """
    middle = len(bins) // 2
    positive = weights[middle + 1 :]
    negative = weights[:middle][::-1]
    return jnp.sum((positive - negative) * bins[middle + 1 :])


def decode(logits: Array, bins: np.ndarray = BINS) -> Array:
    """The mean f32[] of the distribution with logits f32[N]; exactly 0 where all of them are equal."""
    return expectation(jax.nn.softmax(logits), bins)


def cross_entropy(logits: Array, value: Array, bins: np.ndarray = BINS) -> Array:
    """-sum_i w_i log p_i of one value f32[] under logits f32[N]."""
    return -jnp.sum(encode(value, bins) * jax.nn.log_softmax(logits))
