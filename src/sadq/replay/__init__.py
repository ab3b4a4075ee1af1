"""Replay on the device: storage apart from sampling."""

from sadq.replay.samplers import Priorities, Prioritised, Sampled, kept, uniform
from sadq.replay.store import Ring

__all__ = ["Prioritised", "Priorities", "Ring", "Sampled", "kept", "uniform"]
