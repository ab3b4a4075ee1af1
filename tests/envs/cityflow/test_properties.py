"""What must hold in every step on any net: nobody is lost, overlaps or runs a red, whatever the demand and the signals."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import nets
import numpy as np
import pytest
from reference import Reference

from sadq.envs.cityflow import arrays, demand, files, road_network
from sadq.envs.cityflow.capacity import expected_inside, most_inside
from sadq.envs.cityflow.demand import Demand, Trips
from sadq.envs.cityflow.engine import NO_SLOT, TOO_MANY_MOVERS, Simulator, State
from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.envs.cityflow.simulate import Simulation, simulated

STEPS = 200
SEEDS = 4


def assert_equals_reference(run: Simulation, phases: np.ndarray) -> None:
    """Every vehicle at every step, to the last bit."""
    reference = Reference(run.network, run.trips)
    recording = run.recording
    columns = recording.trip, recording.drivable, recording.distance, recording.speed
    for step in range(run.steps):
        reference.step(phases[step])
        rows = zip(*(column[recording.step == step] for column in columns), strict=True)
        got = {int(trip): (int(drivable), float(x), float(v)) for trip, drivable, x, v in rows}
        assert got == reference.rows(), f"step {step}"
    assert reference.finished
    assert {trip: step for trip, step in enumerate(run.finished) if step >= 0} == reference.finished
    assert {trip: step for trip, step in enumerate(run.entered) if step >= 0} == reference.entered


@pytest.mark.parametrize(("seed", "interval"), [pytest.param(3, 0.5, marks=pytest.mark.thorough), (4, 0.3)])
def test_arrays_and_plain_rules_agree_whatever_the_interval(tmp_path: Path, seed: int, interval: float) -> None:
    config = nets.write_random(tmp_path, seed, 2, 2, interval)
    built = road_network.build(files.read_scenario(config))
    assert built.ways.dead_end.any()
    phases = nets.random_phases(config, seed, STEPS)
    assert_equals_reference(simulated(built, demand.drawn_trips(built, STEPS), phases), phases)


class Batch:
    """Several demands and signal plans on one net, in single precision, with the state after every step."""

    def __init__(self, folder: Path) -> None:
        config = nets.write_random(folder, 11, 2, 2)
        self.network: RoadNetwork = road_network.build(files.read_scenario(config))
        self.trips: list[Trips] = [demand.drawn_trips(self.network, STEPS, seed) for seed in range(SEEDS)]
        self.phases = np.stack([nets.random_phases(config, seed, STEPS) for seed in range(SEEDS)])
        self.simulator = Simulator(self.network, 300)
        demands = [demand.demand_of(self.network, trips) for trips in self.trips]
        self.demand: Demand = jax.tree.map(lambda *parts: jnp.stack(parts), *demands)
        self.run = jax.jit(jax.vmap(self._run))
        self.states: State = jax.tree.map(np.asarray, self.run(self.demand, jnp.asarray(self.phases)))

    def _run(self, demand: Demand, phases: Any) -> State:
        def one(state: State, phase: Any) -> tuple[State, State]:
            state = self.simulator.step(demand, state, phase)
            return state, state

        return jax.lax.scan(one, self.simulator.initial(demand), phases)[1]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return Batch(tmp_path_factory.mktemp("net"))


def test_nobody_is_lost(batch: Batch) -> None:
    states = batch.states
    assert not states.fault.any()
    inside = np.asarray(batch.simulator.tables.places.drivable)[states.vehicles.place] < batch.simulator.sizes.drivables
    entered = (states.queue - np.asarray(batch.demand.queue_start)[:, None]).sum(axis=2)
    for row, trips in enumerate(batch.trips):
        created = np.searchsorted(trips.created, np.arange(STEPS), "right")
        outside = created - entered[row]
        assert (outside >= 0).all()
        np.testing.assert_array_equal(inside[row].sum(axis=1), entered[row] - states.finished[row])
        np.testing.assert_array_equal(created, outside + inside[row].sum(axis=1) + states.finished[row])
        free = batch.simulator.slots - 1 - states.lists.free_count[row]
        np.testing.assert_array_equal(inside[row].sum(axis=1), free)
        for step in range(STEPS):
            running = states.vehicles.trip[row, step][inside[row, step]]
            assert len(set(running.tolist())) == len(running)
    assert states.finished[:, -1].min() > 5


def test_every_line_is_in_order(batch: Batch) -> None:
    """Following leaders from the last vehicle of a drivable, or followers from the first, meets all of its vehicles."""
    states, sizes = batch.states, batch.simulator.sizes
    drivable_of = np.asarray(batch.simulator.tables.places.drivable)
    nobody = batch.simulator.slots - 1
    for row in range(SEEDS):
        for step in range(0, STEPS, 7):
            vehicles = jax.tree.map(lambda column: column[row, step], states.vehicles)
            lists = jax.tree.map(lambda column: column[row, step], states.lists)
            drivable = drivable_of[vehicles.place]
            for number in range(sizes.drivables):
                members = set(np.flatnonzero(drivable == number).tolist())
                for start, link in ((lists.tail[number], vehicles.leader), (lists.head[number], vehicles.follower)):
                    met, slot = [], int(start)
                    while slot != nobody:
                        met.append(slot)
                        slot = int(link[slot])
                    assert len(met) == len(members)
                    assert set(met) == members


def lengths(batch: Batch, place: np.ndarray) -> np.ndarray:
    kinds = np.array([kind.length for kind in batch.network.types])
    return kinds[np.append(batch.network.ways.vehicle_type, 0)[np.minimum(place, len(batch.network.ways.drivable))]]


def test_nobody_runs_into_the_vehicle_ahead(batch: Batch) -> None:
    """On one drivable: vehicles from two links may come onto a lane side by side, but no gap that is there closes."""
    vehicles = batch.states.vehicles
    nobody = batch.simulator.slots - 1
    checked = 0
    for row in range(SEEDS):
        place, leader, distance = vehicles.place[row], vehicles.leader[row], vehicles.distance[row]
        rear = distance - lengths(batch, place)
        gap = np.take_along_axis(rear, leader, axis=1) - distance
        same = (leader[1:] == leader[:-1]) & (leader[1:] != nobody) & (place[1:] == place[:-1])
        kept = same & (vehicles.trip[row][1:] == vehicles.trip[row][:-1]) & (gap[:-1] >= 0)
        assert (gap[1:][kept] > -1e-3).all()
        checked += int(kept.sum())
    assert checked > 1000


def test_nobody_who_could_stop_runs_a_red(batch: Batch) -> None:
    net, vehicles = batch.network, batch.states.vehicles
    places = net.ways.drivable
    brakes = np.array([kind.max_deceleration for kind in net.types])
    waited = 0
    for row in range(SEEDS):
        for step in range(STEPS - 1):
            place = vehicles.place[row, step]
            drivable, following = places[place], np.append(places, -1)[place + 1]
            on_lane = (drivable >= 0) & (drivable < net.lane_count) & (following >= net.lane_count)
            link = np.where(on_lane, following - net.lane_count, 0)
            red = on_lane & ~net.green[batch.phases[row, step + 1][net.link_signal[link]], link]
            to_line = net.length[drivable] - vehicles.distance[row, step]
            speed = vehicles.speed[row, step].astype(float)
            could_stop = speed**2 / 2 / brakes[net.ways.vehicle_type[place]] < to_line - 1e-3
            must_stay = red & could_stop
            same_trip = vehicles.trip[row, step + 1] == vehicles.trip[row, step]
            assert ((vehicles.place[row, step + 1] == place) & same_trip)[must_stay].all()
            waited += int((must_stay & (to_line < 10) & (speed < 0.1)).sum())
    assert waited > 100


@pytest.fixture(scope="module")
def alone(batch: Batch) -> Simulation:
    """The last of the batch by itself, in double precision."""
    return simulated(batch.network, batch.trips[-1], batch.phases[-1])


def test_arrays_and_plain_rules_agree(batch: Batch, alone: Simulation) -> None:
    assert_equals_reference(alone, batch.phases[-1])


@pytest.mark.parametrize("device", ["cpu", "accelerator"])
def test_a_batch_equals_its_members(
    batch: Batch, alone: Simulation, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In double precision to the last bit, also where batches are nested, and by what is computed for accelerators:
    all crossings at once, and loops of a fixed length."""
    if device == "accelerator":
        for module in ("arrays", "admission", "engine", "moving"):
            monkeypatch.setattr(f"sadq.envs.cityflow.{module}.on_cpu", lambda: False)
    with jax.enable_x64(True):
        simulator = Simulator(batch.network, 300, dtype=jnp.float64)
        assert simulator.by_pairs == (device == "cpu")
        steps = 60

        def run(demand: Demand, phases: Any) -> State:
            step = lambda state, phase: (simulator.step(demand, state, phase), None)  # noqa: E731
            return jax.lax.scan(step, simulator.initial(demand), phases)[0]

        pairs = jax.tree.map(lambda part: part.reshape(2, 2, *part.shape[1:]), batch.demand)
        phases = jnp.asarray(batch.phases[:, :steps]).reshape(2, 2, steps, -1)
        vehicles = jax.jit(jax.vmap(jax.vmap(run)))(pairs, phases).vehicles
    last = jax.tree.map(lambda column: np.asarray(column)[1, 1], vehicles)
    drivable = np.asarray(simulator.tables.places.drivable)[last.place]
    inside = drivable < simulator.sizes.drivables
    trip = np.asarray(batch.demand.trip[-1])[last.trip]
    nested = sorted(zip(trip[inside], drivable[inside], last.distance[inside], last.speed[inside], strict=True))
    here = alone.recording.step == steps - 1
    columns = alone.recording.trip, alone.recording.drivable, alone.recording.distance, alone.recording.speed
    assert len(nested) > 20
    assert nested == sorted(zip(*(column[here] for column in columns), strict=True))


def test_single_precision_stays_close(batch: Batch, alone: Simulation) -> None:
    """Rounding changes when single vehicles go, not the traffic."""
    finished = (alone.finished >= 0).sum()
    assert abs(int(batch.states.finished[-1, -1]) - finished) <= max(2, 0.05 * finished)


def test_sizes_that_are_too_small_are_reported(batch: Batch) -> None:
    few = jax.tree.map(lambda part: part[0], batch.demand)
    simulator = Simulator(batch.network, capacity=31, movers=1)
    step = lambda state, phase: (simulator.step(few, state, phase), None)  # noqa: E731
    state = jax.jit(lambda phases: jax.lax.scan(step, simulator.initial(few), phases)[0])(batch.phases[0])
    assert int(state.fault) == NO_SLOT | TOO_MANY_MOVERS
    assert (np.asarray(state.lacking) > 0).all()


def test_a_run_grows_until_it_fits(batch: Batch, alone: Simulation) -> None:
    grown = simulated(batch.network, batch.trips[-1], batch.phases[-1], capacity=127)
    np.testing.assert_array_equal(grown.finished, alone.finished)
    np.testing.assert_array_equal(np.sort(grown.recording.distance), np.sort(alone.recording.distance))
    assert np.bincount(alone.recording.step).max() > 127


def test_room_is_made_for_what_the_flows_make_likely(batch: Batch, alone: Simulation) -> None:
    most = np.bincount(alone.recording.step).max()
    room = expected_inside(batch.network, alone.trips, STEPS)
    assert most <= room <= len(alone.trips.flow) and room <= most_inside(batch.network)
    few = Trips(*(column[:3] for column in alone.trips))
    assert expected_inside(batch.network, few, STEPS) == 3


def test_running_sums_and_packing_at_any_size() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 31, 32, 33, 1000, 1057):
        counts = rng.integers(0, 33, size)
        np.testing.assert_array_equal(jax.jit(arrays.running)(jnp.asarray(counts, jnp.int32)), np.cumsum(counts))
    for size, share in ((32, 0.5), (2080, 0.1), (2080, 0.0), (4096, 1.0)):
        mask = rng.random(size) < share
        pack = jax.jit(lambda mask, start, size=size: arrays.pack(arrays.bit_words(mask), start, 96, size))
        packed, counts = zip(*(pack(mask, start) for start in range(0, size, 96)), strict=True)
        assert {int(count) for count in counts} == {mask.sum()}
        found = np.concatenate(packed)
        assert sorted(found[found < size].tolist()) == np.flatnonzero(mask).tolist()
        assert (found[mask.sum() :] == size).all()
        np.testing.assert_array_equal(jax.jit(arrays.ranks)(mask), np.cumsum(mask) - mask)
