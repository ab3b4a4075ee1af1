"""Bootstrap rules: which next actions are chosen, with which weights, and what the mixed target keeps of its base."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sadq.core import CategoricalReturn, Choice, Double, Greedy, QuantileReturn, ScalarReturn, double, greedy, guided
from sadq.core.bootstrap import BOOTSTRAPS, best_action, best_value, legal_values
from sadq.core.returns import Mixing

ACTIONS, ATOMS = 4, 5
values_strategy = st.lists(st.floats(-100, 100, width=32), min_size=ACTIONS, max_size=ACTIONS)


def random_values(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def mixed_choice(base, alpha, online, target, scores, mask=None) -> Choice:
    return guided(base(online, target, mask), scores, alpha, mask)


def test_best_action_is_the_first_of_equals():
    assert best_action(jnp.array([1.0, 3.0, 3.0, 3.0])) == 1
    assert best_action(jnp.zeros(4)) == 0
    assert best_action(jnp.array([3.0, 1.0, 1.0, 0.0]), jnp.array([False, True, True, True])) == 1
    assert best_action(jnp.zeros(4)).dtype == jnp.int32


def test_illegal_values_are_replaced_and_a_mask_without_any_legal_one_is_none():
    values, mask = jnp.array([3.0, 1.0, 2.0]), jnp.array([False, True, True])
    np.testing.assert_array_equal(legal_values(values, None), values)
    np.testing.assert_array_equal(legal_values(values, mask), [-np.inf, 1, 2])
    np.testing.assert_array_equal(legal_values(values, mask, 7.0), [7, 1, 2])
    assert best_value(values) == 3 and best_value(values, mask) == 2
    nothing = jnp.zeros(3, bool)
    np.testing.assert_array_equal(legal_values(values, nothing), values)
    assert best_action(values, nothing) == 0 and best_value(values, nothing) == 3


def test_greedy_asks_the_target_network_and_double_the_online_one():
    online, target = jnp.array([0.0, 5.0, 1.0]), jnp.array([2.0, 0.0, 1.0])
    assert greedy(online, target).actions.tolist() == [0]
    assert double(online, target).actions.tolist() == [1]
    assert ScalarReturn(target).under(double(online, target)).mean == 0.0
    mask = jnp.array([False, False, True])
    for rule in (greedy, double):
        assert rule(online, target, mask).actions.tolist() == [2]
        assert rule(online, target, mask).weights.tolist() == [1.0]
        assert rule(online, target).weights.tolist() == [1.0]


def test_the_axis_knows_both_by_name():
    assert {name: BOOTSTRAPS.choice(name) for name in ("greedy", "double")} == {"greedy": Greedy(), "double": Double()}


def test_guided_by_hand():
    target, scores = jnp.array([2.0, 8.0, 4.0]), jnp.array([1.0, 0.0, 3.0])
    choice = guided(greedy(target, target), scores, 0.25)
    assert choice.actions.tolist() == [1, 2]
    assert choice.weights.tolist() == [0.25, 0.75]
    assert ScalarReturn(target).under(choice).mean == 0.25 * 8 + 0.75 * 4


def test_guided_keeps_the_shares_of_a_base_that_names_several_actions():
    base = Choice(jnp.array([2, 0]), jnp.array([0.75, 0.25]))
    choice = guided(base, jnp.array([0.0, 1.0, 0.0]), 0.5)
    assert choice.actions.tolist() == [2, 0, 1]
    assert choice.weights.tolist() == [0.375, 0.125, 0.5]


def test_guided_breaks_score_ties_by_the_first_index():
    choice = guided(greedy(jnp.zeros(3), jnp.array([0.0, 0.0, 1.0])), jnp.array([0.0, 7.0, 7.0]), 0.5)
    assert choice.actions.tolist() == [2, 1]


@pytest.mark.parametrize("alpha", [jnp.ones(1), jnp.ones((2, 2))])
def test_alpha_is_one_number(alpha):
    with pytest.raises(ValueError, match="expected one number"):
        guided(greedy(jnp.zeros(3), jnp.zeros(3)), jnp.zeros(3), alpha)


def test_scores_rank_and_never_enter_the_target():
    target, scores = random_values(0, ACTIONS), random_values(1, ACTIONS)
    base = greedy(target, target)
    mixed = ScalarReturn(target).under(guided(base, scores, 0.3)).mean
    assert mixed == ScalarReturn(target).under(guided(base, 1e6 + 1e3 * scores, 0.3)).mean


def test_alpha_may_differ_by_sample():
    alphas, target, scores = jnp.array([0.0, 0.5, 1.0]), random_values(0, 3, ACTIONS), random_values(1, 3, ACTIONS)

    def value(alpha: jax.Array, values: jax.Array, score: jax.Array) -> jax.Array:
        return ScalarReturn(values).under(guided(greedy(values, values), score, alpha)).mean

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
    choice = mixed_choice(base, 0.2, online, target, scores, mask)
    clean = mixed_choice(base, 0.2, clean_online, clean_target, clean_scores, mask)
    assert choice.actions.tolist() == clean.actions.tolist()
    assert all(mask[action] for action in choice.actions)
    assert ScalarReturn(target).under(choice).mean == ScalarReturn(clean_target).under(clean).mean

    levels = (jnp.arange(ATOMS) + 0.5) / ATOMS
    distribution = jnp.where(mask[:, None], random_values(3, ACTIONS, ATOMS), poison)
    for mixing in get_args(Mixing):
        quantiles = QuantileReturn(distribution, levels, jnp.full(ATOMS, 1 / ATOMS), mixing=mixing)
        assert jnp.isfinite(quantiles.under(choice).mean)
    assert jnp.isfinite(CategoricalReturn(distribution, levels).under(choice).mean)


def test_scores_of_a_diverged_model_still_name_a_legal_action():
    mask, target = jnp.array([False, True, True]), jnp.array([9.0, 1.0, 2.0])
    choice = mixed_choice(greedy, 0.2, target, target, jnp.full(3, jnp.nan), mask)
    assert choice.actions.tolist() == [2, 1]
    assert jnp.isfinite(ScalarReturn(target).under(choice).mean)


# alpha = 1 is the base agent, bit for bit; the rest of the range is pessimistic for a greedy base only.


def returns_from(kind: str, values: jax.Array):
    if kind == "scalar":
        return ScalarReturn(values[..., 0], huber_at=1.0)
    if kind == "categorical":
        return CategoricalReturn(values, jnp.linspace(-2.0, 2.0, ATOMS))
    return QuantileReturn(values, (jnp.arange(ATOMS) + 0.5) / ATOMS, jnp.full(ATOMS, 1 / ATOMS), mixing=kind)


@pytest.mark.parametrize("kind", ["scalar", "categorical", *get_args(Mixing)])
@pytest.mark.parametrize("base", [greedy, double])
def test_alpha_one_is_bit_equal_to_the_base(kind: str, base):
    def loss(online: jax.Array, target: jax.Array, scores: jax.Array, alpha: jax.Array | None) -> jax.Array:
        own, bootstrap = returns_from(kind, online), returns_from(kind, target)
        choice = base(own.mean, bootstrap.mean)
        if alpha is not None:
            choice = guided(choice, scores, alpha)
        return own.taken(0).loss_to(bootstrap.under(choice).backup(0.5, 0.9))

    def batch(alpha: jax.Array | None) -> np.ndarray:
        online, target = random_values(0, 64, ACTIONS, ATOMS), random_values(1, 64, ACTIONS, ATOMS)
        batched = jax.vmap(jax.value_and_grad(loss), in_axes=(0, 0, 0, None))
        return jax.tree.map(np.asarray, jax.jit(batched)(online, target, random_values(2, 64, ACTIONS), alpha))

    for mixed, plain in zip(batch(jnp.float32(1)), batch(None), strict=True):
        np.testing.assert_array_equal(mixed, plain)
    assert np.any(batch(jnp.float32(0.2))[0] != batch(None)[0])


def test_the_heaviest_action_is_the_first_of_those_with_the_largest_weight():
    choice = Choice(jnp.array([[3, 1, 2], [0, 4, 2]]), jnp.array([[0.2, 0.4, 0.4], [0.5, 0.3, 0.2]]))
    assert choice.heaviest.tolist() == jax.vmap(lambda one: one.heaviest)(choice).tolist() == [1, 0]


@jax.jit
def greedy_and_mixed(target: jax.Array, scores: jax.Array, mask: jax.Array, alpha: jax.Array) -> jax.Array:
    returns = ScalarReturn(target)
    mixed = returns.under(mixed_choice(greedy, alpha, target, target, scores, mask))
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
    base = ScalarReturn(target).under(double(online, target)).mean
    mixed = ScalarReturn(target).under(mixed_choice(double, 0.2, online, target, scores)).mean
    assert base == 0.0
    np.testing.assert_allclose(mixed, 8.0, rtol=1e-6)
