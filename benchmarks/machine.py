"""What a measurement was made on: machine, versions, date and command, with the standard library alone."""

import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def describe(packages: Iterable[str] = ("jax", "jaxlib", "equinox", "optax", "numpy")) -> dict[str, Any]:
    """The machine as plain JSON data; load averages tell a busy machine from a quiet one."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(packages),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(),
        "load_average": load_average(),
    }


def command() -> str:
    """How this process was called; where a file lies on some machine tells nobody anything."""
    return re.sub(r"--(out|keep) /\S+", r"--\1 PATH", shlex.join(["python", *sys.argv]))


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int | None:
    """Cores that this process may run on, which containers often make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def load_average() -> float:
    """Processes that wanted to run, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Installed versions; None for what is not installed."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def commit() -> str | None:
    """The source's commit, from $COMMIT where the source is a copy, marked where files differ from it; None if unknown."""
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def busy_seconds() -> float | None:
    """CPU time that the whole machine has spent since it started, stolen time included; None where nobody says."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, interrupt, soft_interrupt, stolen = map(int, fields)
    return (user + nice + system + interrupt + soft_interrupt + stolen) / os.sysconf("SC_CLK_TCK")
