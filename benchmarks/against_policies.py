"""Trained agents beside the fixed policies of their environment, each over so many episodes of its evaluation stream.

    python benchmarks/against_policies.py RUN ... --episodes 1024 --out FILE.json [--import MODULE]

Runs must be of one environment with the same settings. FILE.json has every run's command and commit, and every seed.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measure import Failed, write_json

from report import table
from sadq.envs.base import Environment
from sadq.experiment.build import environment_of
from sadq.experiment.evaluate import evaluate_policy, evaluate_run
from sadq.experiment.folder import CONFIG, RunFolder
from sadq.studies.origin import origin, origins

KEPT = ("mean_return", "deviation", "measures")


def evaluated(run: Path, episodes: int) -> dict[str, Any]:
    """A run's members, with what made it."""
    config, header = RunFolder.open(run)[1], json.loads((run / CONFIG).read_text())
    found = evaluate_run(run, episodes)
    members = [{name: member[name] for name in ("seed", *KEPT)} for member in found["members"]]
    return {"agent": config.agent, "steps": found["step"], "origin": origins([header])[0], "members": members}


def line(name: str, members: list[dict[str, Any]], measures: list[str]) -> list[str]:
    """Means over seeds, with the lowest and the highest where there are several."""

    def told(values: list[float]) -> str:
        mean = f"{np.mean(values):,.2f}"
        return mean if len(values) == 1 else f"{mean} ({min(values):,.2f} … {max(values):,.2f})"

    columns = [[one["mean_return"] for one in members]]
    columns += [[one["measures"][measure] for one in members] for measure in measures]
    return [f"`{name}`", *map(told, columns)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--import", dest="module", help="a module that registers what the runs are made of")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.module:
        sys.path.insert(0, str(Path.cwd()))
        importlib.import_module(options.module)
    configs = [RunFolder.open(run)[1] for run in options.runs]
    played = {(config.environment, config.environment_settings) for config in configs}
    environment = environment_of(configs[0])
    if len(played) != 1 or not isinstance(environment, Environment):
        raise Failed("the runs are not of one environment in JAX with the same settings")

    runs = [evaluated(run, options.episodes) for run in options.runs]
    policies = {}
    for name in environment.policies():
        played_by = evaluate_policy(str(options.runs[0]), name, options.episodes, seed=0)
        policies[name] = {what: played_by[what] for what in KEPT}
    about = {"environment": configs[0].environment, "settings": list(configs[0].environment_settings)}
    write_json(
        options.out, {"judged": origin(), **about, "episodes": options.episodes, "runs": runs, "policies": policies}
    )

    measures = sorted(runs[0]["members"][0]["measures"])
    rows = [line(one["agent"], one["members"], measures) for one in runs]
    rows += [line(name, [one], measures) for name, one in policies.items()]
    print(table(["", "return", *measures], rows))


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
