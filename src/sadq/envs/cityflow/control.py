"""Signal control over any engine: what an action shows, what is observed, and the rewards (paper, Appendix B.1).

Written for NumPy and JAX arrays alike, and free of JAX itself, so that one code serves our engine and CityFlow's own.
"""

import collections
import dataclasses
import functools
from typing import Any, Literal

import numpy as np

from sadq.envs.cityflow.files import LINK_KINDS, Intersection
from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.errors import SadqError

MOST_ACTIONS = 4**6
"""Joint actions that one network head is given: six intersections of four greens each."""

ActionMode = Literal["joint", "shared", "each"]
"""One action names the greens of all signals, or one green for all; or every signal has an action of its own."""
Reward = Literal["waiting", "pressure", "under_way"]


@dataclasses.dataclass(frozen=True, eq=False)
class Control:
    """Signals, their phases, and the lanes around them. S signals, at most G greens each, at most W lanes around one.

    A phase that lets only right turns go, or nobody, is a clearing one ("yellow"); all others are greens, and a decision
    names one of these for every signal. A green's own clearing phase is the one that follows it, as in the paper's grid,
    or else the signal's first; a signal without any goes from green to green at once.
    """

    signals: tuple[str, ...]
    greens: np.ndarray  # i[S], how many each signal has
    green_phase: np.ndarray  # i[S, G], padded with the last
    clearing_phase: np.ndarray  # i[S, G], -1 where there is none
    incoming: tuple[np.ndarray, ...]  # per signal the lanes that lead to it, in the order of their names
    outgoing: tuple[np.ndarray, ...]
    lane_count: int
    around: np.ndarray  # i[S, W], a signal's incoming and then its outgoing lanes, padded with the number of lanes
    service: np.ndarray  # f32[S, G, W], the share of a lane's links that a green lets go
    pressure: np.ndarray  # f32[S, G, W], `service` less what the links lead to, shared among its lanes
    mode: ActionMode

    @property
    def action_count(self) -> int:
        return int(np.prod(self.greens.astype(object))) if self.mode == "joint" else int(self.greens.max())

    @property
    def observation_size(self) -> int:
        return int(self.greens.sum()) + 2 * sum(map(len, self.incoming))

    @property
    def places(self) -> np.ndarray:
        """i[S], what one more in each signal's digit adds to a joint action: the first signal's is the most significant."""
        return np.append(np.cumprod(self.greens[:0:-1])[::-1], 1).astype(np.int32)

    def decode(self, action: Any) -> Any:
        """The green of every signal, i32[S], that an action names, or that the actions of all signals do."""
        if self.mode == "each":
            return action.reshape(-1)  # an only signal's action has no axis
        if self.mode == "shared":
            return action + np.zeros(len(self.signals), np.int32)
        return action // self.places % self.greens.astype(np.int32)

    def encode(self, chosen: Any) -> Any:
        """The action that names these greens, i32[S]; of a shared one, the first signal's counts."""
        if self.mode == "each":
            return self.by_actor(chosen)
        return chosen[0] if self.mode == "shared" else (chosen * self.places).sum()

    def by_actor(self, values: Any) -> Any:
        """What is by signal, [S, ...], as S actors have it: an only one has no axis of its own."""
        return values if len(self.signals) > 1 else values[0]

    def best(self, scores: Any) -> Any:
        """The action of the greatest score f32[S, G], for every signal or for all together; the first of equals."""
        if self.mode == "shared":
            return scores.sum(0).argmax()
        absent = np.arange(scores.shape[1]) >= self.greens[:, None]
        return self.encode((scores - np.where(absent, np.inf, 0.0)).argmax(1))

    def shown(self, green: Any, goal: Any) -> tuple[Any, Any]:
        """The phases i32[S] first and then: where the green changes, the old one's clearing phase comes first."""
        signal = np.arange(len(self.signals))
        then = _at(self.green_phase, signal, goal)
        clearing = _at(self.clearing_phase, signal, green)
        clears = (goal != green) & (clearing >= 0)
        return clears * clearing + ~clears * then, then

    def observe(self, green: Any, vehicles: Any, waiting: Any, arrays: Any = np) -> Any:
        """f32[observation_size]: of each signal its green one-hot, then vehicles and waiting ones on incoming lanes."""
        shown = (green[:, None] == np.arange(self.green_phase.shape[1])).reshape(-1)
        return arrays.concatenate([part.astype(np.float32) for part in (shown, vehicles, waiting)])[self._observed]

    @functools.cached_property
    def _observed(self) -> np.ndarray:
        """Where an observation's entries are in all greens, vehicles and waiting vehicles one after the other."""
        greens = self.green_phase.size
        width, parts = self.green_phase.shape[1], []
        for signal, lanes in enumerate(self.incoming):
            parts += [signal * width + np.arange(self.greens[signal]), greens + lanes, greens + self.lane_count + lanes]
        return np.concatenate(parts)

    def local(self, values: Any) -> Any:
        """What is known by lane, for the lanes around each signal: [L] -> [S, W], 0 where there is none."""
        return values[np.minimum(self.around, self.lane_count - 1)] * (self.around < self.lane_count)

    def queue(self, waiting: Any) -> Any:
        """How many of the waiting vehicles, by lane, wait on lanes that lead to a signal."""
        return waiting[np.concatenate(self.incoming)].sum()

    def reward(self, kind: Reward, before: Any, after: Any, under_way: Any) -> Any:
        """Of the waiting vehicles by lane before and after a decision, and of all that are `under_way` after it.

        "waiting", the paper's: minus the change of the queue, so that a whole return is minus the last queue plus the
        first. "pressure", DI-smartcross's: minus what waits on incoming lanes plus what waits on outgoing ones.
        "under_way": minus the vehicles that have not arrived, those that wait to enter the net among them, by incoming
        lane. Every second each of them adds one to the travel time of all, so a return is minus that, up to a factor.
        """
        if kind == "waiting":
            return self.queue(before) - self.queue(after)
        if kind == "under_way":
            return -under_way / sum(map(len, self.incoming))
        return after[np.concatenate(self.outgoing)].sum() - self.queue(after)


def control_of(network: RoadNetwork, mode: ActionMode = "joint") -> Control:
    """Control of all signals of a network."""
    lanes = {name: index for index, name in enumerate(network.lane_names)}
    signals = [one for one in network.scenario.net.intersections if not one.virtual]
    if not signals:
        raise SadqError("the road net has no intersection with a signal, expected at least one: choose another net.")
    roads = {road.name: road for road in network.scenario.net.roads}
    phases = [_phases(signal, mode == "each") for signal in signals]
    greens = np.array([len(of) for of, _ in phases])
    _check_size(greens, mode)
    most = int(greens.max())

    def around(end: str, signal: Intersection) -> np.ndarray:
        names = [
            f"{name}_{lane}"
            for name in signal.roads
            if getattr(roads[name], end) == signal.name
            for lane in range(len(roads[name].lanes))
        ]
        # The engine lists lanes by name, and so does the original environment's observation.
        return np.array([lanes[name] for name in sorted(names)], int)

    incoming, outgoing = (tuple(around(end, signal) for signal in signals) for end in ("end", "start"))
    near = [np.concatenate(pair) for pair in zip(incoming, outgoing, strict=True)]
    widest = max(map(len, near))
    service, pressure = (np.zeros((len(signals), most, widest), np.float32) for _ in range(2))
    for index, signal in enumerate(signals):
        for green, phase in enumerate(phases[index][0]):
            for weights, found in zip((service, pressure), _weights(signal, phase, lanes), strict=True):
                weights[index, green, : len(near[index])] = [found.get(lane, 0.0) for lane in near[index].tolist()]
    return Control(
        signals=tuple(signal.name for signal in signals),
        greens=greens,
        green_phase=np.array([_padded(of, most) for of, _ in phases], np.int32),
        clearing_phase=np.array([_padded(of, most) for _, of in phases], np.int32),
        incoming=incoming,
        outgoing=outgoing,
        lane_count=len(lanes),
        around=np.array([np.pad(of, (0, widest - len(of)), constant_values=len(lanes)) for of in near]),
        service=service,
        pressure=pressure,
        mode=mode,
    )


def _check_size(greens: np.ndarray, mode: ActionMode) -> None:
    if mode == "shared" and len(set(greens.tolist())) > 1:
        raise SadqError(
            f"action='shared' got signals with {', '.join(map(str, sorted(set(greens.tolist()))))} greens, expected the "
            "same number everywhere: choose action='joint'."
        )
    actions = int(np.prod(greens.astype(object)))
    if mode == "joint" and actions > MOST_ACTIONS:
        raise SadqError(
            f"{len(greens)} signals have {actions} joint actions, expected at most {MOST_ACTIONS}, since a value is learned "
            "for each: choose a smaller grid, or action='shared', by which all signals show the same green."
        )


def _phases(signal: Intersection, any_phase: bool) -> tuple[list[int], list[int]]:
    """(green phases, the clearing phase of each or -1); with `any_phase` a signal of right turns has those for greens."""
    right = {index for index, link in enumerate(signal.road_links) if link.kind == LINK_KINDS["turn_right"]}
    clearing = [index for index, phase in enumerate(signal.phases) if phase.road_links <= right]
    greens = [index for index in range(len(signal.phases)) if index not in clearing]
    if not greens and any_phase:
        return clearing, [-1] * len(clearing)
    if not greens:
        raise SadqError(
            f"the signal {signal.name!r} has no phase that lets more than right turns go, expected one at least: check its "
            "lightphases."
        )
    return greens, [green + 1 if green + 1 in clearing else (clearing or [-1])[0] for green in greens]


def _weights(signal: Intersection, phase: int, lanes: dict[str, int]) -> tuple[dict[int, float], dict[int, float]]:
    """`service` and `pressure` of one phase, by lane."""
    links: collections.Counter[int] = collections.Counter()
    open_links: collections.Counter[int] = collections.Counter()
    reached: dict[int, set[int]] = collections.defaultdict(set)
    for index, link in enumerate(signal.road_links):
        starts = {lanes[f"{link.start_road}_{one.start_lane}"] for one in link.lane_links}
        links.update(starts)
        if index in signal.phases[phase].road_links:
            open_links.update(starts)
            for one in link.lane_links:
                start = lanes[f"{link.start_road}_{one.start_lane}"]
                reached[start].add(lanes[f"{link.end_road}_{one.end_lane}"])
    service: dict[int, float] = {}
    pressure: dict[int, float] = collections.defaultdict(float)
    for lane, count in open_links.items():
        service[lane] = share = count / links[lane]
        pressure[lane] += share
        for beyond in sorted(reached[lane]):
            pressure[beyond] -= share / len(reached[lane])
    return service, pressure


def _padded(values: list[int], size: int) -> list[int]:
    return values + values[-1:] * (size - len(values))


def _at(table: np.ndarray, row: np.ndarray, column: Any) -> Any:
    """`table[row, column]`, where the column may be traced: a sum over one-hot columns, for NumPy's indexing cannot."""
    return (table[row] * (column[:, None] == np.arange(table.shape[1]))).sum(1)
