"""Where members run: side by side or one after the other, over all devices of this process, padded to fill them."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from sadq.learning.model_updates import SIDE_BY_SIDE
from sadq.types import PyTree

LEVEL = "xla_backend_optimization_level"
"""XLA's option for how hard LLVM tries, from 0 to 3."""


class Program:
    """Compiled at its first call, which waits for it, or ahead of that in a thread of its own."""

    def __init__(self, program: Any, waited: Callable[[float], None]):
        """`waited` is told for how many seconds a call waited for the compiler."""
        self._program, self._waited = program, waited
        self._compiled: Callable | None = None
        self._compiling = threading.Lock()

    def __call__(self, *arguments: PyTree) -> PyTree:
        if self._compiled is None:
            began = time.perf_counter()
            self._compile(arguments)
            self._waited(time.perf_counter() - began)
        assert self._compiled is not None
        return self._compiled(*arguments)

    def prepare(self, *arguments: PyTree) -> None:
        """Compile for what is like these arguments while the caller goes on; what fails then fails again at the call."""

        def ahead(shapes: PyTree) -> None:
            with contextlib.suppress(Exception):
                self._compile(shapes)

        threading.Thread(target=ahead, args=(jax.tree.map(_shape, arguments),)).start()

    def _compile(self, arguments: PyTree) -> None:
        with self._compiling:  # of several threads, the others wait for the first
            if self._compiled is None:
                self._compiled = self._program.lower(*arguments).compile(compiler_options=_compiler_options())


def _compiler_options() -> dict[str, int] | None:
    """On a CPU, LLVM's highest level takes a quarter longer than the one below, for the same bits at the same speed."""
    chosen = LEVEL in os.environ.get("XLA_FLAGS", "") or jax.config.read("jax_disable_most_optimizations")
    return {LEVEL: 2} if jax.default_backend() == "cpu" and not chosen else None


class Programs:
    """Keeps account of the time that programs take to be compiled."""

    def __init__(self) -> None:
        self.compile_seconds = 0.0

    def timed(self, program: Any) -> Program:
        return Program(program, self._add)

    def _add(self, seconds: float) -> None:
        self.compile_seconds += seconds


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    spread = isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding if spread else None)


@dataclass(frozen=True)
class Placement:
    """The one rule for how M members lie on D devices: in equal shares, the last ones idle copies of a member.

    Only this process's devices are used, so that under `jax.distributed` every process runs a fleet of its own.
    """

    members: int
    devices: tuple[jax.Device, ...] = ()
    vectorise: bool | None = None
    """Members side by side in every operation (accelerators) or one after the other (CPU, where that is as fast and
    makes a member's arithmetic exactly that of a solo run). None: by platform."""

    @property
    def mesh(self) -> tuple[jax.Device, ...]:
        """The devices that get a share."""
        return (self.devices or tuple(jax.local_devices()))[: self.members]

    @property
    def share(self) -> int:
        """Members on each device, idle ones included."""
        return -(-self.members // len(self.mesh))

    @property
    def idle(self) -> int:
        """Copies that fill the last device's share."""
        return self.share * len(self.mesh) - self.members

    def padded(self, tree: PyTree) -> PyTree:
        """Members' leaves [M, ...] with the idle copies behind them; where they are NumPy's, so is what comes of them."""
        if self.idle == 0:
            return tree

        def with_copies(leaf: Any) -> Any:
            module: Any = np if isinstance(leaf, np.ndarray) else jnp
            return module.concatenate([leaf, module.repeat(leaf[-1:], self.idle, axis=0)])

        return jax.tree.map(with_copies, tree)

    def real(self, tree: PyTree) -> PyTree:
        """Leaves without the idle copies: [M, ...]."""
        return tree if self.idle == 0 else jax.tree.map(lambda leaf: leaf[: self.members], tree)

    def over_members(self, function: Callable, donate: bool = False) -> Any:
        """`function(member, own, *shared)` for all members at once.

        `member` and `own` have the padded member axis on every leaf. With `donate`, the function returns a member first,
        for which the memory of the one that it got is used.
        """
        vectorise = self.mesh[0].platform != "cpu" if self.vectorise is None else self.vectorise
        stacked = _side_by_side if vectorise else _in_place if donate else _one_by_one

        def program(member: PyTree, own: PyTree, *shared: PyTree) -> PyTree:
            return stacked(lambda *pair: function(*pair, *shared), member, own)

        if len(self.mesh) > 1:
            split, whole = PartitionSpec("members"), PartitionSpec()
            mesh = Mesh(self.mesh, ("members",))

            def sharded(member: PyTree, own: PyTree, *shared: PyTree) -> PyTree:
                specs = (split, split, *(whole for _ in shared))
                # Members never communicate, so there is nothing for the replication check to find.
                on_devices = jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
                return on_devices(member, own, *shared)

            return jax.jit(sharded, donate_argnums=0 if donate else ())
        return jax.jit(program, donate_argnums=0 if donate else ())


def _side_by_side(function: Callable, member: PyTree, own: PyTree) -> PyTree:
    return jax.vmap(function, axis_name=SIDE_BY_SIDE)(member, own)


def _one_by_one(function: Callable, member: PyTree, own: PyTree) -> PyTree:
    return jax.lax.map(lambda pair: function(*pair), (member, own))


def _in_place(function: Callable, member: PyTree, own: PyTree) -> PyTree:
    """One after the other, each member written back to where it was read: `lax.map` would hold all of them twice."""
    count = jax.tree.leaves(own)[0].shape[0]

    def take(members: PyTree, index: Any) -> tuple[PyTree, PyTree]:
        one, numbers = jax.tree.map(
            lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), (members, own)
        )
        after, *rest = function(one, numbers)
        put_back = jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, index, 0), members, after
        )
        return put_back, rest

    after, rest = jax.lax.scan(take, member, jnp.arange(count))
    return after, *rest
