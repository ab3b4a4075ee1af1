"""The paper's controlled comparison on the native vector presets: every base agent against its +SADQ twin.

    PYTHONPATH=src python benchmarks/controlled.py --out benchmarks/results --seeds 10

Runs the presets in full, in memory, and writes one JSON file with the scores of every seed and the mean curves;
`python benchmarks/controlled.py --table benchmarks/results/controlled.json` prints it as a table.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sadq.experiment.opening import create
from sadq.experiment.presets import preset
from sadq.report import stats

PRESETS = ("acrobot", "bitflip", "cartpole")
BASES = ("dqn", "double", "dueling")
REMEDIES: dict[str, dict[str, Any]] = {
    "+sadq": {},
    "+sadq, continuation": {"gate": "fixed"},
    "+sadq, continuation, batch gate": {"gate": "batch"},
    "+sadq, continuation, sample gate": {"gate": "sample"},
}
"""What is added to a base agent; the first is the paper's, the others are this library's."""


def train(name: str, agent: str, seeds: int, steps: int | None, remedy: dict[str, Any]) -> dict[str, Any]:
    """One preset in full for one agent: its scores by seed, and its mean curve."""
    config = preset(name, agent)
    config = dataclasses.replace(
        config,
        seeds=tuple(range(seeds)),
        steps=steps or config.steps,
        model=dataclasses.replace(config.model, continuation=bool(remedy)),
        **remedy,
    )
    experiment = create(config, None)
    began = time.perf_counter()
    experiment.begin()
    experiment.run()
    result = experiment.result()
    rows = experiment.folder.evaluations
    steps_seen = sorted({row["step"] for row in rows})
    curve = [float(np.mean([np.mean(row["returns"]) for row in rows if row["step"] == step])) for step in steps_seen]
    return {
        "preset": name,
        "steps": result["steps"],
        "seeds": seeds,
        "seconds": round(time.perf_counter() - began, 1),
        "steps_per_second": result["steps_per_second"],
        "final_return": [member["final_return"] for member in result["members"]],
        "area_under_curve": [member["area_under_curve"] for member in result["members"]],
        "overestimation": [member["overestimation"] for member in result["members"]],
        "curve": {"steps": steps_seen, "mean_return": [round(value, 3) for value in curve]},
    }


def run(out: Path, seeds: int, steps: int | None, presets: list[str], bases: list[str]) -> None:
    """Every preset and agent, added to the file after each so that an interruption leaves what was done."""
    device = jax.devices()[0]
    path = out / "controlled.json"
    record: dict[str, Any] = {"device": f"{device.platform}: {device.device_kind}", "jax": jax.__version__, "runs": []}
    if path.exists():
        record = json.loads(path.read_text())
    for name in presets:
        # The remedies are for the environment where the paper's own SADQ loses.
        for base in bases:
            variants = {"": {}} | (REMEDIES if name == "cartpole" else {"+sadq": {}})
            for suffix, model in variants.items():
                agent = base + ("+sadq" if suffix else "")
                entry = train(name, agent, seeds, steps, model) | {"agent": base + suffix, "base": base}
                record["runs"].append(entry)
                print(_line(entry), flush=True)
                path.write_text(json.dumps(record))


def _line(entry: dict[str, Any]) -> str:
    return (
        f"{entry['preset']:10} {entry['agent']:40} final {np.mean(entry['final_return']):8.2f} "
        f"area {np.mean(entry['area_under_curve']):8.2f} overestimation {np.mean(entry['overestimation']):8.2f} "
        f"({entry['seconds']:.0f} s)"
    )


def table(path: Path) -> str:
    """Markdown: each pair with its paired difference, 95% bootstrap interval and sign-flip p-value."""
    record = json.loads(path.read_text())
    by_name = {(entry["preset"], entry["agent"]): entry for entry in record["runs"]}
    lines = [
        "| preset | base | final return | with | final return | difference [95%] | p |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, agent), entry in by_name.items():
        if agent == entry["base"]:
            continue
        base = by_name[name, entry["base"]]
        pair = stats.paired(
            np.array(base["final_return"]), np.array(entry["final_return"]), stats.generator_for(0, name, agent)
        )
        low, high = pair.mean.low, pair.mean.high
        lines.append(
            f"| {name} | {entry['base']} | {np.mean(base['final_return']):.2f} | {agent.removeprefix(entry['base'])} | "
            f"{np.mean(entry['final_return']):.2f} | {pair.mean.value:+.2f} [{low:+.2f}, {high:+.2f}] | "
            f"{pair.p_value:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=None, help="fewer env steps than the presets', to try it out")
    parser.add_argument("--presets", nargs="+", default=list(PRESETS))
    parser.add_argument("--bases", nargs="+", default=list(BASES))
    parser.add_argument("--table", type=Path, default=None)
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    run(options.out, options.seeds, options.steps, options.presets, options.bases)


if __name__ == "__main__":
    main()
