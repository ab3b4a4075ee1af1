"""The same sweep on a real local Ray cluster: the same bits, also where a worker was killed or all were stopped."""

import dataclasses
import logging
import os
import re
import signal
import socket
import warnings
from pathlib import Path

import pytest

from sadq.errors import SadqError
from sadq.studies import sweep
from sadq.studies.arms import Arm
from sadq.studies.display import Display
from sadq.studies.sweep import Job, Stopped

ray = pytest.importorskip("ray", reason="the tests on a cluster need Ray: install sadq[ray]")

from sadq.studies import on_ray  # noqa: E402
from sadq.studies.on_ray import RayRunner  # noqa: E402

STEPS = 40 * 25 * 8
SLOW = ("slow_worker",)  # a module of the tests, which a worker imports as it would a user's


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def jobs(shared) -> list[Job]:
    longer = dataclasses.replace(shared, steps=STEPS, evaluations=40)
    return [Job(label, Arm.parse(label).config(longer), f"runs/{label}") for label in ("dqn", "dqn+sadq")]


@pytest.fixture(scope="module")
def here(jobs, tmp_path_factory) -> Path:
    """The sweep in this process."""
    out = tmp_path_factory.mktemp("here")
    sweep.run(jobs, out, quiet=True)
    return out


class Killing(Display):
    """Kills the worker of the guided arm once it has saved something."""

    def __init__(self, *given):
        super().__init__(*given)
        self.begun: list[tuple[str, int]] = []
        self.process: dict[str, int] = {}
        self.killed = False

    def started(self, name, step, steps, place=""):
        self.begun.append((name, step))
        self.process[name] = int(re.search(r"process (\d+)", place)[1])
        super().started(name, step, steps, place)

    def update(self, name, progress):
        super().update(name, progress)
        if name == "dqn+sadq" and not self.killed and progress.step > 0:
            self.killed = True
            os.kill(self.process[name], signal.SIGKILL)


def assert_same_scores(jobs: list[Job], one: Path, other: Path) -> None:
    for job in jobs:
        mine, theirs = (folder / job.folder / "evaluations.jsonl" for folder in (one, other))
        assert mine.read_bytes() == theirs.read_bytes(), job.name
        assert sweep.finished(other / job.folder)


def test_a_killed_workers_fleet_goes_on_from_its_checkpoint_to_the_same_scores(
    cluster, jobs, here, tmp_path, monkeypatch
):
    displays = []
    monkeypatch.setattr(sweep, "Display", lambda *given: displays.append(Killing(*given)) or displays[0])
    sweep.run(jobs, tmp_path, quiet=True, runner=RayRunner(modules=SLOW))
    (seen,) = displays
    assert seen.killed and seen.share == 1
    again = [step for name, step in seen.begun if name == "dqn+sadq"]
    assert again[0] == 0 and again[-1] > 0, "taken up from a checkpoint, not begun anew"
    assert_same_scores(jobs, here, tmp_path)


def test_workers_without_the_sweeps_disk_stream_their_runs_back(cluster, jobs, here, tmp_path):
    sweep.run(jobs[1:], tmp_path, quiet=True, runner=RayRunner(shared=False))
    assert_same_scores(jobs[1:], here, tmp_path)
    assert list(tmp_path.glob("*")) == [tmp_path / "runs"], "no token is left"


class Interrupting(Display):
    """Somebody presses Ctrl-C as soon as there is something to stop."""

    def update(self, name, progress):
        raise KeyboardInterrupt


def test_an_interrupted_sweep_stops_its_tasks_and_goes_on_without_the_cluster(
    cluster, jobs, here, tmp_path, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(sweep, "Display", Interrupting)
        with pytest.raises(Stopped):
            sweep.run(jobs[1:], tmp_path, quiet=True, runner=RayRunner(modules=SLOW))
    assert not sweep.finished(tmp_path / jobs[1].folder)
    assert any((tmp_path / jobs[1].folder / "checkpoints").iterdir())
    sweep.run(jobs[1:], tmp_path, quiet=True)
    assert_same_scores(jobs[1:], here, tmp_path)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"cpus": 64.0}, "This machine has not 64 cores and 0 GPUs for a fleet: give fewer with --ray-cpus"),
        ({"gpus": 8.0}, "This machine has not 1 cores and 8 GPUs"),
        ({"cpus": -1.0}, "Ray cannot give -1 cores .*negative"),
        ({"cpus": float("nan")}, "Ray cannot give nan cores"),
        ({"gpus": float("inf")}, "Ray cannot give 1 cores and inf GPUs"),
    ],
)
def test_what_no_machine_has_is_refused_rather_than_waited_for(cluster, jobs, tmp_path, asked, sentence):
    with pytest.raises(SadqError, match=sentence):
        sweep.run(jobs, tmp_path, quiet=True, runner=RayRunner(**asked))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_at_which_nobody_listens_is_said_at_once(jobs, tmp_path, monkeypatch, scheme):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray would try for minutes"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"{scheme}127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SadqError, match=rf"No Ray cluster answers at {address} \(.*refused\): give another"):
            sweep.run(jobs, tmp_path, quiet=True, runner=RayRunner(address))
    assert not list(tmp_path.iterdir())


def test_beginning_a_cluster_warns_of_no_deadlock(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    forked = "os.fork() was called. os.fork() is incompatible with multithreaded code"
    monkeypatch.setattr(ray, "init", lambda **_: warnings.warn(forked, RuntimeWarning, stacklevel=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with on_ray._cluster(None) as begun:
            assert begun is ray


def test_a_cluster_elsewhere_may_grow(cluster, capsys):
    RayRunner("auto", cpus=64.0)._task(ray)
    assert "no machine of the cluster has 64 cores and 0 GPUs for a fleet now" in capsys.readouterr().err


def test_what_is_wrong_on_a_worker_is_one_sentence_here(cluster, jobs, tmp_path):
    odd = dataclasses.replace(jobs[0], config=dataclasses.replace(jobs[0].config, buffer_size=2 * 10**9))
    with pytest.raises(SadqError, match="The fleet needs .* GB for 3 members"):
        sweep.run([odd], tmp_path, quiet=True, runner=RayRunner(modules=SLOW))
