"""The command line: `sadq train | resume | evaluate | simulate | report | list`.

Bad input ends with one sentence on stderr and exit code 2, a run with a diverged member with exit code 3.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import tyro

from sadq.cli import commands
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.cli.options import parse, split

BAD_INPUT, DIVERGED, INTERRUPTED = 2, 3, 130

USAGE = """usage: sadq COMMAND ...

  sadq train PRESET [AGENT] [--field value ...]   train a fleet; PRESET may be a Gymnasium id
  sadq resume RUN                                 go on with an interrupted run, bit for bit
  sadq evaluate RUN                               greedy episodes of a trained run
  sadq evaluate PRESET --policy NAME              episodes of a fixed policy
  sadq simulate CONFIG.json --seconds N --out F   run a CityFlow scenario on its own
  sadq report RUN [RUN ...]                       curves, statistics and a page that compares runs
  sadq list [presets|agents|environments]         what there is

`sadq COMMAND --help` lists the options of one command."""


@dataclass(frozen=True)
class Train:
    """Train a fleet of agents and write a run folder."""

    config: Annotated[Config, tyro.conf.arg(name="")]

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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    known = {
        "train": train,
        "resume": resume,
        "evaluate": evaluate,
        "simulate": simulate,
        "report": report,
        "list": show,
    }
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(USAGE)
            sys.exit(0 if arguments else BAD_INPUT)
        if arguments[0] == "--version":
            from sadq.experiment.folder import package_version

            print(f"sadq {package_version()}")
            sys.exit(0)
        if arguments[0] not in known:
            raise SadqError(f"Unknown command {arguments[0]!r}: expected {', '.join(known)}; see `sadq --help`.")
        sys.exit(known[arguments[0]](arguments[1:]))
    except SadqError as error:
        print(f"sadq: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        print("sadq: stopped at once; a run goes on from its newest checkpoint with `sadq resume`.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def train(arguments: list[str]) -> int:
    """`sadq train PRESET [AGENT] ...`."""
    from sadq.experiment.presets import PRESETS, preset
    from sadq.experiment.run import create

    positional, flags = split(arguments)
    if "-h" in flags or "--help" in flags:
        parse(Train, ["--help"], Train(PRESETS["default"]), "sadq train PRESET [AGENT]")
    if not 1 <= len(positional) <= 2:
        raise SadqError(
            f"`sadq train` takes a preset and an agent, not {positional}: for instance `sadq train cartpole sadq`; "
            "`sadq list` shows what there is."
        )
    default = preset(*positional)
    options = parse(Train, flags, Train(default), "sadq train PRESET [AGENT]")
    config = options.config
    if any(word.split("=")[0] == "--seeds" for word in flags) and len(config.seeds) == 1:
        config = dataclasses.replace(config, seeds=tuple(range(config.seeds[0])))
    _prepare_jax(config.deterministic)
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
    """`sadq evaluate RUN`."""
    options = parse(commands.Evaluate, arguments, None, "sadq evaluate")
    _prepare_jax(False)
    return commands.evaluate(options)


def simulate(arguments: list[str]) -> int:
    """`sadq simulate CONFIG.json`."""
    _prepare_jax(False)
    return commands.simulate(arguments)


def report(arguments: list[str]) -> int:
    """`sadq report RUN ...`."""
    from sadq.report.page import write_report

    options = parse(Report, arguments, None, "sadq report")
    print(f"report: {write_report(options.runs, options.out)}")
    return 0


def show(arguments: list[str]) -> int:
    """`sadq list`."""
    from sadq.envs.registry import list_environments
    from sadq.experiment.presets import PRESETS
    from sadq.cli.listing import describe_agents

    def presets() -> Iterator[str]:
        for name, config in PRESETS.items():
            yield f"{name:20} {config.environment:16} {config.steps:>9,} steps, {len(config.seeds)} seeds"

    def environments() -> Iterator[str]:
        yield from list_environments()
        yield "and every Gymnasium id with a discrete action space and a vector observation"

    sections: dict[str, Callable[[], Iterator[str]]] = {
        "presets": presets,
        "agents": describe_agents,
        "environments": environments,
    }
    wanted = arguments or list(sections)
    for name in wanted:
        if name not in sections:
            raise SadqError(f"Cannot list {name!r}: expected {', '.join(sections)}.")
        print(f"{name}:", *(f"  {line}" for line in sections[name]()), sep="\n")
    return 0


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
