"""A head whose last layer is not trained but inferred (BDQN, Azizzadenesheli et al., 2018)."""

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq.core.returns import Scalar
from sadq.networks.layers import Linear
from sadq.types import Array, Key


class BayesianHead(eqx.Module):
    """Expected returns w_a . phi(s), with phi learned and w from a posterior that `core/posterior.py` computes.

    Gradients stop at `weights`, so an optimiser leaves them as they are; whoever owns the network puts in a sample or
    the posterior's mean.
    """

    hidden: Linear
    weights: Array  # f32[A, H]
    huber_at: float | None = eqx.field(static=True)

    def __init__(self, features: int, actions: int, huber_at: float | None, key: Key):
        self.hidden = Linear(features, features, key)
        self.weights = jnp.zeros((actions, features))
        self.huber_at = huber_at

    def features(self, features: Array) -> Array:
        """phi f32[H]."""
        return jax.nn.relu(self.hidden(features))

    def __call__(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Scalar:
        return Scalar(self.mean(features), self.huber_at)

    def mean(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        return jax.lax.stop_gradient(self.weights) @ self.features(features)
