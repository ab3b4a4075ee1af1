"""Real workloads: Alibaba's `batch_task.csv` (cluster-trace-v2018), and the hour of it that the extra `trace` brings."""

import collections
import csv
import dataclasses
import functools
import gzip
import hashlib
import importlib.metadata
import math
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from sadq.envs.ocloud.workload import (
    MAX_DURATION,
    MAX_TASKS,
    Workload,
    checked_share,
    split_by_time,
    stream,
)
from sadq.errors import SadqError

HOUR_PACKAGE = "spar"
HOUR_FILE = "sample_tasks.csv"
MAX_ARRIVAL = 2**30  # seconds
MAX_CPU = 100_000  # a thousand cores


class Layout(NamedTuple):
    """Which columns a file has, and where it says what we need."""

    columns: tuple[str, ...]
    arrival: int
    end: int | None  # the end where the file gives it, else its column `duration` is read
    duration: int | None
    cpu: int  # 100 is one core
    memory: int  # 100 is the largest machine's
    job: int


BATCH_TASK = Layout(
    ("task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time", "plan_cpu", "plan_mem"),
    arrival=5,
    end=6,
    duration=None,
    cpu=7,
    memory=8,
    job=2,
)
HOUR = Layout(
    ("arrival", "job", "task", "duration", "plan_cpu", "plan_mem", "instances"),
    arrival=0,
    end=None,
    duration=3,
    cpu=4,
    memory=5,
    job=1,
)


def batch_task(
    path: str | Path,
    window: tuple[int, int] | None = None,
    evaluation_fraction: float = 0.2,
    job_share: float = 1.0,
    layout: Layout = BATCH_TASK,
) -> Workload:
    """The tasks of a trace file, plain or gzipped, whose arrival lies in `window` (seconds, the last one excluded).

    One row is one task, which arrives at its start time; its instances are not multiplied. Rows that lack a value, end
    before they start, or ask for nothing or for more than exists are skipped, and counted by reason in the provenance.
    Of the jobs a share is kept, each with all its tasks or with none, by its name alone: the same in every window.
    The file is read once, row by row: only the tasks of the window are kept, 16 bytes each.
    """
    path, job_share = Path(path), checked_share(job_share)
    kept: list[array[Any]] = [array("i"), array("f"), array("f"), array("i")]  # arrival, cores, memory units, seconds
    skipped: collections.Counter[str] = collections.Counter()
    rows = 0
    for rows, task in _tasks(path, layout, window, job_share):
        if isinstance(task, str):
            skipped[task] += 1
            continue
        for column, value in zip(kept, task, strict=True):
            column.append(value)
        if len(kept[0]) > MAX_TASKS:
            raise SadqError(
                f"{path}, line {rows}: more than {MAX_TASKS:,} tasks arrive in the window {window or '(all)'}, expected "
                "fewer: choose a shorter window, in seconds."
            )
    if not kept[0]:
        raise SadqError(
            f"{path}: none of its {rows} rows is a task in the window {window or '(all)'} (skipped: {dict(skipped)}), "
            "expected some: choose another window or file."
        )
    order = np.argsort(np.asarray(kept[0]), kind="stable")
    arrival, cores, memory, duration = (np.asarray(column)[order] for column in kept)
    provenance = {
        "source": path.name,
        "synthetic": False,
        "window": list(window) if window else None,
        "rows": rows,
        "skipped": dict(sorted(skipped.items())),
        "evaluation_fraction": evaluation_fraction,
        "job_share": job_share,
        "sha256": _file_checksum(path),
    }
    return split_by_time(arrival, stream(arrival, cores, memory, duration), evaluation_fraction, provenance)


@functools.cache
def real_hour(evaluation_fraction: float = 0.2, job_share: float = 1.0) -> Workload:
    """The real hour of the package `spar` (extra `trace`): its table is read as data, its code is never imported."""
    try:
        files = importlib.metadata.files(HOUR_PACKAGE) or []
        version = importlib.metadata.version(HOUR_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise SadqError(
            f"the real hour needs the package {HOUR_PACKAGE}, which is not installed: install sadq[trace], or use the "
            "synthetic workload."
        ) from None
    tables = [Path(str(file.locate())) for file in files if file.name == HOUR_FILE]
    if not tables:
        raise SadqError(
            f"the package {HOUR_PACKAGE} {version} has no {HOUR_FILE}, expected version 0.0.7: install sadq[trace]."
        )
    workload = batch_task(tables[0], None, evaluation_fraction, job_share, HOUR)
    source = {"source": f"{HOUR_PACKAGE} {version}: {HOUR_FILE}"}
    return dataclasses.replace(workload, provenance=workload.provenance | source)


def _tasks(
    path: Path, layout: Layout, window: tuple[int, int] | None, job_share: float
) -> Iterator[tuple[int, tuple[int, float, float, int] | str]]:
    """(line, task or why it is skipped) of each row; a row outside the window is skipped as such."""
    line = 0
    try:
        with _opened(path) as file:
            for line, row in enumerate(csv.reader(file), start=1):
                if len(row) != len(layout.columns):
                    _refuse(path, line, f"{len(row)} columns", f"{len(layout.columns)} ({', '.join(layout.columns)})")
                kept = job_share == 1 or zlib.crc32(row[layout.job].encode()) < job_share * 2**32
                yield line, _task(path, line, row, layout, window) if kept else "of a job left out"
    except (OSError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SadqError(f"{path}, after line {line}: cannot be read ({reason}): give a whole CSV file.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SadqError(f"{path}, after line {line}: is no text in CSV format, expected a trace: give one.") from error


def _task(
    path: Path, line: int, row: list[str], layout: Layout, window: tuple[int, int] | None
) -> tuple[int, float, float, int] | str:
    arrival = _number(path, line, row, layout, layout.arrival)
    if arrival is None:
        return "blank"
    if window is not None and not window[0] <= arrival < window[1]:
        return "outside the window"
    last = layout.duration if layout.duration is not None else layout.end
    assert last is not None
    until = _number(path, line, row, layout, last)
    cpu = _number(path, line, row, layout, layout.cpu)
    memory = _number(path, line, row, layout, layout.memory)
    if until is None or cpu is None or memory is None:
        return "blank"
    duration = until if layout.duration is not None else until - arrival
    if duration < 0:
        return "ends before it starts"
    if not 0 <= arrival <= MAX_ARRIVAL or duration > MAX_DURATION:
        return "time out of range"
    if not 0 < memory <= 100 or not 0 < cpu <= MAX_CPU:
        return "demand out of range"
    return round(arrival), cpu / 100, memory, round(duration)


def _number(path: Path, line: int, row: list[str], layout: Layout, column: int) -> float | None:
    text = row[column].strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        _refuse(path, line, f"{layout.columns[column]} {text[:40]!r}", "a number")
    return value


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse(path: Path, line: int, found: str, expected: str) -> NoReturn:
    raise SadqError(f"{path}, line {line}: {found}, expected {expected}: give the trace's own file, without a header.")
