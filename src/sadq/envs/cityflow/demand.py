"""Which vehicle is created at which step, on which lane it starts, and the queues before the lanes that follow."""

import csv
import gzip
from pathlib import Path
from typing import IO, NamedTuple

import jax.numpy as jnp
import numpy as np

from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.errors import SadqError
from sadq.types import Array

MOST_VEHICLES = 1_000_000
"""Of an episode: all of them are created before the first one starts."""


class Trips(NamedTuple):
    """Vehicles in the order of their creation: by step, then flow."""

    flow: np.ndarray  # i[N]
    number: np.ndarray  # i[N] within its flow
    created: np.ndarray  # i[N] step
    lane: np.ndarray  # i[N] lane that it starts on
    priority: np.ndarray  # i[N] the higher goes first where nothing else decides

    def names(self) -> list[str]:
        return [f"flow_{flow}_{number}" for flow, number in zip(self.flow, self.number, strict=True)]


class Demand(NamedTuple):
    """Trips as the engine needs them: grouped by first lane, in order of creation within each group."""

    place: Array  # i32[N] where the trip's way begins
    created: Array  # i32[N] step
    priority: Array  # i32[N]
    trip: Array  # i32[N] number of the trip in creation order
    queue_start: Array  # i32[Q] first entry of each entry lane's group
    queue_end: Array  # i32[Q] one past its last


def entry_lanes(network: RoadNetwork) -> np.ndarray:
    """The lanes on which some flow may start."""
    return np.array(sorted({lane for start in network.starts for lane in start}), int)


def drawn_trips(network: RoadNetwork, steps: int, seed: int | None = None) -> Trips:
    """The trips of the first steps, with first lanes and priorities as the engine draws them from a seed.

    The engine draws a priority and a thread number as it creates each vehicle of a step, flow by flow, and then the
    first lanes, road by road. It finds out that a flow's roads are not connected when the first vehicles of it ask for
    their lanes: these have drawn their two numbers by then.
    """
    flow, count, created = _created(network, steps)
    lost = np.isin(flow, list(network.left_out))
    raw = np.random.RandomState(network.scenario.seed if seed is None else seed)  # noqa: NPY002  the same Mersenne Twister
    road_of = _first_roads(network)
    choices = [sorted(start) for start in network.starts]
    lane, priority = np.zeros(len(flow), int), np.zeros(len(flow), np.int32)
    boundaries = np.searchsorted(created, np.arange(steps + 1))
    for start, end in zip(boundaries, boundaries[1:], strict=False):
        if start == end:
            continue
        by_road = sorted((trip for trip in range(start, end) if not lost[trip]), key=lambda trip: road_of[flow[trip]])
        words = raw.randint(0, 2**32, 2 * (end - start) + len(by_road), dtype=np.uint32)
        priority[start:end] = words[: 2 * (end - start) : 2].view(np.int32)
        for trip, word in zip(by_road, words[2 * (end - start) :], strict=True):
            options = choices[flow[trip]]
            lane[trip] = options[int(word) % len(options)]
    return Trips(*(column[~lost] for column in (flow, count, created, lane, priority)))


def read_trips(path: str | Path, network: RoadNetwork, steps: int) -> Trips:
    """The trips of the first steps, with first lanes and priorities from a table `vehicle,...,first_lane,priority`."""
    flow, count, created = _created(network, steps)
    kept = ~np.isin(flow, list(network.left_out))
    flow, count, created = flow[kept], count[kept], created[kept]
    lanes = {name: number for number, name in enumerate(network.lane_names)}
    given: dict[str, tuple[int, int]] = {}
    with _opened(Path(path)) as file:
        rows = csv.DictReader(file)
        if missing := {"vehicle", "first_lane", "priority"} - set(rows.fieldnames or ()):
            raise SadqError(f"{path}: the column {min(missing)!r} is missing; expected vehicle, first_lane, priority.")
        for row in rows:
            where = f"{path}: line {rows.line_num}"
            if row["first_lane"] not in lanes:
                raise SadqError(f"{where}: `first_lane` is {row['first_lane']!r}, which is not a lane of the road net.")
            try:
                priority = int(row["priority"])
            except (TypeError, ValueError):
                raise SadqError(f"{where}: `priority` is {row['priority']!r}; expected a whole number.") from None
            if not -(2**31) <= priority < 2**31:
                raise SadqError(f"{where}: `priority` is {priority}; expected a number of 32 bits.")
            given[row["vehicle"]] = lanes[row["first_lane"]], priority
    trips = Trips(flow, count, created, np.zeros(len(flow), int), np.zeros(len(flow), np.int32))
    for index, name in enumerate(trips.names()):
        if name not in given:
            raise SadqError(
                f"{path}: has no row for {name!r}, which the flow file creates; give one, or no trips at all."
            )
        trips.lane[index], trips.priority[index] = given[name]
        if given[name][0] not in network.starts[flow[index]]:
            lane = network.lane_names[given[name][0]]
            raise SadqError(f"{path}: {name!r} cannot start on the lane {lane!r}, which does not lead along its route.")
    return trips


def demand_of(network: RoadNetwork, trips: Trips) -> Demand:
    """Group trips by the lane that they start on."""
    if not len(trips.flow):  # an array of none cannot be looked into: one trip that never comes stands for it
        nothing = jnp.zeros(len(entry_lanes(network)), jnp.int32)
        zero, never = jnp.zeros(1, jnp.int32), jnp.full(1, np.iinfo(np.int32).max, jnp.int32)
        return Demand(zero, never, zero, zero, nothing, nothing)
    order = np.argsort(trips.lane, kind="stable")
    lanes = entry_lanes(network)
    place = np.array([network.starts[trips.flow[trip]][trips.lane[trip]] for trip in order], np.int32)

    def integers(values: np.ndarray) -> Array:
        return jnp.asarray(values, jnp.int32)

    grouped = trips.lane[order]
    return Demand(
        integers(place),
        integers(trips.created[order]),
        integers(trips.priority[order]),
        integers(order),
        integers(np.searchsorted(grouped, lanes, "left")),
        integers(np.searchsorted(grouped, lanes, "right")),
    )


def waiting_outside(demand: Demand, queue: Array, time: Array) -> Array:
    """Which trips have been created and have not entered the net: bool[N]; `queue` has the next of each group, i32[Q]."""
    position = jnp.arange(len(demand.created))
    group = jnp.searchsorted(demand.queue_end, position, side="right")
    return (position >= queue[group]) & (demand.created < time)


def _created(network: RoadNetwork, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(flow, number within it, step) of every vehicle, by the engine's clock of each flow.

    A flow that is left out has the vehicles of the first step in which it creates any.
    """
    flows, interval = network.scenario.flows, network.scenario.interval
    every, first, last = (np.array([getattr(flow, name) for flow in flows]) for name in ("interval", "start", "end"))
    waited, count, time = every.astype(float), np.zeros(len(flows), int), 0.0
    connected = ~np.isin(np.arange(len(flows)), list(network.left_out))
    lasting = np.where(last == -1, steps * interval, np.minimum(last, steps * interval)) - first
    if (expected := (np.maximum(lasting, 0.0) / every)[connected].sum()) > MOST_VEHICLES:
        raise SadqError(
            f"the scenario's flows create about {expected:.3g} vehicles in an episode of {steps * interval:g} s, expected "
            f"at most {MOST_VEHICLES:,}: choose a shorter episode, or flows with longer intervals."
        )
    found = []
    for step in range(steps):
        active = (time >= first) & ((last == -1) | (time <= last)) & (connected | (count == 0))
        due = active & (waited >= every)
        while due.any():
            found.append(np.stack([np.full(due.sum(), step), np.flatnonzero(due), count[due]], axis=1))
            waited[due] -= every[due]
            count[due] += 1
            due &= waited >= every
        waited[active] += interval
        time += interval
    table = np.concatenate(found) if found else np.zeros((0, 3), int)
    table = table[np.lexsort((table[:, 2], table[:, 1], table[:, 0]))]
    return table[:, 1], table[:, 2], table[:, 0]


def _first_roads(network: RoadNetwork) -> list[int]:
    number = {road.name: index for index, road in enumerate(network.scenario.net.roads)}
    return [number[flow.anchors[0]] for flow in network.scenario.flows]


def _opened(path: Path) -> IO[str]:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8", newline="")
        return path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise SadqError(f"{path}: cannot be read ({error.strerror}); check the path.") from None
