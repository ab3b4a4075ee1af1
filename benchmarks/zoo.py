"""The default beside Stable-Baselines3's DQN with RL Baselines3 Zoo's tuned settings, on what people try first.

    benchmarks/peers.sh .venv-peers
    .venv/bin/python benchmarks/zoo.py --who sb3 sadq --seeds 10 --core 0 --out benchmarks/results/zoo.json

Five environments with the Zoo's step budgets (BitFlip, which it lacks: 40,000 steps and the settings of its CartPole, which
solved more episodes there than those of its Acrobot, on seed 100). One setting of ours for all of them; the Zoo's own for
each. Every seed is judged by greedy episodes of its last network, from starts that training never saw. Seeds of
Stable-Baselines3 train one after the other, ours as one fleet, compiled once; times are of a processor, for each seed its
share. `--who` takes agents, each with the default preset. The file is written after every
run, and what it has is kept; what the setting was chosen by stands there too.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np
from measure import measured, say, write_json

STEPS = {
    "CartPole-v1": 50_000,
    "Acrobot-v1": 100_000,
    "LunarLander-v3": 100_000,
    "MountainCar-v0": 120_000,
    "BitFlip-6": 40_000,
}
HERE = Path(__file__).resolve().parent
PEERS = str(HERE.parent / ".venv-peers" / "bin" / "python")
PEER, BORROWED = "sb3", {"BitFlip-6": "CartPole-v1"}
EPISODES = 20
Run = dict[str, Any]


def by_peer(python: str, environment: str, seed: int) -> Run:
    words = [python, str(HERE / "zoo_peer.py"), environment, "--steps", str(STEPS[environment])]
    words += ["--seed", str(seed), "--episodes", str(EPISODES), "--settings", BORROWED.get(environment, environment)]
    found = measured(words, timeout=3600)
    return {"seed": seed, "return": float(np.mean(found["returns"])), "core_seconds": found["core_seconds"]}


def by_us(environment: str, agent: str, seeds: list[int], fields: dict[str, Any] | None = None) -> list[Run]:
    from sadq import SADQ

    began = time.process_time()
    model = SADQ(environment, agent=agent, seeds=seeds, **(fields or {})).learn(STEPS[environment])
    spent = (time.process_time() - began) / len(seeds)
    ends = [member["mean_return"] for member in model.evaluate(EPISODES)]
    model.close()
    return [{"seed": seed, "return": end, "core_seconds": spent} for seed, end in zip(seeds, ends, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--who", nargs="+", default=[PEER, "sadq"], help=f"{PEER} and agents")
    parser.add_argument("--environments", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--core", type=int, help="the one core that everything runs on")
    parser.add_argument("--peer-python", default=PEERS, help="the interpreter that has Stable-Baselines3")
    parser.add_argument(
        "--take", nargs="+", type=Path, default=[], help="files whose runs are added; nothing is run then"
    )
    asked = parser.parse_args()
    if asked.core is not None:
        os.sched_setaffinity(0, {asked.core})
    record = json.loads(asked.out.read_text()) if asked.out.exists() else {"runs": []}
    seeds = list(range(asked.first_seed, asked.first_seed + asked.seeds))
    about = machine.describe(("jax", "gymnasium", "numpy"))

    def keep(who: str, environment: str, runs: list[Run]) -> None:
        notes = {"who": who, "environment": environment, "commit": about["commit"]}
        record["runs"] += [notes | run for run in runs]
        write_json(asked.out, record | {"machine": about})
        for run in runs:
            say(f"{who} {environment} seed {run['seed']}: {run['return']:.4g} in {run['core_seconds']:.1f} s")

    if asked.take:
        for path in asked.take:
            taken = json.loads(path.read_text())
            record["runs"] += [run for run in taken["runs"] if run not in record["runs"]]
            where = {name: taken["machine"][name] for name in ("cpu", "cores", "python", "versions", "commit")}
            if where not in record.setdefault("other_machines", []):
                record["other_machines"].append(where)
        write_json(asked.out, record)
        return
    for who in asked.who:
        for environment in asked.environments:
            have = {run["seed"] for run in record["runs"] if (run["who"], run["environment"]) == (who, environment)}
            missing = [seed for seed in seeds if seed not in have]
            if who == PEER:
                for seed in missing:
                    keep(who, environment, [by_peer(asked.peer_python, environment, seed)])
            elif missing:
                keep(who, environment, by_us(environment, who, missing))


if __name__ == "__main__":
    main()
