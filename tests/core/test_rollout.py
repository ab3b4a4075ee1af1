"""Rollout scores: one model step per action, then the best legal target value, whatever the chunking."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core import Prediction, bellman_estimate, rollout_scores

VALUES = jnp.array([[1.0, 5.0], [4.0, 2.0], [-3.0, -1.0]])
"""Target values of three tabular states, two actions each: the best ones are 5, 4 and -1."""

REWARDS = jnp.array([0.0, 2.0])
SUCCESSORS = jnp.array([0, 2])


def table_step(context: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
    return Prediction(context + REWARDS[action], SUCCESSORS[action])


def noisy_step(context: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
    noise = jax.random.normal(key, context.shape)
    return Prediction(jnp.sum(context) * action, context + noise)


def linear_values(observation: jax.Array) -> jax.Array:
    return jnp.array([1.0, -1.0, 0.5]) * jnp.sum(observation)


def noisy_scores(key: jax.Array, **options) -> np.ndarray:
    context = jnp.array([0.3, -0.2])
    return np.asarray(rollout_scores(noisy_step, linear_values, context, 5, key, discount=0.9, **options))


def test_scores_by_hand():
    scores = rollout_scores(table_step, VALUES.__getitem__, jnp.float32(1), 2, jax.random.key(0), discount=0.5)
    np.testing.assert_array_equal(scores, [1 + 0.5 * 5, 3 - 0.5 * 1])


def test_a_predicted_end_cuts_the_value_beyond():
    def step(context: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        return table_step(context, action, key)._replace(continuation=jnp.array([0.25, 0.0])[action])

    scores = rollout_scores(step, VALUES.__getitem__, jnp.float32(1), 2, jax.random.key(0), discount=0.5)
    np.testing.assert_array_equal(scores, [1 + 0.5 * 0.25 * 5, 3.0])


def test_legality_is_asked_at_the_predicted_state():
    legal = jnp.array([[True, False], [True, True], [True, False]])
    values = jnp.where(legal, VALUES, jnp.nan)  # what is illegal must not even be looked at
    options = {"discount": 0.5, "legal": legal.__getitem__}
    scores = rollout_scores(table_step, values.__getitem__, jnp.float32(1), 2, jax.random.key(0), **options)
    np.testing.assert_array_equal(scores, [1 + 0.5 * 1, 3 - 0.5 * 3])


def test_the_bellman_estimate_is_the_score_of_the_action_taken():
    prediction = Prediction(jnp.float32(2), jnp.int32(1), jnp.float32(0.5))
    assert bellman_estimate(prediction, VALUES.__getitem__, 0.5) == 2 + 0.5 * 0.5 * 4
    assert bellman_estimate(prediction, VALUES.__getitem__, 0.0) == 2


def test_a_score_is_the_mean_over_its_samples():
    key, context = jax.random.key(1), jnp.array([0.3, -0.2])
    expected = np.zeros(5)
    for action in range(5):
        for sample in range(3):
            own_key = jax.random.fold_in(jax.random.fold_in(key, action), sample)
            prediction = noisy_step(context, jnp.int32(action), own_key)
            expected[action] += bellman_estimate(prediction, linear_values, 0.9) / 3
    np.testing.assert_allclose(noisy_scores(key, samples=3), expected, rtol=1e-5)


def test_each_action_and_each_sample_has_noise_of_its_own():
    key = jax.random.key(1)
    one, two = noisy_scores(key), noisy_scores(key, samples=2)
    assert len(np.unique(one)) == 5
    second = 2 * two - one  # the first sample does not depend on how many follow
    assert not np.any(np.isclose(one, second))
    assert np.all(noisy_scores(jax.random.key(2)) != one)


@pytest.mark.parametrize("samples", [1, 3])
def test_chunks_change_neither_scores_nor_randomness(samples: int):
    """Five actions in chunks of two leave a remainder; a chunk above the action count is none."""
    key = jax.random.key(3)
    whole = noisy_scores(key, samples=samples)
    for chunk in (1, 2, 5, 100):
        np.testing.assert_allclose(noisy_scores(key, samples=samples, chunk=chunk), whole, rtol=1e-5, atol=1e-5)


def test_scores_batch_and_trace():
    """Under jit and vmap, with a traced discount and a context that is a tree, as the learner calls it."""

    def step(context: dict[str, jax.Array], action: jax.Array, key: jax.Array) -> Prediction:
        return table_step(context["bonus"], action, key)

    @jax.jit
    def batch(bonus: jax.Array, keys: jax.Array, discount: jax.Array) -> jax.Array:
        def scores(bonus: jax.Array, key: jax.Array) -> jax.Array:
            return rollout_scores(step, VALUES.__getitem__, {"bonus": bonus}, 2, key, discount=discount, chunk=1)

        return jax.vmap(scores)(bonus, keys)

    scores = batch(jnp.array([0.0, 1.0]), jax.random.split(jax.random.key(0)), jnp.float32(0.5))
    np.testing.assert_array_equal(scores, [[2.5, 1.5], [3.5, 2.5]])
