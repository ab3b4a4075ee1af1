"""Synthetic run folders with known numbers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest


def write_run(
    folder: Path,
    agent: str = "dueling",
    curves: Sequence[Sequence[float]] = ((0.0, 1.0),),
    *,
    environment: str = "BitFlip",
    seeds: Sequence[int] | None = None,
    alphas: Sequence[float | None] | None = None,
    interval: int = 1000,
    finished: bool = True,
    diverged: dict[int, int] | None = None,
    config: dict[str, Any] | None = None,
    settings: Sequence[dict[str, Any]] | None = None,
    measures: dict[str, float] | None = None,
    arm: str | None = None,
) -> Path:
    """A run whose member m returns curves[m][s] at step s * interval, on two episodes one apart, and predicts 0.5 more.

    ΔQ is the step in thousands; a guided member's model errs by 1 / step. What the environment measures grows with the
    evaluations: so much at the first, twice that at the second.
    """
    folder.mkdir(parents=True, exist_ok=True)
    guided = agent.endswith("sadq")
    count = len(curves)
    seeds = list(range(count)) if seeds is None else seeds
    alphas = [0.2 if guided else None] * count if alphas is None else alphas
    members = [
        {"seed": seed, "alpha": alpha, "learning_rate": 1e-4, **(settings[index] if settings else {})}
        for index, (seed, alpha) in enumerate(zip(seeds, alphas, strict=True))
    ]
    evaluations, metrics = [], []
    length = max((len(curve) for curve in curves), default=0)
    for index in range(length):
        for member, curve in enumerate(curves):
            step, value = index * interval, curve[index]
            returns = [value - 0.5, value + 0.5]
            evaluations.append(
                {"step": step, "member": member, "returns": returns, "lengths": [8, 8], "overestimation": 0.5}
                | ({"measures": {name: value * (index + 1) for name, value in measures.items()}} if measures else {})
            )
            if index:
                row = {"step": step, "member": member, "loss": 0.1, "delta_q": step / 1000, "training_return": None}
                row |= {"steps_per_second": 500.0}
                if guided:
                    row |= {"model_state_loss": 1 / step, "model_reward_loss": 0.1 / step}
                metrics.append(row)
    header = {
        "format": 2,
        "sadq": "0.1.0",
        "jax": "0.10.2",
        "device": "cpu",
        "preset": environment.lower(),
        "config": {"environment": environment, "agent": agent, "steps": (length - 1) * interval, **(config or {})},
        "members": members,
        **({"arm": arm} if arm else {}),
    }
    (folder / "config.json").write_text(json.dumps(header))
    for name, lines in (("evaluations", evaluations), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        lost = diverged or {}
        outcomes = [
            {
                "seed": seed,
                "alpha": alpha,
                "status": "diverged" if index in lost else "ok",
                "diverged_at": lost.get(index),
            }
            for index, (seed, alpha) in enumerate(zip(seeds, alphas, strict=True))
        ]
        result = {"run": folder.name, "steps": 0, "wall_seconds": 61.7, "members": outcomes}
        (folder / "result.json").write_text(json.dumps(result))
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`write_run` below the test's own folder."""

    def make(name: str, *arguments: Any, **options: Any) -> Path:
        return write_run(tmp_path / "runs" / name, *arguments, **options)

    return make
