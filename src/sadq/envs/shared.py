"""The board: what environments are told and what they answer, in one piece of memory that processes can share.

Shared memory here has no name. It belongs to those who hold it, so it is gone with the last of them, however that ended.
"""

import math
import os
import tempfile
from typing import Any, NamedTuple

import numpy as np

from sadq.envs.contract import HostSpec

ALIGNMENT = 64
"""Every field begins a cache line of its own."""


class Board(NamedTuple):
    """A row for each of n environments; what it answered last stays there until it answers again."""

    action: np.ndarray  # i32[n]
    reward: np.ndarray  # f32[n]
    next_observation: np.ndarray  # [n, *observation_shape]
    terminated: np.ndarray  # bool[n]
    truncated: np.ndarray  # bool[n]
    next_mask: np.ndarray | None  # bool[n, A]; None where the environment has no masks
    observation: np.ndarray  # [n, *observation_shape]
    mask: np.ndarray | None  # bool[n, A]
    measured: np.ndarray | None = None  # f32[n, names]: of the last episode that ended; None where nothing is asked for

    def silence(self, rows: np.ndarray) -> None:
        """Make the answers of environments that are left alone zeros, with every action legal."""
        for field in (self.reward, self.next_observation, self.terminated, self.truncated, self.observation):
            field[rows] = 0
        for mask in (self.next_mask, self.mask):
            if mask is not None:
                mask[rows] = True


def board_size(spec: HostSpec, count: int) -> int:
    """The bytes of a board for `count` environments."""
    return max(end for _, _, _, end in _fields(spec, count).values())


def board_on(memory: Any, spec: HostSpec, count: int) -> Board:
    """The board that lies in `memory`, of which it keeps hold."""
    arrays: dict[str, Any] = {
        name: np.ndarray(shape, dtype, memory, begin) for name, (shape, dtype, begin, _) in _fields(spec, count).items()
    }
    return Board(**({"next_mask": None, "mask": None} | arrays))


def private_board(spec: HostSpec, count: int) -> Board:
    """A board for this process alone."""
    return board_on(np.zeros(board_size(spec, count), np.uint8), spec, count)


def reserve(size: int) -> int:
    """A descriptor of `size` new bytes without a name, for this process to map and to hand to others."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("sadq")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _fields(spec: HostSpec, count: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any], int, int]]:
    """Name -> (shape, type, where it begins, where it ends)."""
    seen, masks = (count, *spec.observation_shape), (count, spec.action_count)
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        "action": ((count,), np.int32),
        "reward": ((count,), np.float32),
        "next_observation": (seen, spec.observation_dtype),
        "terminated": ((count,), np.bool_),
        "truncated": ((count,), np.bool_),
        "observation": (seen, spec.observation_dtype),
    }
    if spec.has_masks:
        shapes |= {"next_mask": (masks, np.bool_), "mask": (masks, np.bool_)}
    if spec.measures:
        shapes["measured"] = (count, len(spec.measures)), np.float32
    fields, end = {}, 0
    for name, (shape, kind) in shapes.items():
        dtype, begin = np.dtype(kind), -(-end // ALIGNMENT) * ALIGNMENT
        end = begin + math.prod(shape) * dtype.itemsize
        fields[name] = shape, dtype, begin, end
    return fields
