"""Moving vehicles from drivable to drivable, and keeping each drivable's line of them in order."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.envs.cityflow.arrays import bit_words, either, on_cpu, pack, put, ranks, stored, take
from sadq.envs.cityflow.car_following import Number, rounded
from sadq.envs.cityflow.demand import Demand
from sadq.envs.cityflow.tables import Sizes, Tables, kind_of, of_kind
from sadq.envs.cityflow.vehicles import ON_LANE, Lists, Vehicles
from sadq.types import Array


class Moved(NamedTuple):
    """Vehicles after a step, and those that reached the end of their way in it."""

    vehicles: Vehicles
    lists: Lists
    finished: Array  # i32[] how many
    finished_steps: Array  # i32[] their travel times, summed
    changed: Array  # i32[] how many vehicles left the drivable that they were on


def move(
    tables: Tables,
    sizes: Sizes,
    interval: Number,
    movers: tuple[int, int],
    demand: Demand,
    time: Array,
    vehicles: Vehicles,
    lists: Lists,
    wished: Array,
) -> Moved:
    """Drive every vehicle at its new speed.

    There is room for `movers` that change drivables, on a CPU for the second number of them where the first is not
    enough, and else for the second at once.
    """
    old = vehicles.speed
    stops = wished < 0
    brake = of_kind(tables.kinds.brake, kind_of(vehicles.traits, sizes), old.dtype)
    covered = jnp.where(stops, 0.5 * old * old / brake, rounded((old + wished) * interval) / 2)
    distance = vehicles.distance + covered
    distance, left = stored(distance, distance > vehicles.drivable_length)
    vehicles = vehicles._replace(distance=distance, speed=jnp.where(stops, 0.0, wished))
    words = bit_words(left)
    count = jnp.sum(jax.lax.population_count(words), dtype=jnp.int32)
    few, many = (functools.partial(_changed, tables, sizes, size) for size in movers)
    given = demand.created, time, vehicles, lists, left, words
    if not on_cpu() or movers[0] == movers[1]:
        vehicles, lists, finished, steps = many(given)
    else:
        vehicles, lists, finished, steps = either(many, few, count > movers[0], given)
    return Moved(vehicles, lists, finished, steps, count)


def _changed(
    tables: Tables, sizes: Sizes, size: int, given: tuple[Array, Array, Vehicles, Lists, Array, Array]
) -> tuple[Vehicles, Lists, Array, Array]:
    """Put those who `left` their drivables, `size` at most, where they have got to: the first parts of `Moved`."""
    created, time, vehicles, lists, left, words = given
    movers, _ = pack(words, 0, size, vehicles.nobody)
    place, distance = take(vehicles.place, movers), take(vehicles.distance, movers)
    source = take(tables.places.drivable, place)
    vehicles, lists = _leave(sizes, vehicles, lists, left, movers, source)
    previous = place
    for _ in range(sizes.hops_moved):
        length = take(tables.places.drivable_length, place)
        leaves = (distance > length) & (take(tables.places.drivable, place) < sizes.drivables)
        distance = jnp.where(leaves, distance - length, distance)
        place = place + leaves
    goal = take(tables.places.drivable, place)
    ended = (movers != vehicles.nobody) & (goal == sizes.drivables)
    place = jnp.where(ended, sizes.nowhere, place)
    vehicles = _at_place(tables, sizes, vehicles, movers, place, jnp.where(ended, sizes.nowhere, previous), time)
    vehicles = vehicles._replace(distance=put(vehicles.distance, movers, jnp.where(ended, 0.0, distance)))
    vehicles, lists = _arrive(sizes, vehicles, lists, movers, goal, distance)

    gone_at = jnp.where(ended, movers, len(left))
    vehicles = vehicles._replace(
        speed=put(vehicles.speed, gone_at, jnp.zeros_like(distance)),
        blocker=put(vehicles.blocker, gone_at, jnp.full_like(movers, vehicles.nobody)),
    )
    free_at, finished = jnp.where(ended, lists.free_count + ranks(ended), len(left)), jnp.sum(ended, dtype=jnp.int32)
    lists = lists._replace(free=put(lists.free, free_at, movers), free_count=lists.free_count + finished)
    travelled = jnp.where(ended, time - take(created, take(vehicles.trip, movers)), 0)
    return vehicles, lists, finished, jnp.sum(travelled, dtype=jnp.int32)


def _at_place(
    tables: Tables, sizes: Sizes, vehicles: Vehicles, movers: Array, place: Array, previous: Array, time: Array
) -> Vehicles:
    """Write where the movers have got to; what is written to nobody's slot is what was there."""
    drivable = take(tables.places.drivable, place)
    on_link = (drivable >= sizes.lanes) & (drivable < sizes.drivables)
    return vehicles._replace(
        place=put(vehicles.place, movers, place),
        previous=put(vehicles.previous, movers, previous),
        link_time=put(vehicles.link_time, movers, jnp.where(on_link, time, ON_LANE)),
        traits=put(vehicles.traits, movers, take(tables.places.traits, place)),
        drivable_length=put(vehicles.drivable_length, movers, take(tables.places.drivable_length, place)),
        top_speed=put(vehicles.top_speed, movers, take(tables.places.top_speed, place)),
    )


def _leave(
    sizes: Sizes, vehicles: Vehicles, lists: Lists, left: Array, movers: Array, source: Array
) -> tuple[Vehicles, Lists]:
    """Take the movers out of their lines: who was behind them closes up to whoever is still ahead."""
    nobody, nowhere = vehicles.nobody, sizes.drivables + 1
    behind = take(vehicles.follower, movers)
    ahead = take(vehicles.leader, movers)
    for _ in range(2):  # vehicles leave in order, so that a third in a row has nobody before it who stays
        ahead = jnp.where(take(left, ahead), take(vehicles.leader, ahead), ahead)
    ahead = jnp.where(take(left, ahead), nobody, ahead)
    closes = (movers != nobody) & ~take(left, behind)  # the last of a row of movers answers for all of them
    leader = put(vehicles.leader, jnp.where(closes & (behind != nobody), behind, nobody + 1), ahead)
    follower = put(vehicles.follower, jnp.where(closes & (ahead != nobody), ahead, nobody + 1), behind)
    head = put(lists.head, jnp.where(closes & (ahead == nobody), source, nowhere), behind)
    tail = put(lists.tail, jnp.where(closes & (behind == nobody), source, nowhere), ahead)
    return vehicles._replace(leader=leader, follower=follower), lists._replace(head=head, tail=tail)


def _arrive(
    sizes: Sizes, vehicles: Vehicles, lists: Lists, movers: Array, goal: Array, distance: Array
) -> tuple[Vehicles, Lists]:
    """Line the movers up at their new drivables, behind those already there; of several, the furthest first."""
    nobody, nowhere = vehicles.nobody, sizes.drivables + 1
    index = jnp.arange(len(movers), dtype=jnp.int32)
    group = jnp.where(movers == nobody, sizes.drivables, goal)  # of those who arrive nowhere
    goal, _, order = jax.lax.sort((group, -distance, index), num_keys=2)
    movers, arrives = take(movers, order), goal < sizes.drivables
    joins = jnp.append(False, goal[1:] == goal[:-1])  # the one before it in the order, on the same drivable
    is_first, is_last = arrives & ~joins, arrives & ~jnp.append(joins[1:], False)
    last = take(lists.tail, goal)
    leader = jnp.where(arrives, jnp.where(joins, jnp.roll(movers, 1), last), nobody)
    follower = put(vehicles.follower, movers, jnp.full_like(movers, nobody))
    vehicles = vehicles._replace(
        leader=put(vehicles.leader, movers, leader),
        follower=put(follower, jnp.where(leader != nobody, leader, nobody + 1), movers),
    )
    head = put(lists.head, jnp.where(is_first & (last == nobody), goal, nowhere), movers)
    tail = put(lists.tail, jnp.where(is_last, goal, nowhere), movers)
    return vehicles, lists._replace(head=head, tail=tail)
