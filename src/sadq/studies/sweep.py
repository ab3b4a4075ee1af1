"""A list of fleets, run one after the other in this process; what is finished stays, what was begun goes on."""

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from sadq.errors import SadqError
from sadq.experiment.build import members_of, resolve
from sadq.experiment.config import Config
from sadq.experiment.folder import CONFIG, RunFolder
from sadq.experiment.opening import create, reopen
from sadq.experiment.run import Callback, Experiment
from sadq.experiment.trust import module_of
from sadq.studies.display import Display

IMMATERIAL = ("workers", "checkpoint_seconds")
"""Fields that change no result: a run may go on with others."""


@dataclass(frozen=True)
class Job:
    """One fleet of a sweep, and where its run folder lies below the sweep's."""

    name: str
    config: Config
    folder: str
    arm: str | None = None  # as the study spells it, where it is one

    @property
    def work(self) -> int:
        """Env steps of all members: what an ETA is counted in."""
        return self.config.steps * len(members_of(self.config))

    @property
    def notes(self) -> dict[str, Any]:
        """What its run folder says of it: the command is the sweep's, wherever the fleet runs."""
        return {"command": sys.argv} | ({"arm": self.arm} if self.arm else {})


class Stopped(KeyboardInterrupt):
    """The sweep was interrupted and saved; the same call goes on with it. In Python it is the Ctrl-C that it was."""


Runner = Callable[[Sequence[Job], Path, Any, Display], None]
"""Runs the jobs that are not finished, in folders below a path: here, or on a cluster."""


def run(
    jobs: Sequence[Job],
    out: Path,
    environment: Any = None,
    *,
    quiet: bool = False,
    runner: Runner | None = None,
    warn: Callable[[str], None] = Display.say,
) -> None:
    """Every job to its end; `environment` stands in for the one that the configs name, where it has no name.

    What runs in this process have to say goes to `warn`.
    """
    for job in jobs:
        check(job, out / job.folder)
    if environment is None:
        for config in {(job.config.environment, job.config.environment_settings): job.config for job in jobs}.values():
            resolve(config.environment, config.settings)  # what is missing is said before hours of work, not after
    with Display([(job.name, job.work) for job in jobs], quiet, warn) as display:
        left = []
        for job in jobs:
            if finished(out / job.folder) is None:
                left.append(job)
            else:
                display.reused(job.name)
        (runner or run_here)(left, out, environment, display)


def run_here(jobs: Iterable[Job], out: Path, environment: Any, display: Display) -> None:
    """One after the other; the first Ctrl-C saves the fleet at hand and ends the sweep."""
    for job in jobs:
        following = display.following(job.name)
        if not carry_out(job.config, out / job.folder, environment, *following, job.notes, display.warn):
            raise Stopped
        display.finished(job.name)


def carry_out(
    config: Config,
    path: Path,
    environment: Any,
    begin: Callable[[Experiment], None],
    update: Callback,
    notes: Mapping[str, Any],
    warn: Callable[[str], None] = Display.say,
) -> bool:
    """One fleet from the beginning or from its newest checkpoint; False if it was stopped before its end."""
    held = (path / CONFIG).exists()
    # The folder holds the run of a config that was asked for just now, so what that names is trusted.
    trust = [module_of(config.environment)]
    experiment = reopen(path, environment, trust) if held else create(config, path, environment, notes)
    try:
        experiment.warn = lambda sentence: warn(f"{notes.get('arm', path.name)}: {sentence}")
        experiment.begin()
        begin(experiment)
        if not experiment.run(update):
            return False
        experiment.folder.finish(experiment.result())
        return True
    finally:
        experiment.close()
        # Nothing of this fleet is asked for again, and dozens of them would fill the memory.
        del experiment
        jax.clear_caches()
        gc.collect()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tells in a sentence why what comes of a sweep cannot be written."""
    try:
        yield
    except OSError as error:
        raise SadqError(f"{path} cannot be written ({error.strerror}): give another folder with --out.") from error


def finished(path: Path) -> dict[str, Any] | None:
    """The result of a run that is at its end."""
    return RunFolder(path).finished


def check(job: Job, path: Path, immaterial: Sequence[str] = IMMATERIAL) -> None:
    """Refuse a folder that holds another run than the job's."""
    if not (path / CONFIG).exists():
        return
    _, config, _ = RunFolder.open(path)
    for name, value in vars(job.config).items():
        held = getattr(config, name)
        estimated = name == "return_range" and value is None  # when that run was made
        if value != held and name not in immaterial and not estimated:
            raise SadqError(
                f"{path} holds a run with another {name} ({held!r}, expected {value!r}): give another folder, or "
                "remove it."
            )
