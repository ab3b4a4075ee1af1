"""A row of host environments stepped one after another, in this process or, unchanged, in a worker's."""

import enum
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from sadq.envs import contract
from sadq.envs.contract import HostSpec
from sadq.envs.shared import Board
from sadq.errors import SadqError

IDLE = -1
"""The action that leaves an environment alone for a step; what it answers then is zeros."""

LONGEST_EPISODE = 20_000
"""Steps in an environment without a time limit after which an episode is taken for one that never ends."""

EVALUATE = "evaluate"
"""The purpose of environments that are left as they are where an episode ends, until they are reset."""


class HostStep(NamedTuple):
    """What a batch of environments answers to its actions; leading axes [M, E], or those of a `Part`."""

    reward: np.ndarray  # f32[...]
    next_observation: np.ndarray  # [..., *observation_shape], of the state really reached
    terminated: np.ndarray  # bool[...]
    truncated: np.ndarray  # bool[...], never together with `terminated`
    next_mask: np.ndarray | None  # bool[..., A]: legal actions at `next_observation`
    observation: np.ndarray  # [..., *observation_shape], to act on next: of a new episode where the last one ended
    mask: np.ndarray | None  # bool[..., A]: legal actions at `observation`
    going: np.ndarray | None = None  # bool[...]: still to be stepped in evaluation; None: until its episode ends


SavedState = dict[str, np.ndarray]


class Slot(NamedTuple):
    """One environment's place in the fleet."""

    seed: int  # of its member
    environment: int  # its index within the member


class Part(enum.IntEnum):
    """Which environments of every member are meant: all, or those of one half, so that the halves can take turns."""

    WHOLE = 0
    FIRST = 1
    SECOND = 2

    def lanes(self, count: int) -> slice:
        """This part of an axis of `count` environments."""
        return (slice(0, count), slice(0, count // 2), slice(count // 2, count))[self]


class Environments(Protocol):
    """What a loop asks of M x E environments outside JAX."""

    shape: tuple[int, int]  # (M, E)
    exact_resume: bool

    def reset(self, start: int = 0) -> tuple[np.ndarray, np.ndarray | None]: ...

    def step(self, actions: np.ndarray) -> HostStep: ...

    def send(self, actions: np.ndarray) -> None: ...

    def receive(self) -> HostStep: ...

    def measures(self) -> dict[str, np.ndarray]: ...

    def state(self) -> SavedState: ...

    def restore(self, state: Any) -> tuple[np.ndarray, np.ndarray | None]: ...

    def close(self) -> None: ...


def episode_seed(slot: Slot, purpose: str, episode: int) -> int:
    """The seed of an episode: a function of where and which it is, so that it can be replayed alone."""
    sequence = np.random.SeedSequence(slot.seed, spawn_key=(zlib.crc32(purpose.encode()), slot.environment, episode))
    # Some environments keep their seed in an int32.
    return int(sequence.generate_state(1)[0] >> 1)


def checked_shape(name: str, seeds: Sequence[int], environments: int) -> tuple[int, int]:
    """(M, E) for these seeds and this number of environments each."""
    if environments < 1 or len(seeds) == 0 or any(int(seed) != seed or seed < 0 for seed in seeds):
        raise SadqError(
            f"environment {name} got seeds {list(seeds)} and {environments} environments, expected at least one of "
            "each and no negative seed: choose others."
        )
    return len(seeds), environments


def checked_actions(environments: Any, actions: np.ndarray, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """`actions` as an array of integers of that shape, by default the environments' own."""
    array, shape = np.asarray(actions), environments.shape if shape is None else shape
    if array.shape != shape or array.dtype.kind not in "iu":
        raise SadqError(
            f"environment {environments.name} got actions of shape {array.shape} and type {array.dtype}, expected "
            f"integers of shape {shape}: pass one action for each environment of each member."
        )
    numbers = array.ravel().tolist()  # of so few, NumPy takes longer to find the extremes
    lowest, highest = min(numbers), max(numbers)
    if lowest < IDLE or highest >= environments.action_count:
        raise SadqError(
            f"environment {environments.name} got actions from {lowest} to {highest}, expected 0 to "
            f"{environments.action_count - 1}: pass legal ones."
        )
    return array


class EnvironmentGroup:
    """The environments of some rows of a board; each begins its next episode as soon as one has ended, but to evaluate."""

    def __init__(
        self,
        spec: HostSpec,
        slots: Sequence[Slot],
        purpose: str,
        board: Board,
        rows: np.ndarray,
        second: np.ndarray,
    ):
        """`rows` [n] of the board are the slots', and `second` bool[n] says which belong to the second half."""
        self._spec = spec
        self._slots = slots
        self._purpose = purpose
        self._board = board
        # By part: places in this group, and their rows of the board.
        self._places = [np.flatnonzero(chosen).tolist() for chosen in (np.ones_like(second), ~second, second)]
        self._rows = [rows[places] for places in self._places]
        self._episodes = [0] * len(slots)
        self._raw, self._rewards = contract.rows(spec, len(slots)), np.zeros(len(slots))
        self._environments = [contract.build(spec.name, spec.maker) for _ in slots]
        if len({id(environment) for environment in self._environments}) < len(slots):
            self.close()
            raise SadqError(
                f"the factory of environment {spec.name} returned the same object twice, expected a new environment "
                "on each call: make it inside the factory."
            )

    def reset(self, episodes: np.ndarray) -> None:
        """Begin each slot's episode of the given number [n]."""
        self._episodes = episodes.tolist()
        self._begin(self._places[Part.WHOLE])

    def send(self, part: Part, idle: bool) -> None:
        """Nothing yet: in this process environments are stepped when their answers are waited for."""

    def receive(self, part: Part) -> None:
        """Take the board's actions in a part of the environments, but none where it is IDLE."""
        spec, board, environments = self._spec, self._board, self._environments
        places, rows = self._places[part], self._rows[part]
        actions = board.action[rows].tolist()
        if IDLE in actions:
            wanted = [index for index, action in enumerate(actions) if action != IDLE]
            places, rows, actions = [places[i] for i in wanted], rows[wanted], [actions[i] for i in wanted]
        raw, rewards = self._raw[: len(places)], self._rewards[: len(places)]
        masks: list[Any] = []
        terminated, truncated, finished = [], [], []
        for index, place in enumerate(places):
            result = contract.call_step(spec, environments[place], actions[index])
            raw[index], rewards[index], ends, cut, info = contract.checked_step(spec, result)
            masks.append(contract.checked_mask(spec, environments[place], "step", info, final=ends))
            if ends or cut:
                finished.append(place)
                if board.measured is not None:
                    board.measured[rows[index]] = contract.measured(spec, info)
            terminated.append(ends)
            # A time limit may fall on the very step that terminates: then there is nothing to bootstrap from.
            truncated.append(cut and not ends)
        if not places:
            return
        with np.errstate(over="ignore"):
            reward = rewards.astype(np.float32)
        seen = contract.finite(spec, "step", raw, reward)
        board.reward[rows] = reward
        board.terminated[rows], board.truncated[rows] = terminated, truncated
        board.next_observation[rows] = board.observation[rows] = seen
        if board.next_mask is not None and board.mask is not None:
            board.next_mask[rows] = board.mask[rows] = masks
        if finished and self._purpose != EVALUATE:
            for place in finished:
                self._episodes[place] += 1
            self._begin(finished)

    def replay(self, episodes: np.ndarray, lengths: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Begin the given episodes [n] and take their recorded actions, `lengths` [n] of them each, end to end.

        Returns which ended bool[n] before their actions did: those environments have begun the next episode.
        """
        spec, board = self._spec, self._board
        self.reset(episodes)
        ended = np.zeros(len(self._slots), bool)
        splits = np.split(actions, np.cumsum(lengths)[:-1])
        for place, recorded in enumerate(splits):
            for action in recorded.tolist():
                result = contract.call_step(spec, self._environments[place], action)
                observation, _, terminated, truncated, info = contract.checked_step(spec, result)
                mask = contract.checked_mask(spec, self._environments[place], "step", info, final=terminated)
                if terminated or truncated:
                    ended[place] = True
                    self._episodes[place] += 1
                    break
            row = self._rows[Part.WHOLE][place]
            if ended[place]:
                self._begin([place])
            elif len(recorded):
                board.observation[row] = contract.finite(spec, "step", contract.rows(spec, 1, observation))[0]
                if board.mask is not None:
                    board.mask[row] = mask
        return ended

    def close(self) -> None:
        """Close every environment."""
        for environment in self._environments:
            contract.close(self._spec.name, environment)

    def _begin(self, places: Sequence[int]) -> None:
        spec, board = self._spec, self._board
        raw, masks = contract.rows(spec, len(places)), list[Any]()
        for index, place in enumerate(places):
            seed = episode_seed(self._slots[place], self._purpose, self._episodes[place])
            result = contract.call_reset(spec, self._environments[place], seed)
            raw[index], info = contract.checked_reset(spec, result)
            masks.append(contract.checked_mask(spec, self._environments[place], "reset", info))
        rows = self._rows[Part.WHOLE][places]
        board.observation[rows] = contract.finite(spec, "reset", raw)
        if board.mask is not None:
            board.mask[rows] = masks
