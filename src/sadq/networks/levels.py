"""Heads that take the quantile level as an input: drawn at random (IQN) or proposed by a network (FQF)."""

import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.returns import Mixing, Quantile
from sadq.networks.heads import evenly, midpoints
from sadq.networks.layers import Linear
from sadq.networks.stream import ActionStream
from sadq.types import Array, Key

PROPOSAL_GAIN = 0.01
"""FQF starts from almost equal fractions."""


class LevelStream(eqx.Module):
    """The return at any level: features times relu(W cos(pi i level) + b), i = 0 ... cosines - 1, then a stream."""

    embedding: Linear
    stream: ActionStream
    cosines: int = eqx.field(static=True)

    def __init__(self, features: int, actions: int, dueling: bool, cosines: int, key: Key, noisy: bool):
        self.embedding = Linear(cosines, features, keys.purpose(key, "embedding"))
        self.stream = ActionStream(features, features, actions, 1, dueling, key, noisy)
        self.cosines = cosines

    def values(self, features: Array, levels: Array, mask: Array | None) -> Array:
        """f32[A, N] at levels f32[N]."""
        hidden = self._hidden(features, levels)
        return jax.vmap(lambda one: self.stream.outputs(one, mask)[:, 0], out_axes=1)(hidden)

    def mean(self, features: Array, levels: Array, widths: Array, mask: Array | None) -> Array:
        """sum_i widths_i * values_i: f32[A]. Widths sum to one and outputs are linear, so the sum is taken before."""
        return self.stream.outputs(widths @ self._hidden(features, levels), mask)[:, 0]

    def _hidden(self, features: Array, levels: Array) -> Array:
        waves = jnp.cos(math.pi * levels[:, None] * jnp.arange(self.cosines))
        return self.stream.activations(features * jax.nn.relu(self.embedding(waves)))


class ImplicitHead(eqx.Module):
    """The return at random levels, midpoints without a key (Dabney et al., 2018b)."""

    draws_levels: ClassVar[bool] = True

    at: LevelStream
    levels: int = eqx.field(static=True)
    huber_at: float = eqx.field(static=True)
    mixing: Mixing = eqx.field(static=True)

    def __init__(
        self,
        features: int,
        actions: int,
        dueling: bool,
        levels: int,
        cosines: int,
        huber_at: float,
        mixing: Mixing,
        key: Key,
        noisy: bool = False,
    ):
        self.at = LevelStream(features, actions, dueling, cosines, key, noisy)
        self.levels, self.huber_at, self.mixing = levels, huber_at, mixing

    def __call__(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Quantile:
        levels = self._levels(key)
        return evenly(self.at.values(features, levels, mask), levels, self.huber_at, self.mixing)

    def mean(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        return self.at.mean(features, self._levels(key), jnp.full(self.levels, 1 / self.levels), mask)

    def _levels(self, key: Key | None) -> Array:
        return midpoints(self.levels) if key is None else jax.random.uniform(key, (self.levels,))


class Fractions(NamedTuple):
    """A division of [0, 1] into N parts."""

    inner: Array  # f32[N-1]: where one part ends and the next begins
    middles: Array  # f32[N]
    widths: Array  # f32[N], sum to one


class FractionHead(eqx.Module):
    """The return at levels that a small network proposes for each state (Yang et al., 2019).

    The proposal learns from features it does not change, by its own loss and optimiser; values take its fractions as
    given.
    """

    at: LevelStream
    proposal: Linear
    huber_at: float = eqx.field(static=True)
    mixing: Mixing = eqx.field(static=True)

    def __init__(
        self,
        features: int,
        actions: int,
        dueling: bool,
        levels: int,
        cosines: int,
        huber_at: float,
        mixing: Mixing,
        key: Key,
        noisy: bool = False,
    ):
        self.at = LevelStream(features, actions, dueling, cosines, key, noisy)
        bound = PROPOSAL_GAIN * math.sqrt(6 / (features + levels))
        weight = jax.random.uniform(keys.purpose(key, "proposal"), (features, levels), minval=-bound, maxval=bound)
        self.proposal = Linear(features, levels, key).replaced(weight, jnp.zeros(levels))
        self.huber_at, self.mixing = huber_at, mixing

    def __call__(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Quantile:
        fractions = jax.lax.stop_gradient(self.fractions(features))
        values = self.at.values(features, fractions.middles, mask)
        return Quantile(values, fractions.middles, fractions.widths, self.huber_at, self.mixing)

    def mean(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        fractions = jax.lax.stop_gradient(self.fractions(features))
        return self.at.mean(features, fractions.middles, fractions.widths, mask)

    def fractions(self, features: Array) -> Fractions:
        """The proposed division; gradients reach the proposal only."""
        widths = jax.nn.softmax(self.proposal(jax.lax.stop_gradient(features)))
        ends = jnp.cumsum(widths)
        return Fractions(ends[:-1], ends - widths / 2, widths)

    def auxiliary_loss(self, features: Array, action: Array, mask: Array | None = None) -> Array:
        """A number whose gradient by fraction t_i is that of the 1-Wasserstein distance, 2Z(t_i) - Z(m_i) - Z(m_i-1)."""
        fractions = self.fractions(features)
        fixed = jax.lax.stop_gradient((features, fractions))
        values = jax.lax.stop_gradient(self.at).values
        ends = values(fixed[0], fixed[1].inner, mask)[action]
        middles = values(fixed[0], fixed[1].middles, mask)[action]
        return jnp.sum(fractions.inner * (2 * ends - middles[1:] - middles[:-1]))

    def separately_optimised(self) -> "FractionHead":
        """For every parameter, whether it learns by RMSprop: the proposal's do."""
        marks = jax.tree.map(lambda _: False, self)
        return eqx.tree_at(lambda head: head.proposal, marks, jax.tree.map(lambda _: True, self.proposal))
