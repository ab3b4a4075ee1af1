"""Chooses the rule that is meant never to lose: forms of it on whole runs, on seeds that report nothing.

    PYTHONPATH=src python3 benchmarks/rule_choice.py fleets                      # what to train, for fleets.py
    PYTHONPATH=src python3 benchmarks/rule_choice.py choose POOL --out FILE      # what it says; prints the form chosen
    PYTHONPATH=src python3 benchmarks/rule_choice.py report FORM                 # what to train on seeds that chose nothing
    PYTHONPATH=src python3 benchmarks/rule_choice.py found POOL... --out FILE    # every score of what lies there, by alpha

The paper's form gains on BitFlip and loses on Acrobot, so a form has four slacks: the shares of the gain in area and in
final return that it keeps on BitFlip, over 95%; and its differences from the bases on Acrobot, over -5% of what those have
learned over a random policy. The form whose least slack is greatest is chosen.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import machine
import numpy as np
from measure import write_json

from sadq.experiment.scores import area_under_curve, final_return
from sadq.studies.arms import Arm
from sadq.studies.judged import Outcome
from sadq.studies.origin import origins

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from claims.never_loses import AGENTS, ALLOWED, KEPT, MEASURES, PRESETS  # noqa: E402

GATED = "gate=batch,gate.slope=4,model.continuation=true,"
FORMS = {
    **{
        f"allowance 2, agreement {needed}": f"+sadq:guidance.allowance=2,guidance.agreement={needed}"
        for needed in (0.05, 0.1)
    },
    "allowance 2": "+sadq:guidance.allowance=2",
    **{
        f"allowance {size}, continuation": f"+sadq:model.continuation=true,guidance.allowance={size}" for size in (1, 2)
    },
    **{f"allowance {size}, gated": f"+sadq:{GATED}guidance.allowance={size}" for size in (1, 1.5, 2, 3)},
}
"""What follows a base agent's name."""
LATE, SHARES = 0.85, (0.01, 0.02, 0.03, 0.05, 0.1, 0.5)
"""From which part of a run single greedy episodes are told, and which quantiles of their returns."""
ACROBOT, BITFLIP = ("dqn", "dueling"), ("dueling", "c51")
RANDOM = json.loads((ROOT / "results" / "rule" / "allowance.json").read_text())["random"]["acrobot"]["mean_return"]


def fleets() -> list[str]:
    """The paper's form and the bases first: without them nothing can be chosen."""
    first = [f"bitflip/{agent}{form}" for agent in BITFLIP for form in ("", "+sadq")]
    first += [f"acrobot/{agent}" for agent in ACROBOT]
    return first + [
        f"{preset}/{agent}{form}"
        for form in FORMS.values()
        for preset, agents in (("acrobot", ACROBOT), ("bitflip", BITFLIP))
        for agent in agents
    ]


def scores(pool: Path, preset: str, arm: str) -> np.ndarray | None:
    """f[2, seeds]: area and final return; None where it did not end."""
    folder = pool / preset / Arm.parse(arm).folder
    if not (folder / "result.json").exists():
        return None
    outcome = Outcome(Arm.parse(arm), folder)
    return np.array([area_under_curve(outcome.steps, outcome.returns), final_return(outcome.returns)])


def judged(pool: Path, form: str) -> dict[str, Any] | None:
    """A form's four slacks, and what they are made of; None where a fleet of it is missing."""
    kept, lost = [], []
    for agent in BITFLIP:
        base, paper, own = (scores(pool, "bitflip", agent + each) for each in ("", "+sadq", form))
        if base is None or paper is None or own is None:
            return None
        kept.append([(own - base).mean(axis=1), (paper - base).mean(axis=1)])
    for agent in ACROBOT:
        base, own = (scores(pool, "acrobot", agent + each) for each in ("", form))
        if base is None or own is None:
            return None
        lost.append((own - base).mean(axis=1) / (base.mean(axis=1) - RANDOM))
    gained, of_paper = np.sum(kept, axis=0)
    shares, differences = gained / of_paper, np.mean(lost, axis=0)
    slacks = [*(shares - KEPT), *(differences + ALLOWED)]
    return {
        "form": form,
        "kept on BitFlip": {"area": shares[0], "final_return": shares[1]},
        "difference on Acrobot": {"area": differences[0], "final_return": differences[1]},
        "least_slack": min(slacks),
    }


def found_in(pools: list[Path]) -> dict[str, Any]:
    """Scores of every finished fleet by seed, those of a sweep of alpha apart, and where each comes from."""
    every: dict[str, Any] = {}
    for path in sorted(file for pool in pools for file in pool.glob("*/*/result.json")):
        members, folder = json.loads(path.read_text())["members"], path.parent
        # As it is, for a form that was given up has no config any more.
        header = json.loads((folder / "config.json").read_text())
        entry = every.setdefault(f"{folder.parent.name}/{folder.name}", {"origin": origins([header]), "scores": []})
        played = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
        late = [row for row in played if row["step"] >= LATE * played[-1]["step"]]
        for alpha in sorted({member["alpha"] or 1.0 for member in members}):
            own = {number: member for number, member in enumerate(members) if (member["alpha"] or 1.0) == alpha}
            single = np.concatenate([row["returns"] for row in late if row["member"] in own])
            entry["scores"].append(
                {"alpha": alpha, "seeds": [member["seed"] for member in own.values()]}
                | {name: [round(member[name], 4) for member in own.values()] for name in MEASURES}
                | {"late_episodes": {f"{share:g}": float(np.quantile(single, share)) for share in SHARES}}
            )
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fleets", "choose", "report", "found"])
    parser.add_argument("subject", nargs="*", help="of choose and found the pools, of report the form")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "fleets":
        print(" ".join(fleets()))
    elif options.what == "report":
        form = options.subject[0]
        print(" ".join(f"{preset}/{agent}{form}" for preset, agent in itertools.product(PRESETS, AGENTS)))
    elif options.what == "found":
        write_json(options.out, {"fleets": found_in([Path(one) for one in options.subject])})
    else:
        pool = Path(options.subject[0])
        found = {name: judged(pool, form) for name, form in FORMS.items()}
        whole = {name: one for name, one in found.items() if one is not None}
        if not whole:
            raise SystemExit(f"{pool} holds no form of the rule with the runs that it is judged by.")
        chosen = max(whole, key=lambda name: whole[name]["least_slack"])
        every = {text: scores(pool, *text.split("/", 1)) for text in fleets()}
        means = {text: one.mean(axis=1).tolist() for text, one in every.items() if one is not None}
        if options.out is not None:
            record = {"chosen": chosen, "forms": found, "area_and_final_return": means, "machine": machine.describe()}
            write_json(options.out, json.loads(json.dumps(record, default=float)))
        print(whole[chosen]["form"])


if __name__ == "__main__":
    main()
