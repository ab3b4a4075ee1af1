"""Stable-Baselines3's DQN on one environment and seed with RL Baselines3 Zoo's settings, run by .venv-peers; prints JSON.

The settings are those of rl_zoo3 2.9.2 (`hyperparams/dqn.yml`). It has none for BitFlip, which takes another's.
"""

import argparse
import json
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

POLICY = {"net_arch": [256, 256]}
LIKE_ACROBOT: dict[str, Any] = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
}
ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
    },
    "MountainCar-v0": {
        "learning_rate": 4e-3,
        "batch_size": 128,
        "buffer_size": 10_000,
        "learning_starts": 1000,
        "gamma": 0.98,
        "target_update_interval": 600,
        "train_freq": 16,
        "gradient_steps": 8,
        "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07,
    },
    "LunarLander-v3": LIKE_ACROBOT,
    "Acrobot-v1": LIKE_ACROBOT,
}


class BitFlip(gymnasium.Env):
    """Flip bits until they are those of the goal; the same rules as the native `BitFlip-6`."""

    def __init__(self, bits: int = 6):
        self.bits = bits
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2 * bits,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(bits)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)
        if np.array_equal(self.state, self.goal):
            return self.reset(options=options)
        self.taken = 0
        return np.concatenate([self.state, self.goal]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.state[action] = 1 - self.state[action]
        self.taken += 1
        solved = np.array_equal(self.state, self.goal)
        ended = solved or self.taken >= self.bits
        return np.concatenate([self.state, self.goal]), float(solved), ended, False, {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--settings", help="the environment whose settings are taken; by default the same")
    asked = parser.parse_args()
    torch.set_num_threads(1)  # the networks are small: a second thread makes an update slower
    make: Any = BitFlip if asked.environment == "BitFlip-6" else asked.environment
    settings = ZOO[asked.settings or asked.environment]
    began = time.process_time()
    model = DQN("MlpPolicy", make_vec_env(make, seed=asked.seed), seed=asked.seed, device="cpu",
                policy_kwargs=POLICY, **settings)  # fmt: skip
    model.learn(asked.steps)
    spent = time.process_time() - began
    # Episodes from starts that training never saw.
    returns, _ = evaluate_policy(
        model, make_vec_env(make, seed=10_000 + asked.seed), asked.episodes, return_episode_rewards=True
    )
    print(json.dumps({"returns": returns, "updates": model._n_updates, "core_seconds": spent}))


if __name__ == "__main__":
    main()
