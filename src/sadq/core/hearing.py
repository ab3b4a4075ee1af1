"""Whether a model has earned to be heard: by agreement with the base beyond chance (Cohen's kappa), or by costing little.

A model that has not learned what its environment does still prefers some action everywhere, and to hear it is to hear
noise. Its choice is known to be more than that where it meets the base's own oftener than two choosers would that take
each action as often as these do, but without looking at the state. Where episodes are short, noise too costs next to
nothing, and needs no leave.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array

MEMORY = 100
"""Updates over which everything here is averaged: one batch is too few samples to tell agreement from chance."""
BEARABLE = 5.0
"""Value gaps, by which values fall in all for hearing a model, from which on it needs to agree; it needs not at half."""
SMALLEST = 1e-30
"""Instead of what may be zero below a fraction line."""


class Record(NamedTuple):
    """Running means over batches, f32[] each; from 0 on, so that there is no agreement at first."""

    same: Array  # the share of samples on which base and model choose the same action
    by_chance: Array  # what that would be if both did not look at the state
    lowering: Array  # what targets fall by where the model's action takes the place of the base's
    gap: Array  # between the values of actions, times 1 - discount: what is lowered over and over adds up to more

    @classmethod
    def empty(cls) -> "Record":
        return cls(*jnp.zeros(4))

    @classmethod
    def of_batch(cls, base: Array, model: Array, action_count: int, lowering: Array, gap: Array) -> "Record":
        """Of the actions i32[B] that both choose, and what that means for targets, f32[] each."""
        taken = [jnp.mean(jax.nn.one_hot(chosen, action_count), axis=0) for chosen in (base, model)]
        return cls(jnp.mean(base == model), jnp.sum(taken[0] * taken[1]), lowering, gap)

    def then(self, new: "Record") -> "Record":
        """After another batch."""
        return jax.tree.map(lambda mean, one: mean + (one - mean) / MEMORY, self, new)

    @property
    def agreement(self) -> Array:
        """Cohen's kappa: 1 where all choices are the same, 0 where no more are than by chance."""
        return (self.same - self.by_chance) / jnp.maximum(1 - self.by_chance, 1e-8)

    def heard(self, alpha: Array, needed: float) -> Array:
        """The share of its weight, 1 - `alpha`, that the model has earned.

        By agreement nothing up to `needed` and all from twice that on; by its cost nothing from `BEARABLE` gaps on and all
        up to half of them. The greater counts.
        """
        agreeing = jnp.clip(self.agreement / needed - 1, 0, 1)
        margin = BEARABLE * self.gap / jnp.maximum((1 - alpha) * self.lowering, SMALLEST)
        bearable = jnp.where(self.gap > 0, jnp.clip(margin - 1, 0, 1), 0.0)  # nothing is known before the first batch
        return jnp.maximum(agreeing, bearable)
