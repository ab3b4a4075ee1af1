"""What a resume notices of the run that it goes on with: its data, its version, where it began."""

import dataclasses
import hashlib
import json

import jax.numpy as jnp
import pytest
import tiny_runs
from stub_runs import CHUNKS, CONFIG, StubLoop, gone_on

from sadq import SADQ
from sadq.envs import registry
from sadq.envs.base import Environment
from sadq.errors import SadqError, SadqWarning
from sadq.experiment import checkpoint
from sadq.experiment.folder import CHECKPOINTS, EVALUATIONS
from sadq.experiment.opening import create, reopen


@pytest.fixture
def stopped(stub_loops, tmp_path):
    """A run that was stopped halfway."""
    gone_on(tmp_path / "run", callback=tiny_runs.stop_at(16))
    return tmp_path / "run"


def rewrite(path, **config):
    record = json.loads((path / "config.json").read_text())
    record["config"] = {name: value for name, value in (record["config"] | config).items() if value is not ...}
    (path / "config.json").write_text(json.dumps(record))


def test_a_run_of_an_earlier_version_goes_on_and_says_what_was_filled_in(stopped):
    rewrite(stopped, compute=..., workers=...)
    said = []
    experiment = reopen(stopped)
    experiment.warn = said.append
    tiny_runs.drive(experiment, lambda _: None)
    assert said == [
        "The run is of an earlier version, whose config had no compute = 'float32', workers = None: these are the "
        "defaults of now."
    ]
    assert experiment.step == CONFIG.steps


def test_a_checkpoint_of_the_format_before_is_gone_on_with(stopped):
    """It says neither where its training began nor how many rows there were."""
    for saved in (stopped / CHECKPOINTS).iterdir():
        record = json.loads((saved / checkpoint.META).read_text()) | {"format": 1}
        record = {name: value for name, value in record.items() if name not in (*checkpoint.EARLIER, "record_sha256")}
        (saved / checkpoint.META).write_text(json.dumps(record))
    assert gone_on(stopped).step == CONFIG.steps
    assert len(tiny_runs.lines(stopped / EVALUATIONS)) == 2 * (CHUNKS + 1)


def test_rows_that_were_lost_are_noticed_and_the_advice_works(stopped):
    rows = (stopped / EVALUATIONS).read_bytes().splitlines(keepends=True)
    (stopped / EVALUATIONS).write_bytes(b"".join(rows[:-1]))
    with pytest.raises(
        SadqError, match="has 5 whole lines up to step 16, but its checkpoint was saved with 6: .* delete"
    ):
        gone_on(stopped)
    assert (stopped / EVALUATIONS).read_bytes() == b"".join(rows[:-1])
    tiny_runs.shutil.rmtree(checkpoint.latest(stopped / CHECKPOINTS))
    gone_on(stopped)
    assert len(tiny_runs.lines(stopped / EVALUATIONS)) == 2 * (CHUNKS + 1)


@dataclasses.dataclass(frozen=True)
class Traced(Environment):
    """An environment made of a file."""

    path: str = ""
    whole: bool = True
    name = "Traced"
    observation_size = 1
    action_count = 2
    max_steps = 4

    def initial(self, key):
        return jnp.zeros(1)

    def transition(self, state, action, key):
        return state + 1, jnp.float32(1), state[0] > 2

    def observe(self, state):
        return state

    @property
    def provenance(self):
        with open(self.path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        return {"source": self.path, "sha256": digest if self.whole else {"roadnet": digest, "flow": "0" * 64}}


@pytest.fixture(params=[True, False])
def traced(request, stub_loops, tmp_path, monkeypatch):
    """(a run that was stopped, the file that its environment is made of)."""
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    (tmp_path / "trace.csv").write_text("1,2,3\n")
    registry.register("Traced", lambda: Traced(str(tmp_path / "trace.csv"), request.param))
    config = dataclasses.replace(CONFIG, environment="Traced")
    gone_on(tmp_path / "run", config, tiny_runs.stop_at(16))
    return tmp_path / "run", tmp_path / "trace.csv"


def test_data_that_changed_under_a_run_are_noticed_and_nothing_is_changed(traced):
    path, data = traced
    data.write_text("1,2,4\n")
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    with pytest.raises(
        SadqError, match="The data of Traced changed since the run began .(sha256|roadnet) was 7.* and is"
    ):
        gone_on(path)
    assert before == {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    with pytest.warns(SadqWarning, match="The data of Traced changed since the run began"):
        SADQ.load(path).learn(8).save(path.parent / "agent")
    data.write_text("1,2,3\n")
    assert gone_on(path).step == CONFIG.steps
    record = json.loads((path.parent / "agent" / "config.json").read_text())
    assert record["data"]["source"] == str(data)


def test_training_in_several_goes_resumes_to_its_own_end(stub_loops, tmp_path):
    """Learned once; learned on, stopped in between and saved: the command line ends it where it was to end."""
    experiment = create(CONFIG, None)
    experiment.begin()
    experiment.run()
    experiment.extend(7 * 8)  # so many collects from here, in chunks and at evaluations of its own
    planned, chunk = experiment.steps, experiment.timetable.chunk
    experiment.run(tiny_runs.stop_at(experiment.step + 8))
    model = SADQ.__new__(SADQ)
    model._hold(experiment)
    model.save(tmp_path / "agent")
    assert json.loads((tmp_path / "agent" / "config.json").read_text())["steps"] == planned
    resumed = gone_on(tmp_path / "agent")
    assert (resumed.origin, resumed.timetable.chunk) == (CHUNKS, chunk)
    experiment.run()
    assert resumed.step == experiment.step == planned
    rows = tiny_runs.lines(tmp_path / "agent" / EVALUATIONS)
    assert rows == experiment.folder.evaluations
    assert [row["step"] for row in rows[-2:]] == [planned, planned]


def test_a_loaded_agent_learns_on_from_where_its_own_training_ended(stub_loops, tmp_path):
    experiment = create(CONFIG, None)
    experiment.begin()
    experiment.run()
    experiment.extend(3 * 8)
    experiment.run()
    model = SADQ.__new__(SADQ)
    model._hold(experiment)
    model.save(tmp_path / "agent")
    loaded = SADQ.load(tmp_path / "agent")
    assert loaded._begun().origin == CHUNKS
    assert loaded.learn(16).num_timesteps == (CHUNKS + 3 + 2) * 8
    assert loaded.evaluations == model.learn(16).evaluations


def test_a_resume_that_is_not_exact_is_warned_of_in_python(stopped, monkeypatch):
    monkeypatch.setattr(StubLoop, "restore", lambda *_: False)
    with pytest.warns(SadqWarning, match="did not repeat its episodes, so this resume is not bit-exact") as caught:
        SADQ.load(stopped).learn(8)
    assert len(caught) == 1
