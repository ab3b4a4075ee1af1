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


def keys_of(key: jax.Array, action: int, samples: int) -> list[jax.Array]:
    """The action's own, then one folded from it for every further sample."""
    own = jax.random.fold_in(key, action)
    return [own, *(jax.random.fold_in(own, sample) for sample in range(1, samples))]


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_score_is_the_mean_over_its_samples(samples: int):
    key, context = jax.random.key(1), jnp.array([0.3, -0.2])
    expected = np.zeros(5)
    for action in range(5):
        for own_key in keys_of(key, action, samples):
            prediction = noisy_step(context, jnp.int32(action), own_key)
            expected[action] += bellman_estimate(prediction, linear_values, 0.9) / samples
    np.testing.assert_allclose(noisy_scores(key, samples=samples), expected, rtol=1e-5)


def drawn_scores(key: jax.Array, samples: int) -> np.ndarray:
    """Scores of a model that predicts a random number, and nothing after it."""

    def step(context: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        return Prediction(jax.random.normal(key), jnp.zeros(1), 0.0)

    return np.asarray(rollout_scores(step, lambda _: jnp.zeros(2), jnp.zeros(1), 5, key, discount=0.9, samples=samples))


def test_each_action_and_each_sample_has_noise_of_its_own():
    """Sums over one, two and three samples differ by what each further one has drawn: fifteen numbers, all apart."""
    key = jax.random.key(1)
    sums = [samples * drawn_scores(key, samples) for samples in (1, 2, 3)]
    drawn = np.stack([sums[0], sums[1] - sums[0], sums[2] - sums[1]], axis=1)  # [action, sample]
    expected = [[jax.random.normal(own) for own in keys_of(key, action, 3)] for action in range(5)]
    np.testing.assert_allclose(drawn, expected, rtol=1e-4, atol=1e-5)
    apart = np.abs(drawn.reshape(-1, 1) - drawn.reshape(1, -1))[~np.eye(15, dtype=bool)]
    assert apart.min() > 1e-3
    assert np.abs(drawn_scores(jax.random.key(2), 1) - sums[0]).min() > 1e-3, "another key, other numbers"


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_candidates_score_as_they_do_among_all(chunk: int | None):
    key, candidates = jax.random.key(3), jnp.array([3, 0, 4], jnp.int32)
    few = noisy_scores(key, candidates=candidates, chunk=chunk, samples=2)
    np.testing.assert_allclose(few, noisy_scores(key, samples=2)[np.asarray(candidates)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("chunk", "loops"), [(None, False), (100, False), (5, False), (4, True), (1, True)])
def test_only_chunks_below_the_action_count_are_a_loop(chunk: int | None, loops: bool):
    def scores(key: jax.Array) -> jax.Array:
        return rollout_scores(noisy_step, linear_values, jnp.zeros(2), 5, key, discount=0.9, chunk=chunk)

    assert ("scan[" in str(jax.make_jaxpr(scores)(jax.random.key(0)))) == loops


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
