"""Actions, what signals show, observations and rewards, by hand."""

import dataclasses

import jax.numpy as jnp
import nets
import numpy as np
import pytest

from sadq.envs.cityflow.control import control_of
from sadq.envs.cityflow.files import read_scenario
from sadq.envs.cityflow.grid import Grid
from sadq.envs.cityflow.road_network import build
from sadq.errors import SadqError


@pytest.fixture(scope="module")
def network():
    return build(Grid().scenario())


@pytest.fixture(scope="module")
def control(network):
    return control_of(network)


def test_an_action_is_digits_with_the_first_signal_s_in_front(control):
    assert control.signals == ("intersection_1_1", "intersection_2_1", "intersection_1_2", "intersection_2_2")
    assert control.action_count == 256
    np.testing.assert_array_equal(control.decode(1 * 64 + 0 * 16 + 2 * 4 + 3), [1, 0, 2, 3])
    for action in range(256):
        chosen = control.decode(action)
        assert [int(digit) for digit in np.base_repr(action, 4).zfill(4)] == chosen.tolist()
        assert control.encode(chosen) == action
    traced = control.decode(jnp.int32(75))
    assert traced.dtype == jnp.int32 and traced.tolist() == control.decode(75).tolist()


# The first decisions of a recording of CityFlow, and the phases that were set at these seconds.
DECISIONS = ((0, (1, 0, 2, 0)), (35, (3, 3, 3, 3)), (70, (1, 0, 3, 0)))
RECORDED = {0: (1, 0, 1, 0), 5: (2, 0, 4, 0), 35: (3, 1, 5, 1), 40: (6, 6, 6, 6), 70: (7, 7, 6, 7), 75: (2, 0, 6, 0)}


def test_signals_clear_where_their_green_changes(control):
    green = np.zeros(4, int)
    for time, goal in DECISIONS:
        first, then = control.shown(green, np.array(goal))
        assert tuple(first) == RECORDED[time] and tuple(then) == RECORDED[time + 5]
        again = control.shown(jnp.asarray(green), jnp.asarray(goal))
        np.testing.assert_array_equal(again[0], first)
        np.testing.assert_array_equal(again[1], then)
        green = np.array(goal)


def test_every_pair_of_greens_clears_by_the_rule(control):
    for old in range(4):
        for new in range(4):
            first, then = control.shown(np.full(4, old), np.full(4, new))
            assert (first == (2 * old + 1 if old != new else 2 * old)).all() and (then == 2 * new).all()


def test_an_observation_lists_greens_vehicles_and_waiting_by_signal(network, control):
    assert control.observation_size == 176
    vehicles, waiting = np.arange(120) + 1000, np.arange(120) + 2000
    seen = control.observe(np.array([2, 0, 3, 1]), vehicles, waiting)
    assert seen.dtype == np.float32 and seen.shape == (176,)
    blocks = seen.reshape(4, 44)
    np.testing.assert_array_equal(blocks[:, :4], np.eye(4)[[2, 0, 3, 1]])
    # As CityFlow lists lanes, by name: those from the west, south, north and east for the first intersection.
    roads = [("road_0_1_0", 6), ("road_1_0_1", 4), ("road_1_2_3", 4), ("road_2_1_2", 6)]
    lanes = [network.lane_names.index(f"{road}_{lane}") for road, count in roads for lane in range(count)]
    np.testing.assert_array_equal(blocks[0, 4:24], vehicles[lanes])
    np.testing.assert_array_equal(blocks[0, 24:], waiting[lanes])
    traced = control.observe(jnp.array([2, 0, 3, 1]), jnp.asarray(vehicles), jnp.asarray(waiting), jnp)
    np.testing.assert_array_equal(traced, seen)


def test_rewards_by_hand(network, control):
    def waiting(**lanes):
        column = np.zeros(120, int)
        for name, value in lanes.items():
            column[network.lane_names.index(name)] = value
        return column

    # road_1_1_0 leads from the first intersection to the second; road_2_1_0 leads out of the net.
    before = waiting(road_0_1_0_2=4, road_1_1_0_0=1)
    after = waiting(road_0_1_0_2=1, road_1_1_0_0=6, road_2_1_0_3=2)
    assert control.reward("waiting", before, after, 99) == (4 - 1) + (1 - 6)
    # Of the first: 1 in, 6 out; of the second: 6 in, 2 out.
    assert control.reward("pressure", before, after, 99) == -((1 - 6) + (6 - 2))
    assert control.reward("under_way", before, after, 200) == -200 / (4 * 20)
    assert control.queue(after) == 7


def test_service_and_pressure_are_those_of_the_phases(network, control):
    def column(name):
        return control.around[0].tolist().index(network.lane_names.index(name))

    straight, left, both = column("road_0_1_0_2"), column("road_0_1_0_0"), column("road_0_1_0_4")
    np.testing.assert_array_equal(control.service[0, :, straight], [1, 0, 0, 0])
    np.testing.assert_array_equal(control.service[0, :, left], [0, 1, 0, 0])
    np.testing.assert_array_equal(control.service[0, :, both], [1, 0.5, 0.5, 0.5])  # its right turns always go
    np.testing.assert_allclose(control.pressure.sum(2), 0, atol=1e-5)  # what enters a lane has left another
    assert (control.pressure[0, 1, [column(f"road_1_1_1_{index}") for index in range(4)]] < 0).all()
    np.testing.assert_array_equal(control.local(np.arange(120))[3], control.around[3])


def test_lanes_around_unlike_signals_are_padded(tmp_path):
    net = build(read_scenario(nets.write_random(tmp_path, 11, 2, 2)))
    uneven = control_of(net)
    sizes = [len(lanes) + len(others) for lanes, others in zip(uneven.incoming, uneven.outgoing, strict=True)]
    assert len(set(sizes)) > 1 and uneven.around.shape == (4, max(sizes))
    seen = uneven.local(np.arange(net.lane_count) + 1)
    assert [np.count_nonzero(row) for row in seen] == sizes
    for signal, size in enumerate(sizes):
        assert not uneven.service[signal, :, size:].any() and not uneven.pressure[signal, :, size:].any()
        np.testing.assert_array_equal(seen[signal, : len(uneven.incoming[signal])], uneven.incoming[signal] + 1)


def test_the_best_action_takes_each_signal_s_best_green(control):
    scores = np.zeros((4, 4))
    scores[0, 3] = scores[2, 1] = scores[2, 2] = 1.0
    np.testing.assert_array_equal(control.decode(control.best(scores)), [3, 0, 1, 0])


def test_a_shared_action_is_one_green_for_all(network):
    shared = control_of(network, "shared")
    assert shared.action_count == 4 and shared.decode(3).tolist() == [3] * 4
    scores = np.zeros((4, 4))
    scores[0, 3], scores[1:, 2] = 2.0, 1.0
    assert shared.best(scores) == 2


def test_too_many_joint_actions_are_refused():
    with pytest.raises(SadqError, match="9 signals have 262144 joint actions, expected at most 4096"):
        control_of(build(Grid(rows=3, columns=3).scenario()))
    assert control_of(build(Grid(rows=2, columns=3).scenario())).action_count == 4096


def with_phases(network, phases):
    """The network with other phases at its first signal."""
    net = network.scenario.net
    intersections = tuple(
        dataclasses.replace(one, phases=phases) if one.name == "intersection_1_1" else one for one in net.intersections
    )
    scenario = dataclasses.replace(network.scenario, net=dataclasses.replace(net, intersections=intersections))
    return dataclasses.replace(network, scenario=scenario)


def test_signals_of_other_layouts_are_understood(network):
    phases = next(one.phases for one in network.scenario.net.intersections if one.name == "intersection_1_1")
    greens, yellow = phases[::2], phases[1]
    leading = control_of(with_phases(network, (yellow, *greens[:3])))  # the first phase clears for all greens
    assert leading.greens.tolist() == [3, 4, 4, 4] and leading.action_count == 192
    first, then = leading.shown(np.array([0, 0, 0, 0]), np.array([2, 0, 0, 0]))
    assert first[0] == 0 and then[0] == 3
    for action in range(192):
        assert leading.encode(leading.decode(action)) == action
    scores = np.zeros((4, 4))
    scores[0, 3] = 9.0  # a green that the first signal does not have
    assert leading.decode(leading.best(scores))[0] == 0
    bare = control_of(with_phases(network, greens))  # nothing clears
    assert [part[0] for part in bare.shown(np.zeros(4, int), np.ones(4, int))] == [1, 1]
    with pytest.raises(SadqError, match="no phase that lets more than right turns go"):
        control_of(with_phases(network, (yellow,)))
    with pytest.raises(SadqError, match="signals with 3, 4 greens"):
        control_of(with_phases(network, (yellow, *greens[:3])), "shared")
