"""A kill or a power cut after any change to any file: what is left opens to a consistent run and ends as a whole one."""

import errno
import json
import os
from pathlib import Path

import pytest
import tiny_runs
from faulty_disk import lay_out, watched
from stub_runs import CHUNKS, CONFIG, gone_on

from sadq import SADQ
from sadq.experiment import checkpoint, opening, storage
from sadq.experiment.folder import CHECKPOINTS, EVALUATIONS, METRICS, RunFolder

MEMBERS = len(CONFIG.seeds)


@pytest.fixture
def no_waiting(monkeypatch):
    """States are laid out and read again by the hundred, and nobody cuts the power of this machine."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def ending(path: Path) -> tuple:
    """What a run came to, but for the time that it took."""
    tensors = {name: value.tolist() for name, value in tiny_runs.tensors(path).items()}
    evaluations, metrics = (tiny_runs.lines(path / name) for name in (EVALUATIONS, METRICS))
    members = json.loads((path / "result.json").read_text())["members"]
    return tensors, evaluations, tiny_runs.untimed(metrics), members


def without_exchange(one, other):
    raise OSError(errno.EINVAL, "this file system cannot")


def test_a_run_cut_off_after_any_change_goes_on_to_the_same_end(tmp_path, stub_loops, no_waiting):
    (tmp_path / "disk").mkdir()
    with watched(tmp_path / "disk") as disk:
        gone_on(tmp_path / "disk" / "run", callback=tiny_runs.stop_at(2 * 8))  # it is stopped, and resumed
        gone_on(tmp_path / "disk" / "run")
    undisturbed = ending(tmp_path / "disk" / "run")
    assert disk.changes > 80 and len(disk.states) > 80
    for number, (state, cut) in enumerate(disk.states.items()):
        path = lay_out(state, tmp_path / str(number)) / "run"
        saved = checkpoint.latest(path / CHECKPOINTS)
        if saved is not None:  # then all that was evaluated before it is there
            folder, *_ = RunFolder.open(path)
            meta, *_ = checkpoint.load(saved)
            due = MEMBERS * (1 + meta["step"] // 8)
            assert len([row for row in folder.evaluations if row["step"] <= meta["step"]]) == due, cut
        gone_on(path)
        assert ending(path) == undisturbed, cut


@pytest.fixture
def agents(stub_loops, tmp_path):
    """Two agents at different steps, and what they say of themselves when they are loaded."""
    made = []
    for steps in (1, CHUNKS):
        experiment = opening.create(CONFIG, None)
        experiment.begin()
        experiment.run(tiny_runs.stop_at(steps * 8))
        model = SADQ.__new__(SADQ)
        model._hold(experiment)
        made.append(model)
    return made


def told(path: Path) -> tuple:
    loaded = SADQ.load(path)
    return loaded.num_timesteps, loaded.evaluations, loaded.metrics


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_save_over_an_agent_leaves_the_old_or_the_new_one(can_exchange, agents, tmp_path, no_waiting, monkeypatch):
    if not can_exchange:
        monkeypatch.setattr(storage, "exchange", without_exchange)
    root = tmp_path / "disk"
    root.mkdir()
    old, new = agents
    old.save(root / "agent")
    with watched(root) as disk:
        new.save(root / "agent")
    assert [path.name for path in root.iterdir()] == ["agent"], "nothing stays beside it"
    answers = [(model.num_timesteps, model.evaluations, model.metrics) for model in agents]
    assert told(root / "agent") == answers[1]
    found = []
    for number, (state, cut) in enumerate(disk.states.items()):
        path = lay_out(state, tmp_path / str(number)) / "agent"
        found.append(answers.index(told(path)))
        old.save(path)  # and whatever lies beside it is no hindrance
        assert told(path) == answers[0], cut
        assert [each.name for each in path.parent.iterdir()] == ["agent"], cut
    assert {0, 1} == set(found)
    assert found.index(1) > 5 and 0 not in found[-1:]


def test_a_first_save_is_there_whole_or_not_at_all(agents, tmp_path, no_waiting):
    root = tmp_path / "disk"
    root.mkdir()
    with watched(root) as disk:
        agents[0].save(root / "agent")
    for number, state in enumerate(disk.states):
        path = lay_out(state, tmp_path / str(number)) / "agent"
        assert not path.exists() or told(path)[0] == 8


def test_the_fault_injection_finds_an_order_that_is_wrong(tmp_path, stub_loops, no_waiting, monkeypatch):
    """Rows that are not synced before their checkpoint: the very fault that it is there to find."""
    monkeypatch.setattr(RunFolder, "settle", lambda self: {name: len(rows) for name, rows in self._rows().items()})
    (tmp_path / "disk").mkdir()
    with watched(tmp_path / "disk") as disk:
        gone_on(tmp_path / "disk" / "run")
    lost = 0
    for number, state in enumerate(disk.states):
        path = lay_out(state, tmp_path / str(number)) / "run"
        saved = checkpoint.latest(path / CHECKPOINTS)
        if saved is not None:
            folder, *_ = RunFolder.open(path)
            lost += len(folder.evaluations) < checkpoint.load(saved)[0]["rows"][EVALUATIONS]
    assert lost > 0
