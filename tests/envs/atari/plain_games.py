"""Oracles: a game stepped frame by frame through ALE's plain interface."""

import sys
import types

import numpy as np

from sadq.envs.atari.screens import resize


def lend_opencv(monkeypatch):
    """Gymnasium's preprocessing wants OpenCV for its `resize` alone; ours will do where it is not installed."""
    try:
        import cv2  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("cv2")
        stand_in.resize, stand_in.INTER_AREA = lambda image, size, interpolation: resize(image, size), 3
        monkeypatch.setitem(sys.modules, "cv2", stand_in)


class PlainGame:
    """A game by ALE's plain interface: the frames of a step one by one, the last two of them pooled."""

    def __init__(self, rom, seed=0):
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", seed)
        self.ale.loadROM(ale_py.roms.get_rom_path(rom))
        self.actions = self.ale.getMinimalActionSet()
        self.ale.reset_game()
        self.screens = [self.screen(), np.zeros_like(self.screen())]

    def screen(self):
        return self.ale.getScreenGrayscale()

    def act(self, action):
        """One frame, no step; what it shows is then all that there is to see."""
        self.ale.act(self.actions[action])
        self.screens = [self.screen(), np.zeros_like(self.screen())]

    @property
    def frame(self):
        return resize(np.maximum(*self.screens))

    def step(self, action):
        """(points, whether a life but not the game was lost, whether the game is over)."""
        lives, points = self.ale.lives(), 0
        for frame in range(4):
            points += self.ale.act(self.actions[action])
            if self.ale.game_over():
                break
            if frame >= 2:
                self.screens[3 - frame] = self.screen()
        # As ALE and Gymnasium have it: a game that ends early leaves the older screens of the pair in place.
        self.screens[0] = np.maximum(*self.screens)
        return points, not self.ale.game_over() and 0 < self.ale.lives() < lives, self.ale.game_over()


def first_stack(frame):
    """The observation that an episode starts with."""
    return np.stack([np.zeros_like(frame)] * 3 + [frame])


def pushed(stack, frame):
    """The observation after the next frame."""
    return np.concatenate([stack[1:], frame[None]])
