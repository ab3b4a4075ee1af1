"""Where transitions live: a ring of rows, one row per step of E environments, on the device.

The ring has no counters of its own. How many rows were ever written is the training step, which all members of a
fleet share, so the place to write stays one scalar under `vmap`.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from sadq.types import Array, Batch, Transition


@dataclass(frozen=True)
class Ring:
    """The shape of a replay, and what can be read from it."""

    capacity: int  # transitions
    environments: int
    observation_size: int
    action_count: int
    has_masks: bool = False
    steps: int = 1  # n of the n-step view
    time_limit_is_terminal: bool = False

    @property
    def rows(self) -> int:
        return max(self.capacity // self.environments, self.steps)

    @property
    def single_steps(self) -> "Ring":
        """The same ring read one step at a time, as the model does whatever n is."""
        return replace(self, steps=1, capacity=self.rows * self.environments)

    @property
    def nbytes(self) -> int:
        """What `init` will allocate."""
        shapes = jax.eval_shape(self.init)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))

    def init(self) -> Transition:
        """An empty ring: every leaf is [rows, E, ...]."""
        shape = (self.rows, self.environments)
        observation = jnp.zeros((*shape, self.observation_size), jnp.float32)
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

    def add(self, ring: Transition, written: Array, collected: Transition) -> Transition:
        """Write the rows of a collect, [T, E, ...], over the oldest ones; `written` counts the rows before it."""
        count = collected.reward.shape[0]
        if self.rows % count == 0:
            # Collects then never straddle the end of the ring, and a contiguous write is the cheapest one.
            start = written % self.rows
            return jax.tree.map(
                lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), start, 0),
                ring,
                collected,
            )
        index = (written + jnp.arange(count)) % self.rows
        return jax.tree.map(lambda old, new: old.at[index].set(new.astype(old.dtype)), ring, collected)

    def one_step(self, ring: Transition, index: Array) -> Transition:
        """The transitions at flat positions `index` (row * E + environment)."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[index], ring)

    def number(self, index: Array, written: Array) -> Array:
        """How many transitions had been stored before the ones at flat positions `index`."""
        row, environment = index // self.environments, index % self.environments
        age = (written - 1 - row) % self.rows
        return (written - 1 - age) * self.environments + environment

    def terminal(self, transition: Transition) -> Array:
        """Where nothing is bootstrapped beyond s'."""
        if self.time_limit_is_terminal:
            return transition.terminated | transition.truncated
        return transition.terminated

    def n_step(self, ring: Transition, index: Array, discount: Array) -> Batch:
        """The n-step view of the same positions: rewards up to the episode's end or n steps, then s_{t+n}."""
        first = last = self.one_step(ring, index)
        reward, factor = first.reward, discount * jnp.ones_like(first.reward)
        ended = first.terminated | first.truncated
        for offset in range(1, self.steps):
            # Rows of one environment are E apart in the flat order, and the ring wraps.
            following = self.one_step(ring, (index + offset * self.environments) % (self.rows * self.environments))
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


def _where(condition: Array, left: Array, right: Array) -> Array:
    """`jnp.where` along leading axes."""
    return jnp.where(condition.reshape(condition.shape + (1,) * (left.ndim - condition.ndim)), left, right)
