"""Every agent, plain and with SADQ: alpha=1 is the base bit for bit, a known world is learned, a resume is exact.

The three checks of a variant share its compiled program, and so its fleet: SADQ's has a member with alpha 1 and one
with less.
"""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "experiment"))

import tiny_runs

from sadq.agents import AGENTS, EXPLORATIONS, HEADS, REFUSALS, REPLAYS, AgentSpec, check_row, parse_agent
from sadq.core.bootstrap import RULES
from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.config import Config
from sadq.fleet.members import Loop, MemberState
from tiny import (
    CHUNK,
    Corridor,
    assert_knows_the_corridor,
    config,
    corridor_config,
    difference,
    loop_of,
    member,
)

MIXTURE = " as a mixture"
MIXED = ("qrdqn", "iqn", "fqf")  # CoAct learns as QR-DQN does
EARLY, CHUNKS = 2, 12


def variants_of(base: str) -> list[str]:
    """Plain, guided, and guided by a true mixture where the return has quantiles."""
    return [base, f"{base}+sadq", *([f"{base}+sadq{MIXTURE}"] if base in MIXED else [])]


VARIANTS = [variant for base in AGENTS for variant in variants_of(base)]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request, cache) -> str:
    return request.param


class Lived(NamedTuple):
    """A variant after 200 updates, and after 1200."""

    loop: Loop
    early: MemberState
    late: MemberState


@functools.cache
def lived(variant: str) -> Lived:
    agent = variant.removesuffix(MIXTURE)
    fields: dict[str, Any] = {"alpha": (1.0, 0.4)} if parse_agent(agent)[1] else {}
    made = corridor_config(agent, **fields)
    if variant != agent:
        made = dataclasses.replace(made, distribution=dataclasses.replace(made.distribution, mixing="mixture"))
    loop = loop_of(made, Corridor())
    state = loop.start()
    for index in range(CHUNKS):
        if index == EARLY:
            early = kept(state)
        state, _ = loop.advance(state, index * CHUNK)
    return Lived(loop, early, state)


def kept(state: MemberState) -> MemberState:
    """A copy that the next chunk, which takes over the state's memory, leaves as it is."""
    return jax.tree.map(lambda leaf: np.array(leaf), state)


def learned(state: MemberState) -> dict[str, Any]:
    """Everything but the model."""
    return {
        "online": state.learner.online,
        "target": state.learner.target,
        "posterior": state.learner.posterior,
        "ring": state.ring,
        "priorities": state.priorities,
        "memory": state.memory,
    }


def test_alpha_one_is_the_base_agent_bit_for_bit(variant):
    name = parse_agent(variant.removesuffix(MIXTURE))[0]
    base, guided = lived(name), lived(variant)
    assert base.early.learner.model is None
    if variant == name:
        return
    assert guided.early.learner.model is not None
    for plain, mixed in ((base.early, guided.early), (base.late, guided.late)):
        theirs = learned(member(mixed, 0))
        for part, own in learned(member(plain, 0)).items():
            assert difference(own, theirs[part]) == 0, part
    assert difference(*(learned(member(guided.early, index))["online"] for index in (0, 1))) > 0, "alpha matters"


def test_a_corridor_with_a_known_value_is_learned(variant):
    loop, _, state = lived(variant)
    assert (np.asarray(state.learner.diverged_at) == -1).all()
    assert state.priorities is None or len(np.unique(state.priorities.leaves)) > 10
    evaluation = loop.evaluate(state, 0)
    assert (np.asarray(evaluation.lengths) <= 4).all()
    np.testing.assert_allclose(evaluation.discounted, 0.9 ** (evaluation.lengths - 1), rtol=1e-5)
    for index in range(evaluation.lengths.shape[0]):
        assert_knows_the_corridor(member(state.learner, index).actor.policy)


def test_evaluation_is_deterministic_and_by_the_policy_alone(variant):
    """No noise in layers, no random levels, no draw from a posterior; an ensemble by its average."""
    loop, _, state = lived(variant)
    once, again = (loop.evaluate(state, 0) for _ in range(2))
    assert difference(once, again) == 0
    for index in range(once.predicted.shape[0]):
        values = np.asarray(jax.vmap(member(state.learner, index).actor.policy.mean)(jnp.eye(5)))
        # Where right is always taken, an episode's length tells the cell that it began in.
        np.testing.assert_allclose(once.predicted[index], values.max(axis=1)[4 - once.lengths[index]], rtol=1e-5)


def test_a_resume_is_exact(variant, tmp_path: Path):
    loop, whole, _ = lived(variant)
    state, _ = loop.advance(loop.start(), 0)
    meta = dict.fromkeys(checkpoint.RECORDED, 0)
    saved = checkpoint.save(tmp_path, CHUNK, state, loop.outside(), meta)
    _, tensors, outside = checkpoint.load(saved)
    resumed = checkpoint.fill(loop.start(), tensors, saved)
    assert loop.restore(resumed, outside)
    resumed, _ = loop.advance(resumed, CHUNK)
    assert difference(whole, kept(resumed)) == 0


# Rows


def sentence_of(refused: pytest.ExceptionInfo) -> str:
    text = str(refused.value)
    assert "\n" not in text and text.endswith(".")
    return text


NONSENSE = {
    "exploration ucb needs an ensemble": {"agent": "dqn", "exploration": "ucb"},
    "exploration thompson needs head bayesian": {"agent": "c51", "exploration": "thompson"},
    "noisy layers explore by themselves": {"agent": "sunrise", "noisy": True},
    "exploration greedy never explores": {"agent": "rainbow", "noisy": False},
    "head bayesian infers its last layer": {"agent": "dueling", "head": "bayesian"},
    "head bayesian is a distribution over networks": {"agent": "bdqn", "ensemble": 3},
}


@pytest.mark.parametrize("beginning", NONSENSE)
def test_what_makes_no_sense_is_refused_in_one_sentence(beginning):
    with pytest.raises(SadqError) as refused:
        Config(target_update_interval=100, **NONSENSE[beginning])
    assert f"Agent {NONSENSE[beginning]['agent']} cannot be combined like that: {beginning}" in sentence_of(refused)


def test_every_refusal_has_its_example_here():
    assert all(any(sentence.startswith(beginning) for beginning in NONSENSE) for sentence in REFUSALS)
    assert len(REFUSALS) == len(NONSENSE)


def test_rows_name_only_what_there_is_and_make_sense():
    assert len(AGENTS) == 12
    for name, row in AGENTS.items():
        check_row(row, name)
        assert row.head in HEADS and row.bootstrap in RULES
        assert row.exploration in EXPLORATIONS and row.replay in REPLAYS
    assert {row.head for row in AGENTS.values()} == set(HEADS)
    assert {row.exploration for row in AGENTS.values()} == set(EXPLORATIONS)


def test_rows_are_those_of_the_papers():
    assert AGENTS["rainbow"] == AgentSpec("categorical", "double", "greedy", "prioritised", 3, True, True, 1)
    assert AGENTS["teg"] == dataclasses.replace(AGENTS["rainbow"], noisy=False, exploration="epsilon-z")
    assert AGENTS["sunrise"].ensemble == 5
    for name in ("qrdqn", "iqn", "coact"):
        row = AGENTS[name]
        assert (row.bootstrap, row.dueling, row.replay, row.n_step) == ("greedy", False, "uniform", 1), name


SOUND = Config(agent="dqn", target_update_interval=100)


def test_the_config_overrides_a_row_axis_by_axis():
    for axis in dataclasses.fields(AgentSpec):
        assert getattr(SOUND, axis.name) is None
    changed = dataclasses.replace(SOUND, agent="rainbow", head="implicit", n_step=2, noisy=True)
    expected = dataclasses.replace(AGENTS["rainbow"], head="implicit", n_step=2)
    assert changed.row == expected
    assert dataclasses.replace(SOUND, agent="qrdqn", bootstrap="double").row.bootstrap == "double"
    assert dataclasses.replace(SOUND, agent="dueling", dueling=False).row == AGENTS["dqn"]


COMBINATIONS: dict[str, dict[str, Any]] = {
    "rainbow of implicit quantiles": {"agent": "rainbow", "head": "implicit"},
    "an ensemble of categorical heads, partly heard": {"agent": "sunrise+sadq", "head": "categorical", "ensemble": 3},
    "everything on fractions": {
        "agent": "fqf",
        "dueling": True,
        "noisy": True,
        "exploration": "epsilon-z",
        "replay": "prioritised",
        "bootstrap": "double",
        "n_step": 2,
    },
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_axes_combine(name):
    fields = dict(COMBINATIONS[name])
    made = config(fields.pop("agent"), hidden=(8,), batch_size=8, updates_per_collect=2, **({"n_step": None} | fields))
    if "partly heard" in name:
        made = dataclasses.replace(made, agreement=dataclasses.replace(made.agreement, bootstrap_share=0.5))
    loop = loop_of(made)
    start = kept(loop.start())
    state, metrics = loop.advance(loop.start(), 0)
    assert (np.asarray(state.learner.diverged_at) == -1).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.learner, metrics)))
    assert difference(start.learner.online.parameters, state.learner.online.parameters) > 0
