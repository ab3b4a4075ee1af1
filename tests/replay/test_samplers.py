"""Draws follow the distribution they claim, and never touch rows whose window is open."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sadq import keys
from sadq.replay import Prioritised, Ring, kept, uniform

RING = Ring(capacity=40, environments=2, observation_size=1, action_count=3)
KEY = keys.member_key(0)


def counts(positions, size: int) -> np.ndarray:
    return np.bincount(np.asarray(positions).reshape(-1), minlength=size)


def test_uniform_draws_every_stored_transition_alike():
    drawn = uniform(RING, jnp.int32(7), KEY, 28_000)
    observed = counts(drawn, 40)
    assert observed[14:].sum() == 0
    assert stats.chisquare(observed[:14]).pvalue > 1e-3


@pytest.mark.parametrize("written", [3, 19, 20, 33])
def test_uniform_draws_only_complete_windows(written):
    ring = Ring(capacity=40, environments=2, observation_size=1, action_count=3, steps=3)
    seen = set(np.unique(np.asarray(uniform(ring, jnp.int32(written), KEY, 4000)) // 2))
    oldest = max(0, written - ring.rows)
    assert seen == {row % ring.rows for row in range(oldest, written - 2)}


def filled(steps: int = 1, written: int = 20) -> tuple[Prioritised, object]:
    sampler = Prioritised(Ring(40, 2, 1, 3, steps=steps), exponent=1.0)
    state = sampler.init()
    for first in range(0, written, 4):
        state = sampler.add(state, jnp.int32(first), 4)
    return sampler, state


def test_prioritised_draws_follow_the_priorities():
    sampler, state = filled()
    priority = np.random.default_rng(0).uniform(0.1, 3.0, 40).astype(np.float32)
    state = sampler.update(state, jnp.arange(40), jnp.asarray(priority))
    drawn = jax.vmap(lambda key: sampler.sample(state, key, 64, jnp.float32(1)).position)(keys.range_of(KEY, 0, 1000))
    expected = priority / priority.sum() * 64_000
    # Strata make the counts more even than independent draws, so the statistic can only be smaller.
    assert stats.chisquare(counts(drawn, 40), expected * 64_000 / expected.sum()).pvalue > 1e-3


def test_importance_weights_undo_the_priorities():
    sampler, state = filled()
    priority = np.linspace(0.5, 4.0, 40, dtype=np.float32)
    state = sampler.update(state, jnp.arange(40), jnp.asarray(priority))
    drawn = sampler.sample(state, KEY, 256, jnp.float32(1))
    chosen = priority[np.asarray(drawn.position)]
    np.testing.assert_allclose(drawn.weight, chosen.min() / chosen, rtol=1e-4)
    np.testing.assert_allclose(sampler.sample(state, KEY, 8, jnp.float32(0)).weight, 1.0)


def test_new_transitions_get_the_largest_priority():
    sampler, state = filled()
    state = sampler.update(state, jnp.array([3, 4]), jnp.array([7.0, 2.0]))
    state = sampler.add(state, jnp.int32(20), 4)
    leaves = np.asarray(state.leaves).reshape(-1)
    np.testing.assert_allclose(leaves[:8], 7.0, rtol=1e-5)
    np.testing.assert_allclose(state.sums, np.asarray(state.leaves).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("written", [4, 20, 28])
def test_prioritised_draws_only_complete_windows(written):
    sampler, state = filled(steps=3, written=written)
    drawn = jax.vmap(lambda key: sampler.sample(state, key, 32, jnp.float32(1)).position)(keys.range_of(KEY, 0, 100))
    seen = set(np.unique(np.asarray(drawn) // 2))
    oldest = max(0, written - 20)
    assert seen == {row % 20 for row in range(oldest, written - 2)}


@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_prioritised_draws_follow_priorities_to_their_exponent_on_a_ring_half_full(exponent):
    sampler = Prioritised(RING, exponent)
    state = sampler.add(sampler.init(), jnp.int32(0), 12)
    priority = np.random.default_rng(1).uniform(0.01, 3.0, 24).astype(np.float32)
    state = sampler.update(state, jnp.arange(24), jnp.asarray(priority))
    draw = jax.jit(jax.vmap(lambda key: sampler.sample(state, key, 32, jnp.float32(1)).position))
    observed = counts(draw(keys.range_of(KEY, 0, 2000)), 40)
    share = (priority.astype(np.float64) + 1e-6) ** exponent
    assert observed[24:].sum() == 0
    assert stats.chisquare(observed[:24], 64_000 * share / share.sum()).pvalue > 1e-3


def test_importance_weights_by_hand():
    """(N p)^-beta over the largest of the batch, with p among the N transitions that can be drawn."""
    sampler = Prioritised(Ring(4, 1, 1, 3), exponent=0.5)
    state = sampler.add(sampler.init(), jnp.int32(0), 4)
    state = sampler.update(state, jnp.arange(4), jnp.array([1.0, 4.0, 9.0, 16.0]))
    position, weight = sampler.sample(state, KEY, 400, jnp.float32(0.4))
    probability = np.array([0.1, 0.2, 0.3, 0.4])[np.asarray(position)]
    expected = (4 * probability) ** -0.4
    assert set(np.asarray(position).tolist()) == {0, 1, 2, 3}
    np.testing.assert_allclose(weight, expected / expected.max(), rtol=1e-4)
    assert weight.max() == 1


def test_a_surprise_of_zero_can_still_be_drawn():
    sampler = Prioritised(Ring(4, 1, 1, 3), exponent=0.5)
    state = sampler.add(sampler.init(), jnp.int32(0), 4)
    state = sampler.update(state, jnp.arange(4), jnp.zeros(4))
    assert (np.asarray(state.leaves) > 0).all()
    position = sampler.sample(state, KEY, 400, jnp.float32(1)).position
    assert set(np.asarray(position).tolist()) == {0, 1, 2, 3}


def test_a_window_that_completes_opens_with_the_largest_priority_and_what_is_overwritten_closes():
    """n = 3, one environment, 8 rows, collects of 2: leaves after each, with row 1 made the most surprising."""
    sampler = Prioritised(Ring(8, 1, 1, 3, steps=3), exponent=1.0)
    state, seen = sampler.init(), []
    for first in range(0, 10, 2):
        state = sampler.add(state, jnp.int32(first), 2)
        if first == 2:
            state = sampler.update(state, jnp.array([1]), jnp.array([5.0 - 1e-6]))
        seen.append(np.asarray(state.leaves).reshape(-1)[:8].tolist())
    assert seen[0] == [0, 0, 0, 0, 0, 0, 0, 0]
    assert seen[1] == [1, 5, 0, 0, 0, 0, 0, 0]
    assert seen[2] == [1, 5, 5, 5, 0, 0, 0, 0]
    assert seen[3] == [1, 5, 5, 5, 5, 5, 0, 0]
    assert seen[4] == [0, 0, 5, 5, 5, 5, 5, 5], "rows 8 and 9 took the places of 0 and 1, and wait for their window"


def test_a_number_next_to_one_draws_an_open_transition(monkeypatch):
    """(127 + u) / 128 rounds to one for u near one, and so falls on the end of the last block that holds anything."""
    sampler = Prioritised(Ring(4000, 1, 1, 3), exponent=1.0)
    state = sampler.add(sampler.init(), jnp.int32(0), 500)
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.full(shape, 1 - 2**-23, jnp.float32))
    position, weight = sampler.sample(state, KEY, 128, jnp.float32(0.4))
    assert position[-1] == 499
    np.testing.assert_allclose(weight, 1, rtol=1e-4)


# Bootstrap masks


def test_masks_keep_their_share_apart_by_network():
    drawn = np.asarray(kept(KEY, jnp.arange(20_000), 3, 0.7))
    assert drawn.shape == (20_000, 3) and drawn.dtype == bool
    np.testing.assert_allclose(drawn.mean(axis=0), 0.7, atol=0.02)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.04
    assert kept(KEY, jnp.arange(50), 3, 1.0).all()


def test_a_mask_is_a_matter_of_the_transition_s_number_alone():
    number = jnp.array([[5, 9, 5], [1000, 9, 0]])
    drawn = np.asarray(kept(KEY, number, 64, 0.5))
    assert drawn.shape == (2, 3, 64)
    np.testing.assert_array_equal(drawn[0, 0], drawn[0, 2])
    np.testing.assert_array_equal(drawn[0, 1], drawn[1, 1])
    assert len(np.unique(drawn.reshape(6, 64), axis=0)) == 4
    assert not np.array_equal(drawn[0, 0], np.asarray(kept(keys.member_key(1), number, 64, 0.5))[0, 0])
