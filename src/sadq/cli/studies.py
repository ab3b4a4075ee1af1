"""`sadq compare` and `sadq reproduce`: many fleets, one answer."""

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sadq.cli.commands import Json, Quiet, prepare_jax
from sadq.cli.main import DIVERGED, INTERRUPTED, TAKES
from sadq.cli.options import parse, read_config
from sadq.cli.words import single_seed, split
from sadq.errors import SadqError
from sadq.experiment import arguments as given
from sadq.experiment.config import Config
from sadq.experiment.presets import preset
from sadq.studies.sweep import Runner, Stopped

On = Annotated[
    Literal["here", "ray"],
    tyro.conf.arg(help="Where fleets run: in this process one after the other, or as tasks of a Ray cluster."),
]


@dataclass(frozen=True)
class Place:
    """Where the fleets of a study run."""

    on: On = "here"
    ray_address: str | None = None
    """The cluster's address; None: a local one of its own."""
    ray_cpus: float = 1.0
    """Cores that a fleet is given; as many fleets run side by side as that allows."""
    ray_gpus: float = 0.0
    """GPUs that a fleet is given."""

    def runner(self, modules: list[str]) -> Runner | None:
        """What runs them; a cluster's workers import the same modules of the user's."""
        if self.on == "here":
            for name in ("ray_address", "ray_cpus", "ray_gpus"):
                if getattr(self, name) != getattr(Place, name):
                    raise SadqError(
                        f"--{name.replace('_', '-')} was given without --on ray, which it is for: add that."
                    )
            return None
        from sadq.studies.on_ray import RayRunner

        return RayRunner(self.ray_address, self.ray_cpus, self.ray_gpus, tuple(modules))


@dataclass(frozen=True)
class Compare(Place):
    """Train arms on the same seeds, a fleet each, and say whether they differ."""

    out: Path | None = None
    """The folder for runs, page and document; by default one under runs/ that the same question finds again."""
    against: str | None = None
    """The arm that all others are compared with; by default a guided arm's plain twin, else the first."""
    threshold: float | None = None
    """A return worth reaching, for the steps that it takes; by default 80% of the way to the best arm's."""
    json: Json = False
    quiet: Quiet = False


def run(command: str, arguments: list[str], modules: list[str]) -> int:
    """One of the two commands, with the modules that were imported for it; gives the exit code."""
    try:
        if command == "compare":
            return compare(arguments, modules)
        return reproduce(parse(Reproduce, arguments, None, "sadq reproduce"), modules)
    except (Stopped, KeyboardInterrupt) as stop:
        how = "stopped and saved" if isinstance(stop, Stopped) else "stopped at once"
        print(f"sadq: {how}; the same command goes on from the newest checkpoints.", file=sys.stderr)
        return INTERRUPTED


def compare(arguments: list[str], modules: list[str]) -> int:
    """Its options are those of `Compare` and the fields of the config that all arms share."""
    positional, flags = split(arguments)
    helped = bool({"-h", "--help"} & set(flags))
    if len(positional) < 3 and not helped:
        what, example = TAKES["compare"].split(": ", 1)
        raise SadqError(f"`sadq compare` takes {what}, not {positional}: {example}.")
    base = preset(positional[0]) if positional else Config()
    options, shared = read_config(Compare, flags, base, "sadq compare PRESET ARM ARM ...")
    prepare_jax(shared.deterministic)
    from sadq.studies import compare as study

    shared = dataclasses.replace(shared, seeds=seeds_of(flags, shared.seeds, study.SEEDS))
    arms = positional[1:]
    out = options.out or study.default_folder(shared, arms, positional[0])
    found = study.compare_configs(
        shared,
        arms,
        out,
        against=options.against,
        threshold=options.threshold,
        quiet=options.quiet,
        runner=options.runner(modules),
    )
    print(found, file=sys.stderr if options.json else sys.stdout)
    print(f"report: {found.report}", file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps(found.as_dict()))
    return DIVERGED if found.judged.diverged else 0


def seeds_of(flags: list[str], seeds: tuple[int, ...], default: int) -> tuple[int, ...]:
    """A single number is how many; several are the seeds themselves, and so is what `--seed` names."""
    if single_seed(flags)[0]:
        return seeds
    if not any(word.split("=")[0] == "--seeds" for word in flags):
        return tuple(range(default))
    return given.seeds_of(seeds[0]) if len(seeds) == 1 else seeds


@dataclass(frozen=True)
class Reproduce(Place):
    """Measure one of the paper's artefacts: its arms on its environments, a report page and a compact result file."""

    artefact: tyro.conf.Positional[str] = ""
    """Which one; `sadq list artefacts` shows them."""
    quick: bool = False
    """A version that takes minutes on two cores: it shows that everything works, not what the paper claims."""
    seeds: int | None = None
    """Seeds of every arm, from 0 on; by default the paper's 5, or 2 with --quick."""
    only: tuple[str, ...] = ()
    """Only these presets, or Atari games, of the artefact."""
    beside: str | None = None
    """Settings, as of an arm, of a second guided arm beside each guided one: for instance gate=batch."""
    out: Path | None = None
    """The folder for runs, page and result.json; by default one under runs/ that the same command finds again."""
    pool: Path | None = None
    """Where run folders lie, at PRESET/ARM, instead of below --out: artefacts that share it train shared arms once."""
    partial: bool = False
    """Train nothing: judge what is finished, with whatever seeds it has unless --seeds is given, and name the rest."""
    json: Json = False
    quiet: Quiet = False


KINDS: dict[str, type] = {"compare": Compare, "reproduce": Reproduce}
"""What has the options of each command."""


def reproduce(options: Reproduce, modules: list[str]) -> int:
    """Train, judge, and say where record and page are."""
    prepare_jax(False)
    from sadq.studies import reproduce as study

    found = study.reproduce(
        options.artefact,
        quick=options.quick,
        seeds=options.seeds,
        only=options.only,
        beside=options.beside,
        out=options.out,
        pool=options.pool,
        partial=options.partial,
        quiet=options.quiet,
        runner=options.runner(modules),
    )
    where = sys.stderr if options.json else sys.stdout
    print(*found.words, f"result: {found.path}", f"report: {found.page}", sep="\n", file=where)
    if options.json:
        print(json.dumps(found.record))
    return 0
