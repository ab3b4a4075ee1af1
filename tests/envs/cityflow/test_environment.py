"""The environment: episodes, their draws, rewards and measures, its batch, and its settings."""

import dataclasses
import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from small_traffic import ACTIONS, KEY, environment, episode, transition

import sadq.envs.plugin  # noqa: F401  registers the environment
from sadq import keys
from sadq.envs import registry
from sadq.envs.cityflow.demand import Trips, demand_of
from sadq.envs.cityflow.environment import CityFlow, make
from sadq.envs.cityflow.grid import Grid
from sadq.errors import SadqError

PLATOON = "tests/data/cityflow/platoon_red/config.json"


def test_the_default_is_the_paper_s():
    made = make()
    assert (made.observation_size, made.action_count, made.max_steps) == (176, 256, 29)
    assert made.steps == (5, 35) and made.reward == "waiting" and made.fixed_length
    assert make(seconds=1014.9).max_steps == 29 and make(seconds=1015).max_steps == 30


def test_an_episode_draws_where_vehicles_start_and_nothing_else():
    one, other = (environment().initial(keys.at(KEY, index)).demand for index in (0, 1))
    again = environment().initial(keys.at(KEY, 0)).demand
    network, departures = environment().network, environment().departures
    assert all(np.array_equal(left, right) for left, right in zip(one, again, strict=True))
    assert not np.array_equal(one.place, other.place) and not np.array_equal(one.priority, other.priority)
    for demand in (one, other):
        order = np.argsort(np.asarray(demand.trip))  # back to the order of creation
        np.testing.assert_array_equal(np.asarray(demand.created)[order], departures.created)
        place, priority = np.asarray(demand.place)[order], np.asarray(demand.priority)[order]
        lane = np.array(
            [
                next(lane for lane, start in network.starts[flow].items() if start == here)
                for flow, here in zip(departures.flow, place, strict=True)
            ]
        )
        grouped = demand_of(network, Trips(departures.flow, np.arange(len(lane)), departures.created, lane, priority))
        for drawn, expected in zip(demand, grouped, strict=True):
            np.testing.assert_array_equal(drawn, expected)
        # Lanes that a flow may start on are taken about equally often.
        flow = int(np.argmax(np.bincount(departures.flow)))
        taken = np.bincount(lane[departures.flow == flow], minlength=network.lane_count)[sorted(network.starts[flow])]
        assert taken.min() > 0


def test_lanes_are_counted_as_vehicles_stand():
    states, _ = episode()
    network = environment().network
    for step in (2, 6):
        vehicles = jax.tree.map(lambda leaf, step=step: leaf[step], states.traffic.vehicles)
        counted, waiting = np.zeros(network.lane_count, int), np.zeros(network.lane_count, int)
        for place, speed in zip(vehicles.place, vehicles.speed, strict=True):
            drivable = network.ways.drivable[place] if place < len(network.ways.drivable) else -1
            if 0 <= drivable < network.lane_count:
                counted[drivable] += 1
                waiting[drivable] += speed < 0.1
        np.testing.assert_array_equal(states.vehicles[step], counted)
        np.testing.assert_array_equal(states.waiting[step], waiting)
        assert counted.sum() > 50 and waiting.sum() > 10


def test_the_paper_s_reward_adds_up_to_minus_the_last_queue():
    states, rewards = episode()
    control = environment().control
    queues = [int(control.queue(waiting)) for waiting in states.waiting]
    assert queues[0] == 0 and queues[-1] > 20
    np.testing.assert_allclose(rewards, -np.diff(queues))
    assert sum(rewards) == -queues[-1]
    np.testing.assert_array_equal(states.green[1:], [control.decode(action) for action in ACTIONS])


def test_who_is_under_way_has_been_created_and_has_not_arrived():
    """Also before the net. Their number is what a reward is minus, by incoming lane, and what travel time grows by."""
    states, _ = episode()
    timed = dataclasses.replace(environment(), reward="under_way")
    assert len(np.concatenate(timed.control.incoming)) == 40
    for step, time in enumerate(range(0, 121, 20)):
        state = jax.tree.map(lambda leaf, step=step: leaf[step], states)
        created = environment().departures.created
        under_way = np.sum(created < time) - state.traffic.finished
        assert timed.under_way(state) == under_way and (under_way > 100) == (step > 1)
    _, reward, _ = timed.transition(jax.tree.map(lambda leaf: leaf[0], states), jnp.int32(ACTIONS[0]), KEY)
    assert reward == pytest.approx(-np.sum(created < 20) / 40)  # nobody has arrived by then


def test_a_fault_of_the_engine_makes_every_reward_nan_and_is_explained():
    state = environment().initial(KEY)
    state = state._replace(traffic=state.traffic._replace(fault=jnp.int32(1), lacking=jnp.int32([7, 0])))
    state, reward, _ = transition()(state, jnp.int32(0))
    measures = {name: float(value) for name, value in environment().measures(state).items()}
    assert np.isnan(reward) and measures["fault"] == 1 and measures["lacking"] == 7
    vehicles = len(environment().departures.flow)
    assert environment().trouble(measures) == (
        f"7 more vehicles wanted to be inside the net than capacity={environment().slots} has room for: set "
        f"capacity={min(2 * environment().slots, vehicles)}; {vehicles} is always enough."
    )
    moving = environment().trouble({"fault": 2.0, "lacking": 5.0})
    assert "5 more vehicles went" in moving and f"set capacity={environment().slots + 5}" in moving
    assert "widen the scenario's gaps" in environment().trouble({"fault": 4.0, "lacking": 0.0})
    assert environment().trouble({"fault": 0.0, "lacking": 0.0}) is None


def test_there_is_never_more_room_than_vehicles():
    assert make(demand=0.01).slots == len(make(demand=0.01).departures.flow) < make().slots


def test_a_batch_is_its_members():
    batch_keys = keys.range_of(KEY, 0, 2)
    states = jax.vmap(environment().initial)(batch_keys)
    actions = jnp.int32([3, 12])
    together = jax.jit(jax.vmap(lambda state, action: environment().transition(state, action, KEY)))
    singles = [jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(2)]
    for _ in range(4):
        states, rewards, _ = together(states, actions)
        for index in range(2):
            singles[index], reward, _ = transition()(singles[index], actions[index])
            assert reward == rewards[index]
    for index, single in enumerate(singles):
        np.testing.assert_array_equal(environment().observe(single), jax.vmap(environment().observe)(states)[index])
        for left, right in zip(jax.tree.leaves(single), jax.tree.leaves(states), strict=True):
            np.testing.assert_allclose(left, right[index], rtol=1e-5, atol=1e-4)


def test_measures_account_for_every_vehicle():
    states, _ = episode()
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    measures = {name: float(value) for name, value in environment().measures(last).items()}
    created = int(np.sum(environment().departures.created < 120))
    arrived, inside, outside = (measures[name] for name in ("throughput", "vehicles_inside", "vehicles_outside"))
    assert arrived + inside + outside == created == len(environment().departures.created) and arrived > 20
    queues = [float(environment().control.queue(waiting)) for waiting in states.waiting[1:]]
    assert measures["final_queue"] == queues[-1] and measures["queue_length"] == pytest.approx(np.mean(queues))
    assert measures["fault"] == 0


@pytest.mark.filterwarnings("ignore:.*Box observation space maximum value is infinity")
def test_gymnasium_s_checker_passes():
    made = gymnasium.make("sadq/CityFlow-v0", rows=1, columns=1, seconds=15, green_seconds=8, yellow_seconds=2)
    assert made.observation_space.shape == (44,) and made.action_space.n == 4
    check_env(made.unwrapped)
    made.reset(seed=0)
    assert [made.step(1)[3] for _ in range(2)] == [False, True]


def test_environments_are_constants_made_by_name():
    assert make() == CityFlow() and hash(make()) == hash(CityFlow()) and make(demand=0.5) != make()
    made = registry.make("CityFlow", settings={"rows": 1, "columns": 3, "reward": "pressure"})
    assert (made.observation_size, made.action_count, made.reward) == (132, 64, "pressure")
    assert made.scenario == Grid(rows=1, columns=3)
    assert make(rows=3, columns=3, action="shared").action_count == 4


def test_a_configuration_is_used_and_recorded(tmp_path):
    made = make(config=PLATOON, seconds=240)
    recorded = json.loads(json.dumps(made.provenance))
    assert set(recorded["sha256"]) == {"config", "roadnet", "flow"} and len(recorded["sha256"]["flow"]) == 64
    assert recorded["source"].endswith("platoon_red/config.json") and recorded["vehicles"] == 20
    assert made == make(config=PLATOON, seconds=240) and made.slots == 20
    written = Grid(rows=1).write(tmp_path)
    assert (
        make(config=written) != make(rows=1) and make(config=written).observation_size == make(rows=1).observation_size
    )
    generated = json.loads(json.dumps(make(rows=1).provenance))
    assert generated["source"] == "generated grid" and generated["grid"]["rows"] == 1 and not generated["lane_change"]


@pytest.mark.parametrize(
    "settings,sentence",
    [
        ({"reward": "speed"}, "reward = 'speed' must be one of waiting, pressure, under_way"),
        ({"action": "single"}, "action = 'single' must be one of joint, shared"),
        ({"engine": "sumo"}, "engine='sumo', expected native or cityflow"),
        ({"seconds": -1}, "seconds=-1.0, expected a number from 0"),
        ({"seconds": float("inf")}, "seconds=inf"),
        ({"green_seconds": 2.5}, "green_seconds=2.5, expected a multiple of the scenario's interval, 1 s"),
        ({"seconds": 1e9}, "about 4.44e.09 vehicles in an episode of 1e.09 s, expected at most 1,000,000"),
        ({"capacity": 0}, "capacity=0, expected a whole number above 0"),
        ({"rows": 0}, "rows=0"),
        ({"rows": 3, "columns": 3}, "262144 joint actions, expected at most 4096"),
        ({"row_interval": 1e9, "column_interval": 1e9, "colums": 3}, "no setting colums, expected action, capacity"),
        ({"config": PLATOON, "rows": 2}, "no setting rows with a config"),
        ({"config": "nowhere.json"}, "nowhere.json: cannot be read"),
    ],
)
def test_bad_settings_are_told(settings, sentence):
    with pytest.raises(SadqError, match=sentence):
        make(**settings)
