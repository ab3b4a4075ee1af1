"""Numbers that change with training: exploration, learning rate, importance exponent, model-update credit."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import jax.numpy as jnp

from sadq.registry import Axis, positive, require
from sadq.types import Array, PyTree

Decay = Literal["exponential", "linear"]


def exploration_rate(
    step: Array, start: Array | float, end: Array | float, decay: Array | float, kind: Decay = "exponential"
) -> Array:
    """The probability of exploring at an env step. `decay` is a time constant, or the length of a linear ramp."""
    if kind == "linear":
        return end + (start - end) * jnp.clip(1 - step / decay, 0, 1)
    return end + (start - end) * jnp.exp(-step / decay)


def learning_rate_factor(progress: Array, kind: Literal["constant", "linear"]) -> Array:
    """What to multiply the learning rate with after the share `progress` of the run."""
    return jnp.float32(1) if kind == "constant" else jnp.clip(1 - progress, 0, 1)


def importance_exponent(progress: Array, start: Array | float) -> Array:
    """Prioritised replay's beta: from `start` to 1 over the run."""
    return start + (1 - start) * jnp.clip(progress, 0, 1)


def model_update_credit(
    credit: Array, reconstruction: Array, threshold: Array | float, fraction: Array | float
) -> tuple[Array, Array]:
    """The paper's adaptive model schedule: (is an update due, credit left).

    Each slot earns one whole credit while the last reconstruction loss is above the threshold, else only the reduced
    fraction t_f; an update costs one.
    """
    earned = credit + jnp.where(reconstruction >= threshold, 1.0, fraction)
    due = earned >= 1
    return due, jnp.where(due, earned - 1, earned)


PACINGS = Axis("pacing", "which of its slots a model update takes", "init", "due", "told")


class Credit(NamedTuple):
    """What an adaptive pacing remembers."""

    earned: Array  # f32[]
    reconstruction: Array  # f32[]: of the newest model update


class Pacing(Protocol):
    """A rule; what it remembers is a pytree of its own, None where every slot is taken."""

    def init(self) -> PyTree:
        """The memory before the first slot."""

    def due(self, memory: PyTree, slot: Array) -> tuple[Array, PyTree]:
        """(whether slot number `slot` i32[] is taken bool[], the memory after it)."""

    def told(self, memory: PyTree, reconstruction: Array) -> PyTree:
        """The memory after an update whose model reconstructed as badly as this, f32[]."""


@PACINGS.register("every")
@dataclass(frozen=True)
class EverySlot:
    """A model update in every slot."""

    def init(self) -> None:
        return None

    def due(self, memory: None, slot: Array) -> tuple[Array, None]:
        return jnp.bool_(True), None

    def told(self, memory: None, reconstruction: Array) -> None:
        return None


@PACINGS.register("adaptive")
@dataclass(frozen=True)
class Adaptive:
    """The paper's schedule: every slot while the model reconstructs badly, then only a share of them."""

    threshold: float = 1e-3
    """The reconstruction loss from which on every slot is taken (tau_M)."""
    fraction: float = 0.4
    """The share of slots that is taken below it (t_f)."""
    in_phase: bool = False
    """Take that share at the same slots in every member of a fleet, which so skip together; else as credit is earned."""

    def __post_init__(self) -> None:
        positive(self, "threshold")
        require(self, 0 < self.fraction <= 1, "fraction", "must lie in (0, 1]")

    def init(self) -> Credit:
        """No credit, and a model that reconstructs nothing yet."""
        return Credit(jnp.float32(0), jnp.float32(jnp.inf))

    def due(self, credit: Credit, slot: Array) -> tuple[Array, Credit]:
        """(whether slot number `slot` i32[] is taken, the credit after it)."""
        if not self.in_phase:
            taken, left = model_update_credit(credit.earned, credit.reconstruction, self.threshold, self.fraction)
            return taken, credit._replace(earned=left)
        before, after = slot * self.fraction, (slot + 1) * self.fraction
        shared = jnp.floor(after) > jnp.floor(before)
        return shared | (credit.reconstruction >= self.threshold), credit

    def told(self, credit: Credit, reconstruction: Array) -> Credit:
        return credit._replace(reconstruction=reconstruction)
