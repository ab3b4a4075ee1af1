"""Every intersection of a net an actor: the setting of traffic-signal papers, one network that plays them all."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from sadq.envs.cityflow.control import ActionMode, Control
from sadq.envs.cityflow.environment import PAPER_GRID, CityFlow, CityFlowState, control_over, made_of, network_of
from sadq.envs.cityflow.grid import Grid, Lanes
from sadq.envs.cityflow.sources import Source, config_file, net_files
from sadq.errors import SadqError
from sadq.registry import typed
from sadq.types import Array, Key

GRID = Grid(
    rows=4,
    columns=4,
    row_spacing=300.0,
    column_spacing=300.0,
    row_entry=300.0,
    column_entry=300.0,
    row_lanes=Lanes((0,), (1,), (2,)),
    column_lanes=Lanes((0,), (1,), (2,)),
    column_interval=5.0,
    demand=0.1,
)
"""The 4 x 4 grid that such papers use: three lanes a road of 300 m, one for each turn, at a demand that can be served."""
GRIDS = {"wide": GRID, "paper": PAPER_GRID}
"""By the names that `make` takes; "paper" is that of `CityFlow`."""


@typed
@dataclasses.dataclass(frozen=True)
class CityFlowGrid(CityFlow):
    """Each of a net's S signals is an actor that chooses its own green, `yellow_seconds + green_seconds` at a time.

    An actor sees its green, one-hot, then the vehicles on each lane that leads to it and the waiting ones on the same, and
    with `neighbours` the same of those signals that its incoming roads come from. Where signals are unlike, all have the
    places of the largest: lanes that one lacks are empty, and which greens it has is seen too, for the others are illegal.
    """

    scenario: Source = GRID
    reward: Literal["pressure", "queue", "under_way"] = "pressure"  # type: ignore[assignment]
    """Of an actor, by incoming lane: minus the difference of vehicles coming and gone, or "queue", minus the waiting; or
    "under_way", of all together: minus the vehicles that have not arrived, also before the net: minus travel time."""
    action: ActionMode = dataclasses.field(default="each", init=False)  # type: ignore[assignment]
    neighbours: bool = False
    """Whether an actor sees what its neighbours see of themselves."""
    seconds: float = 3600.0
    green_seconds: float = 10.0
    yellow_seconds: float = 5.0
    name: str = dataclasses.field(default="CityFlowGrid", init=False)

    @property
    def views(self) -> "Views":
        return _views(self.scenario)

    @property
    def actors(self) -> int:  # type: ignore[override]
        return len(self.control.signals)

    @property
    def observation_size(self) -> int:  # type: ignore[override]
        own = self.views.own_size(self.control)
        return own * (1 + self.views.neighbours.shape[1]) if self.neighbours else own

    @property
    def max_steps(self) -> int:  # type: ignore[override]
        return max(1, int(self.seconds // (self.yellow_seconds + self.green_seconds)))

    @property
    def has_masks(self) -> bool:
        return self.views.unlike

    def legal(self, observation: Array) -> Array | None:
        greens = self.action_count
        return observation[greens : 2 * greens] > 0.5 if self.views.unlike else None

    def transition(self, state: CityFlowState, action: Array, key: Key) -> tuple[CityFlowState, Array, Array]:
        reached = self.decided(state, self.control.decode(action))
        reward = self.control.by_actor(self.rewards(reached))
        return reached, jnp.where(reached.traffic.fault > 0, jnp.nan, reward), jnp.bool_(False)

    def rewards(self, state: CityFlowState) -> Array:
        """f32[S], of the state that a decision led to."""
        incoming = self.views.incoming
        if self.reward == "under_way":
            shared = self.control.reward(self.reward, state.waiting, state.waiting, self.under_way(state))
            return jnp.full(len(incoming), shared, jnp.float32)
        if self.reward == "queue":
            total = _at_lanes(state.waiting, incoming).sum(1)
        else:
            total = jnp.abs(
                _at_lanes(state.vehicles, incoming).sum(1) - _at_lanes(state.vehicles, self.views.outgoing).sum(1)
            )
        return -total.astype(jnp.float32) / np.maximum((incoming < self.network.lane_count).sum(1), 1)

    def observe(self, state: CityFlowState) -> Array:
        views, control = self.views, self.control
        parts = [state.green[:, None] == np.arange(self.action_count)]
        if views.unlike:
            parts.append(jnp.asarray(np.arange(self.action_count) < control.greens[:, None]))
        parts += [_at_lanes(state.vehicles, views.incoming), _at_lanes(state.waiting, views.incoming)]
        own = jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=1)
        if not self.neighbours:
            return control.by_actor(own)
        nobody = jnp.concatenate([own, jnp.zeros((1, own.shape[1]), own.dtype)])
        return control.by_actor(jnp.concatenate([own, nobody[views.neighbours].reshape(len(own), -1)], axis=1))


@dataclasses.dataclass(frozen=True, eq=False)
class Views:
    """What each of S signals sees, by numbers: lanes padded with the number of lanes, neighbours with S."""

    incoming: np.ndarray  # i[S, W]
    outgoing: np.ndarray  # i[S, V]
    neighbours: np.ndarray  # i[S, N], by the order of its roads
    unlike: bool  # signals have unlike numbers of greens

    def own_size(self, control: Control) -> int:
        return control.action_count * (2 if self.unlike else 1) + 2 * self.incoming.shape[1]


def make(
    config: str | Path | None = None,
    roadnet: str | Path | None = None,
    flow: str | Path | None = None,
    grid: str | None = None,
    **settings: Any,
) -> CityFlowGrid:
    """Every intersection an actor, over a generated grid, a `config.json`, or a road net and a flow by themselves.

    `grid` names the numbers that a generated one begins with: "wide" or the paper's. `settings` are fields of
    `CityFlowGrid`, and without files also of `Grid`.
    """
    if (roadnet is None) != (flow is None) or (config is not None and roadnet is not None):
        raise SadqError(
            "CityFlowGrid takes a config, or a roadnet and a flow together, or none of them: give one of these."
        )
    if grid is not None and (grid not in tuple(GRIDS) or config is not None or roadnet is not None):
        expected = f"expected {' or '.join(GRIDS)}, or files and no grid"
        raise SadqError(f"CityFlowGrid got grid={grid!r}, {expected}: choose one.")
    files: Source | None = None if config is None else config_file(config)
    if roadnet is not None and flow is not None:
        files = net_files(roadnet, flow)
    return made_of(CityFlowGrid, settings, files, {"config", "roadnet", "flow", "grid"}, GRIDS[grid or "wide"])


@functools.lru_cache(maxsize=16)
def _views(scenario: Source) -> Views:
    control, network = control_over(scenario, "each"), network_of(scenario)
    number = {name: index for index, name in enumerate(control.signals)}
    signals = [one for one in network.scenario.net.intersections if not one.virtual]
    roads = {road.name: road for road in network.scenario.net.roads}
    neighbours = []
    for signal in signals:
        into = [roads[name] for name in sorted(signal.roads) if roads[name].end == signal.name]
        beside = dict.fromkeys(number[road.start] for road in into if road.start in number)
        neighbours.append(np.array(list(beside), int))
    return Views(
        _padded(list(control.incoming), network.lane_count),
        _padded(list(control.outgoing), network.lane_count),
        _padded(neighbours, len(signals)),
        len(set(control.greens.tolist())) > 1,
    )


def _padded(rows: list[np.ndarray], fill: int) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([np.pad(row, (0, width - len(row)), constant_values=fill) for row in rows]).reshape(
        len(rows), width
    )


def _at_lanes(values: Array, lanes: np.ndarray) -> Array:
    """What is known by lane, at padded lanes: 0 where there is none."""
    return jnp.append(values, 0)[lanes]
