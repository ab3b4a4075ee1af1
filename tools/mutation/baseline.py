"""The tests without any fault: whether they pass, how long they take, and which functions they reach."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.mutant import Mutant
from mutation.processes import OPTIONS, Job, run_jobs, serve_probed, tested

LIMIT = 1200.0  # seconds for a test file
Stages = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Baseline:
    """One test file without any fault."""

    seconds: float
    failed: list[str]
    reached: frozenset[tuple[str, int | None]]  # (source file, first line of a function, or None for the module itself)


def sources_of(root: Path, stages: Stages, only: str = "") -> dict[str, str]:
    """The text of every file that is mutated, by its path within the package."""
    package = root / "src" / "sadq"
    files = sorted(file for folder in stages for file in (package / folder).rglob("*.py"))
    found = {str(file.relative_to(package)): file.read_text() for file in files}
    return {name: text for name, text in found.items() if name.startswith(only.removeprefix("src/sadq/"))}


def files_of(root: Path, stage: str) -> list[str]:
    """The test files of a folder, or a file itself."""
    place = root / stage
    found = sorted(place.rglob("test_*.py")) if place.is_dir() else [place] if place.exists() else []
    return [str(file.relative_to(root)) for file in found]


def state_of(root: Path) -> str:
    """A digest of all sources and tests."""
    digest = hashlib.sha256()
    for file in sorted([*(root / "src").rglob("*.py"), *(root / "tests").rglob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def baseline_of(root: Path, stages: Stages, folders: set[str], workers: int) -> dict[str, Baseline]:
    """Every test file that the folders' faults may need, run once; kept until it or what it may use changes."""
    files = sorted({file for folder in folders for stage in stages[folder] for file in files_of(root, stage)})
    helpers = [file for file in (root / "tests").rglob("*.py") if not file.name.startswith("test_")]
    used = hashlib.sha256()
    for file in sorted([*(root / "src").rglob("*.py"), *helpers, *Path(__file__).parent.glob("*.py")]):
        used.update(file.read_bytes())
    digests = {file: hashlib.sha256(used.digest() + (root / file).read_bytes()).hexdigest() for file in files}
    stored = root / "build" / "mutants" / "baseline.json"
    known = json.loads(stored.read_text()) if stored.exists() else {}
    stale = [file for file in files if known.get(file, {}).get("digest") != digests[file]]
    jobs = [Job(file, _work(root, stages, file), LIMIT) for file in stale]
    for number, (job, answer, seconds) in enumerate(run_jobs(jobs, workers, root), 1):
        found = answer or {"failed": [f"{job.name} (it gave no answer)"], "reached": []}
        known[job.name] = {"digest": digests[job.name], "seconds": seconds} | found
        stored.write_text(json.dumps(known))
        outcome = "FAILS" if found["failed"] else "passes"
        print(f"[{number}/{len(jobs)}] without any fault {job.name} {outcome}, {seconds:.0f} s", flush=True)
    return {file: _read(known[file]) for file in files}


def _read(stored: dict[str, Any]) -> Baseline:
    reached = frozenset((name, line) for name, line in stored["reached"])
    return Baseline(stored["seconds"], stored["failed"], reached)


def _work(root: Path, stages: Stages, file: str) -> Callable[[Path], Any]:
    def work(folder: Path) -> Any:
        reached = serve_probed(root, sources_of(root, stages))
        failed = tested([file], folder / "tmp", [option for option in OPTIONS if option != "-x"])
        return {"failed": failed, "reached": sorted(reached, key=str)}

    return work


def tests_of(mutant: Mutant, root: Path, stages: Stages, baseline: dict[str, Baseline]) -> list[str]:
    """The test files that reach a mutant, stage by stage: the one that mirrors its file first, then the quickest."""
    module, chosen = Path(mutant.path), list[str]()
    mirrored = f"tests/{module.parent}/test_{module.stem}.py"
    for stage in stages[module.parts[0]]:
        reaching = [
            file
            for file in files_of(root, stage)
            if file not in chosen and (mutant.path, mutant.function) in baseline[file].reached
        ]
        chosen += sorted(reaching, key=lambda file: (file != mirrored, baseline[file].seconds))
    return chosen
