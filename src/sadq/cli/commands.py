"""What each command takes and does."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from sadq.cli.listing import describe_agents, describe_axes, describe_presets
from sadq.cli.main import DIVERGED, INTERRUPTED
from sadq.cli.options import import_modules, parse, read_config, split
from sadq.errors import SadqError
from sadq.experiment.presets import PRESETS, agent_fields, preset


def run(command: str, arguments: list[str]) -> int:
    """One command, after the modules that it is to import; gives the exit code."""
    known: dict[str, Callable[[list[str]], int]] = {
        "train": train,
        "resume": resume,
        "evaluate": evaluate,
        "simulate": simulate,
        "report": report,
        "list": show,
    }
    return known[command](import_modules(arguments))


@dataclass(frozen=True)
class Train:
    """Train a fleet of agents and write a run folder."""

    out: Path | None = None
    """The run folder; by default a new one under runs/."""

    json: bool = False
    """Print the result as JSON on the last line."""

    quiet: bool = False
    """No progress display."""


@dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run from its newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """The run folder."""

    json: bool = False
    """Print the result as JSON on the last line."""

    quiet: bool = False
    """No progress display."""


@dataclass(frozen=True)
class Report:
    """Compare runs: numbers in words, tables and plots in one folder."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders; a base agent and its +sadq twin on the same seeds are compared in pairs."""

    out: Path = Path("report")
    """The folder to write."""


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

    json: bool = False
    """Print the result as JSON on the last line."""


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

    json: bool = False
    """Print the summary as JSON on the last line."""


def train(arguments: list[str]) -> int:
    """`sadq train PRESET [AGENT] ...`."""
    positional, flags = split(arguments)
    if len(positional) > 2 or not (positional or {"-h", "--help"} & set(flags)):
        raise SadqError(
            f"`sadq train` takes a preset and an agent, not {positional}: for instance `sadq train cartpole sadq`; "
            "`sadq list` shows what there is."
        )
    base = preset(positional[0]) if positional else PRESETS["default"]
    changes = agent_fields(base, positional[1] if len(positional) > 1 else None)
    options, config = read_config(Train, flags, base, "sadq train PRESET [AGENT]", **changes)
    if any(word.split("=")[0] == "--seeds" for word in flags) and len(config.seeds) == 1:
        config = dataclasses.replace(config, seeds=tuple(range(config.seeds[0])))
    _prepare_jax(config.deterministic)
    from sadq.experiment.run import create

    stamp = time.strftime("%Y%m%d-%H%M%S")
    out = options.out or Path("runs") / f"{positional[0].replace('/', '-')}-{config.agent}-{stamp}-{os.getpid()}"
    return _drive(create(config, out), options.json, options.quiet)


def resume(arguments: list[str]) -> int:
    """`sadq resume RUN`."""
    from sadq.experiment.folder import RunFolder
    from sadq.experiment.run import reopen

    options = parse(Resume, arguments, None, "sadq resume")
    folder, config, _ = RunFolder.open(options.run)
    result = folder.finished
    if result is not None:
        print(f"{options.run} is finished: {result['steps']:,} steps; nothing to resume.", file=sys.stderr)
        return _report_result(result, options.json)
    _prepare_jax(config.deterministic)
    return _drive(reopen(options.run), options.json, options.quiet)


def evaluate(arguments: list[str]) -> int:
    """`sadq evaluate RUN`, `sadq evaluate WHAT --policy NAME`."""
    from sadq.experiment.evaluate import evaluate_policy, evaluate_run

    options = parse(Evaluate, arguments, None, "sadq evaluate")
    _prepare_jax(False)
    if options.episodes < 1:
        raise SadqError(f"episodes = {options.episodes} must be at least 1.")
    folder = Path(options.what)
    inside = folder if folder.is_dir() else Path()
    video = (options.video_out or inside / "episode.gif") if options.video or options.video_out else None
    if options.policy is None:
        if options.environment_settings:
            raise SadqError("environment_settings are for --policy: a run's environment is made as its config says.")
        result = evaluate_run(folder, options.episodes, video)
        for member in result["members"]:
            alpha = "" if member["alpha"] is None else f", alpha {member['alpha']:g}"
            _say(options, f"seed {member['seed']}{alpha}: {_in_words(member, options.episodes)}")
    else:
        result = evaluate_policy(
            options.what, options.policy, options.episodes, options.seed, options.environment_settings, video
        )
        _say(options, f"{options.policy} on {result['environment']}: {_in_words(result, options.episodes)}")
    if video is not None:
        _say(options, f"video: {result['video']}")
    if options.json:
        print(json.dumps(result))
    return 0


def simulate(arguments: list[str]) -> int:
    """`sadq simulate CONFIG.json --seconds N --out FOLDER`."""
    from sadq.envs.cityflow.simulate import simulate as run_scenario

    _prepare_jax(False)
    options = parse(Simulate, arguments, None, "sadq simulate")
    summary = run_scenario(options.config, options.phases, options.trips, options.seconds, options.out)
    _say(options, "\n".join(f"{name}: {value}" for name, value in summary.items()))
    if options.json:
        print(json.dumps(summary))
    return 0


def report(arguments: list[str]) -> int:
    """`sadq report RUN ...`."""
    from sadq.report.page import write_report

    options = parse(Report, arguments, None, "sadq report")
    print(f"report: {write_report(options.runs, options.out)}")
    return 0


def show(arguments: list[str]) -> int:
    """`sadq list`."""
    from sadq.envs.registry import list_environments

    def environments() -> Iterator[str]:
        yield from list_environments()
        yield "and every Gymnasium id with a discrete action space"

    sections: dict[str, Callable[[], Iterator[str]]] = {
        "presets": describe_presets,
        "agents": describe_agents,
        "axes": describe_axes,
        "environments": environments,
    }
    for name in arguments or sections:
        if name not in sections:
            raise SadqError(f"Cannot list {name!r}: expected {', '.join(sections)}.")
        print(f"{name}:", *(f"  {line}" for line in sections[name]()), sep="\n")
    return 0


def _say(options: Any, text: str) -> None:
    """Words go to stderr where the last line of stdout is to be JSON."""
    print(text, file=sys.stderr if options.json else sys.stdout)


def _in_words(numbers: dict[str, Any], episodes: int) -> str:
    measured = "".join(f", {name} {value:.4g}" for name, value in numbers.get("measures", {}).items())
    return (
        f"return {numbers['mean_return']:.2f} +- {numbers['deviation']:.2f} over {episodes} episodes, mean length "
        f"{numbers['mean_length']:.1f}{measured}"
    )


def _drive(experiment: Any, as_json: bool, quiet: bool) -> int:
    """Run to the end with a progress display, and say what came of it."""
    from sadq.experiment.progress import display

    path = experiment.folder.path
    experiment.warn = lambda sentence: print(f"sadq: {sentence}", file=sys.stderr)
    try:
        print(f"sadq: {experiment.describe()}", file=sys.stderr)
        experiment.begin()
        with display(experiment, quiet) as update:
            finished = experiment.run(update)
        if not finished:
            print(
                f"sadq: stopped and saved at step {experiment.step:,}; go on with `sadq resume {path}`.",
                file=sys.stderr,
            )
            return INTERRUPTED
        result = experiment.result()
        experiment.folder.finish(result)
    finally:
        experiment.close()
    return _report_result(result, as_json)


def _report_result(result: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(result))
    else:
        for member in result["members"]:
            alpha = "" if member["alpha"] is None else f", alpha {member['alpha']:g}"
            print(f"seed {member['seed']}{alpha}: final return {member['final_return']:.2f} ({member['status']})")
        print(
            f"{result['steps']:,} steps of {len(result['members'])} members in {result['wall_seconds']:.1f} s "
            f"({result['steps_per_second']:,.0f} steps/s after {result['compile_seconds']:.1f} s of compilation); "
            f"run folder: {result['run']}"
        )
    return DIVERGED if any(member["status"] == "diverged" for member in result["members"]) else 0


def _prepare_jax(deterministic: bool) -> None:
    """Settings that must be made before JAX starts: repeatable GPU kernels, and a cache of compiled programs."""
    if deterministic:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(home) / "sadq" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
