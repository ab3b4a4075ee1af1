"""A scenario as arrays: drivables (lanes, then lane links in use), their crossings, and every way through them."""

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np

from sadq.envs.cityflow import geometry, routing
from sadq.envs.cityflow.files import Intersection, RoadNet, Scenario, VehicleType
from sadq.envs.cityflow.ordering import engine_sorted
from sadq.errors import SadqError

LINK_SPEED_LIMIT = 10000.0
NOWHERE = -1
_MOST_NAMED = 5  # flows that a warning names


class Crossings(NamedTuple):
    """Per link (row) the points where it crosses another, nearest first; rows are padded with distance infinity."""

    distance: np.ndarray  # f[links, K] from the start of the link
    twin: np.ndarray  # i[links, K] the same point in the other link's row: its link * K + column
    rank: np.ndarray  # i[links, K] 1: this link goes before the other, -1: after, 0: equals


class Ways(NamedTuple):
    """Every way through the net laid end to end, each closed by an entry `NOWHERE`: a vehicle is at a place."""

    drivable: np.ndarray
    vehicle_type: np.ndarray
    dead_end: np.ndarray  # bool: the way stops here short of the route's last road


@dataclasses.dataclass(frozen=True, eq=False)
class RoadNetwork:
    """Static description of a scenario. Lanes have the engine's order; links that no vehicle takes are left out."""

    scenario: Scenario
    lane_names: tuple[str, ...]
    link_names: tuple[str, ...]
    signals: tuple[str, ...]  # intersections with a signal: the order of phases
    length: np.ndarray  # f[drivables]
    speed_limit: np.ndarray  # f[drivables]
    link_start: np.ndarray  # i[links] lane
    link_end: np.ndarray  # i[links] lane
    link_turns: np.ndarray  # bool[links]
    link_signal: np.ndarray  # i[links]
    green: np.ndarray  # bool[phases, links], by the phase of the link's own signal
    siblings: np.ndarray  # i[lanes, S] drivables of the links that start on a lane, padded with NOWHERE
    crossings: Crossings
    types: tuple[VehicleType, ...]
    ways: Ways
    routes: tuple[tuple[str, ...], ...]  # per flow; empty for one that is left out
    starts: tuple[dict[int, int], ...]  # per flow: first lane -> place
    left_out: dict[int, str]  # flows whose roads are not connected, with what is wrong: their vehicles never come

    @property
    def lane_count(self) -> int:
        return len(self.lane_names)

    @property
    def drivable_names(self) -> tuple[str, ...]:
        return self.lane_names + self.link_names


def build(scenario: Scenario) -> RoadNetwork:
    """Lay out a scenario's net and the ways of its flows."""
    net = scenario.net
    full = _full_links(net)
    lanes = _lanes(net)
    graph, links = _graphs(net, lanes, full)
    types = tuple(dict.fromkeys(flow.vehicle for flow in scenario.flows))
    routes, left_out = _routes(scenario, graph)
    ways, starts = _ways(scenario, routes, graph, links, types, len(lanes))
    used = np.unique([d - len(lanes) for d in ways.drivable if d >= len(lanes)]).astype(int)
    renumber = np.full(len(lanes) + len(full) + 1, NOWHERE)  # its last entry keeps NOWHERE as it is
    renumber[: len(lanes)] = np.arange(len(lanes))
    renumber[len(lanes) + used] = len(lanes) + np.arange(len(used))
    ways = ways._replace(drivable=renumber[ways.drivable])
    taken = [full[index] for index in used]
    signals = [intersection for intersection in net.intersections if not intersection.virtual]
    return RoadNetwork(
        scenario,
        lane_names=tuple(lane.name for lane in lanes),
        link_names=tuple(f"{lanes[link.start].name}_TO_{lanes[link.end].name}" for link in taken),
        signals=tuple(intersection.name for intersection in signals),
        length=np.array([lane.length for lane in lanes] + [geometry.length(link.points) for link in taken]),
        speed_limit=np.array([lane.speed_limit for lane in lanes] + [LINK_SPEED_LIMIT] * len(taken)),
        link_start=np.array([link.start for link in taken], int),
        link_end=np.array([link.end for link in taken], int),
        link_turns=np.array([link.kind != 3 for link in taken], bool),
        link_signal=np.array([link.signal for link in taken], int),
        green=_green(signals, taken),
        siblings=_siblings(len(lanes), taken),
        crossings=_crossings(full, used),
        types=types,
        ways=ways,
        routes=tuple(tuple(graph.names[road] for road in route) for route in routes),
        starts=starts,
        left_out=left_out,
    )


class _Lane(NamedTuple):
    name: str
    road: int
    number: int  # on its road
    length: float
    speed_limit: float


class _Link(NamedTuple):
    start: int
    end: int
    kind: int
    signal: int
    road_link: int
    points: geometry.Points


def _lanes(net: RoadNet) -> list[_Lane]:
    widths = {intersection.name: intersection.width for intersection in net.intersections}
    lanes = []
    for number, road in enumerate(net.roads):
        across = [width for width, _ in road.lanes]
        for index, (_, limit) in enumerate(road.lanes):
            points = geometry.lane_points(road.points, widths[road.start], widths[road.end], across, index)
            lanes.append(_Lane(f"{road.name}_{index}", number, index, geometry.length(points), limit))
    return lanes


def _full_links(net: RoadNet) -> list[_Link]:
    roads = {road.name: road for road in net.roads}
    first, count = {}, 0
    for road in net.roads:
        first[road.name] = count
        count += len(road.lanes)

    def uncut(road_name: str, lane: int) -> geometry.Points:
        road = roads[road_name]
        return geometry.lane_points(road.points, 0.0, 0.0, [width for width, _ in road.lanes], lane)

    links = []
    signals = [intersection for intersection in net.intersections if not intersection.virtual]
    for signal, intersection in enumerate(signals):
        for index, road_link in enumerate(intersection.road_links):
            for link in road_link.lane_links:
                start, end = first[road_link.start_road] + link.start_lane, first[road_link.end_road] + link.end_lane
                points = link.points or geometry.curve(
                    uncut(road_link.start_road, link.start_lane),
                    uncut(road_link.end_road, link.end_lane),
                    intersection.width,
                )
                links.append(_Link(start, end, road_link.kind, signal, index, points))
    return links


def _graphs(net: RoadNet, lanes: list[_Lane], full: list[_Link]) -> tuple[routing.RoadGraph, routing.LinkGraph]:
    number = {road.name: index for index, road in enumerate(net.roads)}
    touching = {i.name: [number[road] for road in i.roads] for i in net.intersections}
    pairs = {(lanes[link.start].road, lanes[link.end].road) for link in full}
    lanes_of: list[list[int]] = [[] for _ in net.roads]
    for index, lane in enumerate(lanes):
        lanes_of[lane.road].append(index)
    graph = routing.RoadGraph(
        names=tuple(road.name for road in net.roads),
        lengths=tuple(sum(lanes[lane].length for lane in of) / len(of) for of in lanes_of),
        after=tuple(routing.connected(touching[road.end], pairs, index) for index, road in enumerate(net.roads)),
        lanes=tuple(map(tuple, lanes_of)),
    )
    links_of: list[list[int]] = [[] for _ in lanes]
    for index, link in enumerate(full):
        links_of[link.start].append(index)
    road_of, lane_index = [lane.road for lane in lanes], [lane.number for lane in lanes]
    return graph, routing.LinkGraph(road_of, lane_index, links_of, [link.end for link in full])


def _routes(scenario: Scenario, graph: routing.RoadGraph) -> tuple[list[tuple[int, ...]], dict[int, str]]:
    """(all roads of every flow's route, what is wrong with those flows that no way leads along).

    Such a flow is left out, as the engine leaves it out, and a warning tells of it.
    """
    number = {name: index for index, name in enumerate(graph.names)}
    shortest = routing.ShortestWays(graph)
    routes: list[tuple[int, ...]] = []
    left_out = {}
    for index, flow in enumerate(scenario.flows):
        route, missing = routing.fill(shortest, [number[name] for name in flow.anchors])
        if missing is not None:
            start, end = (graph.names[road] for road in missing)
            left_out[index] = f"no way leads from the road {start!r} to {end!r}"
        routes.append(() if missing is not None else route)
    if left_out:
        _tell(scenario, left_out)
    return routes, left_out


def _tell(scenario: Scenario, left_out: dict[int, str]) -> None:
    named = [f"flow_{index} ({problem})" for index, problem in left_out.items()]
    shown = ", ".join(named[:_MOST_NAMED]) + (f" and {len(named) - _MOST_NAMED} more" * (len(named) > _MOST_NAMED))
    flows = f"{len(left_out)} of {len(scenario.flows)} flows"
    if len(left_out) == len(scenario.flows):
        raise SadqError(f"{scenario.flow_file}: no flow has connected roads: {shown}; mend their routes.")
    verb = "is" if len(left_out) == 1 else "are"
    warnings.warn(
        f"{scenario.flow_file}: {flows} {verb} left out, as CityFlow leaves out what is not connected: {shown}.",
        stacklevel=2,
    )


def _ways(
    scenario: Scenario,
    routes: list[tuple[int, ...]],
    graph: routing.RoadGraph,
    links: routing.LinkGraph,
    types: tuple[VehicleType, ...],
    lane_count: int,
) -> tuple[Ways, tuple[dict[int, int], ...]]:
    type_number = {kind: index for index, kind in enumerate(types)}
    drivables, types_there, dead_ends = list[int](), list[int](), list[bool]()
    known: dict[tuple[tuple[int, ...], int], dict[int, int]] = {}
    starts = []
    for flow, route in zip(scenario.flows, routes, strict=True):
        key = route, type_number[flow.vehicle]
        if key not in known:
            known[key] = {}
            for lane in routing.first_lanes(graph, links, route) if route else ():
                known[key][lane] = len(drivables)
                way = [lane] + [d for link, end in routing.follow(links, route, lane) for d in (lane_count + link, end)]
                drivables += [*way, NOWHERE]
                types_there += [key[1]] * (len(way) + 1)
                dead_ends += [False] * (len(way) - 1) + [links.road_of[way[-1]] != route[-1], False]
        starts.append(known[key])
    ways = Ways(np.array(drivables, int), np.array(types_there, int), np.array(dead_ends, bool))
    return ways, tuple(starts)


def _green(signals: list[Intersection], links: list[_Link]) -> np.ndarray:
    phases = max((len(signal.phases) for signal in signals), default=1)
    green = np.zeros((phases, len(links)), bool)
    for index, link in enumerate(links):
        for phase, shown in enumerate(signals[link.signal].phases):
            green[phase, index] = link.road_link in shown.road_links
    return green


def _siblings(lane_count: int, links: list[_Link]) -> np.ndarray:
    leaving: list[list[int]] = [[] for _ in range(lane_count)]
    for index, link in enumerate(links):
        leaving[link.start].append(lane_count + index)
    width = max(1, max(map(len, leaving), default=1))
    return np.array([row + [NOWHERE] * (width - len(row)) for row in leaving]).reshape(lane_count, width)


def _crossings(full: list[_Link], used: np.ndarray) -> Crossings:
    new_number = {int(old): new for new, old in enumerate(used)}
    by_link: list[list[tuple[float, int, int]]] = [[] for _ in full]  # distance, other link, crossing
    crossing_count = 0
    of_signal: dict[int, list[int]] = {}
    for index, link in enumerate(full):
        of_signal.setdefault(link.signal, []).append(index)
    for members in of_signal.values():
        for crossing in geometry.crossings([full[index].points for index in members]):
            first, second = members[crossing.first], members[crossing.second]
            by_link[first].append((crossing.on_first, second, crossing_count))
            by_link[second].append((crossing.on_second, first, crossing_count))
            crossing_count += 1
    # Ties are put in order before unused links are dropped, for the order depends on how many there are.
    rows = [
        [entry for entry in engine_sorted(by_link[old], key=lambda entry: entry[0]) if entry[1] in new_number]
        for old in used
    ]
    width = max(1, max(map(len, rows), default=1))
    column = {(row, entry[2]): index for row, entries in enumerate(rows) for index, entry in enumerate(entries)}
    distance = np.full((len(rows), width), np.inf)
    twin = np.zeros((len(rows), width), int)
    rank = np.zeros((len(rows), width), int)
    for row, entries in enumerate(rows):
        for index, (along, other, crossing_number) in enumerate(entries):
            distance[row, index] = along
            twin[row, index] = new_number[other] * width + column[new_number[other], crossing_number]
            rank[row, index] = np.sign(full[used[row]].kind - full[other].kind)
    return Crossings(distance, twin, rank)
