"""The commands that play without learning: `sadq evaluate` and `sadq simulate`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from sadq.errors import SadqError
from sadq.cli.options import parse


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


def evaluate(options: Evaluate) -> int:
    """`sadq evaluate RUN`, `sadq evaluate WHAT --policy NAME`."""
    from sadq.experiment.evaluate import evaluate_policy, evaluate_run

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
    from sadq.envs.cityflow.simulate import simulate as run

    options = parse(Simulate, arguments, None, "sadq simulate")
    summary = run(options.config, options.phases, options.trips, options.seconds, options.out)
    _say(options, "\n".join(f"{name}: {value}" for name, value in summary.items()))
    if options.json:
        print(json.dumps(summary))
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
