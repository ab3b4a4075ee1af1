"""Adam is Adam, and a diverged member stays where it was."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sadq.optimiser import descend, trainable

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
        ours, diverged_at = descend(
            ours, gradient(index), jnp.float32(1), 0.01, jnp.int32(-1), jnp.int32(index), max_norm
        )
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
