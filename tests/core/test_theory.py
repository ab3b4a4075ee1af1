"""Theorem 1 on tabular MDPs, computed with the library's own rule and scores: what holds, and what does not."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core import Prediction, ScalarReturn, greedy, guided, rollout_scores

STATES, ACTIONS = 4, 3
DISCOUNT, ALPHA = 0.9, 0.25


class Mdp(NamedTuple):
    """Expected rewards and transition probabilities."""

    rewards: np.ndarray  # f64[S,A]
    transitions: np.ndarray  # f64[S,A,S]


@pytest.fixture(autouse=True)
def float64():
    """In float32 a violated equality could hide behind rounding."""
    with jax.enable_x64(True):
        yield


def random_mdp(seed: int, deterministic: bool = False) -> Mdp:
    generator = np.random.default_rng(seed)
    rewards = generator.normal(size=(STATES, ACTIONS))
    if deterministic:
        return Mdp(rewards, np.eye(STATES)[generator.integers(STATES, size=(STATES, ACTIONS))])
    return Mdp(rewards, generator.dirichlet(np.full(STATES, 0.3), size=(STATES, ACTIONS)))


def random_q(seed: int) -> np.ndarray:
    return np.random.default_rng(1000 + seed).normal(scale=5, size=(STATES, ACTIONS))


def standard(mdp: Mdp, q: np.ndarray, discount: float = DISCOUNT) -> np.ndarray:
    """T_std Q, which is also T* Q; in NumPy, so that it shares no code with the mixed operator."""
    return mdp.rewards + discount * mdp.transitions @ q.max(axis=1)


def optimal(mdp: Mdp, discount: float = DISCOUNT) -> np.ndarray:
    q = np.zeros_like(mdp.rewards)
    for _ in range(400):
        q = standard(mdp, q, discount)
    return q


@jax.jit
def mixed(mdp: Mdp, q: jax.Array, scores: jax.Array, discount: float = DISCOUNT) -> jax.Array:
    """T_mix Q for given scores of every state's actions."""

    def value(values: jax.Array, score: jax.Array) -> jax.Array:
        return ScalarReturn(values).under(guided(greedy(values, values), score, ALPHA)).mean

    return ScalarReturn(mdp.transitions @ jax.vmap(value)(q, scores)).backup(mdp.rewards, discount).mean


@jax.jit
def expected_scores(mdp: Mdp, q: jax.Array, discount: float = DISCOUNT) -> jax.Array:
    """Scores of the true model in expectation: its prediction is the distribution of s'' itself."""

    def step(state: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        return Prediction(mdp.rewards[state, action], mdp.transitions[state, action])

    def value_of(distribution: jax.Array) -> jax.Array:
        return jnp.dot(distribution, jnp.max(q, axis=1))[None]

    def scores(state: jax.Array) -> jax.Array:
        return rollout_scores(step, value_of, state, q.shape[1], jax.random.key(0), discount=discount)

    return jax.vmap(scores)(jnp.arange(q.shape[0]))


def sampled_scores(mdp: Mdp, q: jax.Array, key: jax.Array, discount: float = DISCOUNT, samples: int = 1) -> jax.Array:
    """Scores of the true model from sampled successors, as the agent computes them."""
    transitions, rewards = jnp.asarray(mdp.transitions), jnp.asarray(mdp.rewards)

    def step(state: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        successor = jax.random.categorical(key, jnp.log(transitions[state, action]))
        return Prediction(rewards[state, action], successor)

    def scores(state: jax.Array) -> jax.Array:
        own_key = jax.random.fold_in(key, state)
        options = {"discount": discount, "samples": samples}
        return rollout_scores(step, jnp.asarray(q).__getitem__, state, q.shape[1], own_key, **options)

    return jax.vmap(scores)(jnp.arange(q.shape[0]))


@jax.jit
def mixed_with_one_sample(mdp: Mdp, q: jax.Array, keys: jax.Array, discount: float = DISCOUNT) -> jax.Array:
    """T_mix Q with one sampled successor per action, for each of the keys."""
    return jax.vmap(lambda key: mixed(mdp, q, sampled_scores(mdp, q, key, discount), discount))(keys)


KEY_COUNT = 64


def keys() -> jax.Array:
    return jax.random.split(jax.random.key(0), KEY_COUNT)


@pytest.mark.parametrize("seed", range(10))
def test_first_part_the_mixed_target_is_never_above_the_standard_one(seed: int):
    """Theorem 1 (I): whatever Q and the scores are, a chosen action's value is at most the best one's."""
    mdp, q = random_mdp(seed), random_q(seed)
    for scores in (expected_scores(mdp, q), random_q(seed + 1), -q):
        assert np.all(mixed(mdp, q, scores) <= standard(mdp, q) + 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_second_part_a_perfect_model_keeps_the_optimal_target(seed: int):
    """Theorem 1 (II): at Q* the expected score of the true model is Q* itself, so both actions are the same one."""
    mdp = random_mdp(seed)
    q = optimal(mdp)
    np.testing.assert_allclose(expected_scores(mdp, q), q, atol=1e-10)
    np.testing.assert_allclose(mixed(mdp, q, expected_scores(mdp, q)), standard(mdp, q), atol=1e-10)


@pytest.mark.parametrize("error", [1.0, 0.1, 0.001])
def test_second_part_in_the_limit_of_a_small_model_error(error: float):
    """Scores wrong by at most e mislead by at most 2e: the distance is within 2 gamma (1 - alpha) e, and vanishes."""
    for seed in range(10):
        mdp = random_mdp(seed)
        q = optimal(mdp)
        noise = np.random.default_rng(seed).uniform(-error, error, size=q.shape)
        distance = np.abs(mixed(mdp, q, expected_scores(mdp, q) + noise) - standard(mdp, q)).max()
        assert distance <= 2 * DISCOUNT * (1 - ALPHA) * error + 1e-10


@pytest.mark.parametrize("seed", range(5))
def test_iterating_the_mixed_operator_leads_to_the_optimal_values(seed: int):
    """With a perfect model Q* is the only fixed point: there max_a Q - Q(a_hat) is at most gamma times itself.

    That repeated application gets there is what is seen here, not a theorem: the operator is no contraction.
    """
    mdp, q = random_mdp(seed), random_q(seed)
    for _ in range(400):
        q = mixed(mdp, q, expected_scores(mdp, q))
    np.testing.assert_allclose(q, optimal(mdp), atol=1e-8)


def test_counterexample_a_perfect_model_but_inconsistent_values():
    """The proof's stronger line, T_mix Q -> T_std Q for any Q, is false: the score and Q may rank actions differently.

    One state that loops, rewards 1 and 0, gamma 1/2, Q = (0, 1): the scores are 3/2 and 1/2, so a_hat has value 0.
    """
    mdp, q = Mdp(np.array([[1.0, 0.0]]), np.ones((1, 2, 1))), np.array([[0.0, 1.0]])
    scores = expected_scores(mdp, q, 0.5)
    np.testing.assert_allclose(scores, [[1.5, 0.5]])
    np.testing.assert_allclose(standard(mdp, q, 0.5), [[1.5, 0.5]])
    np.testing.assert_allclose(mixed(mdp, q, scores, 0.5), [[1 + 0.5 * ALPHA, 0.5 * ALPHA]])


def test_counterexample_b_one_sampled_successor_misleads_even_at_the_optimum():
    """(II) needs the expected score: one lucky draw makes the worse action look better, so T_mix Q* < T* Q*.

    From state 0 the safe action pays 1 and ends; the risky one pays 4 a step later, but only with probability 1/4:
    Q*(0) = (1, 1/2), while its sampled score is 2 or 0. State 3 leads to state 0; state 1 is the end.
    """
    end, lucky, start = np.eye(4)[1], np.eye(4)[2], np.eye(4)[0]
    mdp = Mdp(
        np.array([[1.0, 0.0], [0.0, 0.0], [4.0, 4.0], [0.0, 0.0]]),
        np.array([[end, 0.25 * lucky + 0.75 * end], [end, end], [end, end], [start, start]]),
    )
    q = optimal(mdp, 0.5)
    np.testing.assert_allclose(q[0], [1.0, 0.5])
    targets = np.asarray(mixed_with_one_sample(mdp, q, keys(), 0.5))[:, 3, 0]
    misled = targets < 0.4
    np.testing.assert_allclose(targets[~misled], 0.5)
    np.testing.assert_allclose(targets[misled], 0.5 * (1 - (1 - ALPHA) * 0.5))
    assert 0.1 < misled.mean() < 0.4  # one draw in four
    np.testing.assert_allclose(mixed(mdp, q, expected_scores(mdp, q, 0.5), 0.5), q, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_one_sampled_successor_is_enough_for_deterministic_dynamics(seed: int):
    """There the one sample is the expectation, so (II) holds for every draw; for stochastic dynamics it does not."""
    mdp = random_mdp(seed, deterministic=True)
    q = optimal(mdp)
    every_draw = mixed_with_one_sample(mdp, q, keys())
    np.testing.assert_allclose(every_draw, np.broadcast_to(standard(mdp, q), every_draw.shape), atol=1e-10)

    stochastic = random_mdp(seed)
    q = optimal(stochastic)
    bias = np.asarray(mixed_with_one_sample(stochastic, q, keys())).mean(axis=0) - standard(stochastic, q)
    assert np.all(bias <= 1e-10)
    assert bias.min() < -1e-6  # far beyond rounding; how large it is depends on the MDP


def test_many_samples_approach_the_expected_score():
    """The remedy for counterexample B: the mean over samples ranks as the expectation does, away from ties."""
    mdp = random_mdp(0)
    q = optimal(mdp)
    averaged = sampled_scores(mdp, q, jax.random.key(1), samples=4096)
    np.testing.assert_allclose(averaged, expected_scores(mdp, q), atol=0.15)
    np.testing.assert_allclose(mixed(mdp, q, averaged), standard(mdp, q), atol=1e-10)
