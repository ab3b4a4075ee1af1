"""Several actors in one environment: a step by hand, environments as lanes, and who else can run them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_samples import CELLS, Walkers

from sadq import keys
from sadq.envs import CartPole, NativeAsHost, base
from sadq.envs.as_gymnasium import NativeEnvironment
from sadq.envs.fixed_policies import play, uniform, value_support
from sadq.errors import SadqError

KEY = keys.member_key(0)
LEFT, RIGHT = 0, 1


def seen(first, second):
    """What two walkers in these cells see."""
    cells = np.eye(CELLS, dtype=np.float32)
    return np.array([[*cells[first], 1], [*cells[second], 0]])


def begun(*states):
    return base.Timed(jnp.int32(states), jnp.zeros(len(states), jnp.int32))


def test_a_step_by_hand():
    timed = base.Timed(jnp.int32([3, 2]), jnp.int32(0))
    timed, step = base.step(Walkers(), timed, jnp.int32([RIGHT, LEFT]), KEY)
    np.testing.assert_array_equal(step.observation, seen(4, 1))
    np.testing.assert_array_equal(step.reward, [1, 0])
    assert step.reward.dtype == jnp.float32 and step.terminated.shape == step.truncated.shape == ()
    assert not step.terminated and not step.truncated
    timed, step = base.step(Walkers(), timed, jnp.int32([LEFT, LEFT]), KEY)
    np.testing.assert_array_equal(timed.state, [4, 0])
    np.testing.assert_array_equal(step.reward, [0, 1])
    assert step.terminated and not step.truncated and timed.elapsed == 2


def test_the_time_limit_is_for_all_of_them():
    timed = base.reset(Walkers(), KEY)
    for number in range(8):
        # The first walks to and fro between two cells, the second stays at a wall that is not its goal.
        timed, step = base.step(Walkers(), timed, jnp.int32([number % 2, RIGHT]), KEY)
        assert step.truncated.shape == () and step.truncated == (number == 7)


def test_lanes_are_the_actors_of_each_environment_in_turn():
    environment, timed = Walkers(), begun([3, 2], [1, 1], [2, 4])
    observation = base.observe_lanes(environment, timed)
    np.testing.assert_array_equal(observation, np.concatenate([seen(3, 2), seen(1, 1), seen(2, 4)]))
    legal = base.legal_lanes(environment, observation)
    np.testing.assert_array_equal(legal, [[True, True]] * 5 + [[True, False]])
    actions, step_keys = jnp.int32([RIGHT, RIGHT, LEFT, LEFT, RIGHT, LEFT]), keys.range_of(KEY, 0, 3)
    reached, lanes = base.step_lanes(environment, timed, actions, step_keys)
    for index in range(3):
        one = jax.tree.map(lambda leaf, index=index: leaf[index], timed)
        pair = slice(2 * index, 2 * index + 2)
        alone, step = base.step(environment, one, actions[pair], step_keys[index])
        np.testing.assert_array_equal(alone.state, reached.state[index])
        np.testing.assert_array_equal(step.observation, lanes.observation[pair])
        np.testing.assert_array_equal(step.reward, lanes.reward[pair])
        np.testing.assert_array_equal([step.terminated] * 2, lanes.terminated[pair])
        np.testing.assert_array_equal([step.truncated] * 2, lanes.truncated[pair])
    np.testing.assert_array_equal(lanes.reward, [1, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(base.over_actors(environment, lanes.reward), [1, 1, 0])


def test_ends_are_told_to_every_lane_and_back():
    environment = Walkers()
    _, step = base.step_lanes(environment, begun([4, 1], [3, 2]), jnp.int32([LEFT, LEFT] * 2), keys.range_of(KEY, 0, 2))
    np.testing.assert_array_equal(step.terminated, [True, True, False, False])
    np.testing.assert_array_equal(base.of_environments(environment, step.terminated), [True, False])
    states = jnp.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(base.of_environments(environment, base.to_lanes(environment, states)), states)
    np.testing.assert_array_equal(base.to_lanes(environment, states)[:, 0], [0, 0, 3, 3])


def test_resets_are_lanes_too():
    reset_keys = keys.range_of(KEY, 0, 4)
    timed, observation = base.reset_lanes(Walkers(), reset_keys)
    np.testing.assert_array_equal(timed.state, jax.vmap(Walkers().initial)(reset_keys))
    np.testing.assert_array_equal(observation, np.concatenate([seen(*state) for state in np.asarray(timed.state)]))
    np.testing.assert_array_equal(timed.elapsed, 0)


def test_with_one_actor_a_lane_is_an_environment():
    environment, lane_keys = CartPole(), keys.range_of(KEY, 0, 3)
    timed, observation = base.reset_lanes(environment, lane_keys)
    np.testing.assert_array_equal(observation, timed.state)
    actions = jnp.int32([0, 1, 1])
    reached, step = base.step_lanes(environment, timed, actions, lane_keys)
    plain, expected = jax.vmap(lambda *one: base.step(environment, *one))(timed, actions, lane_keys)
    for mine, theirs in zip(jax.tree.leaves((reached, step)), jax.tree.leaves((plain, expected)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for helper in (base.to_lanes, base.of_environments, base.over_actors):
        assert helper(environment, step.reward) is step.reward
    assert base.legal_lanes(environment, observation) is None


def test_native_as_host_runs_lanes():
    environment, seeds, count = Walkers(), [4, 9], 3
    view = NativeAsHost(environment, seeds, count)
    assert view.shape == (2, 6)
    observations, masks = view.reset()
    assert observations.shape == (2, 6, CELLS + 1) and masks.shape == (2, 6, 2)
    random = np.random.default_rng(0)
    for member, seed in enumerate(seeds):
        first = keys.range_of(keys.at(keys.purpose(keys.member_key(seed), "reset"), 0), 0, count)
        np.testing.assert_array_equal(observations[member], base.reset_lanes(environment, first)[1])
    ends = 0
    for _ in range(30):
        step = view.step(random.integers(0, 2, (2, 6)).astype(np.int32))
        ended = step.terminated | step.truncated
        np.testing.assert_array_equal(ended[:, ::2], ended[:, 1::2])
        np.testing.assert_array_equal(step.observation[~ended], step.next_observation[~ended])
        # A new episode begins away from both ends.
        assert (step.observation[ended][:, [0, CELLS - 1]] == 0).all()
        ends += ended.sum()
    assert ends > 20
    other = NativeAsHost(environment, seeds, count)
    np.testing.assert_array_equal(other.restore(view.state())[0], step.observation)


def test_fixed_policies_act_for_all():
    environment = Walkers()

    def homewards(state, observation, step, key):
        return jnp.int32([RIGHT, LEFT])

    played = play(environment, homewards, episodes=20)
    assert (played["returns"] == 2).all() and set(played["lengths"]) == {1, 2, 3}
    state = jnp.int32([4, 0])
    actions = [uniform(environment)(state, environment.observe(state), 0, keys.at(KEY, index)) for index in range(20)]
    np.testing.assert_array_equal(np.array(actions), [[LEFT, RIGHT]] * 20)  # all that the walls allow
    assert play(environment, uniform(environment), episodes=20)["returns"].mean() < 2
    # Values are each actor's: 1 at its goal, discounted by the steps that it takes to get there, or 0 beyond it.
    support = value_support(environment, {"homewards": homewards}, 0.5, episodes=50)
    assert (support["v_min"], support["v_max"]) == (0.0, 1.0)


def test_gymnasium_takes_one_action_a_step():
    with pytest.raises(SadqError, match="Walkers holds 2 actors, expected one, .*: use the environment itself"):
        NativeEnvironment(Walkers())
