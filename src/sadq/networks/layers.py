"""The dense layers that every network here is made of: plain, and with learned noise (Fortunato et al., 2018).

Whatever varies *is* its mean until it is drawn: a noisy layer called as it is, is the mean layer.
"""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.types import Array, Key, PyTree

INITIAL_NOISE = 0.5
"""sigma_0 of Rainbow: the initial spread of a weight, times the root of the layer's inputs."""


class Linear(eqx.Module):
    """x @ weight + bias, initialised U(+-1/sqrt(inputs)) as PyTorch (and so the paper's code) does."""

    weight: Array  # f32[inputs, outputs]
    bias: Array  # f32[outputs]

    def __init__(self, inputs: int, outputs: int, key: Key):
        bound = 1 / math.sqrt(inputs)
        # One draw for both, so that a layer costs a single random call.
        drawn = jax.random.uniform(key, (inputs + 1, outputs), minval=-bound, maxval=bound)
        self.weight, self.bias = drawn[:-1], drawn[-1]

    def __call__(self, inputs: Array) -> Array:
        return inputs.astype(self.weight.dtype) @ self.weight + self.bias

    def precise(self, inputs: Array) -> Array:
        """The same with sums kept in float32 whatever the type of the weights."""
        return precise_product(inputs, self.weight) + self.bias

    def replaced(self, weight: Array, bias: Array) -> "Linear":
        """A layer with other numbers."""
        return eqx.tree_at(lambda layer: (layer.weight, layer.bias), self, (weight, bias))


def precise_product(inputs: Array, weight: Array) -> Array:
    """inputs @ weight in the weight's type, with sums in float32 at least."""
    sums = jnp.promote_types(weight.dtype, jnp.float32)
    return jnp.matmul(inputs.astype(weight.dtype), weight, preferred_element_type=sums)


class NoisyLinear(eqx.Module):
    """A layer whose weights are mean + spread * noise; called as it is, the mean layer that evaluation uses.

    The noise is factorised, f(e_in) f(e_out)^T with f(x) = sign(x) sqrt|x|, so a draw takes inputs + outputs numbers.
    Where several layers are stored side by side, each of the `blocks` has an e_in of its own.
    """

    mean: Linear
    weight_spread: Array
    bias_spread: Array
    blocks: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, key: Key, blocks: int = 1):
        self.mean = Linear(inputs, outputs, key)
        self.weight_spread = jnp.full((inputs, outputs), INITIAL_NOISE / math.sqrt(inputs))
        self.bias_spread = jnp.full((outputs,), INITIAL_NOISE / math.sqrt(inputs))
        self.blocks = blocks

    @property
    def weight(self) -> Array:
        return self.mean.weight

    @property
    def bias(self) -> Array:
        return self.mean.bias

    def __call__(self, inputs: Array) -> Array:
        return self.mean(inputs)

    def precise(self, inputs: Array) -> Array:
        return self.mean.precise(inputs)

    def drawn(self, key: Key) -> Linear:
        """One random layer."""
        inputs, outputs = self.weight.shape
        noise = jax.random.normal(key, (self.blocks * inputs + outputs,))
        shaped = jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))
        at_input, at_output = shaped[:-outputs].reshape(self.blocks, inputs), shaped[-outputs:]
        block_columns = jnp.eye(self.blocks)[:, :, None] * at_output.reshape(self.blocks, -1)
        # As a product although it is an outer one: into a product of elements XLA would put the random draw itself, and
        # so repeat it for every weight.
        outer = jnp.matmul(at_input.T, block_columns.reshape(self.blocks, outputs), precision="highest")
        return self.mean.replaced(self.weight + self.weight_spread * outer, self.bias + self.bias_spread * at_output)


def draw_layers(network: PyTree, key: Key) -> PyTree:
    """The network with one draw of every noisy layer; the network itself where there is none."""
    count = itertools.count()

    def drawn(node: PyTree) -> PyTree:
        return node.drawn(keys.at(key, next(count))) if isinstance(node, NoisyLinear) else node

    return jax.tree.map(drawn, network, is_leaf=lambda node: isinstance(node, NoisyLinear))
