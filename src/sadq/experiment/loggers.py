"""What a run measures, for other programs to show: plain CSV, TensorBoard, Weights & Biases."""

import contextlib
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sadq.errors import SadqError
from sadq.experiment.arguments import check_writable, path_of
from sadq.experiment.folder import LOGS
from sadq.registry import shown

Row = dict[str, Any]
KEYS = ["step", "member"]
"""The first columns of whatever is written as CSV."""


class Source(Protocol):
    """Whoever trains: an agent, or an experiment."""

    @property
    def metrics(self) -> list[Row]: ...

    @property
    def evaluations(self) -> list[Row]: ...


class Logger:
    """A callback that passes on every new row, its numbers by name; `begin` and `end` enclose a training."""

    def begin(self, source: Source) -> None:
        """Follow this training, from the rows after those that are there; the evaluation at its very start is new."""
        self._source = source
        self._told = {name: len(rows) if _last(rows) > 0 else 0 for name, rows in self._rows().items()}

    def __call__(self, progress: Any) -> None:
        for kind, rows in self._rows().items():
            new, self._told[kind] = rows[self._told[kind] :], len(rows)
            for row in new:
                self.write(kind, row["step"], row["member"], _numbers(row))

    def end(self) -> None:
        self(None)
        self.close()

    def write(self, kind: str, step: int, member: int, numbers: dict[str, float]) -> None:
        """One row of `kind` "metrics" or "evaluations"."""
        raise NotImplementedError(f"{type(self).__name__} has no `write`: a logger passes rows on by it.")

    def close(self) -> None:
        """All rows were written."""

    def _rows(self) -> dict[str, list[Row]]:
        return {"metrics": self._source.metrics, "evaluations": self._source.evaluations}


def _last(rows: list[Row]) -> int:
    return rows[-1]["step"] if rows else 0


def _numbers(row: Row) -> dict[str, float]:
    """The numbers of a row by name: a list by its mean, what an environment measures beside returns by its own name."""
    plain = {f"measures.{name}": value for name, value in (row.get("measures") or {}).items()} | row
    named = {"returns": "mean_return", "lengths": "mean_length"}
    found = {
        named.get(name, name): _mean(value) if isinstance(value, list) else value
        for name, value in plain.items()
        if name not in ("step", "member", "measures")
    }
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _mean(values: list[float | None]) -> float | None:
    """The mean of those that are numbers: an episode may have come to no return."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _check_folder(path: Path) -> None:
    """Make a folder to log into, or refuse it in a sentence."""
    check_writable(path / "log", f"Cannot log to {path}", "give another folder")


class CSV(Logger):
    """metrics.csv and evaluations.csv in a folder, a line for every member and interval; lines are added to."""

    def __init__(self, path: str | Path):
        self.path = path_of(path)
        self._files: dict[str, Any] = {}
        self._columns: dict[str, list[str]] = {}

    def begin(self, source: Source) -> None:
        _check_folder(self.path)
        super().begin(source)
        self._columns = {kind: columns for kind in self._rows() if (columns := _columns_of(self._path(kind)))}

    def write(self, kind: str, step: int, member: int, numbers: dict[str, float]) -> None:
        if kind not in self._files:
            self._open(kind, [*KEYS, *numbers])
        values = {"step": step, "member": member} | numbers
        csv.writer(self._files[kind]).writerow([values.get(name, "") for name in self._columns[kind]])
        self._files[kind].flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _path(self, kind: str) -> Path:
        return self.path / f"{kind}.csv"

    def _open(self, kind: str, columns: list[str]) -> None:
        try:
            self._files[kind] = open(self._path(kind), "a", newline="", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise SadqError(f"Cannot log to {self._path(kind)}: {error.strerror}; give another folder.") from error
        if kind not in self._columns:
            self._columns[kind] = columns
            csv.writer(self._files[kind]).writerow(columns)


def _columns_of(path: Path) -> list[str]:
    """The columns of a file that is to be added to, none where there is none; one that we did not write is refused."""
    columns: list[str] = []
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            if not file.read(1):
                return []
            file.seek(0)
            with contextlib.suppress(csv.Error):
                columns = next(csv.reader(file))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SadqError(f"Cannot log to {path}: {error.strerror}; give another folder.") from error
    if columns[:2] != KEYS:
        raise SadqError(
            f"Cannot log to {path}, which begins with {shown(','.join(columns))}, expected {','.join(KEYS)}: give another "
            "folder."
        )
    return columns


class TensorBoard(Logger):
    """Event files in a folder that `tensorboard --logdir` shows, a run for every member (extra `tensorboard`)."""

    def __init__(self, path: str | Path):
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise SadqError("Logging to TensorBoard needs it installed: pip install 'sadq[tensorboard]'.") from error
        self.path, self._event, self._summary = path_of(path), Event, Summary
        self._make: Callable[[str], Any] = EventFileWriter
        self._writers: dict[int, Any] = {}

    def begin(self, source: Source) -> None:
        _check_folder(self.path)
        super().begin(source)

    def write(self, kind: str, step: int, member: int, numbers: dict[str, float]) -> None:
        if member not in self._writers:
            self._writers[member] = self._make(str(self.path / f"member-{member}"))
        values = [self._summary.Value(tag=f"{kind}/{name}", simple_value=value) for name, value in numbers.items()]
        event = self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        self._writers[member].add_event(event)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class WeightsAndBiases(Logger):
    """A run of Weights & Biases (extra `wandb`); `settings` are those of `wandb.init`, for instance `mode="offline"`."""

    def __init__(self, project: str = "sadq", **settings: Any):
        try:
            import wandb
        except ImportError as error:
            raise SadqError("Logging to Weights & Biases needs it installed: pip install 'sadq[wandb]'.") from error
        self._make: Callable[[], Any] = lambda: wandb.init(project=project, **settings)
        self._folder = path_of(settings["dir"]) if settings.get("dir") else None
        self._run: Any = None

    def begin(self, source: Source) -> None:
        if self._folder is not None:
            _check_folder(self._folder)
        super().begin(source)

    def write(self, kind: str, step: int, member: int, numbers: dict[str, float]) -> None:
        if self._run is None:
            self._run = self._make()
        # With a step of its own: evaluations, made beside training, may come after later metrics.
        self._run.log({f"member-{member}/{kind}/{name}": value for name, value in numbers.items()} | {"env_step": step})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


def logger_of(name: str, folder: Path, config: dict[str, Any] | None = None) -> Logger:
    """A logger by its name on the command line, writing below a run's folder."""
    if name == "csv":
        return CSV(folder / LOGS / "csv")
    if name == "tensorboard":
        return TensorBoard(folder / LOGS / "tensorboard")
    return WeightsAndBiases(name=folder.name, dir=str(folder / LOGS), config=config)
