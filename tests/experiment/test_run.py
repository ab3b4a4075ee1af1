"""A run from its first line to its last: what its folder holds, what its numbers mean."""

import dataclasses
import errno
import itertools
import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs
from tiny_runs import CHUNK, CHUNKS, MEMBERS, TINY

from sadq.envs.base import Environment
from sadq.errors import SadqError
from sadq.experiment import checkpoint, opening, run
from sadq.experiment.build import members_of
from sadq.experiment.scores import area_under_curve, final_return
from sadq.exploration.situation import settled_values

INTERVAL = CHUNK * TINY.collect
PLAIN_METRICS = {"training_return", "episodes", "loss", "q", "delta_q", "steps_per_second"}
GUIDED_METRICS = {
    "alpha",
    "disagreement",
    "greedy_minus_mixed",
    "model_state_loss",
    "model_reward_loss",
    "model_sigma",
}


@dataclasses.dataclass(frozen=True)
class Toll(Environment):
    """Three steps of the same reward, whatever is done."""

    reward: float = 2.0
    name = "Toll"
    observation_size = 1
    action_count = 2
    max_steps = 10

    def initial(self, key):
        return jnp.zeros(1)

    def transition(self, state, action, key):
        return state + 1, jnp.float32(self.reward), state[0] >= 2

    def observe(self, state):
        return state


PLAIN = dataclasses.replace(
    TINY,
    environment="Toll",
    agent="dqn",
    alpha=None,
    seeds=(5,),
    replay=None,
    n_step=None,
    steps=5 * 24,
    collect=24,
    evaluations=5,
)


@pytest.fixture(scope="module")
def toll():
    """A plain agent where every episode has the same return, in memory."""
    experiment = tiny_runs.drive(opening.create(PLAIN, None, Toll()), lambda _: None)
    return experiment.folder, experiment.result()


def test_a_finished_run_leaves_these_files_and_no_others(whole):
    assert {path.name for path in whole.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "evaluations.jsonl",
        "result.json",
        "checkpoints",
    }
    assert sorted(path.name for path in (whole / "checkpoints").iterdir()) == ["0000000975", "0000001000"]
    assert tiny_runs.leftovers(whole) == []


def test_the_config_states_the_intervals_that_the_rows_keep(whole):
    record = json.loads((whole / "config.json").read_text())
    assert record["steps"] == TINY.steps
    assert record["members"] == members_of(TINY)
    files = {"metrics.jsonl": ("metrics_interval", INTERVAL), "evaluations.jsonl": ("evaluation_interval", 0)}
    for name, (interval, first) in files.items():
        steps = range(first, TINY.steps + 1, record[interval])
        rows = [(row["step"], row["member"]) for row in tiny_runs.lines(whole / name)]
        assert rows == list(itertools.product(steps, range(MEMBERS)))


def test_a_guided_members_metrics_are_all_there_and_finite(whole):
    rows = tiny_runs.lines(whole / "metrics.jsonl")
    for row in rows:
        assert row.keys() >= {"step", "member"} | PLAIN_METRICS | GUIDED_METRICS
        assert all(math.isfinite(value) for value in row.values())
    assert {row["alpha"] for row in rows} == {0.2}
    assert all(0 <= row["disagreement"] <= 1 and row["delta_q"] >= 0 and row["model_sigma"] > 0 for row in rows)
    assert all(row["greedy_minus_mixed"] >= -1e-6 for row in rows), "a greedy base is never below the mixture"


def test_a_plain_members_metrics_have_nothing_of_a_model(toll):
    folder, result = toll
    for row in folder.metrics:
        assert row.keys() >= {"step", "member"} | PLAIN_METRICS
        assert not row.keys() & GUIDED_METRICS
    (member,) = result["members"]
    assert (member["alpha"], member["effective_alpha"]) == (None, None)
    assert not member.keys() & GUIDED_METRICS - {"alpha"}


def test_the_training_return_is_that_of_the_episodes_that_ended(toll):
    folder, _ = toll
    # 12 vector steps of 2 environments between two rows, 3 steps an episode.
    assert [row["episodes"] for row in folder.metrics] == [8] * 5
    assert [row["training_return"] for row in folder.metrics] == [6.0] * 5


def test_a_chunk_in_which_no_episode_ended_has_no_training_return():
    short = dataclasses.replace(PLAIN, steps=4, collect=4, evaluations=1)
    experiment = tiny_runs.drive(opening.create(short, None, Toll()), lambda _: None)
    (row,) = experiment.folder.metrics
    assert (row["training_return"], row["episodes"]) == (None, 0)


def test_an_evaluation_tells_returns_lengths_and_overestimation(toll):
    folder, _ = toll
    assert [row["step"] for row in folder.evaluations] == [0, 24, 48, 72, 96, 120]
    assert all(row["returns"] == [6.0, 6.0] and row["lengths"] == [3, 3] for row in folder.evaluations)


def test_overestimation_is_q_minus_the_discounted_return():
    experiment = opening.create(PLAIN, None, Toll())
    experiment.begin()
    (row,) = experiment.folder.evaluations
    networks = jax.tree.map(lambda leaf: leaf[0], experiment.state.learner.online.parameters)
    predicted = float(jnp.max(settled_values(networks, jnp.zeros((1, 1)), None)))
    assert row["overestimation"] == pytest.approx(predicted - 2 * (1 + 0.99 + 0.99**2), rel=1e-5)


def test_the_evaluations_of_the_tiny_run_are_episodes_of_its_environment(whole):
    for row in tiny_runs.lines(whole / "evaluations.jsonl"):
        assert row.keys() == {"step", "member", "returns", "lengths", "overestimation"}
        assert len(row["returns"]) == len(row["lengths"]) == TINY.evaluation_episodes
        assert all(value in (0.0, 1.0) for value in row["returns"])
        assert all(1 <= length <= 3 for length in row["lengths"])


def test_the_result_follows_from_the_rows(whole):
    result = json.loads((whole / "result.json").read_text())
    evaluations = tiny_runs.lines(whole / "evaluations.jsonl")
    assert result["run"] == str(whole)
    assert (result["environment"], result["agent"]) == ("BitFlip-3", "dueling+sadq")
    assert (result["steps"], result["exact_resume"]) == (TINY.steps, True)
    assert 0 < result["compile_seconds"] < result["wall_seconds"]
    assert result["steps_per_second"] > 0
    for index, member in enumerate(result["members"]):
        own = [row for row in evaluations if row["member"] == index]
        returns = [np.mean(row["returns"]) for row in own]
        assert (member["seed"], member["alpha"], member["status"]) == (TINY.seeds[index], 0.2, "ok")
        assert member["diverged_at"] is None
        assert member["final_return"] == pytest.approx(np.mean(returns[-5:]))
        # Evenly spaced trapezoids: the ends count half.
        assert member["area_under_curve"] == pytest.approx((sum(returns) - (returns[0] + returns[-1]) / 2) / CHUNKS)
        assert member["overestimation"] == own[-1]["overestimation"]
        last = tiny_runs.lines(whole / "metrics.jsonl")[-MEMBERS + index]
        assert member["effective_alpha"] == last["alpha"]
        assert {name: member[name] for name in GUIDED_METRICS - {"alpha"}} == {
            name: last[name] for name in GUIDED_METRICS - {"alpha"}
        }


def test_speed_leaves_compilation_out(toll):
    _, result = toll
    trained = result["wall_seconds"] - result["compile_seconds"]
    assert result["steps_per_second"] == pytest.approx(result["steps"] / trained, rel=0.1, abs=1000 / trained)


def test_members_with_different_seeds_share_nothing(whole):
    ends = tiny_runs.tensors(whole)
    weights = [value for name, value in ends.items() if ".online.parameters" in name and "weight" in name]
    assert weights and all(not np.any(value[0] == value[1]) for value in weights)


def test_the_config_is_written_before_anything_is_compiled(tmp_path, monkeypatch):
    experiment = opening.create(TINY, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.json", ".lock"}
    monkeypatch.setattr(run, "make_loop", lambda *_: pytest.fail("reached the compiler"))
    with pytest.raises(pytest.fail.Exception, match="reached the compiler"):
        experiment.begin()


def test_a_folder_with_a_run_is_refused_before_it_is_touched(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    with pytest.raises(SadqError, match="already holds a run"):
        opening.create(TINY, whole)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_checkpoint_says_where_it_stands(whole):
    newest = checkpoint.latest(whole / "checkpoints")
    record = json.loads((newest / checkpoint.META).read_text())
    assert (record["collect"], record["step"], record["exact"]) == (CHUNK * CHUNKS, TINY.steps, True)
    assert record["wall_seconds"] > 0


def test_a_callback_sees_every_chunk_and_its_false_stops_the_run(tmp_path):
    seen = []

    def watch(progress):
        seen.append(progress)
        return len(seen) < 3

    experiment = tiny_runs.train(tmp_path / "run", callback=watch)
    assert [(progress.step, progress.steps) for progress in seen] == [(n * INTERVAL, TINY.steps) for n in (1, 2, 3)]
    assert seen[-1].metrics == experiment.folder.metrics[-MEMBERS:]
    newest = experiment.folder.evaluations[-MEMBERS:]
    assert seen[-1].mean_return == pytest.approx(np.mean([row["returns"] for row in newest]))
    assert seen[-1].steps_per_second > 0
    assert experiment.folder.finished is None
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").name == f"{3 * CHUNK:010d}"


def test_checkpoints_keep_their_distance_in_time(tmp_path):
    patient = dataclasses.replace(TINY, checkpoint_seconds=3600.0)
    tiny_runs.train(tmp_path / "run", patient)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [f"{CHUNK * CHUNKS:010d}"]


def test_a_full_disk_in_the_middle_of_a_run_loses_only_what_came_after_the_last_checkpoint(tmp_path, whole):
    path = tmp_path / "run"

    def fill_the_disk(progress):
        if progress.step == 3 * INTERVAL:
            patch.setattr(os, "fsync", fail)

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(SadqError, match="No space left on device; make room and resume"),
    ):
        tiny_runs.train(path, callback=fill_the_disk)
    assert checkpoint.latest(path / "checkpoints").name == f"{2 * CHUNK:010d}"
    assert tiny_runs.leftovers(path) == []
    tiny_runs.resume(path)
    tiny_runs.assert_same_run(path, whole)


def test_a_native_environment_that_returns_nan_is_refused(tmp_path):
    with pytest.raises(SadqError, match="Toll"):
        tiny_runs.drive(opening.create(PLAIN, tmp_path / "run", Toll(reward=float("nan"))), lambda _: None)


def test_a_native_environment_of_another_shape_than_it_says_is_refused(tmp_path):
    class Wide(Toll):
        def observe(self, state):
            return jnp.zeros(3)

    with pytest.raises(SadqError, match="Toll"):
        tiny_runs.drive(opening.create(PLAIN, tmp_path / "run", Wide()), lambda _: None)


def test_the_final_return_is_the_mean_of_the_last_five():
    returns = np.arange(14.0).reshape(2, 7)
    np.testing.assert_allclose(final_return(returns), [4.0, 11.0])
    np.testing.assert_allclose(final_return(returns[:, :2]), [0.5, 7.5])
    assert np.isnan(final_return(np.zeros((2, 0)))).all()


def test_the_area_under_the_curve_is_a_time_average():
    steps, returns = np.array([0, 10, 40]), np.array([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(area_under_curve(steps, returns), [(10 * 1 + 30 * 2) / 40, 1.0])
    np.testing.assert_allclose(area_under_curve(steps[:1], returns[:, :1]), [0.0, 1.0])
