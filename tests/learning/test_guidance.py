"""SADQ's advice by hand: the model's Bellman error, its scores, what a gate makes of both, and whose space a model is in."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    TableModel,
    filled,
    numbers,
    one_hot,
    phase_of,
    state_of,
    table_guidance,
    table_learner,
    table_model,
    table_network,
)

from sadq import keys
from sadq.core.bootstrap import Choice, Double
from sadq.core.gates import BatchReliability, Fixed, SampleReliability
from sadq.core.rollout import Prediction
from sadq.dynamics import Gaussian, ModelShape
from sadq.errors import SadqError
from sadq.learning.guidance import Advice, Seen
from sadq.learning.legal import every_action, legal_actions
from sadq.learning.model_updates import model_update
from sadq.types import Batch, Transition
from tiny import KEY, prepared

VALUES = jnp.array([[0.0, 0.0], [2.0, 4.0], [6.0, 1.0], [8.0, -8.0]])
"""Q'(s, a) of four states; gamma is one half throughout."""

MODEL = table_model(
    rewards=[[5.0, 2.0], [0.5, -3.0], [7.0, 1.0], [0.0, 4.0]],
    successors=[[1, 2], [3, 0], [2, 1], [0, 2]],
    continuation=[[1.0, 1.0], [0.25, 1.0], [0.5, 1.0], [1.0, 0.0]],
)
LEGAL = jnp.array([[True, True], [True, False], [True, True], [False, True]])


def legal_in(observation: jax.Array) -> jax.Array:
    return LEGAL[jnp.argmax(observation)]


def advice(model: Any = MODEL, legal: Any = every_action, network: Any = None, values: Any = None) -> Advice:
    network = table_network(VALUES) if network is None else network
    numbers_of = (jnp.float32(0.2), jnp.float32(0.5))
    return Advice(model, network, values, *numbers_of, legal_actions(legal, 2, None), KEY)


def happened(*steps: tuple[int, int, float, int, bool], masked: bool = False) -> Seen:
    """Of (s, a, r, s', terminal): both views of one step."""
    states, actions, rewards, following, terminal = map(jnp.array, zip(*steps, strict=True))
    before, after = one_hot(4, *states), one_hot(4, *following)
    masks = (LEGAL[states], LEGAL[following]) if masked else (None, None)
    off = jnp.zeros_like(terminal)
    discount = jnp.where(terminal, 0.0, 0.5)
    batch = Batch(before, actions, rewards.astype(jnp.float32), after, discount, *masks)
    return Seen(batch, Transition(before, actions, batch.reward, after, terminal, off, *masks), terminal)


@dataclass(frozen=True)
class Careless:
    """A gate that gives whatever it is made with."""

    weights: Any
    uses_error: ClassVar[bool] = False

    def __call__(self, *told: Any) -> Any:
        return self.weights


@pytest.mark.parametrize("weights", [None, 0.5, jnp.float32(0.5), jnp.ones((5, 1)), jnp.ones(4)])
def test_a_gate_that_does_not_weigh_every_sample_is_refused(weights):
    base = Choice(jnp.zeros((5, 1), int), jnp.ones((5, 1)))
    guidance = table_guidance(MODEL, 2, gate=Careless(weights))
    with pytest.raises(SadqError, match=r"gate Careless gave .*, expected the weight of each of 5 samples, f32\[B\]"):
        guidance.guide(base, advice(values=jnp.zeros((5, 2))), happened(*STEPS))


STEPS = (
    (0, 1, 1.0, 1, False),
    (1, 0, -1.0, 2, True),
    (2, 1, 0.0, 3, False),
    (3, 1, 2.0, 2, False),
    (2, 0, 0.0, 2, False),
)


def test_the_bellman_error_by_hand():
    """r^ + gamma c^ max Q'(s^) - (r + gamma (1 - terminal) max Q'(s'))."""
    error = table_guidance(MODEL, 2).bellman_error(advice(), happened(*STEPS))
    expected = [
        (2 + 0.5 * 6) - (1 + 0.5 * 4),  # another reward and another successor
        (0.5 + 0.5 * 0.25 * 8) - -1,  # the episode ended, which the model did not quite believe
        (1 + 0.5 * 4) - (0 + 0.5 * 8),
        (4 + 0.0) - (2 + 0.5 * 6),  # the model believed in an end that did not come
        (7 + 0.5 * 0.5 * 6) - (0 + 0.5 * 6),
    ]
    np.testing.assert_allclose(error, expected, rtol=1e-6)
    np.testing.assert_allclose(expected, [2.0, 2.5, -1.0, -1.0, 5.5])


def test_the_bellman_error_looks_at_legal_actions_only():
    """At s' those that were told, at a predicted state those that the rules name: states 1 and 3 have one each."""
    error = table_guidance(MODEL, 2).bellman_error(advice(legal=legal_in), happened(*STEPS, masked=True))
    expected = [
        (2 + 0.5 * 6) - (1 + 0.5 * 2),
        (0.5 + 0.5 * 0.25 * -8) - -1,
        (1 + 0.5 * 2) - (0 + 0.5 * -8),
        4 - (2 + 0.5 * 6),
        (7 + 0.5 * 0.5 * 6) - (0 + 0.5 * 6),
    ]
    np.testing.assert_allclose(error, expected, rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_scores_by_hand(masked):
    """r^ + gamma c^ max Q'(s^) of both actions at every s'; they look no further than one step, whatever n is."""
    seen = happened(*STEPS, masked=masked)
    batch = seen.batch._replace(discount=jnp.full(5, 0.125))
    found = table_guidance(MODEL, 2).scores(advice(legal=legal_in if masked else every_action), batch)
    best = np.array([0.0, 2.0, 6.0, -8.0]) if masked else np.array([0.0, 4.0, 6.0, 8.0])
    rewards, successors = np.asarray(MODEL.rewards), np.argmax(MODEL.successors, axis=2)
    by_state = rewards + 0.5 * np.asarray(MODEL.continuation) * best[successors]
    np.testing.assert_allclose(found, by_state[[1, 2, 3, 2, 2]], rtol=1e-6)
    assert found[0, 0] == (0.5 + 0.125 * (-8 if masked else 8))


# Gates, as the learner asks them

PERFECT = ((0, 1, 2.0, 2, False), (2, 1, 1.0, 1, False), (3, 1, 4.0, 2, True), (0, 0, 5.0, 1, False))
"""What the model says, where it is sure: s' are 2, 1, 2 and 1, at which the values differ by 5, 2, 5 and 2."""


@functools.cache
def gated(gate: Any) -> Any:
    learner = table_learner(4, 2, guidance=table_guidance(MODEL, 2, gate=gate))
    network, seen = table_network(VALUES), happened(*PERFECT)

    @jax.jit
    def alphas(model: TableModel) -> jax.Array:
        found = learner.targets(state_of(network, network, model), numbers(alpha=0.2), KEY, seen)
        return found.diagnostics["alpha"][0]

    return alphas


def shifted(by: float) -> TableModel:
    """All rewards wrong by the same amount, so that no preference changes."""
    return TableModel(MODEL.rewards + by, MODEL.successors, MODEL.continuation)


@pytest.mark.parametrize(("error", "expected"), [(0.0, 0.2), (0.7, 0.36), (1.75, 0.6), (3.5, 1.0), (1e9, 1.0)])
def test_the_batch_gate_opens_as_far_as_the_model_is_right(error, expected):
    """1 - (1 - alpha)(1 - error / gap), where the gap is 3.5 on average."""
    np.testing.assert_allclose(gated(BatchReliability())(shifted(error)), expected, rtol=1e-5)
    np.testing.assert_allclose(gated(Fixed())(shifted(error)), 0.2, rtol=1e-6)


@pytest.mark.parametrize("error", [-0.7, 0.7])
def test_what_is_told_of_an_error_is_its_size(error):
    learner = table_learner(4, 2, guidance=table_guidance(MODEL, 2, gate=BatchReliability()))
    network, model = table_network(VALUES), shifted(error)
    found = learner.targets(state_of(network, network, model), numbers(alpha=0.2), KEY, happened(*PERFECT))
    np.testing.assert_allclose(found.diagnostics["bellman_error"][0], 0.7, rtol=1e-5)


@pytest.mark.parametrize(("error", "opens"), [(0.0, True), (2.9, True), (3.1, False), (1e9, False)])
def test_the_sample_gate_opens_where_the_model_prefers_its_action_by_more_than_it_errs(error, opens):
    """At s' = 1 it prefers action 0, by 3, to the target's action 1; at s' = 2 it agrees."""
    model = TableModel(MODEL.rewards.at[1, 1].add(1.5), MODEL.successors, MODEL.continuation)
    model = TableModel(model.rewards + error, model.successors, model.continuation)
    expected = [1.0, 0.2 if opens else 1.0, 1.0, 0.2 if opens else 1.0]
    np.testing.assert_allclose(gated(SampleReliability())(model), expected, rtol=1e-6)


def test_the_sample_gate_compares_with_the_action_that_the_base_chose():
    """Double takes the online network's action, not the one that the target's values would name."""
    target = jnp.tile(jnp.array([0.0, 10.0]), (4, 1))
    model = TableModel(jnp.tile(jnp.array([0.0, 5.0]), (4, 1)), MODEL.successors, MODEL.continuation.at[:].set(0.0))
    online = jnp.tile(jnp.array([10.0, 0.0]), (4, 1))

    def weight(bootstrap: Any, online: Any) -> Any:
        learner = table_learner(4, 2, bootstrap=bootstrap, guidance=table_guidance(model, 2, gate=SampleReliability()))
        state = state_of(table_network(online), table_network(target), model)
        seen = happened((0, 1, 5.0, 1, True), (1, 1, 4.0, 2, True))  # errors 0 and 1
        return learner.targets(state, numbers(alpha=0.2), KEY, seen).diagnostics["alpha"][0]

    np.testing.assert_allclose(weight(Double(), online), 0.2)
    np.testing.assert_allclose(weight(Double(), target), 1.0)


@pytest.mark.parametrize("gate", ["fixed", "batch", "sample"])
def test_gates_lift_alpha_but_never_lower_it(gate):
    learner, hyper, state, batch = prepared("dqn+sadq", alpha=(0.2,), model=Gaussian(hidden=(8,)), gate=gate)
    alpha = np.asarray(jax.jit(learner.targets)(state, hyper, KEY, batch).diagnostics["alpha"])
    assert alpha.shape == (1, 12) and (alpha >= 0.2 - 1e-6).all() and (alpha <= 1 + 1e-6).all()
    if gate == "fixed":
        np.testing.assert_allclose(alpha, 0.2)
    else:  # an untrained model is wrong by more than the actions differ
        assert alpha.mean() > 0.9


# Which actions are rolled out

LARGE = jax.random.normal(KEY, (7, 7))


def scored(candidates: int | None = None, chunk: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(rollout scores, target values), [B, 7], by a model that samples; the third action is illegal everywhere."""
    choice = Gaussian(hidden=(8,))
    model = filled(jax.eval_shape(lambda key: choice.build(ModelShape((7,), 7), key), KEY), 0)
    network = table_network(LARGE)
    guidance = table_guidance(model, 7, chunk=chunk, candidates=candidates)
    following = jax.random.normal(keys.member_key(2), (12, 7))
    mask = jnp.ones((12, 7), bool).at[:, 2].set(False)
    batch = Batch(following, jnp.zeros(12, int), jnp.zeros(12), following, jnp.full(12, 0.5), None, mask)
    values = jax.vmap(network.mean)(following)
    asked = advice(model, network=network, values=values)._replace(legal=legal_actions(every_action, 7, None))
    return np.asarray(guidance.scores(asked, batch)), np.asarray(values)


@pytest.fixture(scope="module")
def all_scores() -> tuple[np.ndarray, np.ndarray]:
    return scored()


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_action_axis_can_be_cut_into_chunks(all_scores, chunk):
    np.testing.assert_allclose(scored(chunk=chunk)[0], all_scores[0], atol=1e-5)


@pytest.mark.parametrize(("candidates", "chunk"), [(1, None), (3, None), (3, 2), (7, None), (100, None)])
def test_rollouts_may_be_limited_to_the_best_legal_actions(all_scores, candidates, chunk):
    """Their scores are what they are among all; the others' can never be the largest."""
    whole, values = all_scores
    legal = np.where(np.arange(7) == 2, -np.inf, values)
    few, _ = scored(candidates, chunk)
    for own, every, value in zip(few, whole, legal, strict=True):
        best = np.argsort(-value)[:candidates]
        np.testing.assert_allclose(own[best], every[best], atol=1e-5)
        assert (own[np.setdiff1d(np.arange(7), best)] == -np.inf).all()


# A model of features


class NoisyModel(TableModel):
    """Its reward is a draw."""

    def step(self, context: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        return super().step(context, action, key)._replace(reward=jax.random.normal(key))


def test_every_sample_s_bellman_error_has_its_own_draw():
    """By the numbers of the samples, from 0 on, so that none of them depends on how many there are."""
    model, seen = NoisyModel(MODEL.rewards, MODEL.successors, MODEL.continuation), happened(*STEPS)
    guidance, asked = table_guidance(model, 2), advice(model)
    drawn = [jax.random.normal(jax.random.fold_in(keys.purpose(KEY, "gate"), number)) for number in range(len(STEPS))]
    known = table_guidance(MODEL, 2).bellman_error(advice(), seen) - np.array([2.0, 0.5, 1.0, 4.0, 7.0])
    np.testing.assert_allclose(guidance.bellman_error(asked, seen), known + np.array(drawn), rtol=1e-5)


class FeatureModel(TableModel):
    """Its states are the features of an encoder that doubles everything, and so are its predictions."""

    space: ClassVar[str] = "features"

    def step(self, context: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        predicted = super().step(context, action, key)
        return predicted._replace(next_input=10 * predicted.next_input)

    def loss(self, transition: Transition, key: jax.Array, features: Any) -> tuple[jax.Array, dict]:
        guess = self.step(self.encode(transition.observation), transition.action, key)
        state_loss = jnp.sum(jnp.square(guess.next_input - features(transition.next_observation)))
        return state_loss, {"model_state_loss": state_loss}


def test_a_model_of_features_is_scored_by_the_head_alone():
    """Predictions go to the head as they are, times ten; what really happened goes through the encoder, times two."""
    model = FeatureModel(MODEL.rewards, MODEL.successors, MODEL.continuation)
    guidance, seen = table_guidance(model, 2), happened(*STEPS)
    asked = advice(model, legal=legal_in, network=table_network(VALUES, scale=2.0))
    best, successors = np.array([0.0, 4.0, 6.0, 8.0]), np.argmax(MODEL.successors, axis=2)
    by_state = np.asarray(MODEL.rewards) + 0.5 * np.asarray(MODEL.continuation) * 10 * best[successors]
    np.testing.assert_allclose(guidance.scores(asked, seen.batch), by_state[[1, 2, 3, 2, 2]], rtol=1e-6)
    real = np.array([1.0, -1.0, 0.0, 2.0, 0.0]) + 0.5 * np.array([2 * 4, 0, 2 * 8, 2 * 6, 2 * 6])
    expected = by_state[[0, 1, 2, 3, 2], [1, 0, 1, 1, 0]] - real
    np.testing.assert_allclose(guidance.bellman_error(asked, seen), expected, rtol=1e-6)


def test_a_model_of_features_learns_from_the_target_network_s():
    model = FeatureModel(MODEL.rewards, MODEL.successors, MODEL.continuation)
    learner = table_learner(4, 2, guidance=table_guidance(model, 2))
    state = state_of(table_network(VALUES, scale=7.0), table_network(VALUES, scale=2.0), model)
    batch = happened(*STEPS).transition
    after, parts = model_update(learner.guidance, state, phase_of(learner, numbers()), KEY, batch)
    # 10 at the predicted state and 2 at the real one, which are the same only in the last two steps.
    np.testing.assert_allclose(parts["model_state_loss"], [104, 104, 104, 64, 64], rtol=1e-6)
    assert after.model.diverged_at == -1 and after.model.steps == 1


def test_unless_told_otherwise_every_action_is_rolled_out_once():
    plain = table_guidance(MODEL, 2)
    assert (plain.samples, plain.chunk, plain.candidates, plain.gate) == (1, None, None, Fixed())
