"""One measurement of this package in a process of its own; prints one line of JSON."""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flops import per_update

from sadq.experiment.build import MAX_CHUNK, make_learner, make_loop, resolve
from sadq.experiment.config import Config, Epsilon
from sadq.experiment.presets import preset
from sadq.experiment.run import Progress, create

PRESET = "acrobot"


def benchmark_config(agent: str) -> Config:
    """The preset with one member; evaluation and checkpoints fall outside every timed window."""
    return replace(preset(PRESET, agent), seeds=(0,), evaluations=1, checkpoint_seconds=1e9)


def speed(agent: str, warmup: int, window: int, same_epsilon: bool) -> dict[str, Any]:
    """Env steps per second of a real run, run folder and metrics included, over `window` steps after `warmup`."""
    config = benchmark_config(agent)
    chunk = MAX_CHUNK * config.collect
    if warmup < chunk or warmup % chunk or window < chunk or window % chunk:
        raise SystemExit(f"warmup = {warmup} and window = {window} must be whole chunks of {chunk} env steps.")
    if same_epsilon:
        # The peers' schedule: linear, and at its end when the window begins.
        config = replace(config, epsilon=Epsilon((1.0,), (0.05,), (float(warmup),), "linear"))
    moments: dict[int, float] = {}

    def note(progress: Progress) -> bool:
        moments[progress.step] = time.perf_counter()
        return progress.step < warmup + window

    with tempfile.TemporaryDirectory() as folder:
        experiment = create(config, Path(folder) / "run")
        experiment.begin()
        experiment.run(note)
        parameters = sum(leaf.size for leaf in jax.tree.leaves(experiment.state.learner.online.parameters))
        experiment.close()
    seconds = moments[warmup + window] - moments[warmup]
    return {
        "steps_per_second": window / seconds,
        "seconds": seconds,
        "parameters": parameters,
        "compile_seconds": experiment.loop.programs.compile_seconds,
    }


def update(agent: str, repetitions: int) -> dict[str, Any]:
    """Time and FLOPs of one value update, beside the GEMM peak measured in the same process just before and after."""
    config = benchmark_config(agent)
    environment = resolve(config.environment)
    loop = make_loop(config, environment, MAX_CHUNK)
    state = loop.start()
    for first in (0, MAX_CHUNK):
        state, _ = loop.advance(state, first)
    learner, member = make_learner(config, environment), jax.tree.map(lambda leaf: leaf[0], state)
    hyper = jax.tree.map(lambda leaf: leaf[0], loop.hyper)
    # A full ring, as in most of a run, of transitions that really happened: gathers then reach as far as they will.
    written = 2 * MAX_CHUNK * config.collect // config.environments
    ring = jax.tree.map(lambda leaf: leaf[jnp.arange(leaf.shape[0]) % written], member.ring)
    rows = jnp.int32(learner.ring.rows)

    @jax.jit
    def learn(state, ring, first):
        def body(state, index):
            state, _, metrics = learner.learn(state, hyper, ring, None, rows, index)
            return state, metrics

        return jax.lax.scan(body, state, first + jnp.arange(MAX_CHUNK))

    peak_before = gemm_peak(repetitions)
    times = timed(lambda: learn(member.learner, ring, jnp.int32(0)), repetitions)
    peak = max(peak_before, gemm_peak(repetitions))
    seconds = statistics.median(times) / (MAX_CHUNK * config.updates_per_collect)
    model = None if member.learner.model is None else member.learner.model.parameters
    parts = per_update(config, learner, member.learner.online.parameters, model)
    total = sum(parts.values())
    return {
        "milliseconds_per_update": seconds * 1e3,
        "megaflops_per_update": total / 1e6,
        "megaflops_by_part": {name: count / 1e6 for name, count in parts.items()},
        "gigaflops_per_second": total / seconds / 1e9,
        "peak_gigaflops_per_second": peak,
        "share_of_peak": total / seconds / 1e9 / peak,
    }


def gemm_peak(repetitions: int, size: int = 2048) -> float:
    """GFLOP/s of a large float32 matrix product, the best of several."""
    left, right = (jax.random.normal(jax.random.key(index), (size, size)) for index in range(2))
    product = jax.jit(jnp.matmul)
    return 2 * size**3 / min(timed(lambda: product(left, right), repetitions)) / 1e9


def timed(call: Callable[[], Any], repetitions: int) -> list[float]:
    """Seconds of each call, after one that compiles and warms up."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "update"])
    parser.add_argument("agent")
    parser.add_argument("--warmup", type=int, default=9_600, help="env steps before the timed window")
    parser.add_argument("--window", type=int, default=48_000, help="env steps of the timed window")
    parser.add_argument("--same-epsilon", action="store_true", help="explore as the peers do")
    parser.add_argument("--repetitions", type=int, default=10, help="timed calls of `update`")
    options = parser.parse_args()
    if options.what == "speed":
        result = speed(options.agent, options.warmup, options.window, options.same_epsilon)
    else:
        result = update(options.agent, options.repetitions)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
