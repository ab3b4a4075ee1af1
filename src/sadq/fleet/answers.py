"""Actions where they are needed: in the host's memory, put there by the program that finds them, or found on the host."""

import contextlib
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from sadq.fleet.devices import Placement

HOST = "pinned_host"
"""What JAX calls memory of the host that a device writes to by itself."""
LIGHT = 10_000_000
"""Multiplications that a CPU has done before an accelerator, busy with updates, would answer."""


def answering_here(program: Any, placement: Placement) -> Any:
    """`program`, which returns a pair, with the first of the pair in the host's memory.

    Fetched after the program, it would take the host two more round trips to a device.
    """
    device = placement.mesh[0]
    reachable = device.platform != "cpu" and HOST in {memory.kind for memory in device.addressable_memories()}
    return to_host(program, placement) if reachable else program


def to_host(program: Any, placement: Placement) -> Any:
    """As `answering_here`, whatever the platform."""
    mesh = placement.mesh
    here: Any = SingleDeviceSharding(mesh[0], memory_kind=HOST)
    if len(mesh) > 1:
        here = NamedSharding(Mesh(mesh, ("members",)), PartitionSpec("members"), memory_kind=HOST)
    return jax.jit(lambda *arguments: program(*arguments), out_shardings=(here, None))


def evaluating(placement: Placement, multiplications: int) -> Placement:
    """Where actions that take so many multiplications are found beside training: on the host where they are few.

    An accelerator does one thing after the other, so that every step of an evaluation would wait for updates.
    """
    if placement.mesh[0].platform != "cpu" and multiplications <= LIGHT:
        with contextlib.suppress(RuntimeError):  # JAX may have been told to leave the CPU out
            return Placement(placement.members, (jax.local_devices(backend="cpu")[0],), vectorise=True)
    return placement
