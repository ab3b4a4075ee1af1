"""Chunks of two trainings in turns, one in each tree's own process, and what that says of their speed."""

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import machine
from measure import Failed, Measurement

from report import table

WORKER = Path(__file__).resolve().parent / "commits_worker.py"
SLOW = ("iqn", "fqf")
WHOLE, SHORT = 25, 5
"""Collects in a chunk, and in one of a slow variant: between 0.3 and 3 seconds on two cores."""

WARMUP, TIMEOUT = 2, 900.0
TOLERATED = 1.05
DISTURBING = 0.2
"""Cores that others may use during a chunk that counts; a clock tick is about 0.05 in the shortest."""

Chunks = dict[str, list[Measurement]]


class Worker:
    """A training in one of the trees that goes on for a chunk when it is told to, and waits otherwise."""

    def __init__(self, side: str, environment: Mapping[str, str], variant: str, collects: int, chunks: int):
        self.side = side
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        settings = {**os.environ, **environment}
        settings.pop("JAX_COMPILATION_CACHE_DIR", None)
        command = [sys.executable, str(WORKER), "--train", variant]
        # In a session of its own, so that Ctrl-C reaches this process alone, which then ends it.
        self.process = subprocess.Popen(
            [*command, "--collects", str(collects), "--chunks", str(chunks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=settings,
            start_new_session=True,
        )
        try:
            self.made = self._answer()
        except BaseException:
            self.close()
            raise

    def chunk(self) -> Measurement:
        """The next chunk, with the load that others made."""
        busy, began = machine.busy_seconds(), time.perf_counter()
        found = self._told("go")
        after, wall = machine.busy_seconds(), time.perf_counter() - began
        if busy is not None and after is not None:
            found["others_used_cores"] = round(max(0.0, after - busy - found["cpu_seconds"]) / wall, 3)
        return found

    def compile_seconds(self) -> float:
        """Ends the training."""
        return self._told("stop")["compile_seconds"]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def _told(self, word: str) -> Measurement:
        assert self.process.stdin is not None
        # Where it has ended already, its last words say why.
        with contextlib.suppress(BrokenPipeError):
            print(word, file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Measurement:
        assert self.process.stdout is not None
        limit = threading.Timer(TIMEOUT, self.process.kill)
        limit.start()
        try:
            line = self.process.stdout.readline()
        finally:
            limit.cancel()
        if line:
            return json.loads(line)
        self.errors.seek(0)
        words = self.errors.read().strip().splitlines() or [f"it was ended after {TIMEOUT:.0f} s or from outside"]
        raise Failed(f"{self.side}: {words[-1]}")


def interleave(
    environments: Mapping[str, Mapping[str, str]], variant: str, repetitions: int, seconds: float
) -> dict[str, Any]:
    """A variant's chunks in both trees in turns, never at the same time."""
    collects = SHORT if variant.removesuffix("+sadq") in SLOW else WHOLE
    workers: list[Worker] = []
    chunks: Chunks = {side: [] for side in environments}
    try:
        for side, environment in environments.items():
            workers.append(Worker(side, environment, variant, collects, WARMUP + 3 * repetitions))
        if workers[0].made != workers[1].made:
            raise Failed(f"the trees made different agents: {workers[0].made} and {workers[1].made}")
        for _ in range(WARMUP):
            for worker in workers:
                worker.chunk()
        began = time.perf_counter()
        for number in range(3 * repetitions):
            # Quick variants repeat more often, since short chunks are more easily disturbed, and so do disturbed ones.
            patience = seconds if len(calm(chunks)["old"]) >= repetitions else 3 * seconds
            if number >= repetitions and time.perf_counter() - began > patience:
                break
            for worker in workers:
                chunks[worker.side].append(worker.chunk())
        compiled = {worker.side: worker.compile_seconds() for worker in workers}
    finally:
        for worker in workers:
            worker.close()
    undisturbed = calm(chunks)
    disturbed = len(undisturbed["old"]) < repetitions
    found = summary(chunks if disturbed else undisturbed)
    return found | {"disturbed": disturbed, "compile_seconds": compiled, "chunks": chunks}


def calm(chunks: Chunks) -> Chunks:
    """The pairs during which nobody else did much."""
    pairs = [
        (old, new)
        for old, new in zip(chunks["old"], chunks["new"], strict=True)
        if max(chunk.get("others_used_cores", 0.0) for chunk in (old, new)) <= DISTURBING
    ]
    return {side: [pair[place] for pair in pairs] for place, side in enumerate(("old", "new"))}


def summary(chunks: Chunks) -> dict[str, Any]:
    """Medians and their ratio; a pair is an old chunk and the new one beside it."""
    times = {side: [chunk["seconds"] / chunk["steps"] for chunk in own] for side, own in chunks.items()}
    pairs = [new / old for old, new in zip(times["old"], times["new"], strict=True)]
    medians = {side: statistics.median(own) for side, own in times.items()}
    cpu = {side: statistics.median(chunk["cpu_seconds"] for chunk in own) for side, own in chunks.items()}
    quartiles = statistics.quantiles(pairs, n=4, method="inclusive")
    return {
        "ratio": medians["new"] / medians["old"],
        "pair_ratio": statistics.median(pairs),
        "pair_quartiles": [quartiles[0], quartiles[2]],
        "cpu_ratio": cpu["new"] / cpu["old"],
        "steps_per_second": {side: 1 / median for side, median in medians.items()},
        "pairs": len(pairs),
    }


def speed_table(cases: dict[str, Any]) -> str:
    rows = []
    for case, found in cases.items():
        if "error" in found:
            rows.append([f"`{case}`", found["error"], *[""] * 6])
            continue
        rates = [f"{found['steps_per_second'][side]:,.0f}" for side in ("old", "new")]
        least, most = found["pair_quartiles"]
        pairs = f"{found['pair_ratio']:.3f} ({least:.3f} - {most:.3f})"
        ratios = [f"{found['ratio']:.3f}", pairs, f"{found['cpu_ratio']:.3f}"]
        compiled = [f"{found['compile_seconds'][side]:.1f}" for side in ("old", "new")]
        rows.append([f"`{case}`", *rates, *ratios, *compiled])
    header = ["preset/agent", "old, env steps/s", "new", "time, old = 1", "by pairs (half of them)", "CPU time"]
    parts = [table([*header, "compile old, s", "new"], rows)]
    good = {case: found for case, found in cases.items() if "error" not in found}
    if good:
        parts.append(_over_all(good))
    return "\n\n".join(parts)


def _over_all(cases: dict[str, Any]) -> str:
    """The sentences under the table."""

    def mean(name: str) -> float:
        return math.exp(statistics.mean(math.log(found[name]) for found in cases.values()))

    compiled = {side: sum(found["compile_seconds"][side] for found in cases.values()) for side in ("old", "new")}
    slower = [f"`{case}` ({found['ratio']:.3f})" for case, found in cases.items() if found["ratio"] > TOLERATED]
    lines = [
        f"Geometric mean over {len(cases)} variants, old = 1: time {mean('ratio'):.3f} (by pairs "
        f"{mean('pair_ratio'):.3f}), CPU time {mean('cpu_ratio'):.3f}; compilation of all: {compiled['old']:.1f} s, then "
        f"{compiled['new']:.1f} s ({compiled['new'] / compiled['old']:.3f}).",
        f"Slower by more than {TOLERATED - 1:.0%}: {', '.join(slower) or 'none'}.",
    ]
    disturbed = [f"`{case}`" for case, found in cases.items() if found["disturbed"]]
    if disturbed:
        lines.append(f"**Not to be believed, since others kept the machine busy: {', '.join(disturbed)}.**")
    return "\n\n".join(lines)
