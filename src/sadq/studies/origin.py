"""Where a result comes from: command, commit, machine and versions."""

import os
import platform
import re
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

import sadq

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "ale-py")


def origin() -> dict[str, Any]:
    """Plain data that lets somebody else repeat a result; what is not known is null."""
    device = jax.devices()[0]
    return {
        "command": re.sub(r"--out[ =]\S+", "--out FOLDER", shlex.join(["sadq", *sys.argv[1:]])),
        "commit": commit(),
        "machine": {
            "device": f"{device.platform}: {device.device_kind} x{len(jax.devices())}",
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {"sadq": sadq.__version__, "python": platform.python_version()} | _versions(),
    }


def commit() -> str | None:
    """The source's commit, from $COMMIT where the source is a copy, marked where files differ from it."""
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(asked, cwd=Path(sadq.__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
