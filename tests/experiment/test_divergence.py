"""What a member that diverges does: it is named, frozen at its last finite parameters, and nobody else notices."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import tiny_runs
from tiny_runs import CHUNK, TINY

from sadq.experiment import checkpoint, opening

INTERVAL = CHUNK * TINY.collect

# One member learns as in the whole run; the other's first update throws its weights to 1e30.
DIVERGING = dataclasses.replace(TINY, seeds=(0,), learning_rate=(1e-3, 1e30))


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    """(folder, what was said, the parameters after each chunk) of a fleet with one member that blows up."""
    path, said, states = tmp_path_factory.mktemp("diverged") / "run", [], []
    experiment = opening.create(DIVERGING, path)
    experiment.warn = said.append

    def watch(_):
        states.append(checkpoint.named_leaves(experiment.state.learner))

    tiny_runs.drive(experiment, watch)
    return path, said, states


def test_a_diverged_member_is_named_once_with_its_step(diverged):
    path, said, _ = diverged
    result = json.loads((path / "result.json").read_text())
    healthy, broken = result["members"]
    assert (healthy["status"], broken["status"]) == ("ok", "diverged")
    assert 0 < broken["diverged_at"] <= INTERVAL
    assert broken["diverged_at"] % TINY.collect == 0
    assert said == [
        f"Member 1 (seed 0) diverged at step {broken['diverged_at']}: the loss of its values was not finite; that stays "
        "frozen at its last finite parameters, the others go on."
    ]


def test_a_diverged_member_keeps_its_last_finite_parameters(diverged):
    _, _, states = diverged
    frozen = {name for name in states[0] if ".online" in name}
    assert frozen
    for name in frozen:
        assert np.isfinite(states[0][name][1]).all(), name
        assert all(np.array_equal(state[name][1], states[0][name][1]) for state in states), name
    assert any(np.abs(states[0][name][1]).max() > 1e20 for name in frozen), "it did move before it was frozen"


def test_the_other_members_go_on_as_if_nothing_had_happened(diverged, whole):
    path, _, _ = diverged
    mine, theirs = tiny_runs.tensors(path), tiny_runs.tensors(whole)
    for name, value in theirs.items():
        assert value[0].tobytes() == mine[name][0].tobytes(), name


def test_rows_of_a_diverged_member_are_still_json(diverged):
    path, _, _ = diverged
    text = (path / "metrics.jsonl").read_text() + (path / "evaluations.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert {row["loss"] for row in tiny_runs.lines(path / "metrics.jsonl") if row["member"] == 1} == {None}


def test_a_resume_keeps_a_diverged_member_frozen_and_does_not_name_it_again(diverged, tmp_path):
    whole_path, _, _ = diverged
    path, said = tmp_path / "run", []
    tiny_runs.train(path, DIVERGING, tiny_runs.stop_at(TINY.steps // 2))
    tiny_runs.resume(path, warn=said.append)
    assert said == []
    tiny_runs.assert_same_run(path, whole_path)
    results = [json.loads((folder / "result.json").read_text())["members"] for folder in (path, whole_path)]
    assert results[0][1]["diverged_at"] == results[1][1]["diverged_at"]


def test_numbers_that_overflow_never_enter_a_members_state_unnamed():
    """Its losses stay just finite, but from an infinite second moment on no parameter ever moves again."""
    experiment = opening.create(dataclasses.replace(DIVERGING, learning_rate=(1e-3, 1e5)), None)
    tiny_runs.drive(experiment, lambda _: None)
    for name, leaf in checkpoint.named_leaves(experiment.state.learner).items():
        assert np.isfinite(leaf[1]).all(), name


# The same two members' program, where both models blow up at once and values are to learn on.
MODEL_DIVERGING = dataclasses.replace(
    TINY, seeds=(0,), alpha=(1.0, 0.2), guidance=dataclasses.replace(TINY.guidance, learning_rate=1e30)
)


@pytest.fixture(scope="module")
def model_diverged():
    """(what was said, the result, the learners after each chunk)."""
    said, states = [], []
    experiment = opening.create(MODEL_DIVERGING, None)
    experiment.warn = said.append
    tiny_runs.drive(experiment, lambda _: states.append(checkpoint.named_leaves(experiment.state.learner)))
    return said, experiment.result(), states


def test_a_diverged_model_is_named_apart_from_its_member(model_diverged):
    said, result, _ = model_diverged
    for index, member in enumerate(result["members"]):
        assert (member["status"], member["diverged_at"]) == ("ok", None)
        step = member["model_diverged_at"]
        assert 0 < step <= INTERVAL and step % TINY.collect == 0
        assert said[index] == (
            f"Member {index} (seed 0) diverged at step {step}: the loss of its model was not finite; that stays frozen at "
            "its last finite parameters, its values go on learning with the model as it was."
        )
    assert len(said) == 2


def test_values_learn_on_beside_a_diverged_model(model_diverged):
    _, _, states = model_diverged
    for name, value in states[0].items():
        assert np.isfinite(states[-1][name]).all(), name
        if name.startswith(".model"):
            assert all(np.array_equal(state[name], value) for state in states), name
    weights = [name for name in states[0] if name.startswith(".online.parameters") and name.endswith("weight")]
    assert weights
    for name in weights:
        for before, after in itertools.pairwise(states[:5]):
            assert all((before[name][member] != after[name][member]).any() for member in range(2)), name


SHORT = dataclasses.replace(MODEL_DIVERGING, steps=5 * INTERVAL, evaluations=5)


@pytest.fixture(scope="module")
def unguided():
    """What the member would be without any model."""
    plain = dataclasses.replace(SHORT, agent="dueling", alpha=None)
    return checkpoint.named_leaves(tiny_runs.drive(opening.create(plain, None), lambda _: None).state)


@pytest.mark.exact
@pytest.mark.parametrize("gate", ["fixed", "batch", "sample"])
def test_whatever_the_gate_a_diverged_model_costs_nothing_but_its_advice(gate, unguided):
    """At alpha 1 the member is its base bit for bit, although every score and error of the model is not a number."""
    guided = tiny_runs.drive(opening.create(dataclasses.replace(SHORT, gate=gate), None), lambda _: None)
    assert (np.asarray(guided.state.learner.model.diverged_at) > 0).all()
    assert (np.asarray(guided.state.learner.online.diverged_at) == -1).all()
    mine = checkpoint.named_leaves(guided.state)
    for name, value in unguided.items():
        assert value[0].tobytes() == mine[name][0].tobytes(), name
