"""One measurement of this package in a process of its own; prints one line of JSON."""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flops import per_update
from updates import PRESET, REFERENCE, config_of, full_replay, once, outside_learning, prepare, timed

from sadq.experiment.build import MAX_CHUNK
from sadq.experiment.config import Config, Epsilon
from sadq.experiment.opening import create
from sadq.experiment.presets import preset
from sadq.experiment.run import Progress

COLLECTS = 2
"""Learning phases in one timed call of `agents`: long beside a call's overhead, short beside the machine's moods."""

LEAST_PAIRS = 5


def speed(agent: str, warmup: int, window: int, same_epsilon: bool) -> dict[str, Any]:
    """Of a run of the Acrobot preset with one member."""
    config = preset(PRESET, agent)
    if same_epsilon:
        # The peers' schedule: linear, and at its end when the window begins.
        config = replace(config, epsilon=Epsilon((1.0,), (0.05,), (float(warmup),), "linear"))
    return rate(config, warmup, window)


def rate(config: Config, warmup: int, window: int) -> dict[str, Any]:
    """Env steps per second of a real run, run folder and metrics included, over `window` steps after `warmup`."""
    # Evaluation and checkpoints fall outside every timed window.
    config = replace(config, seeds=(0,), evaluations=1, checkpoint_seconds=1e9)
    chunk = MAX_CHUNK * config.collect
    if warmup < chunk or warmup % chunk or window < chunk or window % chunk:
        raise SystemExit(f"warmup = {warmup} and window = {window} must be whole chunks of {chunk} env steps.")
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
    config = config_of(agent)
    # Counted first: an agent whose products cannot be counted is refused before anything is compiled.
    parts = per_update(config)
    subject = prepare(config, full_replay(config), MAX_CHUNK)
    peak_before = gemm_peak(repetitions)
    milliseconds = subject.learn.milliseconds(statistics.median(timed(subject.learn, repetitions)))
    peak = max(peak_before, gemm_peak(repetitions))
    total = sum(parts.values())
    speed = total / milliseconds / 1e6
    return {
        "milliseconds_per_update": milliseconds,
        "megaflops_per_update": total / 1e6,
        "megaflops_by_part": {name: count / 1e6 for name, count in parts.items()},
        "gigaflops_per_second": speed,
        "peak_gigaflops_per_second": peak,
        "share_of_peak": speed / peak,
    }


def gemm_peak(repetitions: int, size: int = 2048) -> float:
    """GFLOP/s of a large float32 matrix product, the best of several."""
    left, right = (jax.random.normal(jax.random.key(index), (size, size)) for index in range(2))
    product = jax.jit(jnp.matmul)
    return 2 * size**3 / min(timed(lambda: product(left, right), repetitions)) / 1e9


def agents(variants: list[str], repetitions: int, seconds: float) -> dict[str, Any]:
    """Time per update of each variant, and its ratio to DQN's, which is timed just before every single call."""
    replay = full_replay(config_of(REFERENCE))
    reference = prepare(config_of(REFERENCE), replay, COLLECTS).learn
    found: dict[str, Any] = {}
    for variant in variants:
        subject = prepare(config_of(variant), replay, COLLECTS)
        once(reference), once(subject.learn)
        pairs: list[tuple[float, float]] = []
        began = time.perf_counter()
        while len(pairs) < repetitions:
            pairs.append((once(reference), once(subject.learn)))
            if len(pairs) >= LEAST_PAIRS and time.perf_counter() - began > seconds:
                break
        own = [subject.learn.milliseconds(time_of) for _, time_of in pairs]
        ratios = [time_of / base for base, time_of in pairs]
        found[variant] = {
            "milliseconds_per_update": statistics.median(own),
            "least": min(own),
            "most": max(own),
            "reference_milliseconds": statistics.median(reference.milliseconds(base) for base, _ in pairs),
            "ratio": statistics.median(ratios),
            "ratio_least": min(ratios),
            "ratio_most": max(ratios),
            "pairs": len(pairs),
            "compile_seconds": subject.compile_seconds,
            "outside_learning": outside_learning(subject, LEAST_PAIRS),
        }
    return {"variants": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "update", "agents"])
    parser.add_argument("agent", nargs="+", help="one agent; several for `agents`")
    parser.add_argument("--warmup", type=int, default=9_600, help="env steps before the timed window")
    parser.add_argument("--window", type=int, default=48_000, help="env steps of the timed window")
    parser.add_argument("--same-epsilon", action="store_true", help="explore as the peers do")
    parser.add_argument("--repetitions", type=int, default=10, help="timed calls of `update` and `agents`")
    parser.add_argument("--seconds", type=float, default=6.0, help="`agents`: after so long, fewer calls will do")
    options = parser.parse_args()
    if options.what == "agents":
        result = agents(options.agent, options.repetitions, options.seconds)
    elif len(options.agent) != 1:
        parser.error(f"`{options.what}` measures one agent in a process, not {len(options.agent)}: name one.")
    elif options.what == "speed":
        result = speed(options.agent[0], options.warmup, options.window, options.same_epsilon)
    else:
        result = update(options.agent[0], options.repetitions)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
