"""Which stored transitions a batch sees: uniformly, or by priority (Schaul et al., 2016)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from sadq.core.schedules import importance_exponent
from sadq.registry import Axis, share
from sadq.replay.store import Store
from sadq.types import Array, Key, PyTree

REPLAYS = Axis("replay", "how batches are drawn", "sampler")


class Drawn(NamedTuple):
    """Drawn positions with their importance weights."""

    position: Array  # i32[B]
    weight: Array  # f32[B], largest one 1


class Sampler(Protocol):
    """How positions are drawn from one store; its memory is a pytree of its own, None where it has none."""

    depends_on_updates: ClassVar[bool]
    """Whether a draw depends on the updates before it; where not, all batches of a collect are fetched in one gather."""

    def init(self) -> PyTree:
        """The memory before the first transition."""

    def add(self, memory: PyTree, written: Array, count: int) -> PyTree:
        """Account for a collect of `count` rows written after `written` ones."""

    def draw(self, memory: PyTree, written: Array, key: Key, batch: int, progress: Array) -> Drawn:
        """A batch, with `written` rows in the store and the share `progress` of the run done."""

    def update(self, memory: PyTree, position: Array, priority: Array) -> PyTree:
        """Hear how far off the drawn transitions were."""


def uniform(store: Store, written: Array, key: Key, batch: int, steps: int) -> Array:
    """Flat positions i32[B], with replacement, among the rows whose window of `steps` is complete."""
    complete = jnp.minimum(written, store.rows) - (steps - 1)
    drawn = jax.random.randint(key, (batch,), 0, complete * store.lanes)
    age = steps - 1 + drawn // store.lanes
    row = (written - 1 - age) % store.rows
    return row * store.lanes + drawn % store.lanes


def heard(key: Key, number: Array, networks: int, heard_share: float) -> Array:
    """Bootstrap masks bool[..., K]: which networks of an ensemble learn from which transitions.

    A function of the transition's number in the run rather than a stored mask: the same at every visit, and free of
    memory.
    """
    of_one = jax.vmap(lambda one: jax.random.bernoulli(jax.random.fold_in(key, one), heard_share, (networks,)))
    return of_one(number.reshape(-1)).reshape(*number.shape, networks)


@REPLAYS.register("uniform")
@dataclass(frozen=True)
class Uniform:
    """Every stored transition alike, with replacement."""

    def sampler(self, store: Store) -> "UniformSampler":
        return UniformSampler(store)


@dataclass(frozen=True)
class UniformSampler:
    """Draws that depend on nothing but their key."""

    depends_on_updates: ClassVar[bool] = False
    store: Store

    def init(self) -> None:
        return None

    def add(self, memory: None, written: Array, count: int) -> None:
        return None

    def draw(self, memory: None, written: Array, key: Key, batch: int, progress: Array) -> Drawn:
        return Drawn(uniform(self.store, written, key, batch, self.store.steps), jnp.ones(batch))

    def update(self, memory: None, position: Array, priority: Array) -> None:
        return None


@REPLAYS.register("prioritised")
@dataclass(frozen=True)
class Prioritised:
    """Transitions in proportion to how far off they were (Schaul et al., 2016)."""

    exponent: float = 0.6
    """How strongly priorities matter."""
    importance: float = 0.4
    """The initial strength of the correction, which grows to 1 over the run."""

    def __post_init__(self) -> None:
        share(self, "exponent", "importance")

    def sampler(self, store: Store) -> "PrioritisedSampler":
        return PrioritisedSampler(store, self.exponent, self.importance)


class Priorities(NamedTuple):
    """Priorities to the power of the exponent, in blocks whose sums are kept: a two-level search tree.

    A draw looks at one cumulative sum over the blocks and one inside a block, about 2 * sqrt(rows * lanes) numbers.
    """

    leaves: Array  # f32[blocks, block]; zero where nothing may be drawn
    sums: Array  # f32[blocks]
    largest: Array  # f32[]: the largest priority (with exponent) ever given, which new transitions get


class PrioritisedSampler:
    """Proportional prioritised replay."""

    depends_on_updates: ClassVar[bool] = True

    def __init__(self, store: Store, exponent: float = 0.6, importance: float = 0.4):
        self.store, self.exponent, self.importance = store, exponent, importance
        size = store.rows * store.lanes
        self.block = max(1, round(size**0.5))
        self.blocks = -(-size // self.block)

    def init(self) -> Priorities:
        """No transition can be drawn yet."""
        leaves = jnp.zeros((self.blocks, self.block), jnp.float32)
        return Priorities(leaves, jnp.zeros(self.blocks, jnp.float32), jnp.float32(1))

    def add(self, memory: Priorities, written: Array, count: int) -> Priorities:
        """New transitions get the largest priority.

        The newest n - 1 rows cannot be drawn until their window is complete, so the rows opened now are those that the
        collect completed, and the ones it overwrote are closed.
        """
        store, wait = self.store, self.store.steps - 1
        lanes = jnp.arange(store.lanes)

        def positions(first: Array, rows: int) -> tuple[Array, Array]:
            row = first + jnp.arange(rows)
            return ((row % store.rows)[:, None] * store.lanes + lanes).reshape(-1), row

        closed, _ = positions(written, count)
        memory = self._set(memory, closed, jnp.zeros(closed.shape))
        opened, row = positions(written - wait, count)
        # Rows before the first are not there: they keep whatever they have, which is zero.
        value = jnp.repeat(jnp.where(row >= 0, memory.largest, 0.0), store.lanes)
        return self._set(memory, opened, value)

    def draw(self, memory: Priorities, written: Array, key: Key, batch: int, progress: Array) -> Drawn:
        """One position from each of B equal strata of the total priority."""
        boundaries = jnp.cumsum(memory.sums)
        total = boundaries[-1]
        target = (jnp.arange(batch) + jax.random.uniform(key, (batch,))) / batch * total
        # A number next to one rounds to the whole total, beyond every block that holds something.
        last_block = self.blocks - 1 - jnp.argmax(memory.sums[::-1] > 0)
        block = jnp.minimum(jnp.searchsorted(boundaries, target, side="right"), last_block)
        inside = target - jnp.where(block > 0, boundaries[block - 1], 0.0)
        leaves = memory.leaves[block]
        cumulative = jnp.cumsum(leaves, axis=1)
        place = jnp.sum(cumulative <= inside[:, None], axis=1)
        # Rounding may carry a target past the last open leaf; step back to it, never onto a closed one.
        last_open = self.block - 1 - jnp.argmax(leaves[:, ::-1] > 0, axis=1)
        place = jnp.minimum(place, last_open)
        probability = jnp.take_along_axis(leaves, place[:, None], axis=1)[:, 0] / total
        # The published weight has the number of transitions as a factor, which the division by the largest cancels.
        weight = jnp.power(probability, -importance_exponent(progress, self.importance))
        return Drawn(block * self.block + place, weight / jnp.max(weight))

    def update(self, memory: Priorities, position: Array, priority: Array) -> Priorities:
        """Give the drawn positions their new priorities; one drawn twice gets the larger of its two."""
        value = jnp.power(jnp.abs(priority) + 1e-6, self.exponent)
        # Writing to a position twice has no defined order on an accelerator, but clearing and taking the largest does.
        block, place = position // self.block, position % self.block
        cleared = memory.leaves.at[block, place].set(0.0)
        changed = self._summed(memory._replace(leaves=cleared.at[block, place].max(value)), block)
        return changed._replace(largest=jnp.maximum(memory.largest, jnp.max(value)))

    def _set(self, memory: Priorities, position: Array, value: Array) -> Priorities:
        block = position // self.block
        leaves = memory.leaves.at[block, position % self.block].set(value)
        return self._summed(memory._replace(leaves=leaves), block)

    def _summed(self, memory: Priorities, block: Array) -> Priorities:
        # Sums are taken anew over the touched blocks: adding differences would drift.
        return memory._replace(sums=memory.sums.at[block].set(jnp.sum(memory.leaves[block], axis=1)))
