"""Callbacks for `SADQ.learn`, alone or in a list: the best agent kept, an early end, checkpoints, videos, loggers.

A callback is a function of a `Progress`, called after every chunk, whose False ends the training. One that has `begin` is
given the agent first, and `end` is called at last, however the training ended.
"""

import abc
import math
from pathlib import Path
from typing import Any

import numpy as np

from sadq.errors import SadqError
from sadq.experiment.arguments import number, path_of, whole
from sadq.experiment.evaluations import mean_return
from sadq.experiment.loggers import CSV, Logger, TensorBoard, WeightsAndBiases
from sadq.experiment.run import Progress
from sadq.experiment.video import check_video

__all__ = ["CSV", "BestModel", "Checkpoints", "EarlyStopping", "Logger", "TensorBoard", "Video", "WeightsAndBiases"]


class _Evaluated:
    """What looks at evaluations: each of them once, as soon as it was made."""

    def begin(self, model: Any) -> None:
        _, rows = model._begun().rows()
        # Of an agent that has trained already, none of its evaluations is new; that at the very start is.
        self.model, self._seen = model, (rows[-1]["step"] if rows else 0) or -1

    def _newest(self) -> float | None:
        """The mean return over the members that came to one, where there is an evaluation not looked at yet."""
        _, rows = self.model._begun().rows()
        step = rows[-1]["step"] if rows else -1
        if step <= self._seen:
            return None
        self._seen = step
        known = [mean_return(row) for row in rows if row["step"] == step]
        return float(np.mean([value for value in known if math.isfinite(value)] or -math.inf))


class BestModel(_Evaluated):
    """Saves the agent whenever an evaluation was better than all before, members taken together."""

    def __init__(self, path: str | Path, policy_only: bool = True):
        self.path, self.policy_only, self.best = path_of(path), policy_only, -math.inf

    def __call__(self, progress: Progress) -> None:
        newest = self._newest()
        if newest is not None and newest > self.best:
            self.best = newest
            self.model.save(self.path, policy_only=self.policy_only)


class EarlyStopping(_Evaluated):
    """Ends the training at a mean return of `threshold`, or after `patience` evaluations none of which was the best."""

    def __init__(self, threshold: float | None = None, patience: int | None = None):
        if threshold is None and patience is None:
            raise SadqError("EarlyStopping was given neither threshold nor patience: give one of them.")
        if threshold is not None:
            threshold = number(threshold, "EarlyStopping: threshold = {} must be a number.")
        if patience is not None:
            patience = whole(patience, "EarlyStopping: patience = {} must be a whole number of at least 1.", 1)
        self.threshold, self.patience, self.best, self.since = threshold, patience, -math.inf, 0

    def __call__(self, progress: Progress) -> bool | None:
        newest = self._newest()
        if newest is None:
            return None
        self.since = 0 if newest > self.best else self.since + 1
        self.best = max(self.best, newest)
        enough = self.threshold is not None and newest >= self.threshold
        return not (enough or (self.patience is not None and self.since >= self.patience))


class _Every(abc.ABC):
    """What is due every so many env steps of a member."""

    def __init__(self, path: str | Path, every: int):
        expected = f"{type(self).__name__}: every = {{}} must be a whole number of env steps."
        self.path, self.every = path_of(path), whole(every, expected, 1)

    def begin(self, model: Any) -> None:
        self.model, self._due = model, (model.num_timesteps // self.every + 1) * self.every

    def __call__(self, progress: Progress) -> None:
        if progress.step >= self._due:
            self._due = (progress.step // self.every + 1) * self.every
            self.act(progress.step)

    @abc.abstractmethod
    def act(self, step: int) -> None:
        """What is due."""


class Checkpoints(_Every):
    """Saves the agent every so many env steps, in a folder for each: path/000050000."""

    def act(self, step: int) -> None:
        self.model.save(self.path / f"{step:09d}")


class Video(_Every):
    """Films an episode of the first member every so many env steps: path/000050000.gif."""

    def begin(self, model: Any) -> None:
        super().begin(model)
        # What cannot be drawn is said before anything is learned.
        check_video(model._begun().environment, self.path / "episode.gif")

    def act(self, step: int) -> None:
        self.model.film(self.path / f"{step:09d}.gif")
