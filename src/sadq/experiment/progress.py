"""A progress display on stderr: a bar in a terminal, a line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from sadq.experiment.run import Callback, Experiment, Progress

SECONDS_BETWEEN_LINES = 15.0


def _shown(progress: Progress) -> str:
    mean_return = "-" if progress.mean_return is None else f"{progress.mean_return:.2f}"
    return f"{progress.steps_per_second:,.0f} steps/s, return {mean_return}"


@contextlib.contextmanager
def display(experiment: Experiment, quiet: bool = False) -> Iterator[Callback]:
    """A callback that shows how far the run is, how fast, how long it will take and how well it does."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        done, shown = TextColumn("{task.completed:,.0f}/{task.total:,.0f}"), TextColumn("{task.fields[shown]}")
        times = TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn()
        columns = TextColumn("{task.description}"), BarColumn(), done, *times, shown
        with Bar(*columns, console=Console(stderr=True)) as bar:
            total, first = experiment.steps, experiment.step
            task = bar.add_task(experiment.config.agent, total=total, completed=first, shown="compiling")
            yield lambda progress: bar.update(task, completed=progress.step, shown=_shown(progress))
    else:
        yield _lines(experiment.step)


def _lines(first: int) -> Callback:
    began = last = time.monotonic()

    def update(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES or progress.step >= progress.steps:
            last = now
            left = (now - began) * (progress.steps - progress.step) / max(progress.step - first, 1)
            print(f"step {progress.step:,}/{progress.steps:,}, ETA {left:.0f} s, {_shown(progress)}", file=sys.stderr)

    return update
