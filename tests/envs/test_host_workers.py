"""Worker processes: the same results, the same errors, and no life of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fleet_helpers import actions_of, assert_same, run
from sample_environments import Broken, Dying, Slow, Talkative, Walk

from sadq.envs import HostEnvironments, make, workers
from sadq.errors import SadqError


@pytest.mark.parametrize("count", [1, 2, 4])
def test_workers_change_nothing(started, count):
    spec = make(lambda: Walk(masks=True, dtype=np.float64))
    plain, pooled = started(spec, workers=0), started(spec, workers=count)
    assert (plain.workers, pooled.workers) == (0, count)
    assert_same(plain.reset(), pooled.reset())
    actions = actions_of(spec, 60)
    assert_same(run(plain, actions[:45]), run(pooled, actions[:45]))
    saved = pooled.state()
    assert_same(list(plain.state().values()), list(saved.values()))
    # Resumed with another number of workers than it was saved with.
    resumed = started(spec, workers=3 - min(count, 2))
    assert_same(plain.restore(saved), resumed.restore(saved))
    assert plain.exact_resume and resumed.exact_resume
    assert_same(run(plain, actions[45:]), run(resumed, actions[45:]))


def test_errors_are_the_same_in_workers(started):
    spec = make(lambda: Broken(step=KeyError("road_7"), after=1))
    messages = []
    for count in (0, 2):
        environments = started(spec, workers=count)
        environments.reset()
        environments.step(np.zeros((2, 3), int))
        with pytest.raises(SadqError) as caught:
            environments.step(np.zeros((2, 3), int))
        messages.append(str(caught.value))
    assert messages[0] == messages[1] == "environment Broken failed in step: KeyError: 'road_7'"
    assert "KeyError" in caught.value.__notes__[0]
    with pytest.raises(SadqError, match="make new ones"):
        environments.step(np.zeros((2, 3), int))


def test_a_worker_that_dies_is_told(started):
    environments = started(make(Dying), workers=2)
    environments.reset()
    with pytest.raises(SadqError, match="died with exit code 3"):
        environments.step(np.zeros((2, 3), int))


def test_an_environment_that_cannot_travel_is_told():
    lock = __import__("threading").Lock()
    spec = make(lambda: Walk() if lock else None)
    with pytest.raises(SadqError, match="cannot be sent to worker processes .* use workers=0"):
        HostEnvironments(spec, [0], 2, workers=2)


def test_workers_have_their_streams_to_themselves_and_no_jax(started):
    environments = started(make(Talkative), workers=2)
    environments.reset()
    assert (environments.step(np.zeros((2, 3), int)).reward == 0).all()


def test_workers_end_on_close(started):
    environments = started(make(Walk), workers=2)
    environments.reset()
    processes = environments._runner._processes
    environments.close()
    assert [process.returncode for process in processes] == [0, 0]
    environments.close()
    with pytest.raises(SadqError, match="closed"):
        environments.reset()


SCRIPT = """
import gymnasium, numpy, time
from sadq.envs import HostEnvironments, make

class Local(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return numpy.zeros(1), {}
    def step(self, action):
        return numpy.ones(1), 0.0, False, False, {}

environments = HostEnvironments(make(Local), [0], 2, workers=2)
environments.reset()
assert environments.step(numpy.zeros((1, 2), int)).observation.sum() == 2
print(*(process.pid for process in environments._runner._processes), flush=True)
time.sleep(60)
"""


def test_workers_need_no_guard_and_die_with_their_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    source = str(Path(workers.__file__).parents[2])
    variables = os.environ | {"PYTHONPATH": source, "JAX_PLATFORMS": "cpu"}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=variables, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_auto_uses_workers_only_where_they_help(monkeypatch):
    assert workers.best_count(seconds=10e-6, count=8, processors=16) == 0
    assert workers.best_count(seconds=10e-3, count=8, processors=1) == 0
    assert workers.best_count(seconds=10e-3, count=8, processors=4) == 4
    assert workers.best_count(seconds=10e-3, count=2, processors=4) == 2
    # Beside training they may take longer than in its process, but not by far.
    assert workers.best_count(seconds=40e-6, count=8, processors=2) == 0
    assert workers.best_count(seconds=40e-6, count=8, processors=2, beside=True) == 2
    assert workers.best_count(seconds=3e-6, count=8, processors=2, beside=True) == 0
    monkeypatch.setattr(workers, "_processors", lambda: 4)
    for seconds, count, expected in ((10e-6, 6, 0), (10e-3, 6, 3), (10e-3, 1, 0)):
        monkeypatch.setattr(workers, "step_seconds", lambda spec, seconds=seconds: seconds)
        assert workers.resolve("auto", make(Walk), count) == expected
    assert workers.resolve(8, make(Walk), 6) == 6


def test_calibration_sees_the_time_of_a_step():
    """Of one that sleeps, which no busy machine makes shorter."""
    assert workers.step_seconds(make(Slow)) >= 0.002


def test_calibration_takes_legal_actions():
    class Strict(Walk):
        def step(self, action):
            assert self.info()["action_mask"][action]
            return super().step(action)

    assert 0 < workers.step_seconds(make(lambda: Strict(masks=True, actions=3))) < 0.1


def test_a_worker_does_not_import_jax():
    code = "import sys, sadq.envs.workers; sys.exit('jax' in sys.modules)"
    source = str(Path(workers.__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": source}, check=True)
