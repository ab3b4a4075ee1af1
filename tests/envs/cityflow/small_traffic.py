"""A small environment and its compiled decision, shared by the tests here: compiling takes longer than driving."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs.cityflow.environment import make

KEY = keys.member_key(3)
ACTIONS = (1, 5, 5, 14, 10, 0)


@functools.cache
def environment():
    """Two intersections, and six decisions of 20 s."""
    return make(rows=1, columns=2, seconds=100, green_seconds=15, capacity=500)


@functools.cache
def transition():
    return jax.jit(lambda state, action: environment().transition(state, action, KEY))


def played(choose, key=KEY):
    """All states of an episode, stacked, and its rewards; `choose(state, step)` gives actions."""
    state, states, rewards = environment().initial(key), [], []
    states.append(state)
    for step in range(environment().max_steps):
        state, reward, terminated = transition()(state, jnp.int32(choose(state, step)))
        assert not terminated
        states.append(state)
        rewards.append(float(reward))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *states), rewards


@functools.cache
def episode():
    return played(lambda state, step: ACTIONS[step])
