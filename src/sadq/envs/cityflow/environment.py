"""CityFlow: choose the green of every signal of a road net, for the least congestion (the paper's Appendix B.1)."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.base import Environment
from sadq.envs.cityflow.capacity import FULL_JAM, GRID_JAM, jammed, most_inside
from sadq.envs.cityflow.control import MOST_ACTIONS, ActionMode, Control, Reward, control_of
from sadq.envs.cityflow.demand import Demand, waiting_outside
from sadq.envs.cityflow.engine import LINK_OVERFULL, NO_SLOT, TOO_MANY_MOVERS, Simulator, State
from sadq.envs.cityflow.episodes import Departures, departures_of, draw_demand
from sadq.envs.cityflow.grid import Grid
from sadq.envs.cityflow.road_network import RoadNetwork, build
from sadq.envs.cityflow.sources import Source, config_file, record
from sadq.envs.fixed_policies import Policy
from sadq.errors import SadqError
from sadq.registry import typed
from sadq.types import Array, Key, PyTree

WAITING_SPEED = 0.1
"""Metres a second below which a vehicle counts as waiting."""


class CityFlowState(NamedTuple):
    """An episode under way. S signals, L lanes."""

    traffic: State
    demand: Demand  # this episode's vehicles
    green: Array  # i32[S], which of its greens each signal shows
    vehicles: Array  # i32[L], on each lane
    waiting: Array  # i32[L], those of them that wait
    decisions: Array  # i32[]
    queued: Array  # i32[], queues after each decision, summed


@typed
@dataclasses.dataclass(frozen=True)
class CityFlow(Environment):
    """All signals show a green each until the next decision, `yellow_seconds + green_seconds` later.

    Where the green changes, the signal clears for `yellow_seconds` first; the others stay green. Vehicles come at the
    times that the scenario's flows say; the lane that each starts on and its priority are drawn for every episode.

    The observation has for each signal its green, one-hot, then the vehicles on each lane that leads to it and the
    waiting ones (slower than 0.1 m/s) on the same: 4 x (4 + 20 + 20) = 176 numbers on the paper's grid. An action is the
    greens of all signals as digits, that of the first signal of the road net the most significant: 4^4 = 256 there.
    One value is learned for each joint action, which bounds the number of signals; many would need a factored action.

    The paper's reward, "waiting", adds up to minus the last queue over an episode, whatever happened before, and a
    vehicle kept outside the net does not count in it: the measures tell the rest.
    """

    scenario: Source = Grid()
    """A generated grid, or the files of a CityFlow configuration."""
    reward: Reward = "waiting"
    """Minus the change of the queue (the paper's); "pressure": outgoing minus incoming waiting (DI-smartcross's); or
    "under_way": minus the vehicles that have not arrived, also before the net, by incoming lane: minus travel time."""
    action: Literal["joint", "shared"] = "joint"
    """Whether every signal's green is chosen, or, "shared", one for all signals."""
    seconds: float = 1000.0
    """An episode ends with the first decision that reaches beyond this."""
    green_seconds: float = 30.0
    yellow_seconds: float = 5.0
    capacity: int | None = None
    """Vehicles inside the net at once; with more, rewards are NaN and `trouble` says why. None: room for all vehicles of
    an episode, or for a jam on all lanes that lead to a signal, whichever is less."""
    name: str = dataclasses.field(default="CityFlow", init=False)
    fixed_length: ClassVar[bool] = True
    drawings: ClassVar[tuple[str, ...]] = (".png", ".gif")

    def __post_init__(self) -> None:
        _check(self)

    @property
    def network(self) -> RoadNetwork:
        return network_of(self.scenario)

    @property
    def control(self) -> Control:
        return control_over(self.scenario, self.action)

    @property
    def simulator(self) -> Simulator:
        return _simulator(self.scenario, self.slots)

    @property
    def slots(self) -> int:
        """Vehicles that there is room for."""
        if self.capacity is not None:
            return self.capacity
        share = GRID_JAM if isinstance(self.scenario, Grid) else FULL_JAM
        return min(jammed(self.network, np.concatenate(self.control.incoming), share), len(self.departures.flow))

    @property
    def steps(self) -> tuple[int, int]:
        """Of the engine in a decision: while a signal clears, and in all."""
        interval = self.network.scenario.interval
        return round(self.yellow_seconds / interval), round((self.yellow_seconds + self.green_seconds) / interval)

    @property
    def observation_size(self) -> int:  # type: ignore[override]
        return self.control.observation_size

    @property
    def action_count(self) -> int:  # type: ignore[override]
        return self.control.action_count

    @property
    def max_steps(self) -> int:  # type: ignore[override]
        return int(self.seconds // (self.yellow_seconds + self.green_seconds)) + 1

    @property
    def provenance(self) -> dict[str, Any]:
        """Where road net and demand come from, as JSON data for a run's record."""
        return record(self.scenario) | {
            "engine": "native",
            "lane_change": False,
            "vehicles": len(self.departures.flow),
            "flows_left_out": len(self.network.left_out),
            "capacity": self.slots,
        }

    def policies(self) -> dict[str, Policy]:
        """Simple policies to compare with, by name."""
        from sadq.envs.cityflow.signal_rules import POLICIES

        return {name: make_policy(self) for name, make_policy in POLICIES.items()}

    def draw(self, states: PyTree, path: Path) -> Path:
        from sadq.envs.cityflow.drawing import draw

        return draw(self, states, path)

    def initial(self, key: Key) -> CityFlowState:
        return self.begin(draw_demand(self.departures, key))

    def begin(self, demand: Demand) -> CityFlowState:
        """The empty net before an episode with the given vehicles; every signal shows its first green."""
        nobody = jnp.zeros(self.network.lane_count, jnp.int32)
        green, zero = jnp.zeros(len(self.control.signals), jnp.int32), jnp.int32(0)
        return CityFlowState(self.simulator.initial(demand), demand, green, nobody, nobody, zero, zero)

    def transition(self, state: CityFlowState, action: Array, key: Key) -> tuple[CityFlowState, Array, Array]:
        reached = self.decided(state, self.control.decode(action))
        reward = self.control.reward(self.reward, state.waiting, reached.waiting, self.under_way(reached))
        return reached, jnp.where(reached.traffic.fault > 0, jnp.nan, reward.astype(jnp.float32)), jnp.bool_(False)

    def decided(self, state: CityFlowState, goal: Array) -> CityFlowState:
        """The state at the next decision, if these greens i32[S] are shown until then."""
        first, then = self.control.shown(state.green, goal)
        clearing, steps = self.steps

        def step(number: Array, traffic: State) -> State:
            return self.simulator.step(state.demand, traffic, jnp.where(number < clearing, first, then))

        traffic = jax.lax.fori_loop(0, steps, step, state.traffic)
        vehicles, waiting = self.lanes(traffic)
        return CityFlowState(
            traffic,
            state.demand,
            goal,
            vehicles,
            waiting,
            state.decisions + 1,
            state.queued + self.control.queue(waiting),
        )

    def observe(self, state: CityFlowState) -> Array:
        return self.control.observe(state.green, state.vehicles, state.waiting, jnp)

    def lanes(self, traffic: State) -> tuple[Array, Array]:
        """Vehicles on each lane, and the waiting ones, i32[L] each; on a link inside an intersection they are on none."""
        drivable = self.simulator.tables.places.drivable[traffic.vehicles.place]
        lane = jnp.where(drivable < self.network.lane_count, drivable, self.network.lane_count)
        nobody, halts = jnp.zeros(self.network.lane_count, jnp.int32), traffic.vehicles.speed < WAITING_SPEED
        return nobody.at[lane].add(1, mode="drop"), nobody.at[lane].add(halts.astype(jnp.int32), mode="drop")

    def measures(self, state: CityFlowState) -> dict[str, Array]:
        """What an episode came to so far, each f32[].

        `average_travel_time` is in seconds and over all vehicles that wanted to enter, those still under way or outside
        counted up to now; `throughput` are those that reached their goal; `queue_length` is the mean number of vehicles
        that wait before signals after a decision, `final_queue` that after the last. `fault` is not 0 where there was no
        room for `lacking` more, and all that follows is wrong: `trouble` has the sentence for it.
        """
        traffic, demand = state.traffic, state.demand
        inside, outside = self._present(state)
        created = jnp.sum(demand.created < traffic.time)
        spent = jnp.sum(jnp.where(inside, traffic.time - demand.created[traffic.vehicles.trip], 0))
        spent += jnp.sum(jnp.where(outside, traffic.time - demand.created, 0))
        travelled = (traffic.finished_steps + spent) * self.network.scenario.interval
        measured = {
            "average_travel_time": travelled / jnp.maximum(created, 1),
            "throughput": traffic.finished,
            "queue_length": state.queued / jnp.maximum(state.decisions, 1),
            "final_queue": self.control.queue(state.waiting),
            "vehicles_inside": jnp.sum(inside),
            "vehicles_outside": jnp.sum(outside),
            "fault": traffic.fault,
            "lacking": jnp.where(traffic.fault & NO_SLOT, traffic.lacking[0], traffic.lacking[1]),
        }
        return {name: value.astype(jnp.float32) for name, value in measured.items()}

    def under_way(self, state: CityFlowState) -> Array:
        """How many vehicles have been created and have not arrived: i32[]."""
        inside, outside = self._present(state)
        return jnp.sum(inside) + jnp.sum(outside)

    def _present(self, state: CityFlowState) -> tuple[Array, Array]:
        """Which places for vehicles hold one that is in the net, and which trips wait before it."""
        traffic = state.traffic
        inside = self.simulator.tables.places.drivable[traffic.vehicles.place] < len(self.network.length)
        return inside, waiting_outside(state.demand, traffic.queue, traffic.time)

    def trouble(self, measures: Mapping[str, float]) -> str | None:
        fault, lacking = int(measures["fault"]), int(measures["lacking"])
        if fault & NO_SLOT:
            most = min(len(self.departures.flow), most_inside(self.network))
            enough = min(max(2 * self.slots, self.slots + lacking), most)
            return (
                f"{lacking} more vehicles wanted to be inside the net than capacity={self.slots} has room for: set "
                f"capacity={enough}; {most} is always enough."
            )
        if fault & TOO_MANY_MOVERS:
            movers = self.simulator.movers[1]
            return (
                f"{lacking} more vehicles went from one lane or link to the next in a second than there is room for with "
                f"capacity={self.slots}, which is {movers}: set capacity={math.ceil(self.slots * (1 + lacking / movers))}."
            )
        if fault & LINK_OVERFULL:
            return "vehicles overlap on a lane link until more are on it than fit: widen the scenario's gaps."
        return None

    @property
    def departures(self) -> Departures:
        """Which vehicles an episode has."""
        return _departures(self.scenario, self.max_steps * self.steps[1])


Made = TypeVar("Made", bound=CityFlow)
PAPER_GRID = Grid()
LEAST_GREENS = 2
"""Of a signal at which roads cross."""


def make(
    config: str | Path | None = None,
    engine: Literal["native", "cityflow"] = "native",
    **settings: Any,
) -> CityFlow | gymnasium.Env:
    """CityFlow over a generated grid, or over the scenario of a `config.json`, on our engine or on CityFlow's own.

    `settings` are fields of `CityFlow`, and without `config` also of `Grid`: rows, columns, demand, seed and so on.
    """
    if engine not in ("native", "cityflow"):
        _refuse("engine", engine, "native or cityflow")
    environment = made_of(CityFlow, settings, None if config is None else config_file(config), {"config", "engine"})
    if engine == "native":
        return environment
    from sadq.envs.cityflow.adapter import CityFlowEngine

    return CityFlowEngine(environment)


def made_of(
    kind: type[Made], settings: Mapping[str, Any], files: Source | None, also: set[str], grid: Grid = PAPER_GRID
) -> Made:
    """An environment of a kind over files, or else over a grid, from fields of the kind and of the grid.

    `also` are settings that the caller has taken out.
    """
    of_grid = {field.name for field in dataclasses.fields(Grid) if field.type in (int, float)}
    known = {field.name for field in dataclasses.fields(kind) if field.init} - {"scenario"}
    expected = sorted(known | also | (of_grid if files is None else set()))
    if unknown := sorted(settings.keys() - set(expected)):
        raise SadqError(
            f"CityFlow has no setting {', '.join(unknown)}{' with a config' if of_grid & set(unknown) else ''}, expected "
            f"{', '.join(expected)}: choose those."
        )
    of_kind = {name: value for name, value in settings.items() if name in known}
    own = {name: value for name, value in settings.items() if name in of_grid}
    return kind(dataclasses.replace(grid, **own) if files is None else files, **of_kind)


@functools.lru_cache(maxsize=16)
def network_of(scenario: Source) -> RoadNetwork:
    """A source's road net, laid out once for all who ask."""
    return build(scenario.scenario())


@functools.lru_cache(maxsize=16)
def control_over(scenario: Source, mode: ActionMode) -> Control:
    """The control of a source's signals, made once for all who ask."""
    return control_of(network_of(scenario), mode)


@functools.lru_cache(maxsize=16)
def _simulator(scenario: Source, capacity: int) -> Simulator:
    with jax.ensure_compile_time_eval():  # its tables outlive the trace that asks for them first
        return Simulator(network_of(scenario), capacity)


@functools.lru_cache(maxsize=16)
def _departures(scenario: Source, steps: int) -> Departures:
    return departures_of(network_of(scenario), steps)


def _check(environment: CityFlow) -> None:
    _check_signals(environment)
    for field, least in (("seconds", 0.0), ("green_seconds", 1.0), ("yellow_seconds", 0.0)):
        value = getattr(environment, field)
        if not least <= value < math.inf:
            _refuse(field, value, f"a number from {least:g}")
    if environment.capacity is not None and environment.capacity < 1:
        _refuse("capacity", environment.capacity, "a whole number above 0, or None")
    interval = environment.network.scenario.interval
    for field in ("green_seconds", "yellow_seconds"):
        steps = getattr(environment, field) / interval
        if abs(steps - round(steps)) > 1e-9:
            _refuse(field, getattr(environment, field), f"a multiple of the scenario's interval, {interval:g} s")
    if not len(environment.departures.flow):
        raise SadqError("CityFlow's scenario creates no vehicle within an episode: choose one with traffic.")
    _ = environment.control  # refuses more joint actions than a network can have a value for


def _check_signals(environment: CityFlow) -> None:
    """Refuse at once a grid whose joint actions nobody can count, before it is laid out; others are counted then."""
    grid = environment.scenario
    if environment.action != "joint" or not isinstance(grid, Grid):
        return
    signals = grid.rows * grid.columns
    if LEAST_GREENS**signals > MOST_ACTIONS:
        raise SadqError(
            f"CityFlow got rows={grid.rows} and columns={grid.columns}, {signals:,} signals with at least "
            f"{LEAST_GREENS}^{signals} joint actions, expected at most {MOST_ACTIONS:,}, since a value is learned for each: "
            "choose a smaller grid, action='shared', or CityFlowGrid, whose signals decide each for itself."
        )


def _refuse(field: str, value: Any, expected: str) -> None:
    raise SadqError(f"CityFlow got {field}={value!r}, expected {expected}: choose such a value.")
