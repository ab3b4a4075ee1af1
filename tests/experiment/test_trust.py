"""A run folder from a stranger: opening it imports nothing that its reader did not ask for."""

import dataclasses
import json
import sys

import pytest
from stub_runs import CONFIG, gone_on

from sadq import SADQ
from sadq.cli.options import import_modules
from sadq.errors import SadqError
from sadq.experiment.evaluate import evaluate_policy, evaluate_run
from sadq.experiment.opening import create, reopen
from sadq.experiment.trust import module_of

MODULE = """
import gymnasium
from pathlib import Path
from odd_environments import Drift
Path(__file__).with_name("sprung").write_text("code was run")
gymnasium.register("Strange-v0", Drift)
"""


@pytest.fixture
def strange(stub_loops, tmp_path, monkeypatch):
    """A run whose environment names a module that lies ready to be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    (tmp_path / "stranger.py").write_text(MODULE)
    gone_on(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    record["config"]["environment"] = "stranger:Strange-v0"
    (tmp_path / "run" / "config.json").write_text(json.dumps(record))
    yield tmp_path / "run"
    sys.modules.pop("stranger", None)


OPENINGS = {
    "resume": reopen,
    "learn on": lambda path: SADQ.load(path).learn(8),
    "evaluate": lambda path: evaluate_run(path, 1),
    "a policy": lambda path: evaluate_policy(str(path), "random", 1, 0),
    "another trusted": lambda path: reopen(path, trust=["strange", "stranger.more"]),
}


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
@pytest.mark.parametrize("name", ["stranger:Strange-v0", "gymnasium:stranger:Strange-v0"])
def test_no_opening_of_a_folder_imports_the_module_of_its_environment(strange, opening, name):
    record = json.loads((strange / "config.json").read_text())
    record["config"]["environment"] = name
    (strange / "config.json").write_text(json.dumps(record))
    with pytest.raises(SadqError, match="would be run: if you trust that, import it yourself, with --import stranger or in "
                                        "Python trust='stranger'"):  # fmt: skip
        opening(strange)
    assert not (strange.parent / "sprung").exists() and "stranger" not in sys.modules


@pytest.mark.parametrize("trust", ["stranger", ["other", "stranger"]])
def test_what_is_trusted_by_name_is_imported(strange, trust):
    SADQ.load(strange, trust=trust).learn(8)
    assert (strange.parent / "sprung").exists()


def test_an_agent_acts_without_the_code_of_its_environment(strange):
    assert SADQ.load(strange).num_timesteps == CONFIG.steps
    assert "stranger" not in sys.modules


def test_what_was_imported_already_is_known(strange):
    import_modules(["--import", "stranger"])
    assert reopen(strange).environment.name == "stranger:Strange-v0"


def test_an_environment_given_by_the_reader_needs_no_trust(strange):
    assert reopen(strange, "BitFlip-3").environment.name == "BitFlip-3"
    assert "stranger" not in sys.modules


def test_what_a_user_asks_for_is_imported_as_ever(strange):
    """Only files are distrusted, not the reader."""
    config = dataclasses.replace(CONFIG, environment="stranger:Strange-v0")
    assert create(config, None).environment.name == "stranger:Strange-v0"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("CartPole-v1", ""),
        ("gymnasium:CartPole-v1", ""),
        ("a.b:C-v0", "a.b"),
        ("gymnasium:a:C-v0", "a"),
        ("a:b:C-v0", "a:b"),
        ("ALE/Pong-v5", ""),
    ],
)
def test_the_module_of_a_name(name, module):
    assert module_of(name) == module
