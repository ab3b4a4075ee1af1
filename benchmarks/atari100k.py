"""Atari-100K, game by game: whole fleets of seeds and games, as compact result files that add up over several calls.

    PYTHONPATH=src:.gpu_site COMMIT=... python3 benchmarks/atari100k.py --out FOLDER --games Breakout Pong Kangaroo \
        --agents qrdqn qrdqn+sadq --seeds 5

All games and seeds of an agent are one fleet. What is finished is written to FOLDER, a file an agent and game, and not run
again. With --runs a call that ends after --seconds leaves a checkpoint there, from which the next call goes on. What a run
has so far is in a file that ends in .unfinished, renewed after every evaluation. With --ranking the true emulator judges a
guided agent's model at so many points of the run (`atari_ranking.py`), and a game's file has these rows as well.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import machine
import numpy as np
from atari_ranking import Play, Points, told
from measure import say, write_json

from sadq.experiment.folder import CONFIG
from sadq.experiment.opening import create, reopen
from sadq.experiment.presets import preset
from sadq.experiment.run import Callback, Experiment, Progress

UNFINISHED = ".unfinished"
LAST = ("delta_q", "disagreement", "greedy_minus_mixed", "model_", "q")
"""What was measured while learning that a result keeps, of the run's last rows; by how it begins."""


def result_file(out: Path, agent: str, game: str, label: str) -> Path:
    return out / f"{game.lower()}-{agent}{label}.json"


Rankings = dict[str, list[dict[str, Any]]]
"""By game, the rows of `Points`, with the members that they are of."""


def summaries(experiment: Experiment, agent: str, seconds: float, ranked: Rankings) -> dict[str, dict[str, Any]]:
    """By game: every member's final scores and curves, in numbers that fit a page."""
    result = experiment.result()
    found: dict[str, dict[str, Any]] = {}
    for index, member in enumerate(result["members"]):
        game = member.get("game") or experiment.config.environment.removeprefix("atari/")
        rows = [row for row in experiment.folder.evaluations if row["member"] == index]
        entry = found.setdefault(game, {"game": game, "agent": agent, "members": []})
        entry["members"].append(
            {
                "seed": member["seed"],
                "alpha": member["alpha"],
                "status": member["status"],
                "steps": [row["step"] for row in rows],
                "signed": [round(float(np.mean(row["returns"])), 3) for row in rows],
                "raw": [row["measures"]["raw_score"] for row in rows],
                "human_normalised": [row["measures"]["human_normalised"] for row in rows],
                "overestimation": [row["overestimation"] for row in rows],
                "last": {name: member[name] for name in sorted(member) if name.startswith(LAST)},
            }
        )
    shared = {
        "steps": result["steps"],
        "members_of_the_fleet": len(result["members"]),
        "wall_seconds": result["wall_seconds"],
        "compile_seconds": result["compile_seconds"],
        "this_call_seconds": round(seconds, 1),
        "machine": machine.describe() | {"device": jax.devices()[0].device_kind},
    }
    rows = {game: {"ranking": ranked[game]} for game in ranked}
    return {game: entry | shared | rows.get(game, {}) for game, entry in found.items()}


def ranked_so_far(experiment: Experiment, files: list[Path]) -> Rankings:
    """What earlier calls of a run have found up to where it stands now."""
    kept = [json.loads(path.read_text()) for path in files if experiment.step > 0 and path.exists()]
    found = {one["game"]: [row for row in one.get("ranking", []) if row["step"] <= experiment.step] for one in kept}
    return {game: rows for game, rows in found.items() if rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="where run folders lie; by default there are none")
    parser.add_argument("--games", nargs="+", default=["Breakout", "Pong", "Kangaroo"])
    parser.add_argument("--agents", nargs="+", default=["qrdqn", "qrdqn+sadq"])
    parser.add_argument("--preset", default="atari100k")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--evaluations", type=int, default=5)
    parser.add_argument(
        "--ranking", type=int, default=0, help="points at which models are judged, beside the beginning"
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="stop with a checkpoint after so long")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    label = "" if options.preset == "atari100k" else f"-{options.preset}"
    for agent in options.agents:
        missing = [game for game in options.games if not result_file(options.out, agent, game, label).exists()]
        left = options.seconds - (time.monotonic() - began)
        if not missing or left < 30:
            continue
        folder = None if options.runs is None else options.runs / f"{agent}{label}-{'-'.join(missing)}"
        if folder is not None and (folder / CONFIG).exists():
            experiment = reopen(folder)
        else:
            fields: dict[str, Any] = {"seeds": tuple(range(options.seeds)), "evaluations": options.evaluations}
            fields |= {"steps": options.steps} if options.steps else {}
            config = preset(options.preset, agent, environment=f"atari/{','.join(missing)}", **fields)
            experiment = create(config, folder)
        started = time.perf_counter()
        say(f"{agent} on {', '.join(missing)}: {experiment.describe()}")
        experiment.begin()
        unfinished = [result_file(options.out, agent, game, label).with_suffix(UNFINISHED) for game in missing]
        ranked = ranked_so_far(experiment, unfinished)
        told_at, evaluated = time.monotonic(), 0

        def rank(rows: list[dict[str, Any]]) -> None:
            for row in rows:
                say(told(row))
                ranked.setdefault(row["game"], []).append(row)

        def keep(suffix: str) -> dict[str, dict[str, Any]]:
            found = summaries(experiment, agent, time.perf_counter() - started, ranked)
            for game, entry in found.items():
                write_json(result_file(options.out, agent, game, label).with_suffix(suffix), entry)
            return found

        def stop(progress: Progress) -> bool:
            nonlocal told_at, evaluated
            if len(experiment.folder.evaluations) > evaluated:
                evaluated = len(experiment.folder.evaluations)
                keep(UNFINISHED)
            if time.monotonic() - told_at > 20:
                told_at = time.monotonic()
                rate, shown = progress.steps_per_second, progress.mean_return
                say(f"  {progress.step:,} of {progress.steps:,} steps, {rate:,.0f} env steps/s, return {shown}")
            return time.monotonic() - began < options.seconds

        callbacks: list[Callback] = [stop]
        if options.ranking and experiment.config.guided:
            points = Points(experiment, options.ranking, Play(), rank)
            points()
            callbacks.insert(0, points)
        finished = experiment.run(*callbacks)
        if finished:
            say(f"  {experiment.folder.metrics[-1]}")
            for game, entry in keep(".json").items():
                result_file(options.out, agent, game, label).with_suffix(UNFINISHED).unlink(missing_ok=True)
                last = [member["raw"][-1] for member in entry["members"]]
                say(json.dumps({"game": game, "agent": agent, "raw": last, "seconds": entry["wall_seconds"]}))
        else:
            keep(UNFINISHED)  # with what was ranked since the last evaluation, which is not ranked again
            say(f"  stopped at step {experiment.step:,}, to be gone on with")
        experiment.close()
        if experiment.interrupted is not None:
            break  # who stops this run stops those after it


if __name__ == "__main__":
    main()
