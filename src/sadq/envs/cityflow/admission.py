"""Letting vehicles into the net: one per lane and step, from the queue of those created for it."""

import jax.numpy as jnp

from sadq.envs.cityflow.arrays import put, ranks, take
from sadq.envs.cityflow.demand import Demand
from sadq.envs.cityflow.tables import Sizes, Tables, kind_of, of_kind
from sadq.envs.cityflow.vehicles import Lists, Vehicles
from sadq.types import Array


def admit(
    tables: Tables, sizes: Sizes, demand: Demand, time: Array, vehicles: Vehicles, lists: Lists, queue: Array
) -> tuple[Vehicles, Lists, Array, Array]:
    """Let the first waiting vehicle of each entry lane in, where the last one on the lane leaves room.

    An empty slot is already that of a vehicle at rest at the start of its way, but for what is written here. The last
    value says that somebody who had room found no slot.
    """
    lanes, places = tables.entry_lane, tables.places
    nobody, past_slots, past_drivables = vehicles.nobody, len(vehicles.place), sizes.drivables + 1
    candidate = jnp.minimum(queue, len(demand.place) - 1)
    waiting = (queue < demand.queue_end) & (take(demand.created, candidate) <= time)
    place, last = take(demand.place, candidate), take(lists.tail, lanes)
    traits, dtype = take(places.traits, place), vehicles.distance.dtype
    min_gap = of_kind(tables.kinds.min_gap, kind_of(traits, sizes), dtype)
    length = of_kind(tables.kinds.length, kind_of(take(vehicles.traits, last), sizes), dtype)
    has_room = waiting & ((last == nobody) | (take(vehicles.distance, last) > length + min_gap))
    rank = ranks(has_room)
    enters = has_room & (rank < lists.free_count)
    slot = take(lists.free, jnp.maximum(lists.free_count - 1 - rank, 0))
    at = jnp.where(enters, slot, past_slots)
    alone = enters & (last == nobody)
    vehicles = vehicles._replace(
        place=put(vehicles.place, at, place),
        leader=put(vehicles.leader, at, last),
        follower=put(vehicles.follower, jnp.where(enters & ~alone, last, past_slots), slot),
        priority=put(vehicles.priority, at, take(demand.priority, candidate)),
        trip=put(vehicles.trip, at, candidate),
        traits=put(vehicles.traits, at, traits),
        drivable_length=put(vehicles.drivable_length, at, take(places.drivable_length, place)),
        top_speed=put(vehicles.top_speed, at, take(places.top_speed, place)),
    )
    lists = lists._replace(
        tail=put(lists.tail, jnp.where(enters, lanes, past_drivables), slot),
        head=put(lists.head, jnp.where(alone, lanes, past_drivables), slot),
        free_count=lists.free_count - jnp.sum(enters, dtype=jnp.int32),
    )
    return vehicles, lists, queue + enters, jnp.any(has_room & ~enters)
