"""One step of the traffic engine as a pure function of fixed-size arrays: admit, look, choose speeds, move."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from sadq.envs.cityflow.admission import admit
from sadq.envs.cityflow.arrays import on_cpu, stored, take
from sadq.envs.cityflow.car_following import (
    Number,
    headway_speed,
    min_brake_distance,
    no_collision_speed,
    rounded,
    stop_before_speed,
)
from sadq.envs.cityflow.crossing_pairs import known_at, yields_by_pairs
from sadq.envs.cityflow.demand import Demand
from sadq.envs.cityflow.intersection import YIELD_DISTANCE, find_threats, yields_at_once
from sadq.envs.cityflow.leaders import entrances, leaders, lengths
from sadq.envs.cityflow.moving import move
from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.envs.cityflow.tables import (
    DEAD_END,
    ON_LINK,
    TURN_AHEAD,
    TURN_SPEED,
    Kinds,
    Sizes,
    Tables,
    kind_of,
    link_of,
    make_tables,
    of_kind,
)
from sadq.envs.cityflow.vehicles import ON_LANE, Lists, Vehicles
from sadq.types import Array

NO_SLOT, TOO_MANY_MOVERS, LINK_OVERFULL = 1, 2, 4
_NO_LANE_CHANGE_LIMIT = 100.0  # the engine's speed bound from lane changes when nobody changes lanes
_ROOM_SPEED = 2.0  # a lane whose last vehicle is this fast counts as having room


class State(NamedTuple):
    """All that changes. Vehicles outside the net are only counted, by how far each entry lane's queue has been let in."""

    time: Array  # i32[] steps made
    vehicles: Vehicles
    lists: Lists
    queue: Array  # i32[Q] next trip of each entry lane
    finished: Array  # i32[]
    finished_steps: Array  # i32[] travel times of the finished, summed
    fault: Array  # i32[] the bits above: a size was too small, and what follows is wrong
    lacking: Array  # i32[2] vehicles inside, and changes of drivable, that a step had no room for: most so far


class Frame(NamedTuple):
    """All of a simulator that is no array."""

    slots: int
    movers: tuple[int, int]
    by_pairs: bool
    chunk: int
    dtype: jnp.dtype
    interval: float
    sizes: Sizes
    kinds: Kinds


class Simulator:
    """A network compiled to constants, for `capacity` vehicles inside the net at once.

    At most `movers` vehicles may change drivables in one step: on a CPU all of them, where few are cheaper only while
    they are few. Vehicles that may have to yield are looked at `chunk` at a time, as many times as it takes: `by_pairs`
    with those that they may have to let through, which is for CPUs, or with all crossings at once. Both give the same.
    """

    def __init__(
        self,
        network: RoadNetwork,
        capacity: int,
        movers: int | None = None,
        chunk: int | None = None,
        by_pairs: bool | None = None,
        dtype: jnp.dtype = jnp.float32,
    ) -> None:
        self.slots = -(-(capacity + 1) // 32) * 32
        most = movers or (self.slots if on_cpu() else max(64, self.slots // 4))
        self.movers = min(most, max(64, self.slots // 16)), min(most, self.slots)
        self.by_pairs = on_cpu() if by_pairs is None else by_pairs
        self.chunk = min(self.slots, chunk or (_chunk(self.slots) if on_cpu() else self.slots))
        self.dtype = jnp.dtype(dtype)
        self.interval = network.scenario.interval
        self.tables, self.sizes = make_tables(network, self.dtype)

    def parts(self) -> tuple["Frame", Tables]:
        """(what a compiled program is made for, its arrays): two simulators with equal frames can share a program."""
        frame = Frame(
            self.slots, self.movers, self.by_pairs, self.chunk, self.dtype, self.interval, self.sizes, self.tables.kinds
        )
        return frame, self.tables._replace(kinds=None)

    @classmethod
    def of_parts(cls, frame: "Frame", tables: Tables) -> "Simulator":
        """The simulator that `parts` came from; the arrays may be those of a program under way."""
        simulator = cls.__new__(cls)
        for name in Frame._fields[:-1]:
            setattr(simulator, name, getattr(frame, name))
        simulator.tables = tables._replace(kinds=frame.kinds)
        return simulator

    def initial(self, demand: Demand) -> State:
        """An empty net."""
        nobody, nowhere, places = self.slots - 1, self.sizes.nowhere, self.tables.places

        def all_slots(value: Array | float, dtype: jnp.dtype = jnp.int32) -> Array:
            return jnp.full(self.slots, value, dtype)

        vehicles = Vehicles(
            place=all_slots(nowhere),
            previous=all_slots(nowhere),
            distance=all_slots(0.0, self.dtype),
            speed=all_slots(0.0, self.dtype),
            leader=all_slots(nobody),
            follower=all_slots(nobody),
            blocker=all_slots(nobody),
            link_time=all_slots(ON_LANE),
            priority=all_slots(0),
            trip=all_slots(0),
            traits=all_slots(places.traits[nowhere]),
            drivable_length=all_slots(places.drivable_length[nowhere], self.dtype),
            top_speed=all_slots(places.top_speed[nowhere], self.dtype),
        )
        ends = jnp.full(self.sizes.drivables + 1, nobody, jnp.int32)
        free = (nobody - 1 - jnp.arange(self.slots, dtype=jnp.int32)) % self.slots  # nobody's own slot is at its end
        zero = jnp.int32(0)
        lists = Lists(ends, ends, free, jnp.int32(nobody))
        return State(zero, vehicles, lists, demand.queue_start, zero, zero, zero, jnp.zeros(2, jnp.int32))

    def grown(self, state: State, demand: Demand, smaller: "Simulator") -> State:
        """A state of a smaller simulator of the same net, with more empty slots."""
        empty, old, new = self.initial(demand), smaller.slots - 1, self.slots - 1

        def renamed(slot: Array) -> Array:
            return jnp.where(slot == old, new, slot)

        def widened(column: Array, fill: Array) -> Array:
            return jnp.concatenate([column, fill[smaller.slots :]])

        vehicles = Vehicles(*map(widened, state.vehicles, empty.vehicles))
        vehicles = vehicles._replace(
            **{name: renamed(getattr(vehicles, name)) for name in ("leader", "follower", "blocker")}
        )
        added = jnp.arange(old, new, dtype=jnp.int32)
        free = jnp.concatenate([added, state.lists.free[:old], jnp.full(1, new, jnp.int32)])
        lists = Lists(renamed(state.lists.head), renamed(state.lists.tail), free, state.lists.free_count + len(added))
        return state._replace(vehicles=vehicles, lists=lists)

    def step(self, demand: Demand, state: State, phases: Array) -> State:
        """The state one interval later, with signal i of `RoadNetwork.signals` in phase `phases[i]`."""
        # Leaders beyond the own drivable are those of the end of the last step: who is admitted now is not seen yet.
        entrance = entrances(self.tables, self.sizes, state.vehicles, state.lists)
        vehicles, lists, queue, refused = admit(
            self.tables, self.sizes, demand, state.time, state.vehicles, state.lists, state.queue
        )
        link = jnp.arange(self.sizes.links, dtype=jnp.int32)
        green = take(self.tables.green, take(phases, self.tables.link_signal) * self.sizes.links + link)
        interval = self._interval(state)
        speed, blocker, overfull = self._speeds(vehicles, lists, entrance, green, interval)
        vehicles = vehicles._replace(blocker=blocker)
        moved = move(self.tables, self.sizes, interval, self.movers, demand, state.time, vehicles, lists, speed)
        return state._replace(
            time=state.time + 1,
            vehicles=moved.vehicles,
            lists=moved.lists,
            queue=queue,
            finished=state.finished + moved.finished,
            finished_steps=state.finished_steps + moved.finished_steps,
            fault=state.fault
            | (refused > 0) * NO_SLOT
            | (moved.changed > self.movers[1]) * TOO_MANY_MOVERS
            | overfull * LINK_OVERFULL,
            lacking=jnp.maximum(state.lacking, jnp.stack([refused, moved.changed - self.movers[1]])),
        )

    def _interval(self, state: State) -> Number:
        """The length of a step; in double precision the compiler must not know it, unless its inverse is exact.

        It would divide by a constant by multiplying with its inverse, which differs in the last bit.
        """
        if self.dtype != jnp.float64 or math.frexp(self.interval)[0] == 0.5:
            return self.interval
        return jnp.where(state.time < 0, 0.0, jnp.asarray(self.interval, self.dtype))

    def _kind(self, traits: Array) -> Array:
        return kind_of(traits, self.sizes)

    def _speeds(
        self, vehicles: Vehicles, lists: Lists, entrance: Array, green: Array, interval: Number
    ) -> tuple[Array, Array, Array]:
        """(next speed, whom it yields to) of every vehicle, and whether a link held too many to look at."""
        nobody, dtype = vehicles.nobody, self.dtype
        kinds, speed, distance = self.tables.kinds, vehicles.speed, vehicles.distance
        kind, flags = self._kind(vehicles.traits), vehicles.traits  # flags are the lowest bits of the traits
        brake, usual_brake = of_kind(kinds.brake, kind, dtype), of_kind(kinds.usual_brake, kind, dtype)
        min_gap = of_kind(kinds.min_gap, kind, dtype)
        (rear,) = stored(distance - of_kind(kinds.length, kind, dtype))

        link = link_of(vehicles.traits, self.sizes)
        if self.by_pairs:
            known = known_at(self.tables, self.sizes, vehicles, lists, green)
            furthest, overfull = self.tables.furthest_crossing, jnp.bool_(False)
        else:
            found, overfull = find_threats(self.tables, self.sizes, interval, vehicles, lists, green)
            furthest = jnp.max(jnp.where(found.slot == nobody, -jnp.inf, self.tables.crossing_distance), axis=0)
            furthest = jnp.append(furthest, -jnp.inf)  # that of no link
        leader, first_gap, is_first = leaders(self.tables, self.sizes, vehicles, lists.head, entrance)
        leader_speed, leader_traits, leader_rear, is_open, furthest = stored(
            take(speed, leader),
            take(vehicles.traits, leader),
            take(rear, leader),
            self._is_open(vehicles, lists.tail, green, link, of_kind(kinds.length, kind, dtype)),
            take(furthest, link),
        )
        gap = jnp.where(is_first, first_gap, leader_rear - distance)
        leader_kind = self._kind(leader_traits)
        leader_brake = of_kind(kinds.brake, leader_kind, dtype)
        leader_usual = of_kind(kinds.usual_brake, leader_kind, dtype)
        following = jnp.minimum(
            no_collision_speed(leader_speed, leader_brake, speed, brake, gap, interval, 0.0),
            no_collision_speed(leader_speed, leader_usual, speed, usual_brake, gap, interval, min_gap),
        )
        headway = of_kind(kinds.headway, kind, dtype)
        following = jnp.minimum(following, headway_speed(leader_speed, speed, gap, headway, interval))
        acceleration = of_kind(kinds.acceleration, kind, dtype)
        wished = jnp.minimum(vehicles.top_speed, speed + rounded(acceleration * interval))
        wished = jnp.where(leader == nobody, wished, jnp.minimum(wished, following))

        to_line = vehicles.drivable_length - distance
        on_link = (flags & ON_LINK) != 0
        near = ~on_link & (to_line <= of_kind(kinds.sight, kind, dtype))
        braking = min_brake_distance(speed, brake)
        held = near & ~is_open & ~(braking > to_line)
        turning = near & ~held & ((flags & TURN_AHEAD) != 0)
        to_furthest = furthest - jnp.where(on_link, distance, -to_line)
        checks = (on_link | (near & ~held)) & (braking < to_furthest - YIELD_DISTANCE)
        # Who stands and stays so need not ask whether it has to yield, unless others may soon ask whom it waits for:
        # then it is the first on its lane, or will be once its leader has left, or the last, not yet off the link.
        leader_room = to_line - gap - of_kind(kinds.length, leader_kind, dtype)
        leader_reach = (leader_speed + of_kind(kinds.acceleration, leader_kind, dtype) * interval) * interval
        queued = (vehicles.leader != nobody) & (vehicles.follower != nobody) & (leader_reach < leader_room)
        checks &= on_link | (speed > 0) | (wished > 0) | ~queued
        wished, checks = stored(wished, checks)
        if self.by_pairs:
            to_crossing, blocker = yields_by_pairs(self.tables, self.sizes, interval, known, checks, self.chunk)
        else:
            to_crossing, blocker = yields_at_once(
                self.tables, self.sizes, interval, vehicles, found, checks, self.chunk
            )
        # No one is held at the line and yields further on: one distance to stop within is enough.
        stop_within = jnp.where(held, to_line, to_crossing - YIELD_DISTANCE)
        stopping = stop_before_speed(
            stop_within, speed, of_kind(kinds.usual_acceleration, kind, dtype), usual_brake, interval
        )
        wished = jnp.where(turning, jnp.minimum(wished, TURN_SPEED), wished)
        wished = jnp.where(held | jnp.isfinite(to_crossing), jnp.minimum(wished, stopping), wished)

        still, mild = jnp.zeros_like(speed), jnp.ones_like(speed)
        ending = no_collision_speed(still, mild, speed, brake, to_line, interval, min_gap)
        wished = jnp.minimum(wished, jnp.where((flags & DEAD_END) != 0, ending, _NO_LANE_CHANGE_LIMIT))
        return jnp.maximum(wished, speed - rounded(brake * interval)), blocker, overfull

    def _is_open(self, vehicles: Vehicles, tail: Array, green: Array, link: Array, length: Array) -> Array:
        """Whether the link ahead of each vehicle has green, and room for it at the end: bool[V]; no link is open."""
        last = tail[: self.sizes.lanes]
        flowing = (last == vehicles.nobody) | (take(vehicles.speed, last) >= _ROOM_SPEED)
        reached = jnp.append(jnp.where(flowing, jnp.inf, take(vehicles.distance, last)), jnp.inf)
        taken = jnp.append(lengths(self.tables, self.sizes, vehicles, last), 0)
        reached, taken = stored(reached, taken)
        end = take(self.tables.link_end, link)
        return take(jnp.append(green, True), link) & (take(reached, end) > take(taken, end) + length)


def _chunk(slots: int) -> int:
    """Of vehicles that may have to yield: about as many as there are in a step, for each chunk has a price of its own."""
    return max(32, slots // 16 // 32 * 32)
