"""How near training outside JAX comes to its simulator's own speed, on this machine's CPU, all in one interleaved run:

    .venv/bin/python benchmarks/host_path.py --out benchmarks/results/host_path.json

LunarLander preset, DQN, one member, no evaluation but the first and the last, which lie outside the timed window. The
simulator is Gymnasium's, with all its wrappers, eight environments one after the other on one core, by random actions.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
from measure import interleaved, measured, say, write_json

ENVIRONMENTS = 8
WAYS = {"in a row": [], "two workers": ["--workers", "2"], "overlap": ["--overlap"]}


def simulator(steps: int) -> dict[str, float]:
    """Env steps per second of the environments alone, resets included."""
    import gymnasium
    import numpy as np

    environments = [gymnasium.make("LunarLander-v3") for _ in range(ENVIRONMENTS)]
    for seed, environment in enumerate(environments):
        environment.reset(seed=seed)
    actions = np.random.default_rng(0).integers(4, size=(steps // ENVIRONMENTS, ENVIRONMENTS)).tolist()
    began = time.perf_counter()
    for row in actions:
        for environment, action in zip(environments, row, strict=True):
            _, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                environment.reset()
    return {"steps_per_second": steps / (time.perf_counter() - began)}


def training(warmup: int, window: int, workers: int, overlap: bool) -> dict[str, float]:
    """Env steps per second of a run."""
    from ours import rate

    from sadq.experiment.presets import preset

    return rate(replace(preset("lunarlander", "dqn"), workers=workers, overlap=overlap), warmup, window)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=["simulator", "training"], help="one measurement, in this process")
    parser.add_argument("--warmup", type=int, default=16_000)
    parser.add_argument("--window", type=int, default=64_000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.one == "simulator":
        print(json.dumps(simulator(options.window)))
        return
    if options.one == "training":
        print(json.dumps(training(options.warmup, options.window, options.workers, options.overlap)))
        return
    own = [sys.executable, str(Path(__file__).resolve())]
    length = ["--warmup", str(options.warmup), "--window", str(options.window)]

    def trained(flags: list[str]) -> Any:
        return lambda: measured([*own, "--one", "training", *length, *flags], 900)

    contestants = {"simulator": lambda: measured([*own, "--one", "simulator", *length], 900)}
    contestants |= {way: trained(flags) for way, flags in WAYS.items()}
    found = interleaved(contestants, options.repetitions, "steps_per_second")
    alone = found["simulator"]["median"]
    for way in WAYS:
        found[way]["of_the_simulator"] = found[way]["median"] / alone
        say(f"{way}: {found[way]['median']:,.0f} env steps/s, {found[way]['of_the_simulator']:.2f} of the simulator")
    if options.out:
        write_json(options.out, {"machine": machine.describe(), "measurements": found})


if __name__ == "__main__":
    main()
