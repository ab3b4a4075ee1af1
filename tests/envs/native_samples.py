"""Small native environments: two actors in one corridor, and one that shows a picture.

Apart from `sample_environments.py`, which worker processes import, for those are not to import JAX.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.base import Environment

CELLS = 5


@dataclasses.dataclass(frozen=True)
class Walkers(Environment):
    """Two walkers in one corridor: the first is to reach its right end, the second its left one.

    Each gets 1 on reaching its own end, where it stays, and the episode ends when both have. Walking into a wall is
    illegal. A walker sees its cell, one-hot, and whether its goal is on the right.
    """

    name: str = "Walkers"
    observation_size: int = CELLS + 1
    action_count: int = 2
    actors: int = 2
    max_steps: int = 8

    def initial(self, key):
        return jax.random.randint(key, (2,), 1, CELLS - 1)

    def transition(self, state, action, key):
        goal = jnp.array([CELLS - 1, 0])
        reached = jnp.where(state == goal, state, jnp.clip(state + 2 * action - 1, 0, CELLS - 1))
        return reached, (reached == goal) & (state != goal), jnp.all(reached == goal)

    def observe(self, state):
        return jnp.concatenate([jax.nn.one_hot(state, CELLS), jnp.array([[1.0], [0.0]])], axis=1)

    def legal(self, observation):
        return jnp.stack([observation[0] < 0.5, observation[CELLS - 1] < 0.5])


@dataclasses.dataclass(frozen=True)
class Screen(Environment):
    """A dot that action 1 moves to the right over a screen of 3 x 4 pixels in bytes; the far column ends an episode."""

    name: str = "Screen"
    action_count: int = 2
    max_steps: int = 6

    @property
    def observation_shape(self):
        return (3, 4, 1)

    @property
    def observation_dtype(self):
        return np.dtype(np.uint8)

    def initial(self, key):
        return jnp.stack([jax.random.randint(key, (), 0, 3), jnp.int32(0)])

    def transition(self, state, action, key):
        reached = state.at[1].add(action)
        return reached, 1.0 * (reached[1] == 3), reached[1] == 3

    def observe(self, state):
        return jnp.zeros((3, 4, 1), jnp.uint8).at[state[0], state[1], 0].set(255)
