"""Nothing lost, nothing silent: what `SADQ` overwrites, what it warns of, how it is interrupted, what it refuses."""

import os
import signal
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from stub_runs import CHUNKS, CONFIG, StubLoop
from tiny_models import FIELDS

from sadq import SADQ, SadqError
from sadq.errors import SadqWarning
from sadq.experiment.folder import CONFIG as CONFIG_FILE
from sadq.experiment.lock import Lock


@pytest.fixture
def agent(stub_loops) -> SADQ:
    """An agent whose training costs nothing."""
    return SADQ("BitFlip-3", agent="dueling+sadq", alpha=0.2, seeds=2, **FIELDS | {"evaluations": CHUNKS})


def everything(folder) -> dict:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def a_thesis(path):
    (path / "thesis.tex").write_text("three years of work")


def with_config(content):
    def write(path):
        a_thesis(path)
        (path / CONFIG_FILE).write_text(content)

    return write


def a_run_with_notes(path):
    path.joinpath(CONFIG_FILE).write_text('{"format": 2, "sadq": "0.1.0", "config": {}}')
    path.joinpath("notes.txt").write_text("do not lose")


FOREIGN = {
    "no config": (a_thesis, "it has no config.json"),
    "somebody's config": (with_config('{"format": "tex", "author": "me"}'), "its config.json has no mark of ours"),
    "nearly ours": (with_config('{"format": 2, "config": {}}'), "its config.json has no mark of ours"),
    "an empty config": (with_config(""), "its config.json has no mark of ours"),
    "a list": (with_config("[1, 2]"), "its config.json has no mark of ours"),
    "ours and more": (a_run_with_notes, "it also holds notes.txt"),
    "a folder": (lambda path: (path / "checkpoints").mkdir(), "it has no config.json"),
}


@pytest.mark.parametrize(("fill", "reason"), FOREIGN.values(), ids=FOREIGN)
def test_a_folder_that_is_not_an_agents_is_never_touched(agent, tmp_path, fill, reason):
    folder = tmp_path / "folder"
    folder.mkdir()
    fill(folder)
    before = everything(tmp_path)
    with pytest.raises(SadqError, match=rf"exists and is no saved agent \({reason}\): give a new folder"):
        agent.save(folder)
    assert everything(tmp_path) == before


def test_an_empty_folder_a_run_and_a_link_to_one_are_saved_to(agent, tmp_path):
    (tmp_path / "empty").mkdir()
    agent.save(tmp_path / "empty")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    agent.learn(8).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert SADQ.load(tmp_path / "empty").num_timesteps == 8
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "link"}


def test_a_run_that_is_going_is_not_overwritten(agent, tmp_path):
    agent.save(tmp_path / "agent")
    held = Lock(tmp_path / "agent")
    before = everything(tmp_path)
    with pytest.raises(SadqError, match="agent is in use by process"):
        agent.save(tmp_path / "agent")
    assert everything(tmp_path) == before
    held.release()
    agent.save(tmp_path / "agent")


def test_what_killed_processes_left_beside_an_agent_is_swept_and_nothing_else(agent, tmp_path):
    for name in (".agent.99.tmp", ".agent.98.tmp", ".agent.97.tmp", ".agents.99.tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / ".agent.98.tmp" / CONFIG_FILE).write_text("half")
    a_thesis(tmp_path / ".agent.97.tmp")
    agent.save(tmp_path / "agent")
    assert {path.name for path in tmp_path.iterdir()} == {"agent", ".agent.97.tmp", ".agents.99.tmp"}


def test_a_place_that_cannot_be_written_to_is_a_sentence(agent, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SadqError, match="Cannot write a run to .*: File exists; give another folder"):
        agent.save(tmp_path / "file" / "agent")


def test_a_member_that_diverges_is_warned_of_once(agent, monkeypatch):
    def diverged(self, state, first):
        online = state.learner.online._replace(diverged_at=jnp.array([-1, 8], jnp.int32))
        return advance(self, state._replace(learner=state.learner._replace(online=online)), first)

    advance = StubLoop.advance
    monkeypatch.setattr(StubLoop, "advance", diverged)
    with pytest.warns(SadqWarning, match=r"Member 1 \(seed 1\) diverged at step 8: the loss of its values") as caught:
        agent.learn(CONFIG.steps)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.learn(16)
    assert agent.result["members"][1]["status"] == "diverged"


def interrupting(*numbers):
    def callback(progress):
        if progress.step == 16:
            for number in numbers:
                os.kill(os.getpid(), number)

    return callback


def test_ctrl_c_ends_learning_after_the_chunk_and_is_raised(agent, tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(CONFIG.steps, callback=interrupting(signal.SIGINT))
    assert agent.num_timesteps == 16 and signal.getsignal(signal.SIGINT) is handler
    agent.save(tmp_path / "agent")
    assert SADQ.load(tmp_path / "agent").learn(16).num_timesteps == 32


def test_a_signal_to_end_reaches_whoever_waits_for_it(agent, monkeypatch):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with pytest.raises(KeyboardInterrupt):
            agent.learn(CONFIG.steps, callback=interrupting(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM] and agent.num_timesteps == 16


def test_a_callback_that_stops_raises_nothing(agent):
    assert agent.learn(CONFIG.steps, callback=lambda progress: progress.step < 16).num_timesteps == 16


MISTYPED = [
    ({"agent": None}, "agent = None must be a text"),
    ({"preset": ["default"]}, "preset = ['default'] must be a text"),
    ({"env": None}, "env = None is no environment"),
    ({"seeds": [0.7]}, "seeds = [0.7] must be how many, from 1 to 100,000, or a list of whole numbers"),
    *[
        ({"seeds": bad}, f"seeds = {bad!r} must be how many")
        for bad in (0, -1, 2.0, "3", True, None, 10**12, [True], {1})
    ],
    ({"alpha": "half"}, "alpha = 'half' must be a tuple of numbers"),
    ({"alpha": [[0.1]]}, "alpha = [[0.1]] must be a tuple of numbers"),
    ({"learning_rate": [None]}, "learning_rate = [None] must be a tuple of numbers"),
    ({"batch_size": "64"}, "batch_size = '64' must be a whole number"),
    ({"epsilon": 0.1}, "epsilon = 0.1 must be Epsilon("),
    ({"model": {}}, "model was given {}, expected one of gaussian, rssm"),
    ({"encoder": 64}, "encoder was given 64, expected one of dense, nature"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTYPED, ids=[str(arguments) for arguments, _ in MISTYPED])
def test_what_is_of_another_type_is_refused_in_a_sentence(stub_loops, arguments, sentence):
    with pytest.raises(SadqError) as refusal:
        SADQ(**{"env": "BitFlip-3"} | arguments)
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_numbers_and_arrays_of_numpy_are_taken(stub_loops):
    assert SADQ("BitFlip-3", seeds=np.int64(2)).config.seeds == (0, 1)
    given = {"seeds": np.array([3, 5], np.uint8), "alpha": np.linspace(0, 1, 3), "learning_rate": np.float32(0.5)}
    config = SADQ("BitFlip-3", **given).config
    assert (config.seeds, config.alpha, config.learning_rate) == ((3, 5), (0.0, 0.5, 1.0), (0.5,))


@pytest.mark.parametrize("steps", [1e1, "10", None, True, 0, -3, [5], float("nan")])
def test_learning_for_anything_but_a_number_of_steps_is_refused(agent, steps):
    with pytest.raises(SadqError, match="learn was asked for .* steps: expected a whole number of at least 1"):
        agent.learn(steps)
    assert agent.num_timesteps == 0


def test_learning_takes_numpys_numbers(agent):
    assert agent.learn(np.int32(8)).num_timesteps == 8


def test_a_callback_that_cannot_be_called_is_refused(agent):
    with pytest.raises(SadqError, match="callback = 'stop' must be a function"):
        agent.learn(8, callback="stop")
