"""What every agent learns: final returns on whole presets, several seeds each.

    PYTHONPATH=src:.gpu_site python3 benchmarks/learning.py --out FOLDER --presets cartpole bitflip acrobot --seeds 5

A setting of the config may follow an agent after colons, for instance `c51:learning_starts=1000`. Agents run side by side
in threads, so that one compiles while another trains; presets.json is written after every one, and a second call with
the same folder goes on where the first one ended.
"""

import argparse
import dataclasses
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import machine
from measure import say, write_json

from sadq.agents import AGENTS
from sadq.experiment.opening import create
from sadq.experiment.presets import preset


def changed(config: Any, setting: str) -> Any:
    """The config with `a.b=value` applied; values are JSON, else text."""
    path, _, text = setting.partition("=")
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    name, _, rest = path.partition(".")
    if rest:
        value = changed(getattr(config, name), f"{rest}={text}")
    elif isinstance(value, list) or isinstance(getattr(config, name), tuple):
        value = tuple(value) if isinstance(value, list) else (value,)
    return dataclasses.replace(config, **{name: value})


def learn(name: str, variant: str, steps: int | None, seeds: int) -> dict[str, Any]:
    """One variant's run on one preset, in numbers."""
    agent, *settings = variant.split(":")
    config = dataclasses.replace(preset(name, agent), seeds=tuple(range(seeds)), evaluations=25)
    if steps is not None:
        config = dataclasses.replace(config, steps=steps)
    for setting in settings:
        config = changed(config, setting)
    began = time.perf_counter()
    experiment = create(config, None)
    experiment.begin()
    experiment.run()
    result = experiment.result()
    finals = [member["final_return"] for member in result["members"]]
    return {
        "preset": name,
        "variant": variant,
        "steps": result["steps"],
        "final_returns": [round(value, 4) for value in finals],
        "mean": sum(finals) / len(finals),
        "diverged": sum(member["status"] == "diverged" for member in result["members"]),
        "seconds": round(time.perf_counter() - began, 1),
        "compile_seconds": result["compile_seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--presets", nargs="+", default=["cartpole", "bitflip", "acrobot"])
    parser.add_argument("--agents", nargs="+", default=list(AGENTS))
    parser.add_argument("--steps", type=int, help="env steps; by default the preset's")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="runs at once; more than one only on an accelerator")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further run after so long")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path, began = options.out / "presets.json", time.monotonic()
    results: dict[str, Any] = {"machine": machine.describe() | {"device": jax.devices()[0].device_kind}, "runs": []}
    if path.exists():
        results["runs"] = json.loads(path.read_text())["runs"]
    done = {(run["preset"], run["variant"]) for run in results["runs"]}
    wanted = [(name, agent) for name in options.presets for agent in options.agents if (name, agent) not in done]
    lock = threading.Lock()

    def run(what: tuple[str, str]) -> None:
        if time.monotonic() - began > options.seconds:
            return
        try:
            found = learn(*what, options.steps, options.seeds)
        except Exception as error:  # one variant must not take the others with it
            found = {"preset": what[0], "variant": what[1], "error": repr(error)[:300]}
        with lock:
            say(json.dumps(found))
            if "error" not in found:
                found["commit"] = results["machine"]["commit"]
                results["runs"].append(found)
                write_json(path, results)

    with ThreadPoolExecutor(options.threads) as pool:
        list(pool.map(run, wanted))


if __name__ == "__main__":
    main()
