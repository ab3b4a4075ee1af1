"""Where a result comes from: command, commit, machine and versions, of what was computed here and of runs made elsewhere."""

import os
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

import sadq
from sadq.experiment.source import commit

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "ale-py")
OWN_NAMES = ("sadq", "__main__.py")


def origin() -> dict[str, Any]:
    """Of what is computed in this process; what is not known is null."""
    device = jax.devices()[0]
    return {
        "command": spoken(sys.argv),
        "commit": commit(),
        "device": f"{device.platform}: {device.device_kind} x{len(jax.devices())}, {os.cpu_count()} cores",
        "versions": {"sadq": sadq.__version__, "python": platform.python_version()} | _versions(),
    }


def origins(headers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The distinct origins of runs, from the headers of their folders, each with how many fleets it made."""
    found: list[dict[str, Any]] = []
    for header in headers:
        one = {
            "command": spoken(_of_any(header.get("command") or [], str(header.get("preset")))),
            "commit": header.get("commit"),
            "device": header.get("device"),
            "versions": {name: header.get(name) for name in ("sadq", "python", "jax")},
        }
        same = next((each for each in found if one.items() <= each.items()), None)
        if same is None:
            found.append(one | {"fleets": 1})
        else:
            same["fleets"] += 1
    return found


def spoken(words: Sequence[str]) -> str | None:
    """A command as somebody else would type it: whose folders are whose does not matter."""
    if not words:
        return None
    script = Path(words[0])
    own = ["sadq"] if script.name in OWN_NAMES else ["python", str(Path(script.parent.name) / script.name)]
    return re.sub(r"--(out|pool)[ =]\S+", r"--\1 FOLDER", shlex.join([*own, *words[1:]]))


def _of_any(words: Sequence[str], preset: str) -> list[str]:
    """A command that made one fleet alone, as it was for all that were made alike."""
    return ["PRESET/ARM" if word.startswith(f"{preset}/") else word for word in words]


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
