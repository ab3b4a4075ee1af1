"""Kills -9 during training on the host with workers: does the run end in the bits of one that was left alone?

    PYTHONPATH=src python benchmarks/kills.py --kills 10 --workers 4 --out /tmp/kills

Trains Gymnasium's own CartPole twice by the command line: once undisturbed, once killed at random moments, by SIGKILL to the
whole process, and resumed after each. Compares the last checkpoints tensor by tensor, and the evaluations line by line.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from measure import say, write_json

from sadq.experiment import checkpoint
from sadq.experiment.folder import CHECKPOINTS, EVALUATIONS, METRICS

ENVIRONMENT = "gymnasium:CartPole-v1"


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "sadq", *map(str, words), "--quiet"]


def training(out: Path, options: argparse.Namespace) -> list[str]:
    flags = {"seeds": 2, "steps": options.steps, "workers": options.workers, "checkpoint-seconds": 0.2, "out": out}
    return command(
        "train",
        ENVIRONMENT,
        "dueling+sadq",
        *(str(word) for name, value in flags.items() for word in (f"--{name}", value)),
    )


def rows(run: Path) -> int:
    path = run / METRICS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_once(run: Path, options: argparse.Namespace, moments: random.Random) -> bool:
    """Go on with the run and kill it a while after it has written on; False where it was over before."""
    wanted, words = rows(run) + moments.randrange(2, 8), command("resume", run)
    process = subprocess.Popen(
        words if (run / "config.json").exists() else training(run, options), stderr=subprocess.DEVNULL
    )
    while process.poll() is None and rows(run) < wanted:
        time.sleep(0.002)
    time.sleep(moments.uniform(0, 0.3))
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def same(left: Path, right: Path) -> list[str]:
    """What differs between two runs."""
    (_, mine, outside), (_, theirs, other) = (
        checkpoint.load(checkpoint.latest(run / CHECKPOINTS)) for run in (left, right)
    )  # type: ignore[arg-type]
    mine, theirs = mine | outside, theirs | other
    odd = [name for name in sorted(mine.keys() | theirs.keys()) if name not in mine or name not in theirs]
    odd += [name for name in mine.keys() & theirs.keys() if mine[name].tobytes() != theirs[name].tobytes()]
    return odd + ([EVALUATIONS] if (left / EVALUATIONS).read_bytes() != (right / EVALUATIONS).read_bytes() else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    whole, killed, moments, kills = options.out / "whole", options.out / "killed", random.Random(options.seed), 0
    subprocess.run(training(whole, options), check=True, stdout=subprocess.DEVNULL)
    while kills < options.kills and kill_once(killed, options, moments):
        kills += 1
        say(f"kill {kills}, after {rows(killed)} rows")
    subprocess.run(command("resume", killed), check=True, stdout=subprocess.DEVNULL)
    different = same(whole, killed)
    result = {"environment": ENVIRONMENT, "workers": options.workers, "steps": options.steps, "kills": kills}
    write_json(options.out / "kills.json", result | {"different": different})
    say(
        f"{kills} kills with {options.workers} workers: "
        + (f"different: {different}" if different else "the same bits")
    )
    sys.exit(bool(different) or kills < options.kills)


if __name__ == "__main__":
    main()
