"""Measurements in fresh processes: one at a time, interleaved, each with how busy the machine was otherwise."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import machine

Measurement = dict[str, Any]


class Failed(Exception):
    """A measured process did not end well; its last words are the message."""


def measured(command: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None) -> Measurement:
    """The JSON object on the last line of a process's output, with its wall time and the load that others made."""
    settings = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", **(environment or {})}
    # A cache of compiled programs would make one compile time a matter of what ran before.
    settings.pop("JAX_COMPILATION_CACHE_DIR", None)
    busy, own, began = machine.busy_seconds(), _children_seconds(), time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=settings)
    except subprocess.TimeoutExpired:
        raise Failed(f"no result within {timeout:.0f} s") from None
    wall = time.perf_counter() - began
    if done.returncode != 0:
        raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Failed("its last line of output is no JSON") from None
    after = machine.busy_seconds()
    if busy is not None and after is not None:
        foreign = after - busy - (_children_seconds() - own)
        result["others_used_cores"] = round(max(0.0, foreign) / wall, 3)
    return result | {"wall_seconds": wall}


def interleaved(
    contestants: Mapping[str, Callable[[], Measurement]], repetitions: int, value: str
) -> dict[str, dict[str, Any]]:
    """Each contestant once, then each again, so that a machine that drifts treats all alike; a failed one drops out."""
    runs: dict[str, list[Measurement]] = {name: [] for name in contestants}
    failures: dict[str, str] = {}
    for repetition in range(repetitions):
        for name, contestant in contestants.items():
            if name in failures:
                continue
            try:
                runs[name].append(contestant())
            except Failed as failure:
                failures[name] = str(failure)
                say(f"  {name}: {failure}")
                continue
            say(f"  {repetition + 1}/{repetitions} {name}: {runs[name][-1][value]:,.4g}")
    return {name: {"error": failures[name]} if name in failures else summary(own, value) for name, own in runs.items()}


def summary(runs: list[Measurement], value: str) -> dict[str, Any]:
    """The median with the extremes, and every run as it was."""
    values = [run[value] for run in runs]
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "runs": runs}


def say(sentence: str) -> None:
    """Progress goes to stderr, so that stdout holds the tables alone."""
    print(sentence, file=sys.stderr, flush=True)


def write_json(path: Path, content: Any) -> None:
    """In one move, so that a run cut short leaves whole files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
