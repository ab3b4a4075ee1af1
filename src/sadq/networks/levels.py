"""Heads that take the quantile level as an input: drawn at random (IQN) or proposed by a network (FQF)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.optimisers import Optimiser, RMSprop
from sadq.core.returns import Mixing, QuantileReturn
from sadq.networks.heads import HEADS, Head, Look, Mover, evenly, midpoints
from sadq.networks.layers import Linear
from sadq.networks.stream import ActionStream, HeadShape
from sadq.registry import at_least, not_negative, one_of, positive
from sadq.types import Array, Key, Mask, PyTree

PROPOSAL_GAIN = 0.01
"""FQF starts from almost equal fractions."""


class LevelStream(eqx.Module):
    """The return at any level: features times relu(W cos(pi i level) + b), i = 0 ... cosines - 1, then a stream."""

    embedding: Linear
    stream: ActionStream
    cosines: int = eqx.field(static=True)

    def __init__(self, shape: HeadShape, cosines: int, key: Key):
        self.embedding = Linear(cosines, shape.features, keys.purpose(key, "embedding"))
        self.stream = ActionStream(shape, 1, key)
        self.cosines = cosines

    def values(self, features: Array, levels: Array, mask: Mask) -> Array:
        """f32[A, N] at levels f32[N]."""
        hidden = self._hidden(features, levels)
        return jax.vmap(lambda one: self.stream.outputs(one, mask)[:, 0], out_axes=1)(hidden)

    def mean(self, features: Array, levels: Array, widths: Array, mask: Mask) -> Array:
        """sum_i widths_i * values_i: f32[A]. Widths sum to one and outputs are linear, so the sum is taken before."""
        return self.stream.outputs(widths @ self._hidden(features, levels), mask)[:, 0]

    def _hidden(self, features: Array, levels: Array) -> Array:
        waves = jnp.cos(math.pi * levels[:, None] * jnp.arange(self.cosines))
        return self.stream.activations(features * jax.nn.relu(self.embedding(waves)))


@HEADS.register("implicit")
@dataclass(frozen=True)
class Implicit:
    """The return at quantile levels that are drawn at random (IQN; Dabney et al., 2018b)."""

    levels: int = 32
    """Levels per forward pass, the same for learning, targets and acting (N, N', K)."""
    cosines: int = 64
    """Size of a level's cosine embedding."""
    huber: float = 1.0
    """Where the quantile loss turns from quadratic to linear (kappa); 0: linear throughout."""
    mixing: Literal["interpolate", "mixture"] = "interpolate"
    """How SADQ combines two returns: level by level (the paper), or as a true mixture."""

    def __post_init__(self) -> None:
        at_least(self, 1, "levels", "cosines")
        not_negative(self, "huber")
        one_of(self, "mixing", "interpolate", "mixture")

    def build(self, shape: HeadShape, key: Key) -> "ImplicitHead":
        return ImplicitHead(LevelStream(shape, self.cosines, key), self.levels, self.huber, self.mixing)


class ImplicitHead(Head):
    """The return at the midpoints of the levels, until levels are drawn."""

    at: LevelStream
    count: int = eqx.field(static=True)
    huber_at: float = eqx.field(static=True)
    mixing: Mixing = eqx.field(static=True)
    levels: Array | None = None  # f32[N] once drawn

    def __call__(self, features: Array, mask: Mask = None) -> QuantileReturn:
        levels = self._levels()
        return evenly(self.at.values(features, levels, mask), levels, self.huber_at, self.mixing)

    def mean(self, features: Array, mask: Mask = None) -> Array:
        return self.at.mean(features, self._levels(), jnp.full(self.count, 1 / self.count), mask)

    def sampled(self, key: Key) -> Self:
        levels = jax.random.uniform(key, (self.count,))
        return eqx.tree_at(lambda head: head.levels, self, levels, is_leaf=lambda leaf: leaf is None)

    def _levels(self) -> Array:
        return midpoints(self.count) if self.levels is None else self.levels


class Fractions(NamedTuple):
    """A division of [0, 1] into N parts."""

    inner: Array  # f32[N-1]: where one part ends and the next begins
    middles: Array  # f32[N]
    widths: Array  # f32[N], sum to one


@HEADS.register("fraction")
@dataclass(frozen=True)
class Fraction(Implicit):
    """The return at quantile levels that a small network proposes for each state (FQF; Yang et al., 2019)."""

    learning_rate: float = 1e-4
    """RMSprop's step size for the proposal (DI-engine's CartPole setting)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 2, "levels")  # it moves what divides them
        positive(self, "learning_rate")

    def build(self, shape: HeadShape, key: Key) -> "FractionHead":  # type: ignore[override]
        at = LevelStream(shape, self.cosines, key)
        bound = PROPOSAL_GAIN * math.sqrt(6 / (shape.features + self.levels))
        drawn = keys.purpose(key, "proposal")
        weight = jax.random.uniform(drawn, (shape.features, self.levels), minval=-bound, maxval=bound)
        proposal = Linear(shape.features, self.levels, key).replaced(weight, jnp.zeros(self.levels))
        return FractionHead(at, proposal, self.huber, self.mixing, self.learning_rate)


class FractionHead(Head):
    """The return at proposed levels.

    The proposal learns from features it does not change, by its own loss and optimiser; values take its fractions as
    given. In targets an atom weighs as much as its fraction is wide: that is the share of probability it stands for. The
    original averages target atoms evenly, which fits another distribution than the one that was proposed.
    """

    own_optimiser: ClassVar[Optimiser] = RMSprop()

    at: LevelStream
    proposal: Linear
    huber_at: float = eqx.field(static=True)
    mixing: Mixing = eqx.field(static=True)
    rate: float = eqx.field(static=True)

    def __call__(self, features: Array, mask: Mask = None) -> QuantileReturn:
        fractions = jax.lax.stop_gradient(self.fractions(features))
        values = self.at.values(features, fractions.middles, mask)
        return QuantileReturn(values, fractions.middles, fractions.widths, self.huber_at, self.mixing)

    def mean(self, features: Array, mask: Mask = None) -> Array:
        fractions = jax.lax.stop_gradient(self.fractions(features))
        return self.at.mean(features, fractions.middles, fractions.widths, mask)

    def fractions(self, features: Array) -> Fractions:
        """The proposed division; gradients reach the proposal only."""
        widths = jax.nn.softmax(self.proposal.precise(jax.lax.stop_gradient(features)))
        ends = jnp.cumsum(widths)
        return Fractions(ends[:-1], ends - widths / 2, widths)

    def auxiliary_loss(self, look: Look) -> Array:
        """A number whose gradient by fraction t_i is that of the 1-Wasserstein distance, 2Z(t_i) - Z(m_i) - Z(m_i-1)."""
        fractions = self.fractions(look.features)
        features, fixed = jax.lax.stop_gradient((look.features, fractions))
        values = jax.lax.stop_gradient(self.at).values
        ends = values(features, fixed.inner, look.mask)[look.action]
        middles = values(features, fixed.middles, look.mask)[look.action]
        return jnp.sum(fractions.inner * (2 * ends - middles[1:] - middles[:-1]))

    def movers(self) -> PyTree:
        proposal = jax.tree.map(lambda _: Mover.HEAD, self.proposal)
        return eqx.tree_at(lambda head: head.proposal, super().movers(), proposal)

    @property
    def own_learning_rate(self) -> float:
        return self.rate
