"""Playing a trained run: many greedy episodes of every member, from starts that training never evaluated on."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.build import make_loop
from sadq.experiment.folder import CHECKPOINTS
from sadq.experiment.run import reopen

UNSEEN = 2**30
"""An evaluation number that no training run reaches."""


def evaluate_run(path: Path, episodes: int) -> dict[str, Any]:
    """Returns over `episodes` episodes of each member of a run folder's newest checkpoint."""
    experiment = reopen(path)
    saved = checkpoint.latest(path / CHECKPOINTS)
    if saved is None:
        raise SadqError(f"{path} has no checkpoint yet: let the run go on with `sadq resume {path}`, then evaluate it.")
    config = dataclasses.replace(experiment.config, evaluation_episodes=episodes)
    loop = make_loop(config, experiment.environment, 1)
    try:
        meta, tensors, _ = checkpoint.load(saved)
        state = checkpoint.fill(loop.start(), tensors, saved)
        evaluation = loop.evaluate(state, UNSEEN)
    finally:
        loop.close()
    returns, lengths = np.asarray(evaluation.returns), np.asarray(evaluation.lengths)
    return {
        "run": str(path),
        "step": meta["step"],
        "episodes": episodes,
        "members": [
            member
            | {
                "mean_return": float(returns[index].mean()),
                "deviation": float(returns[index].std()),
                "mean_length": float(lengths[index].mean()),
                "returns": returns[index].astype(float).tolist(),
            }
            for index, member in enumerate(experiment.members)
        ],
    }
