"""Writes results/rule/*.json: a rule meant never to lose beside the paper's form and its base, from finished run folders.

    python tools/rule.py POOL... [--rule allowance] [--records FILE...] [--beside FILE] [--model-from RUN]

A POOL holds run folders at PRESET/ARM, as `sadq reproduce --pool` and `benchmarks/fleets.py` leave them. Scores of other
presets come from the --records of runs whose folders are gone: what `sadq reproduce` or `benchmarks/rule_choice.py found`
wrote, cut to the seeds that all of a preset have. What all of these lack of the bases and of the paper's form is taken from
an earlier such FILE. A run that was cut off in its last twentieth counts, and is named.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from claims.never_loses import AGENTS, FORMAT, MEASURES, PHASES, PRESETS, RULE, RULES, TAKEN, forms_of  # noqa: E402

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


Key = tuple[str, str, str]
"""Preset, agent, and form."""


def collect(
    pools: Sequence[Path],
    taken: Path | None,
    beside: Mapping[str, Any],
    rule: str = RULE,
    records: Sequence[Path] = (),
) -> dict[str, Any]:
    """Everything that a rule is judged by, a list over the seeds for each score."""
    forms = forms_of(rule)
    outcomes = {
        (preset, agent, form): _outcome(arm, folder)
        for pool in pools
        for preset in PRESETS
        for agent in AGENTS
        for form, suffix in forms.items()
        if (folder := pool / preset / (arm := Arm.parse(agent + suffix)).folder).exists()
    }
    if not outcomes:
        raise SadqError(f"{pools[0]} holds no run of the rule: expected folders such as {pools[0]}/bitflip/dqn+sadq.")
    found: dict[str, Any] = {
        "format": FORMAT,
        "rule": rule,
        "origins": [*beside.get("origins", []), *origins(one.header for one in outcomes.values())],
        "cut": {"/".join(key[:2]): done for key, one in outcomes.items() if (done := _done(one)) < 1},
    }
    stored = _stored(records, forms, {key[0] for key in outcomes}, found["origins"])
    known = [preset for preset in PRESETS if any(preset == key[0] for key in (*outcomes, *stored))]
    found["random"] = {preset: beside.get("random", {}).get(preset) or _random(preset) for preset in known}
    for part, read in (("scores", _scores), ("course", _course)):
        found[part] = {preset: {agent: {} for agent in AGENTS} for preset in known}
        for preset, agent in itertools.product(known, AGENTS):
            earlier = beside.get(part, {}).get(preset, {}).get(agent, {})
            own = {form: read(outcomes[key]) for form in forms if (key := (preset, agent, form)) in outcomes}
            if part == "scores":
                own |= {form: stored[key] for form in forms if (key := (preset, agent, form)) in stored}
            found[part][preset][agent] = {form: one for form, one in earlier.items() if form != "rule"} | own
    if taken is not None or "taken" in beside:
        preset, agent = TAKEN
        found["taken"] = dict(beside.get("taken", {"phases": {}}))
        arms = {form: outcomes[preset, agent, form] for form in forms if (preset, agent, form) in outcomes}
        if taken is not None:
            arms["taken"] = Outcome(Arm.parse("sadq"), taken)
            found["taken"] |= {"origins": origins([arms["taken"].header]), "course": _course(arms["taken"])}
        found["taken"]["phases"] = found["taken"]["phases"] | {form: _phases(one) for form, one in arms.items()}
    return found


def _stored(
    records: Sequence[Path], forms: Mapping[str, str], known: Collection[str], sources: list[dict[str, Any]]
) -> dict[Key, dict[str, list[float]]]:
    """Scores of presets that are not `known` from files of earlier runs, whose origins are added to the `sources`."""
    arms = {Arm.parse(agent + suffix).folder: (agent, form) for agent in AGENTS for form, suffix in forms.items()}
    found: dict[Key, dict[int, dict[str, float]]] = {}
    for path in records:
        data = json.loads(path.read_text())
        used: list[dict[str, Any]] = []
        for preset, label, origin, table in _told(data):
            if preset in known or preset not in PRESETS or label not in arms:
                continue
            rows = zip(table["seed"], *(table[name] for name in MEASURES), strict=True)
            found[preset, *arms[label]] = {seed: dict(zip(MEASURES, row, strict=True)) for seed, *row in rows}
            used += origin
        told = [one for number, one in enumerate(used) if one not in used[:number]]
        # One entry stands for a fleet where each has its own, and for all of them in a study's record.
        sources += told if "origins" in data else [one | {"fleets": used.count(one)} for one in told]
    scores: dict[Key, dict[str, list[float]]] = {}
    for key, by_seed in found.items():
        shared = set.intersection(*(set(one) for other, one in found.items() if other[0] == key[0]))
        seeds = sorted(shared)
        values = {name: np.array([by_seed[seed][name] for seed in seeds]) for name in MEASURES}
        scores[key] = {"seed": seeds} | {name: _plain(each) for name, each in values.items()}
    return scores


def _told(data: Mapping[str, Any]) -> Iterator[tuple[str, str, list[dict[str, Any]], Mapping[str, Any]]]:
    """(preset, arm's folder, where it was run, scores and seeds) of every fleet in a file of either kind."""
    for place in data.get("environments", []):
        for arm in place["arms"]:
            yield place["preset"], Arm.parse(arm["arm"]).folder, data["origins"], arm["members"]
    for name, fleet in data.get("fleets", {}).items():
        preset, _, folder = name.partition("/")
        yield preset, folder, fleet["origin"], fleet["scores"][0] | {"seed": fleet["scores"][0]["seeds"]}


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
    parser.add_argument("--rule", choices=RULES, default=next(iter(RULES)))
    parser.add_argument("--records", type=Path, nargs="+", default=[], help="scores of presets that the pools lack")
    parser.add_argument("--out", type=Path, help="by default results/rule/RULE.json")
    options = parser.parse_args()
    out = options.out or ROOT / "results" / "rule" / f"{options.rule}.json"
    try:
        beside = {} if options.beside is None else json.loads(options.beside.read_text())
        found = collect(options.pools, options.model_from, beside, RULES[options.rule], options.records)
        write_record(out, found)
    except SadqError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
