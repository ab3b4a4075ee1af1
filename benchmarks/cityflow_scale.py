"""How the traffic engine grows with the net, grids of 2 x 2 to 20 x 20 signals: `python benchmarks/cityflow_scale.py`.

Every measurement is a process of its own. On a CPU it is pinned to one core, and seconds are those that the core spent on
it, which a busy machine changes little; the best of several runs counts. `--against OLD/src` measures another version of
the library in turn. On a GPU, where seconds are the clock's: `--envs 16 --sizes 20`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

SIZES = (2, 4, 6, 8, 10, 14, 20)
SOURCE = Path(__file__).resolve().parent.parent / "src"
LEAST_SECONDS = 1.0
BLOCK = 100
"""Steps of one compiled call."""


def measure(config: Path, seconds: int, envs: int, dtype: str, repetitions: int) -> dict[str, Any]:
    """One net: building, compiling, and simulating all seconds under the net's own signal times."""
    import jax
    import jax.numpy as jnp

    from sadq.envs.cityflow import demand, files, road_network, signals
    from sadq.envs.cityflow.engine import Simulator

    if jax.default_backend() == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax.config.update("jax_enable_x64", dtype == "float64")
    now = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    began = now()
    network = road_network.build(files.read_scenario(config))
    phases = signals.cycled_phases(network, seconds)
    trips = [demand.drawn_trips(network, seconds, seed) for seed in range(envs)]
    simulator = Simulator(network, len(trips[0].flow), dtype=jnp.dtype(dtype))
    demands = [demand.demand_of(network, one) for one in trips]
    batch = jax.tree.map(lambda *parts: jnp.stack(parts), *demands)
    build = now() - began

    def block(demand: Any, state: Any, phases: Any) -> Any:
        def one(state: Any, phase: Any) -> Any:
            state = simulator.step(demand, state, phase)
            return state, simulator.slots - 1 - state.lists.free_count

        return jax.lax.scan(one, state, phases)

    states = jax.vmap(simulator.initial)(batch)
    several = jax.vmap(block, in_axes=(0, 0, None))
    if envs == 1:  # as one environment is: without the axis
        batch, states, several = jax.tree.map(lambda leaf: leaf[0], (batch, states)) + (block,)
    program = jax.jit(several, donate_argnums=1)
    shown = jnp.asarray(phases, jnp.int32).reshape(-1, BLOCK, phases.shape[1])
    began = now()
    compiled = program.lower(batch, states, shown[0]).compile()
    compilation = now() - began
    spent, inside = list[float](), 0
    while len(spent) < repetitions or sum(spent) < LEAST_SECONDS:
        state = jax.block_until_ready(jax.tree.map(jnp.copy, states))
        inside, began = 0, now()
        for one in shown:
            state, count = compiled(batch, state, one)
            inside += int(count.sum())
        spent.append(now() - began)
    tables = jax.tree.leaves((simulator.tables, states, batch))
    return {
        "lanes": network.lane_count,
        "links": len(network.link_names),
        "vehicles": len(trips[0].flow),
        "mean_inside": inside / seconds / envs,
        "build_seconds": build,
        "compile_seconds": compilation,
        "megabytes": sum(leaf.nbytes for leaf in tables if hasattr(leaf, "nbytes")) / 1e6,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "steps_per_second": seconds / min(spent),
        "vehicle_steps_per_second": inside / min(spent),
        "fault": int(jnp.max(state.fault)),
        "device": jax.devices()[0].device_kind,
    }


def in_turn(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every size with every version of the library, one after the other."""
    sys.path.insert(0, str(SOURCE))
    from city_nets import write_city

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in options.sizes:
            config = write_city(Path(folder) / str(size), size, options.seconds)
            for envs in options.envs:
                row: dict[str, Any] = {"size": size, "envs": envs, "dtype": options.dtype}
                for name, source in (("this", SOURCE), ("before", options.against)):
                    if source is not None and (name == "this" or size <= options.against_up_to):
                        row[name] = _worker(options, config, envs, Path(source))
                        print(json.dumps({"size": size, "envs": envs, name: row[name]}), file=sys.stderr, flush=True)
                rows.append(row)
    return rows


def _worker(options: argparse.Namespace, config: Path, envs: int, source: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", str(config), "--seconds", str(options.seconds)]
    command += ["--envs", str(envs), "--dtype", options.dtype, "--repetitions", str(options.repetitions)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="signals along a side")
    parser.add_argument("--envs", type=int, nargs="+", default=[1], help="environments side by side")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--against", type=Path, help="the src folder of another version, measured in turn")
    parser.add_argument("--against-up-to", type=int, default=max(SIZES), help="the largest size to measure it with")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        found = measure(options.worker, options.seconds, options.envs[0], options.dtype, options.repetitions)
        print(json.dumps(found))
        return
    results = in_turn(options)
    described = machine.describe() | {"device": results[0]["this"]["device"]}
    print(json.dumps({"machine": described, "results": results}, indent=1))


if __name__ == "__main__":
    main()
