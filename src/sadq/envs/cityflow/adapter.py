"""CityFlow's own engine, the `cityflow` module, behind the same observations, actions and rewards as ours."""

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sadq.envs.cityflow.engine_process import EngineError, EngineProcess
from sadq.envs.cityflow.environment import CityFlow
from sadq.envs.cityflow.sources import named_files, record
from sadq.errors import SadqError


class CityFlowEngine(gymnasium.Env):
    """The environment on one engine of the `cityflow` module, with one thread, in a process that ends on `close`.

    The module is on no package registry: it is built from github.com/cityflow-project/CityFlow. As with our engine, a
    seed decides on which lane each vehicle starts and its priority; `info["measures"]` comes with an episode's end.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, environment: CityFlow):
        self._engine: EngineProcess | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.environment = environment
        self.control = environment.control
        self.observation_space = spaces.Box(0.0, np.inf, (environment.observation_size,), np.float32)
        self.action_space = spaces.Discrete(environment.action_count)
        self._lanes = environment.network.lane_names
        self._decisions: int | None = None
        self._queued = 0
        self._green = np.zeros(len(self.control.signals), np.int32)
        self._waiting = np.zeros(len(self._lanes), np.int32)
        self._folder = tempfile.TemporaryDirectory(prefix="sadq-cityflow-")
        with self._engine_trouble("could not be started"):
            config = self._write_config(Path(self._folder.name))
            self._engine = EngineProcess(config, self.control.signals, self._lanes)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where road net, demand and engine come from."""
        engine = f"cityflow {self._started().version}"
        return record(self.environment.scenario) | {"engine": engine, "lane_change": False}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        engine = self._started()
        with self._engine_trouble("failed to reset"):
            engine.ask("reset", int(self.np_random.integers(2**31)))
            self._decisions, self._queued = 0, 0
            self._green = np.zeros(len(self.control.signals), np.int32)
            engine.ask("show", self.control.green_phase[:, 0].tolist())
            return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        engine = self._started()
        if self._decisions is None:
            raise SadqError("environment CityFlow was used before it was reset: call reset first.")
        if not self.action_space.contains(action):
            raise SadqError(
                f"environment CityFlow got action {action!r}, expected 0 to {self.environment.action_count - 1}: pass a "
                "legal one."
            )
        before, goal = self._waiting, self.control.decode(int(action))
        first, then = self.control.shown(self._green, goal)
        clearing, steps = self.environment.steps
        with self._engine_trouble("failed in a step"):
            for phases, duration in ((first, clearing), (then, steps - clearing)):
                engine.ask("show", phases.tolist())
                engine.ask("advance", duration)
            self._green = goal
            observation = self._observe()
            self._decisions += 1
            self._queued += int(self.control.queue(self._waiting))
            truncated = self._decisions >= self.environment.max_steps
            info = {"measures": self._measures()} if truncated else {}
            # Asked for only where it counts, for the engine goes through all vehicles.
            under_way = engine.ask("measured")[2] if self.environment.reward == "under_way" else 0
        reward = self.control.reward(self.environment.reward, before, self._waiting, under_way)
        return observation, float(reward), False, truncated, info

    def close(self) -> None:
        """End the engine's process, however its engine stands; a second call does nothing."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self.close()

    def _started(self) -> EngineProcess:
        if self._engine is None:
            raise SadqError("environment CityFlow is closed, expected an open one: make another.")
        return self._engine

    @contextlib.contextmanager
    def _engine_trouble(self, what: str) -> Any:
        """An engine that raised is in no known state: end it, and tell in one sentence."""
        try:
            yield
        except BaseException as error:
            self.close()
            if not isinstance(error, EngineError):
                raise
            if str(error).startswith(("ImportError", "ModuleNotFoundError")):
                raise SadqError(
                    f"engine='cityflow' needs the module `cityflow`, which cannot be imported ({error}): build it from "
                    "github.com/cityflow-project/CityFlow, or choose engine='native'."
                ) from error
            raise SadqError(f"CityFlow's engine {what} ({error}): make another one.") from error

    def _write_config(self, folder: Path) -> Path:
        """The scenario's configuration with absolute places, for the engine takes relative ones from where it runs."""
        source = self.environment.scenario.config_path(folder)
        content = json.loads(source.read_text(encoding="utf-8"))
        net, flow = (str(one.resolve()) for one in named_files(source))
        content |= {"dir": "", "roadnetFile": net, "flowFile": flow, "rlTrafficLight": True, "saveReplay": False}
        path = folder / "engine.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def _observe(self) -> np.ndarray:
        vehicles, waiting = (np.array(lanes, np.int32) for lanes in self._started().ask("look"))
        self._waiting = waiting
        return self.control.observe(self._green, vehicles, waiting)

    def _measures(self) -> dict[str, float]:
        """As `CityFlow.measures` has them."""
        decisions = self._decisions or 0
        created = np.searchsorted(self.environment.departures.created, decisions * self.environment.steps[1])
        travel_time, inside, present = self._started().ask("measured")
        return {
            "average_travel_time": float(travel_time),
            "throughput": float(created - present),
            "queue_length": self._queued / max(decisions, 1),
            "final_queue": float(self.control.queue(self._waiting)),
            "vehicles_inside": float(inside),
            "vehicles_outside": float(present - inside),
            "fault": 0.0,
            "lacking": 0.0,
        }
