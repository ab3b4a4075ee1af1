"""A value network: an encoder and a head; and an ensemble of them."""

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.returns import Return
from sadq.networks.bayesian import BayesianHead
from sadq.networks.encoders import VectorEncoder
from sadq.networks.heads import Head
from sadq.networks.layers import with_noise
from sadq.types import Array, Key, PyTree


class ValueNetwork(eqx.Module):
    """The return of every action at one observation.

    Noise of layers is drawn once for a whole batch, by `with_noise`; levels of quantiles once per sample, by the `key`
    of the call. Without either the network is deterministic.
    """

    encoder: VectorEncoder
    head: Head

    def __call__(self, observation: Array, mask: Array | None = None, key: Key | None = None) -> Return:
        return self.head(self.encoder(observation), mask, key)

    def mean(self, observation: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        """Only the expectation: f32[A]."""
        return self.head.mean(self.encoder(observation), mask, key)

    def values(self, observation: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        """The expectation by ensemble member, of which there is one: f32[1, A]."""
        return self.mean(observation, mask, key)[None]

    def with_noise(self, key: Key) -> "ValueNetwork":
        return with_noise(self, key)

    @property
    def draws_levels(self) -> bool:
        """Whether a call with a key differs from one without."""
        return getattr(self.head, "draws_levels", False)

    def auxiliary_loss(self, observation: Array, action: Array, mask: Array | None = None) -> Array:
        """A loss of the head's own, f32[]; its gradient shares no parameter with the loss of the returns."""
        own = getattr(self.head, "auxiliary_loss", None)
        return jnp.zeros(()) if own is None else own(self.encoder(observation), action, mask)

    def separately_optimised(self) -> PyTree:
        """For every parameter, whether it learns by the head's own optimiser."""
        marks, own = jax.tree.map(lambda _: False, self), getattr(self.head, "separately_optimised", None)
        return marks if own is None else eqx.tree_at(lambda marked: marked.head, marks, own())

    @property
    def bayesian_head(self) -> BayesianHead:
        """The head of a network that is known to be Bayesian."""
        assert isinstance(self.head, BayesianHead)
        return self.head

    def with_weights(self, weights: Array) -> "ValueNetwork":
        """A Bayesian network with these weights in its last layer."""
        return eqx.tree_at(lambda network: network.head.weights, self, weights)


class Ensemble(eqx.Module):
    """Networks of one shape with initial weights of their own: every leaf of `members` has a leading axis."""

    members: ValueNetwork
    size: int = eqx.field(static=True)

    def mean(self, observation: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        """The members' average: f32[A]."""
        return jnp.mean(self.values(observation, mask, key), axis=0)

    def values(self, observation: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        """The expectation by member: f32[size, A]."""
        return jax.vmap(lambda member: member.mean(observation, mask, key))(self.members)

    def with_noise(self, key: Key) -> "Ensemble":
        own = keys.range_of(key, 0, self.size)
        return Ensemble(jax.vmap(lambda member, one: member.with_noise(one))(self.members, own), self.size)

    @property
    def draws_levels(self) -> bool:
        return self.members.draws_levels

    def separately_optimised(self) -> PyTree:
        return Ensemble(self.members.separately_optimised(), self.size)


Network = ValueNetwork | Ensemble
