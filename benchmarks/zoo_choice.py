"""What the default preset is chosen by: settings for every environment, tried on seeds that report nothing.

    PYTHONPATH=src python3 benchmarks/zoo_choice.py --form "64 updates, wide" --environment LunarLander-v3 --out FILE

Ten seeds from 100 on, the step budgets and greedy episodes of `zoo.py`. A file a form and environment.
"""

import argparse
from pathlib import Path
from typing import Any

import machine
from measure import say, write_json
from zoo import STEPS, by_us

from sadq.core.gates import BatchReliability
from sadq.experiment.config import Epsilon, GuidanceSettings
from sadq.experiment.presets import DEFAULT
from sadq.networks import Dense

WIDE = {"encoder": Dense((256, 256))}
OFTEN = {"updates_per_collect": 64}
LARGE = {"batch_size": 128}
STEEP = {
    "gate": BatchReliability(slope=4.0),
    "guidance": GuidanceSettings(updates_per_collect=4, batch_size=128, allowance=2.0),
}
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "64 updates": OFTEN,
    "wide": WIDE,
    "one step": {"n_step": 1},
    "epsilon 0.1": {"epsilon": Epsilon(end=(0.1,))},
    "64 updates, wide": OFTEN | WIDE,
    "64 updates, wide, batch 128": OFTEN | WIDE | LARGE,
    "64 updates, wide, batch 128, one step": OFTEN | WIDE | LARGE | {"n_step": 1},
    "64 updates, wide, batch 128, constant rate": OFTEN | WIDE | LARGE | {"learning_rate_schedule": "constant"},
    "64 updates, wide, batch 128, epsilon-z": OFTEN | WIDE | LARGE | {"deviation": "epsilon-z"},
    "64 updates, wide, batch 128, slope 4, allowance 2": OFTEN | WIDE | LARGE | STEEP,
}
SEEDS = list(range(100, 110))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=list(FORMS), required=True)
    parser.add_argument("--environment", choices=list(STEPS), required=True)
    parser.add_argument("--agent", default=DEFAULT.agent)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    runs = by_us(asked.environment, asked.agent, SEEDS, FORMS[asked.form])
    about = {"form": asked.form, "environment": asked.environment, "agent": asked.agent, "machine": machine.describe()}
    write_json(asked.out, about | {"fields": repr(FORMS[asked.form]), "runs": runs})
    ends = [run["return"] for run in runs]
    say(f"{asked.environment}, {asked.form}: mean {sum(ends) / len(ends):.4g}, worst {min(ends):.4g}")


if __name__ == "__main__":
    main()
