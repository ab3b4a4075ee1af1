"""Every agent, plain and with SADQ: alpha=1 is the base bit for bit, a known world is learned, a resume is exact.

The checks of a variant share its compiled program, and so its fleet: SADQ's has a member with alpha 1, one with less, and
one with alpha 1 whose model diverges. Once it is known that alpha 1 is the plain agent, only guided fleets are looked at.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.agents import AGENTS
from sadq.experiment import checkpoint
from sadq.experiment.build import hyper_of
from sadq.experiment.config import Config
from sadq.exploration.situation import settled_values
from sadq.fleet.members import MemberState
from sadq.fleet.scan_loop import ScanLoop
from sadq.networks import Fraction, Implicit, Quantile
from sadq.replay import Prioritised
from small_fleets import scan_loop
from tiny import CHUNK, Corridor, assert_knows_the_corridor, corridor_config, difference, member

MIXTURE = " as a mixture"
MIXED = {  # CoAct learns as QR-DQN does
    "qrdqn": Quantile(quantiles=8, mixing="mixture"),
    "iqn": Implicit(levels=4, cosines=8, mixing="mixture"),
    "fqf": Fraction(levels=4, cosines=8, mixing="mixture"),
}
MARKS = {"dueling": pytest.mark.users} | dict.fromkeys(("double", "c51", "teg", "coact"), pytest.mark.thorough)
"""Four rows put parts together that others have between them: Double's rule and C51's head are Rainbow's, TEG is Rainbow
without noise, CoAct is QR-DQN but for what a deviation is."""
EARLY, CHUNKS = 2, 12
EXACT, HEARD, BROKEN = range(3)  # the members of a guided fleet


class Lived(NamedTuple):
    """A variant after 200 updates, or after 1200."""

    loop: ScanLoop
    state: MemberState


@functools.cache
def early(variant: str) -> Lived:
    agent = variant.removesuffix(MIXTURE)
    fields: dict[str, Any] = {"head": MIXED[agent.removesuffix("+sadq")]} if variant != agent else {}
    loop = guided_loop(corridor_config(agent, alpha=(1.0, 0.4, 1.0), **fields)) if "+sadq" in agent else None
    loop = loop or scan_loop(corridor_config(agent), Corridor())
    return Lived(loop, advanced(loop, loop.start(), range(EARLY)))


@functools.cache
def lived(variant: str) -> Lived:
    """By the program that it was early by, and from there on."""
    loop, state = early(variant)
    return Lived(loop, advanced(loop, jax.tree.map(jnp.array, state), range(EARLY, CHUNKS)))


def advanced(loop: ScanLoop, state: MemberState, chunks: range) -> MemberState:
    for index in chunks:
        state, _ = loop.advance(state, index * CHUNK)
    return kept(state)


def guided_loop(made: Config) -> ScanLoop:
    hyper = hyper_of(made)
    rates = hyper.model_learning_rate.at[BROKEN].set(1e30)
    return scan_loop(made, Corridor(), hyper=hyper._replace(model_learning_rate=rates))


def kept(state: MemberState) -> MemberState:
    """A copy that the next chunk, which takes over the state's memory, leaves as it is."""
    return jax.tree.map(lambda leaf: np.array(leaf), state)


@pytest.fixture(scope="module", params=[pytest.param(name, marks=MARKS.get(name, ())) for name in AGENTS])
def base(request) -> Iterator[str]:
    """An agent; its variants' programs are let go when the next one's turn comes."""
    yield request.param
    for remembered in (early, lived):
        remembered.cache_clear()


def learned(state: MemberState, index: int) -> dict[str, Any]:
    """A member but for its model."""
    own = member(state, index)
    return own._replace(learner=None)._asdict() | own.learner._replace(model=None)._asdict()


@pytest.mark.exact
def test_alpha_one_is_the_base_agent_bit_for_bit(base):
    """Whatever becomes of the model, and although it is asked at every update."""
    plain = early(base).state
    assert plain.learner.model is None
    expected = learned(plain, 0)
    assert_alpha_one_is(expected, f"{base}+sadq")
    if base == "qrdqn":
        assert_alpha_one_is(expected, f"{base}+sadq{MIXTURE}")


@pytest.mark.exact
@pytest.mark.thorough
@pytest.mark.parametrize("agent", [agent for agent in MIXED if agent != "qrdqn"])
def test_alpha_one_of_a_mixture_is_the_base_agent_bit_for_bit(agent):
    assert_alpha_one_is(learned(early(agent).state, 0), f"{agent}+sadq{MIXTURE}")


def assert_alpha_one_is(expected: dict[str, Any], variant: str) -> None:
    guided = early(variant).state
    models = guided.learner.model
    assert models.steps.tolist()[:2] == [EARLY * CHUNK * 10] * 2 and models.steps[BROKEN] < 10
    assert models.diverged_at[:BROKEN].tolist() == [-1, -1] and models.diverged_at[BROKEN] > 0
    for index in (EXACT, BROKEN):
        found = learned(guided, index)
        assert found.keys() == expected.keys()
        for part, value in expected.items():
            assert difference(value, found[part]) == 0, (variant, index, part)
    assert difference(learned(guided, EXACT)["online"], learned(guided, HEARD)["online"]) > 0, "alpha matters"


def test_a_corridor_with_a_known_value_is_learned(base):
    loop, state = lived(f"{base}+sadq")
    assert (state.learner.online.diverged_at == -1).all()
    evaluation = jax.tree.map(np.asarray, loop.evaluate(state, 0))
    assert (evaluation.lengths <= 4).all() and len(np.unique(evaluation.lengths)) > 1
    np.testing.assert_allclose(evaluation.discounted, 0.9 ** (evaluation.lengths - 1), rtol=1e-5)
    for index in range(evaluation.lengths.shape[0]):
        assert_knows_the_corridor(member(state.learner.online.parameters, index))


def test_priorities_follow_what_is_learned(base):
    prioritised = isinstance(AGENTS[base].replay, Prioritised)
    sampler = lived(f"{base}+sadq").state.sampler
    assert (sampler is not None) == prioritised
    if sampler is not None:
        for leaves in sampler.leaves:
            assert len(np.unique(leaves)) > 10 and (leaves >= 0).all()


def test_evaluation_is_deterministic_and_by_the_mean_alone(base):
    """No noise in layers, no random levels, no draw from a posterior; an ensemble by its average."""
    loop, state = lived(f"{base}+sadq")
    once, again = (jax.tree.map(np.asarray, loop.evaluate(state, 0)) for _ in range(2))
    assert difference(once, again) == 0
    for index in range(once.predicted.shape[0]):
        values = np.asarray(settled_values(member(state.learner.online.parameters, index), jnp.eye(5), None))
        # Where right is always taken, an episode's length tells the cell that it began in.
        np.testing.assert_allclose(once.predicted[index], values.max(axis=1)[4 - once.lengths[index]], rtol=1e-5)


def test_a_resume_is_exact(base, tmp_path: Path):
    loop, _ = lived(f"{base}+sadq")
    state, _ = loop.advance(loop.start(), 0)
    meta = {name: 0.0 if kind == int | float else kind() for name, kind in checkpoint.RECORDED.items()}
    saved = checkpoint.save(tmp_path / "run", CHUNK, state, loop.outside(), meta)
    whole, _ = loop.advance(state, CHUNK)
    _, tensors, outside = checkpoint.load(saved)
    resumed = checkpoint.fill(loop.start(), tensors, saved)
    assert difference(kept(resumed), kept(loop.start())) > 0
    assert loop.restore(resumed, outside)
    resumed, _ = loop.advance(resumed, CHUNK)
    assert difference(kept(whole), kept(resumed)) == 0
