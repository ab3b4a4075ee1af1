"""What 256 rollouts an update cost, CityFlow preset: all actions at once, in chunks, or only the best few.

    python benchmarks/candidates.py --out FOLDER [--members 1 5]

Times an update of `cityflow` +SADQ on a replay of random transitions, and of its plain base beside it. Memory is what the
compiler sets aside for the program's temporaries. Writes candidates.json.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import machine
from measure import say, write_json
from updates import prepare, timed

from sadq.experiment.build import make_learner, resolve
from sadq.experiment.config import Config
from sadq.experiment.presets import preset
from sadq.types import Transition

COLLECTS = 5
ROLLOUTS: dict[str, dict[str, int | None]] = {
    "all 256 at once": {"action_chunk": None},
    "all, 64 at a time": {"action_chunk": 64},
    "all, 16 at a time": {"action_chunk": 16},
    "best 64": {"action_chunk": None, "candidates": 64},
    "best 16": {"action_chunk": None, "candidates": 16},
    "best 4": {"action_chunk": None, "candidates": 4},
}


def random_replay(config: Config) -> Transition:
    """A ring of numbers: an update costs the same whatever it learns from."""
    ring = make_learner(config, resolve(config.environment)).store.init()
    shape = ring.observation.shape
    draw = jax.random.uniform(jax.random.key(0), shape, maxval=30.0)
    action = jax.random.randint(jax.random.key(1), ring.action.shape, 0, 256)
    return ring._replace(observation=draw, next_observation=draw[::-1], action=action)


def measure(config: Config, replay: Transition, repetitions: int) -> dict[str, Any]:
    subject = prepare(config, replay, COLLECTS)
    seconds = timed(subject.learn, repetitions)
    memory = subject.learn.program.memory_analysis()
    return {
        "milliseconds_per_update": subject.learn.milliseconds(statistics.median(seconds)),
        "least": subject.learn.milliseconds(min(seconds)),
        "temporary_megabytes": getattr(memory, "temp_size_in_bytes", 0) / 1e6,
        "compile_seconds": subject.compile_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--members", type=int, nargs="+", default=[1])
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": machine.describe() | {"device": jax.devices()[0].device_kind}, "runs": []}
    for members in options.members:
        guided = replace(preset("cityflow", "sadq"), seeds=tuple(range(members)), buffer_size=10_000)
        plain = replace(guided, agent="dueling", alpha=None)
        replay = random_replay(guided)
        variants = {"no rollouts (dueling)": plain} | {
            name: replace(guided, guidance=replace(guided.guidance, **fields)) for name, fields in ROLLOUTS.items()
        }
        for name, config in variants.items():
            found = {"members": members, "rollouts": name} | measure(config, replay, options.repetitions)
            results["runs"].append(found)
            write_json(options.out / "candidates.json", results)
            say(f"{members} members, {name}: {found['milliseconds_per_update']:.3f} ms an update")


if __name__ == "__main__":
    main()
