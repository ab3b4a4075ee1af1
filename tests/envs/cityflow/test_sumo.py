"""The independent judge: what is written for SUMO, and, where the extra is installed, a short run of it."""

from xml.etree import ElementTree

import pytest
from small_traffic import environment

from sadq.envs.cityflow import sumo
from sadq.errors import SadqError

needs_sumo = pytest.mark.skipif(not sumo.available(), reason="the extra `sumo` is not installed")


def test_ranks_are_compared():
    assert sumo.rank_correlation([1, 2, 3], [10, 20, 70]) == pytest.approx(1.0)
    assert sumo.rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert sumo.rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert sumo.rank_correlation([1, 1, 2], [5, 5, 9]) == pytest.approx(1.0)
    assert sumo.rank_correlation([1, 1], [5, 9]) == 0.0


def test_trips_are_the_environment_s(tmp_path):
    due = sumo.write_trips(environment(), tmp_path / "trips.xml")
    root = ElementTree.parse(tmp_path / "trips.xml").getroot()
    vehicles = root.findall("vehicle")
    assert len(vehicles) == len(due) == len(environment().departures.flow) > 100
    routes = {route.get("id"): tuple(route.get("edges").split()) for route in root.findall("route")}
    assert routes["route_5"] == environment().network.routes[5]
    lengths = {kind.get("id"): float(kind.get("length")) for kind in root.findall("vType")}
    assert sorted(lengths.values()) == [5.0, 10.0]
    for vehicle, flow in zip(vehicles, environment().departures.flow, strict=True):
        assert vehicle.get("route") == f"route_{flow}"
        assert lengths[vehicle.get("type")] == environment().network.scenario.flows[flow].vehicle.length


def test_lanes_are_counted_from_the_right_in_sumo():
    network = environment().network
    assert sumo._sumo_lane(network, "road_0_1_0_0") == "road_0_1_0_5"
    signal = next(one for one in network.scenario.net.intersections if one.name == "intersection_1_1")
    pairs = {(link.start_road, link.end_road): sumo._lane_pairs(network, link) for link in signal.road_links}
    assert pairs["road_0_1_0", "road_1_1_0"] == [(3, 3), (2, 2), (1, 1)]
    assert pairs["road_0_1_0", "road_1_1_1"] == [(5, 3), (4, 2)]  # two left turns into the two lanes on the left
    assert pairs["road_0_1_0", "road_1_1_3"] == [(1, 1), (0, 0)]


def test_phases_are_spelled_in_sumo_s_letters():
    # A straight link that is green in phase 0, a left one in phase 2, and a right one always.
    links = [(3, (True, False, False)), (2, (False, False, True)), (1, (True, True, True))]
    assert sumo._state(links, 0, 0) == "Grg"
    assert sumo._state(links, 0, 1) == "yrg"
    assert sumo._state(links, 2, 2) == "rGg"


@pytest.mark.skipif(sumo.available(), reason="the extra `sumo` is installed")
def test_a_missing_extra_is_told(tmp_path):
    with pytest.raises(SadqError, match="expected the extra `sumo`"):
        sumo.write_net(environment().network, tmp_path)


def test_policies_to_compare_are_checked():
    with pytest.raises(SadqError, match="expected two or more of random, constant"):
        sumo.compare(environment(), ["cyclic"])


@needs_sumo
def test_policies_drive_in_sumo(tmp_path):
    net = sumo.write_net(environment().network, tmp_path)
    fixed, looking = (sumo.simulate(environment(), name, net) for name in ("constant", "max_pressure"))
    assert looking["average_travel_time"] < fixed["average_travel_time"]
    assert looking["throughput"] > fixed["throughput"] > 0
    for result in (fixed, looking):
        total = result["throughput"] + result["vehicles_inside"] + result["vehicles_outside"]
        assert total == len(environment().departures.flow)
    assert sumo.simulate(environment(), "random", net, 1) == sumo.simulate(environment(), "random", net, 1)
