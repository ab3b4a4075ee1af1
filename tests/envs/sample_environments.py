"""Small Gymnasium environments: a well-behaved one, and one that breaks the contract in a chosen way."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A seeded random walk of three numbers; action 1 ends an episode after its third step."""

    def __init__(self, dtype=np.float32, masks=False, start=0, actions=2):
        self.observation_space = spaces.Box(-100, 100, (3,), dtype)
        self.action_space = spaces.Discrete(actions, start=start)
        self.dtype, self.masks, self.start = dtype, masks, start
        self.taken = []

    def info(self):
        if not self.masks:
            return {}
        return {"action_mask": np.arange(self.action_space.n) != len(self.taken) % self.action_space.n}

    def observation(self):
        return (100 * self.position).astype(self.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = []
        self.position = self.np_random.uniform(-0.5, 0.5, 3)
        return self.observation(), self.info()

    def step(self, action):
        assert self.action_space.contains(action), f"action {action}"
        self.taken.append(action - self.start)
        self.position = 0.9 * self.position + self.np_random.normal(0, 0.01, 3) + 0.01 * self.taken[-1]
        terminated = len(self.taken) >= 3 and self.taken[-1] == 1
        return self.observation(), float(self.position[0]), terminated, len(self.taken) >= 20, self.info()


class Film(Walk):
    """The walk as a picture that is painted over at every step, as emulators do."""

    def __init__(self, dtype=np.uint8):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (4, 5, 2), dtype)
        self.screen = np.zeros((4, 5, 2), dtype)

    def observation(self):
        ramp = np.arange(40).reshape(4, 5, 2)
        self.screen[...] = (self.position[0] * 100 + 128 + ramp * len(self.taken)).astype(np.int64) % 256
        return self.screen


class Unseeded(Walk):
    """A walk that ignores its seed, so that no replay comes out the same."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=int.from_bytes(os.urandom(3)))


class Broken(Walk):
    """A walk that returns `reset` or `step` instead of its own answer; a step's parts are given by name."""

    def __init__(self, reset=None, step=None, after=0, **parts):
        super().__init__(masks="info" in parts and "reset_info" not in parts)
        self.replacement, self.step_replacement, self.after, self.parts = reset, step, after, parts
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        if isinstance(self.replacement, Exception):
            raise self.replacement
        return (observation, self.parts.get("reset_info", info)) if self.replacement is None else self.replacement

    def step(self, action):
        answer = super().step(action)
        self.steps += 1
        if self.steps <= self.after:
            return answer
        if isinstance(self.step_replacement, Exception):
            raise self.step_replacement
        if self.step_replacement is not None:
            return self.step_replacement
        names = ("observation", "reward", "terminated", "truncated", "info")
        return tuple(self.parts.get(name, value) for name, value in zip(names, answer, strict=True))


class Spaces(Walk):
    """A walk with the given spaces; what is `shown` never changes."""

    def __init__(self, observations=None, actions=None, shown=None):
        super().__init__()
        self.observation_space = self.observation_space if observations is None else observations
        self.action_space = self.action_space if actions is None else actions
        self.shown = shown

    def observation(self):
        return super().observation() if self.shown is None else self.shown


class Slow(Walk):
    """A walk whose step takes 2 ms."""

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


class Talkative(Walk):
    """A walk that prints, reads its input and remembers whether JAX was imported where it runs."""

    def step(self, action):
        import sys

        print("not a message")
        assert sys.stdin.read() == ""
        answer = list(super().step(action))
        answer[1] = float("jax" in sys.modules)
        return tuple(answer)


class Dying(Walk):
    """A walk that takes its process with it."""

    def step(self, action):
        os._exit(3)
