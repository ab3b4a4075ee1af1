"""A store of stacked frames: a ring of transitions whose observations say where their frames lie, each kept once."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sadq.replay.ring import Ring
from sadq.types import Array, Batch, PyTree, Transition, TransitionSequence

Named = TypeVar("Named", Transition, Batch)


class Frames(NamedTuple):
    """What a `FrameRing` holds. A frame is named by its flat index in `frames`, place * lanes + lane."""

    rows: Transition  # of a `Ring` whose observations are i32[stack]: the names of their frames
    frames: Array  # [places, lanes, *frame]: of every row its newest, then the last ones of episodes, then one of zeros
    newest: Array  # [lanes, *observation shape]: the observation of the newest row
    ends: Array  # i32[lanes]: how many episodes ever ended
    owners: Array  # i32[lasts, lanes]: how many rows were written before the one whose episode's last frame lies there


@dataclass(frozen=True)
class FrameRing(Ring):
    """A `Ring` for observations that are stacks of frames, [stack, *frame], the newest last: a frame is stored once.

    Nothing is assumed about how stacks begin. Each row's frames are named when it is written, by comparing its stack with
    that of the row before: where it is the same moved by one, it goes on; where not, it begins anew, and what lies before
    its newest frame is zeros where they are zero, else that frame repeated. So both kinds of padding come back bit for bit,
    and so does an emulator that keeps its stack running while a life lost ends an episode.

    s' is s moved by one frame: the next row's, or, where the episode ends, its last one, which is kept apart. There is room
    for one such frame in 16 rows; in a lane with more episodes than that, the oldest ones forget theirs and give the newest
    frame of s in its place.
    """

    observation_dtype: np.dtype = np.dtype(np.uint8)  # noqa: RUF009 (a dtype is immutable)

    @property
    def stack(self) -> int:
        return self.observation_shape[0]

    @property
    def turn(self) -> int:
        """Places that the rows' frames go round in.

        The stack of the oldest row reaches stack - 1 frames further back, and s' of the newest one frame further ahead.
        With room for these no row that can be sampled ever names a frame that was overwritten.
        """
        return self.rows + self.stack

    @property
    def lasts(self) -> int:
        """How many last frames there is room for in each lane."""
        return min(self.rows, max(self.rows // 16, 16))

    @property
    def _named(self) -> Ring:
        """The ring of rows, with names for frames."""
        shape, dtype = (self.stack,), np.dtype(np.int32)
        rest = self.has_masks, self.steps, self.time_limit_is_terminal
        return Ring(self.capacity, self.lanes, shape, self.action_count, dtype, *rest)

    def init(self) -> PyTree:
        """`Frames`."""
        places = self.turn + self.lasts + 1
        rows = self._named.init()
        nothing = jnp.full_like(rows.observation, self._zeros)
        return Frames(
            rows=rows._replace(observation=nothing, next_observation=nothing),
            frames=jnp.zeros((places, self.lanes, *self.observation_shape[1:]), self.observation_dtype),
            newest=jnp.zeros((self.lanes, *self.observation_shape), self.observation_dtype),
            ends=jnp.zeros(self.lanes, jnp.int32),
            owners=jnp.zeros((self.lasts, self.lanes), jnp.int32),
        )

    def add(self, contents: PyTree, written: Array, collected: Transition) -> PyTree:
        count, lane = collected.reward.shape[0], jnp.arange(self.lanes)
        place = (written + jnp.arange(count + 1)) % self.turn
        own = place[:, None] * self.lanes + lane  # the names of the rows' newest frames, and of one frame more
        observation = self._names(contents, written, collected.observation, own[:-1])

        ended = collected.terminated | collected.truncated
        number = contents.ends + jnp.cumsum(ended, axis=0) - ended
        ends = contents.ends + jnp.sum(ended, axis=0)
        kept = ended & (number >= ends - self.lasts)
        slot = number % self.lasts
        last = (self.turn + slot) * self.lanes + lane
        following = jnp.where(kept, last, jnp.where(ended, own[:-1], own[1:]))
        next_observation = jnp.concatenate([observation[..., 1:], following[..., None]], axis=-1)

        reached = collected.next_observation[:, :, -1]
        seen = jnp.concatenate([collected.observation[:, :, -1], reached[-1:]]).astype(contents.frames.dtype)
        # Frames are only written here, never read, which is what `newest` is kept apart for: a compiler that cannot tell
        # that a read comes first copies all of them. Those that are not kept go beyond the end, where nothing is written,
        # each to another place, for writes to places that are all different need no order.
        step = jnp.arange(count)[:, None]
        beside = jnp.where(kept, self.turn + slot, contents.frames.shape[0] + step)
        frames = contents.frames.at[place].set(seen, unique_indices=True)
        frames = frames.at[beside, lane].set(reached.astype(frames.dtype), mode="drop", unique_indices=True)

        named = collected._replace(observation=observation, next_observation=next_observation)
        owners = contents.owners.at[jnp.where(kept, slot, self.lasts + step), lane]
        return Frames(
            rows=self._named.add(self._forgetting(contents, kept, slot, last), written, named),
            frames=frames,
            newest=collected.observation[-1].astype(contents.newest.dtype),
            ends=ends,
            owners=owners.set(written + step, mode="drop", unique_indices=True),
        )

    def one_step(self, contents: PyTree, position: Array) -> Transition:
        return self._shown(contents, self._named.one_step(contents.rows, position))

    def n_step(self, contents: PyTree, position: Array, discount: Array) -> Batch:
        # Names are cheap to choose among: only the frames of the window's two ends are ever fetched.
        return self._shown(contents, self._named.n_step(contents.rows, position, discount))

    def sequence(self, contents: PyTree, position: Array, length: int, written: Array) -> TransitionSequence:
        named = self._named.sequence(contents.rows, position, length, written)
        return named._replace(transition=self._shown(contents, named.transition))

    @property
    def _zeros(self) -> int:
        """The name of a frame of zeros."""
        return (self.turn + self.lasts) * self.lanes

    def _names(self, contents: Frames, written: Array, stacks: Array, own: Array) -> Array:
        """The names i32[T, lanes, stack] of the frames of stacks [T, lanes, stack, *frame], given their newest ones'."""
        moved = jnp.concatenate([contents.newest[None], stacks[:-1].astype(contents.newest.dtype)])[:, :, 1:]
        older = stacks[:, :, :-1]
        of_frames = tuple(range(2, older.ndim))
        goes_on = jnp.all(older == moved, axis=of_frames)
        padding = jnp.where(jnp.all(older == 0, axis=of_frames), self._zeros, own)

        def follow(before: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            newest, same, padded = (leaf[:, None] for leaf in row)
            names = jnp.concatenate([jnp.where(same, before[:, 1:], padded), newest], axis=1)
            return names, names

        before = contents.rows.observation[(written - 1) % self.rows]
        return jax.lax.scan(follow, before, (own, goes_on, padding), unroll=8)[1]

    def _forgetting(self, contents: Frames, kept: Array, slot: Array, last: Array) -> Transition:
        """The rows, where those whose last frame is about to be overwritten have let go of it."""
        names, lane = contents.rows.next_observation, jnp.arange(self.lanes)
        owner = contents.owners[slot, lane]
        # The row may have been overwritten itself since then.
        held = kept & (names[owner % self.rows, lane, -1] == last)
        row = jnp.where(held, owner % self.rows, self.rows)
        instead = owner % self.turn * self.lanes + lane
        return contents.rows._replace(next_observation=names.at[row, lane, -1].set(instead, mode="drop"))

    def _shown(self, contents: Frames, named: Named) -> Named:
        """Transitions with frames in place of their names."""
        frames = contents.frames.reshape(-1, *self.observation_shape[1:])
        return named._replace(observation=frames[named.observation], next_observation=frames[named.next_observation])
