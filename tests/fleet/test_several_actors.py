"""An environment with two actors: each is a lane of the replay with its own reward, and a return is all of theirs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_samples import CELLS, Walkers

from sadq.exploration.situation import settled_values
from tiny import CHUNK, corridor_config, loop_of, member

ENVIRONMENTS, CHUNKS = 4, 8


@pytest.fixture(scope="module")
def trained():
    """(loop, state, metrics of all collects) of a fleet whose replay has forgotten nothing."""
    made = corridor_config(
        "dqn+sadq", environments=ENVIRONMENTS, seeds=(0, 1), buffer_size=8192, evaluation_episodes=16
    )
    loop = loop_of(made, Walkers())
    state, found = loop.start(), []
    for index in range(CHUNKS):
        state, metrics = loop.advance(state, index * CHUNK)
        found.append(metrics)
    metrics = {name: np.concatenate([one[name] for one in found], axis=1) for name in found[0]}
    return loop, jax.tree.map(np.array, state), metrics


def stored(state, index):
    """A member's transitions as they happened, [rows, lanes], and who each lane is."""
    replay = member(state.replay, index)
    rows = CHUNKS * CHUNK * 32 // ENVIRONMENTS
    assert replay.reward.shape == (8192 // (2 * ENVIRONMENTS), 2 * ENVIRONMENTS) and rows <= replay.reward.shape[0]
    return jax.tree.map(lambda leaf: leaf[:rows], replay), np.arange(2 * ENVIRONMENTS) % 2 == 0


def test_every_actor_has_a_lane_with_its_own_observation_action_and_reward(trained):
    _, state, _ = trained
    for index in range(2):
        replay, rightwards = stored(state, index)
        for observation in (replay.observation, replay.next_observation):
            np.testing.assert_array_equal(observation[..., CELLS], np.broadcast_to(rightwards, replay.reward.shape))
        cell, reached = (seen[..., :CELLS].argmax(axis=-1) for seen in (replay.observation, replay.next_observation))
        goal = np.where(rightwards, CELLS - 1, 0)
        moved = np.where(cell == goal, cell, np.clip(cell + 2 * replay.action - 1, 0, CELLS - 1))
        np.testing.assert_array_equal(reached, moved)
        np.testing.assert_array_equal(replay.reward, (reached == goal) & (cell != goal))
        pairs = replay.reward[:, ::2], replay.reward[:, 1::2]
        assert all(one.sum() > 20 for one in pairs) and not np.array_equal(*pairs)


def test_actors_of_an_environment_end_together_and_begin_anew(trained):
    _, state, _ = trained
    replay, _ = stored(state, 0)
    ended = replay.terminated | replay.truncated
    np.testing.assert_array_equal(ended[:, ::2], ended[:, 1::2])
    assert replay.terminated.any() and replay.truncated.any()
    follows = replay.observation[1:]
    np.testing.assert_array_equal(follows[~ended[:-1]], replay.next_observation[:-1][~ended[:-1]])
    assert (follows[ended[:-1]][:, [0, CELLS - 1]] == 0).all(), "a new episode begins away from both ends"


def test_a_return_is_summed_over_actors(trained):
    _, state, metrics = trained
    for index in range(2):
        replay, _ = stored(state, index)
        reward = replay.reward[:, ::2] + replay.reward[:, 1::2]
        ended = (replay.terminated | replay.truncated)[:, ::2]
        running, total = np.zeros(ENVIRONMENTS), 0.0
        for now, ends in zip(reward, ended, strict=True):
            running = running + now
            total += running[ends].sum()
            running[ends] = 0
        np.testing.assert_allclose(metrics["episode_return"][index].sum(), total)
        assert metrics["episodes"][index].sum() == ended.sum()
        np.testing.assert_array_equal(member(state.episode_return, index), running)
        assert total > ended.sum(), "more than one actor's rewards"


def test_both_actors_learn_their_way_and_are_evaluated_together(trained):
    loop, state, _ = trained
    evaluation = jax.tree.map(np.asarray, loop.evaluate(state, 0))
    np.testing.assert_array_equal(evaluation.returns, 2.0)
    assert (evaluation.lengths <= 3).all() and len(np.unique(evaluation.lengths)) > 1
    # One of them ends the episode, the other came home as early or earlier.
    last = 0.9 ** (evaluation.lengths - 1)
    assert (evaluation.discounted >= 2 * last - 1e-6).all() and (evaluation.discounted <= 1 + last + 1e-6).all()
    np.testing.assert_allclose(evaluation.predicted, evaluation.discounted, atol=0.15)
    ways = np.arange(1, CELLS - 1)
    cells = jnp.eye(CELLS)[ways]
    for index in range(2):
        networks = member(state.learner.online.parameters, index)
        for goes_right, steps in ((1.0, CELLS - 2 - ways), (0.0, ways - 1)):
            seen = jnp.concatenate([cells, jnp.full((len(ways), 1), goes_right)], axis=1)
            values = np.asarray(settled_values(networks, seen, None))
            assert (values.argmax(axis=1) == goes_right).all()
            np.testing.assert_allclose(values.max(axis=1), 0.9**steps, atol=0.1)
