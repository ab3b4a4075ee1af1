"""Is the model's choice better than the greedy one? Every action taken by the true emulator, at points of training.

    PYTHONPATH=src COMMIT=... python3 benchmarks/atari_ranking.py --out benchmarks/results/atari_ranking.json \
        --games Breakout Pong Kangaroo --variants observation embedding newest-frame --seeds 3
    PYTHONPATH=src python3 benchmarks/atari_ranking.py --out ranking.json --run RUN

The first form trains a fleet of all games and seeds for each variant of the model, in this process, and stops at each
point to play; the second looks at a run's newest checkpoint. What is found is written after every point. --small has
networks that a CPU can try it with.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import machine
from measure import say, write_json

from sadq import keys
from sadq.dynamics import RSSM
from sadq.envs.atari.foresight import Foresight
from sadq.experiment import checkpoint
from sadq.experiment.build import hyper_of, make_learner, make_loop
from sadq.experiment.config import Config
from sadq.experiment.folder import CHECKPOINTS
from sadq.experiment.opening import create, reopen
from sadq.experiment.presets import preset
from sadq.experiment.ranking import Judge, summary
from sadq.experiment.run import Experiment, Progress
from sadq.experiment.stored import restored
from sadq.networks import Nature, Quantile

VARIANTS: dict[str, dict[str, Any]] = {
    "observation": {},
    "embedding": {"space": "embedding"},
    "newest-frame": {"newest_frame": True},
}
SMALL_MODEL = RSSM(deterministic=64, variables=8, classes=8, hidden=32, channels=(8, 16, 16), decoder=(16, 8, 8))


def config_of(options: argparse.Namespace, variant: str) -> Config:
    """The run of a variant."""
    base = preset(options.preset, options.agent, environment=f"atari/{','.join(options.games)}")
    fields: dict[str, Any] = {"seeds": tuple(range(options.seeds)), "evaluation_episodes": 2}
    fields["evaluations"] = options.points  # whose places are where a run may pause
    fields |= {"steps": options.steps} if options.steps else {}
    model = base.model
    if options.small:
        model = SMALL_MODEL
        fields |= {"encoder": Nature(channels=(8, 16, 16), hidden=64), "adjusted": (Quantile(quantiles=20),)}
        fields |= {"buffer_size": 2000, "learning_starts": 100, "target_update_interval": 50}
    settings = {"space": "observation", "newest_frame": False} | VARIANTS[variant]
    return dataclasses.replace(base, **fields, model=dataclasses.replace(model, **settings))


@dataclasses.dataclass(frozen=True)
class Play:
    """The games in which a member meets the states that its model is judged at."""

    states: int = 200
    environments: int = 8
    every: int = 8
    epsilon: float = 0.05


class Points:
    """The rankings of one fleet, at its beginning and at points of its training that are evenly spread."""

    def __init__(self, experiment: Experiment, count: int, play: Play, add: Callable[[list[dict[str, Any]]], None]):
        """Every row goes to `add`."""
        self.experiment, self.play, self.add = experiment, play, add
        self.judge = Judge(make_learner(experiment.config, experiment.environment))
        self.hyper = hyper_of(experiment.config)
        places = [experiment.steps * number // count for number in range(count + 1)] if count else []
        self.due = [place for place in places if place > experiment.step or experiment.step == 0]

    def __call__(self, progress: Progress | None = None) -> None:
        """Rank if a point has been reached; a callback of a run, and called before it for the beginning."""
        step = self.experiment.step
        if self.due and step >= self.due[0]:
            self.due = [place for place in self.due if place > step]
            self.add(self.rows(self.experiment.state, step))

    def rows(self, state: Any, step: int) -> list[dict[str, Any]]:
        """One row for each game."""
        experiment, own = self.experiment, self.play
        spec: Any = experiment.environment
        by_game: dict[str, list[Any]] = {}
        began = time.perf_counter()
        for index, member in enumerate(experiment.members):
            game = member.get("game", spec.games[0])
            learner, hyper = jax.tree.map(lambda leaf: leaf[index], (state.learner, self.hyper))
            key = keys.at(keys.purpose(keys.member_key(member["seed"]), "ranking"), step)
            games = Foresight(spec, game, member["seed"], own.environments, "ranking")
            games.reset(step)
            try:
                ranked = self.judge(games, learner, hyper, own.states, own.every, own.epsilon, key)
            finally:
                games.close()
            by_game.setdefault(game, []).append(ranked)
        seconds = round(time.perf_counter() - began, 1)
        return [{"game": game, "step": step, "seconds": seconds} | summary(parts) for game, parts in by_game.items()]


def told(row: dict[str, Any]) -> str:
    numbers = row["as_scored"]
    agree = ", ".join(f"{who} {numbers[f'{who}_agrees']['mean']:.2f}" for who in ("model", "greedy", "random"))
    regret = ", ".join(f"{who} {numbers[f'{who}_regret']['mean']:.4f}" for who in ("model", "greedy", "random"))
    return f"  {row['game']} at {row['step']:,}: among the best {agree}; regret {regret}; {row['seconds']} s"


def trained(options: argparse.Namespace, variant: str, add: Any) -> bool:
    """Train a variant's fleet, and rank at its points; whether it came to its end."""
    experiment = create(config_of(options, variant), None)
    say(f"{variant}: {experiment.describe()}")
    experiment.begin()
    points = Points(experiment, options.points, play_of(options), lambda rows: add(variant, rows))
    points()
    finished = experiment.run(points)
    experiment.close()
    return finished


def play_of(options: argparse.Namespace) -> Play:
    return Play(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Play)})


def of_run(options: argparse.Namespace, add: Any) -> None:
    """Rank at the newest checkpoint of a run."""
    experiment = reopen(options.run)
    saved = checkpoint.latest(options.run / CHECKPOINTS)
    if saved is None:
        raise SystemExit(f"{options.run} has no checkpoint to look at: let the run go on first.")
    loop = make_loop(experiment.config, experiment.environment, 1)
    meta, state, _ = restored(loop, loop.start(), saved)
    loop.close()
    model = experiment.config.model
    variant = "newest-frame" if model.newest_frame else model.space
    points = Points(experiment, 0, play_of(options), lambda _: None)
    add(variant, points.rows(state, meta["step"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--run", type=Path, help="a run folder to look at instead of training")
    parser.add_argument("--games", nargs="+", default=["Breakout", "Pong", "Kangaroo"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--agent", default="qrdqn+sadq")
    parser.add_argument("--preset", default="atari100k")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--points", type=int, default=5, help="of training, evenly spread, beside its beginning")
    told_of = {
        "states": "of each member and point",
        "environments": "games that a member plays for it",
        "every": "steps of play from one state to the next",
        "epsilon": "of that play",
    }
    for field in dataclasses.fields(Play):
        parser.add_argument(
            f"--{field.name}", type=type(field.default), default=field.default, help=told_of[field.name]
        )
    parser.add_argument("--small", action="store_true", help="small networks, to try it on a CPU")
    options = parser.parse_args()
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    rows: list[dict[str, Any]] = []

    def add(variant: str, found: list[dict[str, Any]]) -> None:
        for row in found:
            say(told(row))
        rows.extend({"variant": variant} | row for row in found)
        described = machine.describe() | {"device": jax.devices()[0].device_kind}
        write_json(options.out, {"options": shown, "machine": described, "rows": rows})

    if options.run is not None:
        of_run(options, add)
    else:
        for variant in options.variants:
            if not trained(options, variant, add):
                break  # who stops this variant stops those after it
    print(json.dumps({"out": str(options.out), "rows": len(rows)}))


if __name__ == "__main__":
    main()
