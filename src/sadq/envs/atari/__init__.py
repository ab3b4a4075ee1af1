"""Atari: the 26 games of Atari-100K, emulated by ALE outside JAX, a console of its own for every environment."""

from sadq.envs.atari.environments import AtariEnvironments
from sadq.envs.atari.games import GAMES, human_normalised
from sadq.envs.atari.spec import AtariSpec

__all__ = ["GAMES", "AtariEnvironments", "AtariSpec", "human_normalised"]
