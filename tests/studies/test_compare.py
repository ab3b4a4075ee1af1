"""Comparisons: paired seeds, the same numbers twice, gone on with where they were stopped, and on a user's environment."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import sadq
from sadq.cli import main as cli
from sadq.errors import SadqError, SadqWarning
from sadq.experiment.scores import final_return
from sadq.report import stats, verdicts
from sadq.report.page import write_report
from sadq.studies import compare as study
from sadq.studies import sweep
from sadq.studies.compare import compare_configs
from sadq.studies.display import Display
from sadq.studies.judged import Judged, Outcome

ARMS = ["dqn", "dqn+sadq"]


def document(out: Path) -> bytes:
    return (out / study.DOCUMENT).read_bytes()


def test_every_arm_has_a_fleet_with_the_same_seeds(compared):
    out, found = compared
    for arm in ARMS:
        header = json.loads((out / "runs" / arm / "config.json").read_text())
        assert [member["seed"] for member in header["members"]] == [0, 1, 2]
        assert header["config"]["agent"] == arm
    record = found.as_dict()
    assert [arm["arm"] for arm in record["arms"]] == ARMS
    assert [(one["arm"], one["base"]) for one in record["contrasts"]] == [("dqn+sadq", "dqn")]
    assert record["seeds"] == [0, 1, 2] and json.loads(document(out)) == record
    assert (out / "report" / "index.html").exists() and found.report == out / "report" / "index.html"


def test_scores_are_those_of_the_runs(compared):
    out, found = compared
    for outcome in found.judged.outcomes:
        result = json.loads((outcome.folder / "result.json").read_text())
        scores = found.scores[outcome.arm.label]
        for member in result["members"]:
            assert scores["final_return"][member["seed"]] == pytest.approx(member["final_return"])
            assert scores["area_under_curve"][member["seed"]] == pytest.approx(member["area_under_curve"])
    first, second = found.judged.outcomes
    threshold = found.judged.threshold
    start = np.concatenate([first.returns[:, 0], second.returns[:, 0]]).mean()
    best = max(stats.interquartile_mean(final_return(each.returns)) for each in (first, second))
    assert threshold == (pytest.approx(start + 0.8 * (best - start)) if best > start else None)
    differences = found.as_dict()["contrasts"][0]["measures"]["final_return"]["differences"]
    assert differences == pytest.approx(final_return(second.returns) - final_return(first.returns), abs=1e-12)


def test_contrasts_are_corrected_together_and_said_in_words(compared):
    _, found = compared
    (contrasts,) = found.judged.contrasts.values()
    assert [one.measure for one in contrasts] == list(verdicts.MEASURES.values())
    open_ones = [one for one in contrasts if one.outcome not in ("equal", "unknown")]
    assert [one.corrected_p for one in open_ones] == stats.holm([one.difference.p_value for one in open_ones])
    assert found.verdicts == {"dqn+sadq": verdicts.verdict("dqn+sadq", "dqn", contrasts)}
    lines = str(found).splitlines()
    assert lines[0] == "BitFlip-2:" and found.verdicts["dqn+sadq"] in lines
    assert any(line.startswith("dqn+sadq ") and " dqn " in line for line in lines)


def test_the_page_corrects_over_the_same_comparisons(compared):
    out, found = compared
    (contrast,) = found.as_dict()["contrasts"]
    for page in (out / "report", write_report([out / "runs"], out / "later").parent):
        (comparison,) = json.loads((page / "report.json").read_text())["comparisons"]
        assert comparison["other"]["label"] == contrast["arm"] and not comparison["unlike"]
        for name, measure in contrast["measures"].items():
            if measure["outcome"] != "unknown":
                shown = comparison["measures"][name]
                for key in ("corrected_p_value", "comparisons", "outcome"):
                    assert shown[key] == measure[key], (page, name, key)


def test_what_diverged_is_among_the_notes_and_a_run_without_evaluations_is_refused(compared, tmp_path):
    shutil.copytree(compared[0] / "runs" / "dqn+sadq", tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    result["members"][0] |= {"status": "diverged", "diverged_at": 1200}
    result["members"][2] |= {"model_diverged_at": 600}
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    arm = sadq.studies.arms.Arm.parse("dqn+sadq")
    judged = Judged("BitFlip-2", [Outcome(arm, tmp_path / "run")], {})
    assert judged.diverged and not compared[1].judged.diverged
    assert judged.notes == [
        "dqn+sadq: seed 0 diverged at step 1,200 and stood still after.",
        "dqn+sadq: the model of seed 2 diverged at step 600 and stood still after.",
    ]
    rows = [json.loads(row) for row in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    rows[-1]["returns"] = [None]
    (tmp_path / "run" / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lacking = Judged("BitFlip-2", [Outcome(arm, tmp_path / "run")], {}).notes[0]
    assert lacking == "dqn+sadq: seed 2 lacks an evaluation, so it is left out of what that is needed for."
    (tmp_path / "run" / "evaluations.jsonl").write_text("")
    with pytest.raises(SadqError, match="has no evaluations: restore its evaluations.jsonl"):
        Outcome(arm, tmp_path / "run")


def test_nothing_learned_leaves_nothing_to_reach(compared):
    outcome = compared[1].judged.outcomes[0]
    scores = outcome.scores(None)
    assert np.isnan([*scores["steps_to_threshold"].values()]).all() and outcome.reached(None) == 0
    assert scores["final_return"] == outcome.scores(1.0)["final_return"]


def test_arms_that_end_at_different_steps_are_compared_up_to_the_first(compared, tmp_path):
    """As where whole chunks of their collects differ: a later end is no later arrival, and the page says the same."""
    out = tmp_path / "longer"
    shutil.copytree(compared[0], out)
    rows = out / "runs" / "dqn+sadq" / "evaluations.jsonl"
    more = [json.dumps({"step": 9000, "member": member, "returns": [-1.0], "overestimation": 0}) for member in range(3)]
    rows.write_text(rows.read_text() + "\n".join(more) + "\n")
    outcomes = [Outcome(sadq.studies.arms.Arm.parse(arm), out / "runs" / arm) for arm in ARMS]
    judged = Judged("BitFlip-2", outcomes, {"dqn+sadq": "dqn"}, 1e9)
    (contrasts,) = judged.contrasts.values()
    assert {*contrasts[0].difference.differences} == {0.0}, "no seed of either arrives"
    page = write_report(
        [out / "runs" / arm for arm in ARMS], out / "report", threshold=1e9, arms=ARMS, bases=judged.bases
    )
    (comparison,) = json.loads((page.parent / "report.json").read_text())["comparisons"]
    for one in contrasts:
        assert comparison["measures"][one.measure.name]["differences"] == pytest.approx(one.difference.differences)


def test_trained_again_the_document_is_the_same_to_the_byte(compared, shared, tmp_path):
    compare_configs(shared, ARMS, tmp_path / "again", quiet=True, report=False)
    assert document(tmp_path / "again") == document(compared[0])


def test_repeated_in_its_folder_nothing_is_trained(compared, shared, monkeypatch):
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("trained again"))
    out, before = compared[0], document(compared[0])
    compare_configs(shared, ARMS, out, quiet=True, report=False)
    assert document(out) == before


def test_stopped_anywhere_and_repeated_the_document_is_the_same(compared, shared, tmp_path, monkeypatch):
    """A member of a fleet is saved after every chunk here, so it stops in the middle of the second arm."""
    out, update, carried = tmp_path / "stopped", Display.update, []

    def stop(self, name, progress):
        update(self, name, progress)
        return not (name == "dqn+sadq" and progress.step >= 800)

    with monkeypatch.context() as patched:
        patched.setattr(Display, "update", stop)
        with pytest.raises(KeyboardInterrupt):
            compare_configs(shared, ARMS, out, quiet=True, report=False)
    assert sweep.finished(out / "runs" / "dqn") and not sweep.finished(out / "runs" / "dqn+sadq")
    assert not (out / study.DOCUMENT).exists()
    with pytest.raises(SadqError, match="is not finished"):
        Outcome(sadq.studies.arms.Arm.parse("dqn+sadq"), out / "runs" / "dqn+sadq")
    carry_out = sweep.carry_out
    monkeypatch.setattr(sweep, "carry_out", lambda *given: carried.append(given[1].name) or carry_out(*given))
    compare_configs(shared, ARMS, out, quiet=True, report=False)
    assert carried == ["dqn+sadq"] and document(out) == document(compared[0])


def test_a_folder_of_another_question_is_refused(compared, shared):
    for name, value in (("batch_size", 5), ("seeds", (0, 1))):
        with pytest.raises(SadqError, match=f"holds a run with another {name} .*give another folder"):
            compare_configs(dataclasses.replace(shared, **{name: value}), ARMS, compared[0], quiet=True)
    immaterial = dataclasses.replace(shared, checkpoint_seconds=5.0)
    assert compare_configs(immaterial, ARMS, compared[0], quiet=True, report=False).judged.outcomes


def test_what_cannot_be_written_is_said_in_a_sentence(compared, shared, tmp_path):
    out = tmp_path / "obstructed"
    shutil.copytree(compared[0] / "runs", out / "runs")
    (out / study.DOCUMENT).mkdir()
    with pytest.raises(SadqError, match="comparison.json cannot be written .*: give another folder with --out"):
        compare_configs(shared, ARMS, out, quiet=True, report=False)


def test_what_is_missing_is_said_before_anything_is_trained(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("trained"))
    with pytest.raises(SadqError, match="unknown environment"):
        compare_configs(dataclasses.replace(shared, environment="BitFlop-2"), ARMS, tmp_path, quiet=True)


def test_the_same_question_has_the_same_folder(shared):
    folder = study.default_folder(shared, ARMS, "bitflip")
    assert folder == study.default_folder(shared, ["DQN", "dqn+sadq"], "bitflip")
    assert folder.parent == Path("runs") and folder.name.startswith("compare-bitflip-")
    assert folder != study.default_folder(dataclasses.replace(shared, steps=9), ARMS, "bitflip")
    assert folder != study.default_folder(shared, ["dqn", "dqn+sadq@0.5"], "bitflip")


def test_the_command_prints_one_document_and_a_table_beside_it(compared, flags, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("trained again"))
    out, found = compared
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", "bitflip", *ARMS, *flags, "--out", str(out), "--json"])
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert json.loads(printed.out) == found.as_dict() and printed.out.count("\n") == 1
    assert str(found) in printed.err and f"report: {found.report}" in printed.err
    assert printed.err.count("is finished already") == 2


class Lamp(gymnasium.Env):
    """Action 1 pays, and an episode has four steps."""

    observation_space = gymnasium.spaces.Box(0, 4, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full(1, self.time, np.float32), float(action), self.time == 4, False, {}


def test_a_users_own_environment_from_python(capfd):
    """What its runs have to say is a warning there: printed, a program could not tell it from progress."""
    fields = {"steps": 64, "collect": 16, "environments": 2, "batch_size": 4, "updates_per_collect": 1, "workers": 0}
    small = {"buffer_size": 64, "evaluations": 2, "evaluation_episodes": 1, "learning_rate": 0.01}
    arms = ["dqn:encoder.hidden=[4]", "double:encoder.hidden=[4]"]
    with pytest.warns(SadqWarning, match=r"^dqn:encoder.hidden=\[4\]: environment Lamp names no time limit"):
        found = sadq.compare(Lamp, arms, seeds=np.int64(2), **fields, **small)
    assert not capfd.readouterr().err
    assert found.report is None and found.judged.environment == "Lamp"
    assert set(found.scores) == {"dqn:encoder.hidden=[4]", "double:encoder.hidden=[4]"}
    assert all(0 <= value <= 4 for value in found.scores["double:encoder.hidden=[4]"]["final_return"].values())
    assert "double:encoder.hidden=[4]" in found.verdicts


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"arms": ["dqn"]}, "1 arm given, expected at least 2"),
        ({"arms": ARMS, "learning_rat": 1.0}, "Unknown field 'learning_rat'"),
        ({"arms": ARMS, "against": "double"}, "There is no arm double to compare with"),
        ({"arms": ARMS, "threshold": math.nan}, "threshold = nan must be a finite number"),
        ({"arms": ARMS, "threshold": -math.inf}, "threshold = -inf must be a finite number"),
        ({"arms": ARMS, "threshold": "3"}, "threshold = '3' must be a finite number"),
        ({"arms": ARMS, "seeds": 2.5}, "seeds = 2.5 must be how many"),
        ({"arms": ARMS, "seeds": "3"}, "seeds = '3' must be how many"),
        ({"arms": ["dqn", None]}, "None is no arm"),
        ({"arms": ["dqn:batch_size=8,n_step=3", "dqn:n_step=3,batch_size=8"]}, "are one agent with the same settings"),
        ({"arms": ["dqn", "dqn:learning_rate=0.01", "dqn:learning_rate=1e-2"]}, "learning_rate=1e-2 are one agent"),
        ({"arms": ["sadq", "sadq@0.5"], "alpha": 0.5}, "dueling.sadq and dueling.sadq@0.5 are one agent"),
        ({"arms": "dqn"}, "arms = 'dqn' must be a list of arms"),
        ({"arms": ARMS, "runner": "ray"}, "runner = 'ray' must be what runs jobs, such as a RayRunner"),
        ({"arms": ARMS, "learning_rate": "a"}, "learning_rate = 'a' must be a tuple of numbers"),
        ({"arms": ["dqn", "double"], "learning_rate": [0.1, 0.2]}, "dqn has several values of learning_rate"),
    ],
)
def test_bad_input_from_python_is_one_sentence(given, sentence, monkeypatch):
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("trained"))
    with pytest.raises(SadqError, match=sentence):
        sadq.compare("CartPole-v1", **given)
