"""A fleet of Atari environments, M members times E, behind the interface of `HostEnvironments`."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from sadq.envs.atari import games as arcade
from sadq.envs.atari.cabinet import Cabinet
from sadq.envs.atari.spec import AtariSpec
from sadq.envs.group import IDLE, HostStep, Slot, checked_actions, checked_shape
from sadq.errors import SadqError

SAVED = "actions", "digests", "games", "lengths"
PATIENCE = 10
"""How nice the threads of evaluation are: a hundred games at once would keep the few of training waiting for a core."""


class AtariEnvironments:
    """E games for each of M members, every member with a game of its own choice.

    Rewards are the signs of the points scored, episodes are single lives, and every stack of frames starts with its
    episode: zeros, then the first frame. For the purpose "evaluate" `HostStep.going` says which games are not over;
    those that are stay idle until the next `reset`, and `measures` has their full scores.

    Every game is seeded from (member seed, purpose, environment, game number), so it can be replayed alone. `state`
    holds the actions of the games under way, and `restore` takes them again: 0.13 s of a core to load a game and 0.7 ms
    for each step, all games at once on as many cores as there are. The longest game there is, of 27,000 steps, takes 20
    seconds of a core; those that agents play within 100,000 steps, of some hundreds or thousands of steps, one or two.
    """

    def __init__(
        self,
        spec: AtariSpec,
        seeds: Sequence[int],
        environments: int,
        workers: int | str = 0,
        purpose: str = "collect",
        games: Sequence[str] | None = None,
    ):
        """`games`: of each member; the spec's first one where not given. `workers` are not needed: ALE has threads."""
        self.spec = spec
        self.name = spec.name
        self.observation_shape = spec.observation_shape
        self.observation_dtype = spec.observation_dtype
        self.action_count = spec.action_count
        self.max_steps = spec.max_steps
        self.has_masks = spec.has_masks
        self.workers = 0
        self.exact_resume = True
        """Whether the last `restore` reached just the observations that were saved."""
        self.shape = checked_shape(spec.name, seeds, environments)  # (M, E)
        self.games = _games(spec, len(seeds), games)  # [M]
        self.raw_reward = np.zeros(self.shape)
        """The points of the last step f64[M, E], before their sign was taken."""
        self._limits = np.array([[spec.action_counts[game]] for game in self.games])
        self._evaluates = purpose == "evaluate"
        slots = [
            (game, Slot(int(seed), e))
            for game, seed in zip(self.games, seeds, strict=True)
            for e in range(environments)
        ]
        threads, first = min(len(slots), os.cpu_count() or 1), _yield if self._evaluates else None
        self._background = ThreadPoolExecutor(threads, "atari", first)
        self._cabinets = [Cabinet(game, spec, slot, purpose, self._evaluates, self._background) for game, slot in slots]
        self._sent: list[int] | None = None
        self._started, self._whole = False, True

    def reset(self, start: int = 0) -> tuple[np.ndarray, None]:
        """Begin game number `start` everywhere: (observations [M, E, 4, 84, 84], None)."""
        self._at_rest("reset")
        self._start([start] * len(self._cabinets))
        return self._observations(), None

    def step(self, actions: np.ndarray) -> HostStep:
        """Take actions i32[M, E]; where an episode ends the next one begins right away.

        The action IDLE leaves a game as it is. So does any action for a game that is over, in evaluation.
        """
        self.send(actions)
        return self.receive()

    def send(self, actions: np.ndarray) -> None:
        """Begin a step, which goes on while the caller does something else until `receive`."""
        self._at_rest("stepped")
        if not self._started:
            raise SadqError(f"environment {self.name} was stepped before it was reset: call reset or restore first.")
        taken = self._checked(actions).reshape(-1).tolist()
        self._whole, sent = False, []
        for row, (cabinet, action) in enumerate(zip(self._cabinets, taken, strict=True)):
            if action != IDLE and not cabinet.over:
                cabinet.send(action)
                sent.append(row)
        self._sent, self._whole = sent, True

    def receive(self) -> HostStep:
        """The answers to the actions that were sent."""
        if self._sent is None:
            raise SadqError(
                f"environment {self.name} has no step under way, expected one to receive: send actions first."
            )
        sent, self._sent, self._whole = self._sent, None, False
        count = len(self._cabinets)
        make = np.empty if len(sent) == count else np.zeros
        reached = make((count, *self.observation_shape), np.uint8)
        points, terminated, truncated = np.zeros(count), np.zeros(count, bool), np.zeros(count, bool)
        for row in sent:
            points[row], terminated[row], truncated[row] = self._cabinets[row].receive(reached[row])
        self._whole = True
        observation = reached
        ended = np.flatnonzero(terminated | truncated).tolist()
        if ended:
            observation = reached.copy()
            for row in ended:
                observation[row] = self._cabinets[row].stack
        self.raw_reward = points.reshape(self.shape)
        return HostStep(
            reward=np.sign(self.raw_reward).astype(np.float32),
            next_observation=reached.reshape(self.shape + self.observation_shape),
            terminated=terminated.reshape(self.shape),
            truncated=truncated.reshape(self.shape),
            next_mask=None,
            observation=observation.reshape(self.shape + self.observation_shape),
            mask=None,
            going=self._each(not cabinet.over for cabinet in self._cabinets) if self._evaluates else None,
        )

    def measures(self) -> dict[str, np.ndarray]:
        """The scores f64[M, E] of the first games since `reset` or `restore`, so far where they are not over."""
        raw = self._each(cabinet.score for cabinet in self._cabinets).astype(np.float64)
        human = [arcade.human_normalised(game, scores) for game, scores in zip(self.games, raw, strict=True)]
        return {"raw_score": raw, "human_normalised": np.stack(human)}

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs: which games are under way, the actions taken in them, and what these led to."""
        self._at_rest("saved")
        if not self._started:
            raise SadqError(f"environment {self.name} has no state before it was reset: call reset first.")
        return {
            "games": self._each(cabinet.number for cabinet in self._cabinets),
            "lengths": self._each(len(cabinet.taken) for cabinet in self._cabinets),
            # Of one environment after another.
            "actions": np.frombuffer(b"".join(cabinet.taken for cabinet in self._cabinets), np.uint8),
            "digests": self._each(np.uint64(cabinet.digest) for cabinet in self._cabinets),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> tuple[np.ndarray, None]:
        """Replay the games of a saved state: (observations to go on from, None), and `exact_resume` is set."""
        self._at_rest("restored")
        if missing := set(SAVED) - state.keys():
            raise SadqError(
                f"the saved state of environment {self.name} lacks {', '.join(sorted(missing))}: it does not belong to "
                "this run; restore one that was saved with this environment."
            )
        recorded = self._recorded(state["lengths"], state["actions"])
        numbers = state["games"].reshape(-1).tolist()
        self._start(numbers)
        self._whole = False
        scratch = np.empty(self.observation_shape, np.uint8)
        playing = [(*one, number) for *one, number in zip(self._cabinets, recorded, numbers, strict=True)]
        for step in range(max(map(len, recorded))):
            # A game that ends before its actions do is not the one that was saved.
            playing = [
                (cabinet, taken, number)
                for cabinet, taken, number in playing
                if step < len(taken) and cabinet.number == number and not cabinet.over
            ]
            for cabinet, taken, _ in playing:
                cabinet.send(taken[step])
            for cabinet, *_ in playing:
                cabinet.receive(scratch)
        self._whole = True
        reached = self.state()
        self.exact_resume = all(np.array_equal(reached[key], state[key]) for key in SAVED)
        return self._observations(), None

    def close(self) -> None:
        """End the consoles and their threads."""
        self._whole = False
        self._background.shutdown(cancel_futures=True)
        self._cabinets = []

    def _start(self, numbers: Sequence[int]) -> None:
        self._whole = False
        for cabinet, number in zip(self._cabinets, numbers, strict=True):
            cabinet.prepare(number)
        for cabinet, number in zip(self._cabinets, numbers, strict=True):
            cabinet.start(number)
        self._started, self._whole = True, True

    def _observations(self) -> np.ndarray:
        stacks = np.stack([cabinet.stack for cabinet in self._cabinets])
        return stacks.reshape(self.shape + self.observation_shape)

    def _each(self, values: Iterator[object]) -> np.ndarray:
        return np.array(list(values)).reshape(self.shape)

    def _at_rest(self, what: str) -> None:
        """Refuse what cannot be done now: half a step leaves consoles that would answer to the wrong action."""
        if not self._whole:
            raise SadqError(
                f"environment {self.name} was closed or interrupted, expected it running: make a new one and restore "
                "its state."
            )
        if self._sent is not None:
            raise SadqError(
                f"environment {self.name} was {what} with a step under way, expected none: receive it first."
            )

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        array = checked_actions(self, actions)
        wrong = array >= self._limits
        if wrong.any():
            member = int(np.flatnonzero(wrong.any(axis=1))[0])
            raise SadqError(
                f"environment {self.name} got action {array[wrong][0]} for member {member}, which plays "
                f"{self.games[member]}, expected 0 to {self._limits[member, 0] - 1}: pass actions of that game."
            )
        return array

    def _recorded(self, lengths: np.ndarray, actions: np.ndarray) -> list[list[int]]:
        """The saved actions of each environment."""
        fits = lengths.shape == self.shape and int(lengths.sum()) == len(actions)
        recorded = [part.tolist() for part in np.split(actions, np.cumsum(lengths)[:-1])] if fits else []
        limits = np.repeat(self._limits[:, 0], self.shape[1]).tolist()
        if not fits or any(max(taken, default=0) >= limit for taken, limit in zip(recorded, limits, strict=True)):
            raise SadqError(
                f"the saved state of environment {self.name} has games of shape {lengths.shape} and other actions than "
                f"the {self.shape} games here have: restore it with the games, seeds and environments it was saved with."
            )
        return recorded


def _yield() -> None:
    """Let others go first from now on: this thread, and with it those of the consoles that it makes."""
    if sys.platform == "linux":  # elsewhere the whole process would
        os.nice(PATIENCE)


def _games(spec: AtariSpec, members: int, games: Sequence[str] | None) -> tuple[str, ...]:
    """The game of each member."""
    chosen = (spec.games[0],) * members if games is None else tuple(games)
    if len(chosen) != members or not set(chosen) <= set(spec.games):
        raise SadqError(
            f"environment {spec.name} got the games {list(chosen)} for {members} members, expected one of "
            f"{', '.join(spec.games)} for each member: name that many of those."
        )
    return chosen
