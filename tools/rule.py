"""Writes results/rule.json: the rule meant never to lose beside the paper's form and its base, from finished run folders.

    python tools/rule.py POOL... [--beside FILE] [--model-from RUN]

A POOL holds run folders at PRESET/ARM, as `sadq reproduce --pool` and `benchmarks/fleets.py` leave them. What it lacks of
the bases and of the paper's form is taken from an earlier such FILE. A run that was cut off in its last twentieth counts,
and is named.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from claims.never_loses import AGENTS, FORMAT, FORMS, PHASES, PRESETS, RULE, TAKEN  # noqa: E402

from sadq.errors import SadqError  # noqa: E402
from sadq.experiment.evaluate import evaluate_policy  # noqa: E402
from sadq.experiment.scores import area_under_curve, final_return  # noqa: E402
from sadq.studies.arms import Arm  # noqa: E402
from sadq.studies.curves import metric_table  # noqa: E402
from sadq.studies.judged import Outcome  # noqa: E402
from sadq.studies.origin import origins  # noqa: E402
from sadq.studies.reproduce import write_record  # noqa: E402

EPISODES = {"acrobot": 4096, "bitflip": 4096, "cartpole": 4096, "ocloud": 1024, "lunarlander": 1024}
"""Of the random policy: as many as make its error small beside that of trained agents."""
COURSE = ("alpha", "disagreement", "q", "model_state_loss")
TENTHS = 10
ENOUGH = 0.95
"""Of a run, what must be there for it to count."""
DIGITS = 5


def collect(pools: Sequence[Path], taken: Path | None, beside: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the rule is judged by, a list over the seeds for each score."""
    outcomes = {
        (preset, agent, form): _outcome(arm, folder)
        for pool in pools
        for preset in PRESETS
        for agent in AGENTS
        for form, suffix in FORMS.items()
        if (folder := pool / preset / (arm := Arm.parse(agent + suffix)).folder).exists()
    }
    if not outcomes:
        raise SadqError(f"{pools[0]} holds no run of the rule: expected folders such as {pools[0]}/bitflip/dqn+sadq.")
    found: dict[str, Any] = {
        "format": FORMAT,
        "rule": RULE,
        "origins": [*beside.get("origins", []), *origins(one.header for one in outcomes.values())],
        "cut": {"/".join(key[:2]): done for key, one in outcomes.items() if (done := _done(one)) < 1},
    }
    known = [preset for preset in PRESETS if any(preset == key[0] for key in outcomes)]
    found["random"] = {preset: beside.get("random", {}).get(preset) or _random(preset) for preset in known}
    for part, read in (("scores", _scores), ("course", _course)):
        found[part] = {preset: {agent: {} for agent in AGENTS} for preset in known}
        for preset, agent in itertools.product(known, AGENTS):
            earlier = beside.get(part, {}).get(preset, {}).get(agent, {})
            own = {form: read(outcomes[key]) for form in FORMS if (key := (preset, agent, form)) in outcomes}
            found[part][preset][agent] = {form: one for form, one in earlier.items() if form != "rule"} | own
    if taken is not None or "taken" in beside:
        preset, agent = TAKEN
        found["taken"] = dict(beside.get("taken", {"phases": {}}))
        arms = {form: outcomes[preset, agent, form] for form in FORMS if (preset, agent, form) in outcomes}
        if taken is not None:
            arms["taken"] = Outcome(Arm.parse("sadq"), taken)
            found["taken"] |= {"origins": origins([arms["taken"].header]), "course": _course(arms["taken"])}
        found["taken"]["phases"] = found["taken"]["phases"] | {form: _phases(one) for form, one in arms.items()}
    return found


def _outcome(arm: Arm, folder: Path) -> Outcome:
    """A run, without evaluations that not all members have had."""
    found = Outcome(arm, folder, finished=False)
    whole = np.isfinite(found.returns).all(axis=0)
    found.steps, found.returns = found.steps[whole], found.returns[:, whole]
    if _done(found) < ENOUGH:
        raise SadqError(f"{folder} has {_done(found):.0%} of its run, expected {ENOUGH:.0%}: repeat the command.")
    return found


def _done(outcome: Outcome) -> float:
    """The share of a run that there is."""
    return 1.0 if outcome.result else round(float(outcome.steps[-1]) / outcome.config.steps, 4)


def _random(preset: str) -> dict[str, Any]:
    played = evaluate_policy(preset, "random", EPISODES[preset], seed=0)
    return {name: played[name] for name in ("mean_return", "deviation", "episodes", "seed")}


def _scores(outcome: Outcome) -> dict[str, list[float]]:
    values = {"final_return": final_return(outcome.returns)}
    values["area_under_curve"] = area_under_curve(outcome.steps, outcome.returns)
    return {"seed": outcome.seeds} | {name: _plain(each) for name, each in values.items()}


def _phases(outcome: Outcome) -> dict[str, list[float]]:
    """The area of a part of the run, seed by seed."""
    found = _scores(outcome)
    for name, (begin, end) in PHASES.items():
        part = (outcome.steps >= begin * outcome.steps[-1]) & (outcome.steps <= end * outcome.steps[-1])
        found[name] = _plain(area_under_curve(outcome.steps[part], outcome.returns[:, part]))
    return found


def _course(outcome: Outcome) -> dict[str, list[float]]:
    """Means over the seeds of each tenth of the run: greedy returns, and what was recorded while learning."""
    tables = {"return": (outcome.steps[1:], outcome.returns[:, 1:])}
    tables |= {name: metric_table(outcome, name) for name in COURSE}
    return {
        name: _plain(np.array([part.mean() for part in np.array_split(values, TENTHS, axis=1)]))
        for name, (steps, values) in tables.items()
        if steps.size
    }


def _plain(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", type=Path, nargs="+")
    parser.add_argument(
        "--beside", type=Path, help="an earlier file: its bases and paper's form, where the pools lack them"
    )
    parser.add_argument("--model-from", type=Path, help="a run that began with the models of another (`--model-from`)")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "rule.json")
    options = parser.parse_args()
    try:
        beside = {} if options.beside is None else json.loads(options.beside.read_text())
        write_record(options.out, collect(options.pools, options.model_from, beside))
    except SadqError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
