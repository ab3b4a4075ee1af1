"""A CityFlow episode to look at: the net from above with its vehicles and signals, as a PNG or an animated GIF."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from sadq.envs.cityflow.engine import State
from sadq.envs.cityflow.environment import WAITING_SPEED, CityFlow, CityFlowState
from sadq.envs.cityflow.geometry import lane_points
from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.errors import SadqError
from sadq.types import Array

ROAD, BLUE, RED, GREEN = "#d9d9d9", "#0072B2", "#D55E00", "#009E73"
FRAME_SECONDS = 5
FRAMES_PER_SECOND = 12
DPI = 80
PIECES = 8
"""Straight pieces that a lane is drawn in."""


class TrafficHistory(NamedTuple):
    """What a drawing shows, at T moments. V vehicle slots, S signals."""

    time: np.ndarray  # f[T], seconds
    drivable: np.ndarray  # i[T, V], the number of drivables where a slot is empty
    distance: np.ndarray  # f[T, V], from the start of the drivable
    speed: np.ndarray  # f[T, V]
    phase: np.ndarray  # i[T, S]
    finished: np.ndarray  # i[T]


Moments = tuple[Array, ...]
"""The columns of a history while they are JAX's."""


def draw(environment: CityFlow, states: CityFlowState | Sequence[CityFlowState], path: str | Path) -> Path:
    """Draw an episode's states, stacked along their first axis or in a list, into a .gif file, or its end into a .png."""
    path = Path(path)
    if path.suffix not in (".png", ".gif"):
        raise SadqError(f"cannot draw {path}, expected a name that ends in .png or .gif: choose one.")
    history = history_of(environment, states)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure, show = _figure(environment.network, history)
    if path.suffix == ".png":
        show(len(history.time) - 1)
        figure.savefig(path, dpi=DPI)
    else:
        animation = FuncAnimation(figure, show, frames=len(history.time))
        animation.save(path, writer=PillowWriter(fps=FRAMES_PER_SECOND), dpi=DPI)
    return path


def history_of(
    environment: CityFlow, states: CityFlowState | Sequence[CityFlowState], every: int = FRAME_SECONDS
) -> TrafficHistory:
    """The first state, then every `every` seconds of what led from each state to the next: it is simulated again."""
    if not isinstance(states, CityFlowState) and len(states) == 0:
        raise SadqError("there is no state to draw, expected those of an episode: record at least one.")
    stacked: CityFlowState = (
        states if isinstance(states, CityFlowState) else jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    )
    opening, later = _replay(environment)(stacked)
    interval = environment.network.scenario.interval
    stride = max(1, round(every / interval))
    columns = []
    for one, rest in zip(opening, later, strict=True):
        steps = np.asarray(rest).reshape(-1, *one.shape)
        columns.append(np.concatenate([np.asarray(one)[None], steps[stride - 1 :: stride]]))
    return TrafficHistory(columns[0] * interval, *columns[1:])


@functools.lru_cache(maxsize=4)
def _replay(environment: CityFlow) -> Callable[[CityFlowState], tuple[Moments, Moments]]:
    """What is seen at the first of stacked states, and after every step of the engine [decisions, steps] from there."""
    simulator, control = environment.simulator, environment.control
    clearing, steps = environment.steps

    def seen(traffic: State, phase: Array) -> Moments:
        vehicles = traffic.vehicles
        drivable = simulator.tables.places.drivable[vehicles.place]
        return traffic.time, drivable, vehicles.distance, vehicles.speed, phase, traffic.finished

    def between(pair: tuple[CityFlowState, Array]) -> Moments:
        state, goal = pair
        first, then = control.shown(state.green, goal)

        def step(traffic: State, number: Array) -> tuple[State, Moments]:
            phase = jnp.where(number < clearing, first, then)
            traffic = simulator.step(state.demand, traffic, phase)
            return traffic, seen(traffic, phase)

        return jax.lax.scan(step, state.traffic, jnp.arange(steps))[1]

    @jax.jit
    def replay(stacked: CityFlowState) -> tuple[Moments, Moments]:
        begun = jax.tree.map(lambda leaf: leaf[0], stacked)
        earlier = jax.tree.map(lambda leaf: leaf[:-1], stacked)
        opening = seen(begun.traffic, control.shown(begun.green, begun.green)[1])
        return opening, jax.lax.map(between, (earlier, stacked.green[1:]))

    return replay


def positions(network: RoadNetwork, history: TrafficHistory, moment: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x and y [n, 2], speed [n], on a lane bool[n]) of the vehicles inside the net at a moment."""
    drivable = history.drivable[moment]
    inside = drivable < len(network.length)
    drivable, lines = drivable[inside], _lines(network)
    share = np.clip(history.distance[moment][inside] / network.length[drivable], 0.0, 1.0) * PIECES
    piece = np.minimum(share.astype(int), PIECES - 1)
    rest = (share - piece)[:, None]
    place = lines[drivable, piece] * (1 - rest) + lines[drivable, piece + 1] * rest
    return place, history.speed[moment][inside], drivable < network.lane_count


def _lines(network: RoadNetwork) -> np.ndarray:
    """Points along every drivable, f[drivables, PIECES + 1, 2]; links are drawn straight from lane to lane."""
    net = network.scenario.net
    widths = {intersection.name: intersection.width for intersection in net.intersections}
    lines = []
    for road in net.roads:
        across = [width for width, _ in road.lanes]
        for lane in range(len(road.lanes)):
            points = np.array(lane_points(road.points, widths[road.start], widths[road.end], across, lane))
            lines.append(_resampled(points))
    ends = zip(network.link_start, network.link_end, strict=True)
    lines += [_resampled(np.stack([lines[start][-1], lines[end][0]])) for start, end in ends]
    return np.stack(lines)


def _resampled(points: np.ndarray) -> np.ndarray:
    along = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1)))
    wanted = np.linspace(0.0, along[-1], PIECES + 1)
    return np.stack([np.interp(wanted, along, points[:, axis]) for axis in (0, 1)], axis=1)


def _figure(network: RoadNetwork, history: TrafficHistory):
    """A figure, and the function that makes it show a moment."""
    lines = _lines(network)
    span = np.ptp(lines.reshape(-1, 2), axis=0)
    width = 7.0
    figure = Figure(figsize=(width, width * float(np.clip(span[1] / span[0], 0.4, 1.4)) + 1.8), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[5, 1])
    above.add_collection(LineCollection(list(lines[: network.lane_count]), colors=ROAD, linewidths=2.0))
    above.set(aspect="equal", xticks=[], yticks=[])
    above.autoscale_view()
    above.spines[:].set_visible(False)
    stops = lines[network.link_start, -1] if len(network.link_start) else np.zeros((0, 2))
    signals = above.scatter(*stops.T, s=14, marker="s", zorder=2)
    vehicles = above.scatter([], [], s=5, zorder=3)

    moments = [positions(network, history, moment) for moment in range(len(history.time))]
    waiting = np.array([np.sum((speed < WAITING_SPEED) & on_lane) for _, speed, on_lane in moments])
    below.plot(history.time, waiting, color=RED, label="waiting")
    below.plot(history.time, [len(speed) for _, speed, _ in moments], color=BLUE, label="in the net")
    below.plot(history.time, history.finished, color=GREEN, label="arrived")
    below.set(xlabel="seconds", ylabel="vehicles")
    below.legend(loc="upper left", fontsize="small", frameon=False)
    now = below.axvline(0.0, color="black", linewidth=0.8)
    # A lane is lit where any of its links has green, so green links are drawn over red ones.
    signal_of, link = network.link_signal, np.arange(len(network.link_signal))

    def show(moment: int) -> list[Artist]:
        place, speed, _ = moments[moment]
        vehicles.set_offsets(place)
        vehicles.set_facecolors([RED if one < WAITING_SPEED else BLUE for one in speed])
        lit = network.green[history.phase[moment][signal_of], link]
        order = np.argsort(lit, kind="stable")
        signals.set_offsets(stops[order])
        signals.set_facecolors([GREEN if one else "black" for one in lit[order]])
        now.set_xdata([history.time[moment]] * 2)
        above.set_title(f"{history.time[moment]:.0f} s, {waiting[moment]} of {len(speed)} waiting", loc="left")
        return []

    return figure, show
