"""What each command takes and does."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sadq.cli.arrangement import arranged
from sadq.cli.listing import SECTIONS, indented
from sadq.cli.main import DIVERGED, INTERRUPTED, TAKES
from sadq.cli.options import import_modules, parse, read_config
from sadq.cli.words import split, take
from sadq.errors import SadqError
from sadq.experiment.arguments import seeds_of
from sadq.experiment.presets import PRESETS, agent_fields, preset

Json = Annotated[bool, tyro.conf.arg(help="Print the result as JSON on the last line.")]
Quiet = Annotated[bool, tyro.conf.arg(help="No progress display.")]
Logs = Annotated[
    tuple[Literal["csv", "tensorboard", "wandb"], ...],
    tyro.conf.arg(help="Pass metrics and evaluations on while they are made, into logs/ of the run folder."),
]


def run(command: str, arguments: list[str]) -> int:
    """One command, after the modules that it is to import; gives the exit code."""
    modules = [name for _, name in take(arguments, "--import")[0]]
    arguments = import_modules(arguments)
    if command in ("compare", "reproduce"):
        from sadq.cli import studies

        return studies.run(command, arranged(arguments, studies.KINDS[command]), modules)
    kinds = {"resume": Resume, "evaluate": Evaluate, "simulate": Simulate, "report": Report, "watch": Watch}
    if command in kinds:
        return parse(kinds[command], arranged(arguments, kinds[command]), None, f"sadq {command}")()
    return train(arranged(arguments, Train)) if command == "train" else show(arguments)


@dataclass(frozen=True)
class Train:
    """Train a fleet of agents and write a run folder."""

    out: Path | None = None
    """The run folder; by default a new one under runs/."""
    log: Logs = ()
    json: Json = False
    quiet: Quiet = False


def train(arguments: list[str]) -> int:
    """Its options are those of `Train` and the fields of the config that its first words name."""
    positional, flags = split(arguments)
    if len(positional) > 2 or not (positional or {"-h", "--help"} & set(flags)):
        what, example = TAKES["train"].split(": ", 1)
        raise SadqError(f"`sadq train` takes {what}, not {positional}: {example}.")
    base = preset(positional[0]) if positional else PRESETS["default"]
    changes = agent_fields(base, positional[1] if len(positional) > 1 else None)
    options, config = read_config(Train, flags, base, "sadq train PRESET [AGENT]", **changes)
    if any(word.split("=")[0] == "--seeds" for word in flags) and len(config.seeds) == 1:
        config = dataclasses.replace(config, seeds=seeds_of(config.seeds[0]))
    prepare_jax(config.deterministic)
    from sadq.experiment.opening import create

    stamp = time.strftime("%Y%m%d-%H%M%S")
    out = options.out or Path("runs") / f"{positional[0].replace('/', '-')}-{config.agent}-{stamp}-{os.getpid()}"
    return _drive(create(config, out), options.json, options.quiet, options.log)


@dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run from its newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    log: Logs = ()
    json: Json = False
    quiet: Quiet = False

    def __call__(self) -> int:
        from sadq.experiment.folder import RunFolder
        from sadq.experiment.opening import reopen

        folder, config, _ = RunFolder.open(self.run)
        result = folder.finished
        if result is not None:
            print(f"{self.run} is finished: {result['steps']:,} steps; nothing to resume.", file=sys.stderr)
            return _tell_result(result, self.json)
        prepare_jax(config.deterministic)
        return _drive(reopen(self.run), self.json, self.quiet, self.log)


@dataclass(frozen=True)
class Report:
    """Compare runs: numbers in words, charts and tables, in one HTML file that needs no other."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that hold some; a base agent and its +sadq twin are compared by the seeds they share."""
    out: Path = Path("report")
    """The folder for index.html and report.json, or a file that ends in .html for the page alone."""
    against: str | None = None
    """The agent, label or run that all others are compared with; by default each +sadq agent with its base."""
    threshold: float | None = None
    """The return whose time to reach is compared; by default 80% of the way from untrained agents to the best."""
    title: str | None = None
    """The page's title."""
    figures: tuple[Literal["png", "pdf"], ...] = ()
    """Write the charts as files too."""

    def __call__(self) -> int:
        from sadq.report.page import write_report

        chosen: dict[str, Any] = {"against": self.against, "threshold": self.threshold, "figures": self.figures}
        page = write_report(self.runs, self.out, self.title, **chosen)
        print(f"report: {page}")
        return 0


@dataclass(frozen=True)
class Watch:
    """Show runs while they go on: the report's page on this machine alone, with members, speed and time left."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that hold some or will."""
    port: int = 8765
    """Of http://127.0.0.1; 0 takes any that is free."""
    refresh: float = 5.0
    """Seconds after which an open page asks for news."""
    title: str | None = None
    """The page's title."""

    def __call__(self) -> int:
        from sadq.report.watch import Watched, watch

        if not self.refresh > 0:
            raise SadqError(f"refresh = {self.refresh} must be above 0 seconds.")
        watch(Watched(self.runs, self.title, refresh=self.refresh), self.port, lambda words: print(words, flush=True))
        return 0


@dataclass(frozen=True)
class Evaluate:
    """Play greedy episodes with the newest checkpoint of a run, or episodes of an environment's own policy."""

    what: tyro.conf.Positional[str]
    """A run folder; with --policy also a preset or an environment's name."""
    policy: str | None = None
    """Play this policy of the environment instead of the trained agents; a name that is none lists those there are."""
    episodes: int = 100
    """Episodes of each member, or of the policy."""
    seed: int = 0
    """Which episodes a policy plays."""
    environment_settings: tuple[str, ...] = ()
    """What the environment of a policy is made with, as name=value."""

    video: bool = False
    """Draw one episode, where the environment can be drawn."""
    video_out: Path | None = None
    """The file to draw into; by default episode.gif in the run folder, or here for a policy."""
    json: Json = False

    def __call__(self) -> int:
        from sadq.experiment.evaluate import evaluate_policy, evaluate_run

        prepare_jax(False)
        if self.episodes < 1:
            raise SadqError(f"episodes = {self.episodes} must be at least 1.")
        folder, settings = Path(self.what), self.environment_settings
        inside = folder if folder.is_dir() else Path()
        video = (self.video_out or inside / "episode.gif") if self.video or self.video_out else None
        if self.policy is not None:
            result = evaluate_policy(self.what, self.policy, self.episodes, self.seed, settings, video)
            words = [f"{self.policy} on {result['environment']}: {self._in_words(result)}"]
        elif settings:
            raise SadqError("environment_settings are for --policy: a run's environment is made as its config says.")
        else:
            result = evaluate_run(folder, self.episodes, video)
            words = [f"{_named(member)}: {self._in_words(member)}" for member in result["members"]]
        return _tell([*words, *([f"video: {result['video']}"] if video else [])], result, self.json)

    def _in_words(self, numbers: dict[str, Any]) -> str:
        measured = "".join(
            f", {name} {'no number' if value is None else f'{value:.4g}'}"
            for name, value in numbers.get("measures", {}).items()
        )
        return (
            f"return {numbers['mean_return']:.2f} +- {numbers['deviation']:.2f} over {self.episodes} episodes, "
            f"mean length {numbers['mean_length']:.1f}{measured}"
        )


@dataclass(frozen=True)
class Simulate:
    """Run a CityFlow scenario on its own and write what happened, in the format of CityFlow recordings."""

    config: tyro.conf.Positional[Path]
    """The scenario's config.json."""
    seconds: int
    """How long."""
    out: Path
    """The folder to write lanes.csv.gz, vehicles.csv.gz and summary.json into."""
    phases: Path | None = None
    """time,intersection,phase: the signals' schedule; without it they follow the road net's own."""
    trips: Path | None = None
    """vehicle,...,first_lane,priority: what the engine drew at random; without it both are drawn from the seed."""
    capacity: int | None = None
    """Vehicles inside the net at once that room is made for; without it what the flows make likely."""
    json: Json = False

    def __call__(self) -> int:
        from sadq.envs.cityflow.simulate import simulate

        prepare_jax(False)
        summary = simulate(self.config, self.phases, self.trips, self.seconds, self.out, capacity=self.capacity)
        return _tell((f"{name}: {value}" for name, value in summary.items()), summary, self.json)


def show(sections: list[str]) -> int:
    """`sadq list`."""
    for name in sections or SECTIONS:
        if name not in SECTIONS:
            raise SadqError(f"Cannot list {name!r}: expected {', '.join(SECTIONS)}.")
        print(f"{name}:", *indented(SECTIONS[name]()), sep="\n")
    return 0


def _tell(words: Iterable[str], result: dict[str, Any], as_json: bool) -> int:
    """Words go to stderr where the last line of stdout is to be JSON."""
    print(*words, sep="\n", file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(result))
    return 0


def _named(member: dict[str, Any]) -> str:
    game = f"{member['game']}, " if "game" in member else ""  # of a fleet that plays several
    return f"{game}seed {member['seed']}" + ("" if member["alpha"] is None else f", alpha {member['alpha']:g}")


def _drive(experiment: Any, as_json: bool, quiet: bool, logs: Iterable[str] = ()) -> int:
    """Run to the end with a progress display, and say what came of it."""
    from sadq.experiment.arguments import following
    from sadq.experiment.loggers import logger_of
    from sadq.experiment.progress import display
    from sadq.experiment.records import to_json

    def say(sentence: str) -> None:
        print(f"sadq: {sentence}", file=sys.stderr)

    experiment.warn = say
    try:
        loggers = [logger_of(name, experiment.folder.path, to_json(experiment.config)) for name in logs]
        say(experiment.describe())
        experiment.begin()
        with display(experiment, quiet) as update, following(loggers, experiment):
            finished = experiment.run(update, *loggers)
        if not finished:
            say(f"stopped and saved at step {experiment.step:,}; go on with `sadq resume {experiment.folder.path}`.")
            return INTERRUPTED
        result = experiment.result()
        experiment.folder.finish(result)
    finally:
        experiment.close()
    return _tell_result(result, as_json)


def _tell_result(result: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(result))
    else:
        for member in result["members"]:
            final = member["final_return"]
            told = "no evaluation was whole" if final is None else f"final return {final:.2f}"
            print(f"{_named(member)}: {told} ({member['status']})")
        print(
            f"{result['steps']:,} steps of {len(result['members'])} members in {result['wall_seconds']:.1f} s "
            f"({result['steps_per_second']:,.0f} steps/s after {result['compile_seconds']:.1f} s of compilation); "
            f"run folder: {result['run']}"
        )
    return DIVERGED if any(member["status"] == "diverged" for member in result["members"]) else 0


def prepare_jax(deterministic: bool) -> None:
    """Settings that must be made before JAX starts: repeatable GPU kernels, and a cache of compiled programs."""
    if deterministic:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    from sadq.experiment.compiled import keep_compiled

    keep_compiled(0.0)
