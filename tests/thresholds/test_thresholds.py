"""Agents reach the returns that they should; slow, run by `make learn`."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from sadq.agents import AGENTS, SUFFIX
from sadq.experiment.opening import create
from sadq.experiment.presets import preset

pytestmark = pytest.mark.learning

FOUNDATION = ["dqn", "double", "dueling", "dqn+sadq", "double+sadq", "dueling+sadq"]
VARIANTS = [name + suffix for name in AGENTS for suffix in ("", SUFFIX)]


def finals(environment: str, agent: str, steps: int, seeds: int = 3) -> np.ndarray:
    """The final return of every seed of a run with the default preset."""
    config = dataclasses.replace(
        preset("default", agent), environment=environment, steps=steps, seeds=tuple(range(seeds)), evaluations=25
    )
    experiment = create(config, None)
    experiment.begin()
    experiment.run()
    return np.array([member["final_return"] for member in experiment.result()["members"]])


@pytest.mark.parametrize("agent", FOUNDATION)
def test_cartpole_is_balanced(agent):
    returns = finals("CartPole-v0", agent, 100_000)
    assert returns.mean() >= 180, returns


@pytest.mark.parametrize("agent", ["sadq", "dueling"])
@pytest.mark.parametrize(
    ("environment", "steps", "reached"), [("CartPole-v1", 50_000, 359.0), ("BitFlip-6", 40_000, 0.9)]
)
def test_what_a_newcomer_tries_first_is_learned(environment, steps, reached, agent):
    """CartPole's limit is the mean of a peer that was tuned to it (docs/agents.md)."""
    returns = finals(environment, agent, steps, seeds=5)
    assert returns.mean() >= reached, returns


@pytest.mark.parametrize("agent", FOUNDATION)
def test_acrobot_swings_up(agent):
    returns = finals("Acrobot-v1", agent, 200_000)
    assert returns.mean() >= -110, returns


@pytest.mark.parametrize("agent", [name for name in VARIANTS if name not in FOUNDATION])
def test_acrobot_swings_up_for_every_agent(agent):
    returns = finals("Acrobot-v1", agent, 300_000, seeds=2)
    assert returns.mean() >= -120, returns


@pytest.mark.parametrize("agent", ["sunrise", "sunrise+sadq", "bdqn"])
def test_agents_of_uncertainty_do_not_get_stuck_on_the_papers_cartpole(agent):
    """Without epsilon SUNRISE stayed at 9 of 200: its networks agree on what they have never tried."""
    experiment = create(preset("cartpole", agent, seeds=(0, 1, 2)), None)
    experiment.begin()
    experiment.run()
    returns = np.array([member["final_return"] for member in experiment.result()["members"]])
    assert returns.mean() >= 150, returns


@pytest.mark.parametrize("agent", VARIANTS)
def test_every_agent_trains_from_the_command_line(agent, tmp_path):
    command = [sys.executable, "-m", "sadq", "train", "acrobot", agent, "--steps", "5000", "--seeds", "1"]
    done = subprocess.run(
        [*command, "--json", "--quiet", "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    (member,) = json.loads(done.stdout)["members"]
    assert member["status"] == "ok" and -500 <= member["final_return"] <= 0


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
