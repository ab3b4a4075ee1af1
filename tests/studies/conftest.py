"""The smallest comparison that still has everything: two arms, three seeds, a model."""

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))

import tiny_runs

from sadq.experiment.config import Config
from sadq.experiment.presets import PRESETS
from sadq.studies.compare import Comparison, compare_configs

ARMS = ["dqn", "dqn+sadq"]
CHANGES = {"environment": "BitFlip-2", "seeds": (0, 1, 2), "steps": 8 * 25 * 8, "evaluations": 8}
SHARED = dataclasses.replace(
    tiny_runs.TINY, preset="bitflip", adjusted=PRESETS["bitflip"].adjusted, replay=None, n_step=None, **CHANGES
)
"""What `sadq compare bitflip` makes of FLAGS."""
FLAGS = tiny_runs.options(
    environment="BitFlip-2", seeds="0 1 2", steps="1600", evaluations="8", replay="None", n_step="None"
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home


@pytest.fixture(scope="session")
def shared() -> Config:
    return SHARED


@pytest.fixture(scope="session")
def flags() -> list[str]:
    return FLAGS


@pytest.fixture(scope="module")
def compared(cache, tmp_path_factory) -> tuple[Path, Comparison]:
    """(folder, what came of it)."""
    out = tmp_path_factory.mktemp("studies") / "compared"
    return out, compare_configs(SHARED, ARMS, out, quiet=True)
