"""A run folder: config.json before anything is compiled, then metrics and evaluations line by line, then the result."""

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

import sadq
from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.config import Config
from sadq.experiment.records import from_json, to_json
from sadq.experiment.source import commit

FORMAT = 2
CONFIG, RESULT, CHECKPOINTS = "config.json", "result.json", "checkpoints"
METRICS, EVALUATIONS = "metrics.jsonl", "evaluations.jsonl"


@dataclass
class RunFolder:
    """Where a run is written and read; without a path, rows are only kept in memory."""

    path: Path | None
    metrics: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def create(cls, path: Path, config: Config, members: list[dict[str, Any]], notes: dict[str, Any]) -> "RunFolder":
        """Begin a run in an empty or new folder."""
        if (path / CONFIG).exists():
            resume = f"continue it with `sadq resume {path}`"
            raise SadqError(f"{path} already holds a run: {resume}, or give another folder with --out.")
        with _writing(f"a run to {path}", "give another folder with --out"):
            path.mkdir(parents=True, exist_ok=True)
            checkpoint.write_json(path / CONFIG, describe(config, members) | notes)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> tuple["RunFolder", Config, dict[str, Any]]:
        """(folder with its rows, config, whole record) of a run begun earlier."""
        try:
            record = json.loads((path / CONFIG).read_text())
        except FileNotFoundError:
            advice = "give the folder that `sadq train` made"
            raise SadqError(f"{path} is no run folder: it has no {CONFIG}; {advice}.") from None
        except (OSError, ValueError) as error:
            raise SadqError(f"{path / CONFIG} cannot be read ({error}): restore it, or train again.") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT or "config" not in record:
            raise SadqError(f"{path / CONFIG} is not of a run of this version (format {FORMAT}): train again.")
        folder = cls(path, _read_lines(path / METRICS), _read_lines(path / EVALUATIONS))
        return folder, from_json(Config, record["config"]), record

    @property
    def finished(self) -> dict[str, Any] | None:
        """The result, if the run has one."""
        if self.path is not None:
            with contextlib.suppress(OSError, ValueError):
                return json.loads((self.path / RESULT).read_text())
        return None

    def cut_back(self, step: int) -> None:
        """Forget the rows after `step`, which a resume will write again."""
        for name, rows in ((METRICS, self.metrics), (EVALUATIONS, self.evaluations)):
            rows[:] = [row for row in rows if row["step"] <= step]
            if self.path is not None:
                with _writing(f"to {self.path / name}"):
                    checkpoint.write_atomically(self.path / name, _lines(rows).encode())

    def add_metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        self._add(METRICS, self.metrics, list(rows))

    def add_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        self._add(EVALUATIONS, self.evaluations, list(rows))

    def finish(self, result: dict[str, Any]) -> None:
        if self.path is not None:
            with _writing(f"to {self.path / RESULT}"):
                checkpoint.write_json(self.path / RESULT, result)

    def _add(self, name: str, kept: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
        kept.extend(rows)
        if self.path is not None:
            content = _lines(rows)
            with _writing(f"to {self.path / name}"), open(self.path / name, "a") as file:
                file.write(content)


def describe(config: Config, members: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything needed to repeat a run."""
    device = jax.devices()[0]
    return {
        "format": FORMAT,
        "sadq": sadq.__version__,
        "commit": commit(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind} x{len(jax.devices())}, {os.cpu_count()} cores",
        "command": sys.argv,
        "preset": config.preset,
        "config": to_json(config),
        "members": members,
    }


@contextlib.contextmanager
def _writing(what: str, advice: str = "make room and resume") -> Iterator[None]:
    """Tells in a sentence why something could not be written."""
    try:
        yield
    except OSError as error:
        raise SadqError(f"Cannot write {what}: {error.strerror}; {advice}.") from error


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete rows of a file that a kill may have cut short."""
    rows = []
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                rows.append(json.loads(line))
    return rows
