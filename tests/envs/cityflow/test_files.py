"""CityFlow's files: what is read, and the one sentence for each thing that can be wrong with them."""

import copy
import json
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest

from sadq.envs.cityflow import demand, files, road_network, signals
from sadq.errors import SadqError


def tiny_net() -> tuple[dict, list]:
    """West to east through one signal, and a road from the north that no flow uses."""
    nodes = {"W": (-200.0, 0.0), "C": (0.0, 0.0), "E": (200.0, 0.0), "N": (0.0, 200.0)}

    def road(start: str, end: str) -> dict:
        return {
            "id": f"{start}_{end}",
            "points": [dict(zip("xy", nodes[at], strict=True)) for at in (start, end)],
            "lanes": [{"width": 4, "maxSpeed": 16.67}],
            "startIntersection": start,
            "endIntersection": end,
        }

    def link(kind: str, start: str, end: str) -> dict:
        lane_links = [{"startLaneIndex": 0, "endLaneIndex": 0}]
        return {"type": kind, "startRoad": start, "endRoad": end, "laneLinks": lane_links}

    ends = [
        {"id": name, "point": {"x": x, "y": y}, "virtual": True, "roads": [f"{name}_C" if name != "E" else "C_E"]}
        for name, (x, y) in nodes.items()
        if name != "C"
    ]
    centre = {
        "id": "C",
        "point": {"x": 0, "y": 0},
        "virtual": False,
        "width": 10,
        "roads": ["W_C", "N_C", "C_E"],
        "roadLinks": [link("go_straight", "W_C", "C_E"), link("turn_left", "N_C", "C_E")],
        "trafficLight": {
            "lightphases": [{"time": 10, "availableRoadLinks": [0]}, {"time": 5.5, "availableRoadLinks": [1]}]
        },
    }
    roads = [road("W", "C"), road("C", "E"), road("N", "C")]
    flow = {"vehicle": nets.CAR, "route": ["W_C", "C_E"], "interval": 5, "startTime": 0, "endTime": 20}
    return {"intersections": [*ends, centre], "roads": roads}, [flow]


def changed(value: Any, path: str, new: Any) -> Any:
    """A deep copy with the entry at `path` ("a/0/b") replaced, or removed where `new` is ..."""
    value = copy.deepcopy(value)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    target = value
    for part in parents:
        target = target[part]
    if new is ...:
        del target[last]
    else:
        target[last] = new
    return value


def build(folder: Path, net: dict, flows: list, **config: Any) -> road_network.RoadNetwork:
    return road_network.build(files.read_scenario(nets.write_scenario(folder, net, flows, **config)))


def test_a_sound_scenario_is_read(tmp_path: Path) -> None:
    net, flows = tiny_net()
    built = build(tmp_path, net, flows)
    assert built.lane_names == ("W_C_0", "C_E_0", "N_C_0")
    assert built.link_names == ("W_C_0_TO_C_E_0",)  # the other is on nobody's way
    assert built.length[:3] == pytest.approx([190.0, 190.0, 190.0])
    assert built.length[3] == pytest.approx(20.0, abs=1e-6)
    assert built.routes == (("W_C", "C_E"),)
    assert not built.link_turns[0]


@pytest.mark.parametrize(
    ("path", "new", "expected"),
    [
        ("roads", ..., "`roads` is missing"),
        ("roads", {}, "`roads` is {}; expected a list"),
        ("roads/0/id", ..., "roads[0]: `id` is missing"),
        ("roads/1/id", "W_C", "`id` 'W_C' is that of an earlier road"),
        ("roads/0/startIntersection", "X", "roads[0]: `startIntersection` names 'X'"),
        ("roads/0/lanes", [], "`lanes` is empty"),
        ("roads/0/lanes/0/width", "wide", 'roads[0]/lanes[0]: `width` is "wide"; expected a number'),
        ("roads/0/lanes/0/maxSpeed", 0, "`maxSpeed` is 0; expected a number above 0"),
        ("roads/0/points", [{"x": 0, "y": 0}], "`points` needs at least 2 different points"),
        ("roads/0/points/1", {"x": 1}, "roads[0]/points[1]: `y` is missing"),
        ("intersections/3/virtual", "no", '`virtual` is "no"; expected true or false'),
        ("intersections/3/roads/0", "X_C", "names the road 'X_C', which is not in the net"),
        ("intersections/3/roadLinks/0/type", "u_turn", "`type` is 'u_turn'; expected one of go_straight"),
        ("intersections/3/roadLinks/0/startRoad", "C_E", "'C_E', which does not end at this intersection"),
        ("intersections/3/roadLinks/0/endRoad", "Q", "`endRoad` names 'Q', which is not a road"),
        (
            "intersections/3/roadLinks/0/laneLinks/0/endLaneIndex",
            1,
            "`endLaneIndex` is 1, but the road 'C_E' has 1 lane",
        ),
        ("intersections/3/roadLinks/0/laneLinks/0/startLaneIndex", 0.5, "is 0.5; expected a whole number"),
        ("intersections/3/trafficLight", ..., "`trafficLight` is missing"),
        ("intersections/3/trafficLight/lightphases", [], "`lightphases` is empty"),
        (
            "intersections/3/trafficLight/lightphases/1/availableRoadLinks",
            [2],
            "is 2, but this intersection has 2 road",
        ),
        ("intersections/3/trafficLight/lightphases/0/time", -1, "`time` is -1; expected a number from 0"),
    ],
)
def test_a_malformed_road_net_is_named(tmp_path: Path, path: str, new: Any, expected: str) -> None:
    net, flows = tiny_net()
    with pytest.raises(SadqError) as caught:
        build(tmp_path, changed(net, path, new), flows)
    message = str(caught.value)
    assert expected in message
    assert "roadnet.json" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("path", "new", "expected"),
    [
        ("0/vehicle", ..., "[0]: `vehicle` is missing"),
        ("0/vehicle/length", -5, "[0]/vehicle: `length` is -5; expected a number above 0"),
        ("0/vehicle/headwayTime", None, "`headwayTime` is null; expected a number"),
        ("0/route/1", "nowhere", "[0]/route[1]: `route` names the road 'nowhere', which is not in the road net"),
        ("0/route/1", 3, "[0]/route[1]: expected a text, not 3"),
        ("0/route", ["W_C"], "at least two different roads"),
        (
            "0/route",
            ["C_E", "N_C"],
            "no flow has connected roads: flow_0 (no way leads from the road 'C_E' to 'N_C')",
        ),
        ("0/interval", 0, "`interval` is 0; expected a number above 0"),
        ("0/startTime", 1.5, "`startTime` is 1.5; expected a whole number"),
    ],
)
def test_a_malformed_flow_is_named(tmp_path: Path, path: str, new: Any, expected: str) -> None:
    net, flows = tiny_net()
    with pytest.raises(SadqError) as caught:
        build(tmp_path, net, changed(flows, path, new))
    assert expected in str(caught.value)
    assert "flow.json" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"laneChange": True}, "lane changes are not simulated"),
        ({"interval": "fast"}, '`interval` is "fast"; expected a number'),
        ({"roadnetFile": "gone.json"}, "gone.json: cannot be read (No such file or directory)"),
        ({"seed": "x"}, '`seed` is "x"; expected a whole number'),
    ],
)
def test_a_malformed_configuration_is_named(tmp_path: Path, changes: dict, expected: str) -> None:
    config = nets.write_scenario(tmp_path, *tiny_net())
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(SadqError, match=".") as caught:
        files.read_scenario(config)
    assert expected in str(caught.value)


def test_a_flow_file_without_flows_is_named(tmp_path: Path) -> None:
    with pytest.raises(SadqError, match=r"flow\.json: holds no flow"):
        build(tmp_path, tiny_net()[0], [])


def test_broken_json_is_named_with_its_line(tmp_path: Path) -> None:
    config = nets.write_scenario(tmp_path, *tiny_net())
    (tmp_path / "flow.json").write_text('[\n {"interval": 1,}\n]')
    with pytest.raises(SadqError, match=r"flow\.json: is not JSON at line 2"):
        files.read_scenario(config)


def test_files_are_found_from_the_present_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = nets.write_scenario(tmp_path / "data", *tiny_net())
    config.write_text(json.dumps(json.loads(config.read_text()) | {"dir": "data/"}))
    monkeypatch.chdir(tmp_path)
    assert len(files.read_scenario(config).flows) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time,phase\n0,1\n", "the column 'intersection' is missing"),
        ("time,intersection,phase\n0,W,1\n", "line 2: 'W' is not an intersection with a signal"),
        ("time,intersection,phase\n0,C,2\n", "`phase` is '2'; expected a whole number from 0 to 1"),
        ("time,intersection,phase\n-1,C,0\n", "`time` is '-1'; expected seconds from 0"),
    ],
)
def test_malformed_phases_are_named(tmp_path: Path, text: str, expected: str) -> None:
    built = build(tmp_path, *tiny_net())
    (tmp_path / "phases.csv").write_text(text)
    with pytest.raises(SadqError) as caught:
        signals.read_phases(tmp_path / "phases.csv", built, 10)
    assert expected in str(caught.value)


def test_phases_hold_until_the_next_call_and_cycle_by_their_own_times(tmp_path: Path) -> None:
    built = build(tmp_path, *tiny_net())
    (tmp_path / "phases.csv").write_text("time,intersection,phase\n2,C,1\n5,C,1\n5,C,0\n99,C,1\n")
    assert signals.read_phases(tmp_path / "phases.csv", built, 8)[:, 0].tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    # 10 s and 5.5 s: the remainder of a step is carried over, as the engine does.
    cycle = signals.cycled_phases(built, 40)[:, 0]
    assert np.flatnonzero(np.diff(cycle)).tolist() == [9, 15, 25, 30]


def test_phases_cannot_be_set_where_the_signals_run_by_themselves(tmp_path: Path) -> None:
    built = build(tmp_path, *tiny_net(), rlTrafficLight=False)
    with pytest.raises(SadqError, match="`rlTrafficLight` false"):
        signals.read_phases(tmp_path / "phases.csv", built, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vehicle,first_lane\nflow_0_0,W_C_0\n", "the column 'priority' is missing"),
        ("vehicle,first_lane,priority\nflow_0_0,W_C_7,1\n", "`first_lane` is 'W_C_7', which is not a lane"),
        ("vehicle,first_lane,priority\nflow_0_0,W_C_0,high\n", "`priority` is 'high'; expected a whole number"),
        ("vehicle,first_lane,priority\nflow_0_0,W_C_0,1\n", "has no row for 'flow_0_1'"),
        ("vehicle,first_lane,priority\nflow_0_0,N_C_0,1\nflow_0_1,W_C_0,1\n", "cannot start on the lane 'N_C_0'"),
    ],
)
def test_malformed_trips_are_named(tmp_path: Path, text: str, expected: str) -> None:
    built = build(tmp_path, *tiny_net())
    (tmp_path / "trips.csv").write_text(text)
    with pytest.raises(SadqError) as caught:
        demand.read_trips(tmp_path / "trips.csv", built, 10)
    assert expected in str(caught.value)


def test_flows_without_a_way_are_left_out_counted_and_named(tmp_path: Path) -> None:
    """The first vehicles of one draw a priority and a thread number before the engine finds out; then none comes."""
    net, (flow,) = tiny_net()
    lost = flow | {"route": ["C_E", "W_C"], "interval": 0.5, "startTime": 2}
    flows = [lost, flow, *[lost | {"startTime": 90}] * 6]
    with pytest.warns(UserWarning, match=r"flow\.json: 7 of 8 flows are left out.*flow_0 \(no way.*flow_5.*and 2 more"):
        built = build(tmp_path, net, flows)
    assert sorted(built.left_out) == [0, 2, 3, 4, 5, 6, 7] and built.routes[0] == () and built.starts[0] == {}
    trips = demand.drawn_trips(built, 6)
    assert trips.names() == ["flow_1_0", "flow_1_1"] and trips.created.tolist() == [0, 5]
    # In second 0 a priority, a thread number and a lane of flow_1; in second 2 two numbers of flow_0, which is seen to
    # be lost only after its first vehicle; in second 5 flow_1 again.
    words = np.random.RandomState(7).randint(0, 2**32, 8, dtype=np.uint32)  # noqa: NPY002
    np.testing.assert_array_equal(trips.priority, words[[0, 5]].view(np.int32))


def test_vehicles_are_created_from_start_to_end(tmp_path: Path) -> None:
    net, flows = tiny_net()
    flows = [flows[0] | {"interval": 2.5, "startTime": 3, "endTime": 9}, flows[0] | {"startTime": 4, "endTime": 4}]
    trips = demand.drawn_trips(build(tmp_path, net, flows), 30)
    # From second 3 on, whenever 2.5 s have gathered: 3, 6 (after 3 s), 8 (after 2 s and the half left over).
    assert trips.created[trips.flow == 0].tolist() == [3, 6, 8]
    assert trips.created[trips.flow == 1].tolist() == [4]
    assert trips.names() == ["flow_0_0", "flow_1_0", "flow_0_1", "flow_0_2"]
