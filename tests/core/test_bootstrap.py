"""Bootstrap rules: which next actions are chosen, with which weights, and what the mixed target keeps of its base."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sadq.core import Categorical, Quantile, Scalar, double, greedy, successor_guided
from sadq.core.bootstrap import RULES, best_action
from sadq.core.returns import Mixing

ACTIONS, ATOMS = 4, 5
values_strategy = st.lists(st.floats(-100, 100, width=32), min_size=ACTIONS, max_size=ACTIONS)


def random_values(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def test_best_action_is_the_first_of_equals():
    assert best_action(jnp.array([1.0, 3.0, 3.0, 3.0])) == 1
    assert best_action(jnp.zeros(4)) == 0
    assert best_action(jnp.array([3.0, 1.0, 1.0, 0.0]), jnp.array([False, True, True, True])) == 1


def test_greedy_asks_the_target_network_and_double_the_online_one():
    online, target = jnp.array([0.0, 5.0, 1.0]), jnp.array([2.0, 0.0, 1.0])
    assert greedy(online, target).actions.tolist() == [0]
    assert double(online, target).actions.tolist() == [1]
    assert Scalar(target).under(double(online, target)).mean == 0.0
    mask = jnp.array([False, False, True])
    for rule in RULES.values():
        assert rule(online, target, mask).actions.tolist() == [2]
        assert rule(online, target, mask).weights.tolist() == [1.0]


def test_successor_guided_by_hand():
    target, scores = jnp.array([2.0, 8.0, 4.0]), jnp.array([1.0, 0.0, 3.0])
    choice = successor_guided(greedy, 0.25)(target, target, scores)
    assert choice.actions.tolist() == [1, 2]
    assert choice.weights.tolist() == [0.25, 0.75]
    assert Scalar(target).under(choice).mean == 0.25 * 8 + 0.75 * 4


def test_successor_guided_breaks_score_ties_by_the_first_index():
    choice = successor_guided(greedy, 0.5)(jnp.zeros(3), jnp.array([0.0, 0.0, 1.0]), jnp.array([0.0, 7.0, 7.0]))
    assert choice.actions.tolist() == [2, 1]


def test_scores_rank_and_never_enter_the_target():
    target, scores = random_values(0, ACTIONS), random_values(1, ACTIONS)
    rule = successor_guided(greedy, 0.3)
    mixed = Scalar(target).under(rule(target, target, scores)).mean
    assert mixed == Scalar(target).under(rule(target, target, 1e6 + 1e3 * scores)).mean


def test_alpha_may_differ_by_sample():
    alphas, target, scores = jnp.array([0.0, 0.5, 1.0]), random_values(0, 3, ACTIONS), random_values(1, 3, ACTIONS)

    def value(alpha: jax.Array, values: jax.Array, score: jax.Array) -> jax.Array:
        return Scalar(values).under(successor_guided(greedy, alpha)(values, values, score)).mean

    preferred = jnp.take_along_axis(target, jnp.argmax(scores, axis=1)[:, None], axis=1)[:, 0]
    expected = alphas * jnp.max(target, axis=1) + (1 - alphas) * preferred
    np.testing.assert_allclose(jax.jit(jax.vmap(value))(alphas, target, scores), expected, rtol=1e-6)


# Masks: an illegal value may be anything at all.


@pytest.mark.parametrize("poison", [-jnp.inf, jnp.inf, jnp.nan, 1e30])
@pytest.mark.parametrize("base", [greedy, double])
def test_illegal_values_poison_nothing(base, poison: float):
    mask = jnp.array([True, False, True, False])
    clean_target, clean_online, clean_scores = (random_values(seed, ACTIONS) for seed in range(3))
    target, online, scores = (jnp.where(mask, x, poison) for x in (clean_target, clean_online, clean_scores))
    rule = successor_guided(base, 0.2)
    choice, clean = rule(online, target, scores, mask), rule(clean_online, clean_target, clean_scores, mask)
    assert choice.actions.tolist() == clean.actions.tolist()
    assert all(mask[action] for action in choice.actions)
    assert Scalar(target).under(choice).mean == Scalar(clean_target).under(clean).mean

    levels = (jnp.arange(ATOMS) + 0.5) / ATOMS
    distribution = jnp.where(mask[:, None], random_values(3, ACTIONS, ATOMS), poison)
    for mixing in get_args(Mixing):
        quantiles = Quantile(distribution, levels, jnp.full(ATOMS, 1 / ATOMS), mixing=mixing)
        assert jnp.isfinite(quantiles.under(choice).mean)
    assert jnp.isfinite(Categorical(distribution, levels).under(choice).mean)


def test_scores_of_a_diverged_model_still_name_a_legal_action():
    mask, target = jnp.array([False, True, True]), jnp.array([9.0, 1.0, 2.0])
    choice = successor_guided(greedy, 0.2)(target, target, jnp.full(3, jnp.nan), mask)
    assert choice.actions.tolist() == [2, 1]
    assert jnp.isfinite(Scalar(target).under(choice).mean)


# alpha = 1 is the base agent, bit for bit; the rest of the range is pessimistic for a greedy base only.


def returns_from(kind: str, values: jax.Array):
    if kind == "scalar":
        return Scalar(values[..., 0], huber_at=1.0)
    if kind == "categorical":
        return Categorical(values, jnp.linspace(-2.0, 2.0, ATOMS))
    return Quantile(values, (jnp.arange(ATOMS) + 0.5) / ATOMS, jnp.full(ATOMS, 1 / ATOMS), mixing=kind)


@pytest.mark.parametrize("kind", ["scalar", "categorical", *get_args(Mixing)])
@pytest.mark.parametrize("base", [greedy, double])
def test_alpha_one_is_bit_equal_to_the_base(kind: str, base):
    def loss(online: jax.Array, target: jax.Array, scores: jax.Array, alpha: jax.Array | None) -> jax.Array:
        own, bootstrap = returns_from(kind, online), returns_from(kind, target)
        rule = base if alpha is None else successor_guided(base, alpha)
        arguments = (own.mean, bootstrap.mean) if alpha is None else (own.mean, bootstrap.mean, scores)
        return own.taken(0).loss_to(bootstrap.under(rule(*arguments)).backup(0.5, 0.9))

    def batch(alpha: jax.Array | None) -> np.ndarray:
        online, target = random_values(0, 64, ACTIONS, ATOMS), random_values(1, 64, ACTIONS, ATOMS)
        batched = jax.vmap(jax.value_and_grad(loss), in_axes=(0, 0, 0, None))
        return jax.tree.map(np.asarray, jax.jit(batched)(online, target, random_values(2, 64, ACTIONS), alpha))

    for mixed, plain in zip(batch(jnp.float32(1)), batch(None), strict=True):
        np.testing.assert_array_equal(mixed, plain)
    assert np.any(batch(jnp.float32(0.2))[0] != batch(None)[0])


@jax.jit
def greedy_and_mixed(target: jax.Array, scores: jax.Array, mask: jax.Array, alpha: jax.Array) -> jax.Array:
    returns = Scalar(target)
    mixed = returns.under(successor_guided(greedy, alpha)(target, target, scores, mask))
    return jnp.stack([returns.under(greedy(target, target, mask)).mean, mixed.mean])


legal_strategy = st.lists(st.booleans(), min_size=ACTIONS, max_size=ACTIONS).filter(any)


@settings(max_examples=60, deadline=None)
@given(values_strategy, values_strategy, legal_strategy, st.floats(0, 1, width=32))
def test_a_mixed_greedy_mean_is_never_above_the_greedy_one(target, scores, legal, alpha):
    best, mixed = np.asarray(greedy_and_mixed(*map(jnp.array, (target, scores, legal, alpha))))
    assert mixed <= best + 1e-5 * max(1.0, abs(best))


def test_a_mixed_double_mean_may_be_above_the_double_one():
    """Theorem 1 (I) is about max_a Q'; Double bootstraps from less, and the model may find the better action."""
    online, target, scores = jnp.array([1.0, 0.0]), jnp.array([0.0, 10.0]), jnp.array([0.0, 1.0])
    base = Scalar(target).under(double(online, target)).mean
    mixed = Scalar(target).under(successor_guided(double, 0.2)(online, target, scores)).mean
    assert base == 0.0
    np.testing.assert_allclose(mixed, 8.0, rtol=1e-6)
