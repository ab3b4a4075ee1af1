"""From features to N numbers for every action: the part that all heads but the Bayesian one share."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.networks.layers import Linear, NoisyLinear, precise_product
from sadq.types import Array, Key, Mask


class HeadShape(NamedTuple):
    """What a head is built for."""

    features: int  # of the encoder
    actions: int
    dueling: bool = False
    noisy: bool = False
    return_range: tuple[float, float] = (-100.0, 100.0)  # of discounted returns, for heads that must know it
    hidden: int | None = None  # width of a head's hidden layer; None: that of the features

    @property
    def width(self) -> int:
        """Of a head's hidden layer."""
        return self.features if self.hidden is None else self.hidden


class ActionStream(eqx.Module):
    """One hidden layer, then N numbers for every action: plain, or dueling, V + A - mean A.

    The two hidden layers of a dueling head are stored side by side: they read the same features, and one wide product
    is cheaper than two narrow ones.
    """

    hidden: Linear | NoisyLinear
    advantage: Linear | NoisyLinear
    value: Linear | NoisyLinear | None  # None: not dueling
    actions: int = eqx.field(static=True)

    def __init__(self, shape: HeadShape, atoms: int, key: Key):
        features, width = shape.features, shape.width
        self.actions = shape.actions
        dense = NoisyLinear if shape.noisy else Linear
        if shape.noisy and shape.dueling:
            self.hidden = NoisyLinear(features, 2 * width, keys.purpose(key, "hidden"), blocks=2)
        else:
            self.hidden = dense(features, 2 * width if shape.dueling else width, keys.purpose(key, "hidden"))
        self.advantage = dense(width, shape.actions * atoms, keys.purpose(key, "advantage"))
        self.value = dense(width, atoms, keys.purpose(key, "value")) if shape.dueling else None

    def __call__(self, features: Array, mask: Mask = None) -> Array:
        """f32[A, N]; with a mask, the dueling mean is taken over the legal actions."""
        return self.outputs(self.activations(features), mask)

    def activations(self, features: Array) -> Array:
        """The hidden layer."""
        return jax.nn.relu(self.hidden(features))

    def outputs(self, hidden: Array, mask: Mask = None) -> Array:
        """f32[A, N] from the hidden layer."""
        if self.value is None:
            return self.advantage.precise(hidden).reshape(self.actions, -1)
        if mask is None:
            weight, bias = self._combined(self.advantage, self.value)
            return (precise_product(hidden, weight) + bias).reshape(self.actions, -1)
        for_advantage, for_value = jnp.split(hidden, 2)
        advantage = self.advantage.precise(for_advantage).reshape(self.actions, -1)
        legal = mask[:, None]
        mean = jnp.sum(jnp.where(legal, advantage, 0.0), axis=0) / jnp.maximum(jnp.sum(legal), 1)
        return self.value.precise(for_value) + advantage - mean

    def averaged(self) -> "ActionStream":
        """The stream that gives the mean of the N numbers: outputs are linear, so their mean is one thin product."""

        def mean(layer: Linear | NoisyLinear, groups: int) -> Linear:
            # Thin enough to stay float32, so that nothing of the mean is lost.
            exact = layer.weight.astype(layer.bias.dtype)
            weight = jnp.mean(exact.reshape(layer.weight.shape[0], groups, -1), axis=-1)
            plain = layer.mean if isinstance(layer, NoisyLinear) else layer
            return plain.replaced(weight, jnp.mean(layer.bias.reshape(groups, -1), axis=-1))

        averaged = eqx.tree_at(lambda stream: stream.advantage, self, mean(self.advantage, self.actions))
        if self.value is None:
            return averaged
        return eqx.tree_at(lambda stream: stream.value, averaged, mean(self.value, 1))

    def _combined(self, advantage: Linear | NoisyLinear, value: Linear | NoisyLinear) -> tuple[Array, Array]:
        """V + A - mean A as one layer on both hidden parts, for all of it is linear.

        That is one product instead of three, and a value that is a product plus a bias is rounded alike by the compiler
        whatever else is in the program.
        """

        def centred(outputs: Array) -> Array:
            by_action = outputs.astype(advantage.bias.dtype).reshape(*outputs.shape[:-1], self.actions, -1)
            centre = jnp.mean(by_action, axis=-2, keepdims=True)
            return (by_action - centre).reshape(outputs.shape).astype(outputs.dtype)

        def for_all(outputs: Array) -> Array:
            return jnp.tile(outputs, self.actions)

        weight = jnp.concatenate([centred(advantage.weight), for_all(value.weight)])
        return weight, centred(advantage.bias) + for_all(value.bias)
