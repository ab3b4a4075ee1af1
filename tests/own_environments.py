"""Environments as people write them: three with spaces of their own, each of which pays for using what it shows."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Sorting(gymnasium.Env):
    """A Dict of all kinds of parts; the action that it names, numbered from 5 on, is right."""

    def __init__(self, length=4):
        self.observation_space = spaces.Dict(
            {
                "where": spaces.Box(-1, 1, (2, 2), np.float64),
                "asked": spaces.Discrete(3, start=5),
                "flags": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[1, 0]))),
                "level": spaces.Box(0, 255, (), np.int64),
            }
        )
        self.action_space = spaces.Discrete(3, start=5)
        self.length = length

    def seen(self):
        self.asked = int(self.np_random.integers(5, 8))
        return {
            "where": self.np_random.uniform(-1, 1, (2, 2)),
            "asked": np.int64(self.asked),
            "flags": (
                self.np_random.integers(0, 2, 2).astype(np.int8),
                self.np_random.integers([1, 0], [3, 3]).astype(np.int64),
            ),
            "level": np.array(self.np_random.integers(0, 256)),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.right = 0, 0
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        self.right += action == self.asked
        reward = float(action == self.asked)
        ended = self.steps >= self.length
        return (
            self.seen(),
            reward,
            ended,
            False,
            {"success": self.right == self.length, "measures": {"right": self.right}},
        )


class Switches(gymnasium.Env):
    """Joint actions: both entries must be what is shown; rendered as a picture of one colour."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, shape=(2, 3), render_mode=None):
        self.observation_space = spaces.MultiDiscrete(shape)
        self.action_space = spaces.MultiDiscrete(shape)
        self.render_mode = render_mode

    def seen(self):
        self.asked = self.np_random.integers(0, self.action_space.nvec)
        return self.asked.astype(np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(np.array_equal(action, self.asked))
        self.steps += 1
        return self.seen(), reward, self.steps >= 4, False, {}

    def render(self):
        return np.full((12, 16, 3), 20 * self.steps, np.uint8)


class Narrow(gymnasium.Env):
    """Some of four actions are legal at every step, told by `how`; where it is strict, an illegal one is an error."""

    def __init__(self, how="method", strict=True):
        self.strict = strict
        self.observation_space = spaces.Box(0, 1, (4,), np.float32)
        self.action_space = spaces.Discrete(4, start=1)
        self.how = how
        if how == "method":
            self.action_masks = self.legal

    def legal(self):
        assert not self.over, "asked after the end"
        return self.mask

    def seen(self):
        self.mask = self.np_random.permutation(4) < 2
        return self.np_random.uniform(0, 1, 4).astype(np.float32)

    def info(self):
        return {"action_mask": self.mask.astype(np.int8)} if self.how == "info" else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.over, self.mask = 0, False, np.ones(4, bool)
        return self.seen(), self.info()

    def step(self, action):
        if self.strict and not self.mask[action - 1]:
            raise ValueError(f"action {action} is illegal")
        self.steps += 1
        self.over = self.steps >= 5
        return self.seen(), float(action == 1), self.over, False, self.info()


class Endless(gymnasium.Env):
    """An episode that nothing ends."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Discrete(2), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return int(action), 1.0, False, False, {}
