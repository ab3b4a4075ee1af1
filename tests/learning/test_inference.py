"""BDQN: the posterior from a replay is the closed form of what was drawn, and everyone reads the weights meant for them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.experiment.build import hyper_of, make_learner, resolve
from sadq.experiment.config import Bayesian
from sadq.replay import uniform
from sadq.fleet.scan_loop import ScanFleet, ScanLoop
from sadq.types import Transition
from tiny import BATCH, KEY, assert_close, config, difference, member, prepared

SAMPLES, CHUNK = 60, 25  # the last chunk is not full
FIT = Bayesian(prior_deviation=2.0, noise_deviation=0.5, samples=SAMPLES, chunk=CHUNK)


def replay(learner, rows: int) -> Transition:
    """A ring with `rows` rows of random transitions, every fifth of them terminal; action 2 is never taken."""
    shape, size = (rows, learner.ring.environments), learner.ring.observation_size
    observation, following = jax.random.normal(KEY, (2, *shape, size))
    number = jnp.arange(rows * shape[1]).reshape(shape)
    off = jnp.zeros(shape, bool)
    collected = Transition(observation, number % 2, jnp.sin(1.0 * number), following, number % 5 == 0, off)
    return learner.ring.add(learner.ring.init(), jnp.int32(0), collected)


@pytest.fixture(scope="module")
def made():
    learner, hyper, state, _ = prepared("bdqn", bayesian=FIT)
    refit = jax.jit(lambda state, ring, rows: learner.refit(state, hyper, ring, rows, jnp.int32(7)))
    return learner, hyper, state, refit


@pytest.mark.parametrize("rows", [20, 4])  # of 8 environments: more than the samples wanted, and fewer
def test_a_refit_is_the_closed_form_on_the_transitions_that_it_drew(made, rows):
    learner, hyper, state, refit = made
    ring = replay(learner, rows)
    found = refit(state, ring, jnp.int32(rows))
    stream = keys.at(keys.purpose(keys.member_key(hyper.seed), "refit"), 7)
    positions = [
        uniform(learner.ring, jnp.int32(rows), keys.purpose(keys.at(stream, number), "sample"), CHUNK)
        for number in range(3)
    ]
    drawn = learner.ring.one_step(ring, jnp.concatenate(positions)[: min(SAMPLES, rows * 8)])
    target, online = state.target, state.online.parameters

    def features(observation):
        return jax.nn.relu(target.head.hidden(target.encoder(observation)))

    # Selected by the draw that the online network learns by, evaluated by the posterior's mean before the refit.
    selected = jnp.argmax(jax.vmap(online.mean)(drawn.next_observation), axis=1)
    worth = jax.vmap(features)(drawn.next_observation) @ state.posterior.mean.T
    future = np.asarray(worth)[np.arange(len(selected)), np.asarray(selected)]
    returns = np.asarray(drawn.reward) + 0.9 * np.where(drawn.terminated, 0, future)
    phi = np.asarray(jax.vmap(features)(drawn.observation), np.float64)
    for action in range(3):
        own = np.asarray(drawn.action) == action
        assert own.any() == (action < 2)
        precision = phi[own].T @ phi[own] / 0.5**2 + np.eye(phi.shape[1]) / 2.0**2
        expected = np.linalg.solve(precision, phi[own].T @ returns[own] / 0.5**2)
        np.testing.assert_allclose(found.mean[action], expected, rtol=1e-3, atol=2e-4)
        root = np.asarray(found.root[action], np.float64)
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-3, atol=2e-4)


def test_a_refit_that_is_not_finite_keeps_what_was_believed(made):
    learner, _, state, refit = made
    ring = replay(learner, 20)
    poisoned = ring._replace(reward=ring.reward.at[:5].set(jnp.nan))
    assert difference(refit(state, poisoned, jnp.int32(20)), state.posterior) == 0
    frozen = state._replace(diverged_at=jnp.int32(3))
    assert difference(refit(frozen, ring, jnp.int32(20)), state.posterior) == 0
    assert difference(refit(state, ring, jnp.int32(20)), state.posterior) > 0


def test_another_collect_draws_other_transitions(made):
    learner, hyper, state, refit = made
    ring = replay(learner, 20)
    other = learner.refit(state, hyper, ring, jnp.int32(20), jnp.int32(8))
    assert difference(refit(state, ring, jnp.int32(20)), other) > 0


def test_a_fresh_agent_believes_its_prior_and_learns_by_a_draw_of_it():
    learner, hyper, *_ = prepared("bdqn", bayesian=FIT)
    state = learner.init(hyper)
    assert not state.posterior.mean.any() and not state.target.head.weights.any()
    weights = np.asarray(state.online.parameters.head.weights)
    assert abs(weights.std() - 2.0) < 0.5 and len(np.unique(weights)) == weights.size
    assert difference(state.actor.policy.head.weights, state.posterior.mean) == 0


def test_gradients_reach_the_features_only():
    learner, hyper, state, seen = prepared("bdqn", soft_target_rate=0.25)
    after, _, _ = learner.value_update(state, hyper, 0.01, KEY, seen, jnp.ones(BATCH), jnp.int32(0))
    before_head, after_head = state.online.parameters.head, after.online.parameters.head
    assert difference(before_head.weights, after_head.weights) == 0
    assert difference(before_head.hidden, after_head.hidden) > 0
    assert difference(state.online.parameters.encoder, after.online.parameters.encoder) > 0
    # A target that follows softly still evaluates by the posterior's mean, not by a mixture with a draw.
    np.testing.assert_array_equal(after.target.head.weights, state.posterior.mean)
    moved = jax.tree.map(
        lambda old, new: 0.75 * old + 0.25 * new, state.target.encoder, after.online.parameters.encoder
    )
    assert_close(after.target.encoder, moved)


def test_the_prediction_uses_the_draw_and_evaluation_the_mean():
    learner, hyper, state, seen = prepared("bdqn")
    measured = learner.value_update(state, hyper, 0.01, KEY, seen, jnp.ones(BATCH), jnp.int32(0))[2]
    online, batch = state.online.parameters, seen.batch
    values = np.stack([online.mean(one) for one in batch.observation])
    error = values[np.arange(BATCH), np.asarray(batch.action)] - np.asarray(
        learner.targets(state, hyper, KEY, seen).returns.values
    )
    size = np.abs(error)
    np.testing.assert_allclose(measured["loss"], np.where(size <= 1, error**2 / 2, size - 0.5), rtol=1e-4, atol=1e-5)
    policy = state.actor.policy
    np.testing.assert_array_equal(policy.head.weights, state.posterior.mean)
    assert not np.allclose(policy.mean(batch.observation[0]), online.mean(batch.observation[0]))


def test_weights_are_redrawn_and_the_posterior_refitted_at_their_intervals():
    """32 env steps a collect: a refit every 96, a draw every 64, the target always at the posterior's mean."""
    fields = {"soft_target_rate": None, "target_update_interval": 160, "n_step": 1}
    fit = dataclasses.replace(FIT, refit_interval=96, resample_interval=64)
    own = config("bdqn", bayesian=fit, hidden=(8,), updates_per_collect=1, **fields)
    environment = resolve(own.environment)
    fleet = ScanFleet(make_learner(own, environment), 4, environment=environment, target_interval=160)
    loop = ScanLoop(fleet, hyper_of(own), 1)
    state, seen = loop.start(), {"refit": [], "draw": [], "copy": []}
    for index in range(6):
        before = jax.tree.map(np.array, member(state.learner, 0))
        state, _ = loop.advance(state, index)
        after = jax.tree.map(np.array, member(state.learner, 0))
        changes = {
            "refit": difference(before.posterior, after.posterior),
            "draw": difference(before.online.parameters.head.weights, after.online.parameters.head.weights),
            "copy": difference(before.target.encoder, after.target.encoder),
        }
        for name, change in changes.items():
            if change > 0:
                seen[name].append(index + 1)
        np.testing.assert_array_equal(after.target.head.weights, after.posterior.mean)
    assert seen == {"refit": [3, 6], "draw": [2, 4, 6], "copy": [5]}
