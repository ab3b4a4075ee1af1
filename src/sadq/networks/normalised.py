"""Observations on a common scale: an encoder that first takes off a running mean and divides by a running deviation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq.networks.heads import Mover
from sadq.types import Array, PyTree

LARGEST = 10.0
"""What is further from the mean, in deviations, counts as this far."""


def standardised(observation: Array, mean: Array, deviation: Array) -> Array:
    return jnp.clip((observation - mean) / deviation, -LARGEST, LARGEST)


class NormalisedEncoder(eqx.Module):
    """An encoder of observations less their mean, in deviations; both are put in by whoever counts what was seen."""

    encoder: Any
    mean: Array  # f32[*observation_shape]
    deviation: Array  # f32[*observation_shape]

    def __init__(self, encoder: Any, observation_shape: tuple[int, ...]):
        self.encoder = encoder
        self.mean, self.deviation = jnp.zeros(observation_shape), jnp.ones(observation_shape)

    def __call__(self, observation: Array) -> Array:
        return self.encoder(standardised(observation, self.mean, self.deviation))

    def movers(self) -> PyTree:
        return unmoved(self)


def unmoved(module: Any) -> Any:
    """For every parameter of a module with mean and deviation what changes it: nothing does these."""
    marks = jax.tree.map(lambda _: Mover.RUN, module)
    return eqx.tree_at(lambda own: (own.mean, own.deviation), marks, (Mover.NOTHING, Mover.NOTHING))
