"""The ring gives back what was written, and its n-step view stops where episodes do."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.replay import Ring
from sadq.types import Transition

ENVIRONMENTS = 2


def rows(first: int, count: int, **flags) -> Transition:
    """Rows whose numbers say where they come from: environment e at step t has reward 10 t + e."""
    time = np.arange(first, first + count)[:, None] + np.zeros((1, ENVIRONMENTS), int)
    reward = 10.0 * time + np.arange(ENVIRONMENTS)
    off = np.zeros(time.shape, bool)
    return Transition(
        observation=jnp.asarray(time[..., None], jnp.float32),
        action=jnp.asarray(time % 3),
        reward=jnp.asarray(reward, jnp.float32),
        next_observation=jnp.asarray(time[..., None] + 1, jnp.float32),
        terminated=jnp.asarray(flags.get("terminated", off)),
        truncated=jnp.asarray(flags.get("truncated", off)),
    )


def make(capacity: int = 12, steps: int = 1, **fields) -> Ring:
    return Ring(capacity, ENVIRONMENTS, 1, 3, steps=steps, **fields)


@pytest.mark.parametrize("count", [2, 4])  # 4 rows do not divide the ring's 6, so a write straddles its end
def test_the_newest_rows_overwrite_the_oldest(count):
    ring, state = make(), make().init()
    for first in range(0, 3 * count, count):
        state = ring.add(state, jnp.int32(first), rows(first, count))
    kept = np.sort(np.asarray(state.reward[:, 0]) / 10)
    np.testing.assert_array_equal(kept, np.arange(3 * count)[-6:])


def test_bytes_are_those_that_are_allocated():
    ring = make(1000, has_masks=True)
    assert ring.nbytes == sum(leaf.nbytes for leaf in ring.init() if leaf is not None)


def test_n_step_rewards_are_discounted_and_summed():
    ring = make(steps=3)
    state = ring.add(ring.init(), jnp.int32(0), rows(0, 6))
    batch = ring.n_step(state, jnp.array([0, 1]), jnp.float32(0.5))
    np.testing.assert_allclose(batch.reward, [0 + 0.5 * 10 + 0.25 * 20, 1 + 0.5 * 11 + 0.25 * 21])
    np.testing.assert_allclose(batch.discount, 0.125)
    np.testing.assert_array_equal(batch.next_observation[:, 0], 3)


@pytest.mark.parametrize("time_limit_is_terminal", [False, True])
def test_the_return_ends_with_the_episode(time_limit_is_terminal):
    """Environment 0 terminates and environment 1 is truncated, both at step 1."""
    ring = make(steps=3, time_limit_is_terminal=time_limit_is_terminal)
    ends = np.zeros((6, 2), bool)
    terminated, truncated = ends.copy(), ends.copy()
    terminated[1, 0] = truncated[1, 1] = True
    state = ring.add(ring.init(), jnp.int32(0), rows(0, 6, terminated=terminated, truncated=truncated))
    batch = ring.n_step(state, jnp.array([0, 1]), jnp.float32(0.5))
    np.testing.assert_allclose(batch.reward, [0 + 0.5 * 10, 1 + 0.5 * 11])
    np.testing.assert_array_equal(batch.next_observation[:, 0], 2)
    np.testing.assert_allclose(batch.discount, [0.0, 0.0 if time_limit_is_terminal else 0.25])


def test_the_n_step_view_wraps_around_the_end_of_the_ring():
    ring = make(steps=3)
    state = ring.add(ring.init(), jnp.int32(0), rows(0, 6))
    state = ring.add(state, jnp.int32(6), rows(6, 2))
    batch = ring.n_step(state, jnp.array([5 * ENVIRONMENTS]), jnp.float32(1.0))
    np.testing.assert_allclose(batch.reward, 50 + 60 + 70)


def test_one_step_view_is_what_was_written():
    ring = make(steps=3)
    state = ring.add(ring.init(), jnp.int32(0), rows(0, 6))
    seen = ring.one_step(state, jnp.array([[2, 3], [4, 5]]))
    np.testing.assert_array_equal(seen.reward, [[10, 11], [20, 21]])
    np.testing.assert_array_equal(seen.next_observation[..., 0], [[2, 2], [3, 3]])


@pytest.mark.parametrize("written", [3, 6, 7, 20])
def test_a_transition_keeps_its_number_while_the_ring_turns(written):
    """Step t of environment e is number 2 t + e of the run, wherever it lies and however often the ring wrapped."""
    ring, state = make(), make().init()
    for first in range(written):
        state = ring.add(state, jnp.int32(first), rows(first, 1))
    held = jnp.arange(ENVIRONMENTS * min(written, ring.rows))
    seen = ring.one_step(state, held)
    step, environment = np.asarray(seen.observation[:, 0]), np.asarray(seen.reward) % 10
    np.testing.assert_array_equal(ring.number(held, jnp.int32(written)), ENVIRONMENTS * step + environment)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_model_s_view_is_one_step_whatever_n_is(steps):
    single = make(steps=steps).single_steps
    assert (single.steps, single.rows) == (1, make(steps=steps).rows)
