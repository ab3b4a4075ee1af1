"""Whether a model has earned to be heard: by agreement with the base beyond chance (Cohen's kappa), or by short episodes.

A model that has not learned what its environment does still prefers some action everywhere, and to hear it is to hear
noise. Its choice is known to be more than that where it meets the base's own oftener than two choosers would that take
each action as often as these do, but without looking at the state. Where little is bootstrapped in a row, noise can lower
values by little, and needs no leave.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array

MEMORY = 100
"""Updates over which everything here is averaged: one batch is too few samples to tell agreement from chance."""
BEARABLE, UNBEARABLE = 6.0, 9.0
"""Gaps between the best and the worst action by which values would fall in all if the model always chose the worst: up to
the first it need not agree, from the second on it must."""


class Record(NamedTuple):
    """Running means over batches, f32[] each."""

    same: Array  # the share of samples on which base and model choose the same action
    by_chance: Array  # what that would be if both did not look at the state
    discount: Array  # of what is bootstrapped, 0 where nothing is

    @classmethod
    def empty(cls) -> "Record":
        """No agreement, and no end to what is bootstrapped in a row: so no model is heard at first."""
        return cls(jnp.zeros(()), jnp.zeros(()), jnp.ones(()))

    @classmethod
    def of_batch(cls, base: Array, model: Array, action_count: int, discount: Array) -> "Record":
        """Of the actions i32[B] that both choose, and the discounts f32[B] of what these are worth."""
        taken = [jnp.mean(jax.nn.one_hot(chosen, action_count), axis=0) for chosen in (base, model)]
        return cls(jnp.mean(base == model), jnp.sum(taken[0] * taken[1]), jnp.mean(discount))

    def then(self, new: "Record") -> "Record":
        """After another batch."""
        return jax.tree.map(lambda mean, one: mean + (one - mean) / MEMORY, self, new)

    @property
    def agreement(self) -> Array:
        """Cohen's kappa: 1 where all choices are the same, 0 where no more are than by chance."""
        return (self.same - self.by_chance) / jnp.maximum(1 - self.by_chance, 1e-8)

    def heard(self, alpha: Array, needed: float) -> Array:
        """The share of its weight, 1 - `alpha`, that the model has earned.

        By agreement nothing up to `needed` and all from twice that on; by what it can do at most nothing from `UNBEARABLE`
        gaps on and all up to `BEARABLE`. The greater counts.
        """
        agreeing = jnp.clip(self.agreement / needed - 1, 0, 1)
        # A target falls by no more than one gap, and so do those that it is made of.
        most = (1 - alpha) * self.discount / jnp.maximum(1 - self.discount, 1e-8)
        bearable = jnp.clip((UNBEARABLE - most) / (UNBEARABLE - BEARABLE), 0, 1)
        return jnp.maximum(agreeing, bearable)
