"""What the default preset is chosen by: settings for every environment, tried on seeds that report nothing.

    PYTHONPATH=src python3 benchmarks/zoo_choice.py --form "the rule, wide" --environment LunarLander-v3 --out FILE

Ten seeds from 100 on choose; ten from 0 on, in the same fleet, tell what the chosen one does. Step budgets and greedy
episodes are those of `zoo.py`. A file a form and environment.
"""

import argparse
from pathlib import Path
from typing import Any

import machine
from measure import say, write_json
from zoo import STEPS, by_us

from sadq.core.gates import Fixed
from sadq.experiment.config import Epsilon, GuidanceSettings
from sadq.experiment.presets import DEFAULT
from sadq.networks import Dense

RULE = {
    "gate": Fixed(),
    "guidance": GuidanceSettings(updates_per_collect=4, batch_size=128, agreement=0.05, allowance=2.0),
}
CONSTANT = {"learning_rate_schedule": "constant"}
WIDE = {"encoder": Dense((256, 256))}
OFTEN = RULE | {"updates_per_collect": 64, "batch_size": 128}
MORE = OFTEN | WIDE
FORMS: dict[str, dict[str, Any]] = {
    "the rule": RULE,
    "the rule, constant rate": RULE | CONSTANT,
    "the rule, 64 updates": RULE | {"updates_per_collect": 64},
    "the rule, 64 updates, constant rate": RULE | {"updates_per_collect": 64} | CONSTANT,
    "the rule, wide": RULE | WIDE,
    "the rule, 64 updates of 128": OFTEN,
    "the rule, 64 updates of 128, constant rate": OFTEN | CONSTANT,
    "the rule, wide, 64 updates of 128": MORE,
    "the rule, wide, 64 updates of 128, one step": MORE | {"n_step": 1},
    "the rule, wide, 64 updates of 128, constant rate": MORE | CONSTANT,
    "the rule, wide, 64 updates of 128, epsilon 0.1": MORE | {"epsilon": Epsilon(end=(0.1,))},
}
SEEDS = [*range(100, 110), *range(10)]
"""Those that choose, and those that report."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=list(FORMS), required=True)
    parser.add_argument("--environment", choices=list(STEPS), required=True)
    parser.add_argument("--agent", default=DEFAULT.agent)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    asked = parser.parse_args()
    runs = by_us(asked.environment, asked.agent, asked.seeds, FORMS[asked.form] | {"evaluations": 4})
    about = {"form": asked.form, "environment": asked.environment, "agent": asked.agent, "machine": machine.describe()}
    write_json(asked.out, about | {"fields": repr(FORMS[asked.form]), "runs": runs})
    ends = [run["return"] for run in runs if run["seed"] >= 100] or [run["return"] for run in runs]
    say(f"{asked.environment}, {asked.form}: mean {sum(ends) / len(ends):.4g}, worst {min(ends):.4g}")


if __name__ == "__main__":
    main()
