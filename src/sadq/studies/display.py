"""How far a sweep is, on stderr: bars in a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from sadq.experiment.run import Callback, Experiment, Progress

SECONDS_BETWEEN_LINES = 15.0


class Display:
    """Jobs by name, each with its share of all the work; an ETA over the whole sweep."""

    def __init__(self, jobs: Sequence[tuple[str, int]], quiet: bool = False, warn: Callable[[str], None] | None = None):
        """`warn` is told what runs have to say; by default that is shown, too."""
        self.work, self.quiet, self.warn = dict(jobs), quiet, warn or self.say
        self.done = dict.fromkeys(self.work, 0.0)  # the share of each job
        self.found = 0.0  # work that was done before this call
        self.began = self.told = time.monotonic()
        self._bars: Bars | None = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            shown = TextColumn("{task.fields[shown]}")
            self._bars = Bars(
                TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), shown, console=Console(stderr=True)
            )
            self._bars.start()
            self._tasks[""] = self._bars.add_task("all", total=1.0, shown="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    @staticmethod
    def say(sentence: str) -> None:
        print(f"sadq: {sentence}", file=sys.stderr)

    @property
    def share(self) -> float:
        """Of all the work, what is done."""
        return sum(self.work[name] * done for name, done in self.done.items()) / max(sum(self.work.values()), 1)

    @property
    def seconds_left(self) -> float | None:
        """At the pace of this call so far, whatever was found done."""
        made = self.share - self.found / max(sum(self.work.values()), 1)
        return (time.monotonic() - self.began) * (1 - self.share) / made if made > 0 else None

    def reused(self, name: str) -> None:
        """A job was found finished."""
        self._take_up(name, 1.0)
        if not self.quiet:
            self.say(f"{name} is finished already")

    def following(self, name: str) -> tuple[Callable[[Experiment], None], Callback]:
        """What a run in this process calls when it begins and after each chunk."""

        def begin(experiment: Experiment) -> None:
            self.started(name, experiment.step, experiment.steps)

        return begin, lambda progress: self.update(name, progress)

    def started(self, name: str, step: int, steps: int, place: str = "") -> None:
        """A job begins or goes on at a step; `place` says where, if not in this process."""
        self._take_up(name, step / steps)
        if self.quiet:
            return
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=1.0, shown="")
            self._bars.update(self._tasks[name], completed=step / steps, shown=place)
        else:
            number = list(self.work).index(name) + 1
            resumed = f", from step {step:,} on" if step else ""
            self.say(f"{name} ({number} of {len(self.work)}){place and f' on {place}'}{resumed}")

    def update(self, name: str, progress: Progress) -> None:
        if self.done[name] == 1.0:  # news of a worker may arrive after that it is done
            return
        self.done[name] = progress.step / progress.steps
        if self.quiet:
            return
        mean_return = "-" if progress.mean_return is None else f"{progress.mean_return:.2f}"
        shown = f"{progress.steps_per_second:,.0f} steps/s, return {mean_return}"
        left = self.seconds_left
        whole = f"{self.share:.0%} of all" + ("" if left is None else f", ETA {_duration(left)}")
        if self._bars is not None:
            self._bars.update(self._tasks[name], completed=self.done[name], shown=shown)
            self._bars.update(self._tasks[""], completed=self.share, shown=whole)
        elif time.monotonic() - self.told >= SECONDS_BETWEEN_LINES:
            self.told = time.monotonic()
            print(f"{name}: step {progress.step:,}/{progress.steps:,}, {shown}; {whole}", file=sys.stderr)

    def finished(self, name: str) -> None:
        self.done[name] = 1.0
        if self._bars is not None and name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))

    def _take_up(self, name: str, share: float) -> None:
        self.found += self.work[name] * (share - self.done[name])
        self.done[name] = share


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
