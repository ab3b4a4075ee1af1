"""A dynamics model of observations on a common scale, which speaks of them in their own."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from sadq.core.rollout import Prediction
from sadq.dynamics.protocol import Space
from sadq.networks.normalised import standardised, unmoved
from sadq.types import Array, Key, Metrics, PyTree, Transition


class NormalisedModel(eqx.Module):
    """A model in the space of observations that sees, and predicts, them less their mean, in deviations."""

    model: Any
    mean: Array  # f32[*observation_shape]
    deviation: Array  # f32[*observation_shape]

    def __init__(self, model: Any, observation_shape: tuple[int, ...]):
        self.model = model
        self.mean, self.deviation = jnp.zeros(observation_shape), jnp.ones(observation_shape)

    @property
    def space(self) -> Space:
        return self.model.space

    def encode(self, observation: Array) -> PyTree:
        return self.model.encode(self._scaled(observation))

    def step(self, context: PyTree, action: Array, key: Key) -> Prediction:
        """What follows `action`, back in the observation's own units."""
        predicted = self.model.step(context, action, key)
        return predicted._replace(next_input=predicted.next_input * self.deviation + self.mean)

    def loss(self, transition: Transition, key: Key, features: Callable[[Array], Array]) -> tuple[Array, Metrics]:
        seen, reached = self._scaled(transition.observation), self._scaled(transition.next_observation)
        return self.model.loss(transition._replace(observation=seen, next_observation=reached), key, features)

    def movers(self) -> PyTree:
        return unmoved(self)

    def _scaled(self, observation: Array) -> Array:
        return standardised(observation, self.mean, self.deviation)
