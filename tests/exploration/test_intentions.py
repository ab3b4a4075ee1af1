"""Intentions: the best action, the best that an ensemble allows, and the best of a draw that a lane keeps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lanes import LANES, MASK, NOTHING, VALUES, bayesian_networks, situation
from scipy import stats

from sadq import keys
from sadq.core.posterior import Posterior, sample
from sadq.errors import SadqError
from sadq.exploration import Best, Situation, Thompson, UpperConfidence
from sadq.exploration.intentions import KeptDraws


def meant(rule, values=VALUES, mask=None) -> np.ndarray:
    action, memory = rule.act(situation(values, mask=mask, epsilon=jnp.float32(1)), rule.init(len(values), NOTHING))
    assert memory == rule.begin(NOTHING, keys.member_key(0), memory) == ()
    return np.asarray(action)


@pytest.mark.parametrize("rule", [Best(), UpperConfidence()], ids=lambda rule: type(rule).__name__)
def test_the_first_of_the_best_legal_actions_is_meant(rule):
    np.testing.assert_array_equal(meant(rule), 1)
    np.testing.assert_array_equal(meant(rule, mask=MASK), 2)
    np.testing.assert_array_equal(meant(rule, mask=jnp.zeros_like(MASK)), 1, "where nothing is legal, everything is")


def test_upper_confidence_prefers_what_the_ensemble_disagrees_about():
    # Means 2, 1, 0 and 0; standard deviations 0, 3, 0 and 1.
    by_network = jnp.array([[2.0, 4.0, 0.0, 1.0], [2.0, -2.0, 0.0, -1.0]])
    values = jnp.tile(by_network, (LANES, 1, 1))
    for width, best in [(0.0, 0), (0.3, 0), (0.4, 1), (1.0, 1)]:
        np.testing.assert_array_equal(meant(UpperConfidence(width), values), best)
    legal = jnp.tile(jnp.array([False, False, True, True]), (LANES, 1))
    np.testing.assert_array_equal(meant(UpperConfidence(1.0), values, legal), 3)
    np.testing.assert_array_equal(meant(Best(), values), 0, "the average, whatever the networks disagree about")


@pytest.mark.parametrize("wrong", [lambda: UpperConfidence(-1.0), lambda: Thompson(0)])
def test_settings_out_of_their_range_are_refused(wrong):
    with pytest.raises(SadqError):
        wrong()


# Thompson

EVERY, E = 8, 6


def bayesian() -> tuple[Situation, Thompson, KeptDraws]:
    """Six lanes of a network of 3 actions on 2 numbers whose posterior is wide; they change every 8 steps."""
    root = jnp.stack([jnp.eye(5) * scale for scale in (0.5, 1.0, 2.0)])
    networks = bayesian_networks(jnp.arange(15.0).reshape(3, 5) / 10, root)
    now = situation(
        jnp.zeros((E, 3)), networks=networks, observation=jax.random.normal(keys.member_key(3), (E, 2)), stride=E
    )
    rule = Thompson(interval=EVERY * E)
    memory = rule.init(E, networks)
    assert memory.current.shape == memory.following.shape == (E, 3, 5) and not memory.current.any()
    return now, rule, KeptDraws(*jax.random.normal(keys.member_key(4), (2, E, 3, 5)))


def test_a_collect_draws_once_for_every_lane_what_its_next_episode_acts_by():
    now, rule, memory = bayesian()
    key = keys.member_key(9)
    begun = jax.jit(rule.begin)(now.networks, key, memory)
    np.testing.assert_array_equal(begun.current, memory.current)
    posterior = Posterior(*jax.tree.map(lambda leaf: leaf[0], now.networks.head.posterior))
    for lane in range(E):
        np.testing.assert_allclose(begun.following[lane], sample(posterior, keys.at(key, lane)), rtol=1e-5, atol=1e-6)
    assert len(np.unique(begun.following)) == begun.following.size
    assert not np.isin(rule.begin(now.networks, keys.member_key(10), memory).following, begun.following).any()


def test_a_lane_changes_its_draw_where_an_episode_begins_and_acts_by_it():
    now, rule, memory = bayesian()
    fresh = jnp.array([True, False, True, False, False, False])
    # Step 13 of 8-step intervals: nothing is due but the episodes that begin.
    action, after = jax.jit(rule.act)(now._replace(fresh=fresh, step=jnp.int32(13 * E)), memory)
    np.testing.assert_array_equal(after.current[~fresh], memory.current[~fresh])
    np.testing.assert_array_equal(after.current[fresh], memory.following[fresh])
    np.testing.assert_array_equal(after.following, memory.following)
    network = jax.tree.map(lambda leaf: leaf[0], now.networks)
    for lane in range(E):
        phi = np.asarray(jax.nn.relu(network.head.hidden(network.encoder(now.observation[lane]))))
        assert action[lane] == np.argmax(np.asarray(after.current[lane]) @ phi)
    assert len(set(np.asarray(action).tolist())) > 1


def test_all_lanes_change_their_draw_at_the_interval_and_keep_it_otherwise():
    now, rule, memory = bayesian()
    take = jax.jit(rule.act)
    for step, due in [(0, True), (1, False), (7, False), (8, True), (9, False), (16, True)]:
        _, after = take(now._replace(step=jnp.int32(step * E)), memory)
        np.testing.assert_array_equal(after.current, memory.following if due else memory.current)
    # An interval that falls between two steps is due at the second: 50 env steps, of which 6 pass at a time.
    take = jax.jit(Thompson(interval=50).act)
    kept = [take(now._replace(step=jnp.int32(step * E)), memory)[1].current for step in range(18)]
    changed = [step for step, current in enumerate(kept) if np.array_equal(current, memory.following)]
    assert changed == [0, 9, 17]


def test_thompson_takes_legal_actions_only():
    now, rule, memory = bayesian()
    now = now._replace(mask=jnp.tile(jnp.array([False, True, True]), (E, 1)), fresh=jnp.ones(E, bool))
    take = jax.jit(lambda key: rule.act(now, rule.begin(now.networks, key, memory))[0])
    taken = np.stack([np.asarray(take(keys.member_key(seed))) for seed in range(20)])
    assert set(np.unique(taken)) == {1, 2}


def test_thompson_follows_its_posterior():
    """One state, features 1: action 1 has the larger mean, and is taken as often as its draw is the larger one."""
    networks = bayesian_networks(jnp.array([[0.0], [1.0]]), jnp.array([[[1.0]], [[2.0]]]))
    hidden = networks.head.hidden.replaced(jnp.zeros((1, 1, 1)), jnp.ones((1, 1)))
    networks = eqx.tree_at(lambda one: one.head.hidden, networks, hidden)
    now = situation(
        jnp.zeros((LANES, 2)), networks=networks, observation=jnp.ones((LANES, 2)), fresh=jnp.ones(LANES, bool)
    )
    rule = Thompson()
    memory = rule.begin(networks, keys.member_key(0), rule.init(LANES, networks))
    action, _ = jax.jit(rule.act)(now, memory)
    chance = stats.norm.cdf(1 / np.sqrt(1 + 4))
    assert stats.binomtest(int(np.sum(action)), LANES, chance).pvalue > 1e-3


def test_the_published_numbers_are_the_defaults():
    assert UpperConfidence().width == 1.0
    assert Thompson().interval == 1000
