"""Which stored transitions a batch sees: uniformly, or by priority (Schaul et al., 2016)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.replay.store import Ring
from sadq.types import Array, Key


def uniform(ring: Ring, written: Array, key: Key, batch: int) -> Array:
    """Flat positions i32[B], with replacement, among the rows whose n-step window is complete."""
    complete = jnp.minimum(written, ring.rows) - (ring.steps - 1)
    drawn = jax.random.randint(key, (batch,), 0, complete * ring.environments)
    age = ring.steps - 1 + drawn // ring.environments
    row = (written - 1 - age) % ring.rows
    return row * ring.environments + drawn % ring.environments


def kept(key: Key, number: Array, networks: int, share: float) -> Array:
    """Bootstrap masks bool[..., K]: which networks of an ensemble learn from which transitions.

    A function of the transition's number in the run rather than a stored mask: the same at every visit, and free of
    memory.
    """
    own = jax.vmap(lambda one: jax.random.bernoulli(jax.random.fold_in(key, one), share, (networks,)))
    return own(number.reshape(-1)).reshape(*number.shape, networks)


class Priorities(NamedTuple):
    """Priorities to the power of the exponent, in blocks whose sums are kept: a two-level search tree.

    A draw looks at one cumulative sum over the blocks and one inside a block, about 2 * sqrt(rows * E) numbers.
    """

    leaves: Array  # f32[blocks, block]; zero where nothing may be drawn
    sums: Array  # f32[blocks]
    largest: Array  # f32[]: the largest priority (with exponent) ever given, which new transitions get


class Sampled(NamedTuple):
    """Drawn positions with their importance weights."""

    position: Array  # i32[B]
    weight: Array  # f32[B], largest one 1


class Prioritised:
    """Proportional prioritised replay over a ring."""

    def __init__(self, ring: Ring, exponent: float = 0.6):
        self.ring, self.exponent = ring, exponent
        self.size = ring.rows * ring.environments
        self.block = max(1, round(self.size**0.5))
        self.blocks = -(-self.size // self.block)

    def init(self) -> Priorities:
        """No transition can be drawn yet."""
        leaves = jnp.zeros((self.blocks, self.block), jnp.float32)
        return Priorities(leaves, jnp.zeros(self.blocks, jnp.float32), jnp.float32(1))

    def add(self, priorities: Priorities, written: Array, count: int) -> Priorities:
        """Account for a collect of `count` rows written after `written` ones.

        New transitions get the largest priority. The newest n - 1 rows cannot be drawn until their window is complete,
        so the rows opened now are those that the collect completed, and the ones it overwrote are closed.
        """
        ring, wait = self.ring, self.ring.steps - 1
        environments = jnp.arange(ring.environments)

        def positions(first: Array, rows: int) -> tuple[Array, Array]:
            row = first + jnp.arange(rows)
            return ((row % ring.rows)[:, None] * ring.environments + environments).reshape(-1), row

        closed, _ = positions(written, count)
        priorities = self._set(priorities, closed, jnp.zeros(closed.shape))
        opened, row = positions(written - wait, count)
        # Rows before the first are not there: they keep whatever they have, which is zero.
        value = jnp.repeat(jnp.where(row >= 0, priorities.largest, 0.0), ring.environments)
        return self._set(priorities, opened, value)

    def sample(self, priorities: Priorities, key: Key, batch: int, importance: Array) -> Sampled:
        """Positions drawn in proportion to their priority, one from each of B equal strata."""
        boundaries = jnp.cumsum(priorities.sums)
        total = boundaries[-1]
        target = (jnp.arange(batch) + jax.random.uniform(key, (batch,))) / batch * total
        # A number next to one rounds to the whole total, beyond every block that holds something.
        last_block = self.blocks - 1 - jnp.argmax(priorities.sums[::-1] > 0)
        block = jnp.minimum(jnp.searchsorted(boundaries, target, side="right"), last_block)
        inside = target - jnp.where(block > 0, boundaries[block - 1], 0.0)
        leaves = priorities.leaves[block]
        cumulative = jnp.cumsum(leaves, axis=1)
        place = jnp.sum(cumulative <= inside[:, None], axis=1)
        # Rounding may carry a target past the last open leaf; step back to it, never onto a closed one.
        last_open = self.block - 1 - jnp.argmax(leaves[:, ::-1] > 0, axis=1)
        place = jnp.minimum(place, last_open)
        probability = jnp.take_along_axis(leaves, place[:, None], axis=1)[:, 0] / total
        weight = jnp.power(probability * jnp.sum(priorities.leaves > 0), -importance)
        return Sampled(block * self.block + place, weight / jnp.max(weight))

    def update(self, priorities: Priorities, index: Array, priority: Array) -> Priorities:
        """Give the drawn positions their new priorities."""
        value = jnp.power(jnp.abs(priority) + 1e-6, self.exponent)
        changed = self._set(priorities, index, value)
        return changed._replace(largest=jnp.maximum(priorities.largest, jnp.max(value)))

    def _set(self, priorities: Priorities, index: Array, value: Array) -> Priorities:
        block = index // self.block
        leaves = priorities.leaves.at[block, index % self.block].set(value)
        # Sums are taken anew over the touched blocks: adding differences would drift.
        sums = priorities.sums.at[block].set(jnp.sum(leaves[block], axis=1))
        return priorities._replace(leaves=leaves, sums=sums)
