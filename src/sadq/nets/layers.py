"""The dense layer that every network here is made of."""

import math

import equinox as eqx
import jax

from sadq.types import Array, Key


class Linear(eqx.Module):
    """x @ weight + bias, initialised U(+-1/sqrt(inputs)) as PyTorch (and so the paper's code) does."""

    weight: Array  # f32[inputs, outputs]
    bias: Array  # f32[outputs]

    def __init__(self, inputs: int, outputs: int, key: Key, fan_in: int | None = None):
        """`fan_in` overrides the number of inputs in the bound, where one layer is stored as several."""
        bound = 1 / math.sqrt(fan_in or inputs)
        # One draw for both, so that a layer costs a single random call.
        drawn = jax.random.uniform(key, (inputs + 1, outputs), minval=-bound, maxval=bound)
        self.weight, self.bias = drawn[:-1], drawn[-1]

    def __call__(self, inputs: Array) -> Array:
        return inputs @ self.weight + self.bias
