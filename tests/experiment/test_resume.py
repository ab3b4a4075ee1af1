"""However a run is interrupted, it ends in the same bits as one that was not."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_runs
from tiny_runs import CHUNK, CHUNKS, MEMBERS, TINY, assert_same_run, copied, options

from sadq.cli import main as cli
from sadq.errors import SadqError
from sadq.experiment import checkpoint, progress
from sadq.experiment.folder import CHECKPOINTS, METRICS
from sadq.experiment.opening import reopen

ROWS = CHUNKS * MEMBERS


def main(*arguments: str | Path) -> int:
    """The command line's exit code, in this process."""
    with pytest.raises(SystemExit) as exit:
        cli.main([str(argument) for argument in arguments])
    return exit.value.code


@pytest.fixture(scope="module")
def resumed(halfway, tmp_path_factory) -> Path:
    """The run that was stopped halfway, gone on with to its end."""
    run = copied(halfway, tmp_path_factory.mktemp("resumed") / "run")
    tiny_runs.resume(run)
    return run


def test_a_run_that_its_callback_stopped_goes_on_as_if_it_had_not(halfway, resumed, whole):
    assert not (halfway / "result.json").exists()
    assert len(tiny_runs.lines(halfway / METRICS)) == ROWS // 2
    assert_same_run(resumed, whole)
    assert tiny_runs.leftovers(resumed) == []


def test_the_result_of_a_resumed_run_is_that_of_a_whole_one_but_for_the_time_it_took(halfway, resumed, whole):
    spent = json.loads((checkpoint.latest(halfway / CHECKPOINTS) / checkpoint.META).read_text())["wall_seconds"]
    mine, theirs = (json.loads((folder / "result.json").read_text()) for folder in (resumed, whole))
    assert mine["wall_seconds"] > spent
    for result in (mine, theirs):
        for name in ("run", "wall_seconds", "compile_seconds", "steps_per_second"):
            del result[name]
    assert mine == theirs


def test_a_run_may_be_stopped_after_its_first_chunk_and_before_its_last(whole, tmp_path):
    run, chunk = tmp_path / "run", CHUNK * TINY.collect
    tiny_runs.train(run, callback=tiny_runs.stop_at(chunk))
    tiny_runs.resume(run, tiny_runs.stop_at(TINY.steps - chunk))
    assert len(tiny_runs.lines(run / METRICS)) == ROWS - MEMBERS
    tiny_runs.resume(run)
    assert_same_run(run, whole)


def test_rows_that_were_written_after_the_checkpoint_are_written_again_not_twice(halfway, whole, tmp_path):
    run = copied(halfway, tmp_path / "run")
    later = [row for row in tiny_runs.lines(whole / METRICS) if row["step"] > TINY.steps // 2][:3]
    with open(run / METRICS, "a") as file:
        file.write("".join(json.dumps(row | {"loss": -1.0}) + "\n" for row in later) + '{"step": 52')
    (run / f".{METRICS}.99.tmp").write_text("left by a kill")
    tiny_runs.resume(run)
    assert_same_run(run, whole)


def test_a_folder_with_a_config_and_no_checkpoint_starts_again_from_step_0(halfway, whole, tmp_path):
    run = copied(halfway, tmp_path / "run")
    shutil.rmtree(run / CHECKPOINTS)
    seen = []
    tiny_runs.resume(run, lambda progress: seen.append(progress.step))
    assert seen[0] == CHUNK * TINY.collect
    assert_same_run(run, whole)


def test_a_run_killed_between_its_last_checkpoint_and_its_result_only_needs_the_result(whole, tmp_path):
    run = copied(whole, tmp_path / "run")
    (run / "result.json").unlink()
    tiny_runs.resume(run, lambda _: pytest.fail("trained on"))
    assert_same_run(run, whole)
    mine, theirs = (json.loads((folder / "result.json").read_text())["members"] for folder in (run, whole))
    assert mine == theirs


def test_a_damaged_checkpoint_is_refused_and_the_advice_to_delete_it_works(halfway, whole, tmp_path):
    run = copied(halfway, tmp_path / "run")
    newest = checkpoint.latest(run / CHECKPOINTS)
    (newest / checkpoint.TENSORS).write_bytes((newest / checkpoint.TENSORS).read_bytes()[:-100])
    with pytest.raises(SadqError, match=f"is damaged.*delete {newest} to resume from the checkpoint before it"):
        tiny_runs.resume(run)
    shutil.rmtree(newest)
    tiny_runs.resume(run)
    assert_same_run(run, whole)


def test_the_checkpoint_of_a_run_with_another_network_is_refused(halfway, tmp_path):
    run = copied(halfway, tmp_path / "run")
    newest = checkpoint.latest(run / CHECKPOINTS)
    wider = {
        f"state{name}": np.repeat(value, 2, axis=-1) if ".encoder" in name else value
        for name, value in tiny_runs.tensors(run).items()
    }
    tiny_runs.store(newest, wider)
    with pytest.raises(SadqError, match=r"does not belong to this run: .*encoder.*float32\[2, 1, 6, 16\]"):
        tiny_runs.resume(run)


def test_a_resumed_state_lies_on_its_devices_as_a_fresh_one_does(halfway, tmp_path):
    """JAX compiles a program of its own for arguments that are bound to a device."""
    experiment = reopen(copied(halfway, tmp_path / "run"))
    experiment.begin()
    for restored, fresh in zip(
        jax.tree.leaves(experiment.state), jax.tree.leaves(experiment.loop.start()), strict=True
    ):
        assert (restored.committed, restored.sharding) == (fresh.committed, fresh.sharding)


class Interrupting:
    """Stands in for the progress display: sends this process signals once the run has come to a step."""

    def __init__(self, step: int, *numbers: int):
        self.step, self.numbers = step, numbers

    @contextlib.contextmanager
    def __call__(self, experiment, quiet=False):
        def update(progress):
            if progress.step >= self.step:
                self.step = TINY.steps + 1
                for number in self.numbers:
                    os.kill(os.getpid(), number)

        yield update


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_says_how_to_resume_and_exits_130(whole, tmp_path, monkeypatch, capsys, number):
    run, handler = tmp_path / "run", signal.getsignal(number)
    monkeypatch.setattr(progress, "display", Interrupting(3_000, number))
    assert main("train", "bitflip", "sadq", *options(out=run, checkpoint_seconds="3600")) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"sadq: stopped and saved at step 3,000; go on with `sadq resume {run}`."
    assert signal.getsignal(number) is handler
    assert not (run / "result.json").exists()
    assert main("resume", run) == 0
    assert_same_run(run, whole)


def test_a_second_ctrl_c_stops_at_once_and_the_run_still_resumes(whole, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    monkeypatch.setattr(progress, "display", Interrupting(3_000, signal.SIGINT, signal.SIGINT))
    assert main("train", "bitflip", "sadq", *options(out=run)) not in (0, 2)
    assert checkpoint.latest(run / CHECKPOINTS).name == f"{2_800 // TINY.collect:010d}", "not saved again"
    assert main("resume", run) == 0
    assert_same_run(run, whole)


def test_ctrl_c_during_the_last_chunk_changes_nothing(whole, tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setattr(progress, "display", Interrupting(TINY.steps, signal.SIGINT))
    assert main("train", "bitflip", "sadq", *options(out=run)) == 0
    assert_same_run(run, whole)


def test_a_finished_run_says_so_and_exits_0(whole, capsys):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert main("resume", whole, "--json") == 0
    printed = capsys.readouterr()
    assert printed.err == f"{whole} is finished: {TINY.steps:,} steps; nothing to resume.\n"
    assert json.loads(printed.out.splitlines()[-1]) == json.loads((whole / "result.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def rows_in(run: Path) -> int:
    """Metrics written so far."""
    try:
        return (run / METRICS).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def killed(run: Path, arguments: tuple, rows: int, delay: float) -> bool:
    """Start the command line, wait for `rows` more rows of metrics and a moment more, kill it; False if it was done."""
    process = subprocess.Popen(
        tiny_runs.invocation(*arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=tiny_runs.variables(),
    )
    try:
        deadline = time.monotonic() + 120
        while not (run / "config.json").exists() or rows_in(run) < rows:
            if process.poll() is not None or time.monotonic() > deadline:
                break
            time.sleep(0.001)
        time.sleep(delay)
    finally:
        process.kill()
        _, said = process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0), said
    return process.returncode != 0


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_run_killed_twice_at_random_moments_ends_in_the_same_bits(number, whole, halfway, tmp_path):
    """Four kills in all: most while it trains and saves, one of them while it starts and compiles."""
    moments = random.Random(number)
    for attempt in range(4):
        run, kills, early = tmp_path / f"run{attempt}", 0, moments.randrange(2)
        for kill in range(2):
            written = rows_in(run)
            rows = 0 if kill == early and number % 2 else moments.randrange(written + 1, written + ROWS // 3)
            delay = moments.uniform(0, 1.5 if rows == 0 else 0.02)
            arguments = (
                ("resume", run) if (run / "config.json").exists() else ("train", "bitflip", "sadq", *options(out=run))
            )
            kills += killed(run, arguments, rows, delay)
        if kills == 2:
            break
    assert kills == 2, "the run was over before it could be killed, four times"
    finished = tiny_runs.command("resume", run)
    assert finished.returncode == 0, finished.stderr
    assert_same_run(run, whole)
    assert len(list((run / CHECKPOINTS).glob("[0-9]*"))) == 2
