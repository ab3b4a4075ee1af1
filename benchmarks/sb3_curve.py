"""SADQ in Stable-Baselines3 beside SADQ in JAX: learning curves on CartPole-v1 with the same numbers.

    make sb3 && .venv-sb3/bin/python benchmarks/sb3_curve.py --out benchmarks/results/sb3_curve.json

Plain DQN and its SADQ twin, each by both libraries, with RL Baselines3 Zoo's settings of DQN on CartPole: seeds of
Stable-Baselines3 one after the other on one thread, ours as a fleet. The file is written after every arm, and arms that it
has are kept. Ten evaluations of five greedy episodes each.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch
import zoo_peer
from measure import write_json
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from sadq import SADQ
from sadq.experiment.config import Epsilon, GuidanceSettings
from sadq.networks import Dense, Scalar
from sadq.sb3 import SADQDQN

ENVIRONMENT, EVALUATIONS, EPISODES = "CartPole-v1", 10, 5
ZOO: dict[str, Any] = zoo_peer.ZOO[ENVIRONMENT] | {"policy_kwargs": zoo_peer.POLICY}
MODEL: dict[str, Any] = {"alpha": 0.2, "gate": "batch"}


def same_in_jax(steps: int) -> dict[str, Any]:
    """Zoo's settings as fields of a config. A head has a hidden layer of its own, and no gradient falls between targets."""
    return {
        "learning_rate": ZOO["learning_rate"],
        "learning_rate_schedule": "constant",
        "batch_size": ZOO["batch_size"],
        "buffer_size": ZOO["buffer_size"],
        "learning_starts": ZOO["learning_starts"],
        "discount": ZOO["gamma"],
        "environments": 1,
        "collect": ZOO["train_freq"],
        "updates_per_collect": ZOO["gradient_steps"],
        "target_update_interval": ZOO["train_freq"],
        "soft_target_rate": None,
        "n_step": 1,
        "encoder": Dense((256,)),
        "head": Scalar(huber=1.0),
        "max_gradient_norm": 10.0,
        "epsilon": Epsilon((1.0,), (ZOO["exploration_final_eps"],), (ZOO["exploration_fraction"] * steps,)),
        "guidance": GuidanceSettings(updates_per_collect=ZOO["gradient_steps"], batch_size=256, learning_rate=1e-3),
        "evaluations": EVALUATIONS,
        "evaluation_episodes": EPISODES,
    }


class Evaluations(BaseCallback):
    """Greedy returns at equal distances, and at the end."""

    def __init__(self, steps: int, seed: int):
        super().__init__()
        self.every, self.returns = steps // EVALUATIONS, []
        self.environment = make_vec_env(ENVIRONMENT, seed=1000 + seed)

    def _on_step(self) -> bool:
        if self.num_timesteps % self.every == 0:
            mean, _ = evaluate_policy(self.model, self.environment, EPISODES)
            self.returns.append(float(mean))
        return True


def by_stable_baselines(kind: type[DQN], steps: int, seeds: int) -> list[list[float]]:
    curves = []
    for seed in range(seeds):
        more = MODEL if kind is SADQDQN else {}
        follow = Evaluations(steps, seed)
        kind("MlpPolicy", ENVIRONMENT, seed=seed, device="cpu", **more, **ZOO).learn(steps, follow)
        curves.append(follow.returns)
    return curves


def by_us(agent: str, steps: int, seeds: int) -> list[list[float]]:
    model = SADQ(ENVIRONMENT, agent=agent, seeds=seeds, **same_in_jax(steps)).learn(steps)
    made = sorted({row["step"] for row in model.evaluations})
    # Whole collects lie between evaluations: the nearest to each of those that Stable-Baselines3 has.
    near = [min(made, key=lambda step: abs(step - steps * (at + 1) // EVALUATIONS)) for at in range(EVALUATIONS)]
    returns = {(row["member"], row["step"]): float(np.mean(row["returns"])) for row in model.evaluations}
    return [[returns[member, step] for step in near] for member in range(seeds)]


ARMS = {
    "Stable-Baselines3 `DQN`": lambda *asked: by_stable_baselines(DQN, *asked),
    "`sadq.sb3.SADQDQN`": lambda *asked: by_stable_baselines(SADQDQN, *asked),
    "`SADQ`, agent `dqn`": lambda *asked: by_us("dqn", *asked),
    "`SADQ`, agent `dqn+sadq`": lambda *asked: by_us("dqn+sadq", *asked),
}


def table(record: dict[str, Any]) -> str:
    """Means over seeds at every other evaluation, the last one of every seed, and what it took."""
    steps = record["steps"]
    shown = range(1, EVALUATIONS, 2)
    heads = " | ".join(f"{steps * (at + 1) // EVALUATIONS:,}" for at in shown)
    lines = [f"| | {heads} | each seed at the end | core seconds |", "|---" * (len(shown) + 3) + "|"]
    for name, arm in record["arms"].items():
        means = " | ".join(f"{np.mean([curve[at] for curve in arm['curves']]):.0f}" for at in shown)
        ends = ", ".join(f"{curve[-1]:.0f}" for curve in arm["curves"])
        lines.append(f"| {name} | {means} | {ends} | {arm['cpu_seconds']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    record = json.loads(asked.out.read_text()) if asked.out.exists() else {"arms": {}}
    if record.get("arms") and (record["steps"], record["seeds"]) != (asked.steps, asked.seeds):
        parser.error(f"{asked.out} has {record['steps']} steps and {record['seeds']} seeds: choose another file")
    for name, run in ARMS.items():
        if name in record["arms"]:
            continue
        began, busy = time.perf_counter(), time.process_time()
        curves = run(asked.steps, asked.seeds)
        spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - busy}
        record["arms"][name] = {"curves": curves, **spent}
        versions = ("stable_baselines3", "torch", "gymnasium", "jax", "numpy")
        record |= {"steps": asked.steps, "seeds": asked.seeds, "machine": machine.describe(versions)}
        write_json(asked.out, record)
    print(table(record))


if __name__ == "__main__":
    main()
