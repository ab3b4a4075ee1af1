"""One learner: targets come from the target network, gradients stop there."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.experiment.config import Agreement, Model
from sadq.networks import Ensemble, ValueNetwork
from sadq.learning.optimiser import trainable
from tiny import KEY, assert_close, difference, member, prepared


def test_the_target_is_the_equation():
    """y = r + gamma (1 - terminal) [alpha max Q' + (1 - alpha) Q'(a_hat)], written out with NumPy."""
    learner, hyper, state, batch = prepared("dueling+sadq", alpha=(0.3,), model=Model(hidden=(8,), rollout="mean"))
    targets = learner.targets(state, hyper, KEY, batch)
    diagnostics, model = targets.diagnostics, state.model.parameters
    for index in range(12):
        following = batch.batch.next_observation[index]
        values = np.asarray(state.target(following).mean)
        scores = []
        for action in range(3):
            prediction = model.step(model.encode(following), jnp.int32(action), KEY)
            scores.append(prediction.reward + 0.9 * np.max(state.target(prediction.next_input).mean))
        mixed = 0.3 * values.max() + 0.7 * values[np.argmax(scores)]
        expected = batch.batch.reward[index] + batch.batch.discount[index] * mixed
        np.testing.assert_allclose(targets.returns.values[index], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(targets.bootstrap[index], mixed, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(diagnostics["greedy_minus_mixed"][index], values.max() - mixed, atol=1e-5)
        assert diagnostics["disagreement"][index] == (np.argmax(values) != np.argmax(scores))


@pytest.mark.parametrize("agent", ["dqn", "double", "dueling", "dueling+sadq"])
def test_targets_read_the_target_network_s_values(agent):
    learner, hyper, state, batch = prepared(agent)
    moved = state._replace(target=jax.tree.map(lambda leaf: leaf + 0.1, state.target))
    before = learner.targets(state, hyper, KEY, batch).returns
    after = learner.targets(moved, hyper, KEY, batch).returns
    ongoing = np.asarray(batch.batch.discount) > 0
    assert (np.abs(before.values - after.values) > 1e-4)[ongoing].all()
    np.testing.assert_array_equal(before.values[~ongoing], np.asarray(batch.batch.reward)[~ongoing])


def test_only_double_reads_the_online_network():
    for agent, reads in (("dqn", False), ("double", True)):
        learner, hyper, state, batch = prepared(agent)
        flipped = jax.tree.map(jnp.negative, state.online.parameters)
        other = state._replace(online=state.online._replace(parameters=flipped))
        changed = difference(*(learner.targets(own, hyper, KEY, batch).returns for own in (state, other)))
        assert (changed > 0) == reads


@pytest.mark.parametrize("agent", ["dqn", "double+sadq"])
def test_the_gradient_takes_targets_as_constants(agent):
    """Even where target and online network are the same parameters, as after every copy."""
    learner, hyper, state, batch = prepared(agent, max_gradient_norm=None, huber=None)
    state = state._replace(target=state.online.parameters)
    constants = np.asarray(learner.targets(state, hyper, KEY, batch).returns.values)
    actions = np.asarray(batch.batch.action)

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
    alpha = np.asarray(learner.targets(state, hyper, KEY, batch).diagnostics["alpha"])
    assert (alpha >= 0.2 - 1e-6).all() and (alpha <= 1 + 1e-6).all()
    if gate == "fixed":
        np.testing.assert_allclose(alpha, 0.2)
    else:  # an untrained model is wrong by more than the actions differ
        assert alpha.mean() > 0.9


def scored(candidates: int | None = None, chunk: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(rollout scores, target values), [B, 7], of a DQN on seven bits, whose third action is illegal everywhere."""
    learner, hyper, state, seen = prepared("dqn+sadq", environment="BitFlip-7")
    guidance = dataclasses.replace(learner.guidance, chunk=chunk, candidates=candidates)
    batch = seen.batch._replace(next_mask=jnp.ones((12, 7), bool).at[:, 2].set(False))
    values = jax.vmap(state.target.mean)(batch.next_observation)
    score = jax.jit(lambda model: guidance.scores(model, state.target.mean, values, batch, hyper.discount, KEY))
    return np.asarray(score(state.model.parameters)), np.asarray(values)


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


def test_soft_targets_follow_and_clipping_bounds_the_step():
    learner, hyper, state, batch = prepared("dqn", soft_target_rate=0.25, max_gradient_norm=1e-6)
    after, _, _ = learner.value_update(state, hyper, hyper.learning_rate, KEY, batch, jnp.ones(12), jnp.int32(0))
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, state.target, after.online.parameters)
    for got, wanted in zip(jax.tree.leaves(after.target), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    norm = float(jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(after.online.moments.first))))
    assert norm == pytest.approx(0.1 * 1e-6, rel=1e-3)


# Ensembles


def alone(ensemble: Ensemble, index: int) -> ValueNetwork:
    return member(ensemble.members, index)


def test_the_networks_of_an_ensemble_begin_apart():
    *_, state, _ = prepared("sunrise")
    online = state.online.parameters
    assert online.size == 5
    for leaf in map(np.asarray, jax.tree.leaves(online.members)):
        assert all((leaf[one] != leaf[two]).all() for one, two in itertools.combinations(range(5), 2))
    other = prepared("sunrise", seeds=(4,))[2].online.parameters
    assert not np.isin(online.members.head.stream.advantage.bias, other.members.head.stream.advantage.bias).any()


def test_without_temperature_each_network_learns_as_if_alone():
    """sigmoid(0) + 1/2 = 1, so an ensemble of five is five DQNs on the same batch, gradient clipping included."""
    ensemble, hyper, state, batch = prepared("sunrise", agreement=Agreement(temperature=0.0), max_gradient_norm=0.05)
    solo, *_ = prepared("dqn", max_gradient_norm=0.05)
    arguments = (hyper, hyper.learning_rate, KEY, batch, jnp.linspace(0.5, 1, 12), jnp.int32(0))
    after, surprise, _ = jax.jit(lambda own: ensemble.value_update(own, *arguments))(state)
    update, surprises = jax.jit(lambda own: solo.value_update(own, *arguments)), []
    for index in range(5):
        start = trainable(alone(state.online.parameters, index))
        own, own_surprise, _ = update(state._replace(online=start, target=alone(state.target, index)))
        assert_close(alone(after.online.parameters, index), own.online.parameters, rtol=1e-5)
        assert_close(alone(after.online.moments.first, index), own.online.moments.first, rtol=1e-4, atol=1e-8)
        assert_close(alone(after.target, index), own.target, rtol=1e-5)
        surprises.append(own_surprise)
    np.testing.assert_allclose(surprise, np.mean(surprises, axis=0), rtol=1e-5)


def test_a_network_learns_only_from_what_it_hears():
    learner, hyper, state, batch = prepared("sunrise", agreement=Agreement(bootstrap_share=0.5))
    heard = jnp.ones((12, 5), bool).at[:, 1].set(False).at[:6, 2].set(False)
    update = jax.jit(
        lambda batch, heard: (
            learner.value_update(state, hyper, hyper.learning_rate, KEY, batch, jnp.ones(12), jnp.int32(0), heard)[
                0
            ].online
        )
    )
    after = update(batch, heard)
    assert difference(alone(after.parameters, 1), alone(state.online.parameters, 1)) == 0
    assert all(
        difference(alone(after.parameters, one), alone(state.online.parameters, one)) > 0 for one in (0, 2, 3, 4)
    )
    # What network 2 does not hear may be anything, as long as the others' disagreement stays what it is.
    louder = batch._replace(batch=batch.batch._replace(reward=batch.batch.reward.at[:6].add(1.0)))
    other = update(louder, heard)
    assert difference(alone(after.parameters, 2), alone(other.parameters, 2)) == 0
    assert difference(alone(after.parameters, 0), alone(other.parameters, 0)) > 0


def test_bootstrap_masks_reach_the_learner_by_the_transition_s_number():
    """A transition is heard by the same networks at every visit, also after the ring has turned."""
    learner, hyper, *_ = prepared("sunrise", agreement=Agreement(bootstrap_share=0.5), buffer_size=64)
    position = jnp.arange(64)
    early, same = (np.asarray(learner._heard(hyper, jnp.int32(rows), position)) for rows in (8, 8))
    np.testing.assert_array_equal(early, same)
    later = np.asarray(learner._heard(hyper, jnp.int32(10), position))
    np.testing.assert_array_equal(later[16:], early[16:])
    assert (later[:16] != early[:16]).any(), "two rows of 8 were overwritten, by other transitions"
    assert prepared("sunrise")[0]._heard(hyper, jnp.int32(8), position) is None


def test_an_ensemble_shares_one_model():
    learner, hyper, state, batch = prepared("sunrise+sadq", alpha=(0.3,), model=Model(hidden=(8,), rollout="mean"))
    single = prepared("dqn+sadq", alpha=(0.3,), model=Model(hidden=(8,), rollout="mean"))[2]
    assert jax.tree.map(jnp.shape, state.model) == jax.tree.map(jnp.shape, single.model)
    targets = jax.jit(lambda own: learner.targets(own, hyper, KEY, batch))(state)
    assert targets.bootstrap.shape == (5, 12)
    choices = np.asarray(targets.diagnostics["disagreement"])
    assert choices.shape == (5, 12) and len(np.unique(choices, axis=0)) > 1, "each network makes its own choice"
