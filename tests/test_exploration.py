"""Epsilon-greedy: exact at both ends, the right rate in between, and never an illegal action."""

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.exploration import EpsilonGreedy, draw_noise

ENVIRONMENTS, ACTIONS = 2000, 4
VALUES = jnp.tile(jnp.array([0.0, 3.0, 3.0, -1.0]), (ENVIRONMENTS, 1))
NOISE = draw_noise(keys.member_key(0), ENVIRONMENTS, ACTIONS)


def act(epsilon: float, mask=None) -> np.ndarray:
    actions, _ = EpsilonGreedy().act(VALUES, (), NOISE, jnp.float32(epsilon), mask)
    return np.asarray(actions)


def test_without_exploration_the_first_of_the_best_is_taken():
    np.testing.assert_array_equal(act(0.0), 1)


def test_exploration_is_uniform_and_a_coin_per_environment():
    counts = np.bincount(act(1.0), minlength=ACTIONS)
    assert np.abs(counts - ENVIRONMENTS / ACTIONS).max() < 5 * np.sqrt(ENVIRONMENTS / ACTIONS)
    share = np.mean(act(0.3) != 1)
    assert abs(share - 0.3 * 3 / 4) < 0.05


def test_illegal_actions_are_never_taken():
    mask = jnp.tile(jnp.array([True, False, True, False]), (ENVIRONMENTS, 1))
    assert set(np.unique(act(0.0, mask))) == {2}
    drawn = np.bincount(act(1.0, mask), minlength=ACTIONS)
    assert drawn[[1, 3]].sum() == 0 and abs(drawn[0] - drawn[2]) < 200


def test_noise_is_a_function_of_its_key_alone():
    same = draw_noise(keys.member_key(0), ENVIRONMENTS, ACTIONS)
    other = draw_noise(keys.member_key(1), ENVIRONMENTS, ACTIONS)
    assert jax.tree.all(jax.tree.map(np.array_equal, NOISE, same))
    assert not np.array_equal(NOISE.coin, other.coin)
