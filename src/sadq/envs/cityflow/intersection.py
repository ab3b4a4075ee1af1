"""Who goes first where two lane links cross: the vehicle that each crossing knows of, and who yields to it."""

from typing import NamedTuple

import jax.numpy as jnp

from sadq.envs.cityflow.arrays import bit_words, pack, put, repeat, stored, take
from sadq.envs.cityflow.car_following import Number, min_brake_distance, reach_steps, run_up
from sadq.envs.cityflow.tables import BEYOND, ON_LINK, TURN_SPEED, Sizes, Tables, kind_of, link_of, of_kind
from sadq.envs.cityflow.vehicles import Lists, Vehicles
from sadq.types import Array

YIELD_DISTANCE = 5.0
_MUST_YIELD = -1.0


class Threats(NamedTuple):
    """Per crossing and link, [K, links]: the vehicle on the other link that may have to be let through."""

    slot: Array  # nobody where there is none
    distance: Array  # of that vehicle from the crossing, negative once past
    steps: Array  # that one must need less than to go first; as many will do, in a tie, where the number is whole


def find_threats(
    tables: Tables, sizes: Sizes, interval: Number, vehicles: Vehicles, lists: Lists, green: Array
) -> tuple[Threats, Array]:
    """For each crossing of each link the first vehicle of the other link that has not cleared it yet.

    The second value says that a link held more vehicles than were looked at.
    """
    slot, distance, overfull = _announced(tables, sizes, vehicles, lists, green)
    circling = circling_ones(vehicles.blocker)
    speed, traits, circling = stored(take(vehicles.speed, slot), take(vehicles.traits, slot), take(circling, slot))
    harmless, steps = threat_of(tables, sizes, interval, speed, traits, circling, tables.link_turns, distance)
    seen = stored(jnp.where(harmless, vehicles.nobody, slot), distance, steps)

    slot, distance, steps = stored(*(take(values.reshape(-1), tables.crossing_twin) for values in seen))
    passed, steps = by_rank(tables.crossing_rank, steps)
    none = (tables.crossing_distance >= BEYOND) | passed
    return Threats(*stored(jnp.where(none, vehicles.nobody, slot), distance, steps)), overfull


def threat_of(
    tables: Tables,
    sizes: Sizes,
    interval: Number,
    speed: Array,
    traits: Array,
    circling: Array,
    turns: Array,
    to: Array,
) -> tuple[Array, Array]:
    """(whether a vehicle `to` metres before a crossing need not be let through, the steps that it needs to get there).

    A vehicle in a circle of waiting ones is not waited for: that is how the engine breaks the circle.
    """
    kind, dtype = kind_of(traits, sizes), speed.dtype
    acceleration = of_kind(tables.kinds.usual_acceleration, kind, dtype)
    braking = min_brake_distance(speed, of_kind(tables.kinds.brake, kind, dtype))
    can_stop = (to > 0) & (braking < to - YIELD_DISTANCE)
    target = jnp.where(turns, TURN_SPEED, of_kind(tables.kinds.max_speed, kind, dtype))
    rising = run_up(speed, target, acceleration, interval)
    steps = jnp.where(can_stop, reach_steps(to, speed, target, acceleration, interval, *rising), _MUST_YIELD)
    return (to + of_kind(tables.kinds.length, kind, dtype) < 0) | circling, steps


def by_rank(rank: Array, steps: Array) -> tuple[Array, Array]:
    """(whether a link's rank alone lets it go first, the other's steps, less half a step where its rank is higher)."""
    must = steps == _MUST_YIELD
    return (rank > 0) & ~must, jnp.where((rank < 0) & ~must, steps - 0.5, steps)


def goes_before(
    steps: Array,
    to: Array,
    time: Array,
    priority: Array,
    other_steps: Array,
    other_to: Array,
    other_time: Array,
    other_priority: Array,
) -> Array:
    """Whether a vehicle is at a crossing before another one; of equals, who is longer on its link or nearer to it."""
    nearer = jnp.where(to == other_to, priority > other_priority, to < other_to)
    wins_tie = jnp.where(time == other_time, nearer, time < other_time)
    return (steps < other_steps) | ((steps == other_steps) & wins_tie)


def circling_ones(blocker: Array) -> Array:
    """Whether following who blocks whom from each vehicle ends in a circle: bool[V].

    After 2^n jumps only those whose chain never ends are still at somebody, once 2^n exceeds the number of slots.
    """
    nobody = len(blocker) - 1

    def unfinished(carry: tuple[Array, Array]) -> Array:
        jumps, ahead = carry
        return (jumps < len(blocker)) & jnp.any(ahead != nobody)

    def doubled(_: None, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        jumps, ahead = carry
        return jumps * 2, take(ahead, ahead)

    most = len(blocker).bit_length()
    (_, ahead), _ = repeat(doubled, unfinished, None, (jnp.int32(1), blocker), most)
    return ahead != nobody


def _announced(
    tables: Tables, sizes: Sizes, vehicles: Vehicles, lists: Lists, green: Array
) -> tuple[Array, Array, Array]:
    """The vehicle that each crossing of a link knows of, and its distance from it: slot and f[K, links].

    The last value says that a link held more vehicles than were looked at.

    In order of precedence: one that has left the link for its end lane but still reaches over the crossing, those on
    the link from the front on, and the first on its start lane if it has green.
    """
    nobody, dtype = vehicles.nobody, vehicles.distance.dtype
    link = jnp.arange(sizes.links)
    crossing = tables.crossing_distance

    def lengths(traits: Array) -> Array:
        return of_kind(tables.kinds.length, kind_of(traits, sizes), dtype)

    first = take(lists.head, tables.link_start)
    approaching = green & (link_of(take(vehicles.traits, first), sizes) == link)
    to_link = take(tables.lane_length, tables.link_start) - take(vehicles.distance, first)
    first, to_link, approaching = stored(first, to_link, approaching)
    slot = jnp.broadcast_to(jnp.where(approaching, first, nobody), crossing.shape)
    distance = to_link + crossing

    def on_link(vehicles: Vehicles, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        vehicle, slot, distance = carry
        front, length, ahead = stored(
            take(vehicles.distance, vehicle), lengths(take(vehicles.traits, vehicle)), take(vehicles.leader, vehicle)
        )
        knows = (vehicle != nobody) & (front - crossing - length <= 0)
        return ahead, jnp.where(knows, vehicle, slot), jnp.where(knows, crossing - front, distance)

    # From the last vehicle forwards, so that the one furthest ahead has the last word.
    start = lists.tail[sizes.lanes : sizes.drivables], slot, distance
    walk, overfull = repeat(on_link, lambda carry: jnp.any(carry[0] != nobody), vehicles, start, sizes.link_queue)
    _, slot, distance = walk

    last = take(lists.tail, tables.link_end[:-1])
    front, length = take(vehicles.distance, last), lengths(take(vehicles.traits, last))
    came_from_here = take(tables.places.drivable, take(vehicles.previous, last)) == sizes.lanes + link
    front, length, last, came_from_here = stored(front, length, last, came_from_here)
    beyond = tables.link_length - crossing
    knows = (last != nobody) & came_from_here & (beyond + (front - length) < 0)
    slot, distance = stored(jnp.where(knows, last, slot), jnp.where(knows, -(front + beyond), distance))
    return slot, distance, overfull


def yields_at_once(
    tables: Tables, sizes: Sizes, interval: Number, vehicles: Vehicles, found: Threats, checks: Array, size: int
) -> tuple[Array, Array]:
    """`yield_to` of all vehicles that `checks` names, `size` at a time: [V] each."""
    nobody, slots = vehicles.nobody, len(checks)

    def chunk(constants: tuple, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        vehicles, found, words, interval = constants
        start, _, distance, blocker = carry
        asking, count = pack(words, start, size, nobody)
        there, whom = yield_to(tables, sizes, interval, vehicles, found, asking)
        at = jnp.where(asking == nobody, slots, asking)
        return start + size, count, put(distance, at, there), put(blocker, at, whom)

    nothing = jnp.full(slots, jnp.inf, vehicles.distance.dtype), jnp.full(slots, nobody, jnp.int32)
    constants, begin = (vehicles, found, bit_words(checks), interval), (jnp.int32(0), jnp.int32(1), *nothing)
    (_, _, distance, blocker), _ = repeat(chunk, lambda carry: carry[0] < carry[1], constants, begin, -(-slots // size))
    return distance, blocker


def yield_to(
    tables: Tables, sizes: Sizes, interval: Number, vehicles: Vehicles, found: Threats, slots: Array
) -> tuple[Array, Array]:
    """(distance to the first crossing where a vehicle has to yield, infinite if none; whom it yields to) of slots."""
    nobody, dtype = vehicles.nobody, vehicles.distance.dtype
    yielding = Vehicles(*(take(column, slots) for column in vehicles))
    speed, travelled, traits, length, time, priority = stored(
        yielding.speed,
        yielding.distance,
        yielding.traits,
        yielding.drivable_length,
        yielding.link_time,
        yielding.priority,
    )
    kind = kind_of(traits, sizes)
    link = jnp.minimum(link_of(traits, sizes), sizes.links - 1)
    cells = jnp.arange(len(tables.crossing_distance), dtype=jnp.int32)[:, None] * sizes.links + link
    threat = Threats(*stored(*(take(values.reshape(-1), cells) for values in found)))
    crossing, turns, threat_time, threat_priority = stored(
        take(tables.crossing_distance.reshape(-1), cells),
        take(tables.link_turns, link),
        take(vehicles.link_time, threat.slot),
        take(vehicles.priority, threat.slot),
    )
    from_start = jnp.where((traits & ON_LINK) != 0, travelled, -(length - travelled))
    to_crossing = crossing - from_start

    target = jnp.where(turns, TURN_SPEED, of_kind(tables.kinds.max_speed, kind, dtype))
    acceleration = of_kind(tables.kinds.usual_acceleration, kind, dtype)
    rising = run_up(speed, target, acceleration, interval)
    steps = reach_steps(to_crossing, speed, target, acceleration, interval, *rising)

    goes_first = goes_before(
        steps, to_crossing, time, priority, threat.steps, threat.distance, threat_time, threat_priority
    )
    braking = min_brake_distance(speed, of_kind(tables.kinds.brake, kind, dtype))
    can_stop = (to_crossing > 0) & (braking < to_crossing - YIELD_DISTANCE)
    yields = (threat.slot != nobody) & ~(crossing < from_start) & can_stop & ~goes_first
    order = jnp.arange(len(crossing), dtype=jnp.int32)[:, None]
    where, to_crossing = stored(jnp.where(yields, order, len(crossing)), to_crossing)
    first = jnp.min(where, axis=0)
    at = jnp.minimum(first, len(crossing) - 1) * len(slots) + jnp.arange(len(slots), dtype=jnp.int32)
    some = first < len(crossing)
    distance = jnp.where(some, take(to_crossing.reshape(-1), at), jnp.inf)
    return distance, jnp.where(some, take(threat.slot.reshape(-1), at), nobody)
