"""The record of host environments' current episodes: what a replay of them needs."""

import numpy as np

from sadq.envs.group import Part, SavedState


class Record:
    """Which episode each of M x E environments is in, and the actions that it has taken in it.

    Actions are kept step by step for all environments at once, back to where the oldest of their episodes began.
    """

    def __init__(self, shape: tuple[int, int]):
        self.episodes = np.zeros(shape, np.int64)
        self._starts = np.zeros(shape, np.int64)  # the step at which each episode began
        self._actions = np.zeros((64, *shape), np.int32)
        self._steps = [0, 0]  # taken by each half
        # By part: its lanes, and the halves that it consists of.
        self._lanes = [part.lanes(shape[1]) for part in Part]
        self._halves = [(0, 1), (0,), (1,)]

    def begin(self, episode: int) -> None:
        """A new episode of that number everywhere."""
        self.episodes[:] = episode
        self._starts[:] = 0
        self._steps = [0, 0]

    def take(self, actions: np.ndarray, part: Part) -> None:
        """A part of the environments takes actions [M, its lanes]."""
        step = self._steps[self._halves[part][0]]
        if step == len(self._actions):
            step -= self._make_room()
        self._actions[step, :, self._lanes[part]] = actions
        for half in self._halves[part]:
            self._steps[half] = step + 1

    def finish(self, ended: np.ndarray, part: Part) -> None:
        """Where a part of the environments ended bool[M, its lanes], the next episode begins."""
        if ended.any():
            lanes = self._lanes[part]
            self.episodes[:, lanes] += ended
            self._starts[:, lanes][ended] = self._steps[self._halves[part][0]]

    def state(self) -> SavedState:
        """Episodes and lengths [M, E], and the actions of one environment after another."""
        lengths = self._lengths()
        recorded = self._actions.transpose(1, 2, 0)  # [M, E, steps]
        steps = np.arange(len(self._actions))
        taken = (steps >= self._starts[..., None]) & (steps < (self._starts + lengths)[..., None])
        return {"episodes": self.episodes.copy(), "lengths": lengths, "actions": recorded[taken]}

    def restore(self, episodes: np.ndarray, lengths: np.ndarray, actions: np.ndarray) -> None:
        """Take up what `state` gave."""
        longest = int(lengths.max())
        self.episodes = episodes.astype(np.int64)
        self._starts = longest - lengths.astype(np.int64)  # so that all have arrived at the same step
        self._steps = [longest, longest]
        recorded = np.zeros((*lengths.shape, max(64, longest)), np.int32)
        steps = np.arange(recorded.shape[-1])
        recorded[(steps >= self._starts[..., None]) & (steps < longest)] = actions
        self._actions = np.ascontiguousarray(recorded.transpose(2, 0, 1))

    def _lengths(self) -> np.ndarray:
        ends = np.empty_like(self._starts)
        for half, part in enumerate((Part.FIRST, Part.SECOND)):
            ends[:, self._lanes[part]] = self._steps[half]
        return ends - self._starts

    def _make_room(self) -> int:
        """Forget the steps before all current episodes, or have room for twice as many; how many were forgotten."""
        forgotten = int(self._starts.min())
        if 2 * forgotten < len(self._actions):
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)])
            return 0
        self._actions[: len(self._actions) - forgotten] = self._actions[forgotten:]
        self._starts -= forgotten
        self._steps = [step - forgotten for step in self._steps]
        return forgotten
