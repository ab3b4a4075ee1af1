"""A learning phase: which updates there are, on what, at which rate, when targets are copied, and what divergence stops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    TableHead,
    filled_ring,
    numbers,
    one_hot,
    state_of,
    table_guidance,
    table_learner,
    table_model,
    table_network,
)

from sadq import keys
from sadq.exploration import Behaviour, Best, Never
from sadq.exploration.situation import draw_noise
from sadq.fleet.members import Fleet, StepPlan
from sadq.learning.learner import Learner, TargetUpdate
from sadq.learning.model_updates import model_update
from sadq.learning.state import Hyper, LearnerState, Update
from sadq.replay import Prioritised, Uniform, uniform
from tiny import KEY, assert_close, difference

STATES, ACTIONS = 4, 3
VALUES = jax.random.normal(KEY, (STATES, ACTIONS))
MODEL = table_model(VALUES[::-1], jax.random.randint(KEY, (STATES, ACTIONS), 0, STATES))


def by_hand(learner: Learner, state: LearnerState, hyper: Hyper, contents: Any, memory: Any, index: int):
    """What a learning phase comes to, update by update; asked for (state, memory, losses) with replay's weights or ones."""
    phase = learner.phase(hyper, jnp.int32(index))
    if learner.guidance is not None:
        count = learner.guidance.updates
        update_model = jax.jit(lambda *given: model_update(learner.guidance, *given)[0])
        for key in keys.range_of(hyper.stream("model-update"), index * count, count):
            drawn = uniform(
                learner.store, phase.rows, keys.purpose(key, "sample"), learner.guidance.batch_size, steps=1
            )
            state = update_model(state, phase, key, learner.store.one_step(contents, drawn))

    @jax.jit
    def update(state: LearnerState, memory: Any, key: Any, all_alike: bool):
        draw_key = keys.purpose(key, "sample")
        position, weight = learner.sampler.draw(memory, phase.rows, draw_key, learner.batch_size, phase.progress)
        own = Update(key, learner.see(contents, position, phase), jnp.where(all_alike, 1.0, weight), None)
        state, priority, measured = learner.value_update(state, phase, own)
        return state, learner.sampler.update(memory, position, priority), measured["loss"]

    def phase_with(ones: bool):
        after, remembered, losses = state, memory, []
        for key in keys.range_of(hyper.stream("update"), index * learner.updates, learner.updates):
            after, remembered, loss = update(after, remembered, key, ones)
            losses.append(loss)
        return after, remembered, np.mean(losses)

    return phase_with


# What a phase consists of


@pytest.mark.parametrize("replay", [Uniform(), Prioritised()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("guided", [False, True])
def test_a_phase_is_its_model_updates_and_then_its_value_updates(replay, guided):
    """Each with the batch, weights and key of its number in the run; priorities go back before the next draw."""
    guidance = table_guidance(MODEL, ACTIONS, updates=2, batch_size=5) if guided else None
    learner = table_learner(STATES, ACTIONS, replay=replay, updates=3, guidance=guidance, steps=2)
    contents, index = filled_ring(learner), 1
    memory = learner.sampler.add(learner.sampler.init(), jnp.int32(0), 4)
    if memory is not None:
        memory = learner.sampler.update(memory, jnp.arange(6), jnp.arange(1.0, 7.0))
    state = state_of(table_network(VALUES), table_network(-VALUES), MODEL if guided else None)
    hyper = numbers(alpha=0.3)
    learned = jax.jit(learner.learn)(state, hyper, contents, memory, jnp.int32(index))
    phase_with = by_hand(learner, state, hyper, contents, memory, index)
    expected = phase_with(ones=False)
    assert_close(learned[:2], expected[:2], rtol=1e-5)
    assert learned[0].online.steps == 3 and (not guided or learned[0].model.steps == 2)
    np.testing.assert_allclose(learned[2]["loss"], expected[2], rtol=1e-5)
    assert ("model_reward_loss" in learned[2]) == guided
    if isinstance(replay, Prioritised):
        unweighted = phase_with(ones=True)
        assert difference(expected[0].online, unweighted[0].online) > 1e-3, "weights of one would be noticed"


def test_model_and_values_have_rates_of_their_own():
    """Adam's first step is its rate, whatever the gradient is; the second one's sign may differ, so there is one each."""
    learner = table_learner(STATES, ACTIONS, guidance=table_guidance(MODEL, ACTIONS, batch_size=32), batch_size=32)
    state = state_of(table_network(VALUES), None, MODEL)
    hyper = numbers(learning_rate=0.1, model_learning_rate=0.004)
    after, _, _ = learner.learn(state, hyper, filled_ring(learner), None, jnp.int32(2))
    for new, old, rate in (
        (after.online.parameters.head.table, state.online.parameters.head.table, 0.1),
        (after.model.parameters.rewards, state.model.parameters.rewards, 0.004),
    ):
        moved = np.abs(np.asarray(new - old)).reshape(-1)
        assert moved.any()
        np.testing.assert_allclose(moved[moved > 0], rate, rtol=1e-3)


def test_a_phase_knows_where_the_run_is():
    learner = table_learner(STATES, ACTIONS, learning_rate_schedule="linear", total_steps=40)
    phase = learner.phase(numbers(learning_rate=0.2), jnp.int32(3))
    assert (phase.collect, phase.rows, phase.step) == (3, 8, 16)
    np.testing.assert_allclose([phase.progress, phase.rate], [0.4, 0.2 * 0.6], rtol=1e-6)
    constant = table_learner(STATES, ACTIONS, total_steps=40).phase(numbers(learning_rate=0.2), jnp.int32(3))
    np.testing.assert_allclose(constant.rate, 0.2, rtol=1e-6)
    # NumPy's numbers, for JAX would take an index beyond them for the last one.
    later = learner.phase(numbers(learning_rate=0.2)._replace(span=np.array([8, 24])), jnp.int32(3))
    np.testing.assert_allclose(
        [later.progress, later.rate], [0.5, 0.1], rtol=1e-6, err_msg="of a training that began at 8"
    )


def test_what_a_caller_that_counts_knows_beforehand():
    """Collects of 4 env steps: learning begins after more than 8 of them, and a copy is due every 8 from there on."""
    learner = table_learner(STATES, ACTIONS, learning_starts=8, target_update=TargetUpdate(interval=8))
    assert [learner.knows(index)[:2] for index in range(5)] == [
        (False, False),
        (False, False),  # 8 steps are not more than 8
        (True, False),
        (True, True),
        (True, False),
    ]


@pytest.mark.parametrize(
    ("update", "copied"),
    [
        (TargetUpdate(interval=8), [2, 4, 6]),
        (TargetUpdate(interval=6), [2, 3, 5, 6]),
        (TargetUpdate(interval=4, unit="updates"), [2, 3, 4, 6]),
        (TargetUpdate(), []),
    ],
)
def test_the_target_is_copied_at_its_interval(update, copied):
    """Collects of 2 steps in 2 lanes, and 3 updates each: 4 env steps and 3 updates at a time."""
    learner = table_learner(STATES, ACTIONS, target_update=update, updates=3)
    contents, state, found = filled_ring(learner), state_of(table_network(VALUES)), []
    learn = jax.jit(learner.learn)
    for index in range(6):
        before, state = state.target, learn(state, numbers(), contents, None, jnp.int32(index))[0]
        if difference(state.target, state.online.parameters) == 0:
            found.append(index + 1)
        else:
            assert difference(state.target, before) == 0
    assert found == copied


class Kept(TableHead):
    """A head that is its rounded table once it is settled."""

    def settled(self) -> "Kept":
        return Kept(jnp.round(self.table))


@pytest.mark.parametrize("update", [TargetUpdate(interval=4), TargetUpdate(soft_rate=0.5)], ids=["copied", "softly"])
def test_a_target_is_settled_however_it_follows(update):
    learner = table_learner(STATES, ACTIONS, target_update=update)
    state = state_of(table_network(3 * VALUES, head=Kept), table_network(-VALUES, head=Kept))
    after, _, _ = jax.jit(learner.learn)(state, numbers(), filled_ring(learner), None, jnp.int32(2))
    online = after.online.parameters.head.table
    followed = online if update.soft_rate is None else 0.5 * online + 0.5 * state.target.head.table
    np.testing.assert_array_equal(after.target.head.table, np.round(followed))
    assert (online != np.round(online)).any(), "what learns is not settled by that"


def test_initial_networks_are_a_matter_of_the_seed_and_of_nothing_else():
    """A target begins as a copy; a model beside it changes no bit of the values' networks, and is drawn apart."""
    guidance = table_guidance(
        None, ACTIONS, make_model=lambda key: table_network(jax.random.normal(key, (STATES, ACTIONS)))
    )
    plain, guided = table_learner(STATES, ACTIONS), table_learner(STATES, ACTIONS, guidance=guidance)
    one, beside, other = (
        plain.init(numbers()),
        guided.init(numbers()),
        plain.init(numbers()._replace(seed=jnp.uint32(5))),
    )
    assert one.model is None
    assert difference(one.online, beside.online) == difference(one.target, one.online.parameters) == 0
    assert one.online.steps == 0 and one.online.diverged_at == -1 and not one.online.first.head.table.any()
    tables = [one.online.parameters.head.table, other.online.parameters.head.table, beside.model.parameters.head.table]
    assert len(np.unique(np.concatenate([np.ravel(table) for table in tables]))) == 3 * STATES * ACTIONS


# Before learning starts


@pytest.mark.parametrize("replay", [Uniform(), Prioritised()], ids=lambda one: type(one).__name__)
def test_nothing_is_learned_before_learning_starts(replay):
    """At 4 env steps a collect and a start of 8, the first two collects only fill the replay."""
    fields = {"replay": replay, "guidance": table_guidance(MODEL, ACTIONS), "target_update": TargetUpdate(4)}
    waiting, eager = (table_learner(STATES, ACTIONS, learning_starts=starts, **fields) for starts in (8, 0))
    contents, state = filled_ring(waiting), state_of(table_network(VALUES), table_network(-VALUES), MODEL)
    memory = waiting.sampler.add(waiting.sampler.init(), jnp.int32(0), 6)
    programs = {own.learning_starts: jax.jit(own.learn) for own in (waiting, eager)}

    def late(index: int, starts: int = 8):
        return programs[starts](state, numbers(alpha=0.3), contents, memory, jnp.int32(index))

    def early(index: int):
        return late(index, starts=0)

    for index in (0, 1):
        after, remembered, metrics = late(index)
        assert difference((after, remembered), (state, memory)) == 0
        assert metrics.keys() == early(0)[2].keys() and all(np.isnan(one) for one in metrics.values())
    learned, expected = late(2), early(2)
    assert difference(learned[:2], expected[:2]) == 0 and difference(learned[0].online, state.online) > 0
    assert difference(learned[2], expected[2]) == 0


def test_a_start_after_a_single_step_is_waited_for_too():
    """One step a collect, and one is not more than one. All there is to learn here is the target's copy, due each time."""
    learner = table_learner(
        STATES, ACTIONS, lanes=1, collect_steps=1, updates=0, learning_starts=1, target_update=TargetUpdate(interval=1)
    )
    state = state_of(table_network(VALUES), table_network(-VALUES))
    for index, begun in ((0, False), (1, True)):
        after, _, _ = learner.learn(state, numbers(), None, None, jnp.int32(index))
        np.testing.assert_array_equal(after.target.head.table[0], VALUES if begun else -VALUES)
        assert learner.knows(index)[:2] == (begun, begun)


def test_actions_are_uniform_before_learning_starts():
    learner = table_learner(STATES, ACTIONS, lanes=600, learning_starts=1200)
    fleet = Fleet(learner, Behaviour(Best(), Never()))
    networks = state_of(table_network(jnp.eye(STATES, ACTIONS))).online.parameters
    observation = one_hot(STATES, *([1] * 600))
    legal = jnp.tile(jnp.array([True, True, False]), (600, 1))

    def taken(step: int, mask: Any = None) -> np.ndarray:
        now = StepPlan(jnp.int32(step), jnp.float32(0), draw_noise(KEY, 600, ACTIONS))
        action, memory = fleet.act(networks, ((), ()), observation, mask, jnp.zeros(600, bool), now)
        assert memory == ((), ())
        return np.asarray(action)

    for step in (0, 1199):
        assert np.bincount(taken(step), minlength=3).min() > 150
        assert set(taken(step, legal)) == {0, 1}
    np.testing.assert_array_equal(taken(1200), 1)
