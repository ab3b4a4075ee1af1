"""A network as constants of the compiled step."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from sadq.envs.cityflow.arrays import take
from sadq.envs.cityflow.demand import entry_lanes
from sadq.envs.cityflow.road_network import NOWHERE, RoadNetwork
from sadq.types import Array

TURN_SPEED = 8.3333
BEYOND = 1e6  # metres: where a row of crossings has none
ON_LINK, TURN_AHEAD, DEAD_END = 1, 2, 4
_FLAG_BITS = 3
_FEW_KINDS = 4


class Kinds(NamedTuple):
    """Vehicle types, as one number per type for each property."""

    length: tuple[float, ...]
    acceleration: tuple[float, ...]
    brake: tuple[float, ...]
    usual_acceleration: tuple[float, ...]
    usual_brake: tuple[float, ...]
    min_gap: tuple[float, ...]
    max_speed: tuple[float, ...]
    headway: tuple[float, ...]
    sight: tuple[float, ...]  # distance within which intersections, and leaders beyond the own drivable, are looked at


class Places(NamedTuple):
    """By place, that is by position on a way and vehicle type; entries past the last way say "nowhere" too."""

    drivable: Array  # the number of drivables stands for nowhere
    drivable_length: Array
    top_speed: Array  # of the vehicle on this drivable
    entrance: Array  # where `Simulator` keeps whom one follows who is about to enter this drivable
    traits: Array  # link (the one it is on, else the one ahead, else the number of links), kind and flags, packed


class Tables(NamedTuple):
    """Everything static that the step reads."""

    places: Places
    kinds: Any  # `Kinds`
    lane_length: Array  # f[lanes]
    entry_lane: Array  # i[Q]
    link_start: Array  # i[links] lane
    link_end: Array  # i[links + 1] lane; the number of lanes for no link
    link_length: Array  # f[links]
    link_signal: Array  # i[links]
    link_turns: Array  # bool[links]
    green: Array  # bool[phases * links]
    siblings: Array  # i[lanes, S] links from the same lane, as drivables
    crossing_distance: Array  # f[K, links]: the crossings of a link are a column, which keeps reductions over them fast
    crossing_twin: Array  # i[K, links] the same crossing in the other link's column, flat
    crossing_rank: Array  # i[K, links]
    crossing_other: Array  # i[K, links] the other link
    furthest_crossing: Array  # f[links + 1]; -infinity for a link without crossings, and for no link


class Sizes(NamedTuple):
    """Static numbers of the step."""

    lanes: int
    links: int
    drivables: int
    kinds: int  # vehicle types, rounded up to a power of two
    link_queue: int  # vehicles that fit on the longest link, and two more
    nowhere: int  # place of a slot without a vehicle
    hops_ahead: int  # drivables beyond its own that a vehicle may look into
    hops_moved: int  # drivables that it may leave in one step


def of_kind(values: tuple[float, ...], kind: Array, dtype: jnp.dtype) -> Array:
    """A property of vehicles by their type; few types are told apart by selects, which unlike gathers vectorise."""
    column = jnp.asarray(values, dtype)
    if len(values) > _FEW_KINDS:
        return take(column, kind)
    chosen = jnp.broadcast_to(column[0], kind.shape)
    for index in range(1, len(values)):
        chosen = jnp.where(kind == index, column[index], chosen)
    return chosen


def kind_of(traits: Array, sizes: "Sizes") -> Array:
    """The vehicle type in packed traits."""
    return (traits >> _FLAG_BITS) & (sizes.kinds - 1)


def link_of(traits: Array, sizes: "Sizes") -> Array:
    """The link that a vehicle is on or comes to next in packed traits; the number of links for none."""
    return traits >> (_FLAG_BITS + sizes.kinds.bit_length() - 1)


def make_tables(network: RoadNetwork, dtype: jnp.dtype) -> tuple[Tables, Sizes]:
    """Constants in the given floating type."""
    kinds = _kinds(network, dtype)
    kind_count = 1 << (len(kinds.length) - 1).bit_length()
    lanes, links, drivables = network.lane_count, len(network.link_names), len(network.length)
    drivable = np.where(network.ways.drivable == NOWHERE, drivables, network.ways.drivable)
    kind = network.ways.vehicle_type
    on_link = (drivable >= lanes) & (drivable < drivables)
    ahead = np.append(drivable[1:], drivables)
    link = np.where(on_link, drivable, np.where((drivable < lanes) & (ahead < drivables), ahead, drivables)) - lanes
    length, limit = np.append(network.length, 0.0), np.append(network.speed_limit, 0.0)
    max_speed = np.array(kinds.max_speed)[kind]
    turns_ahead = np.append(network.link_turns, False)[link] & ~on_link
    flags = on_link * ON_LINK + turns_ahead * TURN_AHEAD + network.ways.dead_end * DEAD_END
    traits = (link * kind_count + kind << _FLAG_BITS) + flags
    nowhere = int(np.flatnonzero(drivable == drivables)[0])
    hops_ahead = _hops(drivable, length[drivable], drivables, np.array(kinds.sight)[kind])
    hops_moved = _hops(drivable, length[drivable], drivables, max_speed * network.scenario.interval)

    def column(values: np.ndarray, dtype: jnp.dtype) -> Array:
        return jnp.asarray(np.append(values, np.repeat(values[nowhere], hops_ahead + 1)), dtype)

    places = Places(
        column(drivable, jnp.int32),
        column(length[drivable], dtype),
        column(np.minimum(max_speed, limit[drivable]), dtype),
        column(_entrance(network, drivable), jnp.int32),
        column(traits, jnp.int32),
    )
    crossings = network.crossings
    other, column_of_twin = np.divmod(crossings.twin, crossings.twin.shape[1])
    tables = Tables(
        places,
        kinds,
        lane_length=jnp.asarray(length[:lanes], dtype),
        entry_lane=jnp.asarray(entry_lanes(network), jnp.int32),
        link_start=jnp.asarray(network.link_start, jnp.int32),
        link_end=jnp.asarray(np.append(network.link_end, lanes), jnp.int32),
        link_length=jnp.asarray(length[lanes:drivables], dtype),
        link_signal=jnp.asarray(network.link_signal, jnp.int32),
        link_turns=jnp.asarray(network.link_turns),
        green=jnp.asarray(network.green.reshape(-1)),
        siblings=jnp.asarray(np.where(network.siblings == NOWHERE, drivables, network.siblings), jnp.int32),
        crossing_distance=jnp.asarray(np.minimum(crossings.distance, BEYOND).T, dtype),
        crossing_twin=jnp.asarray((column_of_twin * links + other).T, jnp.int32),
        crossing_rank=jnp.asarray(crossings.rank.T, jnp.int32),
        crossing_other=jnp.asarray(other.T, jnp.int32),
        furthest_crossing=jnp.asarray(np.append(_furthest(crossings.distance), -np.inf), dtype),
    )
    link_queue = int(max(length[lanes:drivables]) / min(kinds.length)) + 2
    return tables, Sizes(lanes, links, drivables, kind_count, link_queue, nowhere, hops_ahead, hops_moved)


def _kinds(network: RoadNetwork, dtype: jnp.dtype) -> Kinds:
    interval = network.scenario.interval
    rows: list[tuple[float, ...]] = [
        (
            kind.length,
            kind.max_acceleration,
            kind.max_deceleration,
            kind.usual_acceleration,
            kind.usual_deceleration,
            kind.min_gap,
            kind.max_speed,
            kind.headway,
            kind.max_speed * kind.max_speed / kind.usual_deceleration / 2 + kind.max_speed * interval * 2,
        )
        for kind in network.types
    ]
    if dtype == jnp.float64:
        # A type that no vehicle has keeps the compiler from taking the only one's properties for constants: it would
        # divide by them by multiplying with their inverse, which differs in the last bit.
        rows.append((100.0,) * len(Kinds._fields))
    return Kinds(*zip(*rows, strict=True))


def _entrance(network: RoadNetwork, drivable: np.ndarray) -> np.ndarray:
    """A lane's own number; for a link that of its start lane, after all lanes; after both for nowhere."""
    lanes = network.lane_count
    of_drivable = np.concatenate([np.arange(lanes), lanes + network.link_start, [2 * lanes]])
    return of_drivable[drivable]


def _furthest(distance: np.ndarray) -> np.ndarray:
    return np.max(np.where(np.isfinite(distance), distance, -np.inf), axis=1)


def _hops(drivable: np.ndarray, length: np.ndarray, nowhere: int, reach: np.ndarray) -> int:
    """The most drivables in a row that begin within `reach` of the end of the one before them."""
    most, place = 1, np.flatnonzero(drivable != nowhere)
    covered = np.zeros(len(place))
    while True:  # with those places from which one more hop is within reach
        ahead = place + most
        goes_on = drivable[ahead] != nowhere
        place, covered = place[goes_on], covered[goes_on] + length[ahead[goes_on]]
        within = covered <= reach[place]
        place, covered = place[within], covered[within]
        if not len(place):
            return most
        most += 1
