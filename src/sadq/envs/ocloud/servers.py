"""First-in-first-out servers in exact integer arithmetic: a task's start is known the moment it is placed.

Tasks of one server start in the order in which they came, each as soon as its processors and its memory are free: the
head of the queue blocks those behind it. So at a time t not before the last start, every task placed so far has
started, what runs at t is what ends after t, and usage only falls from there on. The next task therefore starts at the
later of its arrival and the last start, if it fits there, and else at the first end after which it does: no events
need to be played out. Beside each task the usage left after its end is kept up to date, which finds that end in one
pass over the server, without sorting.

Times are whole seconds since the episode's first arrival, the resolution of the trace. Demands are hundredths of a core
and of a memory unit, both in one word: sums of what runs together are below a server's size, so they never carry over.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array

UNITS = 100  # in a core, and in a memory unit
MAX_CORES = 327.67
MAX_MEMORY = 655.35
NEVER = 2**30
LANES = 16  # slots come in multiples of this


class Servers(NamedTuple):
    """The tasks of S servers in K slots each; a slot is free once its task has ended."""

    start: Array  # i32[S, K], seconds
    end: Array  # i32[S, K]
    demand: Array  # i32[S, K], packed
    left: Array  # i32[S, K], packed: what the tasks that end later than this one demand together
    last_start: Array  # i32[S]


class Task(NamedTuple):
    """What one task asks for."""

    cpu: Array  # i32[], hundredths of a core
    memory: Array  # i32[], hundredths of a memory unit
    duration: Array  # i32[], seconds


class Placed(NamedTuple):
    """What became of a task."""

    start: Array  # i32[], seconds
    lost: Array  # bool[], its server had no slot left


class Loads(NamedTuple):
    """The servers at one moment."""

    cpu: Array  # i32[S], hundredths of a core in use
    memory: Array  # i32[S], hundredths of a memory unit in use
    waiting: Array  # i32[S], tasks not yet started
    penalty: Array  # f32[S], sum over the waiting tasks of (cores + memory units) x seconds
    backlog: Array  # f32[S], sum over the waiting tasks of seconds


def empty(servers: int, slots: int) -> Servers:
    """Servers without tasks."""
    none = jnp.zeros((servers, slots), jnp.int32)
    return Servers(none, none, none, none, jnp.zeros(servers, jnp.int32))


def place(servers: Servers, chosen: Array, task: Task, now: Array, size: tuple[int, int]) -> tuple[Servers, Placed]:
    """Queue a task that arrives `now` at server `chosen` i32[], whose size is (cpu, memory) in hundredths."""
    end, left = servers.end[chosen], servers.left[chosen]
    demand = servers.demand[chosen]
    task_demand = pack(task.cpu, task.memory)

    def fits_beside(used: Array) -> Array:
        cpu, memory = unpack(used)
        return (cpu + task.cpu <= size[0]) & (memory + task.memory <= size[1])

    soonest = jnp.maximum(now, servers.last_start[chosen])
    running = end > soonest
    fits = fits_beside(total(jnp.where(running, demand, 0)))
    # The last task to end leaves an empty server, which any task fits: the minimum is over something.
    start = jnp.where(fits, soonest, least(jnp.where(running & fits_beside(left), end, NEVER)))
    task_end = start + task.duration
    left_after_task = total(jnp.where(end > task_end, demand, 0))

    slots = jnp.arange(end.shape[0], dtype=jnp.int32)
    slot = least(jnp.where(end <= now, slots, NEVER))
    here = slots == slot
    placed = Servers(
        servers.start.at[chosen].set(jnp.where(here, start, servers.start[chosen])),
        servers.end.at[chosen].set(jnp.where(here, task_end, end)),
        servers.demand.at[chosen].set(jnp.where(here, task_demand, demand)),
        servers.left.at[chosen].set(jnp.where(here, left_after_task, left + jnp.where(end < task_end, task_demand, 0))),
        servers.last_start.at[chosen].set(start),
    )
    return placed, Placed(start, slot == NEVER)


def loads(servers: Servers, now: Array) -> Loads:
    """What runs and what waits at `now`, after every end and start of that second."""
    running = (servers.start <= now) & (servers.end > now)
    waiting = servers.start > now
    cpu, memory = unpack(total(jnp.where(running, servers.demand, 0)))
    # In float, for products of large demands and long durations pass the integers' range.
    duration = (servers.end - servers.start).astype(jnp.float32)
    cores, memory_units = unpack(servers.demand)
    weight = (cores + memory_units).astype(jnp.float32)
    return Loads(
        cpu,
        memory,
        total(waiting.astype(jnp.int32)),
        total(jnp.where(waiting, weight * duration, 0.0)) / UNITS,
        total(jnp.where(waiting, duration, 0.0)),
    )


def waited(servers: Servers, since: Array, until: Array) -> Array:
    """Seconds that all tasks together waited between two times, the later one at most the next arrival: i32[]."""
    return jnp.sum(total(jnp.maximum(jnp.minimum(servers.start, until) - since, 0)))


def total(values: Array) -> Array:
    """The sum over the slots, [..., K] -> [...]."""
    return _over_slots(jnp.sum, values)


def least(values: Array) -> Array:
    """The minimum over the slots, [..., K] -> [...]."""
    return _over_slots(jnp.min, values)


def _over_slots(reduce: Callable[..., Array], values: Array) -> Array:
    """A reduction in two stages, LANES sums side by side and then over these.

    XLA reduces the last axis of an array on a CPU number by number, and any other axis in vectors. The barrier keeps it
    from joining the stages again.
    """
    lanes = values.reshape(*values.shape[:-1], -1, LANES)
    return reduce(jax.lax.optimization_barrier(reduce(lanes, axis=-2)), axis=-1)


def map_slots(function: Callable[[Array], Array], servers: Servers) -> Servers:
    """`function` of every array that has slots."""
    start, end, demand, left, last_start = servers
    return Servers(function(start), function(end), function(demand), function(left), last_start)


def pack(cpu: Array, memory: Array) -> Array:
    """Both demands in one word."""
    return (cpu << 16) | memory


def unpack(demand: Array) -> tuple[Array, Array]:
    """(cpu, memory) of a word, or of a sum of words whose parts stay within a server's size."""
    return demand >> 16, demand & 0xFFFF
