"""Draws follow the distribution they claim, and never touch rows whose window is open."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sadq import keys
from sadq.errors import SadqError
from sadq.replay import Prioritised, Ring, Uniform, heard, uniform
from sadq.replay.samplers import Priorities, PrioritisedSampler

RING = Ring(capacity=40, lanes=2, observation_shape=(1,), action_count=3)
KEY = keys.member_key(0)
END = jnp.float32(1)  # of the run, where beta is 1


def counts(positions, size: int) -> np.ndarray:
    return np.bincount(np.asarray(positions).reshape(-1), minlength=size)


def small(capacity: int = 4, steps: int = 1, exponent: float = 0.5, **fields) -> PrioritisedSampler:
    return Prioritised(exponent, **fields).sampler(Ring(capacity, 1, (1,), 3, steps=steps))


def drawn_often(sampler: PrioritisedSampler, memory: Priorities, batch: int, times: int) -> np.ndarray:
    draw = jax.jit(jax.vmap(lambda key: sampler.draw(memory, jnp.int32(0), key, batch, END).position))
    return np.asarray(draw(keys.range_of(KEY, 0, times)))


def assert_consistent(memory: Priorities) -> None:
    np.testing.assert_allclose(memory.sums, np.asarray(memory.leaves, np.float64).sum(axis=1), rtol=1e-6)


# Uniform


def test_uniform_draws_every_stored_transition_alike():
    drawn = uniform(RING, jnp.int32(7), KEY, 28_000, steps=1)
    observed = counts(drawn, 40)
    assert observed[14:].sum() == 0
    assert stats.chisquare(observed[:14]).pvalue > 1e-3


@pytest.mark.parametrize("written", [3, 19, 20, 33])
def test_uniform_draws_only_complete_windows(written):
    ring = Ring(40, 2, (1,), 3, steps=3)
    sampler = Uniform().sampler(ring)
    position, weight = sampler.draw(None, jnp.int32(written), KEY, 4000, jnp.float32(0))
    oldest = max(0, written - ring.rows)
    assert set(np.unique(np.asarray(position) // 2)) == {row % ring.rows for row in range(oldest, written - 2)}
    np.testing.assert_array_equal(weight, jnp.ones(4000))


def test_the_model_s_view_is_one_step_whatever_n_is():
    """Model updates ask for windows of one step, and so see the newest rows too."""
    ring = Ring(40, 2, (1,), 3, steps=3)
    assert set(np.unique(np.asarray(uniform(ring, jnp.int32(5), KEY, 4000, steps=1)) // 2)) == set(range(5))


def test_a_uniform_sampler_remembers_nothing():
    sampler = Uniform().sampler(RING)
    assert not sampler.depends_on_updates and small().depends_on_updates
    assert (
        sampler.init() is sampler.add(None, jnp.int32(0), 4) is sampler.update(None, jnp.arange(2), jnp.ones(2)) is None
    )


# Prioritised


def filled(steps: int = 1, written: int = 20) -> tuple[PrioritisedSampler, Priorities]:
    sampler = Prioritised(exponent=1.0).sampler(Ring(40, 2, (1,), 3, steps=steps))
    memory = sampler.init()
    for first in range(0, written, 4):
        memory = sampler.add(memory, jnp.int32(first), 4)
    return sampler, memory


def test_prioritised_draws_follow_the_priorities():
    sampler, memory = filled()
    priority = np.random.default_rng(0).uniform(0.1, 3.0, 40).astype(np.float32)
    memory = sampler.update(memory, jnp.arange(40), jnp.asarray(priority))
    drawn = drawn_often(sampler, memory, 64, 1000)
    # Strata make the counts more even than independent draws, so the statistic can only be smaller.
    assert stats.chisquare(counts(drawn, 40), priority / priority.sum() * 64_000).pvalue > 1e-3
    # ... and a position is drawn as often as its priority fits into a batch, give or take one.
    share = 64 * priority / priority.sum()
    each = np.stack([counts(one, 40) for one in drawn[:50]])
    assert (each >= np.floor(share) - 1).all() and (each <= np.ceil(share) + 1).all()


@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_prioritised_draws_follow_priorities_to_their_exponent_on_a_ring_half_full(exponent):
    sampler = PrioritisedSampler(RING, exponent)
    memory = sampler.add(sampler.init(), jnp.int32(0), 12)
    priority = np.random.default_rng(1).uniform(0.01, 3.0, 24).astype(np.float32)
    signs = np.where(np.arange(24) % 2 == 0, 1, -1)  # a priority is a size
    memory = sampler.update(memory, jnp.arange(24), jnp.asarray(signs * priority))
    observed = counts(drawn_often(sampler, memory, 32, 2000), 40)
    share = (priority.astype(np.float64) + 1e-6) ** exponent
    assert observed[24:].sum() == 0
    assert stats.chisquare(observed[:24], 64_000 * share / share.sum()).pvalue > 1e-3


def test_a_sampler_is_by_default_what_its_choice_is():
    """For a sampler of one's own that is made of ours."""
    made, choice = PrioritisedSampler(RING), Prioritised()
    assert (made.exponent, made.importance) == (choice.exponent, choice.importance) == (0.6, 0.4)


def test_importance_weights_undo_the_priorities():
    sampler, memory = filled()
    priority = np.linspace(0.5, 4.0, 40, dtype=np.float32)
    memory = sampler.update(memory, jnp.arange(40), jnp.asarray(priority))
    drawn = sampler.draw(memory, jnp.int32(20), KEY, 256, END)
    chosen = priority[np.asarray(drawn.position)]
    np.testing.assert_allclose(drawn.weight, chosen.min() / chosen, rtol=1e-4)
    off = PrioritisedSampler(sampler.store, 1.0, importance=0.0)
    np.testing.assert_allclose(off.draw(memory, jnp.int32(20), KEY, 8, jnp.float32(0)).weight, 1.0)


@pytest.mark.parametrize(("progress", "beta"), [(0.0, 0.4), (0.5, 0.7), (1.0, 1.0)])
def test_importance_weights_by_hand(progress, beta):
    """(N p)^-beta over the largest of the batch, with p among the N transitions that can be drawn."""
    sampler = small(importance=0.4)
    memory = sampler.add(sampler.init(), jnp.int32(0), 4)
    memory = sampler.update(memory, jnp.arange(4), jnp.array([1.0, 4.0, 9.0, 16.0]))
    position, weight = sampler.draw(memory, jnp.int32(4), KEY, 400, jnp.float32(progress))
    probability = np.array([0.1, 0.2, 0.3, 0.4])[np.asarray(position)]
    expected = (4 * probability) ** -beta
    assert set(np.asarray(position).tolist()) == {0, 1, 2, 3}
    np.testing.assert_allclose(weight, expected / expected.max(), rtol=1e-4)


def test_a_priority_of_zero_can_still_be_drawn():
    sampler = small()
    memory = sampler.add(sampler.init(), jnp.int32(0), 4)
    memory = sampler.update(memory, jnp.arange(4), jnp.zeros(4))
    np.testing.assert_allclose(memory.leaves, 1e-3, rtol=1e-4)
    position = sampler.draw(memory, jnp.int32(4), KEY, 400, END).position
    assert set(np.asarray(position).tolist()) == {0, 1, 2, 3}


def test_new_transitions_get_the_largest_priority_ever_given():
    sampler, memory = filled()
    memory = sampler.update(memory, jnp.array([3, 4]), jnp.array([7.0, 2.0]))
    memory = sampler.update(memory, jnp.array([3, 9]), jnp.array([0.5, 3.0]))  # 7 is gone, and still the largest
    memory = sampler.add(memory, jnp.int32(20), 4)
    leaves = np.asarray(memory.leaves).reshape(-1)
    np.testing.assert_allclose(leaves[:8], 7.0, rtol=1e-5)
    np.testing.assert_allclose(leaves[[8, 9, 10, 39]], [1.0, 3.0, 1.0, 1.0], rtol=1e-5)
    assert_consistent(memory)


def test_a_position_drawn_twice_gets_the_larger_of_its_priorities():
    """Also where both are smaller than what it had, and in whichever order they come."""
    sampler, memory = filled()
    memory = sampler.update(memory, jnp.arange(40), jnp.full(40, 9.0))
    position = jnp.array([5, 11, 5, 30, 11, 5])
    priority = jnp.array([2.0, 0.5, 4.0, 1.0, 3.0, 1.0])
    for order in (slice(None), slice(None, None, -1)):
        after = sampler.update(memory, position[order], priority[order])
        leaves = np.asarray(after.leaves).reshape(-1)
        np.testing.assert_allclose(leaves[[5, 11, 30]], [4.0, 3.0, 1.0], rtol=1e-5)
        np.testing.assert_allclose(np.delete(leaves[:40], [5, 11, 30]), 9.0, rtol=1e-5)
        assert_consistent(after)


def test_sums_do_not_drift():
    """Large priorities that come and go leave the small ones beside them what they are."""
    sampler, memory = filled()
    memory = sampler.update(memory, jnp.arange(40), jnp.full(40, 1e-3))
    update = jax.jit(sampler.update)
    for size in (1e7, 3e6, 1e-3):
        memory = update(memory, jnp.array([0, 7, 21]), jnp.full(3, size))
    np.testing.assert_allclose(memory.leaves.reshape(-1)[:40], 1e-3 + 1e-6, rtol=1e-5)
    assert_consistent(memory)


@pytest.mark.parametrize("written", [4, 20, 28])
def test_prioritised_draws_only_complete_windows(written):
    sampler, memory = filled(steps=3, written=written)
    seen = set(np.unique(drawn_often(sampler, memory, 32, 100) // 2))
    oldest = max(0, written - 20)
    assert seen == {row % 20 for row in range(oldest, written - 2)}


def test_a_window_that_completes_opens_with_the_largest_priority_and_what_is_overwritten_closes():
    """n = 3, one lane, 8 rows, collects of 2: leaves after each, with row 1 given the largest priority."""
    sampler = small(8, steps=3, exponent=1.0)
    memory, seen = sampler.init(), []
    for first in range(0, 10, 2):
        memory = sampler.add(memory, jnp.int32(first), 2)
        if first == 2:
            memory = sampler.update(memory, jnp.array([1]), jnp.array([5.0 - 1e-6]))
        seen.append(np.asarray(memory.leaves).reshape(-1)[:8].tolist())
        assert_consistent(memory)
    assert seen[0] == [0, 0, 0, 0, 0, 0, 0, 0]
    assert seen[1] == [1, 5, 0, 0, 0, 0, 0, 0]
    assert seen[2] == [1, 5, 5, 5, 0, 0, 0, 0]
    assert seen[3] == [1, 5, 5, 5, 5, 5, 0, 0]
    assert seen[4] == [0, 0, 5, 5, 5, 5, 5, 5], "rows 8 and 9 took the places of 0 and 1, and wait for their window"


def test_a_number_next_to_one_draws_an_open_transition(monkeypatch):
    """(127 + u) / 128 rounds to one for u near one, and so falls on the end of the last block that holds anything."""
    sampler = Prioritised(exponent=1.0).sampler(Ring(4000, 1, (1,), 3))
    memory = sampler.add(sampler.init(), jnp.int32(0), 500)
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.full(shape, 1 - 2**-23, jnp.float32))
    position, weight = sampler.draw(memory, jnp.int32(500), KEY, 128, jnp.float32(0))
    assert position[-1] == 499
    np.testing.assert_allclose(weight, 1, rtol=1e-4)


def test_settings_out_of_their_range_are_refused():
    for settings in ({"exponent": 1.5}, {"exponent": -0.1}, {"importance": 2}):
        with pytest.raises(SadqError, match=r"must lie in \[0, 1\]"):
            Prioritised(**settings)
    sampler = Prioritised(exponent=0.3, importance=0.2).sampler(RING)
    assert (sampler.exponent, sampler.importance, sampler.store) == (0.3, 0.2, RING)


# Bootstrap masks


def test_masks_keep_their_share_apart_by_network():
    drawn = np.asarray(heard(KEY, jnp.arange(20_000), 3, 0.7))
    assert drawn.shape == (20_000, 3) and drawn.dtype == bool
    np.testing.assert_allclose(drawn.mean(axis=0), 0.7, atol=0.02)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.04
    assert heard(KEY, jnp.arange(50), 3, 1.0).all()


def test_a_mask_is_a_matter_of_the_transition_s_number_alone():
    number = jnp.array([[5, 9, 5], [1000, 9, 0]])
    drawn = np.asarray(heard(KEY, number, 64, 0.5))
    assert drawn.shape == (2, 3, 64)
    np.testing.assert_array_equal(drawn[0, 0], drawn[0, 2])
    np.testing.assert_array_equal(drawn[0, 1], drawn[1, 1])
    assert len(np.unique(drawn.reshape(6, 64), axis=0)) == 4
    assert not np.array_equal(drawn[0, 0], np.asarray(heard(keys.member_key(1), number, 64, 0.5))[0, 0])
