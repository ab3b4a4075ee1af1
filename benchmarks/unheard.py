"""Whether a model was ever heard in runs with a rule, and whether these were their bases' runs to the last return.

    python benchmarks/unheard.py RUN… [--bases BASE…] --out FILE

Where alpha is 1 in every row of the metrics, every target was the base's. A base is the run with the same seed of the agent
without `+sadq`; of evaluations, what both have is compared, return by return.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from measure import write_json

from sadq.experiment.scores import area_under_curve, final_return
from sadq.report.runs import Run
from sadq.studies.origin import origins


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def returns(run: Path, member: int) -> dict[int, list[float]]:
    """Of every evaluation, by its step."""
    return {row["step"]: row["returns"] for row in lines(run, "evaluations.jsonl") if row["member"] == member}


def told(run: Path, bases: dict[tuple[str, int], tuple[Path, int]]) -> list[dict[str, Any]]:
    """One entry a member."""
    loaded, found = Run(run), []
    for member, one in enumerate(loaded.members):
        rows = [row for row in lines(run, "metrics.jsonl") if row["member"] == member]
        own = returns(run, member)
        entry: dict[str, Any] = {
            "agent": loaded.agent,
            "seed": one.seed,
            "steps": rows[-1]["step"],
            "rows": len(rows),
            "rows_in_which_it_was_heard": sum(row["alpha"] < 1 for row in rows),
            "least_alpha": min(row["alpha"] for row in rows),
            "most_agreement": max(row["agreement"] for row in rows),
        } | scores(own)
        if (base := bases.get((loaded.base_agent, one.seed))) is not None:
            other = returns(*base)
            both = sorted(own.keys() & other.keys())
            entry["evaluations_of_both"] = len(both)
            entry["evaluations_that_differ"] = sum(own[step] != other[step] for step in both)
            entry["base"] = scores(other)
        found.append(entry)
    return found


def scores(played: dict[int, list[float]]) -> dict[str, float]:
    """Of all evaluations of a member."""
    means = np.array([np.mean(one) for one in played.values()])[None]
    found = {"final_return": final_return(means), "area_under_curve": area_under_curve(np.array([*played]), means)}
    return {name: round(float(values[0]), 3) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--bases", type=Path, nargs="+", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bases = {
        (loaded.agent, one.seed): (path, member)
        for path in options.bases
        for loaded in [Run(path)]
        for member, one in enumerate(loaded.members)
    }
    headers = [json.loads((run / "config.json").read_text()) for run in [*options.runs, *options.bases]]
    members = [entry for run in options.runs for entry in told(run, bases)]
    write_json(options.out, {"origins": origins(headers), "members": members})
    print(json.dumps(members, indent=1))


if __name__ == "__main__":
    main()
