"""Run any CityFlow scenario in double precision and write what happened in the format of the engine's recordings."""

import csv
import functools
import gzip
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.cityflow.capacity import expected_inside
from sadq.envs.cityflow.demand import Demand, Trips, demand_of, drawn_trips, read_trips
from sadq.envs.cityflow.engine import LINK_OVERFULL, NO_SLOT, Frame, Simulator, State
from sadq.envs.cityflow.files import read_scenario
from sadq.envs.cityflow.road_network import RoadNetwork, build
from sadq.envs.cityflow.signals import cycled_phases, read_phases
from sadq.envs.cityflow.tables import Tables
from sadq.errors import SadqError
from sadq.types import Array

WAITING_SPEED = 0.1
_BLOCK = 128  # steps between two calls of `progress`


class Recording(NamedTuple):
    """Where every vehicle was after every step: one entry per vehicle inside the net and step, in order of steps."""

    step: np.ndarray  # of the step before, from 0
    trip: np.ndarray
    drivable: np.ndarray
    distance: np.ndarray
    speed: np.ndarray


class Simulation(NamedTuple):
    """A simulated scenario."""

    network: RoadNetwork
    trips: Trips
    steps: int
    recording: Recording
    entered: np.ndarray  # i[N] step of each trip, -1: not yet
    finished: np.ndarray  # i[N] step of each trip, -1: not yet


def simulate(
    config: str | Path,
    phases: str | Path | None = None,
    trips: str | Path | None = None,
    seconds: float = 3600.0,
    out: str | Path | None = None,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    capacity: int | None = None,
) -> dict[str, Any]:
    """Simulate `seconds` of a scenario and return its summary; with `out`, write that and all details there.

    `phases` is a table `time,intersection,phase`; without it the signals follow the road net's own times. `trips` is a
    table with the columns `vehicle`, `first_lane` and `priority`; without it these are drawn from the seed, by default
    the configuration's, as the engine draws them. `progress` is called with the steps made and their number. `capacity`
    is how many vehicles there is room for inside the net at first, by default what the flows make likely.
    """
    if capacity is not None and capacity < 1:
        raise SadqError(f"capacity is {capacity}; expected a number of vehicles from 1.")
    if out is not None:
        _make(Path(out))  # before the work, which would be lost
    network = build(read_scenario(config))
    steps = round(seconds / network.scenario.interval)
    if steps < 1:
        raise SadqError(f"seconds is {seconds:g}; expected at least one step of {network.scenario.interval:g} s.")
    schedule = cycled_phases(network, steps) if phases is None else read_phases(phases, network, steps)
    chosen = drawn_trips(network, steps, seed) if trips is None else read_trips(trips, network, steps)
    simulation = simulated(network, chosen, schedule, progress, capacity)
    summary = summary_of(simulation)
    if out is not None:
        write(simulation, summary, Path(out))
    return summary


def simulated(
    network: RoadNetwork,
    trips: Trips,
    schedule: np.ndarray,
    progress: Callable[[int, int], None] | None = None,
    capacity: int | None = None,
) -> Simulation:
    """Run a schedule of phases, i[steps, signals], with room for `capacity` vehicles inside the net at once.

    By default `expected_inside` says how many. A size that turns out too small is doubled, and the run goes on from the
    last block of steps; only that compiles a second time.
    """
    capacity = expected_inside(network, trips, len(schedule)) if capacity is None else capacity
    with jax.enable_x64(True):
        recording = _recorded(network, demand_of(network, trips), schedule, capacity, progress)
    entered, finished = (np.full(len(trips.flow), -1) for _ in range(2))
    seen, first = np.unique(recording.trip, return_index=True)
    entered[seen] = recording.step[first]
    seen, last_from_end = np.unique(recording.trip[::-1], return_index=True)
    after = recording.step[::-1][last_from_end] + 1
    finished[seen] = np.where(after < len(schedule), after, -1)
    return Simulation(network, trips, len(schedule), recording, entered, finished)


@functools.partial(jax.jit, static_argnums=0)
def _block(
    frame: Frame, tables: Tables, demand: Demand, state: State, phases: Array, wanted: Array
) -> tuple[State, tuple[Array, ...]]:
    """The state after a block of steps, and where vehicles were after each. The net's tables are arguments: a program
    without them is compiled faster, and is the same for nets of the same size."""
    simulator = Simulator.of_parts(frame, tables)

    def one(state: State, inputs: tuple[Array, Array]) -> tuple[State, tuple[Array, ...]]:
        phases, wanted = inputs
        state = jax.lax.cond(wanted, lambda s: simulator.step(demand, s, phases), lambda s: s, state)
        vehicles = state.vehicles
        return state, (vehicles.trip, tables.places.drivable[vehicles.place], vehicles.distance, vehicles.speed)

    return jax.lax.scan(one, state, (phases, wanted))


def _recorded(
    network: RoadNetwork,
    demand: Demand,
    schedule: np.ndarray,
    capacity: int,
    progress: Callable[[int, int], None] | None,
) -> Recording:
    simulator = Simulator(network, capacity, dtype=jnp.float64)
    state, steps, start = simulator.initial(demand), len(schedule), 0
    trip_of = np.asarray(demand.trip)
    parts: list[tuple[np.ndarray, ...]] = []
    while start < steps:
        index = np.arange(start, start + _BLOCK)
        wanted = index < steps
        phases = jnp.asarray(schedule[np.minimum(index, steps - 1)], jnp.int32)
        reached, rows = _block(*simulator.parts(), demand, state, phases, jnp.asarray(wanted))
        if int(reached.fault):
            larger = _enlarged(simulator, network, int(reached.fault))
            state, simulator = larger.grown(state, demand, simulator), larger
            continue
        state = reached
        trip, drivable, distance, speed = map(np.asarray, rows)
        step, slot = where = np.nonzero((drivable < simulator.sizes.drivables) & wanted[:, None])
        parts.append((start + step, trip_of[trip[where]], drivable[where], distance[where], speed[where]))
        start += _BLOCK
        if progress is not None:
            progress(min(start, steps), steps)
    return Recording(*map(np.concatenate, zip(*parts, strict=True)))


def _enlarged(simulator: Simulator, network: RoadNetwork, fault: int) -> Simulator:
    """A simulator with more of what was too little."""
    if fault & LINK_OVERFULL:
        raise SadqError("vehicles overlap on a lane link until more are on it than fit; widen the scenario's gaps.")
    capacity = 2 * simulator.slots if fault & NO_SLOT else simulator.slots - 1
    return Simulator(network, capacity, 2 * simulator.movers[1], dtype=simulator.dtype)


def summary_of(simulation: Simulation) -> dict[str, Any]:
    """The totals of a simulation, under the names of the recordings' `summary.json`."""
    interval, created = simulation.network.scenario.interval, simulation.trips.created
    done = simulation.finished >= 0
    travelled = np.where(done, simulation.finished, simulation.steps) - created
    recording = simulation.recording
    on_lane = recording.drivable < simulation.network.lane_count
    return {
        "seconds": _plain(simulation.steps * interval),
        "average_travel_time": float(travelled.mean() * interval) if len(created) else 0.0,
        "average_travel_time_finished_only": float(travelled[done].mean() * interval) if done.any() else 0.0,
        "vehicle_count_end": int(np.sum((simulation.entered >= 0) & ~done)),
        "waiting_to_enter_end": int(np.sum(simulation.entered < 0)),
        "total_spawned": len(created),
        "total_entered": int(np.sum(simulation.entered >= 0)),
        "total_finished": int(np.sum(done)),
        "max_vehicle_count": int(np.bincount(recording.step, minlength=1).max()),
        "waiting_vehicle_seconds": _plain(np.sum(on_lane & (recording.speed < WAITING_SPEED)) * interval),
    }


def write(simulation: Simulation, summary: dict[str, Any], folder: Path, vehicles: bool = True) -> None:
    """Write `lanes.csv.gz`, `vehicles.csv.gz`, by far the largest, `trips.csv.gz`, `routes.json` and `summary.json`."""
    _make(folder)
    lane_columns, vehicle_columns = (
        ("time", "lane", "vehicles", "waiting"),
        ("time", "vehicle", "drivable", "distance", "speed"),
    )
    trip_columns = ("vehicle", "flow", "created", "first_lane", "priority", "entered", "finished")
    _write_table(folder / "lanes.csv.gz", lane_columns, _lane_rows(simulation))
    if vehicles:
        _write_table(folder / "vehicles.csv.gz", vehicle_columns, _vehicle_rows(simulation))
    _write_table(folder / "trips.csv.gz", trip_columns, _trip_rows(simulation))
    routes = {f"flow_{index}": route for index, route in enumerate(simulation.network.routes)}
    (folder / "routes.json").write_text(json.dumps(routes, indent=0))
    (folder / "summary.json").write_text(json.dumps(summary, indent=1))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SadqError(f"{folder}: cannot be made a folder ({error.strerror}); choose another place.") from None


def lane_counts(simulation: Simulation) -> tuple[np.ndarray, np.ndarray]:
    """(vehicles, waiting vehicles) on each lane after each step: i[steps, lanes]."""
    recording, lanes = simulation.recording, simulation.network.lane_count
    on_lane = recording.drivable < lanes
    cells = recording.step * lanes + recording.drivable

    def counted(mask: np.ndarray) -> np.ndarray:
        return np.bincount(cells[mask], minlength=simulation.steps * lanes).reshape(simulation.steps, lanes)

    return counted(on_lane), counted(on_lane & (recording.speed < WAITING_SPEED))


def _lane_rows(simulation: Simulation) -> Iterable[tuple]:
    vehicles, waiting = lane_counts(simulation)
    names = simulation.network.lane_names
    order = sorted(range(len(names)), key=lambda lane: names[lane])
    step, place = np.nonzero(vehicles[:, order])
    lane = np.array(order)[place]
    counts = vehicles[step, lane].tolist(), waiting[step, lane].tolist()
    return zip(_times(simulation, step), map(names.__getitem__, lane.tolist()), *counts, strict=True)


def _vehicle_rows(simulation: Simulation) -> Iterable[tuple]:
    names, drivables, recording = simulation.trips.names(), simulation.network.drivable_names, simulation.recording
    order = np.lexsort((simulation.trips.number[recording.trip], simulation.trips.flow[recording.trip], recording.step))
    where = map(drivables.__getitem__, recording.drivable[order].tolist())
    numbers = (map("%.10g".__mod__, column[order].tolist()) for column in (recording.distance, recording.speed))
    who = map(names.__getitem__, recording.trip[order].tolist())
    return zip(_times(simulation, recording.step[order]), who, where, *numbers, strict=True)


def _trip_rows(simulation: Simulation) -> Iterable[tuple]:
    names, trips = simulation.trips.names(), simulation.trips
    for row in np.lexsort((trips.number, trips.flow)):
        times = (
            _time(simulation, step) if step >= 0 else "" for step in (simulation.entered[row], simulation.finished[row])
        )
        lane = simulation.network.lane_names[trips.lane[row]]
        yield names[row], trips.flow[row], _time(simulation, trips.created[row]), lane, trips.priority[row], *times


def _write_table(path: Path, columns: tuple[str, ...], rows: Iterable[tuple]) -> None:
    # Without the time of writing in its header, the same run gives the same file.
    packed = gzip.GzipFile(path, "wb", compresslevel=6, mtime=0)
    with packed, io.TextIOWrapper(packed, "utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _times(simulation: Simulation, step: np.ndarray) -> Iterable[float | int]:
    """When steps end."""
    times = [_time(simulation, number + 1) for number in range(simulation.steps)]
    return map(times.__getitem__, step.tolist())


def _time(simulation: Simulation, step: int) -> float | int:
    return _plain(step * simulation.network.scenario.interval)


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else float(value)
