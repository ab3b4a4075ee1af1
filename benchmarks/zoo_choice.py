"""What the default preset is chosen by: settings for every environment, tried on seeds that report nothing.

    python3 benchmarks/zoo_choice.py try --form "64 updates, constant rate" --environment LunarLander-v3 --out FOLDER
    python3 benchmarks/zoo_choice.py choose --out FOLDER
    python3 benchmarks/zoo_choice.py gather --out FOLDER > benchmarks/results/zoo_default.json
    python3 benchmarks/zoo_choice.py try --form chosen --agent iqn --seeds 0 1 2 3 4 --environment BitFlip-6 --out FOLDER

Ten seeds from 100 on choose; ten from 0 on, in the same fleet, tell what the chosen one does. Step budgets and greedy
episodes are those of `zoo.py`, whose file has the peer's. A file a form, agent and environment. `choose` takes the form
that on its ten seeds is at least level with the peer, in the mean and in the worst seed, on the most environments; of equals
the one with the least work.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import machine
import numpy as np
from measure import say, write_json
from zoo import PEER, STEPS, by_us

from sadq.agents import AGENTS, parse_agent
from sadq.experiment.presets import DEFAULT
from sadq.exploration import EpsilonZ, RandomAction

HERE = Path(__file__).resolve().parent
CHOSEN, TODAYS = "chosen", "the default"
BEFORE = {
    "updates_per_collect": 32,
    "learning_rate_schedule": "linear",
    "deviation": RandomAction(),
    "guidance": dataclasses.replace(DEFAULT.guidance, allowance=2.0),
}
CONSTANT = {"learning_rate_schedule": "constant"}
OFTEN = {"updates_per_collect": 64}
HELD = {"deviation": EpsilonZ()}
FORMS: dict[str, dict[str, Any]] = {
    "32 updates": BEFORE,
    "32 updates, constant rate": BEFORE | CONSTANT,
    "32 updates, actions held": BEFORE | HELD,
    "32 updates, constant rate, actions held": BEFORE | CONSTANT | HELD,
    "64 updates, constant rate": BEFORE | OFTEN | CONSTANT,
    "64 updates, constant rate, actions held": BEFORE | OFTEN | CONSTANT | HELD,
}
"""In the order of their work."""
RULES: dict[str, dict[str, Any]] = {
    name: FORMS["64 updates, constant rate, actions held"]
    | {"guidance": dataclasses.replace(BEFORE["guidance"], **fields)}
    for name, fields in {
        "allowance 1": {"allowance": 1.0},
        "allowance 0.5": {"allowance": 0.5},
        "agreement 0.1": {"agreement": 0.1},
        "agreement 0.2": {"agreement": 0.2},
        "allowance 1, agreement 0.1": {"allowance": 1.0, "agreement": 0.1},
    }.items()
}
"""How far the model is heard in the chosen form, which has an allowance of 2."""
CHOOSING, REPORTING = range(100, 110), range(10)


def fields_of(form: str, agent: str) -> dict[str, Any]:
    """What a form sets for an agent: only what deviates at random can be held."""
    fields = dict((FORMS | RULES | {TODAYS: {}})[form])
    if not isinstance(AGENTS[parse_agent(agent)[0]].deviation, RandomAction):
        fields.pop("deviation", None)
    return fields


def ends(record: dict[str, Any], seeds: range) -> list[float]:
    return [run["return"] for run in record["runs"] if run["seed"] in seeds]


def choose(folder: Path) -> str:
    """The form, by its choosing seeds alone."""
    peers = json.loads((HERE / "results" / "zoo.json").read_text())["runs"]
    level: dict[str, int] = {}
    for form in FORMS:
        records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        records = [one for one in records if (one.get("form"), one.get("agent")) == (form, DEFAULT.agent)]
        if {one["environment"] for one in records} != set(STEPS):
            say(f"{form}: not run on all of them")
            continue
        level[form] = 0
        for record in records:
            own = ends(record, CHOOSING)
            peer = [run["return"] for run in peers if (run["who"], run["environment"]) == (PEER, record["environment"])]
            at_least = np.mean(own) >= np.mean(peer) and min(own) >= min(peer)
            level[form] += int(at_least)
            say(
                f"{form}, {record['environment']}: {np.mean(own):.4g} ({min(own):.4g}), "
                f"the peer {np.mean(peer):.4g} ({min(peer):.4g}){', level' if at_least else ''}"
            )
    if not level:
        raise SystemExit(f"{folder} holds no form that was run on all of {', '.join(STEPS)}.")
    best = max(level, key=lambda form: level[form])  # the first of equals
    write_json(folder / "choice" / "choice.json", {"chosen": best, "level_on": level, "machine": machine.describe()})
    return best


def gather(folder: Path) -> list[dict[str, Any]]:
    """What was run, without what all of it shares."""
    found = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        runs = [{"seed": run["seed"], "return": round(run["return"], 4)} for run in record["runs"]]
        about = {name: record[name] for name in ("environment", "agent", "form", "fields")}
        found.append(about | {"commit": record["machine"]["commit"], "runs": runs})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["try", "choose", "gather"])
    parser.add_argument("--form", choices=[*FORMS, *RULES, CHOSEN, TODAYS])
    parser.add_argument("--environment", choices=list(STEPS))
    parser.add_argument("--agent", default=DEFAULT.agent)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*CHOOSING, *REPORTING])
    parser.add_argument("--steps", type=int, help="to try the script")
    asked = parser.parse_args()
    if asked.what == "choose":
        say(f"chosen: {choose(asked.out)}")
        return
    if asked.what == "gather":
        print("\n".join(['{"runs": [', ",\n".join(map(json.dumps, gather(asked.out))), "]}"]))
        return
    form = asked.form
    if form == CHOSEN:
        form = json.loads((asked.out / "choice" / "choice.json").read_text())["chosen"]
    if asked.steps is not None:
        STEPS[asked.environment] = asked.steps
    fields = fields_of(form, asked.agent)
    runs = by_us(asked.environment, asked.agent, asked.seeds, fields | {"evaluations": 4})
    about = {"form": form, "environment": asked.environment, "agent": asked.agent, "machine": machine.describe()}
    name = f"{asked.agent}-{asked.environment}-{'-'.join(form.replace(',', '').split())}.json"
    write_json(asked.out / name, about | {"fields": repr(fields), "runs": runs})
    own = [run["return"] for run in runs]
    say(f"{asked.environment}, {asked.agent}, {form}: mean {np.mean(own):.4g}, worst {min(own):.4g}")


if __name__ == "__main__":
    main()
