"""A fleet that is built again, to be resumed, evaluated or compared, runs by the programs that the first one compiled.

Loops, environments and states are each one's own: what is shared is what JAX makes of a program, and would make again. The
cache of compiled programs spares the compiler only; most of a second build goes into tracing and lowering. Processes that
tests start share nothing, and the loops that `tests/extending` builds of a user's modules have types of their own.
"""

import contextlib
import contextvars
import dataclasses
import itertools
import os
import time
from collections.abc import Hashable, Iterator
from typing import Any

import jax

from sadq.envs.base import Environment
from sadq.experiment import build
from sadq.experiment.config import Config
from sadq.fleet.devices import Program, Programs

MOST = 200
"""Programs that are kept."""
NOTICED = 1e-3
"""Seconds at least that a program takes to be had: results are rounded to milliseconds, and say that it took some."""

IN_THE_ROW = ("agent", "head", "dueling", "noisy", "ensemble", "bootstrap", "replay", "n_step", "adjusted")
IN_THE_BEHAVIOUR = ("intended", "deviation", "exploration")
OF_A_RUN = ("preset", "seeds", "alpha", "evaluations", "checkpoint_seconds", "workers")
"""What a program takes as numbers, or never hears of."""

_kept: dict[Hashable, Any] = {}
_building: contextvars.ContextVar[tuple | None] = contextvars.ContextVar("building", default=None)


def forget() -> None:
    _kept.clear()


@contextlib.contextmanager
def shared(*key: Hashable, traced: bool = True) -> Iterator[None]:
    """Loops that are built in here under the same key have the same programs.

    They are traced all the same where a loop learns from that what a program tells, as loops on the host do.
    """
    compiled_for = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"), len(jax.local_devices())
    token = _building.set((traced, *key, *compiled_for))
    try:
        yield
    finally:
        _building.reset(token)


class Shared(Program):
    """A program whose first call takes what an earlier loop's compiled."""

    def __init__(self, programs: Programs, program: Any, key: tuple):
        super().__init__(program, programs._add)
        self._place = key, next(programs.__dict__.setdefault("numbers", itertools.count()))

    def _compile(self, arguments: Any) -> None:
        if self._place in _kept:
            began = time.perf_counter()
            if self._place[0][0]:
                self._program.eval_shape(*arguments)
            self._waited(max(NOTICED - (time.perf_counter() - began), 0.0))
            self._compiled = _kept[self._place]
            return
        super()._compile(arguments)
        while len(_kept) >= MOST:
            del _kept[next(iter(_kept))]
        _kept[self._place] = self._compiled


def timed(self: Programs, program: Any) -> Program:
    """`Programs.timed`, unless the same program of the same loop has been compiled already."""
    key = _building.get()
    return _alone(self, program) if key is None else Shared(self, program, key)


_alone = Programs.timed


def make_loop(config: Config, environment: Any, chunk: int, origin: int = 0) -> Any:
    """`build.make_loop`, by the programs of an earlier loop where they are the same."""
    apart = {*IN_THE_ROW, *IN_THE_BEHAVIOUR, *OF_A_RUN}
    fields = tuple(getattr(config, field.name) for field in dataclasses.fields(config) if field.name not in apart)
    row = dataclasses.replace(config.row, source="")
    key = (fields, row, config.behaviour, config.guided, len(build.members_of(config)), environment, chunk)
    try:
        hash(key)
    except TypeError:
        return _make_loop(config, environment, chunk, origin)
    with shared(*key, traced=not isinstance(environment, Environment)):
        return _make_loop(config, environment, chunk, origin)


_make_loop = build.make_loop
