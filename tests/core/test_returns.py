"""Scalar, categorical and quantile returns against hand-computed numbers, recorded ones of rlax, and naive loops."""

import json
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sadq.core import (
    CategoricalReturn,
    CategoricalTarget,
    Choice,
    QuantileReturn,
    QuantileTarget,
    ScalarReturn,
    project,
)
from sadq.core.returns import Mixing, huber

ACTIONS, ATOMS = 3, 5
SUPPORTS = [(-100, 0), (0, 1), (0, 35), (-30, 30), (-10, 10)]
"""The C51 supports of the presets, the narrow and the uneven ones included."""
RLAX = json.loads((Path(__file__).parents[1] / "data" / "rlax.json").read_text())


def of_rlax(function: str) -> pytest.MarkDecorator:
    """Every recorded case of a function: its arguments, as arrays where they are lists, and what it gave."""
    read = lambda one: jnp.asarray(one, jnp.float32) if isinstance(one, list) else one  # noqa: E731
    cases = [([read(one) for one in case["arguments"]], read(case["result"])) for case in RLAX[function]]
    return pytest.mark.parametrize(("arguments", "expected"), cases, ids=range(len(cases)))


def random_values(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def two_actions(first: int, second: int, alpha: float) -> Choice:
    return Choice(jnp.array([first, second]), jnp.array([alpha, 1 - alpha]))


# Scalar


def test_scalar_by_hand():
    values = ScalarReturn(jnp.array([1.0, 4.0, 2.0]))
    assert values.taken(jnp.int32(2)).mean == 2.0
    mixed = values.under(two_actions(1, 0, 0.25))
    assert mixed.mean == 0.25 * 4 + 0.75 * 1
    assert mixed.backup(3.0, 0.5).mean == 3 + 0.5 * 1.75
    assert mixed.backup(3.0, 0.0).mean == 3.0
    assert ScalarReturn(jnp.float32(1)).loss_to(ScalarReturn(jnp.float32(4))) == 9.0  # no factor one half
    assert ScalarReturn(jnp.float32(1), huber_at=1.0).loss_to(ScalarReturn(jnp.float32(4))) == 2.5


@of_rlax("q_learning")
def test_scalar_loss_is_the_square_of_rlax(arguments: list[Any], expected: float):
    online, action, reward, discount, target = arguments
    backed_up = ScalarReturn(target).taken(jnp.argmax(target)).backup(reward, discount)
    np.testing.assert_allclose(ScalarReturn(online).taken(action).loss_to(backed_up), expected**2, rtol=1e-6)


def test_huber_meets_itself_at_kappa():
    error = jnp.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
    np.testing.assert_array_equal(huber(error, 1.0), [1.5, 0.5, 0.125, 0.0, 0.125, 0.5, 1.5])
    np.testing.assert_array_equal(huber(jnp.array([0.5, 1.0]), 0.5), [0.125, 0.375])
    np.testing.assert_array_equal(huber(error), huber(error, 1.0))
    slope = jax.vmap(jax.grad(huber), in_axes=(0, None))(error, 1.0)
    np.testing.assert_array_equal(slope, jnp.clip(error, -1, 1))


def test_priorities_are_errors_of_scalars_and_losses_of_distributions():
    """|error| of a scalar whatever its loss, and the loss itself of distributions."""
    for huber_at in (None, 0.5):
        own = ScalarReturn(jnp.array([1.0, 7.0]), huber_at).taken(0)
        assert own.priority_to(ScalarReturn(jnp.float32(4), huber_at)) == 3.0
    atoms = jnp.linspace(-2.0, 2.0, ATOMS)
    choice = two_actions(0, 2, 0.3)
    for kind in (lambda values: CategoricalReturn(values, atoms), even):
        own, target = kind(random_values(0, ACTIONS, ATOMS)).taken(1), kind(random_values(1, ACTIONS, ATOMS))
        backed_up = target.under(choice).backup(0.5, 0.9)
        assert own.priority_to(backed_up) == own.loss_to(backed_up)


# Categorical


def test_categorical_by_hand():
    atoms = jnp.array([0.0, 1.0, 2.0])
    probabilities = jnp.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]])
    returns = CategoricalReturn(jnp.log(probabilities), atoms)
    np.testing.assert_allclose(returns.mean, [0.75, 1.625], rtol=1e-6)
    np.testing.assert_allclose(returns.taken(1).mean, 1.625, rtol=1e-6)
    mixed = returns.under(two_actions(1, 0, 0.5))
    np.testing.assert_allclose(mixed.probabilities, [0.3125, 0.1875, 0.5], rtol=1e-6)
    # Backed up with r=1, gamma=0.5 the atoms are 1, 1.5 and 2: the middle mass is halved between its neighbours.
    backed_up = mixed.backup(1.0, 0.5)
    projected = [0.0, 0.3125 + 0.09375, 0.5 + 0.09375]
    np.testing.assert_allclose(project(backed_up.atoms, backed_up.probabilities, atoms), projected, rtol=1e-6)
    np.testing.assert_allclose(backed_up.mean, 1 + 0.5 * mixed.mean, rtol=1e-6)
    expected_loss = -np.sum(projected * np.log(probabilities[0]))
    np.testing.assert_allclose(returns.taken(0).loss_to(backed_up), expected_loss, rtol=1e-6)


@of_rlax("categorical_q_learning")
def test_categorical_loss_is_that_of_rlax(arguments: list[Any], expected: float):
    atoms, online, action, reward, discount, _, target = arguments
    bootstrap = CategoricalReturn(target, atoms)
    greedy = Choice(jnp.argmax(bootstrap.mean)[None], jnp.ones(1))
    loss = CategoricalReturn(online, atoms).taken(action).loss_to(bootstrap.under(greedy).backup(reward, discount))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.mark.parametrize(("low", "high"), SUPPORTS)
def test_projection_keeps_a_mass_that_hits_an_atom_whole(low: float, high: float):
    atoms = jnp.linspace(low, high, 51)
    hits = jax.vmap(lambda atom: project(atom[None], jnp.ones(1), atoms))(atoms)
    np.testing.assert_allclose(hits, np.eye(51), atol=1e-5)


def test_projection_at_integer_positions_loses_no_mass():
    """Where floor and ceil of a position agree, the textbook two-neighbour form gives both shares zero."""
    atoms = jnp.arange(5.0)
    probabilities = jnp.array([0.1, 0.2, 0.4, 0.2, 0.1])
    np.testing.assert_allclose(project(atoms, probabilities, atoms), probabilities, rtol=1e-6)
    np.testing.assert_allclose(project(atoms + 1, probabilities, atoms), [0, 0.1, 0.2, 0.4, 0.3], rtol=1e-6)
    np.testing.assert_allclose(project(0 * atoms + 2, probabilities, atoms), [0, 0, 1, 0, 0], atol=1e-6)


@pytest.mark.parametrize(("reward", "place"), [(-2.0, 0), (-3.5, 0), (0.0, 2), (1.0, 3), (2.0, 4), (7.0, 4)])
def test_a_terminal_reward_on_an_atom_or_outside_the_support_is_one_atom(reward: float, place: int):
    """Both ends, the middle, and beyond: all the mass, in one place."""
    atoms = jnp.linspace(-2.0, 2.0, ATOMS)
    target = (
        CategoricalReturn(random_values(3, ACTIONS, ATOMS), atoms).under(two_actions(0, 1, 0.5)).backup(reward, 0.0)
    )
    projected = project(target.atoms, target.probabilities, atoms)
    np.testing.assert_allclose(projected, np.eye(ATOMS)[place], atol=1e-6)


@pytest.mark.parametrize(("offset", "end"), [(1e6, -1), (-1e6, 0)])
def test_projection_piles_far_mass_on_the_last_atom(offset: float, end: int):
    atoms = jnp.linspace(-10.0, 10.0, 51)
    projected = project(atoms + offset, jnp.full(51, 1 / 51), atoms)
    np.testing.assert_allclose(projected[end], 1, rtol=1e-5)
    np.testing.assert_allclose(jnp.sum(projected), 1, rtol=1e-5)


moved_atoms = st.lists(st.floats(-12, 12, width=32), min_size=ATOMS, max_size=ATOMS)
masses = st.lists(st.floats(0.015625, 1, width=32), min_size=ATOMS, max_size=ATOMS)
project_jitted = jax.jit(project)


@settings(max_examples=60, deadline=None)
@given(moved_atoms, masses)
def test_projection_keeps_mass_and_mean_and_agrees_with_a_loop(moved: list[float], mass: list[float]):
    atoms = jnp.linspace(-10.0, 10.0, 11)
    from_atoms, probabilities = jnp.array(moved), jnp.array(mass) / sum(mass)
    projected = np.asarray(project_jitted(from_atoms, probabilities, atoms))
    assert np.all(projected >= 0)
    np.testing.assert_allclose(projected.sum(), 1, rtol=1e-5)
    clipped_mean = np.sum(np.clip(moved, -10, 10) * np.asarray(probabilities))
    np.testing.assert_allclose(projected @ np.asarray(atoms), clipped_mean, atol=1e-4)
    looped = np.zeros(11)
    for position, share in zip(np.clip(moved, -10, 10) / 2 + 5, np.asarray(probabilities), strict=True):
        lower = min(int(position), 9)
        looped[lower] += share * (lower + 1 - position)
        looped[lower + 1] += share * (position - lower)
    np.testing.assert_allclose(projected, looped, atol=1e-5)


@of_rlax("categorical_l2_project")
def test_projection_is_that_of_rlax(arguments: list[Any], expected: jax.Array):
    np.testing.assert_allclose(project(*arguments), expected, atol=1e-6)


def test_mixing_categorical_returns_commutes_with_projection():
    atoms = jnp.linspace(-2.0, 2.0, ATOMS)
    returns = CategoricalReturn(random_values(3, ACTIONS, ATOMS), atoms)
    moved = 0.7 + 0.9 * atoms
    mixed = returns.under(two_actions(0, 2, 0.2)).backup(0.7, 0.9)
    apart = [project(moved, returns.probabilities[action], atoms) for action in (0, 2)]
    np.testing.assert_allclose(
        project(mixed.atoms, mixed.probabilities, atoms), 0.2 * apart[0] + 0.8 * apart[1], atol=1e-6
    )


def test_terminal_categorical_target_is_the_reward_alone():
    atoms = jnp.linspace(-2.0, 2.0, ATOMS)
    target = CategoricalTarget(jnp.full(ATOMS, 0.2), atoms).backup(1.0, 0.0)
    np.testing.assert_allclose(project(target.atoms, target.probabilities, atoms), [0, 0, 0, 1, 0], atol=1e-6)


# Quantile


def even(values: jax.Array, kappa: float = 1.0, mixing: Mixing = "interpolate") -> QuantileReturn:
    count = values.shape[-1]
    return QuantileReturn(values, (jnp.arange(count) + 0.5) / count, jnp.full(count, 1 / count), kappa, mixing)


def atoms_of(values: jax.Array) -> QuantileTarget:
    """A target with one part, all of whose atoms weigh the same."""
    return QuantileTarget(values[None], jnp.ones(1), jnp.full(values.shape, 1 / values.shape[0]))


def naive_loss(own: np.ndarray, levels: np.ndarray, target: np.ndarray, weights: np.ndarray, kappa: float) -> float:
    total = 0.0
    for value, level in zip(own, levels, strict=True):
        for atom, weight in zip(target, weights, strict=True):
            error = atom - value
            size = 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)
            total += weight * abs(level - (error < 0)) * size / kappa
    return total


def test_quantile_by_hand():
    values = jnp.array([[0.0, 2.0], [1.0, 5.0]])
    returns = even(values)
    np.testing.assert_array_equal(returns.mean, [1.0, 3.0])
    interpolated = returns.under(two_actions(1, 0, 0.5)).backup(1.0, 2.0)
    np.testing.assert_array_equal(interpolated.values, [[2.0, 8.0]])
    np.testing.assert_array_equal(interpolated.weights, [1.0])
    mixture = even(values, mixing="mixture").under(two_actions(1, 0, 0.25)).backup(1.0, 2.0)
    np.testing.assert_array_equal(mixture.values, [[3.0, 11.0], [1.0, 5.0]])
    np.testing.assert_array_equal(mixture.weights, [0.25, 0.75])
    for target in (interpolated, mixture):
        np.testing.assert_array_equal(target.widths, [0.5, 0.5])
    assert mixture.mean == 0.25 * 7 + 0.75 * 3
    # Quantiles 0.25 at 0 and 0.75 at 2; target atoms 1 and 2, each half: one-sided errors (1, 2) and (-1, 0).
    expected = 0.25 * (0.5 + 1.5) / 2 + 0.25 * 0.5 / 2
    np.testing.assert_allclose(returns.taken(0).loss_to(atoms_of(jnp.array([1.0, 2.0]))), expected, rtol=1e-6)
    # The same two atoms as two parts of one atom each, and once more with all the weight on the second.
    apart = QuantileTarget(jnp.array([[1.0], [2.0]]), jnp.array([0.5, 0.5]), jnp.ones(1))
    np.testing.assert_allclose(returns.taken(0).loss_to(apart), expected, rtol=1e-6)
    second = QuantileTarget(apart.values, jnp.array([0.0, 1.0]), jnp.ones(1))
    np.testing.assert_allclose(returns.taken(0).loss_to(second), 0.25 * 1.5, rtol=1e-6)


def test_quantile_mean_follows_uneven_widths():
    widths = jnp.array([0.5, 0.25, 0.25])
    for mixing in get_args(Mixing):
        levels = jnp.array([0.25, 0.625, 0.875])
        returns = QuantileReturn(jnp.array([[1.0, 2.0, 4.0]]), levels, widths, mixing=mixing)
        np.testing.assert_array_equal(returns.mean, [2.0])
        assert returns.under(Choice(jnp.array([0]), jnp.ones(1))).mean == 2.0


@of_rlax("quantile_q_learning")
def test_quantile_loss_is_that_of_rlax_and_of_a_loop(arguments: list[Any], expected: float):
    online, _, action, reward, discount, target, _, kappa = arguments  # rlax puts quantiles first
    own, bootstrap = even(online.T, kappa).taken(action), even(target.T, kappa)
    greedy = Choice(jnp.argmax(bootstrap.mean)[None], jnp.ones(1))
    backed_up = bootstrap.under(greedy).backup(reward, discount)
    loss = own.loss_to(backed_up)
    # rlax leaves the factor 1 / kappa of the original paper out.
    np.testing.assert_allclose(loss, expected / kappa, rtol=1e-5)
    looped = naive_loss(*map(np.asarray, (own.values, own.midpoints, backed_up.values[0], backed_up.widths)), kappa)
    np.testing.assert_allclose(loss, looped, rtol=1e-5)


def test_a_tiny_kappa_approaches_plain_quantile_regression():
    own, target = random_values(4, ATOMS), random_values(5, ATOMS)
    loss = even(own, 1e-4).loss_to(atoms_of(target))
    error = target - own[:, None]
    expected = jnp.sum(jnp.mean(jnp.abs(even(own).midpoints[:, None] - (error < 0)) * jnp.abs(error), axis=1))
    np.testing.assert_allclose(loss, expected, rtol=1e-3)


@pytest.mark.parametrize("error", [-2.0, -1.0, 0.0, 1.0, 2.0])
def test_quantile_loss_at_and_beyond_kappa(error: float):
    own = QuantileReturn(jnp.zeros(1), jnp.array([0.25]), jnp.ones(1), huber_at=1.0)
    loss = own.loss_to(atoms_of(jnp.array([error])))
    slope = 0.75 if error < 0 else 0.25
    assert loss == slope * {0.0: 0.0, 1.0: 0.5, 2.0: 1.5}[abs(error)]


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 1.0])
def test_mixture_and_interpolation_share_their_mean_but_not_their_loss(alpha: float):
    values, own = random_values(6, ACTIONS, ATOMS), even(random_values(7, ATOMS))
    returns, choice = even(values), two_actions(0, 2, alpha)
    mixture = even(values, mixing="mixture").under(choice).backup(0.5, 0.9)
    interpolated = returns.under(choice).backup(0.5, 0.9)
    np.testing.assert_allclose(mixture.mean, interpolated.mean, rtol=1e-5)
    np.testing.assert_allclose(mixture.mean, 0.5 + 0.9 * jnp.dot(choice.weights, returns.mean[choice.actions]), 1e-5)
    apart = [own.loss_to(returns.under(Choice(jnp.array([a]), jnp.ones(1))).backup(0.5, 0.9)) for a in (0, 2)]
    np.testing.assert_allclose(own.loss_to(mixture), alpha * apart[0] + (1 - alpha) * apart[1], rtol=1e-5)
    if 0 < alpha < 1:
        assert own.loss_to(interpolated) != own.loss_to(mixture)


def test_terminal_quantile_target_is_the_reward_alone():
    target = even(random_values(6, ACTIONS, ATOMS)).under(two_actions(0, 2, 0.3)).backup(1.5, 0.0)
    np.testing.assert_array_equal(target.values, np.full((1, ATOMS), 1.5))
    assert target.mean == pytest.approx(1.5)
    own = even(jnp.full(ATOMS, 1.5))
    assert own.loss_to(target) == 0


@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_a_mixture_s_loss_is_that_of_a_loop_over_each_part(kappa: float):
    returns, own = even(random_values(8, ACTIONS, ATOMS), kappa, "mixture"), even(random_values(9, ATOMS), kappa)
    target = returns.under(two_actions(0, 1, 0.2)).backup(0.5, 0.9)
    values, levels, weights = np.asarray(own.values), np.asarray(own.midpoints), np.full(ATOMS, 1 / ATOMS)
    parts = [naive_loss(values, levels, 0.5 + 0.9 * np.asarray(part), weights, kappa) for part in returns.values[:2]]
    np.testing.assert_allclose(own.loss_to(target), 0.2 * parts[0] + 0.8 * parts[1], rtol=1e-5)
