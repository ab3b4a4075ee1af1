"""Returns at any level: the cosine embedding by hand, IQN's draws, FQF's fractions and the gradient that moves them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core import Choice
from sadq.networks import Dense, Fraction, FractionHead, HeadShape, Implicit, ImplicitHead, Look, Mover, Network
from sadq.networks.levels import LevelStream

KEY, WIDTH, ACTIONS, LEVELS, COSINES = keys.member_key(3), 8, 3, 6, 5
FEATURES = jax.random.uniform(keys.member_key(1), (WIDTH,))
OBSERVATION = jnp.array([0.5, -2.0, 1.0])
FIRST = Choice(jnp.array([0]), jnp.ones(1))


def implicit(dueling: bool = False) -> ImplicitHead:
    return Implicit(LEVELS, COSINES).build(HeadShape(WIDTH, ACTIONS, dueling), KEY)


def even_fraction(dueling: bool = False) -> FractionHead:
    return Fraction(LEVELS, COSINES).build(HeadShape(WIDTH, ACTIONS, dueling), KEY)


def fraction(dueling: bool = False) -> FractionHead:
    """With a proposal far from equal parts."""
    head = even_fraction(dueling)
    proposal = head.proposal.replaced(300 * head.proposal.weight, jnp.linspace(-1, 1, LEVELS))
    return eqx.tree_at(lambda one: one.proposal, head, proposal)


def network_of(head) -> Network:
    return Network(Dense((WIDTH,)).build((3,), KEY), head)


def look(features: jax.Array, action: jax.Array | int, mask: jax.Array | None = None) -> Look:
    return Look(features, jnp.int32(action), mask, KEY, online=None, target=None, sequence=None)


def test_one_level_by_hand():
    head, level = implicit(), 0.3
    waves = np.cos(np.pi * level * np.arange(COSINES))
    embedded = np.maximum(waves @ head.at.embedding.weight + head.at.embedding.bias, 0)
    stream = head.at.stream
    hidden = np.maximum((np.asarray(FEATURES) * embedded) @ stream.hidden.weight + stream.hidden.bias, 0)
    expected = hidden @ np.asarray(stream.advantage.weight) + stream.advantage.bias
    np.testing.assert_allclose(head.at.values(FEATURES, jnp.array([level]), None)[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_levels_do_not_hear_of_each_other():
    head, levels = implicit(dueling=True), jnp.array([0.1, 0.9, 0.4])
    together = head.at.values(FEATURES, levels, None)
    apart = [head.at.values(FEATURES, level[None], None)[:, 0] for level in levels]
    np.testing.assert_allclose(together, np.stack(apart, axis=1), rtol=1e-5, atol=1e-6)


# IQN


def test_undrawn_levels_are_midpoints():
    returns = implicit()(FEATURES)
    np.testing.assert_allclose(returns.midpoints, (np.arange(LEVELS) + 0.5) / LEVELS, rtol=1e-6)
    np.testing.assert_allclose(returns.widths, 1 / LEVELS, rtol=1e-6)


def test_drawn_levels_are_uniform_and_those_at_which_values_were_taken():
    head = implicit()
    drawn = jax.vmap(lambda key: head.sampled(key)(FEATURES))(keys.range_of(KEY, 0, 500))
    levels = np.sort(np.asarray(drawn.midpoints).reshape(-1))
    even = (np.arange(levels.size) + 0.5) / levels.size
    assert np.abs(levels - even).max() < 1.95 / np.sqrt(levels.size), "Kolmogorov and Smirnov, at one in a thousand"
    one = head.sampled(keys.member_key(5))(FEATURES)
    np.testing.assert_allclose(one.values, head.at.values(FEATURES, one.midpoints, None), rtol=1e-6)
    np.testing.assert_allclose(one.mean, np.mean(one.values, axis=1), rtol=1e-5, atol=1e-6)
    again = head.sampled(keys.member_key(6)).sampled(keys.member_key(5))(FEATURES)
    np.testing.assert_array_equal(again.midpoints, one.midpoints, "the last draw counts")


def test_levels_are_shared_by_the_actions_and_not_by_the_samples():
    network = network_of(implicit())
    batch = jnp.tile(OBSERVATION, (4, 1))
    returns = jax.vmap(lambda one, key: network.sampled(key)(one))(batch, keys.range_of(KEY, 0, 4))
    assert returns.midpoints.shape == (4, LEVELS), "one set of levels for all actions"
    assert len(np.unique(returns.midpoints)) == 4 * LEVELS


# FQF


def test_fractions_divide_the_unit_interval():
    for head in (fraction(), even_fraction()):
        inner, middles, widths = map(np.asarray, head.fractions(FEATURES))
        np.testing.assert_allclose(widths.sum(), 1, rtol=1e-6)
        assert (widths > 0).all()
        ends = np.concatenate([[0], inner, [1]])
        assert (np.diff(ends) > 0).all()
        np.testing.assert_allclose(np.diff(ends), widths, atol=1e-6)
        np.testing.assert_allclose(middles, (ends[1:] + ends[:-1]) / 2, atol=1e-6)


def test_fractions_begin_almost_equal():
    head = even_fraction()
    bound = 0.01 * np.sqrt(6 / (WIDTH + LEVELS))
    assert np.abs(head.proposal.weight).max() <= bound and np.abs(head.proposal.weight).max() > 0.8 * bound
    np.testing.assert_array_equal(head.proposal.bias, 0)
    np.testing.assert_allclose(head.fractions(FEATURES).widths, 1 / LEVELS, rtol=0.05)


def test_the_return_is_weighted_by_the_fractions():
    head = fraction()
    returns, fractions = head(FEATURES), head.fractions(FEATURES)
    np.testing.assert_array_equal(returns.midpoints, fractions.middles)
    np.testing.assert_array_equal(returns.widths, fractions.widths)
    values = np.asarray(head.at.values(FEATURES, fractions.middles, None))
    np.testing.assert_allclose(returns.mean, values @ np.asarray(fractions.widths), rtol=1e-5, atol=1e-6)
    assert np.ptp(fractions.widths) > 0.05


def quantile_function(level):
    """A known, increasing F^-1."""
    return 3 * level**2 + jnp.sin(level)


def wasserstein(inner: np.ndarray) -> float:
    """The 1-Wasserstein distance of F^-1 from its steps between the fractions, by fine quadrature in float64."""
    ends = np.concatenate([[0.0], inner, [1.0]])
    total = 0.0
    for low, high in zip(ends, ends[1:], strict=False):
        at = low + (np.arange(2000) + 0.5) / 2000 * (high - low)
        middle = (low + high) / 2
        own = 3 * at**2 + np.sin(at) - (3 * middle**2 + np.sin(middle))
        total += np.abs(own).mean() * (high - low)
    return total


@pytest.mark.parametrize("action", [0, 2])
def test_fractions_descend_the_wasserstein_distance(monkeypatch, action):
    """On a known quantile function, the gradient by each fraction is the finite difference of the distance."""
    head = fraction()
    scale = jnp.array([1.0, 5.0, 2.0])
    monkeypatch.setattr(
        LevelStream, "values", lambda self, features, levels, mask: scale[:, None] * quantile_function(levels)
    )

    def by_fractions(inner):
        """The auxiliary loss as a function of the fractions themselves."""
        fractions = head.fractions(FEATURES)
        monkeypatch.setattr(FractionHead, "fractions", lambda self, features: fractions._replace(inner=inner))
        return head.auxiliary_loss(look(FEATURES, action))

    fractions = head.fractions(FEATURES)
    slope = np.asarray(jax.grad(by_fractions)(fractions.inner))
    inner = np.asarray(fractions.inner, np.float64)
    for index in range(LEVELS - 1):
        step = np.eye(LEVELS - 1)[index] * 1e-4
        expected = float(scale[action]) * (wasserstein(inner + step) - wasserstein(inner - step)) / 2e-4
        np.testing.assert_allclose(slope[index], expected, rtol=2e-3, atol=1e-4)


def test_the_gradient_by_a_fraction_is_the_formula_of_the_paper():
    """dW1/dt_i = 2 F^-1(t_i) - F^-1(m_i) - F^-1(m_i-1), through the softmax to the proposal's bias."""
    head = fraction()
    inner, middles, widths = head.fractions(FEATURES)
    at_ends = np.asarray(head.at.values(FEATURES, inner, None)[1], np.float64)
    at_middles = np.asarray(head.at.values(FEATURES, middles, None)[1], np.float64)
    by_fraction = 2 * at_ends - at_middles[1:] - at_middles[:-1]
    # t_i = sum_{j<=i} p_j and dp_j/db_k = p_j (1{j=k} - p_k).
    share = np.asarray(widths, np.float64)
    jacobian = np.array(
        [
            [share[: i + 1].sum() * -share[k] + (share[k] if k <= i else 0) for k in range(LEVELS)]
            for i in range(LEVELS - 1)
        ]
    )
    gradient = jax.grad(lambda own: own.auxiliary_loss(look(FEATURES, 1)))(head)
    np.testing.assert_allclose(gradient.proposal.bias, by_fraction @ jacobian, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dueling", [False, True])
def test_the_two_losses_share_no_parameter(dueling):
    network = network_of(fraction(dueling))

    def auxiliary(net: Network) -> jax.Array:
        return net.head.auxiliary_loss(look(net.encode(OBSERVATION), 1))

    own = jax.grad(auxiliary)(network)
    assert np.abs(own.head.proposal.weight).max() > 0 and np.abs(own.head.proposal.bias).max() > 0
    assert not any(leaf.any() for leaf in jax.tree.leaves((own.encoder, own.head.at)))
    target = jax.tree.map(jax.lax.stop_gradient, network(2 * OBSERVATION))
    for loss in (
        lambda net: net(OBSERVATION).taken(jnp.int32(1)).loss_to(target.under(FIRST).backup(1.0, 0.9)),
        lambda net: jnp.sum(net.mean(OBSERVATION)),
    ):
        value = jax.grad(loss)(network)
        assert not any(leaf.any() for leaf in jax.tree.leaves(value.head.proposal))
        assert value.encoder.layers[0].weight.any() and value.head.at.embedding.weight.any()


def test_the_auxiliary_loss_takes_a_dueling_mean_over_the_legal():
    """Whose constant cancels in 2Z(t_i) - Z(m_i) - Z(m_i-1) only where it is the same for all three: it is not."""
    head, mask = fraction(dueling=True), jnp.array([True, True, False])
    inner, middles, _ = head.fractions(FEATURES)
    values = [np.asarray(head.at.values(FEATURES, levels, mask))[1] for levels in (inner, middles)]
    expected = np.sum(np.asarray(inner) * (2 * values[0] - values[1][1:] - values[1][:-1]))
    np.testing.assert_allclose(head.auxiliary_loss(look(FEATURES, 1, mask)), expected, rtol=1e-4, atol=1e-6)
    assert not np.isclose(head.auxiliary_loss(look(FEATURES, 1)), expected, rtol=1e-3)


def test_only_the_proposal_is_optimised_apart():
    network = network_of(fraction())
    marks = network.movers()
    assert jax.tree.leaves(marks.head.proposal) == [Mover.HEAD, Mover.HEAD]
    assert jax.tree.leaves(marks).count(Mover.HEAD) == 2 and Mover.NOTHING not in jax.tree.leaves(marks)
    own = network.head.own_optimiser
    assert (own.decay, own.epsilon) == (0.95, 1e-5) and network.head.own_learning_rate == 1e-4
    assert Fraction(learning_rate=0.5).build(HeadShape(WIDTH, ACTIONS), KEY).own_learning_rate == 0.5
    assert set(jax.tree.leaves(network_of(implicit()).movers())) == {Mover.RUN}


@pytest.mark.parametrize("choice", [Implicit(LEVELS, COSINES), Fraction(LEVELS, COSINES)])
def test_the_embedding_is_as_wide_as_the_features_whatever_the_stream_is(choice):
    head = choice.build(HeadShape(WIDTH, ACTIONS, hidden=5), KEY)
    assert head.at.embedding.weight.shape == (COSINES, WIDTH)
    assert head.at.stream.hidden.weight.shape == (WIDTH, 5) and head.at.stream.advantage.weight.shape == (5, ACTIONS)
    assert head(FEATURES).mean.shape == (ACTIONS,)
    np.testing.assert_allclose(head.mean(FEATURES), head(FEATURES).mean, rtol=1e-5, atol=1e-6)
