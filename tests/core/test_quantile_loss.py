"""The quantile Huber loss and its gradient against a float64 oracle, the differentiated definition and rlax's numbers."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sadq.core.quantile_loss import pairwise, quantile_huber, target_by_target
from sadq.errors import SadqError

KAPPAS = [0.0, 0.3, 1.0, 3.0]
Sample = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def definition(values: jax.Array, levels: jax.Array, targets: jax.Array, weights: jax.Array, kappa: float) -> jax.Array:
    """The sum over pairs as it is written, for JAX to differentiate."""
    error = targets - values[:, None]
    size = jnp.abs(error)
    if kappa > 0:
        size = jnp.where(size <= kappa, 0.5 * jnp.square(error), kappa * (size - 0.5 * kappa)) / kappa
    return jnp.sum(jnp.abs(levels[:, None] - (error < 0)) * size * weights)


def oracle(sample: Sample, kappa: float) -> tuple[np.ndarray, np.ndarray]:
    """Loss and gradient in float64, case by case rather than by clipping."""
    values, levels, targets, weights = (array.astype(np.float64) for array in sample)
    error = targets - values[:, None]
    size, sign = np.abs(error), np.where(error < 0, -1, 1)
    quadratic = size <= kappa if kappa > 0 else np.zeros_like(size, bool)
    scale = kappa if kappa > 0 else 1.0
    huber = np.where(quadratic, error**2 / (2 * scale), size - kappa / 2)
    slope = np.where(quadratic, error / scale, sign)
    side = np.where(error < 0, 1 - levels[:, None], levels[:, None])
    return np.sum(weights * side * huber), -np.sum(weights * side * slope, axis=1)


def of_form(form: Callable[..., tuple[jax.Array, jax.Array]], *sample_and_kappa) -> tuple[jax.Array, jax.Array]:
    loss, pull = form(*sample_and_kappa)
    scale = sample_and_kappa[-1] or 1.0
    return jnp.sum(loss) / scale, -pull / scale


FORMS = {
    "chosen": jax.jit(jax.value_and_grad(quantile_huber), static_argnums=4),
    "target_by_target": jax.jit(functools.partial(of_form, target_by_target), static_argnums=4),
    "pairwise": jax.jit(functools.partial(of_form, pairwise), static_argnums=4),
}
differentiated = jax.jit(jax.value_and_grad(definition), static_argnums=4)


def sample_of(seed: int, count: int, atoms: int, scale: float = 1.0, offset: float = 0.0) -> Sample:
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(atoms))
    drawn = (
        offset + scale * random.normal(size=count),
        np.sort(random.uniform(size=count)),
        offset + scale * random.normal(size=atoms),
        weights,
    )
    return tuple(array.astype(np.float32) for array in drawn)  # type: ignore[return-value]


def check(sample: Sample, kappa: float, name: str) -> None:
    loss, gradient = FORMS[name](*sample, kappa)
    expected_loss, expected_gradient = oracle(sample, kappa)
    # All terms of the loss have one sign, those of the gradient do not: its digits are relative to the weights' sum.
    total = float(np.sum(sample[3]))
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5 * total)
    naive_loss, naive_gradient = differentiated(*sample, kappa)
    np.testing.assert_allclose(loss, naive_loss, rtol=2e-5, atol=1e-30)
    np.testing.assert_allclose(gradient, naive_gradient, rtol=1e-5, atol=1e-5 * total)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize(("count", "atoms"), [(200, 200), (32, 32), (7, 13), (5, 16), (3, 1), (1, 9), (1, 1)])
def test_equals_the_definition(name: str, kappa: float, count: int, atoms: int):
    check(sample_of(0, count, atoms), kappa, name)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize(("scale", "offset"), [(1e-3, 0), (1e4, 0), (1.0, 1e4), (0.1, -1e6), (1e-3, 1e3)])
def test_keeps_its_digits_at_any_scale_and_offset(name: str, kappa: float, scale: float, offset: float):
    check(sample_of(1, 32, 32, scale, offset), kappa, name)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kappa", KAPPAS)
def test_far_outliers_leave_the_near_targets_their_digits(name: str, kappa: float):
    values, levels, targets, weights = sample_of(2, 32, 32, scale=1e-3)
    targets[[3, 8, 20]] = [1e6, -1e6, 1e9]
    check((values, levels, targets, weights), kappa, name)
    outweighed = weights.copy()
    outweighed[[3, 8, 20]] = 0
    check((values, levels, targets, outweighed), kappa, name)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0, 2.0])
def test_ties_and_edges_follow_the_definition_exactly(name: str, kappa: float):
    """Sums of small binary fractions have no rounding, so that any difference would be one of sides."""
    grid = np.arange(-8, 8, dtype=np.float32) / 2
    sample = (grid, (np.arange(16, dtype=np.float32) + 0.5) / 16, np.repeat(grid[4:12], 2), np.full(16, 1 / 16, "f4"))
    loss, gradient = FORMS[name](*sample, kappa)
    expected_loss, expected_gradient = differentiated(*sample, kappa)
    np.testing.assert_array_equal(loss, expected_loss)
    np.testing.assert_array_equal(gradient, expected_gradient)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kappa", KAPPAS)
def test_degenerate_targets(name: str, kappa: float):
    values, levels, targets, weights = sample_of(3, 32, 32)
    check((values, levels, np.full_like(targets, 0.25), weights), kappa, name)
    check((values, levels, np.full_like(targets, values[5]), weights), kappa, name)
    one = np.zeros_like(weights)
    one[7] = 1
    check((values, levels, targets, one), kappa, name)
    loss, gradient = FORMS[name](values, levels, targets, 0 * weights, kappa)
    assert loss == 0
    np.testing.assert_array_equal(gradient, np.zeros(32))


def test_by_hand():
    # Quantiles 0.25 at 0 and 0.75 at 2; atoms 1 and 2, each half: one-sided errors (1, 2) and (-1, 0).
    sample = tuple(map(jnp.array, ([0.0, 2.0], [0.25, 0.75], [1.0, 2.0], [0.5, 0.5])))
    loss, gradient = FORMS["chosen"](*sample, 1.0)
    np.testing.assert_allclose(loss, 0.25 * (0.5 + 1.5) / 2 + 0.25 * 0.5 / 2, rtol=1e-6)
    np.testing.assert_allclose(gradient, [-0.25, 0.125], rtol=1e-6)
    assert quantile_huber(*sample) == loss, "kappa is 1 unless another is asked for"


RLAX = json.loads((Path(__file__).parents[1] / "data" / "rlax.json").read_text())["quantile_regression_loss"]


@pytest.mark.parametrize("case", RLAX, ids=range(len(RLAX)))
def test_equals_rlax(case: dict[str, Any]):
    *arrays, kappa = case["arguments"]
    values, levels, targets = (np.asarray(one, "f4") for one in arrays)
    loss, gradient = FORMS["chosen"](values, levels, targets, np.full(len(targets), 1 / len(targets), "f4"), kappa)
    # rlax averages over targets and leaves the factor 1 / kappa of the original paper out.
    np.testing.assert_allclose(loss, case["result"] / (kappa or 1.0), rtol=1e-5)
    np.testing.assert_allclose(gradient, np.divide(case["gradient"], kappa or 1.0), atol=1e-6)


halves = st.integers(-6, 6).map(lambda number: number / 2)
numbers = st.one_of(halves, st.floats(-1000, 1000, width=16), st.sampled_from([1e6, -1e6, 1e-3]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(numbers, min_size=5, max_size=5),
    st.lists(numbers, min_size=16, max_size=16),
    st.lists(st.integers(0, 3), min_size=16, max_size=16),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from(sorted(FORMS)),
)
def test_equals_the_definition_on_anything(
    values: list[float], targets: list[float], weights: list[int], kappa: float, name: str
):
    levels = np.array([0.0, 0.1, 0.5, 0.9, 1.0], np.float32)
    arrays = (np.array(array, np.float32) for array in (values, targets, weights))
    own, atoms, masses = arrays
    check((own, levels, atoms, masses), kappa, name)
    assert FORMS[name](own, levels, atoms, masses, kappa)[0] >= 0


def test_only_values_carry_a_gradient():
    sample = sample_of(5, 7, 13)
    gradients = jax.grad(quantile_huber, argnums=(0, 1, 2, 3))(*map(jnp.asarray, sample), 1.0)
    assert np.any(gradients[0] != 0)
    for gradient, array in zip(gradients[1:], sample[1:], strict=True):
        np.testing.assert_array_equal(gradient, np.zeros_like(array))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_diverged_network_or_target_shows_in_the_loss(name: str, bad: float):
    for place in (0, 2):
        sample = sample_of(6, 7, 13)
        sample[place][2] = bad
        assert not np.isfinite(FORMS[name](*sample, 1.0)[0])


@pytest.mark.parametrize("kappa", [-1.0, float("nan")])
def test_kappa_below_zero_is_refused(kappa: float):
    with pytest.raises(SadqError, match="expected zero or more"):
        quantile_huber(*map(jnp.asarray, sample_of(7, 3, 4)), kappa)


# Transformations


MEMBERS, BATCH, COUNT = 2, 3, 24


def fleet() -> Sample:
    samples = [sample_of(seed, COUNT, COUNT) for seed in range(MEMBERS * BATCH)]
    return tuple(  # type: ignore[return-value]
        np.stack(arrays).reshape(MEMBERS, BATCH, COUNT) for arrays in zip(*samples, strict=True)
    )


def one_by_one() -> tuple[np.ndarray, np.ndarray]:
    flat = [array.reshape(-1, COUNT) for array in fleet()]
    results = [FORMS["chosen"](*(array[row] for array in flat), 1.0) for row in range(MEMBERS * BATCH)]
    losses, gradients = (np.stack(parts) for parts in zip(*results, strict=True))
    return losses.reshape(MEMBERS, BATCH), gradients.reshape(MEMBERS, BATCH, COUNT)


def loss_and_gradient(*sample: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(quantile_huber)(*sample, 1.0)


def through_a_sum(*samples: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One gradient of a batch's weighted sum, as a learner takes it; powers of two can be divided out without rounding."""
    importance = 2.0 ** jnp.arange(MEMBERS * BATCH).reshape(MEMBERS, BATCH)

    def total(values: jax.Array) -> tuple[jax.Array, jax.Array]:
        losses = jax.vmap(jax.vmap(lambda *sample: quantile_huber(*sample, 1.0)))(values, *samples[1:])
        return jnp.sum(importance * losses), losses

    (_, losses), gradient = jax.value_and_grad(total, has_aux=True)(samples[0])
    return losses, gradient / importance[..., None]


TRANSFORMED = {
    "nested vmap": jax.vmap(jax.vmap(loss_and_gradient)),
    "vmap in lax.map": lambda *samples: jax.lax.map(lambda member: jax.vmap(loss_and_gradient)(*member), samples),
    "vmap in scan": lambda *samples: jax.lax.scan(
        lambda carry, member: (carry + 1, jax.vmap(loss_and_gradient)(*member)), 0, samples
    )[1],
    "gradient of a weighted sum": through_a_sum,
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations_agree_with_one_sample_at_a_time(name: str):
    losses, gradients = jax.jit(TRANSFORMED[name])(*map(jnp.asarray, fleet()))
    expected_losses, expected_gradients = one_by_one()
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    np.testing.assert_array_equal(gradients, expected_gradients)


def test_each_platform_gets_its_own_form():
    traced = jax.jit(jax.vmap(jax.vmap(loss_and_gradient))).trace(*map(jnp.asarray, fleet()))
    on_cpu, on_gpu = (traced.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda"))
    assert "stablehlo.while" in on_cpu and f"x{COUNT}x{COUNT}xf32" not in on_cpu
    assert "stablehlo.while" not in on_gpu and f"x{COUNT}x{COUNT}xf32" in on_gpu


# Bits: programs that hold the same loss must agree, whatever else they hold.


def base_update(values, levels, weights, first, second, alpha, reward):
    """One gradient, towards the first return alone."""
    targets = reward[:, None] + 0.99 * first
    return jax.vmap(loss_and_gradient)(values, levels, targets, weights)


def guided_update(values, levels, weights, first, second, alpha, reward):
    """The same towards a mix of two returns, beside diagnostics that read the same arrays."""
    targets = reward[:, None] + 0.99 * (alpha * first + (1 - alpha) * second)
    losses, gradients = jax.vmap(loss_and_gradient)(values, levels, targets, weights)
    others = jnp.sort(targets), jnp.mean(values, axis=1), jnp.sum(jnp.square(gradients)), jnp.exp(losses)
    return losses, gradients, others


def mixture_update(values, levels, weights, first, second, alpha, reward):
    """The same towards a true mixture, whose second half weighs nothing."""
    targets = reward[:, None] + 0.99 * jnp.concatenate([first, second], axis=1)
    both = jnp.concatenate([alpha * weights, (1 - alpha) * weights], axis=1)
    return jax.vmap(loss_and_gradient)(values, levels, targets, both)


@pytest.mark.exact
@pytest.mark.parametrize("count", [200, 24, 13])
@pytest.mark.parametrize("update", [guided_update, mixture_update])
def test_a_mix_that_is_all_base_equals_the_base_bitwise(update: Callable, count: int):
    samples = [sample_of(seed, count, count) for seed in range(8)]
    values, levels, first, weights = (jnp.asarray(np.stack(arrays)) for arrays in zip(*samples, strict=True))
    arguments = values, levels, weights, first, first[::-1], jnp.float32(1), jnp.linspace(-1.0, 1.0, 8)
    losses, gradients, *_ = jax.jit(update)(*arguments)
    expected_losses, expected_gradients = jax.jit(base_update)(*arguments)
    np.testing.assert_array_equal(losses, expected_losses)
    np.testing.assert_array_equal(gradients, expected_gradients)


@pytest.mark.parametrize(("count", "together"), [(1, 1), (2, 1), (3, 1), (8, 4), (12, 4), (16, 8), (200, 8)])
def test_several_targets_are_taken_at_a_turn_which_divide_their_count_and_leave_a_loop(count: int, together: int):
    numbers = jnp.ones(count)
    traced = jax.make_jaxpr(functools.partial(target_by_target, kappa=1.0))(jnp.ones(3), jnp.ones(3), numbers, numbers)
    (loop,) = [equation for equation in traced.eqns if equation.primitive.name == "scan"]
    assert loop.params["unroll"] == together
