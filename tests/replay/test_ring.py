"""The ring gives back what was written, and its n-step and sequence views stop where episodes do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.replay import Ring
from sadq.types import Transition

LANES = 2


def rows(first: int, count: int, **flags) -> Transition:
    """Rows whose numbers say where they come from: lane e at step t has reward 10 t + e."""
    time = np.arange(first, first + count)[:, None] + np.zeros((1, LANES), int)
    reward = 10.0 * time + np.arange(LANES)
    off = np.zeros(time.shape, bool)
    return Transition(
        observation=jnp.asarray(time[..., None], jnp.float32),
        action=jnp.asarray(time % 3),
        reward=jnp.asarray(reward, jnp.float32),
        next_observation=jnp.asarray(time[..., None] + 1, jnp.float32),
        terminated=jnp.asarray(flags.get("terminated", off)),
        truncated=jnp.asarray(flags.get("truncated", off)),
        mask=flags.get("mask"),
        next_mask=flags.get("next_mask"),
    )


def make(capacity: int = 12, steps: int = 1, **fields) -> Ring:
    return Ring(capacity, LANES, (1,), 3, steps=steps, **fields)


def ends_at(count: int, *places: tuple[int, int]) -> np.ndarray:
    """Flags [count, lanes] that are set at (step, lane)."""
    flags = np.zeros((count, LANES), bool)
    for place in places:
        flags[place] = True
    return flags


@pytest.mark.parametrize("count", [2, 4])  # 4 rows do not divide the ring's 6, so a write straddles its end
def test_the_newest_rows_overwrite_the_oldest(count):
    ring, contents = make(), make().init()
    for first in range(0, 3 * count, count):
        contents = ring.add(contents, jnp.int32(first), rows(first, count))
    kept = np.sort(np.asarray(contents.reward[:, 0]) / 10)
    np.testing.assert_array_equal(kept, np.arange(3 * count)[-6:])
    written = np.asarray(ring.one_step(contents, jnp.arange(12)).observation[:, 0])
    np.testing.assert_array_equal(written[::2] % 6, np.arange(6), "step t lies in row t modulo the rows")


def test_bytes_are_those_that_are_allocated():
    for ring in (make(1000, has_masks=True), make(1000), make(1000, observation_dtype=np.dtype(np.uint8))):
        assert ring.nbytes == sum(leaf.nbytes for leaf in ring.init() if leaf is not None)
    assert make(1000).init().mask is None


def test_there_are_as_many_rows_as_fit_and_at_least_one_window():
    assert (make(12).rows, make(13).rows, make(2, steps=3).rows) == (6, 6, 3)


# The n-step view


def test_n_step_rewards_are_discounted_and_summed():
    ring = make(steps=3)
    contents = ring.add(ring.init(), jnp.int32(0), rows(0, 6))
    batch = ring.n_step(contents, jnp.array([0, 1]), jnp.float32(0.5))
    np.testing.assert_allclose(batch.reward, [0 + 0.5 * 10 + 0.25 * 20, 1 + 0.5 * 11 + 0.25 * 21])
    np.testing.assert_allclose(batch.discount, 0.125)
    np.testing.assert_array_equal(batch.observation[:, 0], 0)
    np.testing.assert_array_equal(batch.next_observation[:, 0], 3)


@pytest.mark.parametrize("time_limit_is_terminal", [False, True])
def test_the_return_ends_with_the_episode(time_limit_is_terminal):
    """Lane 0 terminates and lane 1 is truncated, both at step 1."""
    ring = make(steps=3, time_limit_is_terminal=time_limit_is_terminal)
    flags = {"terminated": ends_at(6, (1, 0)), "truncated": ends_at(6, (1, 1))}
    contents = ring.add(ring.init(), jnp.int32(0), rows(0, 6, **flags))
    batch = ring.n_step(contents, jnp.array([0, 1]), jnp.float32(0.5))
    np.testing.assert_allclose(batch.reward, [0 + 0.5 * 10, 1 + 0.5 * 11])
    np.testing.assert_array_equal(batch.next_observation[:, 0], 2)
    np.testing.assert_allclose(batch.discount, [0.0, 0.0 if time_limit_is_terminal else 0.25])
    ended = ring.terminal(ring.one_step(contents, jnp.array([0, 1, 2, 3])))
    np.testing.assert_array_equal(ended, [False, False, True, time_limit_is_terminal])


def test_the_n_step_view_wraps_around_the_end_of_the_ring():
    ring = make(steps=3)
    contents = ring.add(ring.init(), jnp.int32(0), rows(0, 6))
    contents = ring.add(contents, jnp.int32(6), rows(6, 2))
    batch = ring.n_step(contents, jnp.array([5 * LANES]), jnp.float32(1.0))
    np.testing.assert_allclose(batch.reward, 50 + 60 + 70)


def by_hand(steps: int, position: int, written: int, reward, terminated, truncated, limit_ends: bool):
    """(return, discount, s') of a window in a ring of 6 rows, walked step by step; gamma 0.5."""
    row, lane = divmod(position, LANES)
    step = max(one for one in range(written) if one % 6 == row)
    total, factor = 0.0, 1.0
    for now in range(step, step + steps):
        total += factor * reward[now, lane]
        factor *= 0.5
        if terminated[now, lane] or truncated[now, lane]:
            break
    ends = terminated[now, lane] or (limit_ends and truncated[now, lane])
    return total, 0.0 if ends else factor, now + 1


@pytest.mark.parametrize(("steps", "limit_ends"), [(1, False), (2, True), (4, False), (4, True)])
def test_every_window_is_what_a_walk_through_its_steps_gives(steps, limit_ends):
    """Episodes of random lengths in a ring that has turned twice; all rows whose window is complete."""
    written = 17
    random = np.random.default_rng(steps)
    terminated = random.random((written, LANES)) < 0.2
    truncated = (random.random((written, LANES)) < 0.2) & ~terminated
    ring = make(steps=steps, time_limit_is_terminal=limit_ends)
    contents, reward = ring.init(), []
    for first in range(written):
        flags = {"terminated": terminated[first : first + 1], "truncated": truncated[first : first + 1]}
        one = rows(first, 1, **flags)
        contents = ring.add(contents, jnp.int32(first), one)
        reward.append(np.asarray(one.reward[0]))
    complete = [step % 6 * LANES + lane for step in range(written - 6, written - steps + 1) for lane in range(LANES)]
    batch = ring.n_step(contents, jnp.array(complete), jnp.float32(0.5))
    expected = [
        by_hand(steps, position, written, np.stack(reward), terminated, truncated, limit_ends) for position in complete
    ]
    np.testing.assert_allclose(
        np.stack([batch.reward, batch.discount], axis=1), [one[:2] for one in expected], rtol=1e-6
    )
    np.testing.assert_array_equal(batch.next_observation[:, 0], [one[2] for one in expected])


def test_masks_are_those_of_the_window_s_two_ends():
    ring = make(steps=2, has_masks=True)
    step = np.arange(6)[:, None, None] + np.zeros((1, LANES, 3), int)
    mask, following = step % 3 == np.arange(3), (step + 1) % 3 == np.arange(3)
    flags = {"mask": jnp.asarray(mask), "next_mask": jnp.asarray(following), "terminated": ends_at(6, (0, 1))}
    batch = ring.n_step(ring.add(ring.init(), jnp.int32(0), rows(0, 6, **flags)), jnp.arange(4), jnp.float32(0.9))
    np.testing.assert_array_equal(batch.mask, np.eye(3, dtype=bool)[[0, 0, 1, 1]])
    # Step 0 of lane 1 ends its episode, so that its s' is that of step 0 and not of step 1.
    np.testing.assert_array_equal(batch.next_mask, np.eye(3, dtype=bool)[[2, 1, 0, 0]])


# Other views


def test_one_step_view_is_what_was_written():
    ring = make(steps=3)
    contents = ring.add(ring.init(), jnp.int32(0), rows(0, 6))
    seen = ring.one_step(contents, jnp.array([[2, 3], [4, 5]]))
    np.testing.assert_array_equal(seen.reward, [[10, 11], [20, 21]])
    np.testing.assert_array_equal(seen.next_observation[..., 0], [[2, 2], [3, 3]])
    assert seen.action.dtype == jnp.int32 and seen.reward.dtype == jnp.float32


@pytest.mark.parametrize("written", [3, 6, 7, 20])
def test_a_transition_keeps_its_number_while_the_ring_turns(written):
    """Step t of lane e is number 2 t + e of the run, wherever it lies and however often the ring wrapped."""
    ring, contents = make(), make().init()
    for first in range(written):
        contents = ring.add(contents, jnp.int32(first), rows(first, 1))
    held = jnp.arange(LANES * min(written, ring.rows))
    seen = ring.one_step(contents, held)
    step, lane = np.asarray(seen.observation[:, 0]), np.asarray(seen.reward) % 10
    np.testing.assert_array_equal(ring.number(held, jnp.int32(written)), LANES * step + lane)


@pytest.mark.parametrize("written", [4, 6, 9])  # partly empty, just full, and turned
def test_a_sequence_ends_with_its_episode_and_with_what_is_stored(written):
    """Lane 0 terminates at step 4 and lane 1 is truncated at step 7; every position that holds something is asked."""
    flags = {"terminated": ends_at(9, (4, 0)), "truncated": ends_at(9, (7, 1))}
    every, ring, contents = rows(0, 9, **flags), make(), make().init()
    for first in range(written):
        contents = ring.add(contents, jnp.int32(first), jax.tree.map(lambda leaf: leaf[first : first + 1], every))
    stored = [(step, lane) for step in range(max(0, written - 6), written) for lane in range(LANES)]
    position = jnp.array([step % 6 * LANES + lane for step, lane in stored])
    found = jax.jit(lambda position: ring.sequence(contents, position, 4, jnp.int32(written)))(position)
    assert found.valid.shape == (len(stored), 4) and found.transition.observation.shape == (len(stored), 4, 1)
    for index, (step, lane) in enumerate(stored):
        last = min(written - 1, 4 if lane == 0 and step <= 4 else 7 if lane == 1 and step <= 7 else 99)
        np.testing.assert_array_equal(found.valid[index], np.arange(step, step + 4) <= last)
        own = np.asarray(found.transition.reward[index])[np.asarray(found.valid[index])]
        np.testing.assert_array_equal(own, 10.0 * np.arange(step, min(step + 3, last) + 1) + lane)
    assert found.valid[:, 0].all() and not found.valid.all()


def test_images_stay_what_they_are():
    """uint8 in, uint8 stored, uint8 out: [4, 4, 1] frames through a ring that has turned."""
    ring = Ring(8, LANES, (4, 4, 1), 3, observation_dtype=np.dtype(np.uint8), steps=2)
    frames = jax.random.randint(keys.member_key(0), (7, LANES, 4, 4, 1), 0, 256).astype(jnp.uint8)
    contents = ring.init()
    assert contents.observation.shape == (4, LANES, 4, 4, 1) and contents.observation.dtype == jnp.uint8
    for first in range(6):
        one = rows(first, 1)._replace(observation=frames[first][None], next_observation=frames[first + 1][None])
        contents = ring.add(contents, jnp.int32(first), one)
    position = jnp.array([2 * LANES, 3 * LANES + 1, 0 * LANES])  # steps 2, 3 and 4
    batch = ring.n_step(contents, position, jnp.float32(0.9))
    assert batch.observation.dtype == batch.next_observation.dtype == jnp.uint8
    np.testing.assert_array_equal(batch.observation, [frames[2, 0], frames[3, 1], frames[4, 0]])
    np.testing.assert_array_equal(batch.next_observation, [frames[4, 0], frames[5, 1], frames[6, 0]])
    assert ring.nbytes < Ring(8, LANES, (4, 4, 1), 3, steps=2).nbytes / 2
