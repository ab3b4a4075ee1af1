"""Letting vehicles into the net: one per lane and step, from the queue of those created for it."""

from typing import NamedTuple

import jax.numpy as jnp

from sadq.envs.cityflow.arrays import bit_words, on_cpu, pack, put, ranks, repeat, take
from sadq.envs.cityflow.demand import Demand
from sadq.envs.cityflow.tables import Sizes, Tables, kind_of, of_kind
from sadq.envs.cityflow.vehicles import Lists, Vehicles
from sadq.types import Array

_CHUNK = 64
"""Entry lanes looked at together on a CPU; few of a large net's have anybody waiting."""


class Admitted(NamedTuple):
    """What admission changes."""

    vehicles: Vehicles
    lists: Lists
    queue: Array  # i32[Q] next trip of each entry lane
    refused: Array  # i32[] who had room and found no slot


def admit(
    tables: Tables, sizes: Sizes, demand: Demand, time: Array, vehicles: Vehicles, lists: Lists, queue: Array
) -> Admitted:
    """Let the first waiting vehicle of each entry lane in, where the last one on the lane leaves room."""
    waiting = (queue < demand.queue_end) & (take(demand.created, jnp.minimum(queue, len(demand.place) - 1)) <= time)
    waiting = jnp.pad(waiting, (0, -len(waiting) % 32))
    chunk = min(_CHUNK, len(waiting)) if on_cpu() else len(waiting)

    def enter(constants: tuple, carry: tuple[Array, Array, Admitted]) -> tuple[Array, Array, Admitted]:
        demand, words = constants
        start, _, admitted = carry
        entries, count = pack(words, start, chunk, len(demand.queue_end))
        return start + chunk, count, _entered(tables, sizes, demand, entries, admitted)

    begin = jnp.int32(0), jnp.sum(waiting, dtype=jnp.int32), Admitted(vehicles, lists, queue, jnp.int32(0))
    constants, rounds = (demand, bit_words(waiting)), -(-len(waiting) // chunk)
    (_, _, admitted), _ = repeat(enter, lambda carry: carry[0] < carry[1], constants, begin, rounds)
    return admitted


def _entered(tables: Tables, sizes: Sizes, demand: Demand, entries: Array, before: Admitted) -> Admitted:
    """With the first of the queues `entries` let in, whose numbers past the last queue stand for none.

    An empty slot is already that of a vehicle at rest at the start of its way, but for what is written here.
    """
    vehicles, lists, queue, refused = before
    places, past_slots, past_drivables = tables.places, len(vehicles.place), sizes.drivables + 1
    nobody, dtype, last_entry = vehicles.nobody, vehicles.distance.dtype, len(queue) - 1
    exists, entry = entries <= last_entry, jnp.minimum(entries, last_entry)
    lanes = take(tables.entry_lane, entry)
    candidate = jnp.minimum(take(queue, entry), len(demand.place) - 1)
    place, last = take(demand.place, candidate), take(lists.tail, lanes)
    traits = take(places.traits, place)
    min_gap = of_kind(tables.kinds.min_gap, kind_of(traits, sizes), dtype)
    length = of_kind(tables.kinds.length, kind_of(take(vehicles.traits, last), sizes), dtype)
    has_room = exists & ((last == nobody) | (take(vehicles.distance, last) > length + min_gap))
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
    queue = put(queue, jnp.where(enters, entry, len(queue)), candidate + 1)
    return Admitted(vehicles, lists, queue, refused + jnp.sum(has_room & ~enters, dtype=jnp.int32))
