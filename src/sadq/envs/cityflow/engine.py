"""One step of the traffic engine as a pure function of fixed-size arrays: admit, look, choose speeds, move."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from sadq.envs.cityflow.admission import admit
from sadq.envs.cityflow.arrays import bit_words, on_cpu, pack, put, repeat, stored, take
from sadq.envs.cityflow.car_following import (
    Number,
    headway_speed,
    min_brake_distance,
    no_collision_speed,
    rounded,
    stop_before_speed,
)
from sadq.envs.cityflow.demand import Demand
from sadq.envs.cityflow.intersection import YIELD_DISTANCE, Threats, find_threats, yield_to
from sadq.envs.cityflow.moving import move
from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.envs.cityflow.tables import (
    DEAD_END,
    ON_LINK,
    TURN_AHEAD,
    TURN_SPEED,
    kind_of,
    link_and_kind_of,
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


class Simulator:
    """A network compiled to constants, for `capacity` vehicles inside the net at once.

    At most `movers` vehicles may change drivables in one step. Vehicles that may have to yield are looked at `chunk` at
    a time, as many times as it takes.
    """

    def __init__(
        self,
        network: RoadNetwork,
        capacity: int,
        movers: int | None = None,
        chunk: int | None = None,
        dtype: jnp.dtype = jnp.float32,
    ) -> None:
        self.network = network
        self.slots = -(-(capacity + 1) // 32) * 32
        self.movers = min(self.slots, movers or max(64, self.slots // 16))
        self.chunk = min(self.slots, chunk or (32 if on_cpu() else self.slots))
        self.dtype = jnp.dtype(dtype)
        self.interval = network.scenario.interval
        self.tables, self.sizes = make_tables(network, self.dtype)

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
        return State(zero, vehicles, lists, demand.queue_start, zero, zero, zero)

    def step(self, demand: Demand, state: State, phases: Array) -> State:
        """The state one interval later, with signal i of `RoadNetwork.signals` in phase `phases[i]`."""
        # Leaders beyond the own drivable are those of the end of the last step: who is admitted now is not seen yet.
        entrance = self._entrances(state)
        vehicles, lists, queue, full = admit(
            self.tables, self.sizes, demand, state.time, state.vehicles, state.lists, state.queue
        )
        link = jnp.arange(self.sizes.links, dtype=jnp.int32)
        green = take(self.tables.green, take(phases, self.tables.link_signal) * self.sizes.links + link)
        interval = self._interval(state)
        speed, blocker, overfull = self._speeds(vehicles, lists, entrance, green, interval)
        vehicles = vehicles._replace(blocker=blocker)
        vehicles, lists, ended, overflow = move(
            self.tables, self.sizes, interval, self.movers, state.time, vehicles, lists, speed
        )
        travelled = jnp.where(ended.mask, state.time - take(demand.created, ended.trip), 0)
        return state._replace(
            time=state.time + 1,
            vehicles=vehicles,
            lists=lists,
            queue=queue,
            finished=state.finished + jnp.sum(ended.mask, dtype=jnp.int32),
            finished_steps=state.finished_steps + jnp.sum(travelled, dtype=jnp.int32),
            fault=state.fault | full * NO_SLOT | overflow * TOO_MANY_MOVERS | overfull * LINK_OVERFULL,
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

    def _length(self, vehicles: Vehicles, slot: Array) -> Array:
        return of_kind(self.tables.kinds.length, self._kind(take(vehicles.traits, slot)), self.dtype)

    def _entrances(self, state: State) -> Array:
        """Whom a vehicle about to enter a drivable follows: i32[drivables + 1].

        On a lane its last vehicle; on a link the rearmost on any link from the same lane, for these overlap.
        """
        vehicles, tail = state.vehicles, state.lists.tail
        best = jnp.full(self.sizes.lanes, vehicles.nobody, jnp.int32)
        best_rear = jnp.full(self.sizes.lanes, jnp.inf, self.dtype)
        for column in range(self.tables.siblings.shape[1]):
            candidate = take(tail, self.tables.siblings[:, column])
            rear = take(vehicles.distance, candidate) - self._length(vehicles, candidate)
            closer = (candidate != vehicles.nobody) & (rear < best_rear)
            best, best_rear = jnp.where(closer, candidate, best), jnp.where(closer, rear, best_rear)
        return jnp.concatenate([tail[: self.sizes.lanes], take(best, self.tables.link_start), tail[-1:]])

    def _ahead(self, vehicles: Vehicles, head: Array, entrance: Array) -> tuple[Array, Array]:
        """(leader, gap) of the first vehicle of each drivable, on the drivables that it comes to next."""
        nobody = vehicles.nobody
        place = take(vehicles.place, head)
        sight = of_kind(self.tables.kinds.sight, self._kind(take(vehicles.traits, head)), self.dtype)
        to_end = take(vehicles.drivable_length, head) - take(vehicles.distance, head)
        leader, gap = jnp.full_like(head, nobody), jnp.zeros_like(to_end)
        looking = head != nobody
        for hop in range(1, self.sizes.hops_ahead + 1):
            following = take(self.tables.places.drivable, place + hop)
            looking &= following < self.sizes.drivables
            found = take(entrance, following)
            found_gap = to_end + take(vehicles.distance, found) - self._length(vehicles, found)
            takes = looking & (found != nobody)
            leader, gap = jnp.where(takes, found, leader), jnp.where(takes, found_gap, gap)
            to_end = to_end + take(self.tables.drivable_length, following)
            looking &= ~takes & ~(to_end > sight)
        return leader, gap

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

        found, overfull = find_threats(self.tables, self.sizes, interval, vehicles, lists, green)
        is_open = self._open_links(vehicles, lists.tail, green)
        furthest = jnp.max(jnp.where(found.slot == nobody, -jnp.inf, self.tables.crossing_distance), axis=0)
        furthest = jnp.append(furthest, -jnp.inf)  # that of no link
        first_leader, first_gap = self._ahead(vehicles, lists.head, entrance)
        first_at = jnp.where(lists.head == nobody, self.slots, lists.head)
        leader = put(vehicles.leader, first_at, first_leader)
        leader_speed, leader_traits, leader_rear, is_open, furthest = stored(
            take(speed, leader),
            take(vehicles.traits, leader),
            take(rear, leader),
            take(is_open, link_and_kind_of(vehicles.traits)),
            take(furthest, link_of(vehicles.traits, self.sizes)),
        )
        gap = put(leader_rear - distance, first_at, first_gap)
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
        to_crossing, blocker = self._yields(vehicles, found, checks, interval)
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

    def _open_links(self, vehicles: Vehicles, tail: Array, green: Array) -> Array:
        """Whether each link, for each type of vehicle, has green and room at its end: bool[(links + 1) * kinds].

        The last row stands for no link, which is open.
        """
        last = take(tail, self.tables.link_end)
        lengths = jnp.asarray(self.tables.kinds.length, self.dtype)
        lengths = jnp.pad(lengths, (0, self.sizes.kinds - len(lengths)))
        room = take(vehicles.distance, last)[:, None] > self._length(vehicles, last)[:, None] + lengths
        flowing = (last == vehicles.nobody) | (take(vehicles.speed, last) >= _ROOM_SPEED)
        is_open = green[:, None] & (room | flowing[:, None])
        return jnp.append(is_open.reshape(-1), jnp.ones(self.sizes.kinds, bool))

    def _yields(self, vehicles: Vehicles, found: Threats, checks: Array, interval: Number) -> tuple[Array, Array]:
        """`yield_to` of all vehicles that `checks` names, a chunk at a time."""
        nobody = vehicles.nobody
        words = bit_words(checks)

        def chunk(constants: tuple, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            vehicles, found, words, interval = constants
            start, _, distance, blocker = carry
            slots, count = pack(words, start, self.chunk, nobody)
            there, whom = yield_to(self.tables, self.sizes, interval, vehicles, found, slots)
            at = jnp.where(slots == nobody, self.slots, slots)
            return start + self.chunk, count, put(distance, at, there), put(blocker, at, whom)

        nothing = jnp.full(self.slots, jnp.inf, self.dtype), jnp.full(self.slots, nobody, jnp.int32)
        start = (jnp.int32(0), jnp.int32(1), *nothing)
        constants, rounds = (vehicles, found, words, interval), -(-self.slots // self.chunk)
        return repeat(chunk, lambda carry: carry[0] < carry[1], constants, start, rounds)[0][2:]
