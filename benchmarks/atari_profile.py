"""Where the time of an Atari fleet goes: emulator, acting, updates, and the device's kernels, each measured alone.

    PYTHONPATH=src:.gpu_site COMMIT=... python3 benchmarks/atari_profile.py --out profile.json --agents qrdqn qrdqn+sadq

A collect is a few emulator steps, each after an action, and then the updates. `alone` are milliseconds of these parts
when nothing runs beside them, `collect` is what they take together; what is missing from their sum is what overlaps.
Kernels are named by where in the program they come from, and added up. With --evaluate an evaluation of as many games as the
preset has goes on beside some collects, and once more alone.
"""

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import machine
import numpy as np
from measure import say, write_json

from sadq.dynamics import RSSM
from sadq.envs.group import Part
from sadq.experiment.build import make_loop, resolve
from sadq.experiment.config import Config
from sadq.experiment.evaluations import Beside
from sadq.experiment.presets import preset
from sadq.fleet.host_loop import HostLoop
from sadq.networks import Nature


def milliseconds(function: Callable[[], Any], count: int, each: bool = False) -> float:
    """Of one call, over `count` of them after one that is not counted; `each` result is waited for, or the last one."""
    jax.block_until_ready(function())
    began, result = time.perf_counter(), None
    for _ in range(count):
        result = function()
        if each:
            jax.block_until_ready(result)
    jax.block_until_ready(result)
    return (time.perf_counter() - began) / count * 1e3


def inside(loop: HostLoop, state: Any, first: int) -> dict[str, float]:
    """Milliseconds of a collect that the host spends in the parts of the loop itself, over one chunk.

    What is left is the wait for actions, in which the device finishes the updates before them.
    """
    spent: dict[str, float] = defaultdict(float)
    learning: Any = loop._learning
    places: list[tuple[Any, str]] = [(loop, name) for name in ("_act", "_send", "_receive")]
    places += [(learning, name) for name in ("meanwhile", "collected")]
    places += [(gathered, name) for gathered in loop._gathered for name in ("acted", "answered", "episodes")]

    def clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                spent[name.strip("_")] += time.perf_counter() - began

        return call

    for owner, name in places:
        setattr(owner, name, clocked(name, getattr(owner, name)))
    began = time.perf_counter()
    jax.block_until_ready(loop.advance(state, first)[0].fresh)
    total = time.perf_counter() - began
    for owner, name in places:
        if name in vars(owner) and hasattr(type(owner), name):
            delattr(owner, name)
    spent["waiting for actions, and the rest"] = total - sum(spent.values())
    return {name: seconds / loop.collects * 1e3 for name, seconds in spent.items()}


def beside_evaluation(loop: HostLoop, state: Any, first: int) -> tuple[Any, int, dict[str, Any]]:
    """The loop's next state and collect, and how collects and an evaluation get on beside each other, and alone."""
    snapshot = state._replace(learner=jax.tree.map(jnp.copy, state.learner), replay=None, sampler=None)
    began, collects = time.perf_counter(), []
    evaluation = Beside(lambda: loop.evaluate(snapshot, 0))
    while evaluation.is_alive():
        chunk = time.perf_counter()
        state, _ = loop.advance(state, first)
        jax.block_until_ready(state.fresh)
        first += loop.collects
        collects.append((time.perf_counter() - chunk) / loop.collects * 1e3)
    lengths = evaluation.result().lengths
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    loop.evaluate(snapshot, 0)
    alone = time.perf_counter() - began
    # While the last of these collects was made the evaluation ended.
    found = {"collects": collects, "seconds": seconds, "seconds_alone": alone, "games": int(lengths.size)}
    return state, first, found


def kernels(function: Callable[[], Any], count: int, shown: int) -> dict[str, Any]:
    """Milliseconds of device time of a call, all in all and by kernel, from the profiler."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(count):
                jax.block_until_ready(function())
        files = list(Path(folder).rglob("*.xplane.pb"))
        data = jax.profiler.ProfileData.from_file(str(files[0]))
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for plane in data.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                stats = {name: value for name, value in event.stats if name is not None}
                origin = str(stats.get("tf_op") or stats.get("name") or "")
                name = f"{event.name} {'/'.join(origin.split('/')[-4:])}"
                spent[name] += event.duration_ns
                calls[name] += 1
    rows = [[name[:160], round(ns / count / 1e6, 4), calls[name] / count] for name, ns in spent.most_common(shown)]
    return {"device_ms": sum(spent.values()) / count / 1e6, "launches": sum(calls.values()) / count, "kernels": rows}


def profile(config: Config, collects: int, chunks: int, shown: int, evaluates: bool) -> dict[str, Any]:
    """One fleet's numbers."""
    environment = resolve(config.environment, config.settings)
    loop: Any = make_loop(config, environment, collects)
    state, first, rates, metrics = loop.start(), 0, [], {}
    for _ in range(chunks):
        began = time.perf_counter()
        state, metrics = loop.advance(state, first)
        jax.block_until_ready(state.fresh)
        rates.append((time.perf_counter() - began) / collects * 1e3)
        first += collects
    evaluation = None
    if evaluates:
        state, first, evaluation = beside_evaluation(loop, state, first)
    kept = jax.tree.map(jnp.copy, state)
    shares = inside(loop, state, first)
    first += collects
    del state
    random = np.random.default_rng(0)
    limit = int(loop.training.action_count)
    emulator = milliseconds(lambda: loop.training.step(random.integers(0, limit, loop.training.shape)), 200)
    networks = jax.tree.leaves(kept.learner.online.parameters)
    memory, plan = kept.behaviour, loop._plan(loop.hyper, loop.hyper, np.int32(first))
    fresh, now = np.zeros(loop.training.shape, bool), np.array([0, 0, Part.WHOLE], np.int32)

    def act() -> np.ndarray:
        action, _ = loop._act((networks, memory, *loop._seen, fresh, plan), (), now)
        return np.asarray(action)

    acting = milliseconds(act, 200)
    act_kernels = kernels(act, 20, shown)
    gathered, learning = loop._gathered[0].transitions, loop._learning
    learning.begin(jax.tree.map(jnp.copy, kept), loop.hyper)

    def learn() -> Any:
        nonlocal first
        first += 1
        learning.collected(first, gathered, learning.memory(first))
        learning.meanwhile(loop.fleet.collect_steps - 1)
        wait(getattr(learning, "_handing", ()))  # where a thread of its own hands the updates over
        return [told for _, told in learning._rows[-1]]

    streaming, updating = milliseconds(learn, 100), milliseconds(learn, 100, each=True)
    began = time.perf_counter()
    told = learn()
    dispatch = (time.perf_counter() - began) * 1e3
    jax.block_until_ready(told)
    steps = loop.fleet.collect_steps
    alone = {"emulator": emulator, "acting": acting, "updates": updating, "updates_in_a_row": streaming}
    total = steps * (emulator + acting) + updating
    result = {
        "agent": config.agent,
        "compute": config.compute,
        "overlap": config.overlap,
        "members": len(config.seeds),
        "steps_a_collect": steps,
        "alone": alone,
        "sum_alone": total,
        "collects": chunks * collects,
        "collect": rates[-1],
        "by_chunk": rates,
        "beside_an_evaluation": evaluation,
        "model_updates_a_slot": float(np.mean(metrics.get("model_updates", np.nan))),
        "inside_the_loop": shares,
        "overlapping_share": 1 - rates[-1] / total,
        "dispatch_of_updates": dispatch,
        "compile_seconds": loop.programs.compile_seconds,
        "act": act_kernels,
        "learn": kernels(learn, 20, shown),
    }
    loop.close()
    return result


def tiny(config: Config) -> Config:
    """What a laptop can try this on."""
    small = RSSM(deterministic=32, variables=4, classes=4, hidden=16, channels=(8, 8, 8), decoder=(8, 8, 8))
    own = dataclasses.replace(config.guidance, batch_size=4)
    encoder = Nature(channels=(8, 8, 8), hidden=16)
    return dataclasses.replace(config, buffer_size=1000, batch_size=4, guidance=own, encoder=encoder, model=small)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--agents", nargs="+", default=["qrdqn", "qrdqn+sadq"])
    parser.add_argument("--computes", nargs="+", default=["float32"])
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--collects", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=3, help="of collects; the last one is timed")
    parser.add_argument("--kernels", type=int, default=40, help="how many to show")
    parser.add_argument("--evaluate", action="store_true", help="also beside an evaluation")
    parser.add_argument("--in-a-row", action="store_true", help="without overlap")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for compute in options.computes:
        for agent in options.agents:
            fields: dict[str, Any] = {"seeds": tuple(range(options.seeds)), "learning_starts": 100, "compute": compute}
            fields["overlap"] = not options.in_a_row
            fields |= {} if options.evaluate else {"evaluation_episodes": 1}
            config = preset(f"atari/{options.game}", agent, evaluations=1, **fields)
            config = tiny(config) if options.tiny else config
            found.append(profile(config, options.collects, options.chunks, options.kernels, options.evaluate))
            say(json.dumps({key: value for key, value in found[-1].items() if key not in ("act", "learn")}))
            for part in ("act", "learn"):
                rows = found[-1][part]
                say(f"{part}: {rows['device_ms']:.3f} ms on the device in {rows['launches']:.0f} launches")
                for name, spent, calls in rows["kernels"]:
                    say(f"  {spent:8.4f} ms {calls:6.1f} x {name}")
            write_json(
                options.out, {"machine": machine.describe(), "flags": os.environ.get("XLA_FLAGS"), "fleets": found}
            )


if __name__ == "__main__":
    main()
