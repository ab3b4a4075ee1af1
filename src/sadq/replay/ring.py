"""A store of whole transitions: a ring of rows, one row per step of all lanes, on the device."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sadq.types import Array, Batch, Transition, TransitionSequence


@dataclass(frozen=True)
class Ring:
    """The shape of a ring, and what can be read from it; see `Store`."""

    capacity: int  # transitions
    lanes: int
    observation_shape: tuple[int, ...]
    action_count: int
    observation_dtype: np.dtype = np.dtype(np.float32)  # noqa: RUF009 (a dtype is immutable)
    has_masks: bool = False
    steps: int = 1  # n of the n-step view
    time_limit_is_terminal: bool = False

    @property
    def rows(self) -> int:
        return max(self.capacity // self.lanes, self.steps)

    @property
    def nbytes(self) -> int:
        shapes = jax.eval_shape(self.init)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))

    def init(self) -> Transition:
        """Every leaf is [rows, lanes, ...]."""
        shape = (self.rows, self.lanes)
        observation = jnp.zeros((*shape, *self.observation_shape), self.observation_dtype)
        mask = jnp.zeros((*shape, self.action_count), bool) if self.has_masks else None
        return Transition(
            observation=observation,
            action=jnp.zeros(shape, jnp.int32),
            reward=jnp.zeros(shape, jnp.float32),
            next_observation=observation,
            terminated=jnp.zeros(shape, bool),
            truncated=jnp.zeros(shape, bool),
            mask=mask,
            next_mask=mask,
        )

    def add(self, contents: Transition, written: Array, collected: Transition) -> Transition:
        count = collected.reward.shape[0]
        if self.rows % count == 0:
            # Collects then never straddle the end of the ring, and a contiguous write is the cheapest one.
            start = written % self.rows
            return jax.tree.map(
                lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), start, 0),
                contents,
                collected,
            )
        index = (written + jnp.arange(count)) % self.rows
        return jax.tree.map(lambda old, new: old.at[index].set(new.astype(old.dtype)), contents, collected)

    def one_step(self, contents: Transition, position: Array) -> Transition:
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[position], contents)

    def number(self, position: Array, written: Array) -> Array:
        row, lane = position // self.lanes, position % self.lanes
        age = (written - 1 - row) % self.rows
        return (written - 1 - age) * self.lanes + lane

    def terminal(self, transition: Transition) -> Array:
        if self.time_limit_is_terminal:
            return transition.terminated | transition.truncated
        return transition.terminated

    def n_step(self, contents: Transition, position: Array, discount: Array) -> Batch:
        first = last = self.one_step(contents, position)
        reward, factor = first.reward, discount * jnp.ones_like(first.reward)
        ended = first.terminated | first.truncated
        for offset in range(1, self.steps):
            following = self.one_step(contents, self._after(position, offset))
            reward = jnp.where(ended, reward, reward + factor * following.reward)
            factor = jnp.where(ended, factor, factor * discount)
            last = jax.tree.map(lambda old, new: _where(ended, old, new), last, following)
            ended = ended | following.terminated | following.truncated
        return Batch(
            observation=first.observation,
            action=first.action,
            reward=reward,
            next_observation=last.next_observation,
            discount=jnp.where(self.terminal(last), 0.0, factor),
            mask=first.mask,
            next_mask=last.next_mask,
        )

    def sequence(self, contents: Transition, position: Array, length: int, written: Array) -> TransitionSequence:
        offsets = jnp.arange(length)
        transition = self.one_step(contents, self._after(position[..., None], offsets))
        ended = transition.terminated | transition.truncated
        ended_before = jnp.cumsum(ended, axis=-1) - ended > 0
        stored = self.number(position, written)[..., None] + offsets * self.lanes < written * self.lanes
        return TransitionSequence(transition, stored & ~ended_before)

    def _after(self, position: Array, steps: Array | int) -> Array:
        """Some rows later in the same lane: they are `lanes` apart in the flat order, and the ring wraps."""
        return (position + steps * self.lanes) % (self.rows * self.lanes)


def _where(condition: Array, left: Array, right: Array) -> Array:
    """`jnp.where` along leading axes."""
    return jnp.where(condition.reshape(condition.shape + (1,) * (left.ndim - condition.ndim)), left, right)
