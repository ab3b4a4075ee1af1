"""Learning on, saving and loading: in one go or in several, an agent is the same to the bit."""

import dataclasses
import errno
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs
from tiny_models import STATES, assert_same_state, plain, weights
from tiny_runs import TINY

from sadq import SADQ, SadqError
from sadq.experiment.build import hyper_of, make_learner, resolve


def test_learning_is_that_of_the_command_line(model, tmp_path):
    experiment = tiny_runs.train(tmp_path / "run")
    mine, theirs = weights(model), tiny_runs.checkpoint.named_leaves(experiment.state)
    assert all(value.tobytes() == theirs[name].tobytes() for name, value in mine.items())
    assert model.evaluations == experiment.folder.evaluations
    assert tiny_runs.untimed(model.metrics) == tiny_runs.untimed(experiment.folder.metrics)


def test_learning_tells_its_steps_and_its_result(model):
    assert model.num_timesteps == TINY.steps
    assert (model.result["run"], model.result["steps"]) == (None, TINY.steps)
    assert [member["seed"] for member in model.result["members"]] == [0, 1]


def test_nothing_to_learn_is_refused():
    with pytest.raises(SadqError, match="learn was asked for 0 steps: expected a whole number of at least 1"):
        plain().learn(0)


@pytest.fixture(scope="module")
def twice(cache) -> SADQ:
    """Learned in two goes of 64 steps."""
    return plain().learn(64).learn(64)


def test_learning_again_goes_on_from_where_it_was(twice):
    assert twice.num_timesteps == 128
    assert [row["step"] for row in twice.metrics] == [16, 32, 48, 64, 80, 96, 112, 128]
    assert [row["step"] for row in twice.evaluations] == [0, 16, 32, 48, 64, 80, 96, 112, 128]


def test_learning_again_compiles_nothing_again(twice):
    loop = twice._begun().loop
    before = loop.programs.compile_seconds
    assert plain().learn(64).learn(61).num_timesteps == 128
    again = plain().learn(64)
    compiled = again._begun().loop.programs.compile_seconds
    again.learn(64).learn(32)
    assert again._begun().loop.programs.compile_seconds == compiled > 0
    assert loop.programs.compile_seconds == before


def test_every_go_has_a_schedule_of_its_own():
    """Ten short goes are not one whose learning rate is long at zero."""
    config = dataclasses.replace(TINY, steps=160, learning_rate=(0.5,))
    learner = make_learner(config, resolve("BitFlip-3"))
    for origin, steps in ((0, 160), (20, 320), (100, 960)):
        own = jax.tree.map(lambda leaf: leaf[0], hyper_of(dataclasses.replace(config, steps=steps), origin))
        done = [float(learner.phase(own, jnp.int32(origin + collects - 1)).progress) for collects in (0, 10, 20)]
        assert done == [0.0, pytest.approx(80 / (steps - origin * 8)), pytest.approx(160 / (steps - origin * 8))]
        assert float(learner.phase(own, jnp.int32(origin - 1)).rate) == 0.5


def test_two_goes_end_in_the_state_of_one_where_no_schedule_spans_the_run(twice):
    assert_same_state(twice, plain().learn(128))


def test_a_saved_agent_learns_on_exactly_as_the_one_that_was_saved(twice, tmp_path):
    plain().learn(64).save(tmp_path / "agent")
    loaded = SADQ.load(tmp_path / "agent").learn(64)
    assert_same_state(loaded, twice)
    assert tiny_runs.untimed(loaded.metrics) == tiny_runs.untimed(twice.metrics)
    assert loaded.evaluations == twice.evaluations


def test_steps_are_rounded_up_to_whole_collects():
    assert plain().learn(61).num_timesteps == 64


def test_a_callback_sees_each_chunk_and_stops_by_false():
    seen = []
    model = plain().learn(64, callback=lambda progress: seen.append(progress.step) or len(seen) < 2)
    assert seen == [16, 32]
    assert model.num_timesteps == 32


def test_a_progress_bar_is_shown_only_where_it_is_asked_for(capsys):
    plain().learn(64)
    assert capsys.readouterr().err == ""
    plain().learn(64, progress_bar=True)
    assert "step 64/64" in capsys.readouterr().err


def test_a_saved_agent_comes_back_as_it_was(model, saved):
    loaded = SADQ.load(saved)
    assert_same_state(loaded, model)
    assert loaded.config == model.config
    assert loaded.num_timesteps == model.num_timesteps
    assert (loaded.metrics, loaded.evaluations) == (model.metrics, model.evaluations)
    for member in range(2):
        np.testing.assert_array_equal(loaded.predict(STATES, member=member)[0], model.predict(STATES, member=member)[0])


def test_a_saved_agent_is_a_folder_without_any_code(saved):
    files = {str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file()}
    assert {Path(name).suffix for name in files} == {".json", ".jsonl", ".safetensors"}
    assert json.loads((saved / "config.json").read_text())["config"]["agent"] == "dueling+sadq"


def test_saving_again_replaces_the_agent(model, tmp_path):
    model.save(tmp_path / "agent")
    model.save(str(tmp_path / "agent"))
    assert_same_state(SADQ.load(tmp_path / "agent"), model)
    assert len(list((tmp_path / "agent" / "checkpoints").iterdir())) == 1


def test_saving_over_something_else_is_refused(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("three years of work")
    with pytest.raises(SadqError, match="exists and is no saved agent"):
        model.save(tmp_path)
    with pytest.raises(SadqError, match="exists and is no saved agent"):
        model.save(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "three years of work"


def test_a_full_disk_while_saving_leaves_the_agent_that_was_there(model, tmp_path):
    model.save(tmp_path / "agent")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((SadqError, OSError)):
            model.save(tmp_path / "agent")
    assert_same_state(SADQ.load(tmp_path / "agent"), model)


@pytest.mark.parametrize("content", [None, "{}"])
def test_loading_what_is_no_agent_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(SadqError, match="is no run folder|is not of a run of this version"):
        SADQ.load(tmp_path)


def test_loading_a_run_without_a_checkpoint_is_refused(saved, tmp_path):
    run = tiny_runs.copied(saved, tmp_path / "run")
    tiny_runs.shutil.rmtree(run / "checkpoints")
    with pytest.raises(SadqError, match="has no checkpoint: give the folder of a saved agent or of a run that has one"):
        SADQ.load(run)


def test_a_run_of_the_command_line_can_be_loaded_and_saved_elsewhere(tmp_path, model):
    tiny_runs.train(tmp_path / "run")
    loaded = SADQ.load(tmp_path / "run")
    assert_same_state(loaded, model)
    loaded.save(tmp_path / "elsewhere")
    assert (tmp_path / "run" / "result.json").exists()
    assert_same_state(SADQ.load(tmp_path / "elsewhere"), model)


def test_loading_a_run_that_is_still_going_leaves_its_files_alone(saved, tmp_path):
    run = tiny_runs.copied(saved, tmp_path / "run")
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": TINY.steps + 200, "member": 0}) + "\n")
    before = (run / "metrics.jsonl").read_bytes()
    SADQ.load(run)
    assert (run / "metrics.jsonl").read_bytes() == before
