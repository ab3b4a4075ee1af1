"""The way of a vehicle: roads by the shortest path between anchors, then a lane link on each by the nearest lane."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from sadq.errors import SadqError


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

    def leading_to(self, lane: int, road: int) -> list[int]:
        """The links from a lane to any lane of a road."""
        return [link for link in self.links_of[lane] if self.road_of[self.end_of[link]] == road]


def fill(graph: RoadGraph, anchors: Sequence[int], where: str) -> tuple[int, ...]:
    """All roads of a route that passes the anchors in order, each stretch by the shortest length."""
    route = [anchors[0]]
    for start, end in zip(anchors, anchors[1:], strict=False):
        if start != end:
            stretch = _shortest(graph, start, end)
            if not stretch:
                names = graph.names[start], graph.names[end]
                raise SadqError(f"{where}: no way leads from the road {names[0]!r} to {names[1]!r}; mend the route.")
            route += stretch
    return tuple(route)


def first_lanes(graph: RoadGraph, links: LinkGraph, route: Sequence[int]) -> list[int]:
    """The lanes that a vehicle may start on: those of its first road that lead to the second."""
    return [lane for lane in graph.lanes[route[0]] if links.leading_to(lane, route[1])]


def follow(links: LinkGraph, route: Sequence[int], lane: int) -> Iterator[tuple[int, int]]:
    """The (link, lane) pairs taken from a first lane on.

    It ends early on a lane without a link to go on by: the vehicle then stops for good before that lane's end.
    """
    for position in range(1, len(route)):
        choices = links.leading_to(lane, route[position])
        if position + 1 < len(route):
            choices = [link for link in choices if links.leading_to(links.end_of[link], route[position + 1])]
        if not choices:
            return
        here = links.lane_index[lane]
        link = min(choices, key=lambda link: abs(links.lane_index[links.end_of[link]] - here))
        lane = links.end_of[link]
        yield link, lane


def _shortest(graph: RoadGraph, start: int, end: int) -> list[int]:
    distance, came_from, done = {start: 0.0}, dict[int, int](), set[int]()
    heap = _Heap()
    heap.push((start, 0.0))
    while heap.entries:
        road = heap.entries[0][0]
        if road == end:
            break
        heap.pop()
        if road in done:
            continue
        done.add(road)
        for following in graph.after[road]:
            reached = distance[road] + graph.lengths[following]
            if following not in distance or reached < distance[following]:
                came_from[following] = road
                distance[following] = reached
                heap.push((following, reached))
    else:
        return []
    path = [end]
    while (road := came_from[path[-1]]) != start:
        path.append(road)
    return path[::-1]


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
