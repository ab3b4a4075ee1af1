"""What a gradient does to one array of parameters: Adam, AdamW and RMSprop, as rules of a few numbers per entry.

Every rule keeps at most two running means per entry and needs nothing but its own array, so that `learning/optimiser.py`
can put all of them, and the freezing of diverged members, into one pass over the parameters.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax.numpy as jnp

from sadq.registry import Axis, not_negative, positive, require
from sadq.types import Array

OPTIMISERS = Axis("optimiser", "what a gradient does to the parameters", "move")


class Moving(NamedTuple):
    """An array of parameters with its running means."""

    parameter: Array
    first: Array
    second: Array


class Optimiser(Protocol):
    """A rule; `count` i32[] is the number of the step, from 1."""

    def move(self, at: Moving, slope: Array, rate: Array | float, count: Array) -> Moving: ...


@OPTIMISERS.register("adam")
@dataclass(frozen=True)
class Adam:
    """Kingma & Ba, 2015."""

    beta1: float = 0.9
    """How much of the mean gradient is kept at a step."""
    beta2: float = 0.999
    """How much of the mean squared gradient is kept at a step."""
    epsilon: float = 1e-8
    """Added to the root of the mean square."""

    def __post_init__(self) -> None:
        for setting in ("beta1", "beta2"):
            require(self, 0 <= getattr(self, setting) < 1, setting, "must lie in [0, 1)")
        positive(self, "epsilon")

    def move(self, at: Moving, slope: Array, rate: Array | float, count: Array) -> Moving:
        # The two bias corrections are numbers, so they are put into the step size and epsilon: one root and one division
        # per parameter instead of one and three.
        correction = jnp.sqrt(1 - self.beta2**count)
        size, epsilon = rate * correction / (1 - self.beta1**count), self.epsilon * correction
        mean = self.beta1 * at.first + (1 - self.beta1) * slope
        square = self.beta2 * at.second + (1 - self.beta2) * jnp.square(slope)
        return Moving(at.parameter - size * mean / (jnp.sqrt(square) + epsilon), mean, square)


@OPTIMISERS.register("adamw")
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019)."""

    weight_decay: float = 1e-4
    """The share of every parameter that a step takes away, times the learning rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "weight_decay")

    def move(self, at: Moving, slope: Array, rate: Array | float, count: Array) -> Moving:
        moved = super().move(at, slope, rate, count)
        return moved._replace(parameter=moved.parameter - rate * self.weight_decay * at.parameter)


@OPTIMISERS.register("rmsprop")
@dataclass(frozen=True)
class RMSprop:
    """The gradient over the root of its mean square."""

    decay: float = 0.95
    """How much of the mean squared gradient is kept at a step."""
    epsilon: float = 1e-5
    """Added to the root of the mean square."""

    def __post_init__(self) -> None:
        require(self, 0 <= self.decay < 1, "decay", "must lie in [0, 1)")
        positive(self, "epsilon")

    def move(self, at: Moving, slope: Array, rate: Array | float, count: Array) -> Moving:
        square = self.decay * at.second + (1 - self.decay) * jnp.square(slope)
        return Moving(at.parameter - rate * slope / (jnp.sqrt(square) + self.epsilon), at.first, square)
