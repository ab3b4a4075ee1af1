"""One environment of a fleet: game after game, each life of a game an episode."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Executor, Future

import numpy as np

from sadq.envs.atari import games
from sadq.envs.atari.console import Console, Shot
from sadq.envs.atari.emulator import Emulator
from sadq.envs.atari.spec import AtariSpec
from sadq.envs.group import Slot, episode_seed

Machine = Console | Emulator


def life_lost(before: Shot, after: Shot) -> bool:
    """Whether a life was lost between two shots, but not the game.

    In some games the last life is gone some frames before the game is over; that is no new episode.
    """
    return not after.over and 0 < after.lives < before.lives


class Cabinet:
    """The game under way in one environment, with what it takes to replay it.

    A lost life ends an episode; the game goes on with the next one, after FIRE where the game has it. When a game is
    over the next one begins, unless the cabinet is for `single` games. As a seeded start takes as long as some 300
    steps, a second console starts the next game in the background, while this one is played.
    """

    def __init__(
        self,
        game: str,
        spec: AtariSpec,
        slot: Slot,
        purpose: str,
        single: bool,
        background: Executor,
        machine: Callable[[str, AtariSpec], Machine] = Console,
    ):
        """`machine` makes what the games are played on."""
        self.game = game
        self.number = 0
        self.over = False
        """Whether the only game was played to its end."""
        self.taken = bytearray()
        """The actions since the game began, without the presses of FIRE between its lives."""
        self.stack = np.zeros(spec.observation_shape, np.uint8)
        """The observation to act on next."""
        self._spec, self._slot, self._purpose, self._single = spec, slot, purpose, single
        self._fires = spec.fire_on_reset and games.find(game).fires
        self._background, self._machine = background, machine
        self._console: Machine | None = None
        self._shot: Shot
        self._spare: Machine | None = None
        self._coming: tuple[int, Future[tuple[Machine, Shot]]] | None = None
        self._score = 0
        self._first_score: int | None = None

    @property
    def score(self) -> int:
        """The raw score of the first game since `start`, so far or at its end."""
        return self._score if self._first_score is None else self._first_score

    @property
    def console(self) -> Machine:
        """What the game under way is played on."""
        assert self._console is not None, "a cabinet is started before it is looked into"
        return self._console

    @property
    def digest(self) -> int:
        """What the observation is recognised by: 64 bits."""
        return int.from_bytes(hashlib.blake2b(self.stack.data, digest_size=8).digest(), "little")

    def prepare(self, number: int) -> None:
        """Leave the game that is under way, and let game `number` get ready for `start`."""
        if self._coming is None and self._spare is None:
            self._spare, self._console = self._console, None
        self._order(number)

    def start(self, number: int) -> None:
        """Begin game `number` as the first one of which `score` tells."""
        self._first_score = None
        self._begin(number)

    def send(self, action: int) -> None:
        """Begin a step."""
        self.console.send(action)
        self.taken.append(action)

    def receive(self, reached: np.ndarray) -> tuple[int, bool, bool]:
        """End a step: (points, terminated, truncated), and the stack really reached is written to `reached`."""
        lost = self._look()
        shot = self._shot
        self.stack[:-1] = self.stack[1:]
        self.stack[-1] = shot.frame
        reached[...] = self.stack
        terminated = shot.over or lost
        # A life may be lost on the very step that reaches the time limit: then there is nothing to bootstrap from.
        truncated = shot.late and not terminated
        if terminated or truncated:
            self._go_on(lost)
        return shot.points, terminated, truncated

    def _look(self) -> bool:
        """Wait for what the console shows; whether a life was lost on the way there."""
        before, self._shot = self._shot, self.console.receive()
        self._score += self._shot.points
        return life_lost(before, self._shot)

    def _go_on(self, lost: bool) -> None:
        """Begin the episode after one that has just ended."""
        while lost and self._fires and not self._shot.late:
            # What this scores belongs to no step, but to the game's score. Another life may be lost by it.
            self.console.send(games.FIRE)
            lost = self._look()
        if self._shot.over or self._shot.late:
            if self._first_score is None:
                self._first_score = self._score
            self.over = self._single
            if not self._single:
                self._begin(self.number + 1)
        else:
            self._cut()

    def _cut(self) -> None:
        """Make the newest frame the first one of an episode."""
        self.stack[:-1] = 0
        self.stack[-1] = self._shot.frame

    def _begin(self, number: int) -> None:
        self._order(number)
        assert self._coming is not None, "a game was just ordered"
        console, self._shot = self._coming[1].result()
        self._spare, self._console, self._coming = self._console, console, None
        self.number, self.over, self._score = number, False, 0
        self.taken.clear()
        self._cut()
        if not self._single:
            self._order(number + 1)

    def _order(self, number: int) -> None:
        """Let game `number` start in the background, unless it does already."""
        if self._coming is not None:
            coming, started = self._coming
            if coming == number:
                return
            self._spare, _ = started.result()
        self._coming = number, self._background.submit(self._ready, self._spare, number)
        self._spare = None

    def _ready(self, console: Machine | None, number: int) -> tuple[Machine, Shot]:
        if console is None:
            console = self._machine(self.game, self._spec)
        return console, console.begin(episode_seed(self._slot, self._purpose, number))
