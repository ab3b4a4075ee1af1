"""Environments written in JAX: they run inside the compiled loop, thousands at a time."""

from sadq.envs.native.acrobot import Acrobot
from sadq.envs.native.bitflip import BitFlip
from sadq.envs.native.cartpole import CartPole

__all__ = ["Acrobot", "BitFlip", "CartPole"]
