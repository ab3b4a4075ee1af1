"""Run folders: whole, unfinished, killed in the middle of a line, damaged, and not runs at all."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sadq.errors import SadqError
from sadq.report.runs import Run as load
from sadq.report.runs import differences, load_all
from sadq.report.watch import Watched

Make = Callable[..., Path]
HEADER = (
    '{"format": 2, "config": {"environment": "E", "agent": "dqn", "environment_settings": ODD}, '
    '"members": [{"seed": 0, "alpha": 0.5}]}'
)


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_reads_curves_and_members(make_run: Make) -> None:
    run = load(make_run("a", "dueling+sadq", [(0, 1, 2), (1, 2, 3)], seeds=[7, 9], diverged={1: 1500}))
    assert (run.name, run.environment, run.agent) == ("a", "BitFlip", "dueling+sadq")
    assert (run.base_agent, run.guided, run.finished, run.last_step, run.planned_steps) == (
        "dueling",
        True,
        True,
        2000,
        2000,
    )
    np.testing.assert_array_equal(run.steps, [0, 1000, 2000])
    np.testing.assert_array_equal(run.returns, [[0, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(run.overestimation, np.full((2, 3), 0.5))
    np.testing.assert_array_equal(run.metric_steps, [1000, 2000])
    np.testing.assert_allclose(run.metrics["model_state_loss"], [[1e-3, 5e-4]] * 2)
    assert np.isnan(run.metrics["training_return"]).all()
    assert [(m.seed, m.alpha, m.diverged, m.diverged_at) for m in run.members] == [
        (7, 0.2, False, None),
        (9, 0.2, True, 1500),
    ]
    assert run.notes == ()


def test_the_papers_agent_is_guided_dueling(make_run: Make) -> None:
    assert load(make_run("a", "SADQ")).agent == "dueling+sadq"


def test_half_a_last_line_is_skipped_with_its_evaluation(make_run: Make) -> None:
    folder = make_run("a", curves=[(0, 1), (0, 1)], finished=False)
    append(
        folder / "evaluations.jsonl", '{"step": 2000, "member": 0, "returns": [9], "overestimation": 0}\n{"step": 20'
    )
    append(folder / "metrics.jsonl", '{"step": 2000, "mem')
    run = load(folder)
    np.testing.assert_array_equal(run.steps, [0, 1000])
    assert not run.finished
    assert "2,000" in run.notes[0] and "incomplete" in run.notes[0]


def test_a_cut_inside_a_letter_is_half_a_line_too(make_run: Make) -> None:
    folder = make_run("a")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write('{"é'.encode()[:-1])
    assert load(folder).metric_steps.size == 1


def test_every_prefix_of_the_evaluations_can_be_read(make_run: Make) -> None:
    folder = make_run("a", curves=[(0, 1), (0, 1)], finished=False)
    content = (folder / "evaluations.jsonl").read_bytes()
    for length in range(len(content)):
        (folder / "evaluations.jsonl").write_bytes(content[:length])
        known = np.isfinite(load(folder).returns)
        assert (known.all(axis=1) | ~known.any(axis=1)).all()


@pytest.mark.parametrize("missing", ["evaluations.jsonl", "metrics.jsonl", "result.json"])
def test_missing_files_are_an_unfinished_run(make_run: Make, missing: str) -> None:
    folder = make_run("a")
    (folder / missing).unlink()
    run = load(folder)
    assert run.finished == (missing != "result.json")
    assert bool(run.steps.size) == (missing != "evaluations.jsonl")


def test_a_damaged_result_is_named(make_run: Make) -> None:
    folder = make_run("a")
    (folder / "result.json").write_text('{"run": "a", "mem')
    run = load(folder)
    assert not run.finished and "result.json is damaged" in run.notes[0]


def test_a_result_of_other_members_is_named(make_run: Make) -> None:
    folder = make_run("a", diverged={0: 5})
    (folder / "result.json").write_text('{"members": []}')
    assert "other members" in load(folder).notes[0]
    (folder / "result.json").write_text('{"members": [{"diverged_at": "late"}]}')
    assert "other members" in load(folder).notes[0]


def test_of_two_lines_for_one_cell_the_later_counts(make_run: Make) -> None:
    folder = make_run("a", curves=[(0, 1)])
    append(folder / "evaluations.jsonl", '{"step": 1000, "member": 0, "returns": [5, 7], "overestimation": null}\n')
    run = load(folder)
    np.testing.assert_array_equal(run.returns, [[0, 6]])
    np.testing.assert_array_equal(run.overestimation, [[0.5, np.nan]])


def test_what_is_not_finite_is_not_known(make_run: Make) -> None:
    folder = make_run("a", curves=[(0, 1)])
    append(
        folder / "evaluations.jsonl", '{"step": 2000, "member": 0, "returns": [NaN, 1], "overestimation": Infinity}\n'
    )
    append(folder / "evaluations.jsonl", '{"step": 3000, "member": 0, "returns": [], "overestimation": 1}\n')
    run = load(folder)
    np.testing.assert_array_equal(run.returns, [[0, 1, np.nan, np.nan]])
    np.testing.assert_array_equal(run.overestimation, [[0.5, 0.5, np.nan, 1]])


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", '{"format": 2, "con', "cannot be read"),
        ("config.json", "[]", "cannot be read"),
        ("config.json", '{"format": 1}', "format 1, expected 2"),
        ("config.json", '{"format": 2}', "no environment and agent"),
        ("config.json", '{"format": 2, "config": {"environment": "E", "agent": "dqn"}, "members": []}', "`members`"),
        ("config.json", '{"format": 2, "config": {"environment": "E", "agent": "dqn"}, "members": [{}]}', "`seed`"),
        ("config.json", HEADER.replace("ODD", "5"), "a list as `environment_settings`"),
        ("config.json", HEADER.replace("ODD", "[]").replace("0.5", '"x"'), "a number, or null, as `alpha`"),
        ("evaluations.jsonl", '{"step": 0, "mem\n{"step": 0, "member": 0, "returns": [1]}\n', "Line 1 of"),
        ("evaluations.jsonl", '[1]\n{"step": 0, "member": 0, "returns": [1]}\n', "Line 1 of"),
        ("evaluations.jsonl", '{"step": 0, "member": 9, "returns": [1]}\n', "`member` below 1"),
        ("evaluations.jsonl", '{"step": 0, "member": 0, "returns": ["x"]}\n', "expected numbers"),
        ("evaluations.jsonl", '{"step": null, "member": 0}\n', "expected numbers"),
        ("metrics.jsonl", '{"member": 0}\n', "expected numbers"),
    ],
)
def test_damage_is_told_in_one_sentence(make_run: Make, file: str, content: str, words: str) -> None:
    folder = make_run("a")
    (folder / file).write_text(content)
    with pytest.raises(SadqError) as caught:
        load(folder)
    assert words in str(caught.value) and str(folder / file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(SadqError, match=r"has no config\.json, so it is not a run"):
        load(tmp_path)
    with pytest.raises(SadqError, match="is not a folder, so it is not a run"):
        load(tmp_path / "nowhere")


def test_a_place_that_cannot_be_read_is_told_in_one_sentence(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for place, words in ((tmp_path / ("long" * 100), "cannot be read"), (loop, "loop")):
        with pytest.raises(SadqError, match=words):
            load_all([place])
        with pytest.raises(SadqError, match=words):
            Watched([place])


def test_names_take_parents_until_they_differ(make_run: Make) -> None:
    folders = [make_run("x/run"), make_run("y/run")]
    assert [run.name for run in load_all(folders)] == ["x/run", "y/run"]
    assert [run.name for run in load_all(folders[:1])] == ["run"]
    with pytest.raises(SadqError, match="more than once"):
        load_all([folders[0], str(folders[0]) + "/."])
    with pytest.raises(SadqError, match="No run was given"):
        load_all([])


def test_only_differing_settings_are_listed(make_run: Make) -> None:
    left = make_run("a", "dqn", config={"batch": 32, "hidden": [8, 8], "target": 4})
    right = make_run(
        "b", "dqn+sadq", [(0, 1)] * 2, seeds=[0, 0], alphas=[0, 0.5], config={"batch": 64, "hidden": [8, 8]}
    )
    found = dict(differences(load_all([left, right])))
    assert found == {
        "agent": ["dqn", "dqn+sadq"],
        "batch": ["32", "64"],
        "target": ["4", ""],
        "members: alpha": ["null", "0, 0.5"],
        "members: seed": ["0", "0, 0"],
    }


def test_unknown_fields_are_no_obstacle(make_run: Make) -> None:
    folder = make_run("a")
    append(folder / "metrics.jsonl", json.dumps({"step": 5000, "member": 0, "note": "text", "shape": [1, 2]}) + "\n")
    assert "note" not in load(folder).metrics
