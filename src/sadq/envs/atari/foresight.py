"""Games of which every next step is known: from a moment that is kept, each action is taken by the emulator itself."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from sadq.envs.atari import games
from sadq.envs.atari.cabinet import Cabinet, life_lost
from sadq.envs.atari.emulator import Emulator
from sadq.envs.atari.spec import AtariSpec
from sadq.envs.group import Slot


class Outcomes(NamedTuple):
    """What really follows each action at a state; arrays of several states have their axes in front."""

    observation: np.ndarray  # u8[4, 84, 84]: the state
    reached: np.ndarray  # u8[A, 4, 84, 84]
    reward: np.ndarray  # f32[A]: the signs of the points
    terminated: np.ndarray  # bool[A]: the life or the game ends there


class Foresight:
    """E games of one member, stepped as `AtariEnvironments` steps them, on emulators that can go back.

    Actions that the networks have and the game has not lead nowhere: the state stays as it was, without a reward.
    """

    def __init__(self, spec: AtariSpec, game: str, seed: int, environments: int, purpose: str, single: bool = False):
        self.spec, self.game = spec, game
        self.actions = games.find(game).actions
        self._background = ThreadPoolExecutor(min(environments, os.cpu_count() or 1), "foresight")
        self.cabinets = [
            Cabinet(game, spec, Slot(seed, number), purpose, single, self._background, Emulator)
            for number in range(environments)
        ]

    def reset(self, start: int = 0) -> None:
        """Begin game number `start` everywhere."""
        for cabinet in self.cabinets:
            cabinet.prepare(start)
        for cabinet in self.cabinets:
            cabinet.start(start)

    @property
    def observations(self) -> np.ndarray:
        """What to act on next: u8[E, 4, 84, 84]."""
        return np.stack([cabinet.stack for cabinet in self.cabinets])

    def step(self, actions: Sequence[int]) -> None:
        """Take an action in every game that is not over."""
        reached = np.empty(self.spec.observation_shape, np.uint8)
        for cabinet, action in zip(self.cabinets, actions, strict=True):
            if not cabinet.over:
                cabinet.send(int(action))
                cabinet.receive(reached)

    def outcomes(self) -> Outcomes:
        """What each action leads to in every game, [E] on every array; the games stay where they are."""
        found = [self._outcome(cabinet, self.emulator(number)) for number, cabinet in enumerate(self.cabinets)]
        return Outcomes(*map(np.stack, zip(*found, strict=True)))

    def emulator(self, number: int) -> Emulator:
        """What a game is played on."""
        machine = self.cabinets[number].console
        assert isinstance(machine, Emulator), "games are made with emulators here"
        return machine

    def close(self) -> None:
        """End the threads in which games are started."""
        self._background.shutdown(cancel_futures=True)

    def _outcome(self, cabinet: Cabinet, emulator: Emulator) -> Outcomes:
        count = self.spec.action_count
        reached = np.repeat(cabinet.stack[None], count, axis=0)
        reward, terminated = np.zeros(count, np.float32), np.zeros(count, bool)
        kept = emulator.keep()
        for action in range(self.actions):
            shot = emulator.step(action)
            reached[action, :-1], reached[action, -1] = cabinet.stack[1:], shot.frame
            reward[action] = np.sign(shot.points)
            terminated[action] = shot.over or life_lost(kept.shot, shot)
            emulator.take_up(kept)
        return Outcomes(cabinet.stack.copy(), reached, reward, terminated)
