"""Agents reach the returns that they should; slow, run by `make learn`."""

import dataclasses

import numpy as np
import pytest

from sadq.experiment.presets import preset
from sadq.experiment.run import create

pytestmark = pytest.mark.learning


def finals(environment: str, agent: str, steps: int, **fields) -> np.ndarray:
    """The final return of every seed of a run with the default preset."""
    config = dataclasses.replace(
        preset("default", agent), environment=environment, steps=steps, seeds=(0, 1, 2), evaluations=25, **fields
    )
    experiment = create(config, None)
    experiment.begin()
    experiment.run()
    return np.array([member["final_return"] for member in experiment.result()["members"]])


@pytest.mark.parametrize("agent", ["dqn", "double", "dueling", "dqn+sadq", "double+sadq", "dueling+sadq"])
def test_cartpole_is_balanced(agent):
    returns = finals("CartPole-v0", agent, 100_000)
    assert returns.mean() >= 180, returns


@pytest.mark.parametrize("agent", ["dqn", "double", "dueling", "dqn+sadq", "double+sadq", "dueling+sadq"])
def test_acrobot_swings_up(agent):
    returns = finals("Acrobot-v1", agent, 200_000)
    assert returns.mean() >= -110, returns


def test_guidance_speeds_up_bitflip():
    """The paper's clearest claim: with 8 bits the guided agent solves in a tenth of the run what the base does not."""
    base = preset("bitflip")
    returns = {}
    for agent in ("dueling", "dueling+sadq"):
        config = dataclasses.replace(preset("bitflip", agent), steps=base.steps // 10, seeds=(0, 1, 2), evaluations=20)
        experiment = create(config, None)
        experiment.begin()
        experiment.run()
        returns[agent] = np.mean([member["final_return"] for member in experiment.result()["members"]])
    assert returns["dueling+sadq"] > returns["dueling"] + 0.2, returns
