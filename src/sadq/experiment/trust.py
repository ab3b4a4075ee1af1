"""What a file may make this process do: a run folder holds names and numbers, and none of them imports a module."""

import sys
from collections.abc import Collection
from pathlib import Path

from sadq.envs.registry import HOST_PREFIX, list_environments
from sadq.errors import SadqError


def module_of(environment: str) -> str:
    """The module that Gymnasium would import for an environment of the form "module:ID"; empty where it would none."""
    if environment in list_environments():
        return ""
    return environment.removeprefix(HOST_PREFIX).rpartition(":")[0]


def check_trusted(environment: str, path: Path, trust: Collection[str] = ()) -> None:
    """Refuse the environment of a run folder whose module was neither imported already nor named in `trust`."""
    module = module_of(environment)
    if module and module not in sys.modules and module not in trust:
        raise SadqError(
            f"{path} names environment {environment!r}, for which the code of the module {module} would be run: if you "
            f"trust that, import it yourself, with --import {module} or in Python trust={module!r}."
        )
