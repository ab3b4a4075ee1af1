"""Run folders of whole presets with made-up curves: what an artefact is judged by, without training anything."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sadq.experiment.build import members_of
from sadq.experiment.folder import RunFolder
from sadq.studies.arms import Arm
from sadq.studies.artefacts import ARTEFACTS, shared_config

SEEDS = 12
"""As many as settle thirty comparisons at once."""
EVALUATIONS, ROWS = 21, 20


@dataclass(frozen=True)
class Course:
    """How an arm's return goes: to a level, at a speed (shares of a run to get there), and perhaps down again."""

    level: float = 100.0
    pace: float = 0.05
    falls: float = 0.0  # of the level, from the middle of the run on
    noise: float = 0.1  # of an evaluation
    overestimates: float = 1.0
    loss: tuple[float, float] = (1.0, 0.01)  # of the model, which falls in the first tenth of the run
    delta_q: Sequence[float] = (1.0, 5.0, 2.0)  # at the beginning, when the level is nearly reached, at the end


def write_fleet(pool: Path, preset: str, label: str, course: Course, seeds: int = SEEDS) -> None:
    """One arm's run folder, finished."""
    arm = Arm.parse(label)
    config = arm.config(shared_config(preset, False, tuple(range(seeds))))
    members = members_of(config)
    notes = {"arm": label, "command": ["sadq", "reproduce", "x"], "commit": "abc1234", "device": "gpu: H200 x1"}
    folder = RunFolder.create(pool / preset / arm.folder, config, members, notes)
    generator = np.random.default_rng(zlib.crc32(f"{preset} {label}".encode()))
    shares = np.linspace(0, 1, EVALUATIONS)
    curve = course.level * (1 - np.exp(-shares / course.pace))
    curve -= np.where(shares > 0.5, course.falls * course.level, 0.0)
    returns = curve + course.noise * generator.normal(size=(seeds, EVALUATIONS))
    returns += 0.1 * generator.normal(size=(seeds, 1))
    folder.add_evaluations(
        {
            "step": round(share * config.steps),
            "member": member,
            "returns": [float(returns[member, index])],
            "overestimation": course.overestimates + 0.1 * float(generator.normal()),
        }
        | ({"measures": {"mean_latency": float(index)}} if preset == "ocloud" else {})
        for index, share in enumerate(shares)
        for member in range(seeds)
    )
    first, last = np.log(course.loss)
    peak = -course.pace * np.log(0.1)  # when 90% of the way is made
    for index in range(ROWS):
        share = (index + 1) / ROWS
        row = {"step": round(share * config.steps), "delta_q": float(np.interp(share, (0, peak, 1), course.delta_q))}
        if arm.guided:
            loss = float(np.exp(first + (last - first) * min(1.0, index / (0.1 * ROWS))))
            row |= {"model_state_loss": loss, "model_reward_loss": loss}
        folder.add_metrics(row | {"member": member, "steps_per_second": 9.0} for member in range(seeds))
    folder.finish(
        {"steps": config.steps, "wall_seconds": 60.0, "compile_seconds": 6.0, "steps_per_second": 9.0}
        | {"members": [member | {"final_return": 0.0, "status": "ok", "diverged_at": None} for member in members]}
    )


def write_artefact(pool: Path, name: str, preset: str, courses: dict[str, Course]) -> None:
    """All arms of an artefact on one of its presets; those that are not named go as by default."""
    for label in dict.fromkeys([*ARTEFACTS[name].arms, *courses]):
        if not (pool / preset / Arm.parse(label).folder).exists():
            write_fleet(pool, preset, label, courses.get(label, Course()))
