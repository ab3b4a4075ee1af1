"""Legal actions: the environment's, and of a member with fewer actions than its fleet only its own, wherever they matter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    numbers,
    one_hot,
    phase_of,
    state_of,
    table_guidance,
    table_learner,
    table_model,
    table_network,
    update_of,
)

from sadq import keys
from sadq.core.gates import BatchReliability
from sadq.exploration import Behaviour, Best, Counteractive, EpsilonZ, RandomAction
from sadq.fleet.scan_loop import ScanFleet
from sadq.learning.guidance import Seen
from sadq.learning.legal import every_action, legal_actions
from sadq.networks import Dense, HeadShape, Network, Scalar
from sadq.types import Batch, Transition
from tiny import KEY, Corridor

TWO = jnp.int32(2)


def test_the_environment_s_rules_and_a_member_s_own_actions_together():
    def rules(observation):
        return jnp.array([True, False, True]) & (observation[0] > 0)

    seen = jnp.ones(1)
    assert legal_actions(every_action, 3, None)(seen) is None
    assert legal_actions(rules, 3, None)(None) is None, "of what is not known nothing is illegal"
    np.testing.assert_array_equal(legal_actions(rules, 3, None)(seen), [True, False, True])
    np.testing.assert_array_equal(legal_actions(rules, 3, None)(-seen), [False] * 3)
    np.testing.assert_array_equal(legal_actions(every_action, 3, TWO)(seen), [True, True, False])
    np.testing.assert_array_equal(legal_actions(every_action, 3, TWO)(None), [True, True, False])
    np.testing.assert_array_equal(legal_actions(rules, 3, TWO)(seen), [True, False, False])
    np.testing.assert_array_equal(legal_actions(rules, 3, TWO)(None), [True, True, False])
    traced = jax.vmap(lambda count: legal_actions(every_action, 3, count)(None))(jnp.arange(1, 4))
    np.testing.assert_array_equal(traced, np.tri(3, dtype=bool))


# A member's actions


@dataclasses.dataclass(frozen=True)
class Wide(Corridor):
    """A corridor with two more ways to go left."""

    action_count: int = 4


VALUES = jnp.tile(jnp.array([0.0, 1.0, 1000.0, -1000.0]), (5, 1))
"""The third action looks best everywhere and the fourth worst."""


@pytest.mark.parametrize(
    ("deviation", "epsilon", "expected"),
    [
        (RandomAction(), 0.0, {1}),
        (RandomAction(), 1.0, {0, 1}),
        (EpsilonZ(), 0.5, {0, 1}),
        (Counteractive(0), 1.0, {0}),
    ],
    ids=["best", "random", "held", "worst"],
)
def test_a_member_never_acts_outside_its_own_actions(deviation, epsilon, expected):
    """Beside one that has all four, in one program."""
    learner = table_learner(5, 4, lanes=16, collect_steps=6, has_masks=True)
    fleet = ScanFleet(learner=learner, exploration=Behaviour(Best(), deviation), environment=Wide())
    networks = state_of(table_network(VALUES)).online.parameters
    hyper = numbers(epsilon_start=epsilon, epsilon_end=epsilon)
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), hyper)._replace(actions=jnp.array([2, 4]))

    @jax.jit
    @jax.vmap
    def collected(hyper):
        member = fleet.init(hyper)
        online = member.learner.online._replace(parameters=networks)
        return fleet.collect(member._replace(learner=member.learner._replace(online=online)), hyper, jnp.int32(0))[1]

    steps = jax.tree.map(np.asarray, collected(members))
    assert set(steps.action[0].reshape(-1)) == expected
    assert steps.action[1].max() > 1
    for mask in (steps.mask, steps.next_mask):
        np.testing.assert_array_equal(mask[0], np.broadcast_to([True, True, False, False], mask[0].shape))
        assert mask[1].all()


def test_a_member_s_targets_gates_and_measures_look_at_its_own_actions():
    """At every s' the values are 0, 1, 1000 and -1000; the model would prefer the fourth action."""
    model = table_model(jnp.tile(jnp.array([3.0, 2.0, 0.0, 9.0]), (5, 1)), jnp.zeros((5, 4), int))
    guidance = table_guidance(model, 4, gate=BatchReliability())
    learner = table_learner(5, 4, has_masks=True, guidance=guidance)
    hyper = numbers(alpha=0.25)._replace(actions=TWO)
    state = state_of(table_network(VALUES), table_network(VALUES), model)
    legal = jax.vmap(learner.legal_for(hyper))(one_hot(5, 0, 1))
    before, after, off = one_hot(5, 0, 1), one_hot(5, 0, 0), jnp.zeros(2, bool)
    # The model knows what these two steps earn and where they lead, so the gate is wide open.
    earned = jnp.array([3.0, 2.0])
    batch = Batch(before, jnp.array([0, 1]), earned, after, jnp.full(2, 0.5), legal, legal)
    seen = Seen(batch, Transition(before, batch.action, earned, after, off, off, legal, legal), off)
    targets = learner.targets(state, hyper, KEY, seen)
    np.testing.assert_allclose(targets.diagnostics["alpha"][0], 0.25, rtol=1e-6)
    mixed = 0.25 * 1 + 0.75 * 0  # the base's action 1, and the model's 0, of those two
    np.testing.assert_allclose(targets.returns.values[0], earned + 0.5 * mixed, rtol=1e-6)
    np.testing.assert_allclose(targets.diagnostics["greedy_minus_mixed"][0], 1 - mixed, rtol=1e-6)
    _, _, measured = learner.value_update(state, phase_of(learner, hyper), update_of(seen))
    np.testing.assert_allclose(measured["q"], 1, rtol=1e-6)
    np.testing.assert_allclose(measured["delta_q"], 1, rtol=1e-6)
    # Half an error of the gap of 1 lets half of the model's share through; 2000 apart, it would be all of it.
    wrong = seen._replace(transition=seen.transition._replace(reward=earned + 0.5))
    found = learner.targets(state, hyper, KEY, wrong).diagnostics["alpha"][0]
    np.testing.assert_allclose(found, 1 - 0.75 * 0.5, rtol=1e-5)


def test_what_a_member_does_not_have_is_not_in_its_dueling_mean():
    """A dueling network of four actions, of which it has two, is the network of those two."""
    network = Network(Dense((6,)).build((3,), KEY), Scalar().build(HeadShape(6, 4, dueling=True), keys.member_key(2)))
    observation, stream = jnp.array([0.3, -1.0, 2.0]), network.head.stream
    hidden = jax.nn.relu(stream.hidden(network.encode(observation)))
    value, advantage = stream.value(hidden[6:]), stream.advantage(hidden[:6])[:2]
    expected = np.asarray(value + advantage - advantage.mean())
    owned = legal_actions(every_action, 4, TWO)(observation)
    np.testing.assert_allclose(network.mean(observation, owned)[:2], expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(network.mean(observation)[:2], expected, atol=1e-3)
