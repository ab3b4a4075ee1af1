"""The 26 games of Atari-100K: their names, ROMs and actions, and the scores that "human-normalised" refers to."""

import difflib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sadq.errors import SadqError

FIRE = 1
"""The number of the action FIRE in the minimal action set of every game that has it."""


class Game(NamedTuple):
    """What is known of a game without asking the emulator, which takes a tenth of a second to load one."""

    rom: str  # ALE's name of it
    actions: int  # in its minimal action set
    fires: bool  # whether these include FIRE
    random: float  # the score of random play
    human: float  # the score of a human player


GAMES = {
    "Alien": Game("alien", 18, True, 227.8, 7127.7),
    "Amidar": Game("amidar", 10, True, 5.8, 1719.5),
    "Assault": Game("assault", 7, True, 222.4, 742.0),
    "Asterix": Game("asterix", 9, False, 210.0, 8503.3),
    "BankHeist": Game("bank_heist", 18, True, 14.2, 753.1),
    "BattleZone": Game("battle_zone", 18, True, 2360.0, 37187.5),
    "Boxing": Game("boxing", 18, True, 0.1, 12.1),
    "Breakout": Game("breakout", 4, True, 1.7, 30.5),
    "ChopperCommand": Game("chopper_command", 18, True, 811.0, 7387.8),
    "CrazyClimber": Game("crazy_climber", 9, False, 10780.5, 35829.4),
    "DemonAttack": Game("demon_attack", 6, True, 152.1, 1971.0),
    "Freeway": Game("freeway", 3, False, 0.0, 29.6),
    "Frostbite": Game("frostbite", 18, True, 65.2, 4334.7),
    "Gopher": Game("gopher", 8, True, 257.6, 2412.5),
    "Hero": Game("hero", 18, True, 1027.0, 30826.4),
    "Jamesbond": Game("jamesbond", 18, True, 29.0, 302.8),
    "Kangaroo": Game("kangaroo", 18, True, 52.0, 3035.0),
    "Krull": Game("krull", 18, True, 1598.0, 2665.5),
    "KungFuMaster": Game("kung_fu_master", 14, False, 258.5, 22736.3),
    "MsPacman": Game("ms_pacman", 9, False, 307.3, 6951.6),
    "Pong": Game("pong", 6, True, -20.7, 14.6),
    "PrivateEye": Game("private_eye", 18, True, 24.9, 69571.3),
    "Qbert": Game("qbert", 6, True, 163.9, 13455.0),
    "RoadRunner": Game("road_runner", 18, True, 11.5, 7845.0),
    "Seaquest": Game("seaquest", 18, True, 68.4, 42054.7),
    "UpNDown": Game("up_n_down", 6, True, 533.4, 11693.2),
}


def find(name: str) -> Game:
    """The game of that name, in CamelCase."""
    if name not in GAMES:
        raise SadqError(f"unknown Atari game {name!r}, expected one of the 26 of Atari-100K: {_offer(name, GAMES)}")
    return GAMES[name]


def meant(name: str) -> list[str]:
    """The game that goes by this name elsewhere, as in ALE/Pong-v5 and PongNoFrameskip-v4; nothing if none does."""
    return [game for game in GAMES if _plain(game) == _plain(name)]


def human_normalised(name: str, raw: Any) -> np.ndarray:
    """A game's raw scores on the scale where random play has 0 and the human player 1."""
    game = find(name)
    return (np.asarray(raw, np.float64) - game.random) / (game.human - game.random)


def vector_environment() -> type:
    """ALE's vector environment, imported when first needed: it is an optional extra."""
    try:
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise SadqError(
            'Atari games need ale-py with its vector environment, which is not installed: pip install "sadq[atari]".'
        ) from error
    return AtariVectorEnv


def plain_interface() -> Any:
    """A new ALE of its own, without a game in it."""
    ale = _ale()
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    return ale.ALEInterface()


def rom_path(rom: str) -> Any:
    """Where ale-py keeps a game, which it has looked at."""
    roms = _ale().roms
    try:
        return roms.get_rom_path(rom)
    except OSError as error:
        raise SadqError(
            f"the ROM of {rom} cannot be had from ale-py ({' '.join(str(error).split())}): install ale-py anew, or leave "
            "ALE_ROMS_DIR out of the environment's variables."
        ) from error


def _ale() -> Any:
    vector_environment()  # which says what to install where there is none
    import ale_py

    return ale_py


def _offer(name: str, known: Iterable[str]) -> str:
    names = {_plain(game): game for game in known}
    near = [names[match] for match in difflib.get_close_matches(_plain(name), names, n=3, cutoff=0.5)]
    return f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(known)}."


def _plain(name: str) -> str:
    """A name without what it is often misspelt in, as in ALE's ms_pacman, and without what Gymnasium adds to it."""
    bare = re.sub(r"^ale/|(-ram)?(noframeskip|deterministic)?-v\d+$", "", name.lower())
    return bare.replace("_", "").replace("-", "").replace(" ", "")
