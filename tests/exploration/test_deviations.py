"""Deviations: exact at both ends, the right rates in between, held as long as was drawn, and never an illegal action."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from lanes import ACTIONS, LANES, MASK, NOISE, NOTHING, VALUES, act, situation
from scipy import stats

from sadq import keys
from sadq.errors import SadqError
from sadq.exploration import Behaviour, Best, Counteractive, EpsilonZ, Never, RandomAction, random_actions
from sadq.exploration.deviations import Repetition

RULES = [RandomAction(), EpsilonZ(), Counteractive(), Never()]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)


def by(deviation: Any) -> Behaviour:
    return Behaviour(Best(), deviation)


@every_rule
def test_without_epsilon_what_is_meant_is_done(rule):
    np.testing.assert_array_equal(act(by(rule), 0.0), 1)
    np.testing.assert_array_equal(act(by(rule), 0.0, MASK), 2)
    intended = jnp.arange(LANES, dtype=jnp.int32) % ACTIONS
    done, _ = rule.act(situation(intended=intended), rule.init(LANES, NOTHING))
    np.testing.assert_array_equal(done, intended)


@every_rule
def test_without_epsilon_not_even_a_coin_of_zero_deviates(rule):
    still = NOISE._replace(coin=jnp.zeros(LANES))
    np.testing.assert_array_equal(act(by(rule), 0.0, noise=still), 1)


@every_rule
def test_illegal_actions_are_never_taken(rule):
    for epsilon in (0.0, 0.5, 1.0):
        assert set(act(by(rule), epsilon, MASK)) <= {0, 2}


@every_rule
def test_a_mask_that_allows_nothing_counts_as_all_legal(rule):
    nothing = jnp.zeros((LANES, ACTIONS), bool)
    np.testing.assert_array_equal(act(by(rule), 0.0, nothing), 1)
    np.testing.assert_array_equal(act(by(rule), 1.0, nothing), act(by(rule), 1.0))


@pytest.mark.parametrize("rule", RULES[:2], ids=lambda rule: type(rule).__name__)
def test_a_deviation_is_uniform_and_a_coin_per_lane(rule):
    assert stats.chisquare(np.bincount(act(by(rule), 1.0), minlength=ACTIONS)).pvalue > 1e-3
    assert abs(np.mean(act(by(rule), 0.3) != 1) - 0.3 * 3 / 4) < 0.05
    drawn = np.bincount(act(by(rule), 1.0, MASK), minlength=ACTIONS)
    assert stats.chisquare(drawn[[0, 2]]).pvalue > 1e-3
    # Exactly those lanes deviate whose coin says so, and do what their lottery says.
    expected = np.where(NOISE.coin < 0.3, random_actions(situation()), 1)
    np.testing.assert_array_equal(act(by(rule), 0.3), expected)


def test_never_is_epsilon_zero():
    for epsilon in (0.5, 1.0):
        np.testing.assert_array_equal(act(by(Never()), epsilon), 1)
    assert Never().init(LANES, NOTHING) == ()


@pytest.mark.parametrize("wrong", [lambda: Counteractive(-1), lambda: EpsilonZ(-0.5), lambda: EpsilonZ(longest=0)])
def test_settings_out_of_their_range_are_refused(wrong):
    with pytest.raises(SadqError):
        wrong()


# Counteractive


def test_counteractive_takes_the_first_of_the_worst_with_probability_epsilon():
    tied = jnp.tile(jnp.array([0.0, -1.0, 3.0, -1.0]), (LANES, 1))
    np.testing.assert_array_equal(act(by(Counteractive()), 1.0, values=tied), 1)
    chosen = act(by(Counteractive()), 0.3)
    assert set(chosen) == {1, 3}, "the best or the worst, nothing between"
    np.testing.assert_array_equal(chosen == 3, NOISE.coin < 0.3)


def test_counteractive_finds_the_worst_among_the_legal():
    np.testing.assert_array_equal(act(by(Counteractive()), 1.0, MASK), 0)


def test_counteractive_averages_an_ensemble():
    by_network = jnp.array([[2.0, -3.0, 0.0, 1.0], [2.0, 9.0, 0.0, -4.0]])  # on average 2, 3, 0, -1.5
    np.testing.assert_array_equal(act(by(Counteractive()), 1.0, values=jnp.tile(by_network, (LANES, 1, 1))), 3)


@pytest.mark.parametrize(("step", "uniform"), [(0, True), (1599, True), (1600, False)])
def test_counteractive_is_uniform_before_its_start(step, uniform):
    chosen = act(by(Counteractive(1600)), 1.0, step=jnp.int32(step))
    if uniform:
        np.testing.assert_array_equal(chosen, act(by(RandomAction()), 1.0))
    else:
        np.testing.assert_array_equal(chosen, 3)
    # Also before it only with probability epsilon.
    np.testing.assert_array_equal(act(by(Counteractive(1600)), 0.0, step=jnp.int32(step)), 1)
    np.testing.assert_array_equal(act(by(Counteractive(0)), 1.0, step=jnp.int32(0)), 3)


# Held for a while


def test_durations_follow_their_power_law():
    rule = EpsilonZ(2.0, 100)
    drawn = np.asarray(rule.durations(keys.member_key(5), 200_000))
    assert drawn.min() == 1 and drawn.max() <= 100
    weight = np.arange(1, 101.0) ** -2
    expected = 200_000 * weight / weight.sum()
    assert stats.chisquare(np.bincount(drawn, minlength=101)[1:], expected).pvalue > 1e-3
    assert set(np.asarray(EpsilonZ(2.0, 1).durations(keys.member_key(5), 100))) == {1}
    even = np.asarray(EpsilonZ(0.0, 4).durations(keys.member_key(5), 40_000))
    assert stats.chisquare(np.bincount(even, minlength=5)[1:]).pvalue > 1e-3


MEANT = jnp.ones(LANES, jnp.int32)


def test_random_actions_that_are_held_are_epsilon_z():
    steps = [0.3] * 40
    held, before = lived(RandomAction(longest=100), steps)
    for found, expected in zip((held, before), lived(EpsilonZ(), steps), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert before.max() > 1  # something was held
    assert RandomAction().init(LANES, NOTHING) == Never().init(LANES, NOTHING)  # nothing is remembered for one step


def lived(rule: EpsilonZ, epsilons: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """(actions, steps still to repeat before each) of one step per epsilon, [steps, E]."""
    memory, actions, before = rule.init(LANES, NOTHING), [], []
    for index, epsilon in enumerate(epsilons):
        before.append(np.asarray(memory.remaining))
        action, memory = rule.act(situation(key=index, epsilon=jnp.float32(epsilon), intended=MEANT), memory)
        actions.append(np.asarray(action))
    return np.stack(actions), np.stack(before)


def always(monkeypatch, length: int) -> EpsilonZ:
    monkeypatch.setattr(EpsilonZ, "durations", lambda self, key, count: jnp.full(count, length, jnp.int32))
    return EpsilonZ()


def test_an_action_is_repeated_exactly_as_long_as_was_drawn(monkeypatch):
    """With every length 3 and epsilon 1 only at the first step, three random actions come and then the best."""
    taken, before = lived(always(monkeypatch, 3), [1, 0, 0, 0, 0])
    first = np.asarray(random_actions(situation(key=0)))
    assert len(set(first)) == ACTIONS
    np.testing.assert_array_equal(taken, [first, first, first, np.ones(LANES), np.ones(LANES)])
    np.testing.assert_array_equal(before[:, 0], [0, 2, 1, 0, 0])


def test_a_new_repetition_begins_only_when_idle(monkeypatch):
    """Epsilon stays 1, so that a repetition follows the other: actions change every third step and never between."""
    taken, _ = lived(always(monkeypatch, 3), [1] * 7)
    for begin in (0, 3):
        fresh = np.asarray(random_actions(situation(key=begin)))
        np.testing.assert_array_equal(taken[begin : begin + 3], [fresh] * 3)
    assert (taken[2] != taken[3]).any() and (taken[5] != taken[6]).any()


def test_a_whole_life_is_that_of_the_lengths_drawn():
    """Every lane walked step by step, with the coins, lotteries and lengths of each step."""
    rule, steps, epsilon = EpsilonZ(1.0, 5), 30, 0.2
    actions, _ = lived(rule, [epsilon] * steps)
    draws = [situation(key=index) for index in range(steps)]
    coins = np.stack([np.asarray(now.noise.coin) for now in draws])
    random = np.stack([np.asarray(random_actions(now)) for now in draws])
    lengths = np.stack([np.asarray(rule.durations(keys.purpose(now.noise.key, "duration"), LANES)) for now in draws])
    expected = np.ones((steps, LANES), int)
    for lane in range(LANES):
        step = 0
        while step < steps:
            if coins[step, lane] < epsilon:
                expected[step : step + lengths[step, lane], lane] = random[step, lane]
                step += lengths[step, lane]
            else:
                step += 1
    np.testing.assert_array_equal(actions, expected)


def test_a_repetition_ends_with_its_episode_and_where_it_becomes_illegal(monkeypatch):
    rule = always(monkeypatch, 9)
    start, memory = rule.act(situation(epsilon=jnp.float32(1), intended=MEANT), rule.init(LANES, NOTHING))
    half = jnp.arange(LANES) % 2 == 0
    after, kept = rule.act(situation(key=1, fresh=half, intended=MEANT), memory)
    np.testing.assert_array_equal(after, np.where(half, 1, start))
    np.testing.assert_array_equal(kept.remaining, np.where(half, 0, 7))
    after, kept = rule.act(situation(key=1, mask=MASK, intended=2 * MEANT), memory)
    legal = np.isin(np.asarray(start), (0, 2))
    assert legal.any() and not legal.all()
    np.testing.assert_array_equal(after, np.where(legal, start, 2))
    np.testing.assert_array_equal(kept.remaining, np.where(legal, 7, 0))


def test_a_repetition_is_remembered_by_lane():
    memory = EpsilonZ().init(3, NOTHING)
    assert isinstance(memory, Repetition) and memory.action.shape == memory.remaining.shape == (3,)
    assert EpsilonZ().begin(NOTHING, keys.member_key(0), memory) is memory
    under_way = Repetition(jnp.array([3, 0, 2]), jnp.array([2, 0, 1]))
    action, after = EpsilonZ().act(situation(VALUES[:3], intended=MEANT[:3]), under_way)
    np.testing.assert_array_equal(action, [3, 1, 2])
    np.testing.assert_array_equal(after.remaining, [1, 0, 0])
