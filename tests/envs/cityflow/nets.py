"""Random road nets and demands, written as CityFlow's files: small grids full of conflicts."""

import json
from pathlib import Path
from typing import Any

import numpy as np

SIDES = ((1, 0), (0, 1), (-1, 0), (0, -1))
CAR = {
    "length": 5.0,
    "width": 2.0,
    "maxPosAcc": 2.0,
    "maxNegAcc": 4.5,
    "usualPosAcc": 2.0,
    "usualNegAcc": 4.5,
    "minGap": 2.5,
    "maxSpeed": 16.67,
    "headwayTime": 1.5,
}
TRUCK = (
    CAR
    | {"length": 10.0, "maxPosAcc": 1.5, "maxNegAcc": 3.5, "usualPosAcc": 1.0, "usualNegAcc": 3.5}
    | {
        "minGap": 3.0,
        "maxSpeed": 12.0,
        "headwayTime": 2.0,
    }
)


def write_random(folder: Path, seed: int, columns: int, rows: int, interval: float = 1.0) -> Path:
    """Write a random grid with random flows into a folder, and return its configuration."""
    rng = np.random.default_rng(seed)
    net, entries = _road_net(rng, columns, rows)
    exits = [name.split(">")[1] + ">" + name.split(">")[0] for name in entries]
    flows = [_flow(rng, entries, exits) for _ in range(3 * len(entries))]
    return write_scenario(folder, net, flows, interval)


def write_scenario(folder: Path, net: dict, flows: list, interval: float = 1.0, **changes: Any) -> Path:
    config = {
        "interval": interval,
        "seed": 7,
        "dir": "./",
        "roadnetFile": "roadnet.json",
        "flowFile": "flow.json",
        "rlTrafficLight": True,
        "laneChange": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "roadnet.json").write_text(json.dumps(net))
    (folder / "flow.json").write_text(json.dumps(flows))
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder / "config.json"


def random_phases(config: Path, seed: int, steps: int) -> np.ndarray:
    """i[steps, signals]: each signal jumps to another phase now and then."""
    rng = np.random.default_rng(seed)
    net = json.loads((config.parent / "roadnet.json").read_text())
    counts = [len(i["trafficLight"]["lightphases"]) for i in net["intersections"] if not i["virtual"]]
    phases = np.zeros((steps, len(counts)), np.int32)
    for column, count in enumerate(counts):
        start = 0
        while start < steps:
            phases[start:, column] = rng.integers(count)
            start += int(rng.integers(3, 30))
    return phases


def _road_net(rng: np.random.Generator, columns: int, rows: int) -> tuple[dict, list[str]]:
    xs, ys = (np.cumsum(rng.uniform(70.0, 160.0, count + 2)) for count in (columns, rows))
    width = {(c, r): float(rng.uniform(8.0, 20.0)) for c in range(columns) for r in range(rows)}
    nodes = {(c, r): (float(xs[c + 1]), float(ys[r + 1])) for c in range(-1, columns + 1) for r in range(-1, rows + 1)}
    name = {node: f"n{node[0] + 1}{node[1] + 1}" for node in nodes}
    roads, lanes, entries = {}, {}, []
    for node in width:
        for side in SIDES:
            other = (node[0] + side[0], node[1] + side[1])
            for start, end in ((node, other), (other, node)):
                road = f"{name[start]}>{name[end]}"
                if road in roads:
                    continue
                lanes[road] = int(rng.integers(1, 4))
                roads[road] = {
                    "id": road,
                    "points": [{"x": nodes[at][0], "y": nodes[at][1]} for at in (start, end)],
                    "lanes": [{"width": 4.0, "maxSpeed": float(rng.uniform(8.0, 18.0))} for _ in range(lanes[road])],
                    "startIntersection": name[start],
                    "endIntersection": name[end],
                }
                if start not in width:
                    entries.append(road)
    intersections = []
    for node, at in nodes.items():
        touching = [road for road in roads if name[node] in road.split(">")]
        if not touching:
            continue
        base = {"id": name[node], "point": {"x": at[0], "y": at[1]}, "roads": touching, "virtual": node not in width}
        if node in width:
            links = _road_links(rng, node, name, lanes)
            phases = [
                {
                    "time": int(rng.integers(5, 30)),
                    "availableRoadLinks": np.flatnonzero(rng.random(len(links)) < p).tolist(),
                }
                for p in (0.7, 0.4, 0.0, 0.5)
            ]
            base |= {"width": width[node], "roadLinks": links, "trafficLight": {"lightphases": phases}}
        intersections.append(base)
    return {"intersections": intersections, "roads": list(roads.values())}, entries


def _road_links(rng: np.random.Generator, node: tuple[int, int], name: dict, lanes: dict) -> list[dict]:
    links = []
    for index, side in enumerate(SIDES):
        start = f"{name[(node[0] + side[0], node[1] + side[1])]}>{name[node]}"
        for kind in ("turn_left", "go_straight", "turn_right"):
            # The road that we come by lies at `side`: straight on is the opposite one, and left is clockwise from there.
            goal_side = SIDES[(index + {"turn_left": 3, "go_straight": 2, "turn_right": 1}[kind]) % 4]
            end = f"{name[node]}>{name[(node[0] + goal_side[0], node[1] + goal_side[1])]}"
            pairs = [(i, j) for i in range(lanes[start]) for j in range(lanes[end]) if rng.random() < 0.7]
            pairs = pairs or [(0, 0)]
            links.append(
                {
                    "type": kind,
                    "startRoad": start,
                    "endRoad": end,
                    "laneLinks": [{"startLaneIndex": i, "endLaneIndex": j, "points": []} for i, j in pairs],
                }
            )
    return links


def _flow(rng: np.random.Generator, entries: list[str], exits: list[str]) -> dict:
    start = entries[rng.integers(len(entries))]
    ends = [road for road in exits if road.split(">")[1] != start.split(">")[0]]
    begin = int(rng.integers(0, 20))
    return {
        "vehicle": TRUCK if rng.random() < 0.3 else CAR,
        "route": [start, ends[rng.integers(len(ends))]],
        "interval": float(rng.uniform(3.0, 20.0)),
        "startTime": begin,
        "endTime": -1 if rng.random() < 0.5 else begin + int(rng.integers(0, 150)),
    }
