"""A fleet of host environments, M members times E, without autoreset: NumPy in, NumPy out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sadq.envs import shared
from sadq.envs import workers as processes
from sadq.envs.contract import HostSpec
from sadq.envs.group import (
    EVALUATE,
    IDLE,
    EnvironmentGroup,
    HostStep,
    Part,
    SavedState,
    Slot,
    checked_actions,
    checked_shape,
)
from sadq.envs.native_as_host import NativeAsHost
from sadq.envs.record import Record
from sadq.errors import SadqError

__all__ = ["HostEnvironments", "HostSpec", "HostStep", "NativeAsHost"]


class HostEnvironments:
    """E Gymnasium environments for each of M members, in this process or in workers, with the same results.

    Every episode is seeded from (member seed, purpose, environment, episode number), so a fleet's randomness does not
    depend on its other members, and resuming replays no more than the current episodes.
    """

    def __init__(
        self,
        spec: HostSpec,
        seeds: Sequence[int],
        environments: int,
        workers: int | str = "auto",
        purpose: str = "collect",
    ):
        self.spec = spec
        self.name = spec.name
        self.observation_shape = spec.observation_shape
        self.observation_dtype = spec.observation_dtype
        self.action_count = spec.action_count
        self.max_steps = spec.max_steps
        self.has_masks = spec.has_masks
        self.shape = checked_shape(spec.name, seeds, environments)  # (M, E)
        self.halves = environments > 1
        """Whether the two halves of the environments can take turns."""
        self.exact_resume = True
        """Whether the last `restore` reached just the observations that were saved."""
        slots = [Slot(int(seed), index) for seed in seeds for index in range(environments)]
        self.workers = processes.resolve(workers, spec, len(slots), beside=purpose == EVALUATE)
        second = np.zeros(self.shape, bool)
        second[:, Part.SECOND.lanes(environments)] = True
        self._runner: EnvironmentGroup | processes.WorkerPool
        if self.workers:
            self._runner = processes.WorkerPool(spec, slots, purpose, self.workers, second.reshape(-1))
            self._board = self._runner.board
        else:
            self._board, rows = shared.private_board(spec, len(slots)), np.arange(len(slots))
            self._runner = EnvironmentGroup(spec, slots, purpose, self._board, rows, second.reshape(-1))
        self._views = {part: self._view(part) for part in Part}
        self._actions = {part: self._of(part, self._board.action) for part in Part}
        self._record = Record(self.shape)
        self._silent = np.zeros(len(slots), bool)  # rows that are zeros because they were left alone
        self._started = False

    def reset(self, start: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
        """Begin episode number `start` everywhere: (observations [M, E, *shape], masks bool[M, E, A] or None)."""
        self._record.begin(start)
        self._runner.reset(self._record.episodes.reshape(-1))
        return self._current()

    def step(self, actions: np.ndarray) -> HostStep:
        """Take actions i32[M, E]; environments whose episode ends begin their next one right away, but not to evaluate.

        The action IDLE leaves an environment alone; it must be reset before it is stepped again.
        """
        self.send(actions)
        parts: list[Any] = [None if part is None else part.copy() for part in self.receive()]
        return HostStep(*parts)

    def send(self, actions: np.ndarray, part: Part = Part.WHOLE) -> None:
        """Begin a step of all environments, or of a half whose actions are i32[M, its lanes]."""
        if not self._started:
            raise SadqError(f"environment {self.name} was stepped before it was reset: call reset or restore first.")
        told = self._actions[part]
        told[...] = checked_actions(self, actions, told.shape)
        idle = IDLE in told.ravel().tolist()
        if idle:
            self._silence()
        self._record.take(told, part)
        self._runner.send(part, idle)

    def receive(self, part: Part = Part.WHOLE) -> HostStep:
        """What came of the actions that were sent: views, which change when the next ones are."""
        self._runner.receive(part)
        step = self._views[part]
        self._record.finish(step.terminated | step.truncated, part)
        return step

    def state(self) -> SavedState:
        """What `restore` needs: which episodes are under way, the actions taken in them, and where these led."""
        if not self._started:
            raise SadqError(f"environment {self.name} has no state before it was reset: call reset first.")
        return self._record.state() | {"observations": self._views[Part.WHOLE].observation.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
        """Replay the episodes of a saved state: (observations, masks) to go on from, and `exact_resume` is set."""
        missing = {"episodes", "lengths", "actions", "observations"} - state.keys()
        if missing:
            raise SadqError(
                f"the saved state of environment {self.name} lacks {', '.join(sorted(missing))}: it does not belong to "
                "this run; restore one that was saved with this environment."
            )
        episodes, lengths, actions = state["episodes"], state["lengths"], state["actions"]
        expected = self.shape + self.observation_shape
        if state["observations"].shape != expected or int(lengths.sum()) != len(actions):
            raise SadqError(
                f"the saved state of environment {self.name} has observations of shape {state['observations'].shape}, "
                f"expected {expected}: restore it with the seeds and environments that it was saved with."
            )
        self._record.restore(episodes, lengths, actions)
        ended = self._runner.replay(episodes.reshape(-1).astype(np.int64), lengths.reshape(-1), actions)
        self._record.finish(ended.reshape(self.shape), Part.WHOLE)
        observations, masks = self._current()
        self.exact_resume = not ended.any() and np.array_equal(observations, state["observations"])
        return observations, masks

    def measures(self) -> dict[str, np.ndarray]:
        """What the environments measured of the episodes since the last reset, by name: [M, E]."""
        measured = self._of(Part.WHOLE, self._board.measured)
        return {name: measured[..., index].copy() for index, name in enumerate(self.spec.measures)}

    def close(self) -> None:
        """Close the environments and end their workers."""
        self._runner.close()

    def _current(self) -> tuple[np.ndarray, np.ndarray | None]:
        self._started = True
        self._silent[:] = False
        seen = self._views[Part.WHOLE]
        return seen.observation.copy(), None if seen.mask is None else seen.mask.copy()

    def _silence(self) -> None:
        """Zeros for what is left alone, written once: nobody else writes these rows until they are reset."""
        newly = (self._board.action == IDLE) & ~self._silent
        if newly.any():
            self._silent |= newly
            self._board.silence(newly)

    def _of(self, part: Part, field: Any) -> Any:
        """A field of the board as [M, the part's lanes, ...]."""
        return None if field is None else field.reshape(self.shape + field.shape[1:])[:, part.lanes(self.shape[1])]

    def _view(self, part: Part) -> HostStep:
        return HostStep(*(self._of(part, field) for field in self._board[1:8]))  # all but what was told and measured
