"""From features to a return for every action: expected, categorical (C51), quantile (QR-DQN).

A head answers two questions about one sample: `head(features, mask)` gives the return of every action, `head.mean(features,
mask)` only its expectation f32[A], which is cheaper where the return has many atoms. It *is* its mean until something in it
is drawn: `sampled(key)` draws what every sample has of its own (quantile levels), `drawn(key)` what is drawn once and kept
(a Bayesian last layer), `settled()` takes that back.
"""

import enum
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq.core.optimisers import Optimiser
from sadq.core.returns import CategoricalReturn, Mixing, QuantileReturn, Return, ScalarReturn
from sadq.networks.stream import ActionStream, HeadShape
from sadq.registry import Axis, at_least, not_negative, one_of, positive, require
from sadq.types import Array, Key, Mask, PyTree, TransitionSequence

HEADS = Axis("head", "what the network predicts for every action", "build")


class Mover(enum.Enum):
    """What changes a parameter."""

    RUN = "the run's optimiser and learning rate"
    HEAD = "the head's own optimiser and learning rate"
    NOTHING = "no gradient; whoever owns the network may put something else in its place"


class Look(NamedTuple):
    """What an auxiliary loss may look at, of one sample."""

    features: Array  # f32[H]: of the observation, by the network that learns
    action: Array  # i32[]
    mask: Mask  # bool[A]
    key: Key
    online: PyTree  # the network that learns
    target: PyTree  # its target network
    sequence: TransitionSequence | None  # from this sample on, of the head's `sequence_length`; None where it is 0


class Head(eqx.Module):
    """What a network asks of its head; all but the first have a default."""

    own_optimiser: ClassVar[Optimiser | None] = None
    sequence_length: ClassVar[int] = 0
    """How many consecutive transitions the auxiliary loss wants to see."""

    def __call__(self, features: Array, mask: Mask = None) -> Return:
        """The return of every action."""
        raise TypeError(f"{type(self).__name__} has no __call__: a head gives the return of every action.")

    def mean(self, features: Array, mask: Mask = None) -> Array:
        """Its expectation: f32[A]."""
        return self(features, mask).mean

    def sampled(self, key: Key) -> Self:
        """The head with what every sample has of its own drawn."""
        return self

    def drawn(self, key: Key) -> Self:
        """The head with what is drawn once and kept."""
        return self

    def settled(self) -> Self:
        """The head at its mean, whatever was drawn and kept."""
        return self

    def auxiliary_loss(self, look: Look) -> Array:
        """A loss of the head's own, f32[], added to that of the returns."""
        return jnp.zeros(())

    def movers(self) -> PyTree:
        """For every parameter, what changes it."""
        return jax.tree.map(lambda _: Mover.RUN, self)

    @property
    def own_learning_rate(self) -> float:
        """Of the parameters that the head's own optimiser moves."""
        return 0.0


@HEADS.register("scalar")
@dataclass(frozen=True)
class Scalar:
    """One expected return for every action."""

    huber: float | None = None
    """Where the loss turns from quadratic to linear; None: squared error."""

    def __post_init__(self) -> None:
        if self.huber is not None:
            positive(self, "huber")

    def build(self, shape: HeadShape, key: Key) -> "ScalarHead":
        return ScalarHead(ActionStream(shape, 1, key), self.huber)


class ScalarHead(Head):
    """One number for every action."""

    stream: ActionStream
    huber_at: float | None = eqx.field(static=True)

    def __call__(self, features: Array, mask: Mask = None) -> ScalarReturn:
        return ScalarReturn(self.mean(features, mask), self.huber_at)

    def mean(self, features: Array, mask: Mask = None) -> Array:
        return self.stream(features, mask)[:, 0]


@HEADS.register("categorical")
@dataclass(frozen=True)
class Categorical:
    """Probabilities of fixed, evenly spaced returns (C51; Bellemare et al., 2017)."""

    atoms: int = 51
    """How many returns have a probability of their own."""
    support: tuple[float, float] | None = None
    """The smallest and the largest of them; None: the run's `return_range`."""

    def __post_init__(self) -> None:
        at_least(self, 2, "atoms")
        if self.support is not None:
            pair = isinstance(self.support, tuple) and len(self.support) == 2
            ordered = pair and -jnp.inf < self.support[0] < self.support[1] < jnp.inf
            require(self, bool(ordered), "support", "must be two numbers, the smaller one first")

    def build(self, shape: HeadShape, key: Key) -> "CategoricalHead":
        low, high = self.support or shape.return_range
        return CategoricalHead(ActionStream(shape, self.atoms, key), self.atoms, low, high)


class CategoricalHead(Head):
    """Logits over the atoms for every action."""

    stream: ActionStream
    atoms: int = eqx.field(static=True)
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def __call__(self, features: Array, mask: Mask = None) -> CategoricalReturn:
        return CategoricalReturn(self.stream(features, mask), jnp.linspace(self.low, self.high, self.atoms))


@HEADS.register("quantile")
@dataclass(frozen=True)
class Quantile:
    """The return at fixed, evenly spaced quantile levels (QR-DQN; Dabney et al., 2018a)."""

    quantiles: int = 200
    """How many levels."""
    huber: float = 1.0
    """Where the quantile loss turns from quadratic to linear (kappa); 0: linear throughout."""
    mixing: Literal["interpolate", "mixture"] = "interpolate"
    """How SADQ combines two returns: level by level (the paper), or as a true mixture."""

    def __post_init__(self) -> None:
        at_least(self, 1, "quantiles")
        not_negative(self, "huber")
        one_of(self, "mixing", "interpolate", "mixture")

    def build(self, shape: HeadShape, key: Key) -> "QuantileHead":
        return QuantileHead(ActionStream(shape, self.quantiles, key), self.quantiles, self.huber, self.mixing)


class QuantileHead(Head):
    """N numbers for every action."""

    stream: ActionStream
    quantiles: int = eqx.field(static=True)
    huber_at: float = eqx.field(static=True)
    mixing: Mixing = eqx.field(static=True)

    def __call__(self, features: Array, mask: Mask = None) -> QuantileReturn:
        return evenly(self.stream(features, mask), midpoints(self.quantiles), self.huber_at, self.mixing)

    def mean(self, features: Array, mask: Mask = None) -> Array:
        return self.stream.averaged()(features, mask)[:, 0]


def midpoints(count: int) -> Array:
    """The middles of `count` equal parts of [0, 1]."""
    return (jnp.arange(count, dtype=jnp.float32) + 0.5) / count


def evenly(values: Array, levels: Array, huber_at: float, mixing: Mixing) -> QuantileReturn:
    """Quantiles f32[A, N] at given levels that each stand for the same share of probability."""
    count = levels.shape[0]
    return QuantileReturn(values, levels, jnp.full(count, 1 / count), huber_at, mixing)
