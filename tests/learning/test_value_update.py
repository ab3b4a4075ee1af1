"""One gradient step: whose gradient it is, how samples weigh, what moves what, and what a head's own loss may look at."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    TWO_STATES,
    TableHead,
    numbers,
    one_hot,
    phase_of,
    ready,
    state_of,
    table_learner,
    table_network,
    three_ends,
    update_of,
)

from sadq import keys
from sadq.core.ensembles import Agreement
from sadq.core.optimisers import RMSprop
from sadq.learning.guidance import Seen
from sadq.learning.learner import Learner, TargetUpdate
from sadq.networks import Look, Mover, Network, Scalar, ensemble_keys
from sadq.replay import Prioritised
from sadq.types import Transition
from tiny import BATCH, KEY, assert_close, difference

HEADED = ["dqn", "c51", "qrdqn", "iqn", "fqf", "bdqn", "rainbow", "sunrise"]
"""An agent for every head, and those with noise and with several networks."""


@pytest.mark.parametrize("agent", HEADED)
def test_the_loss_moves_with_the_target_network_and_its_gradient_stops_there(agent):
    """The gradient is that of the weighted distance from constants, even right after a copy, when both networks are one."""
    learner, hyper, state, seen = ready(agent, max_gradient_norm=None, soft_target_rate=0.5)
    weight = jnp.linspace(0.1, 1.0, BATCH)

    @jax.jit
    def run(own, update):
        after, priority, measured = learner.value_update(own, phase_of(learner, hyper), update)
        return measured["loss"], priority, after.online.first, learner.targets(own, hyper, update.key, update.seen)

    def update(target, online):
        own = state._replace(target=target, online=state.online._replace(parameters=online))
        return run(own, update_of(seen, weight))

    online = state.online.parameters
    before, moved = (
        update(target, online)[0] for target in (state.target, jax.tree.map(lambda x: 1.1 * x, state.target))
    )
    ongoing = np.asarray(seen.batch.discount) > 0
    assert (np.abs(before - moved) > 1e-7)[ongoing].all()
    np.testing.assert_allclose(before[~ongoing], moved[~ongoing], rtol=1e-5)

    losses, priority, first, targets = update(online, online)
    gradient_of = jax.jit(jax.grad(lambda own, *given: distance(learner, own, *given)))
    expected = gradient_of(online, targets, seen, weight, KEY)
    # Adam's first moment after one step is a tenth of the gradient; what is moved otherwise has none.
    marks = jax.tree.leaves(online.movers())
    moments = jax.tree.structure(online).flatten_up_to(first)
    for mark, moment, wanted in zip(marks, moments, jax.tree.leaves(expected), strict=True):
        if mark is Mover.RUN:
            np.testing.assert_allclose(10 * moment, wanted, rtol=2e-3, atol=1e-6)
    if agent in ("c51", "rainbow", "qrdqn", "iqn", "fqf"):
        np.testing.assert_allclose(priority, losses, rtol=1e-5)  # a distribution's priority is its loss


def distance(learner: Learner, online: Network, targets: Any, seen: Seen, weight: jax.Array, key: Any) -> jax.Array:
    """The mean loss of the batch to given targets, from whole returns; of an ensemble, weighted and summed."""
    batch = seen.batch

    def of_one(network: Network, noise_key, returns) -> jax.Array:
        network = network.drawn(keys.purpose(noise_key, "online"))

        def loss(index, target):
            level_key = keys.at(keys.purpose(key, "online"), index)
            taken = network.sampled(level_key)(batch.observation[index]).taken(batch.action[index])
            return taken.loss_to(jax.lax.stop_gradient(target))

        return jax.vmap(loss)(jnp.arange(BATCH), returns)

    noise_keys = ensemble_keys(keys.purpose(key, "noise"), learner.ensemble.size)
    losses = jax.vmap(of_one)(online, noise_keys, targets.returns)
    agreed = jnp.ones(BATCH)
    if isinstance(learner.ensemble, Agreement):
        spread = jnp.sqrt(jnp.mean(jnp.square(targets.bootstrap - jnp.mean(targets.bootstrap, axis=0)), axis=0))
        agreed = 1 / (1 + jnp.exp(10.0 * spread)) + 0.5
    return jnp.sum(jnp.mean(weight * agreed * losses, axis=1))


@pytest.mark.parametrize("agent", ["dqn", "double+sadq"])
def test_the_gradient_takes_targets_as_constants(agent):
    """Even where target and online network are the same parameters, as after every copy; and the model stays."""
    learner, hyper, state, seen = ready(agent, max_gradient_norm=None, head=Scalar())
    state = state._replace(target=state.online.parameters)
    constants = jax.jit(learner.targets)(state, hyper, KEY, seen).returns.values[0]

    def loss(online):
        alone = jax.tree.map(lambda leaf: leaf[0], online)
        values = jax.vmap(lambda one: alone(one).mean)(seen.batch.observation)
        return jnp.mean(jnp.square(values[jnp.arange(BATCH), seen.batch.action] - constants))

    after, _, _ = jax.jit(learner.value_update)(state, phase_of(learner, hyper), update_of(seen))
    assert_close(
        jax.tree.map(lambda leaf: 10 * leaf, after.online.first), jax.grad(loss)(state.online.parameters), 1e-3
    )
    assert after.model is None or difference(state.model, after.model) == 0


# By hand


def test_samples_weigh_as_much_as_replay_says():
    """d/dQ mean_i w_i (Q - y_i)^2: samples 0 and 2 are of one state and action, whose value is 0, and sample 1's is 0.5."""
    learner = table_learner(2, 3, max_gradient_norm=None)
    run, state, phase = jax.jit(learner.value_update), state_of(table_network(TWO_STATES)), phase_of(learner, numbers())
    for weight in ([1.0, 1.0, 1.0], [0.5, 1.0, 0.25]):
        after, priority, measured = run(state, phase, update_of(three_ends(), jnp.array(weight)))
        expected = np.zeros((2, 3))
        expected[0, 0] = 2 * (weight[0] * -1 + weight[2] * -4) / 3
        expected[1, 2] = 2 * weight[1] * -1.5 / 3
        np.testing.assert_allclose(10 * after.online.first.head.table[0], expected, rtol=1e-5)
        # Priorities and what is measured are those of the samples, whatever they weigh.
        np.testing.assert_allclose(priority, [1, 1.5, 4], rtol=1e-6)
        np.testing.assert_allclose(measured["loss"], [1, 2.25, 16], rtol=1e-6)


@pytest.mark.parametrize(
    ("mask", "q", "gap"), [(None, [5, 3, 5], [5, 4, 5]), ([True, False, True], [1, 3, 1], [1, 2.5, 1])]
)
def test_what_is_measured_of_values_is_that_of_legal_actions(mask, q, gap):
    learner = table_learner(2, 3)
    mask = None if mask is None else jnp.tile(jnp.array(mask), (3, 1))
    state, seen = state_of(table_network(TWO_STATES)), three_ends(mask)
    elsewhere = jnp.tile(jnp.array([False, True, False]), (3, 1))  # what is legal at s' has no part in values at s
    seen = seen._replace(batch=seen.batch._replace(next_mask=elsewhere))
    _, _, measured = learner.value_update(state, phase_of(learner, numbers()), update_of(seen))
    np.testing.assert_allclose(measured["q"], q, rtol=1e-6)
    np.testing.assert_allclose(measured["delta_q"], gap, rtol=1e-6)


class MovedApart(TableHead):
    """A table of the run's, a number with an optimiser of its own, and one that nothing moves."""

    own_optimiser: ClassVar[RMSprop] = RMSprop(decay=0.5, epsilon=1e-3)
    side: jax.Array
    still: jax.Array

    def __init__(self, table: jax.Array):
        self.table, self.side, self.still = table, jnp.float32(1), jnp.float32(7)

    def auxiliary_loss(self, look: Look) -> jax.Array:
        return 6 * self.side + 1000 * self.still

    def movers(self) -> Any:
        return eqx.tree_at(lambda head: (head.side, head.still), super().movers(), (Mover.HEAD, Mover.NOTHING))

    @property
    def own_learning_rate(self) -> float:
        return 0.2


@pytest.mark.parametrize(("max_norm", "soft_rate"), [(None, None), (0.5, 0.25)])
def test_each_parameter_moves_as_its_mover_says(max_norm, soft_rate):
    """By half of both rates, as where the schedule has come halfway; clipping counts only what the run moves."""
    learner = table_learner(2, 3, max_gradient_norm=max_norm, target_update=TargetUpdate(soft_rate=soft_rate))
    network = table_network(TWO_STATES, head=MovedApart)
    state = state_of(network, jax.tree.map(lambda leaf: leaf - 3.0, network))
    hyper = numbers(learning_rate=0.1)
    phase = phase_of(learner, hyper, rate=jnp.float32(0.05))
    after, _, _ = jax.jit(learner.value_update)(state, phase, update_of(three_ends()))
    head, before = after.online.parameters.head, state.online.parameters.head
    assert head.still[0] == 7 and after.online.first.head.still is None
    np.testing.assert_allclose(head.side[0], 1 - 0.1 * 6 / (np.sqrt(0.5 * 36) + 1e-3), rtol=1e-5)
    gradient = 10 * np.asarray(after.online.first.head.table[0])
    by_hand = np.array([[-10 / 3, 0, 0], [0, 0, -1]])
    norm = np.sqrt((by_hand**2).sum())
    np.testing.assert_allclose(gradient, by_hand if max_norm is None else by_hand * max_norm / norm, rtol=1e-5)
    # Adam's first step is the rate itself, whatever the gradient.
    np.testing.assert_allclose(head.table - before.table, -0.05 * np.sign(by_hand)[None], rtol=1e-4, atol=1e-6)
    target = after.target.head
    if soft_rate is None:
        assert difference(after.target, state.target) == 0
    else:
        np.testing.assert_allclose(target.table, 0.25 * head.table + 0.75 * (before.table - 3), rtol=1e-5)
        np.testing.assert_allclose(target.side, 0.25 * head.side + 0.75 * (1 - 3), rtol=1e-5)
        assert target.still[0] == 7, "what no gradient moves is taken over"


class Watching(TableHead):
    """A head whose own loss looks at everything that it may; each thing has its number, which so is its gradient."""

    sequence_length: ClassVar[int] = 3
    sides: jax.Array

    def __init__(self, table: jax.Array):
        self.table, self.sides = table, jnp.zeros(5)

    def auxiliary_loss(self, look: Look) -> jax.Array:
        rewards = jnp.sum(jnp.where(look.sequence.valid, look.sequence.transition.reward, 0.0))
        taken = look.features @ look.online.head.table[:, look.action]
        later = look.features @ look.target.head.table[:, look.action]
        looked = jnp.stack([rewards, taken, later, jax.random.uniform(look.key), look.mask[1] * 1.0])
        return jnp.sum(self.sides * jax.lax.stop_gradient(looked))


def test_a_head_s_own_loss_sees_its_sequence_its_key_and_both_networks():
    """Through a ring whose first episode ends at step 1; lane 1 earns ten times as much."""
    learner = table_learner(
        2, 3, make_network=lambda key: table_network(TWO_STATES, head=Watching), has_masks=True, replay=Prioritised()
    )
    reward = jnp.arange(1.0, 5.0)[:, None] * jnp.array([1.0, 10.0])
    action, off = jnp.tile(jnp.array([[0], [2], [1], [1]]), (1, 2)), jnp.zeros((4, 2), bool)
    mask = jnp.tile(jnp.array([[True, True], [True, False]])[:, :, None], (2, 1, 3)) | (jnp.arange(3) == 0)
    seen = jnp.tile(one_hot(2, 0, 1, 0, 1)[:, None], (1, 2, 1))
    ended = off.at[1, 0].set(True)
    collected = Transition(seen, action, reward, seen, ended, off, mask, mask)
    contents = learner.store.add(learner.store.init(), jnp.int32(0), collected)
    hyper = numbers()
    phase = phase_of(learner, hyper, index=1)
    assert phase.rows == 4
    looked_at = learner.see(contents, jnp.array([0, 3, 4]), phase)  # steps 0 and 2 of lane 0, step 1 of lane 1
    np.testing.assert_array_equal(looked_at.sequence.valid, [[True, True, False], [True] * 3, [True, True, False]])
    network = table_network(TWO_STATES, head=Watching)
    state = state_of(network, jax.tree.map(lambda leaf: 2 * leaf, network))
    weight = jnp.array([1.0, 0.5, 0.25])
    run = jax.jit(learner.value_update)

    def update(key):
        return run(state, phase, update_of(looked_at, weight, key=key))[0].online.first

    found = np.asarray(10 * update(KEY).head.sides[0])
    own = np.array([[1 + 2, 0.0, 0.0, 0, 1], [20 + 30 + 40, 0.5, 1.0, 0, 0], [3 + 4, 5.0, 10.0, 0, 1]])
    np.testing.assert_allclose(found[[0, 1, 2, 4]], (np.asarray(weight) @ own / 3)[[0, 1, 2, 4]], rtol=1e-5)
    own_keys = keys.range_of(keys.purpose(keys.purpose(KEY, "noise"), "auxiliary"), 0, 3)
    drawn = jax.vmap(jax.random.uniform)(own_keys)
    assert len(np.unique(drawn)) == 3
    np.testing.assert_allclose(found[3], weight @ drawn / 3, rtol=1e-5)
    assert update(keys.member_key(1)).head.sides[0, 3] != update(KEY).head.sides[0, 3], "another update, another key"


def test_without_a_length_no_sequence_is_gathered():
    learner = table_learner(2, 3)
    assert learner.see(learner.store.init(), jnp.array([0]), phase_of(learner, numbers())).sequence is None
