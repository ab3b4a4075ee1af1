"""CityFlow's three files, config, road net and flow, read into plain records or refused in one sentence."""

import dataclasses
import math
from pathlib import Path

from sadq.envs.cityflow.json_nodes import Node, load

Points = tuple[tuple[float, float], ...]

LINK_KINDS = {"turn_right": 1, "turn_left": 2, "go_straight": 3}
"""A road link's kind and its rank: who has the higher one goes first where two links cross."""


@dataclasses.dataclass(frozen=True)
class Road:
    name: str
    start: str  # intersection that it leaves
    end: str  # intersection that it leads to
    points: Points
    lanes: tuple[tuple[float, float], ...]  # width, speed limit


@dataclasses.dataclass(frozen=True)
class LaneLink:
    start_lane: int
    end_lane: int
    points: Points  # empty: the engine draws a curve between the two lanes


@dataclasses.dataclass(frozen=True)
class RoadLink:
    kind: int
    start_road: str
    end_road: str
    lane_links: tuple[LaneLink, ...]


@dataclasses.dataclass(frozen=True)
class SignalPhase:
    seconds: float
    road_links: frozenset[int]  # those that have green


@dataclasses.dataclass(frozen=True)
class Intersection:
    name: str
    virtual: bool  # an end of the net, without signals or links
    width: float
    roads: tuple[str, ...]
    road_links: tuple[RoadLink, ...]
    phases: tuple[SignalPhase, ...]


@dataclasses.dataclass(frozen=True)
class RoadNet:
    intersections: tuple[Intersection, ...]
    roads: tuple[Road, ...]


@dataclasses.dataclass(frozen=True)
class VehicleType:
    length: float
    max_acceleration: float
    max_deceleration: float
    usual_acceleration: float
    usual_deceleration: float
    min_gap: float
    max_speed: float
    headway: float


@dataclasses.dataclass(frozen=True)
class Flow:
    vehicle: VehicleType
    anchors: tuple[str, ...]  # roads to pass, in order; the way between two of them is the shortest
    interval: float
    start: int
    end: int  # -1: never ends


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Everything that CityFlow's configuration names."""

    interval: float  # seconds of one step
    seed: int
    signals_set: bool  # phases are set from outside; else they follow the road net's own times
    net: RoadNet
    flows: tuple[Flow, ...]
    flow_file: str = dataclasses.field(default="flow.json", compare=False)  # to name in complaints


def read_scenario(config: str | Path) -> Scenario:
    """Read a configuration and the two files that it names, relative to its folder or else to the present one."""
    path = Path(config)
    node = load(path)
    if node.optional("laneChange", False, node.flag):
        raise node.error("`laneChange` is true, but lane changes are not simulated: set it to false")
    folder = node.optional("dir", "", node.text)

    def named(key: str) -> Path:
        place = Path(folder) / node.text(key)
        beside = path.parent / place
        return beside if beside.exists() or not place.exists() else place

    net_path, flow_path = named("roadnetFile"), named("flowFile")
    net = read_road_net(net_path)
    return Scenario(
        interval=node.positive("interval"),
        seed=node.optional("seed", 0, node.integer),
        signals_set=node.optional("rlTrafficLight", False, node.flag),
        net=net,
        flows=read_flows(flow_path, net),
        flow_file=str(flow_path),
    )


def read_road_net(path: str | Path) -> RoadNet:
    """Read `roadnet.json`."""
    root = load(Path(path))
    road_nodes, intersection_nodes = root.items("roads"), root.items("intersections")
    names = _unique([(node.text("id"), node) for node in intersection_nodes], "intersection")
    roads = tuple(_road(node, names) for node in road_nodes)
    by_name = _unique([(road.name, node) for road, node in zip(roads, road_nodes, strict=True)], "road")
    found = {name: roads[index] for name, index in by_name.items()}
    return RoadNet(tuple(_intersection(node, found) for node in intersection_nodes), roads)


def read_flows(path: str | Path, net: RoadNet) -> tuple[Flow, ...]:
    """Read `flow.json`, whose routes must name roads of the net."""
    known = {road.name for road in net.roads}
    root = load(Path(path))
    flows = tuple(_flow(node, known) for node in root.elements())
    if not flows:
        raise root.error("holds no flow; expected at least one")
    return flows


def _flow(node: Node, known: set[str]) -> Flow:
    vehicle = node.object("vehicle")
    anchors = tuple(entry.as_text() for entry in node.items("route"))
    for index, road in enumerate(anchors):
        if road not in known:
            raise node.error(f"`route` names the road {road!r}, which is not in the road net", f"route[{index}]")
    if len(set(anchors)) < 2:
        raise node.error("`route` must name at least two different roads", "route")
    return Flow(
        VehicleType(
            length=vehicle.positive("length"),
            max_acceleration=vehicle.positive("maxPosAcc"),
            max_deceleration=vehicle.positive("maxNegAcc"),
            usual_acceleration=vehicle.positive("usualPosAcc"),
            usual_deceleration=vehicle.positive("usualNegAcc"),
            min_gap=vehicle.non_negative("minGap"),
            max_speed=vehicle.positive("maxSpeed"),
            headway=vehicle.non_negative("headwayTime"),
        ),
        anchors,
        interval=node.positive("interval"),
        start=node.optional("startTime", 0, node.integer),
        end=node.optional("endTime", -1, node.integer),
    )


def _road(node: Node, intersections: dict[str, int]) -> Road:
    start, end = node.text("startIntersection"), node.text("endIntersection")
    for key, name in (("startIntersection", start), ("endIntersection", end)):
        if name not in intersections:
            raise node.error(f"`{key}` names {name!r}, which is not an intersection of the net")
    lanes = tuple((lane.positive("width"), lane.positive("maxSpeed")) for lane in node.items("lanes"))
    if not lanes:
        raise node.error("`lanes` is empty; a road needs at least one lane")
    return Road(node.text("id"), start, end, _points(node, at_least=2), lanes)


def _intersection(node: Node, roads: dict[str, Road]) -> Intersection:
    name, virtual = node.text("id"), node.flag("virtual")
    touching = tuple(entry.as_text() for entry in node.items("roads"))
    for index, road in enumerate(touching):
        if road not in roads:
            raise node.error(f"names the road {road!r}, which is not in the net", f"roads[{index}]")
    if virtual:
        return Intersection(name, True, 0.0, touching, (), ())
    links = tuple(_road_link(entry, name, roads) for entry in node.items("roadLinks"))
    phases = tuple(_phase(entry, len(links)) for entry in node.object("trafficLight").items("lightphases"))
    if not phases:
        raise node.error("`lightphases` is empty; a signal needs at least one phase", "trafficLight")
    if sum(phase.seconds for phase in phases) <= 0.0:
        raise node.error("the phases of `lightphases` last 0 s in all", "trafficLight")
    return Intersection(name, False, node.non_negative("width"), touching, links, phases)


def _road_link(node: Node, intersection: str, roads: dict[str, Road]) -> RoadLink:
    kind = node.text("type")
    if kind not in LINK_KINDS:
        raise node.error(f"`type` is {kind!r}; expected one of {', '.join(sorted(LINK_KINDS))}")
    ends: list[Road] = []
    for key, meets in (("startRoad", "end"), ("endRoad", "start")):
        name = node.text(key)
        if name not in roads:
            raise node.error(f"`{key}` names {name!r}, which is not a road of the net")
        if getattr(roads[name], meets) != intersection:
            raise node.error(f"`{key}` names {name!r}, which does not {meets} at this intersection")
        ends.append(roads[name])
    links = []
    for entry in node.items("laneLinks"):
        indices = []
        for key, road in zip(("startLaneIndex", "endLaneIndex"), ends, strict=True):
            index = entry.integer(key)
            if not 0 <= index < len(road.lanes):
                raise entry.error(f"`{key}` is {index}, but the road {road.name!r} has {len(road.lanes)} lane(s)")
            indices.append(index)
        points = _points(entry, at_least=2) if entry.value.get("points") else ()
        links.append(LaneLink(indices[0], indices[1], points))
    return RoadLink(LINK_KINDS[kind], ends[0].name, ends[1].name, tuple(links))


def _phase(node: Node, link_count: int) -> SignalPhase:
    green = set()
    for entry in node.items("availableRoadLinks"):
        index = entry.as_integer()
        if not 0 <= index < link_count:
            raise entry.error(f"is {index}, but this intersection has {link_count} road link(s), counted from 0")
        green.add(index)
    return SignalPhase(node.non_negative("time"), frozenset(green))


def _points(node: Node, at_least: int) -> Points:
    try:  # at once, for nearly all of a file are points; what is wrong with one is told the long way
        points = tuple([(float(point["x"]), float(point["y"])) for point in node.value["points"]])
        sound = all(type(point[axis]) in (int, float) for point in node.value["points"] for axis in "xy")
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound or not all(math.isfinite(value) for point in points for value in point):
        points = tuple((point.number("x"), point.number("y")) for point in node.items("points"))
    if len(points) < at_least or all(a == b for a, b in zip(points, points[1:], strict=False)):
        raise node.error(f"`points` needs at least {at_least} different points")
    return points


def _unique(named: list[tuple[str, Node]], what: str) -> dict[str, int]:
    seen: dict[str, int] = {}
    for index, (name, node) in enumerate(named):
        if name in seen:
            raise node.error(f"`id` {name!r} is that of an earlier {what} too; each needs one of its own")
        seen[name] = index
    return seen
