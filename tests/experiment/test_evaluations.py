"""Evaluations beside training: the same rows as in turn, in order, before the checkpoint that follows; errors surface."""

import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

from sadq.errors import SadqError
from sadq.experiment import build, checkpoint, evaluations
from sadq.experiment.evaluations import Beside, json_number
from sadq.experiment.folder import CHECKPOINTS, RunFolder
from sadq.experiment.opening import create
from sadq.fleet.host_loop import HostLoop
from tiny import config

FIELDS = {
    "environment": "gymnasium:CartPole-v1",
    "steps": 640,
    "evaluations": 4,
    "checkpoint_seconds": 0.0,
    "workers": 0,
}


class InTurn:
    """What `Beside` stands for, without a thread."""

    def __init__(self, call):
        self._call = call

    def result(self):
        return self._call()

    def join(self):
        pass


def run(path, **fields):
    experiment = create(config("dqn", **(FIELDS | fields)), path)
    experiment.begin()
    assert experiment.run()
    experiment.close()
    return experiment


def test_beside_training_the_rows_are_those_of_evaluations_in_turn(tmp_path, monkeypatch):
    # A snapshot that training could change would, after this delay, be of later networks.
    evaluate = HostLoop.evaluate

    def slow(self, state, number):
        time.sleep(0.2)
        return evaluate(self, state, number)

    with monkeypatch.context() as patch:
        patch.setattr(HostLoop, "evaluate", slow)
        beside = run(tmp_path / "beside")
    monkeypatch.setattr(evaluations, "Beside", InTurn)
    in_turn = run(tmp_path / "in turn")
    rows = beside.folder.evaluations
    assert rows == in_turn.folder.evaluations and len({row["step"] for row in rows}) == 5
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
    leaves = zip(jax.tree.leaves(beside.state), jax.tree.leaves(in_turn.state), strict=True)
    assert all(np.array_equal(one, other) for one, other in leaves)


def test_several_evaluations_at_once_leave_the_same_rows_in_order(tmp_path, monkeypatch):
    played, under_way, most, three = HostLoop._played, [], [], threading.Event()

    def slow(self, environments, networks, number):
        under_way.append(number)
        most.append(len(under_way))
        if len(under_way) == 3:
            three.set()
        assert three.wait(60)
        time.sleep(0.0 if number else 0.2)  # the first is over last
        found = played(self, environments, networks, number)
        under_way.remove(number)
        return found

    one = run(tmp_path / "one")
    monkeypatch.setattr(HostLoop, "_played", slow)
    monkeypatch.setattr(build, "evaluations_at_once", lambda: 3)
    several = run(tmp_path / "several", workers=None, checkpoint_seconds=1e9)
    assert several.folder.evaluations == one.folder.evaluations
    assert max(most) == 3 == len(several.loop._evaluation)


def test_a_checkpoint_never_outlives_the_evaluations_before_it(tmp_path, monkeypatch):
    found, save = [], checkpoint.save

    def checked(folder, collect, *rest):
        written = RunFolder.open(folder.parent)[0].evaluations
        found.append((collect, max(row["step"] for row in written)))
        return save(folder, collect, *rest)

    monkeypatch.setattr(checkpoint, "save", checked)
    experiment = run(tmp_path / "run")
    interval = experiment.timetable.interval
    assert len(found) > 1
    for collect, newest in found:
        assert newest == collect // interval * interval * experiment.config.collect
    assert checkpoint.latest(tmp_path / "run" / CHECKPOINTS) is not None


def test_an_error_in_a_thread_is_raised_where_the_answer_is_asked_for(monkeypatch):
    def refuse(self, state, number):
        raise SadqError("environment broke, expected it whole: mend it.")

    monkeypatch.setattr(HostLoop, "evaluate", refuse)
    experiment = create(config("dqn", **FIELDS), None)
    experiment.begin()
    with pytest.raises(SadqError, match="environment broke"):
        experiment.run()
    experiment.close()


def test_an_interrupted_run_has_the_rows_of_what_it_had_begun(tmp_path):
    experiment = create(config("dqn", **FIELDS), tmp_path / "run")
    experiment.begin()
    assert not experiment.run(lambda progress: progress.step < 320)
    experiment.close()
    assert max(row["step"] for row in experiment.folder.evaluations) == 320


def test_a_process_that_ends_waits_for_what_is_under_way():
    """JAX aborts a process that ends in the middle of a program."""
    script = """
import time
from sadq.experiment.evaluations import Beside
Beside(lambda: (time.sleep(0.5), print("done", flush=True)))
raise ValueError("of the user's")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and ended.stdout == "done\n" and "of the user's" in ended.stderr


def test_a_call_answers_or_raises():
    assert Beside(lambda: 3).result() == 3
    with pytest.raises(ZeroDivisionError):
        Beside(lambda: 1 / 0).result()


def test_what_json_has_no_number_for_is_null():
    assert [json_number(value) for value in (1.23456789, np.nan, np.inf)] == [1.23457, None, None]
