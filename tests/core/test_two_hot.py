"""Two-hot codes on five bins worked out by hand, -3, -1, 0, 1, 3, and on the 255 that the reward head has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core.two_hot import BINS, cross_entropy, decode, encode, expectation, symexp, symexp_bins, symlog

FEW = symexp_bins(5, 2 * np.log(2))


def test_symlog_and_symexp_by_hand():
    values = jnp.array([-3.0, -1.0, 0.0, 0.5, 3.0])
    logs = [-np.log(4), -np.log(2), 0.0, np.log(1.5), np.log(4)]
    np.testing.assert_allclose(symlog(values), logs, rtol=1e-6)
    np.testing.assert_allclose(symexp(jnp.array(logs)), values, rtol=1e-6)
    np.testing.assert_allclose(symexp(symlog(jnp.float32(1e-6))), 1e-6, rtol=1e-5)


def test_the_bins():
    np.testing.assert_allclose(FEW, [-3, -1, 0, 1, 3], rtol=1e-6)
    assert BINS.shape == (255,) and BINS.dtype == np.float32 and BINS[127] == 0
    np.testing.assert_array_equal(BINS, -BINS[::-1])
    np.testing.assert_allclose(BINS[[0, 128, 254]], [-np.expm1(20), np.expm1(20 / 127), np.expm1(20)], rtol=1e-6)
    np.testing.assert_allclose(np.diff(symlog(BINS)), 40 / 254, rtol=1e-3)


@pytest.mark.parametrize(
    ("value", "weights"),
    [
        (2.0, [0, 0, 0, 0.5, 0.5]),
        (0.25, [0, 0, 0.75, 0.25, 0]),
        (-0.25, [0, 0.25, 0.75, 0, 0]),
        (-2.5, [0.75, 0.25, 0, 0, 0]),
        (0.0, [0, 0, 1, 0, 0]),
        (100.0, [0, 0, 0, 0, 1]),
        (-100.0, [1, 0, 0, 0, 0]),
    ],
)
def test_a_value_lies_between_its_two_bins(value, weights):
    np.testing.assert_allclose(encode(jnp.float32(value), FEW), weights, rtol=1e-5, atol=1e-6)


def test_the_expectation_by_hand():
    np.testing.assert_allclose(expectation(jnp.array([0.1, 0.2, 0.3, 0.15, 0.25]), FEW), 0.4, rtol=1e-5)
    # softmax(0, 0, 0, 0, ln 4) = (1, 1, 1, 1, 4) / 8
    np.testing.assert_allclose(decode(jnp.array([0.0, 0.0, 0.0, 0.0, np.log(4)]), FEW), 9 / 8, rtol=1e-5)


def test_a_bin_is_its_own_code_exactly():
    codes = jax.vmap(encode)(jnp.asarray(BINS))
    np.testing.assert_array_equal(codes, np.eye(255))
    np.testing.assert_array_equal(jax.vmap(expectation)(codes), BINS)
    np.testing.assert_array_equal(jax.vmap(decode)(jnp.log(codes)), BINS)


def test_any_value_is_decoded_from_its_code():
    sizes = np.exp(np.linspace(np.log(1e-4), np.log(4e8), 200)).astype(np.float32)
    values = jnp.concatenate([-sizes, sizes, jnp.array([-1.0, 1.0])])
    np.testing.assert_allclose(jax.vmap(lambda one: expectation(encode(one)))(values), values, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(jnp.sum(jax.vmap(encode)(values), axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.37, -50.0])
def test_equal_logits_are_exactly_zero(level):
    """As they are, compiled, and side by side: a zero-initialised head says zero however it is computed."""
    logits = jnp.full(255, level)
    assert decode(logits) == jax.jit(decode)(logits) == 0.0
    np.testing.assert_array_equal(jax.jit(jax.vmap(decode))(jnp.stack([logits, logits])), 0.0)


def test_symmetric_logits_cancel_though_their_bins_are_huge():
    half = jax.random.normal(keys.member_key(0), (127,))
    assert decode(jnp.concatenate([half, jnp.zeros(1), half[::-1]])) == 0.0


def test_the_loss_is_the_cross_entropy_to_the_code():
    np.testing.assert_allclose(cross_entropy(jnp.zeros(255), jnp.float32(1)), np.log(255), rtol=1e-6)
    logits = jnp.array([0.0, 0.0, 0.0, 0.0, np.log(4)])
    np.testing.assert_allclose(cross_entropy(logits, jnp.float32(2), FEW), 0.5 * np.log(8) + 0.5 * np.log(2), rtol=1e-5)
    slope = jax.grad(cross_entropy)(logits, jnp.float32(2), FEW)
    np.testing.assert_allclose(slope, [1 / 8, 1 / 8, 1 / 8, 1 / 8 - 0.5, 0.5 - 0.5], atol=1e-6)
