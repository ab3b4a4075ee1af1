"""Heads give the returns they promise, and their short cut to the mean is the mean of the whole return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core import Choice
from sadq.errors import SadqError
from sadq.networks import Categorical, Fraction, Head, HeadShape, Implicit, Mover, Quantile, Scalar
from sadq.networks.layers import draw_layers

KEY, WIDTH, ACTIONS = keys.member_key(3), 8, 3
FEATURES = jax.random.uniform(keys.member_key(1), (WIDTH,))
MASK = jnp.array([True, False, True])
CHOICES = {
    "scalar": Scalar(),
    "categorical": Categorical(11, (-3.0, 5.0)),
    "quantile": Quantile(7),
    "implicit": Implicit(6, 5),
    "fraction": Fraction(6, 5),
}


def make(kind: str, dueling: bool = False, noisy: bool = False) -> Head:
    return CHOICES[kind].build(HeadShape(WIDTH, ACTIONS, dueling, noisy), KEY)


@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("dueling", [False, True])
def test_the_short_cut_is_the_mean_of_the_whole_return(kind, dueling):
    head = jax.tree.map(lambda leaf: 3 * leaf, make(kind, dueling))
    for own in (head, head.sampled(keys.member_key(9))):
        for mask in (None, MASK):
            whole, short = own(FEATURES, mask).mean, own.mean(FEATURES, mask)
            assert short.shape == (ACTIONS,) and np.ptp(short) > 0.01
            np.testing.assert_allclose(short, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["quantile", "implicit", "fraction"])
def test_both_ways_have_the_same_gradient(kind):
    head = make(kind, dueling=True)
    slopes = [
        jax.grad(lambda own: jnp.sum(value(own) * jnp.arange(3.0)))(head)
        for value in (lambda own: own(FEATURES).mean, lambda own: own.mean(FEATURES))
    ]
    assert any(leaf.any() for leaf in jax.tree.leaves(slopes[0]))
    for one, other in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", CHOICES)
def test_a_dueling_mask_moves_all_values_by_the_same_amount(kind):
    """V + A - mean A: a mask changes which A are averaged, and so a constant."""
    head = make(kind, dueling=True)
    numbers = "logits" if kind == "categorical" else "values"
    moved = np.asarray(getattr(head(FEATURES, MASK), numbers) - getattr(head(FEATURES), numbers))
    np.testing.assert_allclose(moved, np.broadcast_to(moved[:1], moved.shape), atol=1e-5)
    assert np.abs(moved).max() > 1e-3


@pytest.mark.parametrize("kind", CHOICES)
def test_noise_in_the_layers_reaches_the_return_and_the_short_cut_alike(kind):
    head = make(kind, dueling=True, noisy=True)
    drawn = draw_layers(head, KEY)
    for own in (head, drawn):
        np.testing.assert_allclose(own.mean(FEATURES), own(FEATURES).mean, rtol=1e-4, atol=1e-5)
    assert (np.abs(np.asarray(head.mean(FEATURES) - drawn.mean(FEATURES))) > 1e-3).all()


# Scalar, categorical and quantile


@pytest.mark.parametrize(("huber", "loss"), [(None, 9.0), (1.0, 2.5)])
def test_a_scalar_head_says_what_its_loss_is(huber, loss):
    returns = Scalar(huber).build(HeadShape(WIDTH, ACTIONS), KEY)(FEATURES)
    taken = returns.taken(jnp.int32(1))
    np.testing.assert_allclose(taken.loss_to(taken.backup(3.0, 1.0)), loss, rtol=1e-5)


def test_a_categorical_head_spreads_its_atoms_evenly_over_its_support():
    returns = make("categorical")(FEATURES)
    np.testing.assert_allclose(returns.atoms, np.linspace(-3, 5, 11), rtol=1e-6)
    assert returns.logits.shape == (ACTIONS, 11)
    np.testing.assert_allclose(returns.probabilities.sum(axis=1), 1, rtol=1e-6)


def test_without_a_support_the_environment_s_range_is_taken():
    shape = HeadShape(WIDTH, ACTIONS, return_range=(-7.0, 2.0))
    np.testing.assert_allclose(Categorical(4).build(shape, KEY)(FEATURES).atoms, [-7, -4, -1, 2], rtol=1e-6)


def test_a_quantile_head_has_the_middles_of_equal_parts():
    returns = make("quantile")(FEATURES)
    np.testing.assert_allclose(returns.midpoints, [1 / 14, 3 / 14, 5 / 14, 7 / 14, 9 / 14, 11 / 14, 13 / 14], rtol=1e-6)
    np.testing.assert_allclose(returns.widths, 1 / 7, rtol=1e-6)
    assert returns.values.shape == (ACTIONS, 7)


@pytest.mark.parametrize("kind", [Quantile, Implicit, Fraction])
@pytest.mark.parametrize(("mixing", "parts"), [("interpolate", 1), ("mixture", 2)])
def test_mixing_and_huber_reach_the_return(kind, mixing, parts):
    returns = kind(5, mixing=mixing, huber=0.25).build(HeadShape(WIDTH, ACTIONS), KEY)(FEATURES)
    assert returns.huber_at == 0.25
    choice = Choice(jnp.array([0, 2]), jnp.array([0.3, 0.7]))
    target = returns.under(choice)
    assert target.values.shape == (parts, 5)
    np.testing.assert_allclose(target.mean, 0.3 * returns.mean[0] + 0.7 * returns.mean[2], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Scalar(0.0),
        lambda: Categorical(1),
        lambda: Categorical(support=(1.0, 1.0)),
        lambda: Categorical(support=(-np.inf, 1.0)),
        lambda: Categorical(support=(1.0, 2.0, 3.0)),
        lambda: Quantile(0),
        lambda: Quantile(huber=-1.0),
        lambda: Quantile(mixing="both"),
        lambda: Implicit(levels=0),
        lambda: Fraction(levels=1),
        lambda: Fraction(learning_rate=0.0),
    ],
)
def test_settings_that_make_no_head_are_refused(wrong):
    with pytest.raises(SadqError):
        wrong()


# What every head has without saying so


def test_a_head_is_its_mean_and_is_moved_by_the_run_alone():
    head = make("scalar")
    assert head.sampled(KEY) is head and head.drawn(KEY) is head and head.settled() is head
    assert head.auxiliary_loss(None) == 0 and head.sequence_length == 0
    assert head.own_optimiser is None and head.own_learning_rate == 0
    assert set(jax.tree.leaves(head.movers())) == {Mover.RUN}
    with pytest.raises(TypeError, match="a head gives the return"):
        Head()(FEATURES)
