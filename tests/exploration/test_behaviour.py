"""A behaviour is what is meant, and with probability epsilon a deviation: each part with its own memory and key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lanes import ACTIONS, LANES, NOISE, act, bayesian_networks, situation, small_networks

from sadq import keys
from sadq.exploration import (
    Behaviour,
    Best,
    Counteractive,
    EpsilonZ,
    Never,
    RandomAction,
    Rule,
    Thompson,
    UpperConfidence,
    random_actions,
)
from sadq.exploration.situation import noisy_values
from sadq.networks import Scalar

DISAGREEING = jnp.tile(jnp.array([[2.0, 4.0, 0.0, 1.0], [2.0, -2.0, 0.0, -1.0]]), (LANES, 1, 1))
"""Two networks that agree on action 0, whose mean is the largest, and not on action 1."""


def test_by_default_the_best_action_is_meant_and_any_action_a_deviation():
    assert Behaviour() == Behaviour(Best(), RandomAction())


@pytest.mark.parametrize(("intended", "meant"), [(Best(), 0), (UpperConfidence(1.0), 1)])
def test_epsilon_applies_to_whatever_is_meant(intended, meant):
    """SUNRISE with epsilon: upper confidence replaces the best action, and a coin replaces that."""
    for epsilon in (0.0, 0.3, 1.0):
        expected = np.where(NOISE.coin < epsilon, random_actions(situation()), meant)
        np.testing.assert_array_equal(act(Behaviour(intended, RandomAction()), epsilon, values=DISAGREEING), expected)
        np.testing.assert_array_equal(act(Behaviour(intended, Never()), epsilon, values=DISAGREEING), meant)


def test_a_deviation_looks_at_the_average_whatever_is_meant():
    taken = act(Behaviour(UpperConfidence(1.0), Counteractive()), 0.5, values=DISAGREEING)
    np.testing.assert_array_equal(taken, np.where(NOISE.coin < 0.5, 2, 1))


def test_each_part_keeps_its_own_memory_and_has_its_own_key():
    mean = jnp.zeros((3, 4)).at[2].set(1.0)
    networks = bayesian_networks(mean, jnp.tile(0.1 * jnp.eye(4), (3, 1, 1)))
    rule, key = Behaviour(Thompson(interval=60), EpsilonZ()), keys.member_key(4)
    memory = rule.init(6, networks)
    draws, repetition = rule.begin(networks, key, memory)
    own = Thompson(interval=60).begin(networks, keys.purpose(key, "intended"), memory[0])
    np.testing.assert_array_equal(draws.following, own.following)
    assert not repetition.remaining.any()
    now = situation(
        jnp.zeros((6, 3)), networks=networks, observation=jnp.ones((6, 2)), fresh=jnp.arange(6) < 3, step=jnp.int32(6)
    )
    under_way = repetition._replace(remaining=jnp.array([0, 0, 0, 0, 2, 3]), action=jnp.array([0, 0, 0, 0, 1, 1]))
    action, (kept, after) = rule.act(now, (draws, under_way))
    np.testing.assert_array_equal(kept.current[:3], draws.following[:3])
    np.testing.assert_array_equal(kept.current[3:], draws.current[3:])
    np.testing.assert_array_equal(after.remaining, [0, 0, 0, 0, 1, 2])
    meant, _ = Thompson(interval=60).act(now, draws)
    np.testing.assert_array_equal(action, np.where(np.arange(6) < 4, meant, 1))


def test_thompson_may_deviate_too():
    networks = bayesian_networks(jnp.zeros((ACTIONS, 4)), jnp.zeros((ACTIONS, 4, 4)))
    changes = {"networks": networks, "observation": jnp.ones((LANES, 2))}
    taken = act(Behaviour(Thompson(), RandomAction()), 0.4, **changes)
    np.testing.assert_array_equal(taken, np.where(NOISE.coin < 0.4, random_actions(situation()), 0))
    np.testing.assert_array_equal(act(Behaviour(Thompson(), Never()), 0.4, **changes), 0)


@pytest.mark.parametrize("deviation", [Never(), RandomAction()], ids=lambda rule: type(rule).__name__)
def test_noisy_layers_make_behaviour_a_matter_of_the_step_s_key(deviation):
    networks = small_networks(Scalar(), noisy=True, dueling=True)
    seen = jax.random.normal(keys.member_key(3), (50, 2))
    rule = Behaviour(Best(), deviation)

    @jax.jit
    def acted(key):
        values = noisy_values(networks, seen, None, key)
        return rule.act(situation(values, networks=networks, observation=seen), rule.init(50, networks))[0]

    def taken(seed: int) -> tuple[int, ...]:
        return tuple(np.asarray(acted(keys.member_key(seed))).tolist())

    assert taken(0) == taken(0)
    assert len({taken(seed) for seed in range(8)}) > 1


def test_a_rule_remembers_nothing_unless_it_says_so_and_has_to_act():
    rule = Rule()
    assert rule.init(3, None) == () and rule.begin(None, keys.member_key(0), "memory") == "memory"
    with pytest.raises(TypeError, match="a rule gives the actions"):
        rule.act(situation(), ())
