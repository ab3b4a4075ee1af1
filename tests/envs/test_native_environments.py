"""The native environments against Gymnasium's, step by step, and BitFlip against its rules."""

import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.envs import base
from sadq.envs.native import Acrobot, BitFlip, CartPole
from sadq.errors import SadqError

STEPS = 1000


def rollout(environment, steps=STEPS):
    """(states, actions, reached states, rewards, terminated, truncated, observations) of a random policy's steps."""
    key = keys.member_key(3)

    def advance(timed, index):
        action = jax.random.randint(keys.at(key, index), (), 0, environment.action_count)
        reached, step = base.step(environment, timed, action, key)
        fresh = base.reset(environment, keys.at(key, index, 1))
        over = step.terminated | step.truncated
        current = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, reached)
        record = timed.state, action, reached.state, step.reward, step.terminated, step.truncated, step.observation
        return current, record

    begin = base.reset(environment, keys.at(key, 0))
    _, records = jax.jit(lambda begin: jax.lax.scan(advance, begin, jnp.arange(steps)))(begin)
    return jax.tree.map(np.asarray, records)


def gymnasium_step(environment, state, action):
    environment.state = np.asarray(state, np.float64)
    environment.steps_beyond_terminated = None
    observation, reward, terminated, _, _ = environment.step(int(action))
    return observation, reward, terminated


def test_cartpole_is_gymnasium_s():
    states, actions, _, rewards, terminated, truncated, observations = rollout(CartPole(max_steps=200))
    environment = gymnasium.make("CartPole-v1").unwrapped
    environment.reset(seed=0)
    for index in range(STEPS):
        observation, reward, ends = gymnasium_step(environment, states[index], actions[index])
        np.testing.assert_allclose(observations[index], observation, rtol=1e-5, atol=1e-6)
        assert rewards[index] == reward
        border = min(abs(abs(observation[0]) - 2.4), abs(abs(observation[2]) - environment.theta_threshold_radians))
        assert terminated[index] == ends or border < 1e-5
    assert 20 < terminated.sum() < 100 and not truncated.any()


def test_acrobot_is_gymnasium_s():
    states, actions, _, rewards, terminated, _, observations = rollout(Acrobot(), 2 * STEPS)
    # A random policy stays near the bottom: add states from everywhere, so that angles wrap, speeds hit their limits
    # and episodes end.
    random = np.random.default_rng(0)
    anywhere = random.uniform(-1, 1, (STEPS, 4)) * [np.pi, np.pi, 4 * np.pi, 9 * np.pi]
    anywhere = anywhere.astype(np.float32)
    chosen = random.integers(0, 3, STEPS)
    environment = Acrobot()
    moved = jax.jit(jax.vmap(lambda state, action: environment.transition(state, action, keys.member_key(0))))
    reached, more_rewards, more_terminated = moved(anywhere, chosen)
    more_observations = jax.vmap(environment.observe)(reached)

    states = np.concatenate([states, anywhere])
    actions = np.concatenate([actions, chosen])
    rewards = np.concatenate([rewards, more_rewards])
    terminated = np.concatenate([terminated, more_terminated])
    observations = np.concatenate([observations, more_observations])
    reference = gymnasium.make("Acrobot-v1").unwrapped
    reference.reset(seed=0)
    for index in range(len(states)):
        observation, reward, ends = gymnasium_step(reference, states[index], actions[index])
        np.testing.assert_allclose(observations[index], observation, rtol=2e-4, atol=2e-4)
        height = -np.cos(reference.state[0]) - np.cos(reference.state[1] + reference.state[0])
        assert (terminated[index] == ends and rewards[index] == reward) or abs(height - 1) < 1e-3
    assert terminated.sum() > 50
    assert (np.abs(observations[:, 5]) == np.float32(9 * np.pi)).any()


@pytest.mark.parametrize("environment", [CartPole(max_steps=7), Acrobot(max_steps=7), BitFlip(bits=7)])
def test_episodes_are_truncated_at_the_limit(environment):
    timed = base.reset(environment, keys.member_key(0))
    # The same bit flipped over and over never reaches a goal more than one bit away.
    for index in range(7):
        timed, step = base.step(environment, timed, jnp.int32(index % 2 if environment.name == "CartPole" else 0), None)
        assert not step.terminated
        assert step.truncated == (index == 6)


def test_truncated_is_never_terminated():
    environment = BitFlip(bits=1)
    _, step = base.step(environment, base.reset(environment, keys.member_key(0)), jnp.int32(0), None)
    assert step.terminated and not step.truncated


@pytest.mark.parametrize("environment,bound", [(CartPole(), 0.05), (Acrobot(), 0.1)])
def test_first_states_cover_gymnasium_s_range(environment, bound):
    starts = jax.vmap(environment.initial)(keys.range_of(keys.member_key(1), 0, 500))
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(starts)])
    assert np.abs(values).max() <= bound
    np.testing.assert_allclose([values.min(), values.max()], [-bound, bound], rtol=0.05)
    assert abs(values.mean()) < bound / 10


def test_sizes_and_names():
    assert (CartPole().name, CartPole().max_steps) == ("CartPole-v0", 200)
    assert CartPole(max_steps=500).name == "CartPole-v1"
    assert (Acrobot().name, Acrobot().max_steps) == ("Acrobot-v1", 500)
    bitflip = BitFlip(bits=5)
    assert (bitflip.observation_size, bitflip.action_count, bitflip.max_steps, bitflip.name) == (10, 5, 5, "BitFlip-5")
    assert BitFlip().name == "BitFlip"
    for environment in (CartPole(), Acrobot(), BitFlip()):
        state = environment.initial(keys.member_key(0))
        observation = environment.observe(state)
        assert observation.shape == environment.observation_shape and observation.dtype == environment.observation_dtype
        assert environment.observation_dtype == np.float32 and environment.actors == 1
        assert not environment.has_masks and hash(environment) == hash(type(environment)())


def test_bitflip_by_hand():
    environment = BitFlip(bits=3)
    state = jnp.float32([0, 1, 0, 1, 1, 1])
    state, reward, terminated = environment.transition(state, jnp.int32(0), None)
    np.testing.assert_array_equal(state, [1, 1, 0, 1, 1, 1])
    assert reward == 0 and not terminated
    state, reward, terminated = environment.transition(state, jnp.int32(1), None)
    np.testing.assert_array_equal(state, [1, 0, 0, 1, 1, 1])
    assert reward == 0 and not terminated
    state, _, _ = environment.transition(state, jnp.int32(1), None)
    state, reward, terminated = environment.transition(state, jnp.int32(2), None)
    np.testing.assert_array_equal(environment.observe(state), [1, 1, 1, 1, 1, 1])
    assert reward == 1 and terminated


def test_bitflip_starts_are_uniform_over_goals_that_differ():
    starts = np.asarray(jax.vmap(BitFlip(bits=2).initial)(keys.range_of(keys.member_key(0), 0, 6000)))
    pairs, counts = np.unique(starts, axis=0, return_counts=True)
    assert len(pairs) == sum(a != b for a, b in itertools.product(range(4), repeat=2))
    assert (pairs[:, :2] != pairs[:, 2:]).any(axis=1).all()
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500)


@pytest.mark.parametrize("bits", [0, 31])
def test_bitflip_refuses_other_sizes(bits):
    with pytest.raises(SadqError, match="expected 1 to 30"):
        BitFlip(bits=bits)


def test_a_transition_is_the_same_in_a_batch():
    environment = Acrobot()
    key = keys.member_key(0)
    starts = jax.vmap(environment.initial)(keys.range_of(key, 0, 4))
    batch, _, _ = jax.jit(jax.vmap(lambda state: environment.transition(state, jnp.int32(2), key)))(starts)
    for index in range(4):
        one, _, _ = environment.transition(jax.tree.map(lambda leaf, i=index: leaf[i], starts), jnp.int32(2), key)
        np.testing.assert_allclose(one, batch[index], rtol=1e-5, atol=1e-6)
