"""From features to a return for every action."""

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.returns import Scalar
from sadq.nets.layers import Linear
from sadq.types import Array, Key


class ActionStream(eqx.Module):
    """One hidden layer, then N numbers for every action: plain, or dueling, V + A - mean A.

    The two hidden layers of a dueling head are stored side by side: they read the same features, and one wide product
    is cheaper than two narrow ones.
    """

    hidden: Linear
    advantage: Linear
    value: Linear | None  # None: not dueling
    actions: int = eqx.field(static=True)

    def __init__(self, features: int, width: int, actions: int, atoms: int, dueling: bool, key: Key):
        self.actions = actions
        self.hidden = Linear(features, 2 * width if dueling else width, keys.purpose(key, "hidden"))
        self.advantage = Linear(width, actions * atoms, keys.purpose(key, "advantage"))
        self.value = Linear(width, atoms, keys.purpose(key, "value")) if dueling else None

    def __call__(self, features: Array, mask: Array | None = None) -> Array:
        """f32[A, N]; with a mask, the dueling mean is taken over the legal actions."""
        hidden = jax.nn.relu(self.hidden(features))
        if self.value is None:
            return self.advantage(hidden).reshape(self.actions, -1)
        if mask is None:
            weight, bias = self._combined(self.advantage, self.value)
            return (hidden @ weight + bias).reshape(self.actions, -1)
        for_advantage, for_value = jnp.split(hidden, 2)
        advantage = self.advantage(for_advantage).reshape(self.actions, -1)
        legal = mask[:, None]
        mean = jnp.sum(jnp.where(legal, advantage, 0.0), axis=0) / jnp.maximum(jnp.sum(legal), 1)
        return self.value(for_value) + advantage - mean

    def _combined(self, advantage: Linear, value: Linear) -> tuple[Array, Array]:
        """V + A - mean A as one layer on both hidden parts, for all of it is linear.

        That is one product instead of three, and a value that is a product plus a bias is rounded alike by the compiler
        whatever else is in the program.
        """

        def centred(outputs: Array) -> Array:
            by_action = outputs.reshape(*outputs.shape[:-1], self.actions, -1)
            return (by_action - jnp.mean(by_action, axis=-2, keepdims=True)).reshape(outputs.shape)

        def for_all(outputs: Array) -> Array:
            return jnp.tile(outputs, self.actions)

        weight = jnp.concatenate([centred(advantage.weight), for_all(value.weight)])
        return weight, centred(advantage.bias) + for_all(value.bias)


class ScalarHead(eqx.Module):
    """One expected return for every action."""

    stream: ActionStream
    huber_at: float | None = eqx.field(static=True)

    def __init__(self, features: int, actions: int, dueling: bool, huber_at: float | None, key: Key):
        self.stream = ActionStream(features, features, actions, 1, dueling, key)
        self.huber_at = huber_at

    def __call__(self, features: Array, mask: Array | None = None) -> Scalar:
        return Scalar(self.stream(features, mask)[:, 0], self.huber_at)
