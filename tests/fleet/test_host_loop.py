"""Training on environments outside JAX: learning, masks, workers, and exact resume in the middle of episodes."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_runs
from tiny_runs import TINY

from sadq.errors import SadqError
from sadq.experiment import opening
from sadq.fleet.devices import Placement
from sadq.fleet.host_loop import HostLoop

HOST = dataclasses.replace(
    TINY,
    environment="gymnasium:CartPole-v1",
    agent="dqn",
    alpha=None,
    replay=None,
    n_step=None,
    steps=6 * 5 * 8,
    evaluations=6,
)


def on(environment: str, **changes):
    return dataclasses.replace(HOST, environment=environment, **changes)


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("host") / "run"
    tiny_runs.train(path, HOST)
    return path


@pytest.fixture(scope="module")
def halfway(cache, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("host") / "run"
    tiny_runs.train(path, HOST, tiny_runs.stop_at(HOST.steps // 2))
    return path


def test_a_gymnasium_environment_trains_and_leaves_the_rows_of_any_run(whole):
    metrics, evaluations = tiny_runs.lines(whole / "metrics.jsonl"), tiny_runs.lines(whole / "evaluations.jsonl")
    assert [row["step"] for row in metrics] == sorted([*range(40, 241, 40)] * 2)
    assert [row["step"] for row in evaluations] == sorted([*range(0, 241, 40)] * 2)
    assert all(np.isfinite([row["loss"], row["q"], row["delta_q"], row["steps_per_second"]]).all() for row in metrics)
    assert sum(row["episodes"] for row in metrics) > 0
    for row in evaluations:
        assert row["returns"] == row["lengths"], "CartPole pays 1 a step"
        assert all(8 <= length <= 500 for length in row["lengths"])


def test_an_evaluation_that_looks_elsewhere_finds_the_same(cache):
    experiment = opening.create(HOST, None)
    experiment.begin()
    experiment.rows()  # which waits for the evaluation that is under way
    loop = experiment.loop
    expected = loop.evaluate(experiment.state, 3)
    loop._looking = Placement(len(HOST.seeds), tuple(jax.local_devices(backend="cpu")[:1]))
    assert loop._looking is not loop.placement
    found = loop.evaluate(experiment.state, 3)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(one, other)
    experiment.close()


def test_learning_changes_the_network_and_the_target_follows(whole):
    experiment = opening.create(HOST, None)
    experiment.begin()
    start, end = {**tiny_runs.checkpoint.named_leaves(experiment.state)}, tiny_runs.tensors(whole)
    experiment.close()
    for part in (".learner.online", ".learner.target"):
        weights = [name for name in start if name.startswith(part) and name.endswith("weight")]
        assert weights and all(not np.array_equal(start[name], end[name]) for name in weights)


def test_the_training_return_is_the_mean_of_whole_episodes(whole):
    """CartPole pays 1 a step, so all returns together are the steps but for those of episodes still under way."""
    metrics, end = tiny_runs.lines(whole / "metrics.jsonl"), tiny_runs.tensors(whole)
    for member in range(2):
        own = [row for row in metrics if row["member"] == member and row["episodes"]]
        returned = sum(row["training_return"] * row["episodes"] for row in own)
        under_way = end["lengths"][member].sum()
        assert returned + under_way == pytest.approx(HOST.steps, rel=1e-5)
        np.testing.assert_array_equal(end[".episode_return"][member], end["lengths"][member])


def test_a_resume_in_the_middle_of_episodes_is_exact(whole, halfway, tmp_path):
    path, said = tiny_runs.copied(halfway, tmp_path / "run"), []
    assert (tiny_runs.tensors(path)["lengths"] > 0).any(), "nothing was under way: this would test little"
    experiment = tiny_runs.resume(path, warn=said.append)
    tiny_runs.assert_same_run(path, whole)
    assert experiment.result()["exact_resume"] is True
    assert said == []


def test_worker_processes_change_nothing_but_the_time(whole, tmp_path):
    tiny_runs.train(tmp_path / "run", dataclasses.replace(HOST, workers=2))
    tiny_runs.assert_same_run(tmp_path / "run", whole)


def test_a_run_begun_without_workers_resumes_with_them(whole, halfway, tmp_path):
    path = tiny_runs.copied(halfway, tmp_path / "run")
    record = json.loads((path / "config.json").read_text())
    record["config"]["workers"] = 2
    (path / "config.json").write_text(json.dumps(record))
    tiny_runs.resume(path)
    tiny_runs.assert_same_run(path, whole)


def test_an_environment_that_does_not_repeat_itself_is_told_at_the_resume_and_ever_after(tmp_path):
    path, said = tmp_path / "run", []
    tiny_runs.train(path, on("odd_environments:Unseeded-v0"), tiny_runs.stop_at(80))
    tiny_runs.resume(path, tiny_runs.stop_at(160), said.append)
    assert said == ["odd_environments:Unseeded-v0 did not repeat its episodes, so this resume is not bit-exact."]
    assert tiny_runs.resume(path).exact is False
    assert json.loads((path / "result.json").read_text())["exact_resume"] is False


def test_a_folder_of_an_environment_registered_as_nondeterministic_says_so_from_the_start(tmp_path):
    opening.create(on("odd_environments:Dice-v0"), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["exact_resume"] is False


def test_training_and_evaluation_take_legal_actions_only(tmp_path):
    """The environment dies of any other, and half of all actions would be."""
    tiny_runs.train(tmp_path / "run", on("odd_environments:Masked-v0"))
    end = tiny_runs.tensors(tmp_path / "run")
    assert end[".replay.mask"].any() and not end[".replay.mask"].all()
    taken = np.take_along_axis(end[".replay.mask"], end[".replay.action"][..., None], axis=-1)
    assert taken.all()


def test_an_environment_that_breaks_in_training_ends_the_run_with_a_sentence_that_can_be_resumed(tmp_path):
    with pytest.raises(
        SadqError, match=r"Faulty-reward-v0 returned the reward nan from step, expected a number finite"
    ):
        tiny_runs.train(tmp_path / "run", on("odd_environments:Faulty-reward-v0"))
    assert (tmp_path / "run" / "config.json").exists()
    assert tiny_runs.leftovers(tmp_path / "run") == []


def test_the_checkpoint_of_a_native_run_is_refused(halfway, tmp_path):
    path = tiny_runs.copied(halfway, tmp_path / "run")
    newest = tiny_runs.checkpoint.latest(path / "checkpoints")
    _, state, _ = tiny_runs.checkpoint.load(newest)
    tiny_runs.store(newest, {f"state{name}": value for name, value in state.items()})
    with pytest.raises(SadqError, match="saved state|does not belong"):
        tiny_runs.resume(path)


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="LunarLander needs the extra box2d")
def test_lunarlander_trains(tmp_path):
    config = on("LunarLander-v3", seeds=(3,), agent="dueling+sadq", alpha=(0.2,), steps=160, evaluations=2)
    experiment = opening.create(config, tmp_path / "run")
    tiny_runs.drive(experiment, lambda _: None)
    assert isinstance(experiment.loop, HostLoop)
    for row in tiny_runs.lines(tmp_path / "run" / "metrics.jsonl"):
        names = ("loss", "delta_q", "disagreement", "greedy_minus_mixed", "model_state_loss", "model_sigma")
        assert np.isfinite([row[name] for name in names]).all()
    steps = [row["step"] for row in tiny_runs.lines(tmp_path / "run" / "evaluations.jsonl")]
    assert (steps[0], steps[-1]) == (0, 160)
    assert experiment.result()["members"][0]["status"] == "ok"
