"""An environment that breaks down in an evaluation says why, its member is frozen, and the others go on."""

import dataclasses
import json
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs
from tiny_runs import TINY

from sadq.cli.commands import _tell_result
from sadq.envs import registry
from sadq.envs.base import Environment
from sadq.errors import SadqError
from sadq.experiment import opening
from sadq.experiment.evaluate import evaluate_policy
from sadq.experiment.evaluations import trouble_in
from sadq.experiment.results import member_result

SHARE = 0.15


@dataclasses.dataclass(frozen=True)
class Fragile(Environment):
    """One step, whose reward is no number in some episodes that are judged by."""

    breaks: bool = False
    tells: bool = True
    name: str = dataclasses.field(default="Fragile", init=False)
    observation_size: int = 2
    action_count: int = 2
    max_steps: int = 1

    def initial(self, key):
        return jax.random.uniform(key)

    def transition(self, state, action, key):
        return state, jnp.where(self.breaks & (state < SHARE), jnp.nan, 1.0 * action), jnp.bool_(False)

    def observe(self, state):
        return jnp.stack([state, 1 - state])

    def measures(self, state):
        return {"drawn": state}

    def for_evaluation(self):
        return dataclasses.replace(self, breaks=True)

    def trouble(self, measures):
        return f"drew {measures['drawn']:.2f}, expected {SHARE} or more: draw again." if self.tells else None


@pytest.fixture
def fragile():
    registry.register("Fragile", Fragile, replace=True)
    yield dataclasses.replace(
        TINY, environment="Fragile", agent="dqn", alpha=None, seeds=(0, 1, 2, 3), steps=800, evaluations=4
    )
    registry._FACTORIES.pop("Fragile")


def test_the_member_alone_is_frozen_and_told_why(fragile, tmp_path):
    experiment, said = opening.create(fragile, tmp_path / "run"), []
    experiment.warn = said.append
    tiny_runs.drive(experiment, lambda _: None)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    rows = tiny_runs.lines(tmp_path / "run" / "evaluations.jsonl")
    broken = {}
    for row in rows:
        if None in row["returns"]:
            broken.setdefault(row["member"], row["step"])
    assert 0 < len(broken) < 4 and len(rows) == 20
    assert {m: member["diverged_at"] for m, member in enumerate(result["members"])} == {
        m: broken.get(m) for m in range(4)
    }
    assert len(said) == len(broken) and all("expected 0.15 or more: draw again." in sentence for sentence in said)
    assert all(f"Member {m} (seed {m}) is frozen at step {step}" in " ".join(said) for m, step in broken.items())
    for index, member in enumerate(result["members"]):
        assert member["status"] == ("diverged" if index in broken else "ok")
    learner = experiment.state.learner
    assert [int(step) for step in learner.online.diverged_at] == [broken.get(m, -1) for m in range(4)]
    with pytest.raises(SadqError, match="drew 0.*: draw again"):
        evaluate_policy("Fragile", "random", 50, 0)


def test_where_nobody_can_tell_the_environment_is_to_be_mended():
    returns, measures = np.array([1.0, np.nan]), {"drawn": np.array([0.5, 0.1])}
    assert trouble_in(Fragile(), returns, measures) == "drew 0.10, expected 0.15 or more: draw again."
    with pytest.raises(
        SadqError, match="environment Fragile returned rewards that are not finite.*fix the environment"
    ):
        trouble_in(Fragile(tells=False), returns, measures)


def test_a_member_without_one_whole_evaluation_has_no_score():
    rows = [{"step": step, "member": 0, "returns": [None, 1.0], "overestimation": None} for step in (0, 100)]
    rows += [{"step": step, "member": 1, "returns": [None if step else 1.0, 3.0]} for step in (0, 100)]
    folder: Any = types.SimpleNamespace(evaluations=rows, metrics=[])
    lost, once = (member_result(index, {"seed": index}, folder, {("values", index): 0}) for index in range(2))
    assert lost["final_return"] is None and lost["area_under_curve"] is None and lost["status"] == "diverged"
    assert once["final_return"] == 2.0
    json.dumps([lost, once], allow_nan=False)


def test_the_command_says_so(capsys):
    member = {"seed": 3, "alpha": None, "final_return": None, "status": "diverged"}
    result = {"members": [member], "steps": 10, "wall_seconds": 1.0, "steps_per_second": 10.0}
    _tell_result(result | {"compile_seconds": 0.0, "run": "runs/one"}, as_json=False)
    assert "no evaluation was whole (diverged)" in capsys.readouterr().out
