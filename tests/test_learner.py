"""One learner: alpha=1 is the base agent bit for bit, targets come from the target network, gradients stop there."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.agents import AGENTS
from sadq.experiment.build import hyper_of
from sadq.experiment.config import Model
from sadq.learner import Learner, Seen
from sadq.types import Batch, Transition
from tiny import advanced, config, difference, learner_of, loop_of, member

KEY = keys.member_key(9)


@pytest.mark.parametrize("agent", AGENTS)
def test_alpha_one_is_the_base_agent_bit_for_bit_over_a_thousand_updates(agent):
    base = advanced(loop_of(config(agent, seeds=(3,))), 10)
    guided = advanced(loop_of(config(f"{agent}+sadq", seeds=(3,), alpha=(1.0,))), 10)
    assert difference(base.learner.online, guided.learner.online) == 0
    assert difference(base.learner.target, guided.learner.target) == 0
    assert difference(base.ring, guided.ring) == 0
    assert base.learner.model is None and guided.learner.model is not None


def test_a_smaller_alpha_is_another_agent():
    states = [advanced(loop_of(config("dqn+sadq", alpha=(alpha,))), 1) for alpha in (1.0, 0.2)]
    assert difference(states[0].learner.online, states[1].learner.online) > 0


def seen(learner: Learner, batch: int = 12) -> Seen:
    """Random transitions, some of them terminal."""
    size, actions = learner.ring.observation_size, learner.ring.action_count
    observation, following = jax.random.normal(KEY, (2, batch, size))
    action = jnp.arange(batch) % actions
    reward = jnp.linspace(-1, 1, batch)
    terminated = jnp.arange(batch) % 4 == 0
    transition = Transition(observation, action, reward, following, terminated, jnp.zeros(batch, bool))
    discount = jnp.where(terminated, 0.0, 0.9)
    return Seen(Batch(observation, action, reward, following, discount), transition)


def prepared(agent: str, **fields):
    """(learner, hyper of its one member, state with a target unlike the online network, a batch)."""
    made = config(agent, discount=(0.9,), **fields)
    learner = learner_of(made)
    hyper = member(hyper_of(made), 0)
    state = learner.init(hyper)
    other = learner.init(hyper._replace(seed=jnp.uint32(77)))
    return learner, hyper, state._replace(target=other.target), seen(learner)


def test_the_target_is_the_equation():
    """y = r + gamma (1 - terminal) [alpha max Q' + (1 - alpha) Q'(a_hat)], written out with NumPy."""
    learner, hyper, state, batch = prepared("dueling+sadq", alpha=(0.3,), model=Model(hidden=(8,), rollout="mean"))
    targets, diagnostics = learner.targets(state, hyper, KEY, batch)
    model = state.model.parameters
    for index in range(12):
        following = batch.batch.next_observation[index]
        values = np.asarray(state.target(following).mean)
        scores = []
        for action in range(3):
            prediction = model.step(model.encode(following), jnp.int32(action), KEY)
            scores.append(prediction.reward + 0.9 * np.max(state.target(prediction.next_input).mean))
        mixed = 0.3 * values.max() + 0.7 * values[np.argmax(scores)]
        expected = batch.batch.reward[index] + batch.batch.discount[index] * mixed
        np.testing.assert_allclose(targets.values[index], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(diagnostics["greedy_minus_mixed"][index], values.max() - mixed, atol=1e-5)
        assert diagnostics["disagreement"][index] == (np.argmax(values) != np.argmax(scores))


@pytest.mark.parametrize("agent", ["dqn", "double", "dueling", "dueling+sadq"])
def test_targets_read_the_target_network_s_values(agent):
    learner, hyper, state, batch = prepared(agent)
    moved = state._replace(target=jax.tree.map(lambda leaf: leaf + 0.1, state.target))
    before, _ = learner.targets(state, hyper, KEY, batch)
    after, _ = learner.targets(moved, hyper, KEY, batch)
    ongoing = np.asarray(batch.batch.discount) > 0
    assert (np.abs(before.values - after.values) > 1e-4)[ongoing].all()
    np.testing.assert_array_equal(before.values[~ongoing], np.asarray(batch.batch.reward)[~ongoing])


def test_only_double_reads_the_online_network():
    for agent, reads in (("dqn", False), ("double", True)):
        learner, hyper, state, batch = prepared(agent)
        flipped = jax.tree.map(jnp.negative, state.online.parameters)
        other = state._replace(online=state.online._replace(parameters=flipped))
        changed = difference(learner.targets(state, hyper, KEY, batch)[0], learner.targets(other, hyper, KEY, batch)[0])
        assert (changed > 0) == reads


@pytest.mark.parametrize("agent", ["dqn", "double+sadq"])
def test_the_gradient_takes_targets_as_constants(agent):
    """Even where target and online network are the same parameters, as after every copy."""
    learner, hyper, state, batch = prepared(agent, max_gradient_norm=None, huber=None)
    state = state._replace(target=state.online.parameters)
    targets, _ = learner.targets(state, hyper, KEY, batch)
    constants, actions = np.asarray(targets.values), np.asarray(batch.batch.action)

    def loss(online):
        values = jax.vmap(lambda one: online(one).mean)(batch.batch.observation)
        return jnp.mean(jnp.square(values[jnp.arange(12), actions] - constants))

    after, _, _ = learner.value_update(state, hyper, hyper.learning_rate, KEY, batch, jnp.ones(12), jnp.int32(0))
    expected = jax.grad(loss)(state.online.parameters)
    # Adam's first moment after one step is a tenth of the gradient.
    for got, wanted in zip(jax.tree.leaves(after.online.moments.first), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(10 * got, wanted, rtol=1e-3, atol=1e-6)
    assert after.model is None or difference(state.model, after.model) == 0


@pytest.mark.parametrize("gate", ["fixed", "batch", "sample"])
def test_gates_lift_alpha_but_never_lower_it(gate):
    learner, hyper, state, batch = prepared("dqn+sadq", alpha=(0.2,), model=Model(hidden=(8,), gate=gate))
    _, diagnostics = learner.targets(state, hyper, KEY, batch)
    alpha = np.asarray(diagnostics["alpha"])
    assert (alpha >= 0.2 - 1e-6).all() and (alpha <= 1 + 1e-6).all()
    if gate == "fixed":
        np.testing.assert_allclose(alpha, 0.2)
    else:  # an untrained model is wrong by more than the actions differ
        assert alpha.mean() > 0.9


def test_the_action_axis_can_be_cut_into_chunks():
    learner, hyper, state, batch = prepared("dqn+sadq", environment="BitFlip-7")
    whole, following = learner.guidance, batch.batch.next_observation
    scores = whole.scores(state.model.parameters, state.target, following, hyper.discount, KEY)
    for chunk in (1, 3, 7):
        cut = dataclasses.replace(whole, chunk=chunk)
        same = cut.scores(state.model.parameters, state.target, following, hyper.discount, KEY)
        np.testing.assert_allclose(same, scores, atol=1e-5)


def test_a_non_finite_loss_freezes_the_member_and_records_the_step():
    learner, hyper, state, batch = prepared("dqn")
    poisoned = batch._replace(batch=batch.batch._replace(reward=batch.batch.reward.at[3].set(jnp.nan)))
    update = jax.jit(lambda state, seen, step: learner.value_update(state, hyper, 0.1, KEY, seen, jnp.ones(12), step))
    after, _, _ = update(state, poisoned, jnp.int32(640))
    assert after.diverged_at == 640 and difference(after.online, state.online) == 0
    still, _, _ = update(after, batch, jnp.int32(672))
    assert still.diverged_at == 640 and difference(still.online, state.online) == 0
    healthy, _, _ = update(state, batch, jnp.int32(640))
    assert healthy.diverged_at == -1 and difference(healthy.online, state.online) > 0


def test_overflowing_gradients_leave_parameters_finite():
    learner, hyper, state, batch = prepared("dqn")
    huge = batch._replace(batch=batch.batch._replace(reward=jnp.full(12, 1e19)))
    after, _, _ = learner.value_update(state, hyper, 1e30, KEY, huge, jnp.ones(12), jnp.int32(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.online.parameters))


@pytest.mark.parametrize("option", [{"replay": "prioritised"}, {"n_step": 3}, {"replay": "prioritised", "n_step": 3}])
def test_prioritised_and_n_step_replay_train(option):
    state = advanced(loop_of(config("double+sadq", **option)), 1)
    assert (state.learner.diverged_at == -1).all()
    if "replay" in option:
        assert len(np.unique(state.priorities.leaves)) > 10


def test_soft_targets_follow_and_clipping_bounds_the_step():
    learner, hyper, state, batch = prepared("dqn", soft_target_rate=0.25, max_gradient_norm=1e-6)
    after, _, _ = learner.value_update(state, hyper, hyper.learning_rate, KEY, batch, jnp.ones(12), jnp.int32(0))
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, state.target, after.online.parameters)
    for got, wanted in zip(jax.tree.leaves(after.target), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    norm = float(jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(after.online.moments.first))))
    assert norm == pytest.approx(0.1 * 1e-6, rel=1e-3)
