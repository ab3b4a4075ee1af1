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
        for_advantage, for_value = jnp.split(hidden, 2)
        advantage = self.advantage(for_advantage).reshape(self.actions, -1)
        mean = jnp.mean(advantage, axis=0, where=None if mask is None else mask[:, None])
        return self.value(for_value) + advantage - mean


class ScalarHead(eqx.Module):
    """One expected return for every action."""

    stream: ActionStream
    huber_at: float | None = eqx.field(static=True)

    def __init__(self, features: int, actions: int, dueling: bool, huber_at: float | None, key: Key):
        self.stream = ActionStream(features, features, actions, 1, dueling, key)
        self.huber_at = huber_at

    def __call__(self, features: Array, mask: Array | None = None) -> Scalar:
        return Scalar(self.stream(features, mask)[:, 0], self.huber_at)
