"""Decisions a second of the O-Cloud environment, a random policy included: `python benchmarks/ocloud.py` prints JSON."""

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
from sadq.envs.ocloud import OCloud, make
from sadq.types import Array, Key

TARGETS = {"simulated": 30_000, "precomputed": 150_000}
"""Decisions a second asked for on two cores."""


def episodes(environment: OCloud, key: Key) -> Array:
    """The return of an episode with uniformly random decisions, from its reset on; all observations are made."""

    def step(carry: tuple[base.Timed, Array], number: Array) -> tuple[tuple[base.Timed, Array], None]:
        timed, total = carry
        action = jax.random.randint(keys.at(key, number), (), 0, environment.action_count)
        timed, outcome = base.step(environment, timed, action, key)
        # The observation takes part in the result, or the compiler would leave it out.
        return (timed, total + outcome.reward + 1e-9 * jnp.sum(outcome.observation)), None

    carry = base.reset(environment, key), jnp.float32(0)
    (_, total), _ = jax.lax.scan(step, carry, jnp.arange(environment.max_steps))
    return total


def measure(environment: OCloud, batch: int, repetitions: int) -> dict[str, Any]:
    """Rates of whole episodes, `batch` side by side."""
    program = jax.jit(jax.vmap(lambda key: episodes(environment, key)))
    began = time.perf_counter()
    jax.block_until_ready(program(keys.range_of(keys.member_key(0), 0, batch)))
    first = time.perf_counter() - began
    rates = []
    for repetition in range(1, repetitions + 1):
        own = jax.block_until_ready(keys.range_of(keys.member_key(repetition), 0, batch))
        began = time.perf_counter()
        jax.block_until_ready(program(own))
        rates.append(batch * environment.max_steps / (time.perf_counter() - began))
    return {
        "decisions_per_second": {"median": statistics.median(rates), "least": min(rates), "most": max(rates)},
        "batch": batch,
        "repetitions": repetitions,
        "first_call_seconds": first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[10, 64], help="episodes side by side")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--source", default="synthetic", help="synthetic, hour, or a batch_task.csv")
    options = parser.parse_args()
    results = [
        {"warmup": warmup, "target": target} | measure(make(options.source, warmup=warmup), batch, options.repetitions)
        for warmup, target in TARGETS.items()
        for batch in options.batch
    ]
    device = jax.devices()[0].device_kind
    print(json.dumps({"machine": machine.describe() | {"device": device}, "results": results}, indent=1))


if __name__ == "__main__":
    main()
