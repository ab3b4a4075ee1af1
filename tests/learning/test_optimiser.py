"""Adam is Adam, and a diverged member stays where it was."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sadq.learning.optimiser import Separate, clipped, descend, trainable

START = {"weight": jnp.linspace(-1, 1, 12).reshape(3, 4), "bias": jnp.arange(4.0)}


def gradient(index: int, size: float = 1.0):
    key = jax.random.fold_in(jax.random.key(0), index)
    return jax.tree.map(lambda leaf: size * jax.random.normal(key, leaf.shape), START)


@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_it_is_optax_s_adam(max_norm):
    chain = [optax.adam(0.01)] if max_norm is None else [optax.clip_by_global_norm(max_norm), optax.adam(0.01)]
    reference = optax.chain(*chain)
    expected, state, ours = START, reference.init(START), trainable(START)
    for index in range(50):
        change, state = reference.update(gradient(index), state)
        expected = optax.apply_updates(expected, change)
        slope = gradient(index) if max_norm is None else clipped(gradient(index), max_norm)
        ours, diverged_at = descend(ours, slope, jnp.float32(1), 0.01, jnp.int32(-1), jnp.int32(index))
    assert diverged_at == -1
    for got, wanted in zip(jax.tree.leaves(ours.parameters), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [jnp.nan, jnp.inf])
def test_a_loss_that_is_not_finite_freezes_everything_for_good(loss):
    before, _ = descend(trainable(START), gradient(0), jnp.float32(1), 0.01, jnp.int32(-1), jnp.int32(7))
    frozen, diverged_at = descend(before, gradient(1), jnp.float32(loss), 0.01, jnp.int32(-1), jnp.int32(8))
    later, still = descend(frozen, gradient(2), jnp.float32(1), 0.01, diverged_at, jnp.int32(9))
    assert diverged_at == still == 8
    for state in (frozen, later):
        assert jax.tree.all(jax.tree.map(np.array_equal, before, state))


@pytest.mark.parametrize("size", [1e25, jnp.inf, jnp.nan])
def test_gradients_beyond_measure_leave_every_number_finite(size):
    after, _ = descend(trainable(START), gradient(0, size), jnp.float32(1e38), 0.01, jnp.int32(-1), jnp.int32(7))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


SEPARATE = {"weight": False, "bias": True}


def test_the_second_group_learns_by_optax_s_rmsprop_and_the_first_by_adam():
    reference = {"weight": optax.adam(0.01), "bias": optax.rmsprop(0.003, decay=0.95, eps=1e-5, eps_in_sqrt=False)}
    expected, states = dict(START), {name: one.init(START[name]) for name, one in reference.items()}
    ours = trainable(START)
    for index in range(50):
        slope = gradient(index, 1e-4)  # small, so that the place of RMSprop's epsilon shows
        for name, one in reference.items():
            change, states[name] = one.update(slope[name], states[name])
            expected[name] = optax.apply_updates(expected[name], change)
        separate = Separate(SEPARATE, jnp.float32(0.003))
        ours, _ = descend(ours, slope, jnp.float32(1), 0.01, jnp.int32(-1), jnp.int32(index), separate)
    for name, wanted in expected.items():
        np.testing.assert_allclose(ours.parameters[name], wanted, rtol=1e-5, atol=1e-6)


def test_rmsprop_by_hand():
    before = trainable({"weight": jnp.zeros(1), "bias": jnp.ones(1)})
    slope = {"weight": jnp.zeros(1), "bias": jnp.array([2.0])}
    separate = Separate(SEPARATE, jnp.float32(0.1))
    after, _ = descend(before, slope, jnp.float32(1), 0.01, jnp.int32(-1), jnp.int32(0), separate)
    expected = 1 - 0.1 * 2 / (np.sqrt(0.05 * 4) + 1e-5)
    np.testing.assert_allclose(after.parameters["bias"], [expected], rtol=1e-6)
    np.testing.assert_allclose(after.moments.second["bias"], [0.2], rtol=1e-6)


def test_clipping_neither_counts_nor_changes_what_is_exempt():
    slope = {"weight": jnp.array([3.0, 4.0]), "bias": jnp.array([100.0])}
    short = clipped(slope, 1.0, SEPARATE)
    np.testing.assert_allclose(short["weight"], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(short["bias"], [100.0])
    untouched = clipped(slope, 5.5, SEPARATE)
    np.testing.assert_array_equal(untouched["weight"], [3.0, 4.0])
    np.testing.assert_allclose(clipped(slope, 1.0)["bias"], 100 / np.sqrt(10_025), rtol=1e-6)
    nothing = {"weight": jnp.zeros(2), "bias": jnp.zeros(1)}
    assert all(np.array_equal(leaf, 0 * leaf) for leaf in jax.tree.leaves(clipped(nothing, 1.0)))
