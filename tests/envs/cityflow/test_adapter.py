"""CityFlow's own engine behind the environment, played by an engine of ours that speaks its language."""

import json
import sys
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_traffic import ACTIONS, environment, transition

from sadq.envs import registry
from sadq.envs.cityflow import demand, engine_process
from sadq.envs.cityflow.adapter import CityFlowEngine
from sadq.envs.cityflow.environment import make
from sadq.envs.cityflow.files import read_scenario
from sadq.errors import SadqError

SETTINGS = {"rows": 1, "columns": 2, "seconds": 100, "green_seconds": 15, "capacity": 500}


class Engine:
    """The part of `cityflow.Engine` that the adapter uses."""

    alive: list["Engine"] = []
    step = None  # compiled once for all engines

    def __init__(self, config_file, thread_num=1):
        config = json.loads(Path(config_file).read_text())
        assert config["rlTrafficLight"] and not config["saveReplay"] and not config["laneChange"] and thread_num == 1
        assert all(Path(config["dir"] + config[name]).is_absolute() for name in ("roadnetFile", "flowFile"))
        assert read_scenario(config_file) == environment().network.scenario
        self.network, self.simulator = environment().network, environment().simulator
        Engine.step = Engine.step or jax.jit(self.simulator.step)
        self.failing = False
        self.alive.append(self)
        self.set_random_seed(config["seed"])
        self.reset(False)

    def set_random_seed(self, seed):
        self.trips = demand.drawn_trips(self.network, 120, seed)
        self.demand = demand.demand_of(self.network, self.trips)

    def reset(self, seed=False):
        self.state, self.phases = None, dict.fromkeys(self.network.signals, 0)

    def set_tl_phase(self, intersection_id, phase_id):
        assert type(phase_id) is int
        self.phases[intersection_id] = phase_id

    def next_step(self):
        if self.failing:
            raise RuntimeError("the road\n is gone")
        state = self.simulator.initial(self.demand) if self.state is None else self.state
        self.state = Engine.step(self.demand, state, jnp.int32([self.phases[name] for name in self.network.signals]))

    def _lanes(self):
        return (np.zeros(self.network.lane_count, int),) * 2 if self.state is None else environment().lanes(self.state)

    def get_lane_vehicle_count(self):
        return dict(zip(sorted(self.network.lane_names), self._sorted(0), strict=True))

    def get_lane_waiting_vehicle_count(self):
        return dict(zip(sorted(self.network.lane_names), self._sorted(1), strict=True))

    def _sorted(self, column):
        order = sorted(range(self.network.lane_count), key=lambda lane: self.network.lane_names[lane])
        return [int(self._lanes()[column][lane]) for lane in order]

    def _measures(self):
        nothing = environment().begin(self.demand)
        return {
            name: float(value) for name, value in environment().measures(nothing._replace(traffic=self.state)).items()
        }

    def get_average_travel_time(self):
        return self._measures()["average_travel_time"]

    def get_vehicle_count(self):
        return int(self._measures()["vehicles_inside"])

    def get_vehicles(self, include_waiting=False):
        outside = self._measures()["vehicles_outside"] if include_waiting else 0
        return [f"vehicle_{index}" for index in range(self.get_vehicle_count() + int(outside))]


class Here:
    """An engine asked in this process, where the tests' own stands in for the module."""

    def __init__(self, config, signals, lanes):
        self.served = engine_process.Served()
        self.version = self.ask("start", str(config), list(signals), list(lanes))

    def ask(self, method, *arguments):
        try:
            answer = getattr(self.served, method)(*json.loads(json.dumps(arguments)))
        except Exception as error:
            raise engine_process.EngineError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
        return json.loads(json.dumps(answer))

    def close(self):
        del self.served


@pytest.fixture
def cityflow(monkeypatch):
    module = types.ModuleType("cityflow")
    module.Engine, module.__version__ = Engine, "9.9"
    monkeypatch.setitem(sys.modules, "cityflow", module)
    monkeypatch.setattr(Engine, "alive", [])
    monkeypatch.setattr("sadq.envs.cityflow.adapter.EngineProcess", Here)
    return module


HANGING = """
import os, time

class Engine:
    def __init__(self, config_file, thread_num):
        print("an engine talks on its standard output")
        assert os.path.isabs(config_file)

    def reset(self, seed):
        pass

    def set_random_seed(self, seed):
        self.lanes = {lane: seed % 2 for lane in self.names()}

    def names(self):
        return [f"road_{x}_{y}_{heading}_{lane}"
                for x in range(5) for y in range(5) for heading in range(4) for lane in range(6)]

    def set_tl_phase(self, name, phase):
        if phase == 6:
            time.sleep(1000)
        if phase == 4:
            os._exit(3)

    def next_step(self):
        pass

    def get_lane_vehicle_count(self):
        return self.lanes

    get_lane_waiting_vehicle_count = get_lane_vehicle_count

    def __del__(self):
        time.sleep(1000)
"""


@pytest.fixture
def hanging(monkeypatch, tmp_path):
    """A module whose engine cannot be destroyed, does not come back from phase 6, and dies in phase 4."""
    (tmp_path / "cityflow.py").write_text(HANGING)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_an_engine_that_cannot_be_destroyed_is_closed(hanging):
    adapter = make(engine="cityflow", **SETTINGS)
    observation, _ = adapter.reset(seed=0)
    assert observation.shape == (88,)
    adapter.step(0)
    process, began = adapter._engine._process, time.monotonic()
    adapter.close()
    assert time.monotonic() - began < engine_process.CLOSE_SECONDS and process.returncode == 0


def test_an_engine_that_does_not_come_back_is_killed(hanging, monkeypatch):
    monkeypatch.setattr(engine_process, "CLOSE_SECONDS", 0.2)
    adapter = make(engine="cityflow", **SETTINGS)
    adapter.reset(seed=0)
    process = adapter._engine._process
    process.stdin.write(json.dumps(["show", [6, 6]]) + "\n")  # as if Ctrl-C came while it waits for the answer
    process.stdin.flush()
    adapter.close()
    assert process.returncode < 0


def test_an_engine_that_dies_is_told(hanging):
    adapter = make(engine="cityflow", **SETTINGS)
    adapter.reset(seed=0)
    with pytest.raises(SadqError, match=r"failed in a step \(its process ended with code 3\): make another"):
        adapter.step(10)
    assert adapter._engine is None


def test_both_engines_give_the_same_environment(cityflow):
    adapter = make(engine="cityflow", **SETTINGS)
    assert isinstance(adapter, CityFlowEngine) and adapter.provenance["engine"] == "cityflow 9.9"
    observation, _ = adapter.reset(seed=4)
    state = environment().begin(Engine.alive[0].demand)
    np.testing.assert_array_equal(observation, environment().observe(state))
    for step, action in enumerate(ACTIONS):
        observation, reward, terminated, truncated, info = adapter.step(action)
        state, expected, _ = transition()(state, jnp.int32(action))
        np.testing.assert_array_equal(observation, environment().observe(state))
        assert reward == expected and type(reward) is float and not terminated and truncated == (step == 5)
        assert observation in adapter.observation_space and observation.dtype == np.float32
    native = {name: float(value) for name, value in environment().measures(state).items()}
    assert info["measures"] == pytest.approx(native)
    adapter.close()


def test_both_engines_know_who_is_under_way(cityflow):
    adapter = make(engine="cityflow", reward="under_way", **SETTINGS)
    adapter.reset(seed=4)
    state = environment().begin(Engine.alive[0].demand)
    for action in ACTIONS[:3]:
        _, reward, *_ = adapter.step(action)
        state, _, _ = transition()(state, jnp.int32(action))
        assert reward == pytest.approx(-int(environment().under_way(state)) / 40) and reward < 0
    adapter.close()


def test_seeds_decide_the_draws(cityflow):
    adapter = make(engine="cityflow", **SETTINGS)
    drawn = []
    for seed in (1, 1, 2, None):
        adapter.reset(seed=seed)
        drawn.append(Engine.alive[0].trips.lane.tolist())
    assert drawn[0] == drawn[1] and drawn[0] != drawn[2] and drawn[2] != drawn[3]


def test_the_registry_makes_it_as_a_gymnasium_environment(cityflow):
    spec = registry.make("CityFlow", settings=SETTINGS | {"engine": "cityflow"})
    assert spec.observation_shape == (88,) and spec.action_count == 16


def test_an_engine_ends_with_its_environment(cityflow):
    adapter = make(engine="cityflow", **SETTINGS)
    folder = Path(adapter._folder.name)
    assert folder.is_dir()
    adapter.close()
    adapter.close()
    assert adapter._engine is None and not folder.exists()
    with pytest.raises(SadqError, match="is closed"):
        adapter.reset()
    other = make(engine="cityflow", **SETTINGS)
    folder = Path(other._folder.name)
    del other
    assert not folder.exists()


def test_an_engine_that_fails_is_told_and_destroyed(cityflow, monkeypatch):
    adapter = make(engine="cityflow", **SETTINGS)
    adapter.reset(seed=0)
    Engine.alive[0].failing = True
    with pytest.raises(SadqError, match=r"failed in a step \(RuntimeError: the road is gone\)"):
        adapter.step(0)
    assert adapter._engine is None and adapter._folder is None

    def broken(config_file, thread_num):
        raise ValueError("no such file")

    monkeypatch.setattr(cityflow, "Engine", broken)
    with pytest.raises(SadqError, match="could not be started"):
        make(engine="cityflow", **SETTINGS)


def test_misuse_is_told(cityflow, monkeypatch):
    adapter = make(engine="cityflow", **SETTINGS)
    with pytest.raises(SadqError, match="before it was reset"):
        adapter.step(0)
    adapter.reset(seed=0)
    with pytest.raises(SadqError, match="action 16, expected 0 to 15"):
        adapter.step(16)
    monkeypatch.setitem(sys.modules, "cityflow", None)
    for connect in (Here, engine_process.EngineProcess):
        monkeypatch.setattr("sadq.envs.cityflow.adapter.EngineProcess", connect)
        with pytest.raises(SadqError, match="needs the module `cityflow`.*choose engine='native'"):
            make(engine="cityflow", **SETTINGS)
