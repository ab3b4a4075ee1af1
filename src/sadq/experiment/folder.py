"""A run folder: config.json before anything is compiled, then metrics and evaluations line by line, then the result."""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.config import Config
from sadq.experiment.records import from_json, to_json

FORMAT = 2
CONFIG, METRICS, EVALUATIONS, RESULT, CHECKPOINTS = (
    "config.json",
    "metrics.jsonl",
    "evaluations.jsonl",
    "result.json",
    "checkpoints",
)


def package_version() -> str:
    """This package's version, also when it runs from a source tree."""
    try:
        return version("sadq")
    except PackageNotFoundError:
        return "source"


class RunFolder:
    """Where a run is written and read; without a path, rows are only kept in memory."""

    def __init__(self, path: Path | None):
        self.path = path
        self.metrics: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []

    @classmethod
    def create(cls, path: Path, config: Config, members: list[dict[str, Any]], notes: dict[str, Any]) -> "RunFolder":
        """Begin a run in an empty or new folder."""
        if (path / CONFIG).exists():
            raise SadqError(
                f"{path} already holds a run: continue it with `sadq resume {path}`, or give another folder with --out."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            checkpoint.write_json(path / CONFIG, describe(config, members) | notes)
        except OSError as error:
            raise SadqError(
                f"Cannot write a run to {path}: {error.strerror}; give another folder with --out."
            ) from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> tuple["RunFolder", Config, dict[str, Any]]:
        """(folder with its rows, config, whole record) of a run begun earlier."""
        try:
            record = json.loads((path / CONFIG).read_text())
        except FileNotFoundError:
            raise SadqError(
                f"{path} is no run folder: it has no {CONFIG}; give the folder that `sadq train` made."
            ) from None
        except (OSError, ValueError) as error:
            raise SadqError(f"{path / CONFIG} cannot be read ({error}): restore it, or train again.") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT or "config" not in record:
            raise SadqError(f"{path / CONFIG} is not of a run of this version (format {FORMAT}): train again.")
        folder = cls(path)
        folder.metrics = _read_lines(path / METRICS)
        folder.evaluations = _read_lines(path / EVALUATIONS)
        return folder, from_json(Config, record["config"]), record

    @property
    def finished(self) -> dict[str, Any] | None:
        """The result, if the run has one."""
        if self.path is None:
            return None
        try:
            return json.loads((self.path / RESULT).read_text())
        except (OSError, ValueError):
            return None

    def cut_back(self, step: int) -> None:
        """Forget the rows after `step`, which a resume will write again."""
        self.metrics = [row for row in self.metrics if row["step"] <= step]
        self.evaluations = [row for row in self.evaluations if row["step"] <= step]
        if self.path is None:
            return
        for name, rows in ((METRICS, self.metrics), (EVALUATIONS, self.evaluations)):
            content = "".join(_line(row) for row in rows).encode()
            _guarded(self.path / name, partial(checkpoint.write_atomically, content=content))

    def add_metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        self._add(METRICS, self.metrics, list(rows))

    def add_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        self._add(EVALUATIONS, self.evaluations, list(rows))

    def finish(self, result: dict[str, Any]) -> None:
        if self.path is not None:
            _guarded(self.path / RESULT, lambda path: checkpoint.write_json(path, result))

    def _add(self, name: str, kept: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
        kept.extend(rows)
        if self.path is None:
            return
        content = "".join(_line(row) for row in rows)

        def append(path: Path) -> None:
            with open(path, "a") as file:
                file.write(content)

        _guarded(self.path / name, append)


def describe(config: Config, members: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything needed to repeat a run."""
    device = jax.devices()[0]
    return {
        "format": FORMAT,
        "sadq": package_version(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind} x{len(jax.devices())}, {os.cpu_count()} cores",
        "command": sys.argv,
        "preset": config.preset,
        "config": to_json(config),
        "members": members,
    }


def _guarded(path: Path, write: Callable[[Path], None]) -> None:
    """`write(path)`, its failure told in a sentence."""
    try:
        write(path)
    except OSError as error:
        raise SadqError(f"Cannot write to {path}: {error.strerror}; make room and resume.") from error


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete rows of a file that a kill may have cut short."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines(keepends=True):
        try:
            if line.endswith("\n"):
                rows.append(json.loads(line))
        except ValueError:
            break
    return rows
