"""Processes of their own for each fault, forked from one that has imported JAX but not started it.

In them an import hook serves other sources than the files'; nothing on disk is touched.
"""

import ast
import contextlib
import ctypes
import importlib.abc
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line"]
OPTIONS += ["-m", "not learning and not thorough"]
MEMORY = 8 << 30  # bytes a process may ask for
PRELOADED = ("jax.numpy", "equinox", "optax", "pytest", "hypothesis", "scipy.stats", "gymnasium")
PROBE = "_mutation_probe"
PR_SET_PDEATHSIG = 1
LONGEST_TURN = 5.0  # seconds


class Served(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives some modules of the package the code that a function makes of their files' text."""

    def __init__(self, root: Path, made: dict[str, Callable[[str], ast.Module]]):
        self.package, self.made = root / "src" / "sadq", made

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith("sadq."):
            return None
        file = self.package.joinpath(*fullname.split(".")[1:]).with_suffix(".py")
        if str(file.relative_to(self.package)) not in self.made:
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=self)

    def exec_module(self, module: Any) -> None:
        file = Path(module.__file__)
        tree = self.made[str(file.relative_to(self.package))](file.read_text())
        exec(compile(tree, module.__file__, "exec"), module.__dict__)


def serve_probed(root: Path, names: Iterable[str]) -> set[tuple[str, int | None]]:
    """Let every function of some files note its file and first line in the returned set when it is called."""
    reached: set[tuple[str, int | None]] = set()
    sys.modules[PROBE] = probe = type(sys)(PROBE)
    probe.note = lambda name, line: reached.add((name, line))  # type: ignore[attr-defined]

    def probed(name: str, source: str) -> ast.Module:
        tree = ast.parse(source)
        for node in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
            line = None if isinstance(node, ast.Module) else node.lineno
            documented = ast.get_docstring(node, clean=False) is not None
            node.body[documented:documented] = ast.parse(f"__import__({PROBE!r}).note({name!r}, {line})").body
        return ast.fix_missing_locations(tree)

    sys.meta_path.insert(0, Served(root, {name: lambda source, name=name: probed(name, source) for name in names}))
    return reached


class _Failures:
    """A pytest plugin that remembers what failed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.names.append(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def tested(files: Iterable[str], scratch: Path, options: list[str]) -> list[str]:
    """The names of failing tests, at most those of the first file that has any."""
    import pytest

    for file in files:
        failures = _Failures()
        code = pytest.main([*options, f"--basetemp={scratch}", file], plugins=[failures])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return failures.names or [f"{file} ({code!s})"]
    return []


def preload(root: Path) -> None:
    """Import what the tests need, without starting JAX: a process whose threads run cannot be forked."""
    os.environ.update(
        JAX_PLATFORMS="cpu",
        OPENBLAS_NUM_THREADS="1",
        # Kept and shared, for a fault changes few of the programs, and those that it changes are other entries.
        TESTS_CACHE=str(root / "build" / "mutants" / "cache"),
        JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    )
    for name in PRELOADED:
        if importlib.util.find_spec(name.split(".")[0]) is not None:
            importlib.import_module(name)
    from hypothesis import Phase, settings

    # The same examples for every fault, and no time spent on finding small ones.
    settings.register_profile("mutants", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutants")
    warnings.filterwarnings("ignore", "os.fork")
    sys.path.insert(0, str(root / "src"))


@dataclass
class Job:
    """Work for a process of its own, given a folder to write in; what it returns comes back as JSON."""

    name: str
    work: Callable[[Path], Any]
    limit: float  # seconds


def run_jobs(jobs: list[Job], workers: int, root: Path) -> Iterator[tuple[Job, Any, float]]:
    """(job, what came back or None if nothing did, seconds), as they end; one past its limit is ended."""
    waiting, running, now = jobs[::-1], dict[int, tuple[Job, Path, float]](), _Clock()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop()
                folder = root / "build" / "mutants" / f"job-{os.getpid()}-{len(waiting)}"
                folder.mkdir(parents=True)
                running[_forked(job, folder, root)] = job, folder, now()
            time.sleep(0.02)
            for process, (job, folder, start) in list(running.items()):
                ended = os.waitpid(process, os.WNOHANG)[0] == process
                seconds = now() - start
                if not ended and seconds > job.limit:
                    os.killpg(process, signal.SIGKILL)
                    ended = os.waitpid(process, 0)[0] == process
                if ended:
                    del running[process]
                    answer = folder / "answer.json"
                    found = json.loads(answer.read_text()) if answer.exists() else None
                    shutil.rmtree(folder, ignore_errors=True)
                    yield job, found, seconds
    finally:
        for process, (_, folder, _) in running.items():
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            shutil.rmtree(folder, ignore_errors=True)


class _Clock:
    """Seconds in which this process was not asleep: a laptop's pause is no reason to end anything."""

    def __init__(self) -> None:
        self.read, self.seconds = time.monotonic(), 0.0

    def __call__(self) -> float:
        read = time.monotonic()
        self.seconds += min(read - self.read, LONGEST_TURN)
        self.read = read
        return self.seconds


def _forked(job: Job, folder: Path, root: Path) -> int:
    process = os.fork()
    if process:
        return process
    try:
        os.setsid()
        with contextlib.suppress(AttributeError, OSError):  # Linux ends it with its parent, however that ends
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.chdir(root)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        output = os.open(folder / "output.txt", os.O_CREAT | os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        (folder / "answer.part").write_text(json.dumps(job.work(folder)))
        (folder / "answer.part").rename(folder / "answer.json")
    finally:
        os._exit(0)
