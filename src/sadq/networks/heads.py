"""From features to a return for every action: expected, categorical (C51), quantile (QR-DQN).

A head answers two questions about one sample: `head(features, mask, key)` gives the return of every action, and
`head.mean(features, mask, key)` only its expectation f32[A], which is cheaper where the return has many atoms. A key is
used by heads that draw something per sample (`draws_levels`); without one they are deterministic. A head may also have
`auxiliary_loss` and `separately_optimised`: a loss of its own, and parameters that learn by an optimiser of their own.
"""

from typing import Protocol

import equinox as eqx
import jax.numpy as jnp

from sadq.core.returns import Categorical, Mixing, Quantile, Return, Scalar
from sadq.networks.stream import ActionStream
from sadq.types import Array, Key


class Head(Protocol):
    """What a value network asks of its head."""

    def __call__(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Return:
        """The return of every action."""

    def mean(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        """Its expectation: f32[A]."""


class ScalarHead(eqx.Module):
    """One expected return for every action."""

    stream: ActionStream
    huber_at: float | None = eqx.field(static=True)

    def __init__(
        self, features: int, actions: int, dueling: bool, huber_at: float | None, key: Key, noisy: bool = False
    ):
        self.stream = ActionStream(features, features, actions, 1, dueling, key, noisy)
        self.huber_at = huber_at

    def __call__(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Scalar:
        return Scalar(self.mean(features, mask), self.huber_at)

    def mean(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        return self.stream(features, mask)[:, 0]


class CategoricalHead(eqx.Module):
    """Logits over fixed, evenly spaced atoms for every action (Bellemare et al., 2017)."""

    stream: ActionStream
    atoms: int = eqx.field(static=True)
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def __init__(
        self,
        features: int,
        actions: int,
        dueling: bool,
        atoms: int,
        support: tuple[float, float],
        key: Key,
        noisy: bool = False,
    ):
        self.stream = ActionStream(features, features, actions, atoms, dueling, key, noisy)
        self.atoms, (self.low, self.high) = atoms, support

    def __call__(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Categorical:
        return Categorical(self.stream(features, mask), jnp.linspace(self.low, self.high, self.atoms))

    def mean(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        return self(features, mask).mean


class QuantileHead(eqx.Module):
    """The return at N fixed, evenly spaced levels for every action (Dabney et al., 2018a)."""

    stream: ActionStream
    quantiles: int = eqx.field(static=True)
    huber_at: float = eqx.field(static=True)
    mixing: Mixing = eqx.field(static=True)

    def __init__(
        self,
        features: int,
        actions: int,
        dueling: bool,
        quantiles: int,
        huber_at: float,
        mixing: Mixing,
        key: Key,
        noisy: bool = False,
    ):
        self.stream = ActionStream(features, features, actions, quantiles, dueling, key, noisy)
        self.quantiles, self.huber_at, self.mixing = quantiles, huber_at, mixing

    def __call__(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Quantile:
        return evenly(self.stream(features, mask), midpoints(self.quantiles), self.huber_at, self.mixing)

    def mean(self, features: Array, mask: Array | None = None, key: Key | None = None) -> Array:
        return self.stream.averaged()(features, mask)[:, 0]


def midpoints(count: int) -> Array:
    """The middles of `count` equal parts of [0, 1]."""
    return (jnp.arange(count, dtype=jnp.float32) + 0.5) / count


def evenly(values: Array, levels: Array, huber_at: float, mixing: Mixing) -> Quantile:
    """Quantiles f32[A, N] at given levels that each stand for the same share of probability."""
    count = levels.shape[0]
    return Quantile(values, levels, jnp.full(count, 1 / count), huber_at, mixing)
