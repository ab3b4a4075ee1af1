"""Road nets of any size in CityFlow's format, for measurements of how the engine grows with them."""

import json
import random
from pathlib import Path
from typing import Any

from sadq.envs.cityflow.grid import HEADINGS, Grid, Lanes

LANES = Lanes(left=(0,), straight=(1,), right=(2,))
RATE = 10 / 400
"""New vehicles a second and intersection."""
ROADS = 3, 30
"""Roads of a route, at least and at most."""


def write_city(folder: Path, size: int, seconds: int, rate: float = RATE, seed: int = 0) -> Path:
    """A grid of `size` x `size` signals with three lanes a road of 300 m, its vehicles on random shortest routes.

    Each vehicle is a flow of its own, as in the files of real cities, and may start and end at any intersection.
    """
    grid = Grid(
        rows=size,
        columns=size,
        row_spacing=300.0,
        column_spacing=300.0,
        row_entry=300.0,
        column_entry=300.0,
        row_lanes=LANES,
        column_lanes=LANES,
    )
    config = grid.write(folder)
    draw = random.Random(seed)
    car, created, flows = grid.flows()[1]["vehicle"], 0.0, []
    while (created := created + 1 / (rate * size * size)) < seconds:
        flows.append(
            {
                "vehicle": car,
                "route": _route(draw, size),
                "interval": 1.0,
                "startTime": int(created),
                "endTime": int(created),
            }
        )
    (folder / "flow.json").write_text(json.dumps(flows))
    return config


def _route(draw: random.Random, size: int) -> list[str]:
    """The roads from one node to another, whichever way the draw leads towards it."""
    longest = min(ROADS[1], 2 * size)
    while True:
        (x, y), goal = _node(draw, size), _node(draw, size)
        if not ROADS[0] <= abs(goal[0] - x) + abs(goal[1] - y) <= longest:
            continue
        roads: list[Any] = []
        while (x, y) != goal:
            ways = [
                heading
                for heading, (dx, dy) in enumerate(HEADINGS)
                if dx * (goal[0] - x) + dy * (goal[1] - y) > 0 and _inside(x + dx, y + dy, goal, size)
            ]
            if not ways:
                break
            heading = draw.choice(ways)
            roads.append(f"road_{x}_{y}_{heading}")
            x, y = x + HEADINGS[heading][0], y + HEADINGS[heading][1]
        else:
            return roads


def _node(draw: random.Random, size: int) -> tuple[int, int]:
    """An intersection, or an end of the net."""
    while True:
        x, y = draw.randrange(size + 2), draw.randrange(size + 2)
        if 0 < x <= size or 0 < y <= size:
            return x, y


def _inside(x: int, y: int, goal: tuple[int, int], size: int) -> bool:
    return (0 < x <= size and 0 < y <= size) or (x, y) == goal
