"""Writes tests/data/rlax.json: what rlax says of given values, for the tests of our own returns and losses.

    python3 -m venv reference && reference/bin/pip install rlax
    reference/bin/python tools/rlax_reference.py

rlax needs a nightly build of another package, hence an environment of its own, and numbers that are kept.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rlax

OUT = Path(__file__).parents[1] / "tests" / "data" / "rlax.json"
ACTIONS, ATOMS = 3, 5


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def midpoints(count: int) -> np.ndarray:
    return ((np.arange(count) + 0.5) / count).astype(np.float32)


def asked() -> dict[str, list[tuple[Any, ...]]]:
    """The functions of rlax that have a counterpart here, with the arguments of every case."""
    online, target = drawn(0, ACTIONS, ATOMS), drawn(1, ACTIONS, ATOMS)
    atoms, wide = np.linspace(-2, 2, ATOMS, dtype=np.float32), np.linspace(-10, 10, 11, dtype=np.float32)
    rewards = [(0.3, 0.9), (-1.0, 1.0), (0.5, 0.0), (100.0, 0.9)]
    moved = [4 * drawn(10 + seed, ATOMS) for seed in range(4)] + [np.full(ATOMS, 12.0), np.full(ATOMS, 4.0), atoms]
    mass = [np.random.default_rng(seed).dirichlet(np.ones(ATOMS)).astype(np.float32) for seed in range(len(moved))]
    levels = np.sort(np.random.default_rng(2).uniform(size=32)).astype(np.float32)
    turned = online.T, midpoints(ATOMS)
    return {
        "q_learning": [(online[:, 0], 1, 0.5, discount, target[:, 0]) for discount in (0.9, 0.0)],
        "categorical_q_learning": [(atoms, online, 2, *pair, atoms, target) for pair in rewards],
        "categorical_l2_project": [(*pair, wide) for pair in zip(moved, mass, strict=True)],
        "quantile_q_learning": [
            (*turned, 1, 0.5, discount, target.T, target.T, kappa)
            for discount in (0.9, 0.0)
            for kappa in (1.0, 0.1, 10.0)
        ],
        "quantile_regression_loss": [
            *((drawn(4, 32), levels, drawn(5, 24), kappa) for kappa in (0.0, 0.3, 1.0, 3.0)),
            *((drawn(6, ATOMS), midpoints(ATOMS), 0.5 + 0.9 * drawn(7, ATOMS), kappa) for kappa in (0.0, 1.0)),
        ],
    }


def main() -> None:
    record: dict[str, Any] = {"made_with": {name: version(name) for name in ("rlax", "jax", "numpy")}}
    for name, cases in asked().items():
        function, record[name] = getattr(rlax, name), []
        for arguments in cases:
            given = [jnp.asarray(one) if isinstance(one, np.ndarray) else one for one in arguments]
            case = {"arguments": [np.asarray(one).tolist() for one in arguments]}
            case["result"] = np.asarray(function(*given)).tolist()
            if name == "quantile_regression_loss":
                case["gradient"] = np.asarray(jax.grad(function)(*given)).tolist()
            record[name].append(case)
    OUT.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
