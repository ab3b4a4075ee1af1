"""Oracles: a game stepped frame by frame through ALE's plain interface, and the resizing that all of them share."""

import math
import sys
import types

import numpy as np

SIZE = 84


def _taps(source, target):
    """For each target pixel the source pixels under it and their shares, as OpenCV computes them in float32."""
    scale, rows = source / target, []
    for pixel in range(target):
        start, end = pixel * scale, (pixel + 1) * scale
        cell = min(scale, source - start)
        last = min(math.floor(end), source - 1)
        first = min(math.ceil(start), last)
        row = [(first - 1, (first - start) / cell)] if first - start > 1e-3 else []
        row += [(index, 1 / cell) for index in range(first, last)]
        row += [(last, min(end - last, 1, cell) / cell)] if end - last > 1e-3 else []
        rows.append(row)
    width = max(map(len, rows))
    padded = [row + [(0, 0.0)] * (width - len(row)) for row in rows]
    return np.array([[i for i, _ in row] for row in padded]), np.array([[w for _, w in row] for row in padded], "f4")


def resize(image, size=(SIZE, SIZE), interpolation=None):
    """OpenCV's `resize` by area, to the bit: the mean of what lies under each pixel."""
    columns, shares = _taps(image.shape[1], size[0])
    wide = image.astype(np.float32)
    narrow = np.zeros((len(image), size[0]), np.float32)
    for tap in range(columns.shape[1]):
        narrow = narrow + wide[:, columns[:, tap]] * shares[:, tap]
    rows, shares = _taps(image.shape[0], size[1])
    small = np.zeros(size[::-1], np.float32)
    for tap in range(rows.shape[1]):
        small = small + narrow[rows[:, tap]] * shares[:, tap, None]
    return np.rint(small).astype(np.uint8)


def lend_opencv(monkeypatch):
    """Gymnasium's preprocessing wants OpenCV for its `resize` alone; ours will do where it is not installed."""
    try:
        import cv2  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("cv2")
        stand_in.resize, stand_in.INTER_AREA = resize, 3
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
