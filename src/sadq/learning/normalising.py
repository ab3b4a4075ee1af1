"""What a member has seen so far, as a mean and a deviation of every entry of its observations, and where these go."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq.learning.state import LearnerState
from sadq.types import Array, PyTree

SMALLEST_VARIANCE = 1e-8


class Statistics(NamedTuple):
    """Of all observations so far (Chan et al., 1979, for what is added)."""

    number: Array  # f32[]: how many
    mean: Array  # f32[*observation_shape]
    squares: Array  # f32[*observation_shape]: the sum of squared distances from the mean

    @classmethod
    def of_nothing(cls, shape: tuple[int, ...]) -> "Statistics":
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))

    def with_more(self, observations: Array) -> "Statistics":
        """After observations [T, lanes, *observation_shape], too."""
        added = observations.shape[0] * observations.shape[1]
        mean = jnp.mean(observations, axis=(0, 1))
        squares = jnp.sum(jnp.square(observations - mean), axis=(0, 1))
        number, distance = self.number + added, mean - self.mean
        weight = added / number
        return Statistics(
            number, self.mean + distance * weight, self.squares + squares + jnp.square(distance) * self.number * weight
        )

    @property
    def deviation(self) -> Array:
        return jnp.sqrt(self.squares / jnp.maximum(self.number, 1.0) + SMALLEST_VARIANCE)


def observed(state: LearnerState, observations: Array) -> LearnerState:
    """The state after a collect's observations were counted; networks and model see by the new scale from now on.

    The target network, too: with the scale of its last copy it would begin with none at all. A member that is frozen
    keeps the scale that it has.
    """
    before = state.statistics
    if before is None:
        return state
    after = before.with_more(observations)
    healthy = state.online.diverged_at < 0
    after = jax.tree.map(lambda new, old: jnp.where(healthy, new, old), after, before)
    online = state.online._replace(parameters=_seeing(state.online.parameters, after, lambda own: own.encoder))
    target, model = _seeing(state.target, after, lambda own: own.encoder), state.model
    if model is not None:
        model = model._replace(parameters=_seeing(model.parameters, after, lambda own: own))
    return state._replace(online=online, target=target, model=model, statistics=after)


def _seeing(module: PyTree, statistics: Statistics, part: Any) -> PyTree:
    """A module, whose `part` sees by these statistics; the networks of an ensemble all do."""

    def places(own: Any) -> tuple[Array, Array]:
        return part(own).mean, part(own).deviation

    mean, deviation = places(module)
    new = jnp.broadcast_to(statistics.mean, mean.shape), jnp.broadcast_to(statistics.deviation, deviation.shape)
    return eqx.tree_at(places, module, new)
