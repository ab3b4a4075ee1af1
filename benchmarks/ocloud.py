"""Decisions a second of the O-Cloud environment, a random policy included: `python benchmarks/ocloud.py` prints JSON."""

import argparse
import json
import statistics
import time
from typing import Any

import jax
import machine
from episodes import random_episode

from sadq import keys
from sadq.envs.ocloud import OCloud, make

TARGETS = {"simulated": 30_000, "precomputed": 150_000}
"""Decisions a second asked for on two cores."""


def measure(environment: OCloud, batch: int, repetitions: int) -> dict[str, Any]:
    """Rates of whole episodes, `batch` side by side."""
    program = jax.jit(jax.vmap(lambda key: random_episode(environment, key)[0]))
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
