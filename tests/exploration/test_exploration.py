"""Explorations: exact at both ends, the right rates in between, and never an illegal action."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sadq import keys
from sadq.core.posterior import Posterior, sample
from sadq.exploration.rules import (
    Counteractive,
    EpsilonGreedy,
    Greedy,
    Situation,
    TemporallyExtended,
    Thompson,
    UpperConfidence,
    draw_noise,
)
from sadq.networks import BayesianHead, ScalarHead, ValueNetwork, VectorEncoder

ENVIRONMENTS, ACTIONS = 2000, 4
VALUES = jnp.tile(jnp.array([0.0, 3.0, 3.0, -1.0]), (ENVIRONMENTS, 1))
MASK = jnp.tile(jnp.array([True, False, True, False]), (ENVIRONMENTS, 1))
NOISE = draw_noise(keys.member_key(0), ENVIRONMENTS, ACTIONS)


@dataclasses.dataclass(frozen=True)
class Table:
    """A network whose values are what it observes, for K ensemble members one after the other."""

    members: int = 1
    draws_levels: bool = False

    def with_noise(self, key: jax.Array) -> "Table":
        return self

    def values(self, observation: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        return observation.reshape(self.members, -1)


def situation(observation=VALUES, *, network: Any = None, key: int = 0, **changes: Any) -> Situation:
    """All environments at step 10,000, in the middle of episodes, with epsilon 0."""
    count = observation.shape[0]
    return Situation(
        network=Table() if network is None else network,
        posterior=None,
        observation=observation,
        mask=None,
        fresh=jnp.zeros(count, bool),
        step=jnp.int32(10_000),
        epsilon=jnp.float32(0),
        noise=draw_noise(keys.member_key(key), count, ACTIONS),
    )._replace(**changes)


def act(rule: Any, epsilon: float, mask: jax.Array | None = None, **changes: Any) -> np.ndarray:
    """What a rule does at the first step of its memory."""
    now = situation(epsilon=jnp.float32(epsilon), mask=mask, **changes)
    return np.asarray(rule.act(now, rule.init(ENVIRONMENTS, now.network))[0])


def shares(actions: np.ndarray) -> np.ndarray:
    return np.bincount(actions, minlength=ACTIONS) / len(actions)


BY_EPSILON = [EpsilonGreedy(), TemporallyExtended(), Counteractive()]


@pytest.mark.parametrize("rule", [*BY_EPSILON, Greedy(), UpperConfidence()], ids=lambda rule: type(rule).__name__)
def test_without_exploration_the_first_of_the_best_is_taken(rule):
    np.testing.assert_array_equal(act(rule, 0.0), 1)
    np.testing.assert_array_equal(act(rule, 0.0, MASK), 2)


@pytest.mark.parametrize("rule", [*BY_EPSILON, Greedy(), UpperConfidence()], ids=lambda rule: type(rule).__name__)
def test_illegal_actions_are_never_taken(rule):
    for epsilon in (0.0, 0.5, 1.0):
        assert set(act(rule, epsilon, MASK)) <= {0, 2}


@pytest.mark.parametrize("rule", [EpsilonGreedy(), TemporallyExtended()], ids=lambda rule: type(rule).__name__)
def test_exploration_is_uniform_and_a_coin_per_environment(rule):
    assert stats.chisquare(np.bincount(act(rule, 1.0), minlength=ACTIONS)).pvalue > 1e-3
    assert abs(np.mean(act(rule, 0.3) != 1) - 0.3 * 3 / 4) < 0.05
    drawn = np.bincount(act(rule, 1.0, MASK), minlength=ACTIONS)
    assert stats.chisquare(drawn[[0, 2]]).pvalue > 1e-3


def test_noise_is_a_function_of_its_key_alone():
    same = draw_noise(keys.member_key(0), ENVIRONMENTS, ACTIONS)
    other = draw_noise(keys.member_key(1), ENVIRONMENTS, ACTIONS)
    assert jax.tree.all(jax.tree.map(lambda one, two: bool((one == two).all()), NOISE, same))
    assert not np.array_equal(NOISE.coin, other.coin)


def test_a_mask_that_allows_nothing_counts_as_all_legal():
    nothing = jnp.zeros((ENVIRONMENTS, ACTIONS), bool)
    for rule in (EpsilonGreedy(), Counteractive(), TemporallyExtended()):
        np.testing.assert_array_equal(act(rule, 0.0, nothing), 1)
        np.testing.assert_array_equal(act(rule, 1.0, nothing), act(rule, 1.0))


# Counteractive


def test_counteractive_takes_the_first_of_the_worst_with_probability_epsilon():
    tied = jnp.tile(jnp.array([0.0, -1.0, 3.0, -1.0]), (ENVIRONMENTS, 1))
    np.testing.assert_array_equal(act(Counteractive(), 1.0, observation=tied), 1)
    chosen = act(Counteractive(), 0.3)
    assert set(chosen) == {1, 3}, "the best or the worst, nothing between"
    np.testing.assert_array_equal(chosen == 3, NOISE.coin < 0.3)


def test_counteractive_finds_the_worst_among_the_legal():
    np.testing.assert_array_equal(act(Counteractive(), 1.0, MASK), 0)


@pytest.mark.parametrize(("step", "uniform"), [(0, True), (1599, True), (1600, False)])
def test_counteractive_is_uniform_before_its_start(step, uniform):
    chosen = act(Counteractive(1600), 1.0, step=jnp.int32(step))
    if uniform:
        np.testing.assert_array_equal(chosen, act(EpsilonGreedy(), 1.0))
    else:
        np.testing.assert_array_equal(chosen, 3)
    np.testing.assert_array_equal(act(Counteractive(0), 1.0, step=jnp.int32(0)), 3)


# Upper confidence


def test_upper_confidence_prefers_what_the_ensemble_disagrees_about():
    # Means 2, 1, 0 and 0; standard deviations 0, 3, 0 and 1.
    members = jnp.array([[2.0, 4.0, 0.0, 1.0], [2.0, -2.0, 0.0, -1.0]]).reshape(1, -1)
    seen = jnp.tile(members, (ENVIRONMENTS, 1))
    for width, best in [(0.0, 0), (0.3, 0), (0.4, 1), (1.0, 1)]:
        np.testing.assert_array_equal(act(UpperConfidence(width), 0.0, observation=seen, network=Table(2)), best)
    legal = jnp.tile(jnp.array([False, False, True, True]), (ENVIRONMENTS, 1))
    np.testing.assert_array_equal(act(UpperConfidence(1.0), 0.0, legal, observation=seen, network=Table(2)), 3)


def test_others_average_an_ensemble():
    seen = jnp.tile(jnp.array([[2.0, 4.0, 0.0, 0.0, 2.0, -2.0, 0.0, 0.0]]), (ENVIRONMENTS, 1))
    for rule in (Greedy(), EpsilonGreedy(), Counteractive()):
        np.testing.assert_array_equal(act(rule, 0.0, observation=seen, network=Table(2)), 0)


# Temporally extended


def test_durations_follow_their_power_law():
    rule = TemporallyExtended(2.0, 100)
    drawn = np.asarray(rule.durations(keys.member_key(5), 200_000))
    assert drawn.min() == 1 and drawn.max() <= 100
    weight = np.arange(1, 101.0) ** -2
    expected = 200_000 * weight / weight.sum()
    assert stats.chisquare(np.bincount(drawn, minlength=101)[1:], expected).pvalue > 1e-3
    assert set(np.asarray(TemporallyExtended(2.0, 1).durations(keys.member_key(5), 100))) == {1}
    even = np.asarray(TemporallyExtended(0.0, 4).durations(keys.member_key(5), 40_000))
    assert stats.chisquare(np.bincount(even, minlength=5)[1:]).pvalue > 1e-3


def lived(rule: TemporallyExtended, steps: int, **changes: Any) -> tuple[np.ndarray, np.ndarray]:
    """(actions, steps still to repeat before each) of a run of `steps`, [steps, E]."""
    memory, actions, before = rule.init(ENVIRONMENTS, Table()), [], []
    for index in range(steps):
        before.append(np.asarray(memory.remaining))
        action, memory = rule.act(situation(key=index, **changes), memory)
        actions.append(np.asarray(action))
    return np.stack(actions), np.stack(before)


def test_an_action_is_repeated_exactly_as_long_as_was_drawn(monkeypatch):
    """With every length 3 and epsilon 1 only at the first step, three random actions come and then the best."""
    rule = TemporallyExtended()
    monkeypatch.setattr(TemporallyExtended, "durations", lambda self, key, count: jnp.full(count, 3, jnp.int32))
    memory, taken = rule.init(ENVIRONMENTS, Table()), []
    for index in range(5):
        now = situation(key=index, epsilon=jnp.float32(index == 0))
        action, memory = rule.act(now, memory)
        taken.append(np.asarray(action))
    first = np.asarray(EpsilonGreedy().act(situation(key=0, epsilon=jnp.float32(1)), ())[0])
    assert len(set(first)) == ACTIONS
    for index in range(3):
        np.testing.assert_array_equal(taken[index], first)
    for index in (3, 4):
        np.testing.assert_array_equal(taken[index], 1)


def test_a_new_repetition_begins_only_when_idle(monkeypatch):
    """Epsilon stays 1, so that a repetition follows the other: actions change every third step and never between."""
    rule = TemporallyExtended()
    monkeypatch.setattr(TemporallyExtended, "durations", lambda self, key, count: jnp.full(count, 3, jnp.int32))
    memory, taken = rule.init(ENVIRONMENTS, Table()), []
    for index in range(7):
        action, memory = rule.act(situation(key=index, epsilon=jnp.float32(1)), memory)
        taken.append(np.asarray(action))
    for begin in (0, 3):
        assert (taken[begin] == taken[begin + 1]).all() and (taken[begin] == taken[begin + 2]).all()
        fresh = np.asarray(EpsilonGreedy().act(situation(key=begin, epsilon=jnp.float32(1)), ())[0])
        np.testing.assert_array_equal(taken[begin], fresh)
    assert (taken[2] != taken[3]).any() and (taken[5] != taken[6]).any()


def test_run_lengths_of_a_whole_life_are_those_drawn():
    """Where a repetition is under way the action stays; where none is and no coin fell, the best one is taken."""
    actions, before = lived(TemporallyExtended(), 40, epsilon=jnp.float32(0.2))
    under_way = before[1:] > 0
    assert under_way.any() and (~under_way).any()
    np.testing.assert_array_equal(actions[1:][under_way], actions[:-1][under_way])
    coins = np.stack([np.asarray(situation(key=index).noise.coin) for index in range(40)])
    idle = (before == 0) & (coins >= 0.2)
    np.testing.assert_array_equal(actions[idle], 1)


def test_a_repetition_ends_with_its_episode_and_where_it_becomes_illegal(monkeypatch):
    rule = TemporallyExtended()
    monkeypatch.setattr(TemporallyExtended, "durations", lambda self, key, count: jnp.full(count, 9, jnp.int32))
    start, memory = rule.act(situation(epsilon=jnp.float32(1)), rule.init(ENVIRONMENTS, Table()))
    half = jnp.arange(ENVIRONMENTS) % 2 == 0
    after, kept = rule.act(situation(key=1, fresh=half), memory)
    np.testing.assert_array_equal(after, np.where(half, 1, start))
    np.testing.assert_array_equal(kept.remaining, np.where(half, 0, 7))
    after, kept = rule.act(situation(key=1, mask=MASK), memory)
    legal = np.isin(np.asarray(start), (0, 2))
    np.testing.assert_array_equal(after, np.where(legal, start, 2))
    np.testing.assert_array_equal(kept.remaining, np.where(legal, 7, 0))


# Thompson


def bayesian(environments: int = 6) -> tuple[Situation, Thompson]:
    """A network of 3 actions on 2 numbers whose posterior is wide, every 8 steps."""
    head = BayesianHead(5, 3, None, keys.member_key(2))
    network = ValueNetwork(VectorEncoder(2, (5,), keys.member_key(1)), head)
    root = jnp.stack([jnp.eye(5) * scale for scale in (0.5, 1.0, 2.0)])
    posterior = Posterior(jnp.arange(15.0).reshape(3, 5) / 10, root)
    now = situation(
        jax.random.normal(keys.member_key(3), (environments, 2)), network=network, posterior=posterior
    )._replace(noise=draw_noise(keys.member_key(0), environments, 3))
    return now, Thompson(interval=8 * environments)


def test_thompson_acts_by_weights_that_each_environment_keeps():
    now, rule = bayesian()
    fresh = jnp.array([True, False, True, False, False, False])
    memory = jax.random.normal(keys.member_key(4), (6, 3, 5))
    # Step 13 of 8-step intervals: nothing is due but the episodes that begin.
    action, weights = jax.jit(rule.act)(now._replace(fresh=fresh, step=jnp.int32(13 * 6)), memory)
    np.testing.assert_array_equal(weights[~fresh], memory[~fresh])
    assert not np.isin(weights[fresh], memory).any()
    own_keys = keys.range_of(keys.purpose(now.noise.key, "posterior"), 0, 6)
    for index in (0, 2):
        np.testing.assert_allclose(weights[index], sample(now.posterior, own_keys[index]), rtol=1e-6)
    for index in range(6):
        head, encoder = now.network.head, now.network.encoder
        phi = np.asarray(jax.nn.relu(head.hidden(encoder(now.observation[index]))))
        assert action[index] == np.argmax(np.asarray(weights[index]) @ phi)


def test_thompson_redraws_all_weights_at_its_interval():
    now, rule = bayesian()
    memory, take = jax.random.normal(keys.member_key(4), (6, 3, 5)), jax.jit(rule.act)
    for step, due in [(0, True), (1, False), (7, False), (8, True), (9, False), (16, True)]:
        _, weights = take(now._replace(step=jnp.int32(step * 6)), memory)
        assert (not np.isin(weights, memory).any()) if due else np.array_equal(weights, memory)
        if due:
            assert len(np.unique(weights)) == weights.size, "one draw per environment"


def test_thompson_takes_legal_actions_only():
    now, rule = bayesian()
    mask = jnp.tile(jnp.array([False, True, True]), (6, 1))
    now = now._replace(mask=mask, fresh=jnp.ones(6, bool))
    memory, take = rule.init(6, now.network), jax.jit(rule.act)
    for key in range(20):
        action, _ = take(now._replace(noise=draw_noise(keys.member_key(key), 6, 3)), memory)
        assert (np.asarray(action) > 0).all()


def test_thompson_follows_its_posterior():
    """One state, features 1: action 1 has the larger mean, and is taken as often as its draw is the larger one."""
    head = BayesianHead(1, 2, None, keys.member_key(0))
    head = eqx.tree_at(lambda one: one.hidden, head, head.hidden.replaced(jnp.zeros((1, 1)), jnp.ones(1)))
    network = ValueNetwork(VectorEncoder(1, (1,), keys.member_key(1)), head)
    posterior = Posterior(jnp.array([[0.0], [1.0]]), jnp.array([[[1.0]], [[2.0]]]))
    now = situation(jnp.ones((ENVIRONMENTS, 1)), network=network, posterior=posterior, fresh=jnp.ones(2000, bool))
    rule = Thompson()
    action, _ = jax.jit(rule.act)(now, rule.init(ENVIRONMENTS, network))
    chance = stats.norm.cdf(1 / np.sqrt(1 + 4))
    assert stats.binomtest(int(np.sum(action)), ENVIRONMENTS, chance).pvalue > 1e-3


# Networks with noise


@pytest.mark.parametrize("rule", [Greedy(), EpsilonGreedy()], ids=lambda rule: type(rule).__name__)
def test_noisy_layers_make_behaviour_a_matter_of_the_step_s_key(rule):
    head = ScalarHead(8, ACTIONS, True, None, keys.member_key(2), noisy=True)
    network = ValueNetwork(VectorEncoder(2, (8,), keys.member_key(1)), head)
    seen = jax.random.normal(keys.member_key(3), (50, 2))

    act = jax.jit(lambda now: rule.act(now, ())[0])

    def taken(key: int) -> tuple[int, ...]:
        return tuple(np.asarray(act(situation(seen, network=network, key=key))).tolist())

    assert taken(0) == taken(0)
    assert len({taken(key) for key in range(8)}) > 1
