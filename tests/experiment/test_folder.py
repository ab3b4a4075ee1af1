"""Run folders: what they refuse, what they keep, and what they forget on a resume."""

import errno
import json
import os

import pytest
import tiny_runs

from sadq.errors import SadqError
from sadq.experiment.folder import CONFIG, EVALUATIONS, METRICS, RESULT, RunFolder, describe
from sadq.experiment.records import to_json


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def evaluated(step, member):
    return {"step": step, "member": member, "returns": [1.0, 2]}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder.create(tmp_path / "run", tiny_runs.TINY, [{"seed": 0}, {"seed": 1}], {"steps": 2_400})
    made.release()
    return made


def test_a_new_folder_holds_all_that_is_needed_to_repeat_the_run(folder):
    record = json.loads((folder.path / CONFIG).read_text())
    assert record["config"] == json.loads(json.dumps(to_json(tiny_runs.TINY)))
    assert record["members"] == [{"seed": 0}, {"seed": 1}]
    assert record["steps"] == 2_400
    assert all(record[name] for name in ("format", "sadq", "jax", "python", "device", "command", "preset"))
    assert "cpu" in record["device"]


def test_a_folder_opens_as_the_config_that_it_was_made_with(folder):
    folder.add_metrics([{"step": 8, "member": 0}])
    folder.add_evaluations([evaluated(0, 0), evaluated(0, 1)])
    opened, config, record = RunFolder.open(folder.path)
    assert config == tiny_runs.TINY
    assert record == {
        **describe(tiny_runs.TINY, [{"seed": 0}, {"seed": 1}]),
        "steps": 2_400,
        "config": record["config"],
    }
    assert (opened.metrics, opened.evaluations) == (folder.metrics, folder.evaluations)
    assert len(opened.evaluations) == 2


def test_a_folder_that_holds_a_run_is_refused(folder):
    before = (folder.path / CONFIG).read_bytes()
    with pytest.raises(SadqError, match="already holds a run: continue it with `sadq resume .*`, or give another"):
        RunFolder.create(folder.path, tiny_runs.TINY, [], {})
    assert (folder.path / CONFIG).read_bytes() == before


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SadqError, match="Cannot write a run to .*: File exists; give another folder with --out"):
        RunFolder.create(tmp_path / "file" / "run", tiny_runs.TINY, [], {})
    with pytest.raises(SadqError, match="Cannot write a run to .*: File exists"):
        RunFolder.create(tmp_path / "file", tiny_runs.TINY, [], {})


def test_a_full_disk_at_the_start_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SadqError, match="Cannot write a run to .*: No space left on device"):
        RunFolder.create(tmp_path / "run", tiny_runs.TINY, [], {})
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is no run folder: it has no config.json"),
        (b"{half", "cannot be read .*: restore it, or train again"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "is not of a run of this version"),
        (b"{}", "is not of a run of this version"),
        (b'{"format": 1, "config": {}}', "has format 1: use the version of sadq that wrote it, or train again"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"format": 2, "config": {"stepz": 1}}', "unknown field 'stepz'"),
        (b'{"format": 2, "config": 3}', "config is not a table of fields"),
    ],
)
def test_what_is_no_run_folder_is_refused(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / CONFIG).write_bytes(content)
    with pytest.raises(SadqError, match=sentence) as refusal:
        RunFolder.open(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_path_that_is_a_file_is_no_run_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SadqError, match="Not a directory"):
        RunFolder.open(tmp_path / "file")


def test_a_line_that_a_kill_cut_short_is_left_out(folder):
    folder.add_metrics([{"step": 8, "member": 0}, {"step": 16, "member": 0}])
    with open(folder.path / METRICS, "a") as file:
        file.write('{"step": 24, "mem')
    assert [row["step"] for row in RunFolder.open(folder.path)[0].metrics] == [8, 16]


def test_a_whole_line_without_its_end_is_left_out(folder):
    """It may be a number cut short: 12 of 123."""
    (folder.path / METRICS).write_text('{"step": 8, "member": 0}\n{"step": 12, "member": 0}')
    assert [row["step"] for row in RunFolder.open(folder.path)[0].metrics] == [8]


ODD_LINES = ("3", "null", "[]", '{"step": "8", "member": 0}', '{"step": 8}', '{"step": 8, "member": true}', "\x00\x00",
             '{"step": 8, "member": 0, "loss": NaN}', '{"step": 8, "member": 0, "loss": 1e999}', "[" * 100_000)  # fmt: skip


@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: line[:40].replace("\x00", "0"))
def test_rows_are_read_up_to_the_first_odd_line_and_a_checkpoint_that_counts_more_is_refused(folder, line):
    folder.add_metrics([{"step": step, "member": 0} for step in (8, 16)])
    with open(folder.path / METRICS, "a") as file:
        file.write(f'{line}\n{{"step": 24, "member": 0}}\n')
    opened, *_ = RunFolder.open(folder.path)
    assert [row["step"] for row in opened.metrics] == [8, 16]
    before = (folder.path / METRICS).read_bytes()
    with pytest.raises(
        SadqError, match=f"{METRICS} has 2 whole lines up to step 24, but its checkpoint was saved with 4"
    ):
        opened.cut_back(24, {METRICS: 4, EVALUATIONS: 0})
    assert (folder.path / METRICS).read_bytes() == before
    opened.cut_back(16, {METRICS: 2, EVALUATIONS: 0})
    assert len(tiny_runs.lines(folder.path / METRICS)) == 2


@pytest.mark.parametrize("returns", ["[]", "3", '["a"]', '[null, "a"]', "[true]", "[[1]]"])
def test_an_evaluation_without_numbers_is_none(folder, returns):
    (folder.path / EVALUATIONS).write_text(f'{{"step": 0, "member": 0, "returns": {returns}}}\n')
    assert RunFolder.open(folder.path)[0].evaluations == []


def test_rows_that_cannot_be_read_are_a_sentence(folder):
    (folder.path / METRICS).mkdir()
    with pytest.raises(SadqError, match=f"{METRICS} cannot be read .Is a directory.: restore it, or train again"):
        RunFolder.open(folder.path)


def test_a_run_of_an_earlier_version_opens_and_tells_what_its_config_lacked(folder):
    record = json.loads((folder.path / CONFIG).read_text())
    del record["config"]["compute"], record["config"]["model"]["continuation"]
    (folder.path / CONFIG).write_text(json.dumps(record))
    opened, config, _ = RunFolder.open(folder.path)
    assert config == tiny_runs.TINY
    assert opened.filled == ("compute = 'float32'", "model.continuation = False")


def test_rows_after_the_checkpoint_are_forgotten_in_memory_and_on_disk(folder):
    rows = [{"step": step, "member": member} for step in (0, 8, 16, 24) for member in (0, 1)]
    folder.add_metrics(rows)
    folder.add_evaluations(rows[::2])
    folder.cut_back(8)
    assert [row["step"] for row in folder.metrics] == [0, 0, 8, 8]
    assert [row["step"] for row in folder.evaluations] == [0, 8]
    assert tiny_runs.lines(folder.path / METRICS) == folder.metrics
    assert tiny_runs.lines(folder.path / EVALUATIONS) == folder.evaluations
    folder.cut_back(-1)
    assert (folder.path / METRICS).read_text() == (folder.path / EVALUATIONS).read_text() == ""


def test_a_run_is_finished_once_it_has_a_whole_result(folder):
    assert folder.finished is None
    (folder.path / RESULT).write_text('{"steps": 12')
    assert folder.finished is None
    members = [{"seed": 3, "final_return": None, "status": "ok"}]
    whole = {"steps": 12, "members": members, "wall_seconds": 1.5, "compile_seconds": 1, "steps_per_second": 8.0}
    odd = [{}, [], 3, {"steps": 5}, whole | {"members": 3}, whole | {"members": [{}]}, whole | {"steps": "12"}]
    for result in odd:
        folder.finish(result)
        assert folder.finished is None, result
    folder.finish(whole)
    assert folder.finished == whole


def test_a_run_without_a_folder_keeps_its_rows_in_memory():
    folder = RunFolder(None)
    folder.add_metrics(iter([{"step": 8}]))
    folder.add_evaluations(iter([{"step": 0}]))
    folder.finish({"steps": 8})
    assert (folder.metrics, folder.evaluations) == ([{"step": 8}], [{"step": 0}])


def test_a_number_that_json_does_not_have_is_never_written(folder):
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.add_metrics([{"step": 8, "loss": float("nan")}])
    assert not (folder.path / METRICS).exists() or (folder.path / METRICS).read_text() == ""


def test_a_full_disk_while_writing_rows_is_a_sentence(folder, monkeypatch):
    monkeypatch.setattr("sadq.experiment.storage.open", full, raising=False)
    with pytest.raises(
        SadqError, match="Cannot write to .*metrics.jsonl: No space left on device; make room and resume"
    ):
        folder.add_metrics([{"step": 8}])


@pytest.mark.parametrize("call", [lambda folder: folder.finish({}), lambda folder: folder.cut_back(0)])
def test_a_full_disk_while_finishing_or_cutting_back_is_a_sentence(folder, monkeypatch, call):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SadqError, match="No space left on device|disk is full"):
        call(folder)
