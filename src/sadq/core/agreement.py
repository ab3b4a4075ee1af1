"""How far two ways to choose an action agree beyond chance (Cohen's kappa), and how far that lets a model be heard.

A model that has not learned what its environment does still prefers some action everywhere, and to hear it is to hear
noise. Its choice is known to be more than that where it meets the base's own oftener than two choosers would that take
each action as often as these do, but without looking at the state.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array

MEMORY = 100
"""Updates over which agreement is averaged: one batch is too few samples to tell it from chance."""


class ChoiceAgreement(NamedTuple):
    """Shares of samples on which base and model choose the same action, f32[] each; both 0 before the first."""

    same: Array
    by_chance: Array  # what would be expected of choosers that do not look at the state

    @classmethod
    def of_nothing(cls) -> "ChoiceAgreement":
        return cls(jnp.float32(0.0), jnp.float32(0.0))

    @classmethod
    def of_batch(cls, base: Array, model: Array, action_count: int) -> "ChoiceAgreement":
        """Of the actions i32[B] that both choose."""
        taken = [jnp.mean(jax.nn.one_hot(chosen, action_count), axis=0) for chosen in (base, model)]
        return cls(jnp.mean(base == model), jnp.sum(taken[0] * taken[1]))

    def then(self, new: "ChoiceAgreement") -> "ChoiceAgreement":
        """The running mean after another batch."""
        return jax.tree.map(lambda mean, one: mean + (one - mean) / MEMORY, self, new)

    @property
    def beyond_chance(self) -> Array:
        """Cohen's kappa: 1 where all choices are the same, 0 where no more are than by chance."""
        return (self.same - self.by_chance) / jnp.maximum(1 - self.by_chance, 1e-8)

    def trust(self, needed: float) -> Array:
        """The share of its weight that the model has: nothing up to the agreement `needed`, all from twice that on."""
        return jnp.clip(self.beyond_chance / needed - 1, 0, 1)
