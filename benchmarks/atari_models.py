"""What each kind of image model costs, in the time of the paper's: one model update, and one rollout of every action.

    PYTHONPATH=src python3 benchmarks/atari_models.py --out benchmarks/results/atari_models.json --batch 4 --actions 4 18

All variants are measured in turn, in one process and over several rounds, so that a machine that drifts treats all alike;
a figure is the median of its rounds. Networks and models have the widths of the preset atari100k.
"""

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import machine
from measure import say, write_json

from sadq import keys
from sadq.dynamics import RSSM
from sadq.envs.atari.spec import AtariSpec
from sadq.experiment.build import hyper_of, make_learner
from sadq.experiment.presets import preset
from sadq.learning.comparing import Comparison
from sadq.learning.model_updates import model_update
from sadq.networks.network import first_network
from sadq.types import Transition

VARIANTS: dict[str, dict[str, Any]] = {
    "observation": {"model": RSSM()},
    "newest-frame": {"model": RSSM(newest_frame=True)},
    "embedding": {"model": RSSM(space="embedding")},
    "observation, bfloat16": {"model": RSSM(), "compute": "bfloat16"},
    "embedding, bfloat16": {"model": RSSM(space="embedding"), "compute": "bfloat16"},
}
GAMES = {4: "Breakout", 6: "Pong", 9: "MsPacman", 18: "Alien"}


def programs(variant: str, actions: int, batch: int) -> dict[str, Callable[[], Any]]:
    """By name: a call of a compiled program."""
    spec = AtariSpec((GAMES[actions],))
    base = preset("atari100k", "qrdqn+sadq", environment=spec.name)
    guidance = dataclasses.replace(base.guidance, batch_size=batch)
    config = dataclasses.replace(base, seeds=(0,), buffer_size=100, guidance=guidance, **VARIANTS[variant])
    learner = make_learner(config, spec)
    hyper = jax.tree.map(lambda leaf: leaf[0], hyper_of(config))
    state, key = jax.jit(learner.init)(hyper), keys.member_key(1)
    frames = jax.random.randint(key, (2, batch, *spec.observation_shape), 0, 256).astype(jnp.uint8)
    zeros = jnp.zeros(batch, bool)
    rows = Transition(frames[0], jnp.arange(batch) % actions, jnp.zeros(batch), frames[1], zeros, zeros)
    assert learner.guidance is not None
    guided = learner.guidance

    def update(state: Any) -> Any:
        phase = learner.phase(hyper, jnp.int32(1000))
        return model_update(guided, state, phase, key, rows)[0].model.parameters

    def rollout(state: Any) -> Any:
        target = first_network(state.target).computing()
        comparison = Comparison(guided, target, hyper, learner.legal_for(hyper), key)
        return comparison(state.model.parameters, frames[1]).scores

    compiled = {"model_update": jax.jit(update), "rollout": jax.jit(rollout)}
    return {name: lambda program=program: program(state) for name, program in compiled.items()}


def timed(call: Callable[[], Any], seconds: float) -> float:
    """Of one call, in milliseconds."""
    count, began = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - began < seconds:
        jax.block_until_ready(call())
        count += 1
    return 1000 * (time.perf_counter() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--actions", nargs="+", type=int, default=[4, 18], choices=list(GAMES))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each program in each round")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for actions in options.actions:
        calls = {variant: programs(variant, actions, options.batch) for variant in options.variants}
        rounds: dict[str, dict[str, list[float]]] = {one: {name: [] for name in calls[one]} for one in calls}
        for number in range(options.rounds + 1):
            for variant, own in calls.items():
                for name, call in own.items():
                    spent = timed(call, options.seconds if number else 0.0)
                    if number:  # the first round compiles
                        rounds[variant][name].append(spent)
        first = options.variants[0]
        for variant, own in rounds.items():
            median = {name: statistics.median(values) for name, values in own.items()}
            ratio = {
                name: statistics.median(a / b for a, b in zip(own[name], rounds[first][name], strict=True))
                for name in own
            }
            found.setdefault(str(actions), {})[variant] = {"milliseconds": median, f"times {first}": ratio}
            say(f"{actions} actions, {variant}: {json.dumps({'ms': median, 'ratio': ratio})}")
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    described = machine.describe() | {"device": jax.devices()[0].device_kind}
    write_json(options.out, {"options": shown, "machine": described, "by_actions": found})


if __name__ == "__main__":
    main()
