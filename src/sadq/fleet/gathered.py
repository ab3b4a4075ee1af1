"""A collect as it is put together from environments outside JAX, in NumPy arrays that are made once."""

from typing import Any

import numpy as np

from sadq.envs.group import HostStep
from sadq.types import Transition

Seen = tuple[np.ndarray, np.ndarray | None]
"""Observations [M, E, ...], and what is legal there bool[M, E, A] where not everything is."""


class Gathered:
    """T steps of M x E environments, of which any lanes may be ahead of others."""

    def __init__(self, steps: int, seen: Seen):
        observation, mask = seen
        members, lanes = observation.shape[:2]

        def room(dtype: Any, like: np.ndarray | None = None) -> np.ndarray:
            return np.zeros((members, steps, lanes, *(() if like is None else like.shape[2:])), dtype)

        def masks() -> Any:
            return None if mask is None else room(bool, mask)

        before, after = room(observation.dtype, observation), room(observation.dtype, observation)
        parts: list[Any] = [before, room(np.int32), room(np.float32), after, room(bool), room(bool), masks(), masks()]
        self.transitions = Transition(*parts)
        self._returns = room(np.float32)  # of the episodes that ended with a step, else 0
        self._ended = room(bool)

    def acted(self, step: int, lanes: slice, seen: Seen, action: np.ndarray) -> None:
        """In these lanes, at step number `step`, `action` was chosen for what was `seen`, all [M, these lanes, ...]."""
        observation, mask = seen
        into: Any = self.transitions
        into.observation[:, step, lanes] = observation
        into.action[:, step, lanes] = action
        if mask is not None:
            into.mask[:, step, lanes] = mask

    def answered(self, step: int, lanes: slice, outcome: HostStep, reached: Seen, running: np.ndarray) -> np.ndarray:
        """What came of it; `running`, the returns of episodes under way, is brought up to date. Where episodes ended."""
        observation, mask = reached
        into: Any = self.transitions
        into.reward[:, step, lanes] = outcome.reward
        into.next_observation[:, step, lanes] = observation
        into.terminated[:, step, lanes] = outcome.terminated
        into.truncated[:, step, lanes] = outcome.truncated
        if mask is not None:
            into.next_mask[:, step, lanes] = mask
        ended = outcome.terminated | outcome.truncated
        running += outcome.reward
        self._ended[:, step, lanes] = ended
        if ended.any():
            self._returns[:, step, lanes] = np.where(ended, running, 0)
            running[ended] = 0
        return ended

    def episodes(self) -> dict[str, np.ndarray]:
        """Of the episodes that ended in this collect: the sum of their returns, and their number, [M] each."""
        members = len(self._ended)
        returned, count = np.zeros(members), np.zeros(members)
        for step in np.flatnonzero(self._ended.any(axis=(0, 2))):
            # Step by step, over all lanes at once: sums in another order would be rounded differently.
            returned += self._returns[:, step].sum(axis=1)
            count += self._ended[:, step].sum(axis=1)
        self._returns[...] = 0
        return {"episode_return": returned, "episodes": count}
