"""The board that processes share: how it lies in memory, what is written to it, and that nothing of it stays behind."""

import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fleet_helpers import actions_of, assert_same, run
from sample_environments import Broken, Film, Walk

from sadq.envs import make, shared, workers
from sadq.envs.channel import Channel
from sadq.envs.group import IDLE, EnvironmentGroup, Part, Slot
from sadq.errors import SadqError

SPECS = [make(lambda: Walk(masks=True)), make(lambda: Film(dtype=np.uint8)), make(Walk)]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("count", [1, 5])
def test_fields_begin_cache_lines_of_their_own_and_never_overlap(spec, count):
    memory = np.zeros(shared.board_size(spec, count), np.uint8)
    board = shared.board_on(memory, spec, count)
    assert (board.mask is None) == (board.next_mask is None) == (not spec.has_masks)
    fields = [field for field in board if field is not None]
    origin = memory.__array_interface__["data"][0]
    covered = np.zeros(len(memory), int)
    for field in fields:
        begin = field.__array_interface__["data"][0] - origin
        assert begin % shared.ALIGNMENT == 0 and field.flags.c_contiguous and len(field) == count
        covered[begin : begin + field.nbytes] += 1
    assert covered.max() == 1
    assert board.observation.dtype == board.next_observation.dtype == spec.observation_dtype
    assert board.observation.shape[1:] == spec.observation_shape


def test_two_mappings_of_one_descriptor_are_one_board():
    spec, count = SPECS[0], 3
    size = shared.board_size(spec, count)
    descriptor = shared.reserve(size)
    mine, theirs = (shared.board_on(mmap.mmap(descriptor, size), spec, count) for _ in range(2))
    os.close(descriptor)
    for number, field in enumerate(mine[:8]):
        field[...] = number % 2
        np.testing.assert_array_equal(theirs[number], field)


def test_memory_without_a_name_is_found_on_machines_without_memfd(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    descriptor = shared.reserve(100)
    memory = mmap.mmap(descriptor, 100)
    assert os.fstat(descriptor).st_nlink == 0
    os.close(descriptor)
    memory[:3] = b"abc"
    assert memory[:4] == b"abc\0"


def test_silence_is_zeros_where_every_action_is_legal():
    board = shared.private_board(SPECS[0], 3)
    for field in board[:8]:
        field[...] = 0 if field.dtype == bool else 7
    board.silence(np.array([True, False, True]))
    np.testing.assert_array_equal(board.reward, [0, 7, 0])
    np.testing.assert_array_equal(board.observation.any(axis=1), [False, True, False])
    np.testing.assert_array_equal(board.next_mask.all(axis=1), [True, False, True])
    np.testing.assert_array_equal(board.action, [7, 7, 7])


@pytest.mark.parametrize("count", [0, 2])
def test_idle_environments_answer_zeros_and_are_left_alone(started, count):
    spec = make(lambda: Walk(masks=True, actions=3))
    environments, reference = started(spec, workers=count), started(spec, workers=0)
    environments.reset()
    reference.reset()
    actions = np.array([[0, IDLE, 2], [IDLE, IDLE, IDLE]])
    for _ in range(2):
        step, whole = environments.step(actions), reference.step(np.array([[0, 0, 2], [0, 0, 0]]))
        idle = actions == IDLE
        for field in (step.reward, step.next_observation, step.observation, step.terminated, step.truncated):
            assert not field[idle].any()
        assert step.mask[idle].all() and step.next_mask[idle].all()
        for mine, theirs in zip(step[:-1], whole[:-1], strict=True):
            np.testing.assert_array_equal(mine[~idle], theirs[~idle])
    environments.reset()
    assert (environments.step(np.zeros((2, 3), int)).observation != 0).any(axis=-1).all()


def test_only_workers_with_something_to_do_are_woken(started, monkeypatch):
    environments = started(make(Walk), workers=3)
    environments.reset()
    asked = []
    monkeypatch.setattr(
        Channel, "signal", lambda self, number, plain=Channel.signal: (asked.append(self), plain(self, number))
    )
    environments.step(np.full((2, 3), IDLE))
    assert asked == []
    actions = np.full((2, 3), IDLE)
    actions[0, 0] = 1
    environments.step(actions)
    assert len(asked) == 1
    environments.step(np.zeros((2, 3), int))
    assert len(asked) == 4


@pytest.mark.parametrize("count", range(1, 13))
def test_workers_share_both_halves_evenly(count):
    for members, environments in ((1, 8), (2, 3), (10, 8), (3, 1)):
        second = np.zeros((members, environments), bool)
        second[:, Part.SECOND.lanes(environments)] = True
        total = members * environments
        if count > total:
            continue
        shares = workers.shares(second.reshape(-1), count)
        np.testing.assert_array_equal(np.sort(np.concatenate(shares)), np.arange(total))
        sizes = [len(rows) for rows in shares]
        assert min(sizes) >= 1 and max(sizes) <= -(-total // count)
        halves = [second.reshape(-1)[rows].sum() for rows in shares]
        assert max(halves) - min(halves) <= 1


def test_a_group_writes_its_own_rows_only():
    spec, slots = make(Walk), [Slot(0, 1), Slot(0, 2)]
    board = shared.private_board(spec, 4)
    group = EnvironmentGroup(spec, slots, "collect", board, np.array([1, 2]), np.array([False, True]))
    group.reset(np.zeros(2, int))
    assert not board.observation[[0, 3]].any() and board.observation[[1, 2]].any(axis=1).all()
    first = board.observation.copy()
    group.receive(Part.SECOND)
    np.testing.assert_array_equal(board.observation[1], first[1])
    assert not np.array_equal(board.observation[2], first[2])
    group.close()


def test_large_messages_and_small_ones_arrive_in_order():
    (to_us, from_them), (to_them, from_us) = os.pipe(), os.pipe()
    here, there = Channel(to_us, from_us), Channel(to_them, from_them)
    here.post(b"x" * 30_000)
    here.signal(2)
    here.post(b"")
    assert [there.receive() for _ in range(3)] == [b"x" * 30_000, 2, b""]
    there.watch(0.01)
    here.signal(0)
    there.watch(10)
    assert there.receive() == 0
    os.close(from_us)
    there.watch(10)
    with pytest.raises(EOFError):
        there.receive()
    for descriptor in (to_us, from_them, to_them):
        os.close(descriptor)


def test_a_failure_at_a_step_is_told_once_all_workers_have_answered(started):
    environments = started(make(lambda: Broken(step=KeyError("road_7"), after=1)), workers=2)
    environments.reset()
    environments.send(np.zeros((2, 3), int))
    environments.receive()
    environments.send(np.zeros((2, 3), int))
    with pytest.raises(SadqError, match="failed in step: KeyError: 'road_7'") as caught:
        environments.receive()
    assert "In a worker process" in caught.value.__notes__[0]
    with pytest.raises(SadqError, match="make new ones"):
        environments.reset()


def test_an_interrupt_between_sending_and_answers_is_told(started):
    environments = started(make(Walk), workers=2)
    environments.reset()
    environments.send(np.zeros((2, 3), int))
    with pytest.raises(SadqError, match="closed or interrupted"):
        environments.reset()


SCRIPT = """
import os, numpy, time
from sample_environments import Walk
from sadq.envs import HostEnvironments, make

environments = HostEnvironments(make(Walk), [0], 4, workers=2)
environments.reset()
environments.step(numpy.zeros((1, 4), int))

print(*(process.pid for process in environments._runner._processes), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks into /proc")
def test_nothing_is_left_of_the_board_after_its_parent_was_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    source = os.pathsep.join([str(Path(workers.__file__).parents[2]), str(Path(__file__).parent)])
    before = _left_behind()
    variables = os.environ | {"PYTHONPATH": source, "JAX_PLATFORMS": "cpu", "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=variables, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2 and all("memfd:sadq" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(_maps(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert _left_behind() == before and [path.name for path in tmp_path.iterdir()] == ["script.py"]


def _maps(pid):
    """Whether a process still holds the memory."""
    try:
        return "memfd:sadq" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def _left_behind():
    shm = Path("/dev/shm")
    return {path.name for path in shm.iterdir() if "sadq" in path.name} if shm.exists() else set()


def test_results_do_not_depend_on_the_number_of_workers(started):
    spec = make(lambda: Walk(masks=True))
    actions = actions_of(spec, 30)
    everything = []
    for count in (0, 1, 2, 4):
        environments = started(spec, workers=count)
        first = environments.reset()
        everything.append([*first, *run(environments, actions), *environments.state().values()])
    for other in everything[1:]:
        assert_same(everything[0], other)
