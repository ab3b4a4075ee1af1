"""Replay on the device: stores, which know what is held, apart from samplers, which choose; imports `core`."""

from sadq.replay.frames import FrameRing
from sadq.replay.ring import Ring
from sadq.replay.samplers import REPLAYS, Drawn, Prioritised, Sampler, Uniform, heard, uniform
from sadq.replay.store import Store
