"""Writes tests/data/rliable.json: what rliable says of given score matrices, for the tests of our own statistics.

    python3 -m venv reference && reference/bin/pip install rliable "pandas<3"
    reference/bin/python tools/rliable_reference.py

rliable needs an older pandas than the rest of the tests, hence an environment of its own, and numbers that are kept.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics

OUT = Path(__file__).parents[1] / "tests" / "data" / "rliable.json"
RESAMPLES = 10_000
SHAPES = {"one environment": (10, 1), "six environments": (5, 6), "many seeds": (20, 3)}  # runs, environments


def matrices(runs: int, environments: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of two agents, [runs, environments]: skewed ones, and better ones with ties among them."""
    generator = np.random.default_rng([runs, environments])
    base = np.round(generator.gamma(2.0, size=(runs, environments)), 1)
    return base, np.round(base[::-1] + generator.normal(0.3, 1.0, size=base.shape), 1)


def main() -> None:
    record = {"made_with": {name: version(name) for name in ("rliable", "numpy", "pandas", "arch")}, "cases": []}
    record["resamples"] = RESAMPLES
    for name, shape in SHAPES.items():
        base, other = matrices(*shape)
        middle = {"base": base, "other": other}
        points, intervals = library.get_interval_estimates(
            middle, lambda scores: np.array([metrics.aggregate_iqm(scores)]), reps=RESAMPLES
        )
        chance, bounds = library.get_interval_estimates(
            {"pair": (other, base)},
            lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
            reps=RESAMPLES,
        )
        found = {arm: {"value": float(points[arm][0]), "interval": np.ravel(intervals[arm]).tolist()} for arm in middle}
        found["improvement"] = {"value": float(chance["pair"][0]), "interval": np.ravel(bounds["pair"]).tolist()}
        scores = {arm: values.T.tolist() for arm, values in middle.items()}
        record["cases"].append({"name": name, "scores": scores, "rliable": found})
        print(name, found)
    OUT.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
