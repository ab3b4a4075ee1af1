"""Two source trees against each other: the same bits, and the same speed.

    python benchmarks/commits.py bits  --old TREE --new TREE --out FILE.json [--variants dqn bitflip-quick/c51 ...]
    python benchmarks/commits.py speed --old TREE --new TREE --out FILE.json [--repetitions 7]

A tree is a checkout, or a copy of one, with the package under src/; both run in this Python's environment. FILE.json is
written after every case, and a case that it holds is run again only with --again, or where a tree's sources have changed.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import machine
from commits_compare import bits_table, compare, differences
from commits_speed import WORKER, interleave, speed_table
from measure import Failed, measured, say, write_json

HERE = Path(__file__).resolve().parent
PRESET = "acrobot"
HOST = "commits_worker:Masked-v0"
ALSO = [
    *(f"bitflip-quick/{variant}" for variant in ("dqn", "dueling+sadq", "c51")),  # the replay's ring wraps around
    "acrobot-quick/dueling+sadq",  # n = 3, Huber, clipping, soft targets, a falling rate, a continuation and a gate
    *(f"{HOST}/{variant}" for variant in ("dueling+sadq", "rainbow")),  # host environments, and masks
]
"""What is compared bit by bit beside every variant on the Acrobot preset."""

EARLY = 192
"""Env steps after which cases that differ are compared once more: about 20 updates, no copy to the target yet."""

TIMEOUT = 900.0


@dataclass(frozen=True)
class Tree:
    """One of the two."""

    side: str
    path: Path
    commit: str | None

    @classmethod
    def of(cls, side: str, path: Path, commit: str | None) -> Self:
        path = path.resolve()
        if not (path / "src" / "sadq").is_dir():
            raise Failed(f"{path} is no source tree: it has no src/sadq")
        return cls(side, path, commit or _commit(path))

    @property
    def environment(self) -> dict[str, str]:
        """In which Python finds this tree's package before an installed one, and compiles everything anew."""
        return {
            "PYTHONPATH": os.pathsep.join([str(self.path / "src"), str(HERE), os.environ.get("PYTHONPATH", "")]),
            "PYTHONSAFEPATH": "1",
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            "JAX_PLATFORMS": "cpu",
            "CUDA_VISIBLE_DEVICES": "",
        }

    @property
    def source(self) -> str:
        """Of all its code, also of what no commit has yet."""
        digest = hashlib.sha256()
        for file in sorted((self.path / "src" / "sadq").rglob("*.py")):
            digest.update(f"{file.relative_to(self.path)}\n".encode() + file.read_bytes())
        return digest.hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """What its own process finds, which must be this tree."""
        found = measured([sys.executable, str(WORKER)], 120.0, self.environment)
        if not Path(found["file"]).is_relative_to(self.path / "src"):
            raise Failed(f"Python finds {found['file']} where {self.path} was asked for")
        return {"commit": self.commit, "source": self.source, "agents": found["agents"], "jax": found["jax"]}


Trees = tuple[Tree, Tree]


def _commit(path: Path) -> str | None:
    """The commit of a checkout, marked where its sources differ from it; None for a mere copy."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(path), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != path:
            return None
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def bits(trees: Trees, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """A short run of the command line in each tree, and what differs between the two folders."""
    found = _bits(trees, case, options.steps)
    if differences(found):
        # A last bit that differs grows with every episode; how it began tells rounding from a change of the algorithm.
        found["early"] = _bits(trees, case, EARLY)
    return found


def _bits(trees: Trees, case: str, steps: int) -> dict[str, Any]:
    preset, _, variant = case.rpartition("/")
    times: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="sadq-commits-") as folder:
        for tree in trees:
            flags = ["--seeds", "2", "--steps", str(steps), "--evaluations", "2", "--workers", "0"]
            flags += ["--json", "--quiet", "--out", str(Path(folder, tree.side))]
            command = [sys.executable, "-m", "sadq", "train", preset, variant, *flags]
            run = measured(command, TIMEOUT, tree.environment | {"XDG_CACHE_HOME": folder})
            times[tree.side] = {name: run[name] for name in ("wall_seconds", "compile_seconds")}
        return compare(*(Path(folder, tree.side) for tree in trees)) | {"steps": run["steps"], **times}


def speed(trees: Trees, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same training in both trees, chunk by chunk in turns."""
    environments = {tree.side: tree.environment for tree in trees}
    return interleave(environments, case.rpartition("/")[2], options.repetitions, options.seconds)


Measure = Callable[[Trees, str, argparse.Namespace], dict[str, Any]]
MODES: dict[str, tuple[Measure, Callable[[dict[str, Any]], str]]] = {
    "bits": (bits, bits_table),
    "speed": (speed, speed_table),
}


def wanted_cases(mode: str, agents: list[str], asked: list[str] | None) -> list[str]:
    """`PRESET/VARIANT` of everything there is, or of what was asked for; the preset is Acrobot's where none is named."""
    known = [f"{PRESET}/{agent}{suffix}" for agent in agents for suffix in ("", "+sadq")]
    known += ALSO if mode == "bits" else []
    if asked is None:
        return known
    full = [name if "/" in name else f"{PRESET}/{name}" for name in asked]
    unknown = [name for name in full if name not in known]
    if unknown:
        raise Failed(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return full


def run(options: argparse.Namespace) -> int:
    trees = (
        Tree.of("old", options.old, options.old_commit),
        Tree.of("new", options.new, options.new_commit),
    )
    measure, show = MODES[options.mode]
    described = {tree.side: tree.describe() for tree in trees}
    cases = wanted_cases(options.mode, described["old"].pop("agents"), options.variants)
    described["new"].pop("agents")
    everything: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    section: dict[str, Any] = everything.setdefault(options.mode, {"cases": {}})
    command = re.sub(r"--(old|new|out)[ =]\S+", r"--\1 PATH", machine.command())
    section |= {"machine": machine.describe() | {"command": command}, "trees": described}
    sources = {tree.side: tree.source for tree in trees}

    asked = {"steps": options.steps} if options.mode == "bits" else {}

    def done(case: str) -> bool:
        kept = section["cases"].get(case, {})
        same = kept.get("sources") == sources and kept.get("asked") == asked
        return not options.again and "error" not in kept and same

    left = [case for case in cases if not done(case)]
    say(f"{options.mode}: {len(left)} cases to run, {len(cases) - len(left)} are in {options.out} already")
    began = time.perf_counter()
    for number, case in enumerate(left):
        started = time.perf_counter()
        # Who goes first changes, so that it cannot favour one of the two.
        order = trees if number % 2 == 0 or options.mode == "bits" else (trees[1], trees[0])
        try:
            found = measure(order, case, options)
            if sources != {tree.side: tree.source for tree in trees}:
                raise Failed("a tree's sources changed while it ran: give a copy that nobody edits")
        except Failed as failure:
            found = {"error": str(failure)}
        seconds = time.perf_counter() - started
        commits = {tree.side: tree.commit for tree in trees}
        kept = {"asked": asked, "sources": sources, "commits": commits, "seconds": round(seconds, 1)}
        section["cases"][case] = found | kept
        write_json(options.out, everything)
        rest = (time.perf_counter() - began) / (number + 1) * (len(left) - number - 1)
        say(f"  {number + 1}/{len(left)} {case}: {_short(found)}; {seconds:.0f} s, about {rest / 60:.0f} min left")
    held = {case: section["cases"][case] for case in cases}
    print(show(held))
    return int(any("error" in found for found in held.values()))


def _short(found: dict[str, Any]) -> str:
    if "error" in found:
        return found["error"]
    if "ratio" in found:
        busy = ", disturbed by others" if found["disturbed"] else ""
        return f"{found['ratio']:.3f} times the old time, over {found['pairs']} pairs" + busy
    apart = differences(found)
    return f"{len(apart)} differences" if apart else "the same bits"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=list(MODES))
    for side in ("old", "new"):
        parser.add_argument(f"--{side}", type=Path, required=True, metavar="TREE")
        parser.add_argument(f"--{side}-commit", help="its name, where the tree is a mere copy")
    parser.add_argument("--out", type=Path, required=True, help="the results' JSON file; other results in it are kept")
    parser.add_argument("--variants", nargs="+", help="only these: AGENT, AGENT+sadq or PRESET/AGENT")
    parser.add_argument("--again", action="store_true", help="also what the file holds already")
    parser.add_argument("--steps", type=int, default=5_760, help="bits: env steps of each member")
    parser.add_argument("--repetitions", type=int, default=7, help="speed: timed pairs of chunks, at least")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="speed: up to three times as many pairs while they take less"
    )
    options = parser.parse_args()
    # Shells start what runs in the background with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return run(options)
    except Failed as failure:
        say(f"commits: {failure}")
        return 2
    except KeyboardInterrupt:
        say(f"commits: stopped; {options.out} holds the cases that were finished, and the same command goes on.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
