"""What an ensemble's disagreement is used for (SUNRISE, Lee et al., 2021): weighted backups and optimism."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from sadq.registry import Axis, at_least, not_negative, require
from sadq.types import Array

ENSEMBLES = Axis("ensemble", "networks that learn side by side from one replay", "size", "bootstrap_share", "weights")


@ENSEMBLES.register("single")
@dataclass(frozen=True)
class Single:
    """One network, or several whose agreement is worth nothing."""

    size: ClassVar[int] = 1
    bootstrap_share: ClassVar[float] = 1.0  # of the transitions that each network learns from

    def weights(self, bootstrap_values: Array) -> Array:
        """Weights f32[B] of B backups, from every network's value f32[K, B] at the next states."""
        return jnp.ones(bootstrap_values.shape[1])


@ENSEMBLES.register("agreement")
@dataclass(frozen=True)
class Agreement(Single):
    """Networks whose backups weigh less where they disagree: sigmoid(-T * std) + 1/2."""

    size: int = 5  # type: ignore[misc]
    """How many networks."""
    temperature: float = 10.0
    """T: how strongly disagreement lowers a backup's weight."""
    bootstrap_share: float = 1.0  # type: ignore[misc]
    """The share of transitions that each network learns from (beta of the Bernoulli masks)."""

    def __post_init__(self) -> None:
        at_least(self, 1, "size")
        not_negative(self, "temperature")
        require(self, 0 < self.bootstrap_share <= 1, "bootstrap_share", "must lie in (0, 1]")

    def weights(self, bootstrap_values: Array) -> Array:
        return jax.vmap(backup_weight, (1, None))(bootstrap_values, self.temperature)


def backup_weight(values: Array, temperature: float) -> Array:
    """sigmoid(-std * T) + 1/2, from the members' bootstrap values f32[K] at one next state: f32[] in (1/2, 1]."""
    return jax.nn.sigmoid(-jnp.std(values) * temperature) + 0.5


def upper_confidence(values: Array, width: float) -> Array:
    """mean + width * std over members, from f32[K, A]: f32[A]."""
    return jnp.mean(values, axis=0) + width * jnp.std(values, axis=0)
