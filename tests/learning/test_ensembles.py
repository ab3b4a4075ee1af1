"""Several networks side by side: each learns as if alone, from what it hears, weighted by how far they agree."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import filled_ring, numbers, phase_of, ready, state_of, table_learner, table_network, three_ends, update_of

from sadq import keys
from sadq.core.ensembles import Agreement, Single
from sadq.dynamics import Gaussian
from sadq.learning.guidance import Seen
from sadq.learning.learner import TargetUpdate
from sadq.learning.optimiser import trainable
from sadq.learning.state import LearnerState
from sadq.networks import Network
from sadq.replay import heard
from tiny import KEY, assert_close, difference

HALF = Agreement(bootstrap_share=0.5)


def alone(networks: Network, index: int) -> Network:
    """One of an ensemble, as an ensemble of one."""
    return jax.tree.map(lambda leaf: leaf[index : index + 1], networks)


def test_the_networks_of_an_ensemble_begin_apart():
    learner = table_learner(3, 2, ensemble=Agreement(5))
    state, other = learner.init(numbers()), learner.init(numbers()._replace(seed=jnp.uint32(4)))
    tables = np.asarray(state.online.parameters.head.table)
    assert tables.shape == (5, 3, 2)
    assert all((tables[one] != tables[two]).all() for one, two in itertools.combinations(range(5), 2))
    assert not np.isin(tables, other.online.parameters.head.table).any()
    assert difference(state.target, state.online.parameters) == 0


def test_an_ensemble_of_one_is_a_single_network_to_the_bit():
    state = state_of(table_network(jax.random.normal(KEY, (4, 3))))
    after = []
    for ensemble in (Single(), Agreement(size=1)):
        learner = table_learner(4, 3, ensemble=ensemble, updates=3, target_update=TargetUpdate(soft_rate=0.1))
        contents = filled_ring(learner)
        after.append(jax.jit(learner.learn)(state, numbers(), contents, None, jnp.int32(2)))
    assert difference(*after) == 0 and difference(after[0][0].online, state.online) > 0


def test_without_temperature_each_network_learns_as_if_alone():
    """sigmoid(0) + 1/2 = 1, so an ensemble of five is five DQNs on the same batch, gradient clipping included."""
    fields = {"max_gradient_norm": 0.05, "soft_target_rate": 0.1}
    ensemble, hyper, state, seen = ready("sunrise", ensemble=Agreement(temperature=0.0), **fields)
    solo, *_ = ready("dqn", **fields)
    update = update_of(seen, jnp.linspace(0.5, 1, 12))
    after, priority, _ = jax.jit(ensemble.value_update)(state, phase_of(ensemble, hyper), update)
    single, priorities = jax.jit(solo.value_update), []
    for index in range(5):
        own = alone(state.online.parameters, index)
        start = LearnerState(trainable(own, own.movers()), alone(state.target, index), None)
        moved, own_priority, _ = single(start, phase_of(solo, hyper), update)
        assert_close(alone(after.online.parameters, index), moved.online.parameters, rtol=1e-5)
        assert_close(alone(after.online.first, index), moved.online.first, rtol=1e-4, atol=1e-8)
        assert_close(alone(after.target, index), moved.target, rtol=1e-5)
        priorities.append(own_priority)
    np.testing.assert_allclose(priority, np.mean(priorities, axis=0), rtol=1e-5)
    assert len(np.unique(np.stack(priorities))) == 60


def test_backups_weigh_less_where_networks_disagree():
    """Targets 0 and 2 at state 0 have a deviation of 1, at state 1 they agree: weights sigmoid(-T) + 1/2 and 1."""
    learner = table_learner(2, 3, ensemble=Agreement(size=2, temperature=3.0))
    networks = jax.tree.map(lambda leaf: jnp.stack([0 * leaf, 0 * leaf]), table_network(jnp.zeros((2, 3))))
    target = networks.with_head(type(networks.head)(jnp.array([[[0.0] * 3, [4.0] * 3], [[2.0] * 3, [4.0] * 3]])))
    state = LearnerState(trainable(networks), target, None)
    seen = three_ends()
    going = seen._replace(batch=seen.batch._replace(discount=jnp.full(3, 0.5), reward=jnp.zeros(3)))
    after, _, _ = learner.value_update(state, phase_of(learner, numbers()), update_of(going))
    weight = 1 / (1 + np.exp(3.0)) + 0.5
    # Of 2 (Q - y) w / 3, with y = 0 and 1 at state 0, of which there are two samples, and 2 at state 1.
    expected = np.zeros((2, 2, 3))
    expected[1, 0, 0] = 2 * 2 * (0 - 1) * weight / 3
    expected[:, 1, 2] = 2 * (0 - 2) / 3
    np.testing.assert_allclose(10 * after.online.first.head.table, expected, rtol=1e-5, atol=1e-6)


def test_a_network_learns_only_from_what_it_hears():
    learner, hyper, state, seen = ready("sunrise", ensemble=HALF)
    hears = jnp.ones((12, 5), bool).at[:, 1].set(False).at[:6, 2].set(False)
    phase = phase_of(learner, hyper)
    run = jax.jit(learner.value_update)

    def update(seen: Seen) -> Network:
        return run(state, phase, update_of(seen, heard=hears))[0].online.parameters

    before, after = state.online.parameters, update(seen)
    assert difference(alone(after, 1), alone(before, 1)) == 0
    assert all(difference(alone(after, one), alone(before, one)) > 0 for one in (0, 2, 3, 4))
    # What network 2 does not hear may be anything, as long as the others' disagreement stays what it is.
    louder = seen._replace(batch=seen.batch._replace(reward=seen.batch.reward.at[:6].add(1.0)))
    other = update(louder)
    assert difference(alone(after, 2), alone(other, 2)) == 0
    assert difference(alone(after, 0), alone(other, 0)) > 0


def test_a_transition_is_heard_by_the_same_networks_at_every_visit():
    """By its number in the run, also after the ring of six rows has turned: rows 4 to 7 are those of before."""
    learner = table_learner(2, 3, ensemble=HALF)
    hyper, position = numbers(), jnp.arange(12)

    def hears(rows: int, member=hyper) -> np.ndarray:
        return np.asarray(learner._heard(phase_of(learner, member, rows=jnp.int32(rows)), position))

    early, later = hears(6), hears(8)
    assert early.shape == (12, 5)
    np.testing.assert_array_equal(later[4:], early[4:])
    by_number = np.asarray(heard(hyper.stream("bootstrap"), jnp.arange(16), 5, 0.5))
    np.testing.assert_array_equal(early, by_number[:12])
    np.testing.assert_array_equal(later[:4], by_number[12:], "two rows were overwritten, by other transitions")
    assert (later[:4] != early[:4]).any()
    assert (hears(6, hyper._replace(seed=jnp.uint32(9))) != early).any()
    whole = table_learner(2, 3, ensemble=Agreement())
    assert whole._heard(phase_of(whole, hyper), position) is None


@pytest.mark.parametrize("ensemble", [Agreement(2, bootstrap_share=0.5), Agreement(2)])
def test_a_phase_hands_its_updates_what_each_network_hears(ensemble):
    learner = table_learner(4, 3, ensemble=ensemble, batch_size=12)
    contents, state, hyper = filled_ring(learner), learner.init(numbers()), numbers()
    phase = learner.phase(hyper, jnp.int32(2))
    key = keys.at(hyper.stream("update"), 2)
    position, weight = learner.sampler.draw(None, phase.rows, keys.purpose(key, "sample"), 12, phase.progress)
    hears = None
    if ensemble.bootstrap_share < 1:
        hears = heard(hyper.stream("bootstrap"), learner.store.number(position, phase.rows), 2, 0.5)
    update = update_of(learner.see(contents, position, phase), weight, hears, key)
    learned, _, _ = jax.jit(learner.learn)(state, hyper, contents, None, jnp.int32(2))
    expected, _, _ = jax.jit(learner.value_update)(state, phase, update)
    assert_close(learned.online, expected.online, rtol=1e-5)


def test_an_ensemble_shares_one_model():
    guided = {"alpha": (0.3,), "model": Gaussian(hidden=(8,), rollout="mean")}
    learner, hyper, state, seen = ready("sunrise+sadq", **guided)
    single = ready("dqn+sadq", **guided)[2]
    assert jax.tree.map(jnp.shape, state.model) == jax.tree.map(jnp.shape, single.model)
    targets = jax.jit(learner.targets)(state, hyper, KEY, seen)
    assert targets.bootstrap.shape == (5, 12)
    choices = np.asarray(targets.diagnostics["disagreement"])
    assert choices.shape == (5, 12) and len(np.unique(choices, axis=0)) > 1, "each network makes its own choice"
