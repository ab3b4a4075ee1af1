"""Time per value update of every agent on one accelerator, in fleets of 1, 5 and 40 members, Acrobot preset.

    PYTHONPATH=src:.gpu_site python3 benchmarks/gpu_agents.py --out FOLDER [--keep FILE] [--deadline SECONDS]

Programs are compiled side by side in threads, since XLA lets go of the interpreter, and only when all that will be are
compiled they are timed, one by one: nothing else then uses the device. gpu_agents.json is written after every result;
`--keep` takes over the results of an earlier file, whose measurements are not made again.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import machine
from measure import say, write_json
from updates import PRESET, REFERENCE, VARIANTS, Subject, config_of, full_replay, once, outside_learning, prepare

from sadq.experiment.config import Config
from sadq.networks import Bayesian, Dense

FLEETS = [1, 40, 5]
"""The most telling first, for what a deadline cuts off."""

COLLECTS = 5
MIN_CALLS, MAX_CALLS = 5, 50
COMPILING = 0.7
"""The share of the deadline after which no further compilation begins."""

Job = tuple[str, int]


def config_for(job: Job, quick: bool) -> Config:
    variant, members = job
    config = config_of(variant, members)
    if not quick:
        return config
    return replace(
        config,
        encoder=Dense((16,)),
        batch_size=8,
        buffer_size=960,
        adjusted=(*config.adjusted, Bayesian(samples=64, chunk=32)),
        model=replace(config.model, hidden=(16,)),
        guidance=replace(config.guidance, batch_size=8),
    )


def compile_all(
    jobs: Sequence[Job], quick: bool, threads: int, deadline: float
) -> tuple[dict[Job, Subject], dict[Job, str]]:
    """The programs that could be compiled in time, in the order of `jobs`, and why others failed."""
    replay = full_replay(config_for((REFERENCE, 1), quick))
    with ThreadPoolExecutor(threads) as pool:
        futures: dict[Job, Future[Subject]] = {
            job: pool.submit(prepare, config_for(job, quick), replay, COLLECTS) for job in jobs
        }
        wait(futures.values(), timeout=max(0.0, deadline - time.monotonic()))
        # What has begun cannot be stopped; what has not is left to another call.
        pool.shutdown(wait=True, cancel_futures=True)
    subjects: dict[Job, Subject] = {}
    failures: dict[Job, str] = {}
    for job, future in futures.items():
        if future.cancelled():
            continue
        # One agent that does not fit must not take the others with it.
        if (error := future.exception()) is not None:
            failures[job] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        else:
            subjects[job] = future.result()
    return subjects, failures


def measure(subject: Subject, members: int, seconds: float) -> dict[str, Any]:
    """A call to warm up, then at least `MIN_CALLS` and `seconds` of timed ones."""
    once(subject.learn)
    times: list[float] = []
    while len(times) < MIN_CALLS or (sum(times) < seconds and len(times) < MAX_CALLS):
        times.append(once(subject.learn))
    own = subject.learn.milliseconds(statistics.median(times))
    return {
        "milliseconds_per_update": own,
        "milliseconds_per_update_and_member": own / members,
        "least": subject.learn.milliseconds(min(times)),
        "most": subject.learn.milliseconds(max(times)),
        "calls": len(times),
        "compile_seconds": subject.compile_seconds,
        "outside_learning": outside_learning(subject, MIN_CALLS),
    }


def main() -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for gpu_agents.json")
    parser.add_argument("--keep", type=Path, help="an earlier gpu_agents.json; without this the one in --out")
    parser.add_argument("--agents", nargs="+", choices=VARIANTS, metavar="AGENT", default=VARIANTS)
    parser.add_argument("--fleets", type=int, nargs="+", default=FLEETS, help="fleet sizes, the most important first")
    parser.add_argument("--threads", type=int, default=12, help="programs compiled at once")
    parser.add_argument("--seconds", type=float, default=0.5, help="least length of a timed window")
    parser.add_argument("--deadline", type=float, default=540.0, help="seconds after which no measurement begins")
    parser.add_argument("--quick", action="store_true", help="tiny networks and short windows, to try the script")
    options = parser.parse_args()
    device = jax.devices()[0]
    config = config_of(REFERENCE)
    path = options.out / "gpu_agents.json"
    results: dict[str, Any] = {
        "machine": machine.describe() | {"device": device.device_kind, "platform": device.platform},
        "quick": options.quick,
        "preset": PRESET,
        "updates": config.updates_per_collect,
        "collects_per_call": COLLECTS,
        "rows": _kept(options.keep or path, device.device_kind, options.quick),
    }
    done = {(row["variant"], row["members"]) for row in results["rows"]}
    jobs = [job for members in options.fleets for variant in options.agents if (job := (variant, members)) not in done]
    say(f"{len(jobs)} to measure, {len(done)} kept; compiling in {options.threads} threads")
    subjects, failures = compile_all(jobs, options.quick, options.threads, began + COMPILING * options.deadline)
    say(f"{len(subjects)} compiled after {time.monotonic() - began:.0f} s")
    stamp = {"commit": results["machine"]["commit"], "date": results["machine"]["date"]}
    for (variant, members), failure in failures.items():
        say(f"{variant}, {members} members: {failure}")
        results["rows"].append({"variant": variant, "members": members, "error": failure} | stamp)
    for (variant, members), subject in subjects.items():
        if time.monotonic() - began > options.deadline:
            break
        found = measure(subject, members, 0.0 if options.quick else options.seconds)
        results["rows"].append({"variant": variant, "members": members} | found | stamp)
        write_json(path, results)
        say(f"{variant:14} {members:3} members: {found['milliseconds_per_update']:9.4f} ms an update")
    write_json(path, results)
    left = len(jobs) + len(done) - len(results["rows"])
    say(f"{left} left for a call with --keep, after {time.monotonic() - began:.0f} s")
    return int(bool(failures))


def _kept(path: Path, device: str, quick: bool) -> list[dict[str, Any]]:
    """The earlier rows that belong in the same table; failed ones are tried again."""
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    if before["machine"]["device"] != device or before["quick"] != quick:
        raise SystemExit(f"{path} is from {before['machine']['device']} or another kind of run: choose another file.")
    return [row for row in before["rows"] if "error" not in row]


if __name__ == "__main__":
    sys.exit(main())
