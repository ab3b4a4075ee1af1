"""BDQN: the posterior from a replay is the closed form of what was drawn, and everyone reads the weights meant for them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import phase_of, ready, update_of

from sadq import keys
from sadq.core.posterior import PRIOR_RETURNS
from sadq.exploration.situation import settled_values
from sadq.learning.learner import Learner
from sadq.learning.state import LearnerState
from sadq.networks import Bayesian, Dense
from sadq.networks.network import first_network
from sadq.replay import uniform
from sadq.types import Batch, Transition
from tiny import BATCH, KEY, assert_close, difference

SAMPLES, CHUNK = 60, 25  # the last chunk is not full
FIT = Bayesian(prior_deviation=2.0, noise_deviation=0.5, samples=SAMPLES, chunk=CHUNK, huber=1.0)
NUMBER = 7  # of the collect


def replay(learner: Learner, rows: int) -> Transition:
    """A ring with `rows` rows of random transitions, every fifth of them terminal; action 2 is never taken."""
    shape = (rows, learner.store.lanes)
    observation, following = jax.random.normal(KEY, (2, *shape, *learner.store.observation_shape))
    number = jnp.arange(rows * shape[1]).reshape(shape)
    off = jnp.zeros(shape, bool)
    collected = Transition(observation, number % 2, jnp.sin(1.0 * number), following, number % 5 == 0, off)
    return learner.store.add(learner.store.init(), jnp.int32(0), collected)


class Case:
    """A BDQN with a head's settings, and the program that refits it."""

    def __init__(self, head: Bayesian, **fields: Any):
        self.learner, self.hyper, self.state, self.seen = ready("bdqn", head=head, encoder=Dense((8,)), **fields)
        self.run = jax.jit(self._refit)

    def _refit(self, state: LearnerState, contents: Transition, rows: jax.Array, number: jax.Array, due: jax.Array):
        phase = phase_of(self.learner, self.hyper, rows=rows, collect=number)
        returns = self.learner.returns(state, phase, contents)
        return self.learner.refit.refitted(state, phase, due, returns, self.learner.store)

    def refit(self, state: LearnerState, contents: Transition, rows: int, number: int = NUMBER, due: bool = True):
        return self.run(state, contents, jnp.int32(rows), jnp.int32(number), jnp.bool_(due))

    def drawn(self, contents: Transition, rows: int) -> Batch:
        """What a refit looks at: as many as are wanted, or as there are, with complete windows."""
        stream, store = keys.at(keys.purpose(keys.member_key(self.hyper.seed), "refit"), NUMBER), self.learner.store
        positions = [
            uniform(store, jnp.int32(rows), keys.purpose(keys.at(stream, number), "sample"), CHUNK, store.steps)
            for number in range(3)
        ]
        return store.n_step(contents, jnp.concatenate(positions)[: min(SAMPLES, rows * 8)], jnp.float32(0.9))

    def evidence(self, contents: Transition, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(features, actions, returns) of what a refit looks at."""
        drawn, target = self.drawn(contents, rows), first_network(self.state.target)

        def features(observation):
            return jax.nn.relu(target.head.hidden(target.encoder(observation)))

        # Selected by the draw that the online network learns by, evaluated by the posterior's mean before the refit.
        selected = jnp.argmax(
            jax.vmap(first_network(self.state.online.parameters).mean)(drawn.next_observation), axis=1
        )
        worth = jax.vmap(features)(drawn.next_observation) @ target.head.posterior.mean.T
        future = np.asarray(worth)[np.arange(len(selected)), np.asarray(selected)]
        returns = np.asarray(drawn.reward, np.float64) + np.asarray(drawn.discount) * future
        return np.asarray(jax.vmap(features)(drawn.observation), np.float64), np.asarray(drawn.action), returns


def ridge(phi: np.ndarray, actions: np.ndarray, returns: np.ndarray, prior: float, noise: float):
    """(means [A, H], covariances [A, H, H]) by the textbook."""
    means, covariances = [], []
    for action in range(3):
        own = actions == action
        precision = phi[own].T @ phi[own] / noise**2 + np.eye(phi.shape[1]) / prior**2
        means.append(np.linalg.solve(precision, phi[own].T @ returns[own] / noise**2))
        covariances.append(np.linalg.inv(precision))
    return np.stack(means), np.stack(covariances)


def assert_posterior(found: Any, expected: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_allclose(found.mean, expected[0], rtol=1e-3, atol=5e-4)
    root = np.asarray(found.root, np.float64)
    np.testing.assert_allclose(root @ root.transpose(0, 2, 1), expected[1], rtol=1e-3, atol=5e-4)


def posterior_of(state: LearnerState) -> Any:
    return first_network(state.target.head.posterior)


@pytest.fixture(scope="module")
def given() -> Case:
    return Case(FIT)


@pytest.mark.parametrize("rows", [20, 4])  # of 8 lanes: more than the samples wanted, and fewer
def test_a_refit_is_the_closed_form_on_the_transitions_that_it_drew(given, rows):
    contents = replay(given.learner, rows)
    after = given.refit(given.state, contents, rows)
    phi, actions, returns = given.evidence(contents, rows)
    assert set(actions) == {0, 1} and len(actions) == min(60, 8 * rows)
    assert_posterior(posterior_of(after), ridge(phi, actions, returns, 2.0, 0.5))
    assert difference(after.online.parameters.head.posterior, after.target.head.posterior) == 0
    np.testing.assert_array_equal(after.target.head.weights, after.target.head.posterior.mean)
    np.testing.assert_array_equal(after.online.parameters.head.weights, given.state.online.parameters.head.weights)


def test_a_refit_looks_at_whole_windows():
    case = Case(FIT, n_step=3)
    contents = replay(case.learner, 20)
    assert_posterior(posterior_of(case.refit(case.state, contents, 20)), ridge(*case.evidence(contents, 20), 2.0, 0.5))


@pytest.fixture(scope="module")
def following() -> Case:
    """Whose noise is as large as the residuals are."""
    return Case(dataclasses.replace(FIT, noise_deviation=None))


def test_noise_is_what_the_posterior_before_and_then_its_own_leaves_unexplained(following):
    contents = replay(following.learner, 20)
    phi, actions, returns = following.evidence(contents, 20)

    def residual(means: np.ndarray) -> float:
        square = np.sum((returns - np.sum(means[actions] * phi, axis=1)) ** 2)
        return np.sqrt((square + PRIOR_RETURNS) / (len(returns) + PRIOR_RETURNS))

    before = np.asarray(posterior_of(following.state).mean, np.float64)
    rough, _ = ridge(phi, actions, returns, 2.0, residual(before))
    expected = ridge(phi, actions, returns, 2.0, residual(rough))
    assert abs(residual(before) - residual(rough)) > 0.1, "else one look would do"
    assert_posterior(posterior_of(following.refit(following.state, contents, 20)), expected)


def test_noise_follows_the_scale_of_returns(following):
    """Rewards, and what is expected, ten times as large: so is the deviation of a return."""
    contents, state = replay(following.learner, 20), following.state
    contents = contents._replace(reward=10 * contents.reward)

    def scaled(by: float) -> float:
        believed = state.target.head.posterior._replace(mean=by * state.target.head.posterior.mean)
        target = eqx.tree_at(
            lambda one: (one.head.posterior, one.head.weights), state.target, (believed, believed.mean)
        )
        own = state._replace(target=target)
        after = following.refit(own, contents._replace(reward=by * contents.reward), 20)
        # The precision is Phi Phi^T / noise^2 + 1 / prior^2, so that its trace says what the noise was.
        phi, actions, _ = following.evidence(contents, 20)
        root = np.asarray(posterior_of(after).root[0], np.float64)
        precision = np.linalg.inv(root @ root.T) - np.eye(root.shape[0]) / 2.0**2
        return float(np.sqrt(np.sum(phi[actions == 0] ** 2) / np.trace(precision)))

    one, ten = scaled(1.0), scaled(10.0)
    assert one > 2 and ten / one == pytest.approx(10, rel=0.05)


def test_a_refit_that_is_not_finite_keeps_what_was_believed(given):
    contents = replay(given.learner, 20)
    poisoned = contents._replace(reward=contents.reward.at[:5].set(jnp.nan))
    assert difference(given.refit(given.state, poisoned, 20), given.state) == 0
    frozen = given.state._replace(online=given.state.online._replace(diverged_at=jnp.int32(3)))
    assert difference(given.refit(frozen, contents, 20), frozen) == 0
    assert difference(given.refit(given.state, contents, 20), given.state) > 0


def test_only_a_refit_that_is_due_is_made_and_each_draws_other_transitions(given):
    contents = replay(given.learner, 20)
    assert difference(given.refit(given.state, contents, 20, due=False), given.state) == 0
    one, other = (posterior_of(given.refit(given.state, contents, 20, number)) for number in (7, 8))
    assert difference(one, other) > 1e-3


def test_a_fresh_agent_believes_its_prior_and_learns_by_a_draw_of_it(given):
    state = jax.jit(given.learner.init)(given.hyper)
    assert not state.target.head.posterior.mean.any() and not state.target.head.weights.any()
    weights = np.asarray(state.online.parameters.head.weights)
    assert abs(weights.std() - 2.0) < 0.7 and len(np.unique(weights)) == weights.size
    # Nobody moves what is inferred, so that it has no moments.
    assert state.online.first.head.weights is None and state.online.second.head.posterior == (None, None)
    observation = jnp.ones((2, *given.learner.store.observation_shape))
    assert not settled_values(state.online.parameters, observation, None).any(), "evaluation acts by the mean"


def test_gradients_reach_the_features_only():
    case = Case(FIT, soft_target_rate=0.25)
    state = case.state
    after, _, _ = jax.jit(case.learner.value_update)(state, phase_of(case.learner, case.hyper), update_of(case.seen))
    before_head, after_head = state.online.parameters.head, after.online.parameters.head
    assert difference(before_head.weights, after_head.weights) == 0
    assert difference(before_head.posterior, after_head.posterior) == 0
    assert difference(before_head.hidden, after_head.hidden) > 0
    assert difference(state.online.parameters.encoder, after.online.parameters.encoder) > 0
    # A target that follows softly still evaluates by the posterior's mean, not by a mixture with a draw.
    np.testing.assert_array_equal(after.target.head.weights, state.target.head.posterior.mean)
    moved = jax.tree.map(
        lambda old, new: 0.75 * old + 0.25 * new, state.target.encoder, after.online.parameters.encoder
    )
    assert_close(after.target.encoder, moved)


def test_the_prediction_uses_the_draw_and_evaluation_the_mean(given):
    learner, state, batch = given.learner, given.state, given.seen.batch
    update = jax.jit(learner.value_update)
    measured = update(state, phase_of(learner, given.hyper), update_of(given.seen))[2]
    online, target = first_network(state.online.parameters), first_network(state.target)
    values = np.asarray(jax.vmap(online.mean)(batch.observation))
    goals = np.asarray(jax.jit(learner.targets)(state, given.hyper, KEY, given.seen).returns.values[0])
    error = values[np.arange(BATCH), np.asarray(batch.action)] - goals
    size = np.abs(error)
    np.testing.assert_allclose(measured["loss"], np.where(size <= 1, error**2 / 2, size - 0.5), rtol=1e-4, atol=1e-5)
    phi = jax.vmap(lambda one: online.head.phi(online.encode(one)))(batch.observation)
    at_mean = phi @ target.head.posterior.mean.T
    np.testing.assert_allclose(
        settled_values(state.online.parameters, batch.observation, None), at_mean, rtol=1e-4, atol=1e-5
    )
    assert not np.allclose(at_mean, values, atol=0.1)


def test_weights_are_redrawn_and_the_posterior_refitted_at_their_intervals():
    """32 env steps a collect: a refit every 96, a draw every 64, the target always at the posterior's mean."""
    fields = {"soft_target_rate": None, "target_update_interval": 160, "n_step": 1, "updates_per_collect": 1}
    case = Case(dataclasses.replace(FIT, refit_interval=96, resample_interval=64), **fields)
    state, contents, found = case.state, replay(case.learner, 256), {"refit": [], "draw": [], "copy": []}
    learn = jax.jit(case.learner.learn)
    for index in range(6):
        before = state
        state, _, _ = learn(state, case.hyper, contents, None, jnp.int32(index))
        head = state.online.parameters.head
        changes = {
            "refit": difference(before.target.head.posterior, state.target.head.posterior),
            "draw": difference(before.online.parameters.head.weights, head.weights),
            "copy": difference(before.target.encoder, state.target.encoder),
        }
        for name, change in changes.items():
            if change > 0:
                found[name].append(index + 1)
        np.testing.assert_array_equal(state.target.head.weights, state.target.head.posterior.mean)
        assert difference(head.posterior, state.target.head.posterior) == 0
        if index == 1:
            own_key = keys.at(case.hyper.stream("resample"), index)
            np.testing.assert_allclose(
                head.weights[0], first_network(before.online.parameters).head.drawn(own_key).weights
            )
    assert found == {"refit": [3, 6], "draw": [2, 4, 6], "copy": [5]}
