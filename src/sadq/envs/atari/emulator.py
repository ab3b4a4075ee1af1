"""A console whose state can be kept and taken up again, so that every action can be tried from the same moment."""

from typing import Any, NamedTuple

import numpy as np

from sadq.envs.atari import games
from sadq.envs.atari.console import Shot
from sadq.envs.atari.screens import resize
from sadq.envs.atari.spec import FRAME_SKIP, AtariSpec


class Kept(NamedTuple):
    """A moment of a game."""

    machine: Any  # ALE's
    screens: np.ndarray  # the pair of which the maximum is seen
    frames: int  # of the game so far
    shot: Shot


class Emulator:
    """A game by ALE's plain interface, which can be cloned, behind the methods of a `Console`.

    Frames, points and ends are those of a `Console` that takes the same actions from the same start. It is slower, and
    draws by itself for how many frames nothing is done before a game, so training does not use it.
    """

    def __init__(self, game: str, spec: AtariSpec):
        self._facts, self._spec = games.find(game), spec
        self._ale = games.plain_interface()
        self._ale.setFloat("repeat_action_probability", spec.sticky)
        self._action: int | None = None
        self._actions: list[Any] = []
        self._frames = 0  # not counting those before the first step, as ALE's vector environment does not
        self._screens: np.ndarray  # u8[2, rows, columns]
        self._shot: Shot

    def begin(self, seed: int) -> Shot:
        """Start a new game, which is a function of the seed and of the actions that follow."""
        self._ale.setInt("random_seed", seed % 2**31)
        self._ale.loadROM(games.rom_path(self._facts.rom))  # which is what makes the seed count
        self._actions = self._ale.getMinimalActionSet()
        self._ale.reset_game()
        idle = 0
        if self._spec.noop_max:
            idle = int(np.random.default_rng(seed).integers(self._spec.noop_max))
        for _ in range(idle):
            self._ale.act(self._actions[0])
        if self._spec.fire_on_reset and self._facts.fires:
            self._ale.act(self._actions[games.FIRE])
        screen = self._ale.getScreenGrayscale()
        self._screens, self._frames = np.stack([screen, np.zeros_like(screen)]), 0
        self._shot = Shot(resize(screen), 0, self._ale.lives(), False, False)
        return self._shot

    def step(self, action: int) -> Shot:
        """Hold an action for the frames of a step."""
        points, over, late = 0, False, False
        for frame in range(FRAME_SKIP):
            points += self._ale.act(self._actions[action])
            self._frames += 1
            over = self._ale.game_over()
            late = not over and self._frames >= self._spec.max_frames
            if over or late:
                break
            if frame >= FRAME_SKIP - 2:
                self._screens[FRAME_SKIP - 1 - frame] = self._ale.getScreenGrayscale()
        # As ALE and Gymnasium have it: a game that ends early leaves the older screens of the pair in place.
        self._screens[0] = self._screens.max(axis=0)
        self._shot = Shot(resize(self._screens[0]), points, self._ale.lives(), over, late)
        return self._shot

    def send(self, action: int) -> None:
        """Say which step `receive` takes."""
        self._action = action

    def receive(self) -> Shot:
        """Take the step that was sent."""
        assert self._action is not None, "a step is sent before it is received"
        action, self._action = self._action, None
        return self.step(action)

    def keep(self) -> Kept:
        """This moment, to be taken up again any number of times."""
        return Kept(self._ale.cloneState(include_rng=True), self._screens.copy(), self._frames, self._shot)

    def take_up(self, kept: Kept) -> None:
        """Go back to a moment that was kept, of the same game."""
        self._ale.restoreState(kept.machine)
        self._screens, self._frames, self._shot = kept.screens.copy(), kept.frames, kept.shot

    @property
    def colours(self) -> np.ndarray:
        """The screen as people see it, after the last frame: u8[rows, columns, 3]."""
        return self._ale.getScreenRGB()

    @property
    def action_names(self) -> list[str]:
        """Of the minimal action set, in its order."""
        return [action.name for action in self._actions]
