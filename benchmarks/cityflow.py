"""Decisions a second of the CityFlow environment, a random policy included: `python benchmarks/cityflow.py` prints JSON.

On a GPU: `python benchmarks/cityflow.py --envs 10 50 200 1000`. The paper's run makes 40,000 decisions of 35 simulated
seconds one after the other for each member, so the milliseconds of one simulated second matter as much as the rate.
"""

import argparse
import json
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import machine

from sadq import keys
from sadq.envs import base
from sadq.envs.cityflow.environment import CityFlow, make
from sadq.types import Array, Key

TARGET = 80
"""Decisions a second to beat: those of CityFlow's own engine on DI-smartcross's grid, pinned to one core."""


def episode(environment: CityFlow, key: Key) -> tuple[Array, Array]:
    """(return, fault) of an episode with uniformly random decisions, from its reset on; all observations are made."""

    def step(carry: tuple[base.Timed, Array], number: Array) -> tuple[tuple[base.Timed, Array], None]:
        timed, total = carry
        action = jax.random.randint(keys.at(key, number), (), 0, environment.action_count)
        timed, outcome = base.step(environment, timed, action, key)
        # The observation takes part in the result, or the compiler would leave it out.
        return (timed, total + outcome.reward + 1e-9 * jnp.sum(outcome.observation)), None

    carry = base.reset(environment, key), jnp.float32(0)
    (timed, total), _ = jax.lax.scan(step, carry, jnp.arange(environment.max_steps))
    return total, timed.state.traffic.fault


def measure(environment: CityFlow, envs: int, repetitions: int) -> dict[str, Any]:
    """Rates of whole episodes, `envs` side by side."""
    program = jax.jit(jax.vmap(lambda key: episode(environment, key)))
    began = time.perf_counter()
    jax.block_until_ready(program(keys.range_of(keys.member_key(0), 0, envs)))
    first = time.perf_counter() - began
    spent, faults = [], 0
    for repetition in range(1, repetitions + 1):
        own = jax.block_until_ready(keys.range_of(keys.member_key(repetition), 0, envs))
        began = time.perf_counter()
        _, fault = jax.block_until_ready(program(own))
        spent.append(time.perf_counter() - began)
        faults += int(jnp.sum(fault > 0))
    simulated = environment.max_steps * environment.steps[1] * environment.network.scenario.interval
    rates = [envs * environment.max_steps / seconds for seconds in spent]
    return {
        "envs": envs,
        "decisions_per_second": {"median": statistics.median(rates), "least": min(rates), "most": max(rates)},
        "target": TARGET,
        "milliseconds_per_simulated_second": 1000 * statistics.median(spent) / simulated,
        "repetitions": repetitions,
        "faults": faults,
        "first_call_seconds": first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 16], help="environments side by side")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--config", help="a CityFlow config.json instead of the generated grid")
    parser.add_argument("--capacity", type=int, help="vehicles inside the net at once")
    options = parser.parse_args()
    environment = make(options.config, capacity=options.capacity)
    assert isinstance(environment, CityFlow)
    results = [measure(environment, envs, options.repetitions) for envs in options.envs]
    described = {"machine": machine.describe(), "environment": environment.provenance, "results": results}
    print(json.dumps(described, indent=1))


if __name__ == "__main__":
    main()
