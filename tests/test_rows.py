"""The table of agents: what its rows say, what may be combined, what is refused, and rows of one's own."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from sadq.agents import AGENTS, REFUSALS, AgentSpec, check_row, parse_agent, register_agent
from sadq.axes import AXES
from sadq.core.bootstrap import Double, Greedy
from sadq.core.ensembles import Agreement, Single
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.exploration import Best, Counteractive, EpsilonZ, Never, RandomAction, Thompson, UpperConfidence
from sadq.networks import Bayesian, Categorical, Dense, Fraction, Implicit, Quantile, Scalar
from sadq.replay import Prioritised, Uniform
from tiny import config, difference, loop_of


def sentence_of(refused: pytest.ExceptionInfo) -> str:
    text = str(refused.value)
    assert "\n" not in text and text.endswith(".")
    return text


NONSENSE: dict[str, dict[str, Any]] = {
    "intended ucb needs an ensemble": {"agent": "dqn", "intended": "ucb"},
    "intended thompson needs head bayesian": {"agent": "c51", "intended": "thompson"},
    "noisy layers explore by themselves": {"agent": "sunrise", "noisy": True},
    "deviation never with intended best": {"agent": "rainbow", "noisy": False},
    "head bayesian infers its last layer": {"agent": "dueling", "head": "bayesian"},
    "head bayesian is a distribution over networks": {"agent": "bdqn", "ensemble": "agreement"},
}


@pytest.mark.parametrize("beginning", NONSENSE)
def test_what_makes_no_sense_is_refused_in_one_sentence(beginning):
    with pytest.raises(SadqError) as refused:
        Config(target_update_interval=100, **NONSENSE[beginning])
    assert f"Agent {NONSENSE[beginning]['agent']} cannot be combined like that: {beginning}" in sentence_of(refused)


def test_every_refusal_has_its_example_here():
    assert len(REFUSALS) == len(NONSENSE)
    for beginning in NONSENSE:
        assert len([sentence for sentence in REFUSALS if sentence.startswith(beginning)]) == 1


def test_rows_name_only_what_there_is_make_sense_and_use_all_of_it():
    assert len(AGENTS) == 12
    used = {name: {AXES[name].name_of(getattr(row, name)) for row in AGENTS.values()} for name in ROW_AXES}
    for name, row in AGENTS.items():
        check_row(row, name)
        assert row.source != "-"
    for name in ROW_AXES:
        assert used[name] == set(AXES[name]), name


ROW_AXES = ("head", "bootstrap", "intended", "deviation", "replay", "ensemble")


def test_rows_are_those_of_the_papers():
    plain = AgentSpec(Scalar(), Greedy(), Best(), RandomAction(), Uniform(), 1, False, False, Single())
    rainbow = AgentSpec(Categorical(), Double(), Best(), Never(), Prioritised(), 3, True, True, Single())
    expected = {
        "dqn": plain,
        "double": dataclasses.replace(plain, bootstrap=Double()),
        "dueling": dataclasses.replace(plain, dueling=True),
        "bdqn": dataclasses.replace(plain, head=Bayesian(), bootstrap=Double(), intended=Thompson(), deviation=Never()),
        "sunrise": dataclasses.replace(plain, intended=UpperConfidence(), ensemble=Agreement(5)),
        "c51": dataclasses.replace(plain, head=Categorical()),
        "rainbow": rainbow,
        "qrdqn": dataclasses.replace(plain, head=Quantile()),
        "iqn": dataclasses.replace(plain, head=Implicit()),
        "fqf": dataclasses.replace(plain, head=Fraction()),
        "teg": dataclasses.replace(rainbow, noisy=False, deviation=EpsilonZ()),
        "coact": dataclasses.replace(plain, head=Quantile(), deviation=Counteractive()),
    }
    assert {name: dataclasses.replace(row, source="-") for name, row in AGENTS.items()} == expected


def test_a_row_takes_names_and_classes_for_choices():
    assert AgentSpec("quantile", Double, replay="prioritised") == AgentSpec(Quantile(), Double(), replay=Prioritised())
    with pytest.raises(SadqError, match="head = 'quantil' is unknown .did you mean quantile"):
        AgentSpec("quantil")
    with pytest.raises(SadqError, match="n_step = 0 must be a whole number of at least 1"):
        AgentSpec("scalar", n_step=0)


SOUND = Config(agent="dqn", target_update_interval=100)


def test_the_config_overrides_a_row_axis_by_axis():
    for axis in dataclasses.fields(AgentSpec):
        assert getattr(SOUND, axis.name, None) is None
    changed = dataclasses.replace(SOUND, agent="rainbow", head="implicit", n_step=2, noisy=True)
    expected = dataclasses.replace(AGENTS["rainbow"], head=Implicit(), n_step=2, source="-")
    assert dataclasses.replace(changed.row, source="-") == expected
    assert dataclasses.replace(SOUND, agent="qrdqn", bootstrap="double").row.bootstrap == Double()
    plain = dataclasses.replace(SOUND, agent="dueling", dueling=False).row
    assert dataclasses.replace(plain, source="-") == dataclasses.replace(AGENTS["dqn"], source="-")


@pytest.fixture
def table(monkeypatch):
    """The table, put back as it was."""
    monkeypatch.setattr("sadq.agents.AGENTS", kept := dict(AGENTS))
    monkeypatch.setattr("sadq.experiment.config.AGENTS", kept)
    return kept


def test_a_row_of_ones_own_takes_the_suffix_and_every_override(table):
    row = AgentSpec(Quantile(quantiles=8), Double(), n_step=2)
    register_agent("my-agent_2", row)
    register_agent("my-agent_2", AgentSpec("quantile", Double, n_step=2).__class__(Quantile(8), Double(), n_step=2))
    assert parse_agent("my-agent_2") == ("my-agent_2", False)
    assert parse_agent("My-Agent_2+sadq") == ("my-agent_2", True)
    assert dataclasses.replace(SOUND, agent="my-agent_2").row == row
    assert dataclasses.replace(SOUND, agent="my-agent_2+sadq", alpha=(0.5,), n_step=1).row.n_step == 1


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        ("dqn", AgentSpec("quantile"), "Agent dqn is registered already: choose another name"),
        ("sadq", AgentSpec("quantile"), "Agent sadq is registered already"),
        ("dqn+mine", AgentSpec("quantile"), "cannot be registered, expected a name of small letters"),
        ("Mine", AgentSpec("quantile"), "cannot be registered, expected a name of small letters"),
        ("", AgentSpec("quantile"), "cannot be registered"),
        ("mine", "quantile", "Agent mine was registered with 'quantile', expected a row: an AgentSpec"),
        ("mine", AgentSpec("scalar", intended="ucb"), "Agent mine cannot be combined like that: intended ucb"),
    ],
)
def test_a_row_that_cannot_be_is_refused_in_one_sentence(table, name, row, sentence):
    before = dict(table)
    with pytest.raises(SadqError, match=sentence) as refused:
        register_agent(name, row)
    sentence_of(refused)
    assert table == before


COMBINATIONS: dict[str, dict[str, Any]] = {
    "rainbow of implicit quantiles": {"agent": "rainbow", "head": "implicit"},
    "an ensemble of categorical heads, partly heard": {
        "agent": "sunrise+sadq",
        "head": "categorical",
        "ensemble": Agreement(size=3, bootstrap_share=0.5),
    },
    "everything on fractions": {
        "agent": "fqf",
        "dueling": True,
        "noisy": True,
        "deviation": "epsilon-z",
        "replay": "prioritised",
        "bootstrap": "double",
        "n_step": 2,
    },
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_axes_combine(name):
    fields = {"n_step": None, "encoder": Dense((8,)), "batch_size": 8, "updates_per_collect": 2} | COMBINATIONS[name]
    loop = loop_of(config(fields.pop("agent"), **fields))
    start = jax.tree.map(np.array, loop.start())
    state, metrics = loop.advance(loop.start(), 0)
    assert (np.asarray(state.learner.online.diverged_at) == -1).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.learner, metrics)))
    assert difference(start.learner.online.parameters, state.learner.online.parameters) > 0
