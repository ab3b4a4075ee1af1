"""Placement policies that need no learning: what an agent on O-Cloud has to beat. Ties go to the first server."""

from collections.abc import Callable

import jax.numpy as jnp

from sadq.envs.fixed_policies import Policy, uniform
from sadq.envs.ocloud.environment import OCloud
from sadq.types import Array, Key, PyTree

ROUNDING = 1e-5  # of the observed shares; demands are hundredths, so a real excess is larger


def round_robin(environment: OCloud) -> Policy:
    """Each server in turn."""
    return lambda state, observation, step, key: step % environment.servers


def shortest_queue(environment: OCloud) -> Policy:
    """The server with the fewest waiting tasks, and of several the one with the smallest share of its cores in use."""

    def act(state: PyTree, observation: Array, step: Array, key: Key) -> Array:
        _, cpu, _, waiting, _ = _parts(environment, observation)
        # A share of cores is at most 1, so it never outweighs a waiting task.
        return jnp.argmin(waiting + cpu / 2)

    return act


def best_fit(environment: OCloud) -> Policy:
    """Where the task starts at once, the server with the least cores and memory left, as shares; else the least penalty."""

    def act(state: PyTree, observation: Array, step: Array, key: Key) -> Array:
        _, cpu, memory, _, penalty = _parts(environment, observation)
        return _first_choice(_starts_at_once(environment, observation), -(cpu + memory), penalty)

    return act


def least_power(environment: OCloud) -> Policy:
    """Where the task starts at once, the server whose power it raises least; else the one with the least penalty."""

    def act(state: PyTree, observation: Array, step: Array, key: Key) -> Array:
        task, cpu, _, _, penalty = _parts(environment, observation)

        def power(use: Array) -> Array:
            return 2 * use - use**environment.power_exponent

        raised = power(jnp.minimum(cpu + task[0] / environment.cores, 1.0)) - power(cpu)
        return _first_choice(_starts_at_once(environment, observation), raised, penalty)

    return act


POLICIES: dict[str, Callable[[OCloud], Policy]] = {
    "random": uniform,
    "round_robin": round_robin,
    "shortest_queue": shortest_queue,
    "best_fit": best_fit,
    "least_power": least_power,
}


def _parts(environment: OCloud, observation: Array) -> tuple[Array, Array, Array, Array, Array]:
    """The task [3], and of each server the shares of cores and of memory, the waiting tasks and their penalty."""
    cpu, memory, waiting, penalty = observation[3:].reshape(4, environment.servers)
    return observation[:3], cpu, memory, waiting, penalty


def _starts_at_once(environment: OCloud, observation: Array) -> Array:
    task, cpu, memory, waiting, _ = _parts(environment, observation)
    fits = (cpu + task[0] / environment.cores <= 1 + ROUNDING) & (memory + task[1] / environment.memory <= 1 + ROUNDING)
    return fits & (waiting == 0)


def _first_choice(allowed: Array, cost: Array, otherwise: Array) -> Array:
    """The least cost among the allowed servers, and the least of `otherwise` where there is none."""
    return jnp.where(jnp.any(allowed), jnp.argmin(jnp.where(allowed, cost, jnp.inf)), jnp.argmin(otherwise))
