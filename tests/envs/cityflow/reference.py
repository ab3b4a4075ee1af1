"""The engine's rules once more, vehicle by vehicle and without arrays: slow, plain, and written to be compared with."""

import dataclasses
import math

import numpy as np

from sadq.envs.cityflow.demand import Trips
from sadq.envs.cityflow.files import VehicleType
from sadq.envs.cityflow.road_network import NOWHERE, RoadNetwork

NEVER = 2**31 - 1
TURN_SPEED = 8.3333
YIELD_DISTANCE = 5.0


@dataclasses.dataclass(eq=False)
class Car:
    trip: int
    kind: VehicleType
    place: int
    priority: int
    distance: float = 0.0
    speed: float = 0.0
    came_from: int = NOWHERE  # drivable
    leader: "Car | None" = None
    gap: float = 0.0
    blocker: "Car | None" = None
    link_time: int = NEVER

    @property
    def sight(self) -> float:
        return self.kind.max_speed**2 / self.kind.usual_deceleration / 2

    @property
    def brake_distance(self) -> float:
        return 0.5 * self.speed * self.speed / self.kind.max_deceleration

    def can_yield(self, distance: float) -> bool:
        if distance > 0:
            return self.brake_distance < distance - YIELD_DISTANCE
        return distance < 0 and distance + self.kind.length < 0


class Reference:
    def __init__(self, network: RoadNetwork, trips: Trips) -> None:
        self.network, self.trips = network, trips
        self.dt = network.scenario.interval
        self.lanes = network.lane_count
        self.lines: list[list[Car]] = [[] for _ in network.length]
        self.outside: dict[int, list[int]] = {lane: [] for lane in range(self.lanes)}
        self.step_number, self.next_trip = 0, 0
        self.finished: dict[int, int] = {}
        self.entered: dict[int, int] = {}

    def drivable(self, car: Car, ahead: int = 0) -> int:
        for place in range(car.place, car.place + ahead + 1):
            if self.network.ways.drivable[place] == NOWHERE:
                return NOWHERE
        return int(self.network.ways.drivable[car.place + ahead])

    def length(self, drivable: int) -> float:
        return float(self.network.length[drivable])

    def last(self, drivable: int) -> Car | None:
        return self.lines[drivable][-1] if self.lines[drivable] else None

    def green(self, link: int) -> bool:
        return bool(self.network.green[self.phases[self.network.link_signal[link]], link])

    def step(self, phases: np.ndarray) -> None:
        self.phases = phases
        while self.next_trip < len(self.trips.flow) and self.trips.created[self.next_trip] <= self.step_number:
            self.outside[int(self.trips.lane[self.next_trip])].append(self.next_trip)
            self.next_trip += 1
        self.admit()
        self.announce()
        plans = []
        for line in self.lines:
            for car in line:
                plans.append((car, *self.next_speed(car)))
        self.move(plans)
        for line in self.lines:
            for index, car in enumerate(line):
                self.look(car, line[index - 1] if index else None)
        self.step_number += 1

    def admit(self) -> None:
        for lane, queue in self.outside.items():
            if not queue:
                continue
            trip, last = queue[0], self.last(lane)
            flow = int(self.trips.flow[trip])
            kind = self.network.scenario.flows[flow].vehicle
            if last and not last.distance > last.kind.length + kind.min_gap:
                continue
            queue.pop(0)
            car = Car(trip, kind, self.network.starts[flow][lane], int(self.trips.priority[trip]))
            self.entered[trip] = self.step_number
            self.lines[lane].append(car)
            self.look(car, last)

    def look(self, car: Car, before: Car | None) -> None:
        if before:
            car.leader, car.gap = before, before.distance - before.kind.length - car.distance
            return
        car.leader = None
        to_end = self.length(self.drivable(car)) - car.distance
        hop = 0
        while True:
            hop += 1
            following = self.drivable(car, hop)
            if following == NOWHERE:
                return
            candidates = [following]
            if following >= self.lanes:
                start = self.network.link_start[following - self.lanes]
                candidates = [d for d in self.network.siblings[start] if d != NOWHERE]
            for candidate in map(self.last, candidates):
                if candidate:
                    gap = to_end + candidate.distance - candidate.kind.length
                    if car.leader is None or gap < car.gap:
                        car.leader, car.gap = candidate, gap
            if car.leader:
                return
            to_end += self.length(following)
            if to_end > car.sight + car.kind.max_speed * self.dt * 2:
                return

    def announce(self) -> None:
        self.known: dict[tuple[int, int], tuple[Car, float]] = {}
        for link in range(len(self.network.link_names)):
            crossings = [(k, d) for k, d in enumerate(self.network.crossings.distance[link]) if math.isfinite(d)]
            size, own = self.length(self.lanes + link), self.lanes + link
            start, end = int(self.network.link_start[link]), int(self.network.link_end[link])

            def tell(k: int, car: Car, distance: float, link: int = link) -> None:
                self.known.setdefault((link, k), (car, distance))

            last = self.last(end)
            if last and last.came_from == own:
                for k, d in crossings:
                    if (size - d) + (last.distance - last.kind.length) < 0:
                        tell(k, last, -(last.distance + (size - d)))
            for car in self.lines[own]:
                for k, d in crossings:
                    if car.distance - d - car.kind.length <= 0:
                        tell(k, car, d - car.distance)
            if self.lines[start] and self.green(link):
                first = self.lines[start][0]
                if self.drivable(first, 1) == own:
                    for k, d in crossings:
                        tell(k, first, (self.length(start) - first.distance) + d)

    def no_collision(self, vl: float, dl: float, v: float, d: float, gap: float, target: float) -> float:
        c = v * self.dt / 2 + target - 0.5 * vl * vl / dl - gap
        a, b = 0.5 / d, 0.5 * self.dt
        if b * b < 4 * a * c:
            return -100.0
        return min(0.5 / a * (math.sqrt(b * b - 4 * a * c) - b), 2 * vl - dl * self.dt + 2 * (gap - target) / self.dt)

    def stop_before(self, car: Car, distance: float) -> float:
        kind, v = car.kind, car.speed
        reached = v + kind.usual_acceleration * self.dt
        if (v + reached) * self.dt / 2 + reached * reached / kind.usual_deceleration / 2 < distance:
            return reached
        steps = 2 * distance / (v + 1e-8) / self.dt
        return v - v / int(steps) if steps >= 1 else v - v / steps

    def next_speed(self, car: Car) -> tuple[float, Car | None]:
        kind, here = car.kind, self.drivable(car)
        v = min(kind.max_speed, car.speed + kind.max_acceleration * self.dt, float(self.network.speed_limit[here]))
        if car.leader:
            front = car.leader
            v = min(
                v,
                self.no_collision(
                    front.speed, front.kind.max_deceleration, car.speed, kind.max_deceleration, car.gap, 0.0
                ),
                self.no_collision(
                    front.speed,
                    front.kind.usual_deceleration,
                    car.speed,
                    kind.usual_deceleration,
                    car.gap,
                    kind.min_gap,
                ),
            )
            closing = max(car.speed - front.speed, 0.0)
            ahead = car.gap + (front.speed + closing / 2) * self.dt - car.speed * self.dt / 2
            v = min(v, ahead / (kind.headway + self.dt / 2))
        bound, blocker = self.at_intersection(car, here)
        v = min(v, bound)
        if self.network.ways.dead_end[car.place]:
            room = self.length(here) - car.distance
            v = min(v, self.no_collision(0.0, 1.0, car.speed, kind.max_deceleration, room, kind.min_gap))
        return max(v, car.speed - kind.max_deceleration * self.dt), blocker

    def at_intersection(self, car: Car, here: int) -> tuple[float, Car | None]:
        bound = 100.0
        if here < self.lanes:
            link = self.drivable(car, 1)
            to_line = self.length(here) - car.distance
            if link == NOWHERE or to_line > car.sight + car.kind.max_speed * self.dt * 2:
                return bound, None
            link -= self.lanes
            last = self.last(int(self.network.link_end[link]))
            room = not last or last.distance > last.kind.length + car.kind.length or last.speed >= 2
            if not (self.green(link) and room) and not car.brake_distance > to_line:
                return self.stop_before(car, to_line), None
            if self.network.link_turns[link]:
                bound = TURN_SPEED
            position = -to_line
        else:
            link, position = here - self.lanes, car.distance
        for k, crossing in enumerate(self.network.crossings.distance[link]):
            if not math.isfinite(crossing) or crossing < position:
                continue
            other, column = divmod(int(self.network.crossings.twin[link, k]), self.network.crossings.twin.shape[1])
            if (other, column) in self.known:
                foe, foe_distance = self.known[other, column]
                rank = int(self.network.crossings.rank[link, k])
                if not self.passes(car, link, crossing - position, foe, other, foe_distance, rank):
                    return min(bound, self.stop_before(car, crossing - position - YIELD_DISTANCE)), foe
        return bound, None

    def passes(self, car: Car, link: int, d1: float, foe: Car, foe_link: int, d2: float, rank: int) -> bool:
        if not car.can_yield(d1):
            return True
        if foe.can_yield(d2):
            if rank > 0 or d2 <= 0:
                return True
            mine, theirs = self.reach_steps(car, d1, link), self.reach_steps(foe, d2, foe_link)
            if theirs > mine:
                return True
            if rank == 0 and theirs == mine:
                if car.link_time != foe.link_time:
                    first = car.link_time < foe.link_time
                else:
                    first = car.priority > foe.priority if d1 == d2 else d1 < d2
                if first:
                    return True
        seen, node = set(), foe
        while node is not None and id(node) not in seen:
            seen.add(id(node))
            node = node.blocker
        return node is not None

    def reach_steps(self, car: Car, distance: float, link: int) -> int:
        target = TURN_SPEED if self.network.link_turns[link] else car.kind.max_speed
        v, acceleration = car.speed, car.kind.usual_acceleration
        if distance <= 0:
            return 0
        if v > target:
            return math.ceil(distance / v)
        run_up = 0.0
        if target > v:
            whole = math.floor((target - v) / acceleration / self.dt)
            reached = v + whole * acceleration / self.dt
            run_up = (v + reached) * (whole * self.dt) / 2
            if reached < target:
                run_up += (reached + target) * self.dt / 2
        if run_up > distance:
            return math.ceil((math.sqrt(v * v + 2 * acceleration * distance) - v) / acceleration / self.dt)
        cruise = math.ceil((distance - run_up) / target / self.dt)
        return math.ceil((target - v) / acceleration / self.dt) + cruise

    def move(self, plans: list[tuple[Car, float, Car | None]]) -> None:
        arrivals, gone = [], set()
        for car, speed, blocker in plans:
            covered = (car.speed + speed) * self.dt / 2
            if speed < 0:
                covered, speed = 0.5 * car.speed * car.speed / car.kind.max_deceleration, 0.0
            here = self.drivable(car)
            car.speed, car.distance, car.blocker = speed, car.distance + covered, blocker
            place = car.place
            while self.drivable(car) != NOWHERE and car.distance > self.length(self.drivable(car)):
                car.distance -= self.length(self.drivable(car))
                car.place += 1
            if car.place != place:
                self.lines[here].remove(car)
                car.came_from = here
                if self.drivable(car) == NOWHERE:
                    gone.add(id(car))
                    self.finished[car.trip] = self.step_number
                else:
                    arrivals.append(car)
        for car in sorted(arrivals, key=lambda car: -car.distance):
            self.lines[self.drivable(car)].append(car)
            car.link_time = self.step_number if self.drivable(car) >= self.lanes else NEVER
        for line in self.lines:
            for car in line:
                if id(car.blocker) in gone:
                    car.blocker = None

    def rows(self) -> dict[int, tuple[int, float, float]]:
        """Trip -> drivable, distance, speed."""
        return {
            car.trip: (drivable, car.distance, car.speed) for drivable, line in enumerate(self.lines) for car in line
        }
