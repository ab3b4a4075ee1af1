"""What an Atari environment is before any game is loaded: its games, their settings and the shapes they have."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from sadq.envs.atari import games
from sadq.errors import SadqError

PREFIX = "atari/"
FRAME_SKIP = 4
"""Frames that an action is held for; a step shows the maximum of the last two of them."""
SIZE = 84
"""Rows and columns of a picture."""
MOST_ACTIONS = 18
"""That the joystick and its button make together: no game has more."""
MOST_FRAMES = 2**31 - 1
"""That ALE can count."""


@dataclasses.dataclass(frozen=True)
class AtariSpec:
    """One or several games as a fleet plays them; it has what `HostSpec` has for environments of Gymnasium's.

    The emulation is that of "NoFrameskip": the minimal action set of each game, frames skipped by repeating the action,
    84 x 84 grey pixels, the last four of them stacked, and before an episode's first frame there are zeros.
    """

    games: tuple[str, ...]
    noop_max: int = 30
    """A game starts after a random number of frames of doing nothing, fewer than this; 0 is none."""
    fire_on_reset: bool = True
    """Whether FIRE is pressed to start a game and to go on after a lost life, in games that have it."""
    max_frames: int = 108_000
    """Frames after which a game is truncated: half an hour."""
    sticky: float = 0.0
    """The probability that the console holds the previous action for another frame instead of taking the new one."""
    actions: int | None = None
    """Actions of the networks, the rest of which a game never takes; None: those of the game with the most."""

    frame_stack: ClassVar[int] = 4
    """Frames of an observation, oldest first, each of which but the last was the last of an earlier observation."""
    observation_shape: ClassVar[tuple[int, ...]] = (frame_stack, SIZE, SIZE)
    observation_dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)
    has_masks: ClassVar[bool] = False
    action_start: ClassVar[int] = 0
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.games or len(set(self.games)) < len(self.games):
            raise SadqError(
                f"Atari games are {list(self.games)}, expected at least one and none twice: name each once."
            )
        for game in self.games:
            games.find(game)
        for setting, least in (("noop_max", 0), ("max_frames", 1)):
            frames = getattr(self, setting)
            if not _whole(frames) or not least <= frames <= MOST_FRAMES:
                self._refuse(setting, f"a whole number of frames from {least} to {MOST_FRAMES:,}")
        if not isinstance(self.fire_on_reset, bool):
            self._refuse("fire_on_reset", "true or false")
        if isinstance(self.sticky, bool) or not isinstance(self.sticky, int | float) or not 0 <= self.sticky < 1:
            self._refuse("sticky", "a probability from 0 to below 1")
        most = max(self.action_counts.values())
        if self.actions is not None and (not _whole(self.actions) or not most <= self.actions <= MOST_ACTIONS):
            self._refuse("actions", f"a whole number from {most}, which the games have, to {MOST_ACTIONS}")

    @classmethod
    def named(cls, name: str, settings: Mapping[str, Any]) -> "AtariSpec":
        """The spec of "atari/Breakout", or of several games as in "atari/Breakout,Pong"."""
        known = [field.name for field in dataclasses.fields(cls) if field.name != "games"]
        if unknown := sorted(settings.keys() - set(known)):
            raise SadqError(f"{name} has no setting {', '.join(unknown)}, expected {', '.join(known)}: choose those.")
        return cls(tuple(game.strip() for game in re.split("[,+]", name.removeprefix(PREFIX))), **settings)

    def check_playable(self) -> None:
        """Refuse games that cannot be played here, while nothing was written that would be of no use."""
        for game in self.games:
            games.rom_path(games.find(game).rom)

    @property
    def name(self) -> str:
        """The name that leads back here, but for the settings."""
        return PREFIX + ",".join(self.games)

    @property
    def action_counts(self) -> dict[str, int]:
        """The size of each game's minimal action set."""
        return {game: games.find(game).actions for game in self.games}

    @property
    def action_count(self) -> int:
        """The actions of a network that plays any of the games."""
        return self.actions or max(self.action_counts.values())

    @property
    def padded(self) -> bool:
        """Whether a game has fewer actions than the networks."""
        return min(self.action_counts.values()) < self.action_count

    @property
    def max_steps(self) -> int:
        """Steps after which a game is truncated."""
        return -(-self.max_frames // FRAME_SKIP)

    def _refuse(self, setting: str, expected: str) -> None:
        raise SadqError(f"{self.name} has {setting} = {getattr(self, setting)!r}, expected {expected}: choose another.")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def names() -> list[str]:
    """The environments of one game each."""
    return [PREFIX + game for game in games.GAMES]


def meant(name: str) -> list[str]:
    """The environment of the game that goes by this name elsewhere; nothing if none does."""
    return [PREFIX + game for game in games.meant(name)]
