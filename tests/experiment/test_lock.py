"""A run folder has one writer: who it is, and that a dead one is none."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
import tiny_runs
from stub_runs import CONFIG, gone_on

from sadq.errors import SadqError
from sadq.experiment import lock
from sadq.experiment.lock import LOCK, Lock
from sadq.experiment.opening import create, reopen

HOLD = """
import os, sys, time
from pathlib import Path
from sadq.experiment.lock import Lock
lock = Lock(Path(sys.argv[1]))
if len(sys.argv) > 2 and os.fork() == 0:
    os.write(1, b"%d\\n" % os.getpid())  # in one piece, for both write into one pipe
    time.sleep(60)
os.write(1, b"held\\n")
time.sleep(60)
"""


@contextlib.contextmanager
def holder(folder, *more):
    """Another process that holds the lock of a folder."""
    command = [sys.executable, "-c", HOLD, str(folder), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=tiny_runs.variables())
    try:
        yield process, sorted(process.stdout.readline().strip() for _ in range(1 + len(more)))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_folder_in_use_is_refused_with_who_uses_it_and_free_when_that_was_killed(tmp_path):
    with holder(tmp_path) as (process, _):
        who = rf"process {process.pid} on {socket.gethostname()} \(-c .*, since \d{{4}}-.*\)"
        with pytest.raises(SadqError, match=rf"{tmp_path} is in use by {who}: wait until it is done, or stop it\."):
            Lock(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert (tmp_path / LOCK).exists(), "it could not tidy up"
        Lock(tmp_path).release()
    assert not (tmp_path / LOCK).exists()


def test_children_of_a_process_do_not_hold_its_lock_when_it_is_gone(tmp_path):
    with holder(tmp_path, "and fork") as (process, (child, _)):
        with pytest.raises(SadqError, match=f"process {process.pid}"):
            Lock(tmp_path)
        process.kill()
        process.wait()
        try:
            Lock(tmp_path).release()
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_one_process_cannot_hold_it_twice_either(tmp_path):
    held = Lock(tmp_path)
    with pytest.raises(SadqError, match=f"in use by process {os.getpid()}"):
        Lock(tmp_path)
    held.release()
    held.release()
    again = Lock(tmp_path)
    del again
    Lock(tmp_path).release()


def test_however_many_want_it_one_has_it_at_a_time(tmp_path):
    inside, most, taken = 0, 0, 0
    count = threading.Lock()

    def work():
        nonlocal inside, most, taken
        for _ in range(60):
            with contextlib.suppress(SadqError):
                held = Lock(tmp_path)
                with count:
                    inside += 1
                    most, taken = max(most, inside), taken + 1
                with count:
                    inside -= 1
                held.release()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most == 1 and taken > 10


@pytest.fixture
def no_system_locks(monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)


def record_of(folder, **changes) -> None:
    held = Lock(folder)
    told = json.loads((folder / LOCK).read_text())
    held.release()
    (folder / LOCK).write_text(json.dumps(told | changes))


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, False),
        ({"host": "elsewhere"}, False),
        ({"process": 2**22 + 1}, True),
        ({"began": "another start of the machine 17"}, True),
        ({"began": None}, True),
    ],
)
def test_without_locks_of_the_system_the_files_word_is_taken(tmp_path, no_system_locks, changes, free):
    record_of(tmp_path, **changes)
    if free:
        Lock(tmp_path).release()
    else:
        with pytest.raises(SadqError, match=f"or delete {tmp_path / LOCK} if that is over"):
            Lock(tmp_path)


def test_a_file_that_says_nothing_holds_nobody_up(tmp_path, no_system_locks, monkeypatch):
    for content in ("", "[1]", "\x00"):
        (tmp_path / LOCK).write_text(content)
        Lock(tmp_path).release()
    monkeypatch.setattr(lock, "fcntl", None)
    Lock(tmp_path).release()


def test_a_run_that_is_going_is_neither_resumed_nor_begun_again_and_stays_as_it_is(tmp_path, stub_loops):
    path = tmp_path / "run"
    experiment = create(CONFIG, path)
    for other in (lambda: reopen(path).begin(), lambda: gone_on(path)):
        with pytest.raises(SadqError, match=f"{path} is in use by process {os.getpid()}"):
            other()
    experiment.begin()
    with pytest.raises(SadqError, match="is in use by"):
        reopen(path).begin()
    experiment.run()
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file() and each.name != LOCK}
    with pytest.raises(SadqError, match="is in use by"):
        gone_on(path)
    assert before == {each: each.read_bytes() for each in path.rglob("*") if each.is_file() and each.name != LOCK}
    experiment.close()
    gone_on(path)
    assert not (path / LOCK).exists()


def test_a_run_that_went_on_between_opening_and_resuming_it_is_taken_up_where_it_is(tmp_path, stub_loops):
    path = tmp_path / "run"
    gone_on(path, callback=tiny_runs.stop_at(8))
    waiting = reopen(path)
    gone_on(path, callback=tiny_runs.stop_at(16))
    tiny_runs.drive(waiting, lambda _: None)
    gone_on(tmp_path / "whole")
    assert (path / "evaluations.jsonl").read_text() == (tmp_path / "whole" / "evaluations.jsonl").read_text()
