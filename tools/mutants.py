"""Mutation testing: how many small faults in the mathematics and the learner do the tests notice?

    python tools/mutants.py                  a seeded sample of 200 faults; fails where under 90% of them are noticed
    python tools/mutants.py --list           every fault there is: * those of the sample, = those accepted as equivalent
    python tools/mutants.py --mutant ID      one fault: its diff, and its tests in the open

A fault goes to the test files that reach its function, as a run without any fault has seen, until one of them fails or
takes far too long. A call that was interrupted is gone on with by the next. `tests/tools/equivalent_mutants.json` names
those that no test could notice, each with its reason.
"""

import argparse
import ast
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from mutation.baseline import Baseline, baseline_of, sources_of, state_of, tests_of
from mutation.mutant import Mutant
from mutation.processes import OPTIONS, Job, Served, preload, run_jobs, tested
from mutation.sites import mutants

# Folders of src/sadq whose faults are tried, and which tests may notice them; the stages are taken in this order.
STAGES: dict[str, tuple[str, ...]] = {
    "core": ("tests/core", "tests/learning", "tests/exploration", "tests/networks"),
    "replay": ("tests/replay", "tests/learning", "tests/fleet/test_fleet.py"),
    "exploration": ("tests/exploration", "tests/learning", "tests/fleet/test_fleet.py"),
    "learning": ("tests/learning", "tests/fleet/test_fleet.py"),
}
NEEDED = 0.9  # the share of faults that must be noticed
PATIENCE, GRACE = 4.0, 60.0  # a fault's tests may take this many times as long as without it, and so many seconds more
EQUIVALENT = Path("tests/tools/equivalent_mutants.json")
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Verdict:
    """What became of a fault."""

    mutant: Mutant
    outcome: str  # killed, timeout, survived, equivalent
    by: str = ""
    seconds: float = 0.0


def sample_of(candidates: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """From each file as many as its share of all, drawn by a stream of the file's own."""
    total = sum(map(len, candidates.values()))
    count = min(count, total)
    shares = {name: count * len(found) / max(total, 1) for name, found in candidates.items()}
    taken = {name: int(share) for name, share in shares.items()}
    for name in sorted(shares, key=lambda name: taken[name] - shares[name])[: count - sum(taken.values())]:
        taken[name] += 1
    drawn = (random.Random(f"{seed} {name}").sample(found, taken[name]) for name, found in candidates.items())
    return [mutant for own in drawn for mutant in sorted(own, key=lambda one: (one.line, one.column, one.operator))]


def accepted(root: Path) -> dict[Key, str]:
    """The faults that change nothing that a test could see, with the reason."""
    file = root / EQUIVALENT
    entries = json.loads(file.read_text()) if file.exists() else []
    return {(one["file"], one["line"], one["mutation"]): one["reason"] for one in entries}


def serve(root: Path, mutant: Mutant, source: str) -> None:
    """From now on this process imports the faulty module."""
    sys.meta_path.insert(0, Served(root, {mutant.path: lambda _: ast.parse(mutant.applied(source))}))


def judged(
    chosen: list[Mutant], root: Path, sources: dict[str, str], baseline: dict[str, Baseline], workers: int
) -> Iterator[Verdict]:
    """A verdict on each, as they are reached."""
    by_id = {mutant.id: mutant for mutant in chosen}

    def job_of(mutant: Mutant) -> Job:
        files = tests_of(mutant, root, STAGES, baseline)

        def work(folder: Path) -> Any:
            serve(root, mutant, sources[mutant.path])
            return tested(files, folder / "tmp", OPTIONS)

        return Job(mutant.id, work, GRACE + PATIENCE * sum(baseline[file].seconds for file in files))

    for job, failed, seconds in run_jobs([job_of(mutant) for mutant in chosen], workers, root):
        outcome = "timeout" if seconds > job.limit else "survived" if failed == [] else "killed"
        by = "" if outcome != "killed" else failed[0] if failed else "the process died"
        yield Verdict(by_id[job.name], outcome, by, seconds)


class Kept:
    """The verdicts of an interrupted call, which the next one takes over as long as no source and no test has changed."""

    def __init__(self, path: Path, state: str):
        self._path, stored = path, json.loads(path.read_text()) if path.exists() else {}
        self._stored = stored if stored.get("state") == state else {"state": state, "verdicts": {}}

    def of(self, mutant: Mutant) -> Verdict | None:
        """What became of a fault in an earlier call."""
        found = self._stored["verdicts"].get(mutant.id)
        return None if found is None else Verdict(mutant, *found)

    def add(self, verdict: Verdict) -> None:
        self._stored["verdicts"][verdict.mutant.id] = [verdict.outcome, verdict.by, verdict.seconds]
        beside = self._path.with_suffix(".tmp")
        beside.write_text(json.dumps(self._stored))
        beside.replace(self._path)


def summary(verdicts: list[Verdict], sources: dict[str, str], reasons: dict[Key, str]) -> str:
    """Those accepted as equivalent, the survivors, and a count for each file."""
    lines = []
    for title, outcome in (("Accepted as equivalent", "equivalent"), ("Survivors", "survived")):
        of_kind = [verdict.mutant for verdict in verdicts if verdict.outcome == outcome]
        lines += [f"\n{title}: {len(of_kind)}"] if of_kind else []
        for mutant in of_kind:
            lines.append(f"\nsrc/sadq/{mutant.path}:{mutant.line}  --mutant {mutant.id}")
            lines += [f"  because {reasons[mutant.key]}"] if mutant.key in reasons else []
            lines.append(mutant.diff(sources[mutant.path]))
    lines.append("\nNoticed of tried, by file:")
    for name in sorted({verdict.mutant.path for verdict in verdicts}):
        counts = Counter(verdict.outcome for verdict in verdicts if verdict.mutant.path == name)
        tried = counts.total() - counts["equivalent"]
        lines.append(f"  {name}: {tried - counts['survived']} of {tried}")
    return "\n".join(lines)


def entry_of(mutant: Mutant) -> dict[str, str]:
    """As it is named in the file of equivalent ones."""
    return dict(zip(("file", "line", "mutation"), mutant.key, strict=True))


def show(mutant: Mutant, root: Path, source: str, baseline: dict[str, Baseline]) -> int:
    """One fault in this very process, its tests in the open."""
    files = tests_of(mutant, root, STAGES, baseline)
    print(mutant.diff(source), json.dumps(entry_of(mutant)), *files, sep="\n", flush=True)
    serve(root, mutant, source)
    os.chdir(root)
    options = [option for option in OPTIONS if option != "--tb=line"]
    failed = tested(files, root / "build" / "mutants" / "shown", options)
    print(f"killed by {failed[0]}" if failed else "survived")
    return int(not failed)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--count", type=int, default=200, help="faults in the sample")
    parser.add_argument("--only", default="", help="only faults in files whose path within src/sadq begins like this")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--list", action="store_true", help="list the faults, and try none")
    parser.add_argument("--mutant", help="try the fault of this id alone, and show its tests' output")
    parser.add_argument("--recheck", action="store_true", help="try those accepted as equivalent too")
    parser.add_argument("--failing", action="store_true", help="go on without test files that fail without any fault")
    parser.add_argument("--out", type=Path, help="where to write the verdicts; default build/mutants.json")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="the repository")
    return parser


def main(arguments: list[str] | None = None) -> int:
    given = options().parse_args(arguments)
    root = given.root.resolve()
    sources, reasons = sources_of(root, STAGES, given.only), accepted(root)
    candidates = {name: mutants(name, text) for name, text in sources.items()}
    sample = sample_of(candidates, given.count, given.seed)
    if given.list:
        for mutant in (mutant for found in candidates.values() for mutant in found):
            mark = "=" if mutant.key in reasons else "*" if mutant in sample else " "
            print(f"{mark} {mutant.id}\n{mutant.diff(sources[mutant.path])}")
        return 0
    if given.mutant:
        sample = [mutant for found in candidates.values() for mutant in found if mutant.id == given.mutant]
        if not sample:
            print(f"There is no mutant {given.mutant}: --list shows those that there are.")
            return 2
    start = time.monotonic()
    (root / "build" / "mutants").mkdir(parents=True, exist_ok=True)
    preload(root)
    baseline = baseline_of(root, STAGES, {Path(mutant.path).parts[0] for mutant in sample}, given.workers)
    broken = {file: one.failed for file, one in baseline.items() if one.failed}
    for file, failed in broken.items():
        print(f"{file} fails without any fault: {', '.join(failed[:3])}")
        baseline[file] = Baseline(0.0, [], frozenset())
    if broken and not given.failing:
        print("Mend these tests first, or go on without their files by --failing.")
        return 2
    if given.mutant:
        return show(sample[0], root, sources[sample[0].path], baseline)
    tried = [mutant for mutant in sample if given.recheck or mutant.key not in reasons]
    verdicts = [Verdict(mutant, "equivalent") for mutant in sample if mutant not in tried]
    kept = Kept(root / "build" / "mutants" / "verdicts.json", state_of(root))
    earlier = [verdict for mutant in tried if (verdict := kept.of(mutant)) is not None]
    verdicts += earlier
    judged_before = {verdict.mutant.id for verdict in earlier}
    left = [mutant for mutant in tried if mutant.id not in judged_before]
    for number, verdict in enumerate(judged(left, root, sources, baseline, given.workers), 1 + len(earlier)):
        verdicts.append(verdict)
        kept.add(verdict)
        place = f"[{number}/{len(tried)}]"
        print(f"{place} {verdict.outcome} {verdict.seconds:.1f} s  {verdict.mutant.id}  {verdict.by}", flush=True)
    counts = Counter(verdict.outcome for verdict in verdicts)
    share = 1 - counts["survived"] / max(len(tried), 1)
    print(summary(verdicts, sources, reasons))
    print(
        f"\nkilled {len(tried) - counts['survived']} of {len(tried)} ({share:.1%}; {counts['timeout']} of them by time), "
        f"{counts['survived']} survived, {counts['equivalent']} accepted as equivalent; {time.monotonic() - start:.0f} s"
    )
    out = given.out or root / "build" / "mutants.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"id": one.mutant.id, **entry_of(one.mutant), "outcome": one.outcome, "by": one.by} for one in verdicts]
    out.write_text(json.dumps({"seed": given.seed, "count": given.count, "share": share, "mutants": rows}, indent=1))
    return int(share < NEEDED)


if __name__ == "__main__":
    sys.exit(main())
