"""A ring of frames gives back, bit for bit, what a ring of whole stacks does, and holds each frame once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.replay import FrameRing, Ring
from sadq.types import Transition

STACK, FRAME, ACTIONS = 4, (6, 5), 3
DISCOUNT = jnp.float32(0.9)
BEGINNINGS = ("first", "zero", "running")


def stream(steps: int, lanes: int, beginning: str, ending: float, seed: int = 0, masks: bool = False) -> Transition:
    """Transitions [steps, lanes] whose episodes end with probability `ending` at each step.

    `beginning` says what is before an episode's first frame: that frame itself, zeros, or what the emulator showed before,
    as if only a life had been lost; "mixed" takes any of the three anew in each episode.
    """
    random = np.random.default_rng(seed)
    lanes_apart = [_lane(steps, beginning, ending, random) for _ in range(lanes)]
    observation, following, ended = (np.stack(leaves, axis=1) for leaves in zip(*lanes_apart, strict=True))
    terminated = ended & (random.random(ended.shape) < 0.5)
    mask = random.random((steps, lanes, ACTIONS)) < 0.5 if masks else None
    return Transition(
        observation=observation,
        action=random.integers(0, ACTIONS, ended.shape).astype(np.int32),
        reward=random.normal(size=ended.shape).astype(np.float32),
        next_observation=following,
        terminated=terminated,
        truncated=ended & ~terminated,
        mask=mask,
        next_mask=None if mask is None else ~mask,
    )


def _lane(steps: int, beginning: str, ending: float, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    def frame() -> np.ndarray:
        return random.integers(1, 256, FRAME).astype(np.uint8)

    def begun(before: np.ndarray | None) -> np.ndarray:
        kind = random.choice(BEGINNINGS) if beginning == "mixed" else beginning
        if kind == "running" and before is not None:
            return before
        first = frame()
        older = np.zeros_like(first) if kind == "zero" else first
        return np.stack([older] * (STACK - 1) + [first])

    seen, reached, ends = [], [], random.random(steps) < ending
    stack = begun(None)
    for ended in ends:
        seen.append(stack)
        stack = np.concatenate([stack[1:], frame()[None]])
        reached.append(stack)
        stack = begun(stack) if ended else stack
    return np.stack(seen), np.stack(reached), ends


def rows_of(transitions: Transition, first: int, count: int) -> Transition:
    return jax.tree.map(lambda leaf: leaf[first : first + count], transitions)


def pair(rows: int, lanes: int = 1, **fields) -> tuple[FrameRing, Ring]:
    """A ring of frames, and one of whole stacks."""
    arguments = rows * lanes, lanes, (STACK, *FRAME), ACTIONS
    return FrameRing(*arguments, **fields), Ring(*arguments, np.dtype(np.uint8), **fields)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def added(store: Ring, contents, written, collected: Transition):
    return store.add(contents, written, collected)


def filled(store: Ring, transitions: Transition, count: int):
    """(written, contents) after every collect of `count` rows."""
    contents = jax.jit(store.init)()
    for first in range(0, transitions.reward.shape[0], count):
        contents = added(store, contents, jnp.int32(first), rows_of(transitions, first, count))
        yield first + count, contents


@functools.partial(jax.jit, static_argnums=0)
def read(store: Ring, contents, position) -> Transition:
    return store.one_step(contents, position)


def stored(store: Ring, contents, written: int) -> Transition:
    """The transitions at all positions that hold one, oldest first."""
    every = read(store, contents, jnp.arange(store.rows * store.lanes))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[complete(store, written, 1)], every)


@functools.partial(jax.jit, static_argnums=0)
def views(store: Ring, contents, written):
    """All that can be read, at all positions."""
    every = jnp.arange(store.rows * store.lanes)
    return (
        store.one_step(contents, every),
        store.n_step(contents, every, DISCOUNT),
        store.sequence(contents, every, 3, written),
    )


def complete(store: Ring, written: int, steps: int) -> np.ndarray:
    """The positions whose window of `steps` is stored."""
    rows = np.arange(max(0, written - store.rows), written - steps + 1) % store.rows
    return (rows[:, None] * store.lanes + np.arange(store.lanes)).reshape(-1)


def assert_same(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def assert_alike(stores: tuple[FrameRing, Ring], transitions: Transition, count: int) -> None:
    """After every collect, at every position that may be sampled, in every view."""
    frames, whole = stores
    for (written, contents), (_, expected) in zip(
        filled(frames, transitions, count), filled(whole, transitions, count), strict=True
    ):
        found, true = (
            jax.tree.map(np.asarray, views(store, own, jnp.int32(written)))
            for store, own in ((frames, contents), (whole, expected))
        )
        for steps, index in ((1, 0), (whole.steps, 1)):
            where = complete(whole, written, steps)
            assert_same(*(jax.tree.map(lambda leaf: leaf[where], own[index]) for own in (found, true)))
        where = complete(whole, written, 1)
        np.testing.assert_array_equal(found[2].valid[where], true[2].valid[where])
        valid = np.zeros_like(true[2].valid)
        valid[where] = true[2].valid[where]
        assert_same(*(jax.tree.map(lambda leaf: leaf[valid], own[2].transition) for own in (found, true)))


@pytest.mark.parametrize(
    ("rows", "lanes", "count", "steps"),
    [(12, 3, 4, 1), (11, 2, 4, 3), (12, 1, 1, 3), (7, 2, 7, 2), (3, 2, 2, 1)],
)
def test_every_view_is_that_of_a_ring_of_whole_stacks(rows, lanes, count, steps):
    """Over three turns, with ends anywhere in a collect, and collects that divide the ring and that do not."""
    stores = pair(rows, lanes, steps=steps, has_masks=True, time_limit_is_terminal=rows == 11)
    collects = -(-3 * rows // count) + 1
    # With the last one every episode has one step.
    kinds = [*((beginning, 0.3) for beginning in BEGINNINGS), ("mixed", 0.05), ("mixed", 0.6), ("mixed", 1.0)]
    for seed, (beginning, ending) in enumerate(kinds):
        transitions = stream(collects * count, lanes, beginning, ending, seed, masks=True)
        assert_alike(stores, transitions, count)


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("shade", [0, 7])
def test_frames_may_be_black_or_alike(beginning, shade):
    """Half of them are, within episodes and at their ends: nothing takes them for padding, or one for another."""
    transitions = stream(60, 1, beginning, 0.2, seed=3)

    def dulled(stacks: np.ndarray) -> np.ndarray:
        return np.where(stacks[..., :1, :1] < 128, np.where(stacks > 0, shade, 0), stacks).astype(np.uint8)

    changed = transitions._replace(
        observation=dulled(transitions.observation), next_observation=dulled(transitions.next_observation)
    )
    assert_alike(pair(16), changed, 4)


@pytest.mark.parametrize("beginning", ["first", "zero"])
def test_no_stack_has_frames_of_two_episodes(beginning):
    """Every frame says which episode it belongs to; zeros belong to all."""
    transitions = stream(48, 2, beginning, 0.3, seed=8)
    ended = transitions.terminated | transitions.truncated
    episode = 1 + np.cumsum(ended, axis=0) - ended

    def labelled(stacks: np.ndarray) -> np.ndarray:
        return np.where(stacks > 0, episode[:, :, None, None, None], 0).astype(np.uint8)

    # The frames of one episode are all alike now, so what goes on can only be told by the episode.
    told = transitions._replace(
        observation=labelled(transitions.observation), next_observation=labelled(transitions.next_observation)
    )
    frames, _ = pair(16, 2)
    for written, contents in filled(frames, told, 4):
        seen = stored(frames, contents, written)
        for stacks in (seen.observation, seen.next_observation):
            labels = stacks[..., 0, 0]
            newest = labels[:, -1:]
            assert ((labels == newest) | (labels == 0)).all() and (newest > 0).all()
            assert (labels != 0).all() if beginning == "first" else (labels == 0).any()


def test_a_stack_that_begins_otherwise_is_taken_for_its_first_frame_repeated():
    """As where an emulator plays on by itself after an end: what it showed meanwhile was never given to the ring."""
    transitions = stream(12, 1, "first", 0.0)
    ends = np.arange(12)[:, None] == 5
    strange = stream(12, 1, "first", 0.0, seed=1)
    observation, following = transitions.observation.copy(), transitions.next_observation.copy()
    observation[6:], following[6:] = strange.observation[4:10], strange.next_observation[4:10]
    given = transitions._replace(observation=observation, next_observation=following, terminated=ends)
    frames, _ = pair(16)
    *_, (_, contents) = filled(frames, given, 4)
    seen = stored(frames, contents, 12)
    exact = np.r_[:6, 9:12]
    np.testing.assert_array_equal(seen.observation[exact], observation[exact, 0])
    np.testing.assert_array_equal(seen.next_observation[exact], following[exact, 0])
    first = observation[6, 0, -1]
    np.testing.assert_array_equal(seen.observation[6], np.stack([first] * STACK))
    np.testing.assert_array_equal(seen.next_observation[6], np.stack([first] * 3 + [following[6, 0, -1]]))


# Memory


@pytest.mark.parametrize("fields", [{}, {"has_masks": True}])
def test_memory_is_what_is_said(fields):
    frames, whole = pair(1000, 4, **fields)
    assert frames.nbytes == sum(leaf.nbytes for leaf in jax.tree.leaves(frames.init()))
    facts = whole.nbytes - 2 * 4000 * STACK * 30  # of the transitions, beside their stacks
    names, ends = 2 * 4000 * STACK * 4, 4 * (1 + 62) * 4
    pixels = 4 * 30 * (1000 + STACK + 62 + 1 + STACK)
    assert frames.nbytes == facts + names + ends + pixels


def test_a_hundred_thousand_frames_of_atari():
    frames = FrameRing(100_000, 1, (4, 84, 84), 18)
    assert frames.observation_dtype == np.uint8 and frames.rows == 100_000
    assert frames.nbytes == pytest.approx(0.7056e9 + 6250 * 84 * 84, rel=0.01)


def test_a_write_touches_no_more_than_it_writes():
    """In place where the contents are given away: nothing as large as the ring is ever made beside it."""
    frames, _ = pair(20_000, 2)
    collected = jax.eval_shape(lambda: rows_of(jax.tree.map(jnp.asarray, stream(4, 2, "zero", 0.5)), 0, 4))
    add = jax.jit(frames.add, donate_argnums=0)
    memory = add.lower(jax.eval_shape(frames.init), jnp.int32(0), collected).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= frames.nbytes
    assert memory.temp_size_in_bytes < 100_000 < frames.nbytes / 10


# Last frames


def test_last_frames_are_forgotten_where_episodes_are_too_many():
    """Room for 16 in a ring of 64 rows: the newest 16 ends of each lane keep theirs, older ones repeat the newest of s."""
    frames, _ = pair(64, 2)
    assert frames.lasts == 16
    transitions = stream(160, 2, "zero", 0.6, seed=1)
    ended = transitions.terminated | transitions.truncated
    for written, contents in filled(frames, transitions, 8):
        steps, seen = np.arange(max(0, written - 64), written), stored(frames, contents, written)
        found = jax.tree.map(lambda leaf: leaf.reshape(len(steps), 2, *leaf.shape[1:]), seen)
        np.testing.assert_array_equal(found.observation, transitions.observation[steps])
        number = np.cumsum(ended[:written], axis=0)
        forgot = (ended[:written] & (number <= number[-1] - 16))[steps]
        expected = transitions.next_observation[steps].copy()
        expected[forgot, -1] = expected[forgot, -2]
        np.testing.assert_array_equal(found.next_observation, expected)
    assert 0 < forgot.sum() < ended[steps].sum()


def test_a_collect_may_end_more_episodes_than_there_is_room_for():
    frames, _ = pair(64)
    transitions = stream(64, 1, "first", 1.0)
    for count in (64, 32):
        *_, (_, contents) = filled(frames, transitions, count)
        seen = read(frames, contents, jnp.arange(64))
        np.testing.assert_array_equal(seen.observation, transitions.observation[:, 0])
        np.testing.assert_array_equal(seen.next_observation[48:], transitions.next_observation[48:, 0])
        # The frames of a first stack are all alike here, so that one moved by one and repeated at its end is itself.
        np.testing.assert_array_equal(seen.next_observation[:48], transitions.observation[:48, 0])


# Members


def test_members_share_the_counter_and_nothing_else():
    """Under `vmap`, with one place to write for all, each member has what it would have alone."""
    frames, _ = pair(9, 2, steps=2)
    members = [stream(24, 2, beginning, 0.3, seed) for seed, beginning in enumerate(BEGINNINGS)]
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *members)
    add = jax.jit(jax.vmap(frames.add, (0, None, 0)), donate_argnums=0)
    contents = jax.vmap(lambda _: frames.init())(jnp.arange(3))
    for first in range(0, 24, 4):
        collected = jax.tree.map(lambda leaf: leaf[:, first : first + 4], together)
        contents = add(contents, jnp.int32(first), collected)
    position = jnp.asarray(np.stack([np.random.default_rng(one).permutation(18) for one in range(3)]))
    batch = jax.jit(jax.vmap(frames.n_step, (0, 0, None)))(contents, position, DISCOUNT)
    one_by_one = jax.jit(frames.n_step)
    for member, transitions in enumerate(members):
        *_, (_, alone) = filled(frames, transitions, 4)
        assert_same(jax.tree.map(lambda leaf: leaf[member], contents), alone)
        expected = one_by_one(alone, position[member], DISCOUNT)
        assert_same(jax.tree.map(lambda leaf: leaf[member], batch), expected)
