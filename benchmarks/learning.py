"""What every agent learns, plain and with SADQ: final returns on Acrobot with the default preset, several seeds each.

    PYTHONPATH=src:.gpu_site python3 benchmarks/learning.py --out FOLDER [--agents dqn dqn+sadq] [--steps 300000]

A setting of the config may follow an agent after colons, for instance `bdqn:bayesian.prior_deviation=0.1`. Agents run
side by side in threads, so that one compiles while another trains; learning.json is written after every one.
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
from updates import VARIANTS

from sadq.experiment.presets import preset
from sadq.experiment.run import create


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


def learn(variant: str, environment: str, base: str, steps: int, seeds: int) -> dict[str, Any]:
    """One variant's run, in numbers."""
    agent, *settings = variant.split(":")
    config = dataclasses.replace(
        preset(base, agent), environment=environment, steps=steps, seeds=tuple(range(seeds)), evaluations=25
    )
    for setting in settings:
        config = changed(config, setting)
    began = time.perf_counter()
    experiment = create(config, None)
    experiment.begin()
    experiment.run()
    result = experiment.result()
    finals = [member["final_return"] for member in result["members"]]
    return {
        "variant": variant,
        "final_returns": finals,
        "mean": sum(finals) / len(finals),
        "diverged": sum(member["status"] == "diverged" for member in result["members"]),
        "seconds": round(time.perf_counter() - began, 1),
        "compile_seconds": result["compile_seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--agents", nargs="+", default=VARIANTS)
    parser.add_argument("--environment", default="Acrobot-v1")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="runs at once; more than one only on an accelerator")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {
        "machine": machine.describe() | {"device": jax.devices()[0].device_kind},
        "environment": options.environment,
        "preset": options.preset,
        "steps": options.steps,
        "seeds": options.seeds,
        "runs": [],
    }
    lock = threading.Lock()

    def run(variant: str) -> None:
        try:
            found = learn(variant, options.environment, options.preset, options.steps, options.seeds)
        except Exception as error:  # one variant must not take the others with it
            found = {"variant": variant, "error": repr(error)[:300]}
        with lock:
            results["runs"].append(found)
            results["runs"].sort(key=lambda run: options.agents.index(run["variant"]))
            write_json(options.out / "learning.json", results)
            say(json.dumps(found))

    with ThreadPoolExecutor(options.threads) as pool:
        list(pool.map(run, options.agents))


if __name__ == "__main__":
    main()
