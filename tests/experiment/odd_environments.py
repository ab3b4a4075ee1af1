"""Gymnasium environments, registered on import, that have CartPole's spaces and something else of their own."""

import os

import gymnasium
import numpy as np
from gymnasium import spaces


class Drift(gymnasium.Env):
    """Four numbers that wander; an episode takes six to ten steps, by its seed and the actions."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.position = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        return self.position, {}

    def step(self, action):
        self.steps += 1
        self.position = self.position + np.float32(0.1) * (1 if action else -1)
        return self.position, float(self.position[0]), self.steps >= 6 and self.position[1] > 0, self.steps >= 10, {}


class Unseeded(Drift):
    """Begins anywhere, whatever its seed says."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=int.from_bytes(os.urandom(4)))


class Masked(Drift):
    """Allows action 0 on even steps only, and dies of anything else."""

    def info(self):
        return {"action_mask": np.array([self.steps % 2 == 0, True])}

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], self.info()

    def step(self, action):
        assert self.info()["action_mask"][action], "an illegal action was taken"
        return (*super().step(action)[:4], self.info())


class Faulty(Drift):
    """Answers as it should until its third step, then with something else."""

    def __init__(self, fault):
        self.fault = fault

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps < 3:
            return observation, reward, terminated, truncated, info
        return {
            "observation": (observation * np.nan, reward, terminated, truncated, info),
            "reward": (observation, float("nan"), terminated, truncated, info),
            "shape": (observation[:3], reward, terminated, truncated, info),
            "tuple": (observation, reward, terminated, info),
            "exception": None,
        }[self.fault]


class FaultyReset(Drift):
    """Begins an episode with something else than it should."""

    def __init__(self, fault):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return {"nan": (observation * np.nan, info), "shape": (observation[:2], info), "bare": observation}[self.fault]


class Image(Drift):
    """Shows a picture."""

    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)


for kind in (Drift, Unseeded, Masked, Image):
    gymnasium.register(f"{kind.__name__}-v0", kind)
gymnasium.register("Dice-v0", Unseeded, nondeterministic=True)
for fault in ("observation", "reward", "shape", "tuple", "exception"):
    gymnasium.register(f"Faulty-{fault}-v0", Faulty, kwargs={"fault": fault})
for fault in ("nan", "shape", "bare"):
    gymnasium.register(f"FaultyReset-{fault}-v0", FaultyReset, kwargs={"fault": fault})
