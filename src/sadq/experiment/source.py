"""Which source a run was made from: its commit."""

import functools
import os
import subprocess
from pathlib import Path

import sadq


def commit() -> str | None:
    """The source's commit, from $COMMIT where the source is a copy, marked where files differ from it; None: not known."""
    return os.environ.get("COMMIT") or _described(Path(sadq.__file__).parent)


@functools.cache
def _described(source: Path) -> str | None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=source, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie within somebody else's repository
        return git("describe", "--always", "--dirty", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None
