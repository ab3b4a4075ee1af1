"""An independent judge: the same net, demand and signal policies in SUMO, to see whether policies rank as in ours.

Needs the extra `sumo`. `python -m sadq.envs.cityflow.sumo` prints the comparison on the paper's grid as JSON.

SUMO drives by other models and lets vehicles change lanes, so travel times differ; what should carry over is which policy
is better. A lane link of ours that fans out to every lane becomes one to the lane that lies ahead.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np

from sadq.envs.cityflow.environment import CityFlow, make
from sadq.envs.cityflow.files import LINK_KINDS, Intersection, RoadLink
from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.envs.cityflow.signal_rules import RULES
from sadq.envs.fixed_policies import play
from sadq.errors import SadqError

POLICIES = ("random", *RULES)


def compare(
    environment: CityFlow, policies: Sequence[str] = POLICIES, episodes: int = 16, seeds: Sequence[int] = (0, 1, 2)
) -> dict[str, Any]:
    """Average travel times of policies in our engine and in SUMO, and the correlation of their ranks."""
    unknown = sorted(set(policies) - set(POLICIES))
    if unknown or len(policies) < 2:
        raise SadqError(f"cannot compare the policies {list(policies)}, expected two or more of {', '.join(POLICIES)}.")
    ours, theirs = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        net = write_net(environment.network, Path(folder))
        for name in policies:
            measured = play(environment, environment.policies()[name], episodes)["measures"]
            ours[name] = {key: float(measured[key].mean()) for key in ("average_travel_time", "throughput")}
            runs = [simulate(environment, name, net, seed) for seed in seeds]
            theirs[name] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    times = [[result[name]["average_travel_time"] for name in policies] for result in (ours, theirs)]
    return {
        "native": ours,
        "sumo": theirs,
        "rank_correlation": rank_correlation(*times),
        "episodes": episodes,
        "seeds": list(seeds),
        "sumo_version": _libsumo().simulation.getVersion()[1],
    }


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: that of the ranks, equals sharing theirs."""

    def ranks(values: Sequence[float]) -> np.ndarray:
        column = np.asarray(values, float)
        return (column[:, None] > column).sum(1) + ((column[:, None] == column).sum(1) - 1) / 2

    one, other = (ranks(values) - (len(first) - 1) / 2 for values in (first, second))
    scale = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / scale if scale else 0.0


def simulate(environment: CityFlow, policy: str, net: Path, seed: int = 0) -> dict[str, float]:
    """One episode in SUMO on the net that `write_net` made: measures as `CityFlow.measures` has them."""
    libsumo, network, control = _libsumo(), environment.network, environment.control
    arrivals = net.with_name("trips.rou.xml")
    due = write_trips(environment, arrivals)
    random = np.random.default_rng(seed)
    clearing, steps = environment.steps
    command = ["sumo", "-n", str(net), "-r", str(arrivals), "--seed", str(seed), "--time-to-teleport", "-1"]
    command += ["--step-length", str(network.scenario.interval), "--no-step-log", "true", "--no-warnings", "true"]
    libsumo.start(command)
    try:
        links = [_links(libsumo, signal, network) for signal in control.signals]
        lanes = [_sumo_lane(network, lane) for lane in network.lane_names]
        arrived: dict[str, float] = {}
        green, queued = np.zeros(len(control.signals), int), 0.0
        for decision in range(environment.max_steps):
            count = np.array([libsumo.lane.getLastStepVehicleNumber(lane) for lane in lanes])
            waiting = np.array([libsumo.lane.getLastStepHaltingNumber(lane) for lane in lanes])
            if policy == "random":
                goal = control.decode(int(random.integers(control.action_count)))
            else:
                goal = control.decode(control.best(RULES[policy](control, decision, count, waiting)))
            first, then = control.shown(green, goal)
            before = _at_phase(control.green_phase, green)
            for step in range(steps):
                if step in (0, clearing):
                    shown = first if step < clearing else then
                    for signal, its_links, old, now in zip(control.signals, links, before, shown, strict=True):
                        libsumo.trafficlight.setRedYellowGreenState(signal, _state(its_links, int(old), int(now)))
                libsumo.simulationStep()
                arrived |= dict.fromkeys(libsumo.simulation.getArrivedIDList(), libsumo.simulation.getTime())
            green = goal
            halted = np.array([libsumo.lane.getLastStepHaltingNumber(lane) for lane in lanes])
            queued += float(control.queue(halted))
        end = libsumo.simulation.getTime()
        inside = libsumo.vehicle.getIDCount()
    finally:
        libsumo.close()
    created = {name: time for name, time in due.items() if time < end}
    return {
        "average_travel_time": float(np.mean([arrived.get(name, end) - time for name, time in created.items()])),
        "throughput": float(len(arrived)),
        "queue_length": queued / environment.max_steps,
        "vehicles_inside": float(inside),
        "vehicles_outside": float(len(created) - len(arrived) - inside),
    }


def write_net(network: RoadNetwork, folder: Path) -> Path:
    """The road net as SUMO's, made by `netconvert`; roads and signals keep their names."""
    net = network.scenario.net
    nodes, edges, connections = (ElementTree.Element(tag) for tag in ("nodes", "edges", "connections"))
    ends = {road.start: road.points[0] for road in net.roads} | {road.end: road.points[-1] for road in net.roads}
    for one in net.intersections:
        x, y = ends[one.name]
        _add(nodes, "node", id=one.name, x=x, y=y, type="priority" if one.virtual else "traffic_light")
        for link in one.road_links:
            for start, end in _lane_pairs(network, link):
                _add(
                    connections, "connection", **{"from": link.start_road}, to=link.end_road, fromLane=start, toLane=end
                )
    for road in net.roads:
        speed, width = road.lanes[0][1], road.lanes[0][0]
        shape = " ".join(f"{x},{y}" for x, y in road.points)
        names = {"from": road.start, "to": road.end}
        _add(edges, "edge", id=road.name, **names, numLanes=len(road.lanes), speed=speed, width=width, shape=shape)
    files = {}
    for option, root in (("node", nodes), ("edge", edges), ("connection", connections)):
        files[option] = folder / f"{option}.xml"
        ElementTree.ElementTree(root).write(files[option])
    target = folder / "grid.net.xml"
    command = [str(_netconvert()), "--no-turnarounds", "true", "--no-warnings", "true", "-o", str(target)]
    command += [part for option, file in files.items() for part in (f"--{option}-files", str(file))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SadqError(f"netconvert could not make the net ({' '.join(done.stderr.split())}): check the road net.")
    return target


def write_trips(environment: CityFlow, path: Path) -> dict[str, float]:
    """The episode's vehicles as SUMO's trips along fixed routes; gives the time at which each wants to enter."""
    network = environment.network
    root = ElementTree.Element("routes")
    for index, vehicle in enumerate(network.types):
        _add(
            root,
            "vType",
            id=f"type_{index}",
            length=vehicle.length,
            minGap=vehicle.min_gap,
            accel=vehicle.max_acceleration,
            decel=vehicle.usual_deceleration,
            emergencyDecel=max(vehicle.max_deceleration, vehicle.usual_deceleration),
            maxSpeed=vehicle.max_speed,
            tau=vehicle.headway,
        )
    for index, route in enumerate(network.routes):
        _add(root, "route", id=f"route_{index}", edges=" ".join(route))
    due = {}
    for number, (flow, step) in enumerate(
        zip(environment.departures.flow, environment.departures.created, strict=True)
    ):
        name, time = f"vehicle_{number}", step * network.scenario.interval
        kind = f"type_{network.types.index(network.scenario.flows[flow].vehicle)}"
        _add(root, "vehicle", id=name, type=kind, route=f"route_{flow}", depart=time, departLane="best")
        due[name] = time
    ElementTree.ElementTree(root).write(path)
    return due


def _lane_pairs(network: RoadNetwork, link: RoadLink) -> list[tuple[int, int]]:
    """(from, to) lanes of a road link in SUMO's count, from the right: left turns keep left, right turns right."""
    roads = {road.name: len(road.lanes) for road in network.scenario.net.roads}
    starts = sorted({one.start_lane for one in link.lane_links})
    leaving, entered = roads[link.start_road], roads[link.end_road]
    pairs = []
    for index, lane in enumerate(starts):
        goal = {
            LINK_KINDS["turn_left"]: index,
            LINK_KINDS["turn_right"]: entered - len(starts) + index,
            LINK_KINDS["go_straight"]: lane,
        }[link.kind]
        pairs.append((leaving - 1 - lane, entered - 1 - min(max(goal, 0), entered - 1)))
    return pairs


def _sumo_lane(network: RoadNetwork, lane: str) -> str:
    road, _, index = lane.rpartition("_")
    lanes = next(len(one.lanes) for one in network.scenario.net.roads if one.name == road)
    return f"{road}_{lanes - 1 - int(index)}"


def _links(libsumo: Any, signal: str, network: RoadNetwork) -> list[tuple[int, tuple[bool, ...]]]:
    """(kind, whether green by phase) of each of SUMO's links at a signal, in the order of its state's letters."""
    intersection: Intersection = next(one for one in network.scenario.net.intersections if one.name == signal)
    by_roads = {(link.start_road, link.end_road): index for index, link in enumerate(intersection.road_links)}
    links = []
    for controlled in libsumo.trafficlight.getControlledLinks(signal):
        start, end = (lane.rpartition("_")[0] for lane in controlled[0][:2])
        index = by_roads[start, end]
        shown = tuple(index in phase.road_links for phase in intersection.phases)
        links.append((intersection.road_links[index].kind, shown))
    return links


def _state(links: list[tuple[int, tuple[bool, ...]]], before: int, phase: int) -> str:
    """A phase in SUMO's letters: right turns yield, and what loses its green turns yellow first."""
    letters = []
    for kind, green in links:
        if green[phase]:
            letters.append("g" if kind == LINK_KINDS["turn_right"] else "G")
        else:
            letters.append("y" if green[before] and before != phase else "r")
    return "".join(letters)


def _at_phase(table: np.ndarray, green: np.ndarray) -> np.ndarray:
    return table[np.arange(len(green)), green]


def _add(parent: ElementTree.Element, tag: str, **attributes: Any) -> None:
    ElementTree.SubElement(parent, tag, {name: str(value) for name, value in attributes.items()})


def available() -> bool:
    """Whether the extra is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("libsumo", "sumo"))


def _libsumo() -> ModuleType:
    _require()
    return importlib.import_module("libsumo")


def _netconvert() -> Path:
    _require()
    home = importlib.import_module("sumo").__file__
    assert home is not None
    return Path(home).parent / "bin" / "netconvert"


def _require() -> None:
    if not available():
        raise SadqError("SUMO is not installed, expected the extra `sumo`: pip install 'sadq[sumo]'.")


def main() -> None:
    """The paper's grid, at its own demand and where it is not overloaded."""
    results = {}
    for demand in (1.0, 0.4):
        environment = make(demand=demand)
        assert isinstance(environment, CityFlow)
        results[f"demand {demand}"] = compare(environment)
    json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
