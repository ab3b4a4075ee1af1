"""Whom every vehicle follows: the one before it on its drivable, or the last on one that it comes to next."""

import jax.numpy as jnp

from sadq.envs.cityflow.arrays import put, stored, take
from sadq.envs.cityflow.tables import Sizes, Tables, kind_of, of_kind
from sadq.envs.cityflow.vehicles import Lists, Vehicles
from sadq.types import Array


def lengths(tables: Tables, sizes: Sizes, vehicles: Vehicles, slot: Array) -> Array:
    """Of the vehicles in slots."""
    return of_kind(tables.kinds.length, kind_of(take(vehicles.traits, slot), sizes), vehicles.distance.dtype)


def entrances(tables: Tables, sizes: Sizes, vehicles: Vehicles, lists: Lists) -> Array:
    """Whom a vehicle about to enter a drivable follows: i32[2 * lanes + 1], as `Places.entrance` counts.

    On a lane its last vehicle; on a link the rearmost on any link from the same lane, for these overlap.
    """
    tail = lists.tail
    best = jnp.full(sizes.lanes, vehicles.nobody, jnp.int32)
    best_rear = jnp.full(sizes.lanes, jnp.inf, vehicles.distance.dtype)
    for column in range(tables.siblings.shape[1]):
        candidate = take(tail, tables.siblings[:, column])
        rear = take(vehicles.distance, candidate) - lengths(tables, sizes, vehicles, candidate)
        closer = (candidate != vehicles.nobody) & (rear < best_rear)
        best, best_rear = jnp.where(closer, candidate, best), jnp.where(closer, rear, best_rear)
    return jnp.concatenate([tail[: sizes.lanes], best, tail[-1:]])


def leaders(
    tables: Tables, sizes: Sizes, vehicles: Vehicles, head: Array, entrance: Array
) -> tuple[Array, Array, Array]:
    """(leader, its gap where the leader is on a drivable further on, whether it is) of every vehicle."""
    nobody, slots = vehicles.nobody, len(vehicles.place)
    if slots <= len(head):  # then there are fewer vehicles to look at than drivables to be first on
        is_first = (vehicles.leader == nobody) & (vehicles.place != sizes.nowhere)
        first_leader, gap = _ahead(tables, sizes, vehicles, vehicles, is_first, entrance)
        return jnp.where(is_first, first_leader, vehicles.leader), gap, is_first
    first = Vehicles(*(take(column, head) for column in vehicles))
    first_leader, first_gap = _ahead(tables, sizes, vehicles, first, head != nobody, entrance)
    first_at = jnp.where(head == nobody, slots, head)
    gap = put(jnp.zeros_like(vehicles.distance), first_at, first_gap)
    is_first = put(jnp.zeros(slots, bool), first_at, head != nobody)
    return put(vehicles.leader, first_at, first_leader), gap, is_first


def _ahead(
    tables: Tables, sizes: Sizes, vehicles: Vehicles, first: Vehicles, looking: Array, entrance: Array
) -> tuple[Array, Array]:
    """(leader, gap) of vehicles that are the first on their drivables, on the drivables that they come to next."""
    nobody = vehicles.nobody
    sight = of_kind(tables.kinds.sight, kind_of(first.traits, sizes), vehicles.distance.dtype)
    to_end = first.drivable_length - first.distance
    leader, gap = jnp.full_like(first.leader, nobody), jnp.zeros_like(to_end)
    for hop in range(1, sizes.hops_ahead + 1):
        into = take(tables.places.entrance, first.place + hop)
        looking &= into < 2 * sizes.lanes
        (found,) = stored(take(entrance, into))
        found_gap = to_end + take(vehicles.distance, found) - lengths(tables, sizes, vehicles, found)
        takes = looking & (found != nobody)
        leader, gap = jnp.where(takes, found, leader), jnp.where(takes, found_gap, gap)
        to_end = to_end + take(tables.places.drivable_length, first.place + hop)
        looking &= ~takes & ~(to_end > sight)
    return leader, gap
