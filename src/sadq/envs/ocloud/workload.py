"""Streams of tasks to schedule, for training and for evaluation, with where they came from."""

import dataclasses
import hashlib
from typing import Any

import numpy as np

from sadq.errors import SadqError

COLUMNS = ("gap", "cpu", "memory", "duration")
"""Seconds since the task before, hundredths of a core, hundredths of a memory unit, seconds."""

MAX_DURATION = 1_000_000  # seconds: a queue of such tasks still ends within the integers' range
MAX_TASKS = 4_000_000  # of a stream, which is a constant of the compiled program
JOB_SHARE = 1 / 40
"""Of a trace's jobs: its thousands of machines are ours by the dozen, and where everything waits no placement helps."""
QUANTILES = (25, 50, 75, 90, 95, 99)


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """Two streams of tasks, i32[N, 4] in the order of arrival; a workload equals none but itself."""

    training: np.ndarray
    evaluation: np.ndarray
    provenance: dict[str, Any]
    """Source, window and checksum, as JSON data."""

    def stream(self, split: str) -> np.ndarray:
        """The tasks of "train" or "evaluation"."""
        return self.training if split == "train" else self.evaluation


def stream(arrival: np.ndarray, cpu: np.ndarray, memory: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """A stream from columns sorted by arrival: whole seconds, cores, memory units, whole seconds."""
    gap = np.diff(arrival, prepend=arrival[:1])
    return np.stack([gap, _hundredths(cpu), _hundredths(memory), duration], axis=1).astype(np.int32)


def split_by_time(
    arrival: np.ndarray, tasks: np.ndarray, evaluation_fraction: float, provenance: dict[str, Any]
) -> Workload:
    """The first part of a stream to train on, and the last `evaluation_fraction` of its time to evaluate on."""
    if not 0 < evaluation_fraction < 1:
        raise SadqError(
            f"evaluation_fraction is {evaluation_fraction}, expected a share of the trace's time between 0 and 1."
        )
    boundary = arrival[0] + (1 - evaluation_fraction) * (arrival[-1] - arrival[0])
    cut = int(np.searchsorted(arrival, boundary))
    spans = {
        split: [int(seconds[0]), int(seconds[-1])] if len(seconds) else None
        for split, seconds in (("train", arrival[:cut]), ("evaluation", arrival[cut:]))
    }
    return Workload(tasks[:cut], tasks[cut:], provenance | {"seconds": spans})


def checked_share(job_share: float) -> float:
    """`job_share` as a share of the jobs, not none."""
    if not 0 < job_share <= 1:
        raise SadqError(f"job_share is {job_share}, expected a share of the jobs above 0 and up to 1: choose one.")
    return job_share


def checksum(*arrays: np.ndarray) -> str:
    """SHA-256 of arrays' contents."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def statistics(tasks: np.ndarray) -> dict[str, Any]:
    """What a stream looks like, in cores, memory units and seconds."""
    gap, cpu, memory, duration = tasks.T.astype(np.float64)
    return {
        "tasks": len(tasks),
        "tasks_per_second": len(tasks) / max(1.0, float(gap[1:].sum())),
        "duration_mean": float(duration.mean()),
        "duration_quantiles": _quantiles(duration),
        "cores_quantiles": _quantiles(cpu / 100),
        "memory_quantiles": _quantiles(memory / 100),
        "rank_correlation_cores_memory": rank_correlation(cpu, memory),
    }


def rank_correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Spearman's, with the mean rank for ties."""
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _quantiles(values: np.ndarray) -> dict[str, float]:
    return {str(percent): float(np.percentile(values, percent)) for percent in QUANTILES}


def _hundredths(values: np.ndarray) -> np.ndarray:
    """Rounded, but no demand to nothing."""
    return np.maximum(1, np.round(100 * np.asarray(values, np.float64)))
