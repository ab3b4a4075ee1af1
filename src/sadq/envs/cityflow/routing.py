"""The way of a vehicle: roads by the shortest path between anchors, then a lane link on each by the nearest lane."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence


@dataclasses.dataclass(frozen=True)
class RoadGraph:
    """Roads as numbers, in the order of the file."""

    names: tuple[str, ...]
    lengths: tuple[float, ...]  # mean over the lanes
    after: tuple[tuple[int, ...], ...]  # roads that can be entered from each, in the order of its end intersection
    lanes: tuple[tuple[int, ...], ...]  # lane numbers of each road


@dataclasses.dataclass(frozen=True)
class LinkGraph:
    """Lane links by their lanes: how a vehicle gets from one road to the next."""

    road_of: Sequence[int]  # of a lane
    lane_index: Sequence[int]  # of a lane on its road
    links_of: Sequence[Sequence[int]]  # links that start on a lane, in the order of the file
    end_of: Sequence[int]  # lane that a link ends on

    @functools.cached_property
    def _by_road(self) -> list[dict[int, list[int]]]:
        """Per lane: road -> the links there."""
        found: list[dict[int, list[int]]] = [{} for _ in self.links_of]
        for of_lane, links in zip(found, self.links_of, strict=True):
            for link in links:
                of_lane.setdefault(self.road_of[self.end_of[link]], []).append(link)
        return found

    @functools.cached_property
    def _chosen(self) -> dict[tuple[int, int, int | None], int | None]:
        return {}

    def leading_to(self, lane: int, road: int) -> list[int]:
        """The links from a lane to any lane of a road."""
        return self._by_road[lane].get(road, [])

    def chosen(self, lane: int, road: int, after: int | None) -> int | None:
        """The link by which a vehicle on a lane goes to a road, and from there to the road after; None: there is none."""
        key = lane, road, after
        if key not in self._chosen:
            choices = self.leading_to(lane, road)
            if after is not None:
                choices = [link for link in choices if self.leading_to(self.end_of[link], after)]
            here = self.lane_index[lane]
            nearest = min(choices, key=lambda link: abs(self.lane_index[self.end_of[link]] - here), default=None)
            self._chosen[key] = nearest
        return self._chosen[key]


def fill(shortest: "ShortestWays", anchors: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, int] | None]:
    """(all roads of a route that passes the anchors in order, each stretch by the shortest length; None).

    Where no way leads from one anchor to the next, these two roads come instead of None.
    """
    route = [anchors[0]]
    for start, end in zip(anchors, anchors[1:], strict=False):
        if start != end:
            stretch = shortest.between(start, end)
            if not stretch:
                return (), (start, end)
            route += stretch
    return tuple(route), None


def first_lanes(graph: RoadGraph, links: LinkGraph, route: Sequence[int]) -> list[int]:
    """The lanes that a vehicle may start on: those of its first road that lead to the second."""
    return [lane for lane in graph.lanes[route[0]] if links.leading_to(lane, route[1])]


def follow(links: LinkGraph, route: Sequence[int], lane: int) -> Iterator[tuple[int, int]]:
    """The (link, lane) pairs taken from a first lane on.

    It ends early on a lane without a link to go on by: the vehicle then stops for good before that lane's end.
    """
    for position, road in enumerate(route[1:], 2):
        link = links.chosen(lane, road, route[position] if position < len(route) else None)
        if link is None:
            return
        lane = links.end_of[link]
        yield link, lane


class ShortestWays:
    """Shortest ways on a graph. The search from each road is kept, and goes on where a later question needs more."""

    def __init__(self, graph: RoadGraph) -> None:
        self._graph = graph
        self._searches: dict[int, _Search] = {}

    def between(self, start: int, end: int) -> list[int]:
        """The roads after `start` up to `end`; none where no way leads there."""
        if start not in self._searches:
            self._searches[start] = _Search(self._graph, start)
        came_from = self._searches[start].reach(end)
        if came_from is None:
            return []
        path = [end]
        while (road := came_from[path[-1]]) != start:
            path.append(road)
        return path[::-1]


class _Search:
    """Dijkstra's search from one road. What it has settled does not depend on where it was asked to stop."""

    def __init__(self, graph: RoadGraph, start: int) -> None:
        self._graph = graph
        self._distance, self._came_from, self._done = {start: 0.0}, dict[int, int](), set[int]()
        self._heap = _Heap()
        self._heap.push((start, 0.0))

    def reach(self, end: int) -> dict[int, int] | None:
        """By which road each road was come to, with `end` and all before it settled; None: it cannot be reached."""
        heap, distance = self._heap, self._distance
        while end not in self._done and heap.entries:
            road = heap.entries[0][0]
            heap.pop()
            if road in self._done:
                continue
            self._done.add(road)
            for following in self._graph.after[road]:
                reached = distance[road] + self._graph.lengths[following]
                if following not in distance or reached < distance[following]:
                    self._came_from[following] = road
                    distance[following] = reached
                    heap.push((following, reached))
        return self._came_from if end in self._done else None


class _Heap:
    """A binary heap whose equal entries leave in the order of the C++ standard library's, which decides between
    equally long ways."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, float]] = []

    def push(self, entry: tuple[int, float]) -> None:
        self.entries.append(entry)
        self._rise(len(self.entries) - 1, entry)

    def pop(self) -> None:
        entry = self.entries.pop()
        if not self.entries:
            return
        size, hole = len(self.entries), 0
        while 2 * hole + 2 < size:
            left, right = 2 * hole + 1, 2 * hole + 2
            child = left if self.entries[right][1] > self.entries[left][1] else right
            self.entries[hole] = self.entries[child]
            hole = child
        if 2 * hole + 2 == size:
            self.entries[hole] = self.entries[2 * hole + 1]
            hole = 2 * hole + 1
        self._rise(hole, entry)

    def _rise(self, hole: int, entry: tuple[int, float]) -> None:
        while hole and self.entries[parent := (hole - 1) // 2][1] > entry[1]:
            self.entries[hole] = self.entries[parent]
            hole = parent
        self.entries[hole] = entry


def connected(roads: Iterable[int], pairs: set[tuple[int, int]], road: int) -> tuple[int, ...]:
    """Those of an intersection's roads that some lane of `road` leads to."""
    return tuple(following for following in roads if (road, following) in pairs)
