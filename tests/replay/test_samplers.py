"""Draws follow the distribution they claim, and never touch rows whose window is open."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sadq import keys
from sadq.replay import Prioritised, Ring, uniform

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
