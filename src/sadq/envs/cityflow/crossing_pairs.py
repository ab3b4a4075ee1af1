"""Who yields to whom, by pairs: only crossings that somebody comes to and somebody else is known at are looked at.

What a CPU wants of a large net, where nearly all crossings are empty; `intersection.py` has the same for all of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.envs.cityflow.arrays import bit_words, lower, pack, put, repeat, stored, take
from sadq.envs.cityflow.car_following import Number, min_brake_distance, reach_steps, run_up
from sadq.envs.cityflow.intersection import YIELD_DISTANCE, by_rank, circling_ones, goes_before, threat_of
from sadq.envs.cityflow.tables import BEYOND, ON_LINK, TURN_SPEED, Sizes, Tables, kind_of, link_of, of_kind
from sadq.envs.cityflow.vehicles import Lists, Vehicles
from sadq.types import Array

_FIRST, _LAST, _WITHIN = 1, 2, 4


class Known(NamedTuple):
    """What the crossings know of at a step."""

    vehicles: Vehicles
    lists: Lists
    by_link: Array  # i32[links], flags: who comes next has green, who left last is not far, somebody is on it
    circling: Array  # bool[V]


class _Asking(NamedTuple):
    """The vehicles of a chunk, [C], that may have to yield."""

    slot: Array
    speed: Array
    from_start: Array  # of the link, negative before it
    time: Array
    priority: Array
    target: Array
    acceleration: Array
    run_up_distance: Array
    run_up_steps: Array


def known_at(tables: Tables, sizes: Sizes, vehicles: Vehicles, lists: Lists, green: Array) -> Known:
    """Which links have anybody that their crossings know of."""
    link = jnp.arange(sizes.links, dtype=jnp.int32)
    first, last = lists.head[: sizes.lanes], lists.tail[: sizes.lanes]
    comes_to = link_of(take(vehicles.traits, first), sizes)
    came_from = take(tables.places.drivable, take(vehicles.previous, last)) - sizes.lanes
    comes_to, came_from = stored(comes_to, came_from)
    approaching = green & (take(comes_to, tables.link_start) == link)
    leaving = take(came_from, tables.link_end[:-1]) == link
    within = lists.tail[sizes.lanes : sizes.drivables] != vehicles.nobody
    (by_link,) = stored(approaching * _FIRST + leaving * _LAST + within * _WITHIN)
    return Known(vehicles, lists, by_link, circling_ones(vehicles.blocker))


def yields_by_pairs(
    tables: Tables, sizes: Sizes, interval: Number, known: Known, checks: Array, chunk: int
) -> tuple[Array, Array]:
    """(distance to the first crossing where a vehicle has to yield, infinite if none; whom it yields to), [V] each.

    Of the vehicles that `checks` names, `chunk` are looked at together, and as many pairs at a time.
    """
    slots, nobody = len(checks), known.vehicles.nobody

    def ask(constants: tuple, carry: tuple[Array, Array, tuple]) -> tuple[Array, Array, tuple]:
        words, known, interval = constants
        start, _, result = carry
        asking, count = pack(words, start, chunk, nobody)
        return start + chunk, count, _chunk(tables, sizes, interval, known, asking, result)

    nothing = (
        jnp.full(slots, len(tables.crossing_distance), jnp.int32),
        jnp.full(slots, jnp.inf, known.vehicles.distance.dtype),
        jnp.full(slots, nobody, jnp.int32),
    )
    begin, constants = (jnp.int32(0), jnp.int32(1), nothing), (bit_words(checks), known, interval)
    (_, _, result), _ = repeat(ask, lambda carry: carry[0] < carry[1], constants, begin, -(-slots // chunk))
    return result[1], result[2]


def _chunk(
    tables: Tables, sizes: Sizes, interval: Number, known: Known, slots: Array, result: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """`result` with what the vehicles in `slots` yield to: (number of the crossing, distance, whom), [V] each."""
    vehicles, dtype, chunk = known.vehicles, known.vehicles.distance.dtype, len(slots)
    speed, travelled, traits, length, time, priority = stored(
        take(vehicles.speed, slots),
        take(vehicles.distance, slots),
        take(vehicles.traits, slots),
        take(vehicles.drivable_length, slots),
        take(vehicles.link_time, slots),
        take(vehicles.priority, slots),
    )
    kind, link = kind_of(traits, sizes), jnp.minimum(link_of(traits, sizes), sizes.links - 1)
    from_start = jnp.where((traits & ON_LINK) != 0, travelled, -(length - travelled))
    braking = min_brake_distance(speed, of_kind(tables.kinds.brake, kind, dtype))
    target = jnp.where(take(tables.link_turns, link), TURN_SPEED, of_kind(tables.kinds.max_speed, kind, dtype))
    acceleration = of_kind(tables.kinds.usual_acceleration, kind, dtype)
    from_start, target, acceleration = stored(from_start, target, acceleration)
    rising = stored(*run_up(speed, target, acceleration, interval))
    asking = _Asking(slots, speed, from_start, time, priority, target, acceleration, *rising)

    row = jnp.arange(len(tables.crossing_distance), dtype=jnp.int32)[:, None]
    cells = row * sizes.links + link
    crossing = take(tables.crossing_distance.reshape(-1), cells)
    to_crossing = crossing - from_start
    can_stop = (to_crossing > 0) & (braking < to_crossing - YIELD_DISTANCE) & ~(crossing < from_start)
    taken = take(known.by_link, take(tables.crossing_other.reshape(-1), cells)) != 0
    words = bit_words((can_stop & taken & (crossing < BEYOND) & (slots != vehicles.nobody)).reshape(-1))
    cells, words = stored(cells, words)

    def pairs(constants: tuple, carry: tuple[Array, Array, tuple]) -> tuple[Array, Array, tuple]:
        known, asking, cells, words, interval = constants
        start, _, result = carry
        index, count = pack(words, start, chunk, cells.size)
        exists, index = index < cells.size, jnp.minimum(index, cells.size - 1)
        one = _Asking(*(take(column, index % chunk) for column in asking))
        does, distance, whom = _pairs(tables, sizes, interval, known, one, take(cells.reshape(-1), index))
        return start + chunk, count, _noted(result, one.slot, exists & does, index // chunk, distance, whom)

    begin = jnp.int32(0), jnp.sum(jax.lax.population_count(words), dtype=jnp.int32), result
    constants, rounds = (known, asking, cells, words, interval), len(tables.crossing_distance)
    (_, _, result), _ = repeat(pairs, lambda carry: carry[0] < carry[1], constants, begin, rounds)
    return result


def _noted(
    result: tuple[Array, Array, Array], slot: Array, does: Array, number: Array, distance: Array, whom: Array
) -> tuple[Array, Array, Array]:
    """Keep each vehicle's first crossing: rows of a vehicle's pairs are unlike, so that one of them is the first."""
    first, nearest, blocker = result
    at = jnp.where(does, slot, len(first))
    later = first
    first = lower(first, at, number)
    wins = jnp.where(does & (number == take(first, slot)) & (number < take(later, slot)), slot, len(first))
    return first, put(nearest, wins, distance), put(blocker, wins, whom)


def _pairs(
    tables: Tables, sizes: Sizes, interval: Number, known: Known, asking: _Asking, cells: Array
) -> tuple[Array, Array, Array]:
    """(whether it yields, its distance to the crossing, to whom) of vehicles each at one cell of the crossings."""
    vehicles, nobody = known.vehicles, known.vehicles.nobody
    to_crossing, other, crossing, rank = stored(
        take(tables.crossing_distance.reshape(-1), cells) - asking.from_start,
        take(tables.crossing_other.reshape(-1), cells),
        take(tables.crossing_distance.reshape(-1), take(tables.crossing_twin.reshape(-1), cells)),
        take(tables.crossing_rank.reshape(-1), cells),
    )
    slot, distance = _announced(tables, sizes, known, other, crossing)
    speed, traits, circling, time, priority = stored(
        take(vehicles.speed, slot),
        take(vehicles.traits, slot),
        take(known.circling, slot),
        take(vehicles.link_time, slot),
        take(vehicles.priority, slot),
    )
    turns = take(tables.link_turns, other)
    harmless, steps = threat_of(tables, sizes, interval, speed, traits, circling, turns, distance)
    passed, steps = by_rank(rank, steps)
    mine = reach_steps(
        to_crossing,
        asking.speed,
        asking.target,
        asking.acceleration,
        interval,
        asking.run_up_distance,
        asking.run_up_steps,
    )
    first = goes_before(mine, to_crossing, asking.time, asking.priority, steps, distance, time, priority)
    return (slot != nobody) & ~harmless & ~passed & ~first, to_crossing, slot


def _announced(tables: Tables, sizes: Sizes, known: Known, link: Array, crossing: Array) -> tuple[Array, Array]:
    """(the vehicle that a crossing, at `crossing` on a link, knows of; its distance from it, negative once past)."""
    vehicles, lists, nobody = known.vehicles, known.lists, known.vehicles.nobody
    dtype = vehicles.distance.dtype

    def lengths(slot: Array) -> Array:
        return of_kind(tables.kinds.length, kind_of(take(vehicles.traits, slot), sizes), dtype)

    flags, start, end, size = stored(
        take(known.by_link, link),
        take(tables.link_start, link),
        take(tables.link_end, link),
        take(tables.link_length, link),
    )
    first = take(lists.head, start)
    to_link = take(tables.lane_length, start) - take(vehicles.distance, first)
    slot, distance = stored(jnp.where((flags & _FIRST) != 0, first, nobody), to_link + crossing)

    def on_link(constants: tuple, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        columns, crossing = constants
        vehicle, slot, distance = carry
        front, length, ahead = stored(
            take(columns.distance, vehicle),
            of_kind(tables.kinds.length, kind_of(take(columns.traits, vehicle), sizes), dtype),
            take(columns.leader, vehicle),
        )
        knows = (vehicle != nobody) & (front - crossing - length <= 0)
        return ahead, jnp.where(knows, vehicle, slot), jnp.where(knows, crossing - front, distance)

    # From the last vehicle forwards, so that the one furthest ahead has the last word.
    begin = take(lists.tail, sizes.lanes + link), slot, distance
    walk, _ = repeat(on_link, lambda carry: jnp.any(carry[0] != nobody), (vehicles, crossing), begin, sizes.link_queue)
    _, slot, distance = walk
    last = take(lists.tail, end)
    front, length = stored(take(vehicles.distance, last), lengths(last))
    beyond = size - crossing
    knows = ((flags & _LAST) != 0) & (last != nobody) & (beyond + (front - length) < 0)
    slot, distance = stored(jnp.where(knows, last, slot), jnp.where(knows, -(front + beyond), distance))
    return slot, distance
