"""Decisions a second of the CityFlow environment, a random policy included: `python benchmarks/cityflow.py` prints JSON.

On a GPU: `python benchmarks/cityflow.py --envs 10 50 200 1000 --devices 1`. The paper's run makes 40,000 decisions of 35
simulated seconds one after the other for each member, so the milliseconds of one simulated second matter as much as the
rate. XLA runs a step of one environment on one core, so on a CPU environments are split over as many host devices.
"""

import argparse
import json
import os
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import machine
from episodes import random_episode
from jax.sharding import Mesh, PartitionSpec

from sadq import keys
from sadq.envs.cityflow.environment import CityFlow, make
from sadq.types import Array, Key

TARGET = 80
"""Decisions a second to beat: those of CityFlow's own engine on DI-smartcross's grid, pinned to one core."""


def measure(environment: CityFlow, envs: int, repetitions: int) -> dict[str, Any]:
    """Rates of whole episodes, `envs` side by side."""
    devices = jax.devices()[: max(count for count in range(1, len(jax.devices()) + 1) if envs % count == 0)]
    split, mesh = PartitionSpec("envs"), Mesh(devices, ("envs",))

    def whole(key: Key) -> tuple[Array, Array]:
        total, state = random_episode(environment, key)
        return total, state.traffic.fault

    batch = jax.vmap(whole)
    program = jax.jit(jax.shard_map(batch, mesh=mesh, in_specs=split, out_specs=split, check_vma=False))
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
        "devices": len(devices),
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
    parser.add_argument("--devices", type=int, default=2, help="on a CPU, how many devices its cores are split into")
    options = parser.parse_args()
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={options.devices}".strip()
    environment = make(options.config, capacity=options.capacity)
    assert isinstance(environment, CityFlow)
    results = [measure(environment, envs, options.repetitions) for envs in options.envs]
    device = jax.devices()[0].device_kind
    described = {
        "machine": machine.describe() | {"device": device},
        "environment": environment.provenance,
        "results": results,
    }
    print(json.dumps(described, indent=1))


if __name__ == "__main__":
    main()
