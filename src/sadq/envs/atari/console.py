"""One emulated console with a game in it: seeded starts, and steps in two halves."""

from typing import NamedTuple

import numpy as np

from sadq.envs.atari import games
from sadq.envs.atari.spec import FRAME_SKIP, SIZE, AtariSpec
from sadq.errors import SadqError


class Shot(NamedTuple):
    """What a console shows after a step."""

    frame: np.ndarray  # u8[84, 84]
    points: int  # scored in the step, as the game counts them
    lives: int
    over: bool  # the game is
    late: bool  # the time limit was reached, and the game is not over


class Console:
    """ALE's vector environment of a single game, which is stepped by a thread of its own.

    One such console for each environment, rather than one vector environment for all, because a vector environment
    steps all of its games or none, while after a lost life FIRE has to be pressed in one game only, an idle game must
    wait, and games are replayed for different numbers of steps. It is no slower: stepping goes on in all consoles at
    once, in C++, without Python's lock.
    """

    def __init__(self, game: str, spec: AtariSpec):
        facts = games.find(game)
        # Frames are stacked by us: the stack has to start anew also after a lost life. So are lives told, since ALE's
        # own option for them throws the rest of the game away.
        self._vector = games.vector_environment()(
            facts.rom,
            1,
            num_threads=1,
            max_num_frames_per_episode=spec.max_frames,
            repeat_action_probability=spec.sticky,
            img_height=SIZE,
            img_width=SIZE,
            grayscale=True,
            stack_num=1,
            frameskip=FRAME_SKIP,
            maxpool=True,
            noop_max=spec.noop_max,
            use_fire_reset=spec.fire_on_reset,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
        )
        self._actions = [np.array([action]) for action in range(int(self._vector.single_action_space.n))]
        if len(self._actions) != facts.actions:
            raise SadqError(
                f"ale-py gives {game} {len(self._actions)} actions, expected {facts.actions}: install another version."
            )

    def begin(self, seed: int) -> Shot:
        """Start a new game, which is a function of the seed and of the actions that follow, and of nothing before."""
        # Loading the ROM again, as ALE does with a seed, takes as long as some 300 steps. Without it some games
        # (Seaquest, Assault) start from what the one before has left in the console's memory.
        frames, information = self._vector.reset(seed=np.array([seed]))
        return Shot(frames[0, 0], 0, int(information["lives"][0]), False, False)

    def send(self, action: int) -> None:
        """Begin a step."""
        self._vector.send(self._actions[action])

    def receive(self) -> Shot:
        """Wait for the step's end."""
        frames, points, over, late, information = self._vector.recv()
        return Shot(frames[0, 0], int(points[0]), int(information["lives"][0]), bool(over[0]), bool(late[0]))
