"""What a run measures, read back from where loggers wrote it: CSV, TensorBoard, Weights & Biases."""

import csv
import json
import sys

import pytest
import stub_runs
import tiny_runs
from stub_runs import CHUNKS, CONFIG

from sadq import SADQ
from sadq.callbacks import CSV, Logger, TensorBoard, WeightsAndBiases
from sadq.cli import main as cli
from sadq.errors import SadqError
from sadq.experiment.folder import EVALUATIONS, METRICS
from sadq.experiment.loggers import logger_of

MEMBERS = len(CONFIG.seeds)
FIELDS = {
    name: value
    for name, value in vars(CONFIG).items()
    if name not in ("preset", "environment", "agent", "seeds", "steps")
}


def agent() -> SADQ:
    return SADQ("BitFlip-3", agent="dueling+sadq", seeds=2, **FIELDS)


def rows_of(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_row_of_every_member(stub_loops, tmp_path):
    model = agent().learn(CONFIG.steps, callback=CSV(tmp_path / "csv"))
    metrics, evaluations = (rows_of(tmp_path / "csv" / f"{name}.csv") for name in ("metrics", "evaluations"))
    assert len(metrics) == MEMBERS * CHUNKS and len(evaluations) == MEMBERS * (CHUNKS + 1)
    for written, rows in ((metrics, model.metrics), (evaluations, model.evaluations)):
        assert [(int(row["step"]), int(row["member"])) for row in written] == [
            (row["step"], row["member"]) for row in rows
        ]
    assert [float(row["loss"]) for row in metrics] == [row["loss"] for row in model.metrics]
    assert [float(row["mean_return"]) for row in evaluations] == [row["returns"][0] for row in model.evaluations]


def test_csv_goes_on_where_it_was_and_repeats_nothing(stub_loops, tmp_path):
    model = agent().learn(16, callback=CSV(tmp_path)).learn(16, callback=CSV(tmp_path))
    steps = [int(row["step"]) for row in rows_of(tmp_path / "metrics.csv")]
    assert steps == [row["step"] for row in model.metrics]
    assert [int(row["step"]) for row in rows_of(tmp_path / "evaluations.csv")] == [
        row["step"] for row in model.evaluations
    ]


def test_a_column_that_was_not_there_at_first_is_left_out_and_one_that_is_missing_stays_empty(tmp_path):
    class Source:
        metrics, evaluations = [], []

    logger, source = CSV(tmp_path), Source()
    logger.begin(source)
    source.metrics += [{"step": 8, "member": 0, "loss": 1.0, "text": "no number", "nothing": None}]
    logger(None)
    source.metrics += [{"step": 16, "member": 0, "other": 2.0}]
    source.evaluations += [
        {"step": 16, "member": 0, "returns": [1, None, 3], "measures": {"success": 0.5, "odd": None}}
    ]
    logger.end()
    assert rows_of(tmp_path / "metrics.csv") == [
        {"step": "8", "member": "0", "loss": "1.0"},
        {"step": "16", "member": "0", "loss": ""},
    ]
    assert rows_of(tmp_path / "evaluations.csv") == [
        {"step": "16", "member": "0", "measures.success": "0.5", "mean_return": "2.0"}
    ]


@pytest.mark.parametrize("kind", [CSV, TensorBoard, lambda path: WeightsAndBiases(dir=path)])
@pytest.mark.parametrize("place", ["file", "file/below", "/proc", "/proc/nope"])
def test_a_folder_that_cannot_be_written_to_is_a_sentence(stub_loops, tmp_path, kind, place):
    for package in ("tensorboard", "wandb"):
        pytest.importorskip(package)
    (tmp_path / "file").write_text("")
    model = agent()
    with pytest.raises(SadqError, match="Cannot log to .*: .*; give another folder"):
        model.learn(CONFIG.steps, callback=kind(tmp_path / place))
    assert model.num_timesteps == 0


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\xff\xfe\x00s", b"\n"])
def test_a_file_that_is_not_of_this_logger_is_not_added_to(stub_loops, tmp_path, content):
    (tmp_path / "evaluations.csv").write_bytes(content)
    with pytest.raises(SadqError, match="evaluations.csv, which begins with .*, expected step,member: give another"):
        agent().learn(CONFIG.steps, callback=CSV(tmp_path))
    assert (tmp_path / "evaluations.csv").read_bytes() == content


def test_what_is_no_path_is_refused_at_once():
    with pytest.raises(SadqError, match="None is no path"):
        CSV(None)


def test_tensorboard_reads_what_was_written(stub_loops, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    model = agent().learn(CONFIG.steps, callback=TensorBoard(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["member-0", "member-1"]
    for member in range(MEMBERS):
        read = accumulator.EventAccumulator(str(tmp_path / f"member-{member}"))
        read.Reload()
        own = [row for row in model.evaluations if row["member"] == member]
        scalars = read.Scalars("evaluations/mean_return")
        assert [(each.step, each.value) for each in scalars] == [(row["step"], row["returns"][0]) for row in own]
        assert len(read.Scalars("metrics/loss")) == CHUNKS


def test_weights_and_biases_keeps_a_run_offline(stub_loops, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logged = []
    log = wandb.Run.log
    monkeypatch.setattr(wandb.Run, "log", lambda self, data, *more: logged.append(data) or log(self, data, *more))
    agent().learn(CONFIG.steps, callback=WeightsAndBiases("tests", mode="offline", dir=str(tmp_path)))
    (run,) = tmp_path.glob("wandb/offline-run-*")
    assert list(run.glob("*.wandb"))
    assert len(logged) == MEMBERS * (2 * CHUNKS + 1)
    assert {"member-0/evaluations/mean_return", "env_step"} <= logged[MEMBERS].keys() | logged[0].keys() | logged[
        -1
    ].keys()


@pytest.mark.parametrize(("package", "name"), [("tensorboard", "tensorboard"), ("wandb", "wandb")])
def test_a_package_that_is_missing_is_a_sentence(tmp_path, monkeypatch, package, name):
    for module in [module for module in sys.modules if module.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SadqError, match=rf"needs it installed: pip install 'sadq\[{package}\]'"):
        logger_of(name, tmp_path)


def test_a_logger_of_ones_own_needs_but_one_method():
    with pytest.raises(NotImplementedError, match="Own has no `write`"):
        type("Own", (Logger,), {})().write("metrics", 0, 0, {})


def test_the_command_line_logs_into_the_run_folder(stub_loops, tmp_path, monkeypatch):
    monkeypatch.setattr(stub_runs.Experiment, "describe", lambda self: "a run")
    flags = tiny_runs.options(out=tmp_path / "run", steps=CONFIG.steps, evaluations=CHUNKS)
    with pytest.raises(SystemExit) as exit:
        cli.main(["train", "bitflip", "sadq", *flags, "--log", "csv", "--quiet"])
    assert exit.value.code == 0
    written = rows_of(tmp_path / "run" / "logs" / "csv" / "metrics.csv")
    assert len(written) == len(tiny_runs.lines(tmp_path / "run" / METRICS)) == MEMBERS * CHUNKS
    assert len(rows_of(tmp_path / "run" / "logs" / "csv" / "evaluations.csv")) == len(
        tiny_runs.lines(tmp_path / "run" / EVALUATIONS)
    )
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == CONFIG.steps
