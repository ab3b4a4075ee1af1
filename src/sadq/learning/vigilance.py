"""Whether listening to the model pays: it is trusted less while the returns of training fall below what they were.

A gate sees batches, and a model can be right about every transition of them while the values that it leads to make the
agent worse. What the agent achieves tells: trust shrinks while it falls, and grows back slowly.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array, Transition

RECENT, LASTING = 0.01, 0.05
"""Over which share of a training returns are averaged: to see a fall soon, and to know a height that was no luck."""
SURE = 2.0
"""Standard errors of the recent returns that a fall must exceed."""
SHRINKING, GROWING = 0.005, 0.25
"""Over which share of a training trust shrinks to its e-th part, and grows from nothing to all."""


class Tally(NamedTuple):
    """Returns of episodes that ended, older ones with less weight: f32[] each."""

    number: Array
    total: Array
    squares: Array

    @classmethod
    def of_nothing(cls) -> "Tally":
        return cls(*jnp.zeros(3))

    def with_more(self, kept: Array, ended: Array, returns: Array) -> "Tally":
        """After a collect in whose steps [T, lanes] some episodes ended; what was before keeps this share of its weight."""
        new = jnp.sum(ended * 1.0), jnp.sum(returns), jnp.sum(jnp.square(returns))
        return Tally(*(kept * old + added for old, added in zip(self, new, strict=True)))

    @property
    def mean(self) -> Array:
        return self.total / jnp.maximum(self.number, 1e-8)

    @property
    def error(self) -> Array:
        """The standard error of the mean."""
        variance = self.squares / jnp.maximum(self.number, 1e-8) - jnp.square(self.mean)
        return jnp.sqrt(jnp.maximum(variance, 0.0) / jnp.maximum(self.number, 1e-8))


class Standing(NamedTuple):
    """What a member has achieved in training, and how far its model is trusted for it."""

    running: Array  # f32[lanes]: returns of the episodes under way
    recent: Tally
    lasting: Tally
    best: Array  # f32[]: the highest and the lowest lasting mean so far
    worst: Array
    trust: Array  # f32[], in [0, 1]

    def alpha(self, alpha: Array) -> Array:
        """The weight of the base choice, of which trust leaves the model its part."""
        return 1 - (1 - alpha) * self.trust


@dataclass(frozen=True)
class Vigilance:
    """Trust shrinks while recent returns are below the best by more than a share of what was learned, and than chance."""

    tolerance: float

    def init(self, lanes: int) -> Standing:
        nothing, low = Tally.of_nothing(), jnp.float32(-jnp.inf)
        return Standing(jnp.zeros(lanes), nothing, nothing, low, -low, jnp.float32(1))

    def watched(self, standing: Standing, collected: Transition, share: Array | float) -> Standing:
        """After a collect [T, lanes], which is such a share of the training."""

        def step(running: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, ended = now
            running = running + reward
            return jnp.where(ended, 0.0, running), jnp.where(ended, running, 0.0)

        ended = collected.terminated | collected.truncated
        running, returns = jax.lax.scan(step, standing.running, (collected.reward, ended))
        recent = standing.recent.with_more(jnp.exp(-share / RECENT), ended, returns)
        lasting = standing.lasting.with_more(jnp.exp(-share / LASTING), ended, returns)
        known = lasting.number > 0
        best = jnp.where(known, jnp.maximum(standing.best, lasting.mean), standing.best)
        worst = jnp.where(known, jnp.minimum(standing.worst, lasting.mean), standing.worst)
        allowed = jnp.maximum(self.tolerance * (best - worst), SURE * recent.error)
        falls = known & (best - recent.mean > allowed)
        grown = jnp.minimum(standing.trust + share / GROWING, 1.0)
        trust = jnp.where(falls, standing.trust * jnp.exp(-share / SHRINKING), grown)
        return Standing(running, recent, lasting, best, worst, trust)
