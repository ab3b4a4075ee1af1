"""A grid of signalled intersections and its demand in CityFlow's format, made from a few numbers (paper, Appendix B.1).

The numbers of the default grid are those of DI-smartcross's 2 x 2 grid, the likely original of the paper's: 4
intersections with 20 incoming lanes and 4 greens each. Its road net is this one, link for link; the demand has the same
make-up and rates, but the turning flows' exits and intervals, which were drawn at random there, are drawn anew here.
"""

import dataclasses
import functools
import json
import math
import random
import tempfile
from pathlib import Path
from typing import Any

from sadq.envs.cityflow.files import Scenario, VehicleType, read_scenario
from sadq.errors import SadqError
from sadq.registry import typed

HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Of roads, in the order of their names' last number: east, north, west, south."""
TURNS = {0: "go_straight", 1: "turn_left", 3: "turn_right"}
"""By the heading of the road that is entered, counted from the one that is left."""
GREENS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""(axis, turn) of each green phase: straight ahead, then left, along the rows and then along the columns."""

Node = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Which lanes of a road go where, counted from the middle of the road."""

    left: tuple[int, ...]
    straight: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def count(self) -> int:
        return 1 + max(self.left + self.straight + self.right)

    def of(self, turn: int) -> tuple[int, ...]:
        return {0: self.straight, 1: self.left, 3: self.right}[turn]


# Both types as in DI-smartcross's `flow_2_2.json`; the car is also CityFlow's own example.
CAR = VehicleType(5.0, 2.0, 4.5, 2.0, 4.5, 2.5, 16.67, 1.5)
TRUCK = VehicleType(10.0, 1.5, 3.5, 1.0, 3.5, 3.0, 12.0, 2.0)
VEHICLE_WIDTH = 2.0
"""Metres; the format asks for it, and no rule of traffic depends on it."""


@typed
@dataclasses.dataclass(frozen=True)
class Grid:
    """Rows run from west to east, columns from south to north; intersection_x_y is in column x and row y, from 1.

    Every entry of the grid sends one flow of cars and one of trucks straight through, and as many to each of
    `turning_flows` other exits. At the default rates about 4.5 vehicles a second want to enter the 2 x 2 grid (4.7 in
    DI-smartcross's), more than it can carry whatever its signals do: queues reach back out of it.
    """

    rows: int = 2
    columns: int = 2
    # Lengths in metres: `roadnet_2_2.json`.
    row_spacing: float = 200.0
    column_spacing: float = 300.0
    row_entry: float = 200.0
    """Length of the roads that lead in and out along a row."""
    column_entry: float = 100.0
    intersection_width: float = 30.0
    """From the middle of an intersection to the stop lines."""
    curve_control: float = 10.0
    """Metres from either end of a link to its curve's control point."""
    lane_width: float = 4.0
    speed_limit: float = 16.67
    row_lanes: Lanes = Lanes(left=(0, 1), straight=(2, 3, 4), right=(4, 5))
    column_lanes: Lanes = Lanes(left=(0,), straight=(1, 2), right=(3,))
    scheduled_green: float = 30.0
    """Seconds in the signals' own schedule, which control from outside replaces."""
    scheduled_yellow: float = 5.0
    # Demand: `flow_2_2.json`.
    row_interval: float = 5.0
    """Seconds between two cars that go straight through along a row."""
    column_interval: float = 10.0
    turning_flows: int = 3
    turning_slowdown: float = 2.0
    """A turning flow's interval is the straight one's, times a factor drawn from 1 to this."""
    truck_slowdown: float = 4.0
    """Trucks come this many times less often than cars."""
    demand: float = 1.0
    """Multiplies all rates."""
    seed: int = 0
    """Of the exits and factors of turning flows, and of the configuration."""
    car: VehicleType = CAR
    truck: VehicleType = TRUCK

    def __post_init__(self) -> None:
        for field, least in (("rows", 1), ("columns", 1), ("turning_flows", 0), ("seed", 0)):
            if getattr(self, field) < least:
                raise SadqError(f"a grid got {field}={getattr(self, field)!r}, expected a whole number from {least}.")
        for field in ("row_interval", "column_interval", "turning_slowdown", "truck_slowdown", "demand", "speed_limit"):
            if not getattr(self, field) > 0:
                raise SadqError(f"a grid got {field}={getattr(self, field)!r}, expected a number above 0.")
        if self.demand > self._most_demand():
            raise SadqError(
                f"a grid got demand={self.demand!r}, expected at most {self._most_demand():g}, by which a vehicle may come "
                "each second on every entering lane: choose a smaller one, or longer intervals."
            )
        spans = {"row_spacing": 2, "column_spacing": 2, "row_entry": 1, "column_entry": 1}
        for field, ends in spans.items():
            if not getattr(self, field) > ends * self.intersection_width:
                raise SadqError(
                    f"a grid got {field}={getattr(self, field)!r}, expected more than the "
                    f"{ends * self.intersection_width:g} m that intersections take of it."
                )

    def road_net(self) -> dict[str, Any]:
        """The content of `roadnet.json`."""
        nodes = [(x, y) for y in range(self.rows + 2) for x in range(self.columns + 2) if self._exists((x, y))]
        return {
            "intersections": [self._intersection(node) for node in nodes],
            "roads": [
                self._road(node, heading) for node in nodes for heading in range(4) if self._leads(node, heading)
            ],
        }

    def flows(self) -> list[dict[str, Any]]:
        """The content of `flow.json`."""
        draw = random.Random(self.seed).random  # its sequence is the same in every version of Python
        flows = []
        for start, heading, straight in self._entries():
            others = [road for end, road in self._exits() if end != start and road != straight]
            interval = (self.row_interval if heading % 2 == 0 else self.column_interval) / self.demand
            routes = [(straight, 1.0)]
            for _ in range(min(self.turning_flows, len(others))):
                chosen = others.pop(int(draw() * len(others)))
                routes.append((chosen, 1.0 + draw() * (self.turning_slowdown - 1.0)))
            for goal, factor in routes:
                for vehicle, slowdown in ((self.truck, self.truck_slowdown), (self.car, 1.0)):
                    flows.append(
                        {
                            "vehicle": _vehicle(vehicle),
                            "route": [_road_name(start, heading), goal],
                            "interval": interval * factor * slowdown,
                            "startTime": 0,
                            "endTime": -1,
                        }
                    )
        return flows

    def write(self, folder: str | Path) -> Path:
        """Write the three files of the scenario; gives the configuration's path."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "interval": 1.0,
            "seed": self.seed,
            "dir": "./",
            "roadnetFile": "roadnet.json",
            "flowFile": "flow.json",
            "rlTrafficLight": True,
            "saveReplay": False,
            "roadnetLogFile": "replay_roadnet.json",
            "replayLogFile": "replay.txt",
            "laneChange": False,
        }
        for name, content in (("roadnet", self.road_net()), ("flow", self.flows()), ("config", config)):
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        return folder / "config.json"

    def config_path(self, folder: Path) -> Path:
        """The configuration, written into the folder."""
        return self.write(folder)

    def scenario(self) -> Scenario:
        """The scenario as the simulator reads it."""
        return _scenario(self)

    def _most_demand(self) -> float:
        """The demand by which the flows of an entry, each at its shortest interval, have a vehicle a second and lane."""
        exits = min(self.turning_flows, 2 * (self.rows + self.columns) - 2)
        flows = (1 + 1 / self.truck_slowdown) * (1 + exits / min(1.0, self.turning_slowdown))
        entries = (self.row_interval, self.row_lanes), (self.column_interval, self.column_lanes)
        return min(interval * lanes.count for interval, lanes in entries) / flows

    def _is_signal(self, node: Node) -> bool:
        return 1 <= node[0] <= self.columns and 1 <= node[1] <= self.rows

    def _exists(self, node: Node) -> bool:
        """Whether there is an intersection or an end of a row or column: all but the corners."""
        inside = 1 <= node[0] <= self.columns, 1 <= node[1] <= self.rows
        return any(inside) and 0 <= node[0] <= self.columns + 1 and 0 <= node[1] <= self.rows + 1

    def _leads(self, node: Node, heading: int) -> bool:
        """Whether a road leaves the node in this direction; two ends of the net are not joined."""
        towards = _next(node, heading)
        return self._exists(towards) and (self._is_signal(node) or self._is_signal(towards))

    def _point(self, node: Node) -> tuple[float, float]:
        def along(index: int, count: int, spacing: float, entry: float) -> float:
            return -entry if index == 0 else (min(index, count) - 1) * spacing + (entry if index > count else 0.0)

        return (
            along(node[0], self.columns, self.column_spacing, self.row_entry),
            along(node[1], self.rows, self.row_spacing, self.column_entry),
        )

    def _lanes(self, heading: int) -> Lanes:
        return self.row_lanes if heading % 2 == 0 else self.column_lanes

    def _road(self, node: Node, heading: int) -> dict[str, Any]:
        towards = _next(node, heading)
        return {
            "id": _road_name(node, heading),
            "points": [_xy(self._point(node)), _xy(self._point(towards))],
            "lanes": [{"width": self.lane_width, "maxSpeed": self.speed_limit}] * self._lanes(heading).count,
            "startIntersection": _name(node),
            "endIntersection": _name(towards),
        }

    def _intersection(self, node: Node) -> dict[str, Any]:
        into = [(_next(node, heading + 2), heading) for heading in range(4)]
        arriving = [_road_name(source, heading) for source, heading in into if self._road_exists(source, heading)]
        leaving = [_road_name(node, heading) for heading in range(4) if self._leads(node, heading)]
        signal = self._is_signal(node)
        turns = [(heading, (goal - heading) % 4, goal) for heading in range(4) for goal in range(4)]
        turns = [turn for turn in turns if turn[1] in TURNS] if signal else []
        right = [index for index, (_, turn, _) in enumerate(turns) if turn == 3]
        phases = []
        for axis, wanted in GREENS if signal else ():
            green = [index for index, (heading, turn, _) in enumerate(turns) if heading % 2 == axis and turn == wanted]
            phases.append({"time": self.scheduled_green, "availableRoadLinks": sorted(green + right)})
            phases.append({"time": self.scheduled_yellow, "availableRoadLinks": right})
        return {
            "id": _name(node),
            "point": _xy(self._point(node)),
            "width": self.intersection_width if signal else 0.0,
            "roads": arriving + leaving,
            "roadLinks": [self._road_link(node, *turn) for turn in turns],
            "trafficLight": {"roadLinkIndices": list(range(len(turns))), "lightphases": phases},
            "virtual": not signal,
        }

    def _road_exists(self, node: Node, heading: int) -> bool:
        return self._exists(node) and self._leads(node, heading)

    def _road_link(self, node: Node, heading: int, turn: int, goal: int) -> dict[str, Any]:
        return {
            "type": TURNS[turn],
            "startRoad": _road_name(_next(node, heading + 2), heading),
            "endRoad": _road_name(node, goal),
            "direction": heading,
            "laneLinks": [
                {"startLaneIndex": start, "endLaneIndex": end, "points": self._curve(node, heading, start, goal, end)}
                for start in self._lanes(heading).of(turn)
                for end in range(self._lanes(goal).count)
            ],
        }

    def _curve(self, node: Node, heading: int, start: int, goal: int, end: int) -> list[dict[str, float]]:
        """A cubic from stop line to stop line, in ten pieces."""
        centre, width, control = self._point(node), self.intersection_width, self.curve_control

        def at(direction: int, lane: int, along: float) -> tuple[float, float]:
            (ux, uy), aside = HEADINGS[direction], (lane + 0.5) * self.lane_width
            return centre[0] + ux * along + uy * aside, centre[1] + uy * along - ux * aside

        corners = [at(heading, start, -width), at(heading, start, control - width)]
        corners += [at(goal, end, width - control), at(goal, end, width)]
        points = []
        for share in (piece / 10 for piece in range(11)):
            weights = [math.comb(3, power) * share**power * (1 - share) ** (3 - power) for power in range(4)]
            x, y = (sum(w * corner[axis] for w, corner in zip(weights, corners, strict=True)) for axis in (0, 1))
            points.append(_xy((x, y)))
        return points

    def _entries(self) -> list[tuple[Node, int, str]]:
        """(end of the net, heading, exit road straight across) of every entry: row by row, then column by column."""
        entries = [
            (start, heading, _road_name(last, heading))
            for y in range(1, self.rows + 1)
            for start, heading, last in (((0, y), 0, (self.columns, y)), ((self.columns + 1, y), 2, (1, y)))
        ]
        return entries + [
            (start, heading, _road_name(last, heading))
            for x in range(1, self.columns + 1)
            for start, heading, last in (((x, 0), 1, (x, self.rows)), ((x, self.rows + 1), 3, (x, 1)))
        ]

    def _exits(self) -> list[tuple[Node, str]]:
        """(end of the net, road that leads there) of every exit."""
        return [(end, _road_name(_next(end, heading), heading + 2)) for end, heading, _ in self._entries()]


@functools.lru_cache(maxsize=16)
def _scenario(grid: Grid) -> Scenario:
    with tempfile.TemporaryDirectory() as folder:
        return read_scenario(grid.write(folder))


def _vehicle(kind: VehicleType) -> dict[str, float]:
    return {
        "length": kind.length,
        "width": VEHICLE_WIDTH,
        "maxPosAcc": kind.max_acceleration,
        "maxNegAcc": kind.max_deceleration,
        "usualPosAcc": kind.usual_acceleration,
        "usualNegAcc": kind.usual_deceleration,
        "minGap": kind.min_gap,
        "maxSpeed": kind.max_speed,
        "headwayTime": kind.headway,
    }


def _next(node: Node, heading: int) -> Node:
    step = HEADINGS[heading % 4]
    return node[0] + step[0], node[1] + step[1]


def _name(node: Node) -> str:
    return f"intersection_{node[0]}_{node[1]}"


def _road_name(node: Node, heading: int) -> str:
    return f"road_{node[0]}_{node[1]}_{heading % 4}"


def _xy(point: tuple[float, float]) -> dict[str, float]:
    return {"x": point[0], "y": point[1]}
