"""The generated grid: its make-up, its files, and other sizes."""

import dataclasses

import numpy as np
import pytest

from sadq.envs.cityflow.files import LINK_KINDS, read_scenario
from sadq.envs.cityflow.geometry import lane_points
from sadq.envs.cityflow.grid import CAR, TRUCK, Grid
from sadq.envs.cityflow.road_network import build
from sadq.errors import SadqError


def signals(scenario):
    return [one for one in scenario.net.intersections if not one.virtual]


def test_the_default_is_the_grid_of_the_paper():
    scenario = Grid().scenario()
    names = ["intersection_1_1", "intersection_2_1", "intersection_1_2", "intersection_2_2"]
    assert [one.name for one in signals(scenario)] == names
    assert len(scenario.net.intersections) == 12 and len(scenario.net.roads) == 24 and len(scenario.flows) == 64
    for signal in signals(scenario):
        assert sum(len(road.lanes) for road in scenario.net.roads if road.end == signal.name) == 20
        assert len(signal.road_links) == 12 and sum(len(link.lane_links) for link in signal.road_links) == 108
        right = {index for index, link in enumerate(signal.road_links) if link.kind == LINK_KINDS["turn_right"]}
        assert [phase.seconds for phase in signal.phases] == [30, 5] * 4
        assert all(phase.road_links == right for phase in signal.phases[1::2])
        opened = [phase.road_links - right for phase in signal.phases[::2]]
        assert set.union(*map(set, opened)) | right == set(range(12)) and sum(map(len, opened)) == 8
        kinds = [{signal.road_links[index].kind for index in green} for green in opened]
        assert kinds == [{LINK_KINDS["go_straight"]}, {LINK_KINDS["turn_left"]}] * 2
        # The two links of a green leave opposite roads: each one's road leads to where the other's comes from.
        for green in opened:
            one, other = (signal.road_links[index].start_road for index in sorted(green))
            headings = {int(name[-1]) for name in (one, other)}
            assert headings in ({0, 2}, {1, 3})


def test_the_default_demand_is_that_of_the_original():
    flows = Grid().scenario().flows
    # DI-smartcross's flows send 4.683 vehicles a second, one in five of them a truck.
    assert sum(1 / flow.interval for flow in flows) == pytest.approx(4.683, rel=0.1)
    assert sum(1 / flow.interval for flow in flows if flow.vehicle == TRUCK) == pytest.approx(
        sum(1 / flow.interval for flow in flows if flow.vehicle == CAR) / 4
    )
    cars = [flow for flow in flows if flow.vehicle == CAR]
    for flow in cars:
        straight = 5.0 if flow.anchors[0][-1] in "02" else 10.0
        assert straight <= flow.interval <= 2 * straight
    assert sum(flow.interval in (5.0, 10.0) for flow in cars) == 8
    doubled = Grid(demand=2.0).scenario().flows
    assert [flow.interval for flow in doubled] == pytest.approx([flow.interval / 2 for flow in flows])


def test_the_same_numbers_give_the_same_files(tmp_path):
    paths = [Grid(rows=1).write(tmp_path / name) for name in "ab"]
    for name in ("config.json", "roadnet.json", "flow.json"):
        assert paths[0].with_name(name).read_bytes() == paths[1].with_name(name).read_bytes()
    assert read_scenario(paths[0]) == Grid(rows=1).scenario()
    assert Grid(seed=1).scenario().net == Grid().scenario().net and Grid(seed=1).flows() != Grid().flows()


def test_links_join_the_lanes_that_they_name():
    net = Grid().scenario().net
    roads = {road.name: road for road in net.roads}
    widths = {one.name: one.width for one in net.intersections}

    def line(name, lane):
        road = roads[name]
        across = [width for width, _ in road.lanes]
        return np.array(lane_points(road.points, widths[road.start], widths[road.end], across, lane))

    for signal in signals(Grid().scenario()):
        for link in signal.road_links:
            for one in link.lane_links:
                np.testing.assert_allclose(one.points[0], line(link.start_road, one.start_lane)[-1], atol=1e-9)
                np.testing.assert_allclose(one.points[-1], line(link.end_road, one.end_lane)[0], atol=1e-9)


@pytest.mark.parametrize("rows,columns", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_other_grids_can_be_driven(rows, columns):
    grid = Grid(rows=rows, columns=columns)
    network = build(grid.scenario())
    assert len(network.signals) == rows * columns
    entries = 2 * (rows + columns)
    assert len(network.routes) == entries * 2 * (1 + min(3, entries - 2))
    ends = {one.name for one in grid.scenario().net.intersections if one.virtual}
    roads = {road.name: road for road in grid.scenario().net.roads}
    for route in network.routes:
        assert roads[route[0]].start in ends and roads[route[-1]].end in ends
        assert roads[route[0]].start != roads[route[-1]].end


@pytest.mark.parametrize(
    "settings,sentence",
    [
        ({"rows": 0}, "rows=0, expected a whole number from 1"),
        ({"columns": 1.5}, "columns = 1.5 must be a whole number"),
        ({"demand": "nan"}, "demand = 'nan' must be a number"),
        ({"demand": 0}, "demand=0.0, expected a number above 0"),
        ({"demand": 6.1}, "demand=6.1, expected at most 6, by which a vehicle may come each second"),
        ({"demand": 1.1, "column_interval": 1.25}, "demand=1.1, expected at most 1"),
        ({"row_spacing": 60.0}, "row_spacing=60.0, expected more than the 60 m"),
        ({"row_entry": float("nan")}, "row_entry=nan"),
    ],
)
def test_bad_numbers_are_told(settings, sentence):
    with pytest.raises(SadqError, match=sentence):
        Grid(**settings)


def test_a_grid_is_a_constant():
    assert Grid() == Grid() and hash(Grid()) == hash(Grid()) and Grid() != dataclasses.replace(Grid(), seed=1)
