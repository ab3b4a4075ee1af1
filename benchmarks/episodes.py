"""An episode of a native environment with uniformly random decisions: what O-Cloud's and CityFlow's speed is taken of."""

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.envs import base
from sadq.envs.base import Environment
from sadq.types import Array, Key, PyTree


def random_episode(environment: Environment, key: Key) -> tuple[Array, PyTree]:
    """(return, last state) of an episode from its reset on; all observations are made."""

    def step(carry: tuple[base.Timed, Array], number: Array) -> tuple[tuple[base.Timed, Array], None]:
        timed, total = carry
        action = jax.random.randint(keys.at(key, number), (), 0, environment.action_count)
        timed, outcome = base.step(environment, timed, action, key)
        # The observation takes part in the result, or the compiler would leave it out.
        return (timed, total + outcome.reward + 1e-9 * jnp.sum(outcome.observation)), None

    carry = base.reset(environment, key), jnp.float32(0)
    (timed, total), _ = jax.lax.scan(step, carry, jnp.arange(environment.max_steps))
    return total, timed.state
