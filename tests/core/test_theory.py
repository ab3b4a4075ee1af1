"""Theorem 1 on tabular MDPs, computed with the library's own rule and scores: what holds, and what does not."""

import jax
import numpy as np
import pytest

from sadq.studies.theory import (
    ALPHA,
    DISCOUNT,
    Mdp,
    draws,
    expected_scores,
    measure,
    mixed,
    mixed_with_one_sample,
    optimal,
    random_mdp,
    random_q,
    sampled_scores,
    standard,
)


@pytest.fixture(autouse=True)
def float64():
    """In float32 a violated equality could hide behind rounding."""
    with jax.enable_x64(True):
        yield


def keys() -> jax.Array:
    return draws(64)


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


def test_the_measured_claims_are_those_that_hold_and_those_that_do_not():
    found = {row["claim"]: row for row in measure(mdps=4)}
    assert [row["holds"] for row in found.values()] == [True, True, True, False, False]
    sampled = next(row for claim, row in found.items() if "stochastic" in claim)
    assert 0.001 < sampled["found"] < sampled["largest_value_range"]
