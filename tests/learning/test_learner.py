"""A learning phase: which updates there are, on what, at which rate, when targets are copied, and what divergence stops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import numbers, one_hot, state_of, table_guidance, table_learner, table_model, table_network
from tiny import KEY, assert_close, difference, prepared

from sadq import keys
from sadq.core.bootstrap import Greedy
from sadq.core.gates import BatchReliability, Fixed, SampleReliability
from sadq.dynamics import Gaussian
from sadq.exploration import Behaviour, Best, Never
from sadq.exploration.situation import draw_noise
from sadq.fleet.members import Fleet, StepPlan
from sadq.learning.guidance import Guidance
from sadq.learning.learner import Learner, TargetUpdate
from sadq.learning.state import Hyper, LearnerState, Update
from sadq.networks import Dense, HeadShape, Network, Scalar
from sadq.replay import Prioritised, Ring, Uniform, uniform
from sadq.types import Transition

STATES, ACTIONS = 4, 3
VALUES = jax.random.normal(KEY, (STATES, ACTIONS))
MODEL = table_model(VALUES[::-1], jax.random.randint(KEY, (STATES, ACTIONS), 0, STATES))


def filled_ring(learner: Learner, seed: int = 0) -> Transition:
    """All six rows of two lanes, with some ends."""
    random = np.random.default_rng(seed)
    shape = (6, learner.store.lanes)
    states, following = one_hot(STATES, *random.integers(STATES, size=2 * 12)).reshape(2, *shape, STATES)
    ends = jnp.asarray(random.random(shape) < 0.2)
    action = jnp.asarray(random.integers(ACTIONS, size=shape))
    collected = Transition(states, action, jnp.asarray(random.normal(size=shape)), following, ends, ~ends & False)
    return learner.store.add(learner.store.init(), jnp.int32(0), collected)


def by_hand(
    learner: Learner, state: LearnerState, hyper: Hyper, contents: Any, memory: Any, index: int, ones: bool = False
):
    """(state, memory, losses) after one learning phase, update by update."""
    phase, losses = learner.phase(hyper, jnp.int32(index)), []
    if learner.guidance is not None:
        count = learner.guidance.updates
        for key in keys.range_of(hyper.stream("model-update"), index * count, count):
            drawn = uniform(
                learner.store, phase.rows, keys.purpose(key, "sample"), learner.guidance.batch_size, steps=1
            )
            batch = learner.store.one_step(contents, drawn)
            state, _ = learner.model_update(learner.guidance, state, phase, key, batch)
    for key in keys.range_of(hyper.stream("update"), index * learner.updates, learner.updates):
        draw_key = keys.purpose(key, "sample")
        position, weight = learner.sampler.draw(memory, phase.rows, draw_key, learner.batch_size, phase.progress)
        seen = learner.see(contents, position, phase)
        update = Update(key, seen, jnp.ones_like(weight) if ones else weight, None)
        state, priority, measured = learner.value_update(state, phase, update)
        memory = learner.sampler.update(memory, position, priority)
        losses.append(measured["loss"])
    return state, memory, jnp.stack(losses)


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
    learned, expected, unweighted = jax.jit(
        lambda: (
            learner.learn(state, hyper, contents, memory, jnp.int32(index)),
            by_hand(learner, state, hyper, contents, memory, index),
            by_hand(learner, state, hyper, contents, memory, index, ones=True),
        )
    )()
    assert_close(learned[:2], expected[:2], rtol=1e-5)
    assert learned[0].online.steps == 3 and (not guided or learned[0].model.steps == 2)
    np.testing.assert_allclose(learned[2]["loss"], expected[2].mean(), rtol=1e-5)
    if isinstance(replay, Prioritised):
        assert difference(expected[0].online, unweighted[0].online) > 1e-3, "weights of one would be noticed"
    assert ("model_reward_loss" in learned[2]) == guided


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
    learn = jax.jit(lambda state, index: learner.learn(state, numbers(), contents, None, index)[0])
    for index in range(6):
        before, state = state.target, learn(state, jnp.int32(index))
        if difference(state.target, state.online.parameters) == 0:
            found.append(index + 1)
        else:
            assert difference(state.target, before) == 0
    assert found == copied


def test_initial_networks_are_a_matter_of_the_seed_and_of_nothing_else():
    """A target begins as a copy; a model beside it changes no bit of the values' networks."""
    plain, hyper, *_ = prepared("dqn")
    guided, *_ = prepared("dqn+sadq", alpha=(0.3,))
    initial = jax.jit(plain.init)
    one, other = initial(hyper), initial(hyper._replace(seed=jnp.uint32(5)))
    beside = jax.jit(guided.init)(hyper)
    assert one.model is None and beside.model is not None
    assert difference(one.online, beside.online) == difference(one.target, one.online.parameters) == 0
    assert difference(one.online.parameters.head, other.online.parameters.head) > 0.1


# Before learning starts


@pytest.mark.parametrize("replay", [Uniform(), Prioritised()], ids=lambda one: type(one).__name__)
def test_nothing_is_learned_before_learning_starts(replay):
    """At 4 env steps a collect and a start of 8, the first two collects only fill the replay."""
    fields = {"replay": replay, "guidance": table_guidance(MODEL, ACTIONS), "target_update": TargetUpdate(4)}
    waiting, eager = (table_learner(STATES, ACTIONS, learning_starts=starts, **fields) for starts in (8, 0))
    contents, state = filled_ring(waiting), state_of(table_network(VALUES), table_network(-VALUES), MODEL)
    memory = waiting.sampler.add(waiting.sampler.init(), jnp.int32(0), 6)
    late, early = (
        jax.jit(lambda index, own=own: own.learn(state, numbers(alpha=0.3), contents, memory, index))
        for own in (waiting, eager)
    )
    for index in (0, 1):
        after, remembered, metrics = late(jnp.int32(index))
        assert difference((after, remembered), (state, memory)) == 0
        assert metrics.keys() == early(jnp.int32(0))[2].keys() and all(np.isnan(one) for one in metrics.values())
    learned, expected = late(jnp.int32(2)), early(jnp.int32(2))
    assert difference(learned[:2], expected[:2]) == 0 and difference(learned[0].online, state.online) > 0
    assert difference(learned[2], expected[2]) == 0


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


# Divergence


def wild() -> Any:
    """A model whose loss is not finite, and whose predictions are not either."""
    return jax.tree.map(lambda leaf: leaf + 3e38, MODEL)


@pytest.mark.parametrize("gate", [Fixed(), BatchReliability(), SampleReliability()], ids=lambda one: type(one).__name__)
def test_a_model_that_diverges_stops_learning_and_nothing_else_does(gate):
    """At alpha 1 values stay, to the bit, those of the base; and below it they go on learning."""
    base = table_learner(STATES, ACTIONS, updates=2)
    guided = table_learner(STATES, ACTIONS, updates=2, guidance=table_guidance(MODEL, ACTIONS, gate=gate))
    contents, network = filled_ring(base), table_network(VALUES)
    plain, state = state_of(network), state_of(network, None, wild())
    alone = jax.jit(lambda state, index: base.learn(state, numbers(), contents, None, index)[0])
    advised = jax.jit(
        lambda state, alpha, index: guided.learn(state, numbers()._replace(alpha=alpha), contents, None, index)[0]
    )
    mixed = state
    for index in range(3):
        plain = alone(plain, jnp.int32(index))
        state = advised(state, jnp.float32(1), jnp.int32(index))
        mixed = advised(mixed, jnp.float32(0.4), jnp.int32(index))
        assert state.model.diverged_at == 4, "the env steps of the first collect"
    assert difference(state.online, plain.online) == 0 and difference(state.target, plain.target) == 0
    assert difference(state.model.parameters, wild()) == 0 and state.model.steps == 0
    assert mixed.online.diverged_at == -1 and mixed.online.steps == 6
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(mixed.online))


def test_values_that_diverge_stop_learning():
    learner = table_learner(STATES, ACTIONS, updates=3, replay=Prioritised(), guidance=table_guidance(MODEL, ACTIONS))
    contents = filled_ring(learner)
    contents = contents._replace(reward=contents.reward.at[3:].set(jnp.nan))
    memory = learner.sampler.add(learner.sampler.init(), jnp.int32(0), 6)
    state = state_of(table_network(VALUES), None, MODEL)
    learn = jax.jit(lambda state, index: learner.learn(state, numbers(alpha=0.5), contents, memory, index)[0])
    after = learn(learn(state, jnp.int32(2)), jnp.int32(3))
    assert after.online.diverged_at == 12 and after.online.steps == 0
    assert difference(after.online.parameters, state.online.parameters) == 0


# Images


def test_a_whole_phase_on_images_of_bytes():
    """uint8[4, 4, 1] through ring, encoder and model gives what the same numbers as floats give."""
    frames = np.random.default_rng(0).integers(0, 256, size=(7, 2, 4, 4, 1))

    def learned(dtype: Any):
        store = Ring(12, 2, (4, 4, 1), ACTIONS, np.dtype(dtype), steps=2)
        model = Gaussian((8,), state_scale=255.0)

        def make(key):
            encoder = Dense((8,)).build((4, 4, 1), keys.purpose(key, "encoder"))
            return Network(encoder, Scalar().build(HeadShape(8, ACTIONS), keys.purpose(key, "head")))

        guidance = Guidance(lambda key: model.build((4, 4, 1), ACTIONS, key), ACTIONS, 4, 1, gate=BatchReliability())
        learner = Learner(
            make, Greedy(), store, Uniform().sampler(store), ACTIONS, 2, 6, 4, 1, 100, TargetUpdate(), guidance=guidance
        )
        seen = jnp.asarray(frames, dtype)
        off, reward = jnp.zeros((6, 2), bool), jnp.arange(12.0).reshape(6, 2) / 10
        collected = Transition(seen[:6], jnp.zeros((6, 2), int), reward, seen[1:], off, off)
        contents = store.add(store.init(), jnp.int32(0), collected)
        assert contents.observation.dtype == dtype
        hyper = numbers(alpha=0.3, learning_rate=1e-3)
        return jax.jit(lambda: learner.learn(learner.init(hyper), hyper, contents, None, jnp.int32(0)))()

    (state, _, metrics), (expected, _, other) = learned(np.uint8), learned(np.float32)
    assert all(np.isfinite(one) for one in metrics.values())
    assert_close(metrics, other, rtol=1e-4)
    assert_close(
        (state.online.parameters, state.model.parameters), (expected.online.parameters, expected.model.parameters)
    )
