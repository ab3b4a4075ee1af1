"""Which phase every signal shows at every step: set by a table of calls, or the road net's own times in a circle."""

import csv
import math
from pathlib import Path

import numpy as np

from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.errors import SadqError


def cycled_phases(network: RoadNetwork, steps: int) -> np.ndarray:
    """i[steps, signals]: each signal goes through its phases in order, each for its own time."""
    interval = network.scenario.interval
    schedule = np.zeros((steps, len(network.signals)), np.int32)
    signals = (intersection for intersection in network.scenario.net.intersections if not intersection.virtual)
    for column, intersection in enumerate(signals):
        phase, remaining = 0, intersection.phases[0].seconds
        for step in range(steps):
            schedule[step, column] = phase
            remaining -= interval
            while remaining <= 0.0:
                phase = (phase + 1) % len(intersection.phases)
                remaining += intersection.phases[phase].seconds
    return schedule


def read_phases(path: str | Path, network: RoadNetwork, steps: int) -> np.ndarray:
    """i[steps, signals] from a table `time,intersection,phase`: a phase stays until the next row, and 0 comes first.

    Of rows for the same time and intersection the last one holds.
    """
    if not network.scenario.signals_set:
        raise SadqError(
            f"{path}: phases cannot be set, for the configuration has `rlTrafficLight` false; make it true."
        )
    columns = {name: index for index, name in enumerate(network.signals)}
    counts = {one.name: len(one.phases) for one in network.scenario.net.intersections}
    schedule = np.zeros((steps, len(network.signals)), np.int32)
    calls: list[tuple[int, int, int]] = []
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if missing := {"time", "intersection", "phase"} - set(rows.fieldnames or ()):
                raise SadqError(f"{path}: the column {min(missing)!r} is missing; expected time, intersection, phase.")
            for row in rows:
                where = f"{path}: line {rows.line_num}"
                if row["intersection"] not in columns:
                    raise SadqError(f"{where}: {row['intersection']!r} is not an intersection with a signal.")
                time, phase = _number(row["time"]), _number(row["phase"])
                if time is None or time < 0:
                    raise SadqError(f"{where}: `time` is {row['time']!r}; expected seconds from 0.")
                count = counts[row["intersection"]]
                if phase is None or phase != int(phase) or not 0 <= phase < count:
                    raise SadqError(
                        f"{where}: `phase` is {row['phase']!r}; expected a whole number from 0 to {count - 1}."
                    )
                step = math.ceil(time / network.scenario.interval - 1e-9)
                calls.append((step, columns[row["intersection"]], int(phase)))
    except (OSError, UnicodeDecodeError) as error:
        raise SadqError(
            f"{path}: cannot be read ({getattr(error, 'strerror', 'not a text')}); check the path."
        ) from None
    for step, column, phase in sorted(calls, key=lambda call: call[0]):
        schedule[step:, column] = phase
    return schedule


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
