"""Optimisers are optax's by value, each parameter moves as its mover says, and what has diverged stays where it was."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sadq.core.optimisers import Adam, AdamW, RMSprop
from sadq.errors import SadqError
from sadq.learning.optimiser import Pace, clipped, descend, trainable
from sadq.networks import Mover

START = {"weight": jnp.linspace(-1, 1, 12).reshape(3, 4), "bias": jnp.arange(4.0)}
ALL = {"weight": Mover.RUN, "bias": Mover.RUN}
APART = {"weight": Mover.RUN, "bias": Mover.HEAD}
FROZEN = {"weight": Mover.RUN, "bias": Mover.NOTHING}
RATE, ADAM = 0.01, Adam()


def gradient(index: int, size: float = 1.0):
    key = jax.random.fold_in(jax.random.key(0), index)
    return jax.tree.map(lambda leaf: size * jax.random.normal(key, leaf.shape), START)


def moved(ours, slope, optimiser=ADAM, movers=ALL, loss: float = 1.0, env_step: int = 0, own: float = 0.003):
    how = {Mover.RUN: Pace(optimiser, RATE), Mover.HEAD: Pace(RMSprop(), own)}
    return descend(ours, slope, jnp.float32(loss), how, movers, jnp.int32(env_step))


def assert_same(got, wanted) -> None:
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def optax_rmsprop(rate: float, decay: float, epsilon: float) -> optax.GradientTransformation:
    return optax.rmsprop(rate, decay=decay, eps=epsilon, eps_in_sqrt=False)


CASES = {
    "adam": (Adam(), optax.adam(RATE)),
    "adam's numbers": (Adam(0.7, 0.95, 1e-3), optax.adam(RATE, 0.7, 0.95, 1e-3)),
    "adamw": (AdamW(weight_decay=0.3), optax.adamw(RATE, weight_decay=0.3)),
    "adamw's numbers": (AdamW(0.7, 0.95, 1e-3, 0.1), optax.adamw(RATE, 0.7, 0.95, 1e-3, weight_decay=0.1)),
    "rmsprop": (RMSprop(), optax_rmsprop(RATE, 0.95, 1e-5)),
    "rmsprop's numbers": (RMSprop(0.6, 1e-2), optax_rmsprop(RATE, 0.6, 1e-2)),
}


@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("case", CASES)
def test_it_is_optax_s(case, max_norm):
    """Fifty steps, with gradients so small at first that the place of epsilon shows."""
    optimiser, alone = CASES[case]
    reference = alone if max_norm is None else optax.chain(optax.clip_by_global_norm(max_norm), alone)

    @jax.jit
    def both(state, slope):
        ours, expected, memory = state
        change, memory = reference.update(slope, memory, expected)
        own = slope if max_norm is None else clipped(slope, max_norm, ALL)
        return moved(ours, own, optimiser), optax.apply_updates(expected, change), memory

    state = (trainable(START), START, reference.init(START))
    for index in range(50):
        state = both(state, gradient(index, 1e-4 if index < 10 else 1.0))
        if index in (0, 9, 49):
            assert_same(state[0].parameters, state[1])
    assert state[0].steps == 50 and state[0].diverged_at == -1


def test_adamw_decays_by_the_rate_and_adam_does_not():
    nothing = jax.tree.map(jnp.zeros_like, START)
    after = moved(trainable(START), nothing, AdamW(weight_decay=0.5)).parameters
    assert_same(after, jax.tree.map(lambda leaf: leaf * (1 - RATE * 0.5), START))
    assert_same(moved(trainable(START), nothing).parameters, START)


def test_rmsprop_by_hand():
    before = trainable({"weight": jnp.zeros(1), "bias": jnp.ones(1)})
    slope = {"weight": jnp.zeros(1), "bias": jnp.array([2.0])}
    after = moved(before, slope, movers=APART, own=0.1)
    expected = 1 - 0.1 * 2 / (np.sqrt(0.05 * 4) + 1e-5)
    np.testing.assert_allclose(after.parameters["bias"], [expected], rtol=1e-6)
    np.testing.assert_allclose(after.second["bias"], [0.2], rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Adam(beta1=1.0),
        lambda: Adam(beta2=-0.1),
        lambda: Adam(epsilon=0.0),
        lambda: AdamW(weight_decay=-1.0),
        lambda: AdamW(beta1=1.0),
        lambda: RMSprop(decay=1.0),
        lambda: RMSprop(epsilon=0.0),
    ],
)
def test_settings_that_make_no_step_are_refused(wrong):
    with pytest.raises(SadqError):
        wrong()


# Movers


def test_what_the_head_moves_learns_by_its_own_optimiser_and_the_rest_by_the_run_s():
    reference = {"weight": optax.adam(RATE), "bias": optax_rmsprop(0.003, 0.95, 1e-5)}
    expected, states = dict(START), {name: one.init(START[name]) for name, one in reference.items()}
    ours, step = trainable(START, APART), jax.jit(lambda ours, slope: moved(ours, slope, movers=APART))
    for index in range(50):
        slope = gradient(index, 1e-4)
        for name, one in reference.items():
            change, states[name] = one.update(slope[name], states[name])
            expected[name] = optax.apply_updates(expected[name], change)
        ours = step(ours, slope)
    assert_same(ours.parameters, expected)


def test_what_nothing_moves_stays_and_has_no_moments():
    ours = trainable(START, FROZEN)
    assert ours.first["bias"] is None and ours.second["bias"] is None
    assert ours.first["weight"].shape == ours.second["weight"].shape == (3, 4)
    after = moved(ours, gradient(0), AdamW(weight_decay=0.5), FROZEN)
    np.testing.assert_array_equal(after.parameters["bias"], START["bias"])
    assert after.first["bias"] is None and after.second["bias"] is None
    assert (after.parameters["weight"] != START["weight"]).all()
    assert jax.tree.structure(after) == jax.tree.structure(ours)


def test_clipping_neither_counts_nor_changes_what_the_run_does_not_move():
    slope = {"weight": jnp.array([3.0, 4.0]), "bias": jnp.array([100.0])}
    for movers in (APART, FROZEN):
        short = clipped(slope, 1.0, movers)
        np.testing.assert_allclose(short["weight"], [0.6, 0.8], rtol=1e-6)
        np.testing.assert_array_equal(short["bias"], [100.0])
        np.testing.assert_array_equal(clipped(slope, 5.5, movers)["weight"], [3.0, 4.0])
    np.testing.assert_allclose(clipped(slope, 1.0, ALL)["bias"], 100 / np.sqrt(10_025), rtol=1e-6)
    nothing = {"weight": jnp.zeros(2), "bias": jnp.zeros(1)}
    assert all(np.array_equal(leaf, 0 * leaf) for leaf in jax.tree.leaves(clipped(nothing, 1.0, ALL)))


# Divergence


@pytest.mark.parametrize("loss", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_loss_that_is_not_finite_freezes_everything_for_good(loss):
    before = moved(trainable(START), gradient(0), env_step=7)
    frozen = moved(before, gradient(1), loss=loss, env_step=8)
    later = moved(frozen, gradient(2), env_step=9)
    again = moved(frozen, gradient(2), loss=loss, env_step=9)
    assert before.diverged_at == -1 and before.steps == 1
    for state in (frozen, later, again):
        assert state.diverged_at == 8, "the first time counts"
        unmarked = state._replace(diverged_at=before.diverged_at)
        assert jax.tree.all(jax.tree.map(np.array_equal, before, unmarked))


@pytest.mark.parametrize("size", [1e25, jnp.inf, jnp.nan])
@pytest.mark.parametrize("optimiser", [Adam(), AdamW(), RMSprop()], ids=lambda one: type(one).__name__)
def test_gradients_beyond_measure_leave_every_number_finite(optimiser, size):
    after = moved(trainable(START), gradient(0, size), optimiser, loss=1e38)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    assert after.steps == 1 and after.diverged_at == -1
