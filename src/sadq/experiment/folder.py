"""A run folder: config.json before anything is compiled, then metrics and evaluations line by line, then the result."""

import contextlib
import glob
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
from sadq.experiment import checkpoint, storage
from sadq.experiment.config import Config
from sadq.experiment.lock import LOCK, Lock
from sadq.experiment.records import from_json, to_json
from sadq.experiment.source import commit

FORMAT = 2
CONFIG, RESULT, CHECKPOINTS = "config.json", "result.json", "checkpoints"
METRICS, EVALUATIONS = "metrics.jsonl", "evaluations.jsonl"
LOGS = "logs"
OURS = {CONFIG, RESULT, CHECKPOINTS, METRICS, EVALUATIONS, LOGS, LOCK}
"""All that a run writes into its folder."""


@dataclass
class RunFolder:
    """Where a run is written and read; without a path, rows are only kept in memory."""

    path: Path | None
    metrics: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    filled: tuple[str, ...] = ()
    """Fields that the config of an earlier version lacked, each with the default that it was given."""
    lock: Lock | None = None

    @classmethod
    def create(cls, path: Path, config: Config, members: list[dict[str, Any]], notes: dict[str, Any]) -> "RunFolder":
        """Begin a run in an empty or new folder, which nobody else may write to until `release`."""
        resume = f"continue it with `sadq resume {path}`"
        held = SadqError(f"{path} already holds a run: {resume}, or give another folder with --out.")
        if (path / CONFIG).exists():
            raise held
        with _writing(f"a run to {path}", "give another folder with --out"):
            storage.make_folders(path)
            folder = cls(path)
            folder.take()
            try:
                if (path / CONFIG).exists():  # written by whoever had the lock before
                    raise held
                storage.write_json(path / CONFIG, describe(config, members) | notes)
            except BaseException:
                folder.release()
                raise
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple["RunFolder", Config, dict[str, Any]]:
        """(folder with its rows, config, whole record) of a run begun earlier."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # the last for links that lead to themselves
            storage.recover(path.resolve())
        try:
            record = json.loads((path / CONFIG).read_bytes())
        except FileNotFoundError:
            advice = "give the folder that `sadq train` made"
            raise SadqError(f"{path} is no run folder: it has no {CONFIG}; {advice}.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise SadqError(f"{path / CONFIG} cannot be read ({error}): restore it, or train again.") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT or "config" not in record:
            found = record.get("format") if isinstance(record, dict) else None
            raise SadqError(
                f"{path / CONFIG} is not of a run of this version (format {FORMAT}) but has format {found!r}: use the "
                "version of sadq that wrote it, or train again."
            )
        filled: list[str] = []
        config = from_json(Config, record["config"], filled=filled)
        folder = cls(path, filled=tuple(filled))
        folder.read()
        return folder, config, record

    def read(self) -> None:
        """The rows as they are on the disk."""
        if self.path is not None:
            self.metrics[:] = _read_rows(self.path / METRICS)
            self.evaluations[:] = _read_rows(self.path / EVALUATIONS, "returns")

    def take(self) -> bool:
        """Keep other writers out; a folder that one has already is refused with who that is. Whether it is new to us."""
        if self.path is None or self.lock is not None:
            return False
        with _writing(f"to {self.path}", "give a folder that can be written to"):
            self.lock = Lock(self.path)
        return True

    def take_again(self, step: int) -> None:
        """Be the one who writes, also after `release`, with the rows up to `step`; unless others have gone on from there."""
        if self.path is not None and self.take():
            newest = checkpoint.latest(self.path / CHECKPOINTS)
            if newest is not None and checkpoint.read_record(newest)["step"] > step:
                self.release()
                raise SadqError(f"{self.path} has gone on since it was closed: load it again.")
            self.read()
            self.cut_back(step)

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    @property
    def finished(self) -> dict[str, Any] | None:
        """The result, if the run has one."""
        if self.path is not None:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                result = json.loads((self.path / RESULT).read_bytes())
                return result if _is_result(result) else None
        return None

    def cut_back(self, step: int, counted: dict[str, Any] | None = None) -> None:
        """Forget the rows after `step`, which a resume will write again; `counted` are the rows that must be left."""
        kept = {name: [row for row in rows if row["step"] <= step] for name, rows in self._rows().items()}
        for name, rows in kept.items():
            if self.path is not None and len(rows) < (counted or {}).get(name, 0):
                raise SadqError(
                    f"{self.path / name} has {len(rows)} whole lines up to step {step:,}, but its checkpoint was saved with "
                    f"{counted[name]}: restore the file, or delete that checkpoint to resume from the one before it."  # type: ignore[index]
                )
        for name, rows in self._rows().items():
            rows[:] = kept[name]
            if self.path is not None:
                with _writing(f"to {self.path / name}"):
                    storage.write_atomically(self.path / name, _lines(rows).encode())

    def add_metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        self._add(METRICS, self.metrics, list(rows))

    def add_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        self._add(EVALUATIONS, self.evaluations, list(rows))

    def settle(self) -> dict[str, int]:
        """Wait until all rows are on the disk, so that no checkpoint can outlive them; gives how many there are."""
        if self.path is not None:
            with _writing(f"to {self.path}"):
                for name in self._rows():
                    if (self.path / name).exists():
                        storage.sync(self.path / name)
                storage.sync(self.path)
        return {name: len(rows) for name, rows in self._rows().items()}

    def finish(self, result: dict[str, Any]) -> None:
        if self.path is not None:
            with _writing(f"to {self.path / RESULT}"):
                storage.write_json(self.path / RESULT, result)

    def rewrite(self, config: Config, notes: dict[str, Any]) -> None:
        """Another plan for the run that the folder holds."""
        if self.path is not None:
            with _writing(f"to {self.path / CONFIG}"):
                record = json.loads((self.path / CONFIG).read_bytes())
                storage.write_json(self.path / CONFIG, record | {"config": to_json(config)} | notes)

    def reopen(self) -> None:
        """The run is to go on after all, so that its result is none."""
        if self.path is not None:
            with _writing(f"to {self.path}"):
                storage.remove(self.path / RESULT)
                storage.sync(self.path)

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        return {METRICS: self.metrics, EVALUATIONS: self.evaluations}

    def _add(self, name: str, kept: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
        kept.extend(rows)
        if self.path is not None:
            content = _lines(rows)
            with _writing(f"to {self.path / name}"):
                storage.append(self.path / name, content.encode())


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A place for a run folder that is to stand at `path`, where nothing may be lost but another one that nobody uses."""
    with _writing(f"to {path}", "give a folder that can be written to"):
        path = path.resolve()  # what a link leads to is replaced, not the link
        storage.recover(path)
        _sweep(path)
        old = RunFolder(path if path.is_dir() else None)
        if path.exists() and (foreign := _foreign(path)):
            raise SadqError(
                f"{path} exists and is no saved agent ({foreign}): give a new folder, or one that `save` made."
            )
        old.take()
        try:
            with storage.replacing(path) as beside:
                yield beside
        finally:
            old.release()


def _foreign(path: Path) -> str | None:
    """What speaks against a folder's being that of a run or saved agent and nothing else; an empty one may be had."""
    if not path.is_dir():
        return "it is a file"
    inside = {each.name for each in path.iterdir()} - {LOCK}
    record: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        record = json.loads((path / CONFIG).read_bytes())
    marked = isinstance(record, dict) and type(record.get("format")) is int and {"sadq", "config"} <= record.keys()
    if inside and not marked:
        return f"its {CONFIG} has no mark of ours" if CONFIG in inside else f"it has no {CONFIG}"
    return f"it also holds {min(inside - OURS)}" if inside - OURS else None


def _sweep(path: Path) -> None:
    """Delete what killed processes left beside a folder while they wrote it."""
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*{storage.TEMPORARY}"):
        if stale.is_dir() and {each.name for each in stale.iterdir()} <= OURS:
            with contextlib.suppress(SadqError):  # somebody is at it
                folder = RunFolder(stale)
                folder.take()
                storage.remove(stale)
                folder.release()


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
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "loop" not in str(error):  # of links, as Python before 3.13 tells it
            raise
        raise SadqError(f"Cannot write {what}: {getattr(error, 'strerror', error)}; {advice}.") from error


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _read_rows(path: Path, *lists: str) -> list[dict[str, Any]]:
    """The rows of a file up to the first that a kill or a power cut left less than whole; `lists` hold numbers, or null."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SadqError(f"{path} cannot be read ({error.strerror}): restore it, or train again.") from error
    rows = []
    with contextlib.suppress(ValueError, RecursionError):
        for line in content.split(b"\n")[:-1]:  # what follows the last line's end was cut short
            row = json.loads(line)
            _lines([row])  # what cannot be written again, like 1e999, nobody wrote
            if not _is_row(row, lists):
                break
            rows.append(row)
    return rows


def _is_result(result: Any) -> bool:
    """Whether it is one of ours, rather than what else may stand in such a file."""
    counted, members = (result.get(name) if isinstance(result, dict) else None for name in ("steps", "members"))
    spent = ("wall_seconds", "compile_seconds", "steps_per_second")
    return (
        type(counted) is int
        and all(isinstance(result.get(name), int | float) for name in spent)
        and isinstance(members, list)
        and all(isinstance(one, dict) and {"seed", "final_return", "status"} <= one.keys() for one in members)
    )


def _is_row(row: Any, lists: tuple[str, ...]) -> bool:
    if not isinstance(row, dict) or not all(type(row.get(name)) is int for name in ("step", "member")):
        return False
    found = [row.get(name) for name in lists]
    return all(
        isinstance(each, list) and each and {type(value) for value in each} <= {int, float, type(None)}
        for each in found
    )
