"""Simulating a scenario from its files: what is written, reported and refused; and the small parts that it rests on."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from sadq.envs.cityflow import files, road_network, routing
from sadq.envs.cityflow.grid import Grid
from sadq.envs.cityflow.ordering import engine_sorted
from sadq.envs.cityflow.simulate import simulate
from sadq.errors import SadqError

ONE_CAR = Path(__file__).parents[2] / "data" / "cityflow" / "one_car"


def test_signals_run_by_themselves_without_phases(tmp_path: Path) -> None:
    """Phase 0 of this net is red for 30 s, and phase 1 green: the car waits, where its recording sees green only."""
    calls = []
    summary = simulate(
        ONE_CAR / "config.json", seconds=150, out=tmp_path / "out", progress=lambda *steps: calls.append(steps)
    )
    assert calls == [(128, 150), (150, 150)]
    assert summary["seconds"] == 150
    assert summary["total_spawned"] == summary["total_entered"] == 1
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    with gzip.open(tmp_path / "out" / "vehicles.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["time", "vehicle", "drivable", "distance", "speed"]
    assert rows[0] == {"time": "4", "vehicle": "flow_0_0", "drivable": "W_C_0", "distance": "1", "speed": "2"}
    assert len(rows) == summary["average_travel_time"]


def test_a_net_stays_empty_while_nobody_comes() -> None:
    summary = simulate(ONE_CAR / "config.json", seconds=3)  # the car comes in second 3
    assert summary["total_spawned"] == summary["max_vehicle_count"] == 0
    assert summary["average_travel_time"] == 0.0


def test_what_cannot_be_simulated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SadqError, match="seconds is 0; expected at least one step of 1 s"):
        simulate(ONE_CAR / "config.json", seconds=0)
    with pytest.raises(SadqError, match="capacity is 0; expected a number of vehicles from 1"):
        simulate(ONE_CAR / "config.json", seconds=10, capacity=0)
    (tmp_path / "file").touch()
    with pytest.raises(SadqError, match="cannot be made a folder"):
        simulate(ONE_CAR / "config.json", seconds=10, out=tmp_path / "file")
    with pytest.raises(SadqError, match="cannot be read"):
        simulate(tmp_path / "none.json", seconds=10)
    with pytest.raises(SadqError, match="cannot be read"):
        simulate(ONE_CAR / "config.json", phases=tmp_path / "none.csv", seconds=10)
    with pytest.raises(SadqError, match="cannot be read"):
        simulate(ONE_CAR / "config.json", trips=tmp_path / "none.csv.gz", seconds=10)


def test_ties_keep_their_order_up_to_sixteen_and_the_rest_is_sorted() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 16, 17, 60, 300):
        items = [(int(key), index) for index, key in enumerate(rng.integers(0, 5, size))]
        result = engine_sorted(items, key=lambda item: item[0])
        assert sorted(result) == sorted(items)
        assert [key for key, _ in result] == sorted(key for key, _ in items)
        if size <= 16:
            assert result == sorted(items)


def test_a_route_takes_the_shortest_way_and_ends_where_lanes_do() -> None:
    # 0 -> 1 -> 3 is longer than 0 -> 2 -> 3, whatever the order of the choices.
    graph = routing.RoadGraph(
        ("a", "b", "c", "d"), (1.0, 9.0, 5.0, 1.0), ((1, 2), (3,), (3,), ()), ((0,), (1,), (2,), (3,))
    )
    shortest = routing.ShortestWays(graph)
    assert routing.fill(shortest, [0, 3]) == ((0, 2, 3), None)
    assert routing.fill(shortest, [0, 1, 1, 3]) == ((0, 1, 3), None)
    assert routing.fill(shortest, [0, 3, 0]) == ((), (3, 0))
    # Two lanes on road 1; only the second leads on, and the nearest to the lane is not it.
    links = routing.LinkGraph([0, 1, 1, 2], [0, 0, 1, 0], [[0, 1], [], [2], []], [1, 2, 3])
    assert list(routing.follow(links, (0, 1), 0)) == [(0, 1)]
    assert list(routing.follow(links, (0, 1, 2), 0)) == [(1, 2), (2, 3)]
    assert list(routing.follow(links, (0, 1, 2), 1)) == []


def test_a_route_may_pass_a_road_twice(tmp_path: Path) -> None:
    """A car goes once around a block and over its first side again before it leaves."""
    route = ["road_0_1_0", "road_1_1_0", "road_2_1_1", "road_2_2_2", "road_1_2_3", "road_1_1_0", "road_2_1_0"]
    config = Grid().write(tmp_path)
    flow = Grid().flows()[1] | {"route": route, "endTime": 0}
    (tmp_path / "flow.json").write_text(json.dumps([flow]))
    summary = simulate(config, seconds=400, out=tmp_path / "out")
    assert summary["total_finished"] == 1
    with gzip.open(tmp_path / "out" / "vehicles.csv.gz", "rt") as file:
        lanes = [row["drivable"] for row in csv.DictReader(file) if "_TO_" not in row["drivable"]]
    roads = [lane.rpartition("_")[0] for lane in lanes]
    assert [road for index, road in enumerate(roads) if index == 0 or road != roads[index - 1]] == route


def test_only_links_in_use_are_kept() -> None:
    built = road_network.build(files.read_scenario(ONE_CAR.parent / "cross_conflict" / "config.json"))
    assert len(built.link_names) == 12  # of 24
    assert set(built.ways.drivable.tolist()) >= set(range(built.lane_count, len(built.length)))
    twin = built.crossings.twin
    valid = np.isfinite(built.crossings.distance)
    flat_twin, flat_rank = twin.reshape(-1), built.crossings.rank.reshape(-1)
    here = np.arange(twin.size)[valid.reshape(-1)]
    np.testing.assert_array_equal(flat_twin[flat_twin[here]], here)
    np.testing.assert_array_equal(flat_rank[flat_twin[here]], -flat_rank[here])
