"""Where lanes and lane links run, how long they are and where two links cross, as the engine computes it.

Sums and products are kept in the engine's order, so that lengths and distances agree to the last bit.
"""

import math
from typing import NamedTuple

import numpy as np

from sadq.envs.cityflow.files import Points

_TOLERANCE = 1e-8
_BOX_MARGIN = 1e-3  # metres
_CURVE_SEGMENTS = 10
_MIN_CONTROL = 5.0  # metres that a drawn curve runs straight at either end, at least


class Crossing(NamedTuple):
    """A point that two lane links share: their indices, and its distance from the start of each."""

    first: int
    second: int
    on_first: float
    on_second: float


def length(points: Points) -> float:
    """The length of a line through the points."""
    total = 0.0
    for (x1, y1), (x2, y2) in zip(points, points[1:], strict=False):
        total += _norm(x2 - x1, y2 - y1)
    return total


def lane_points(road: Points, start_width: float, end_width: float, widths: list[float], lane: int) -> Points:
    """The middle line of a lane: to the right of the road's line, which begins and ends outside the intersections."""
    line = list(road)
    ux, uy = _unit(line[0], line[1])
    line[0] = (line[0][0] + ux * start_width, line[0][1] + uy * start_width)
    ux, uy = _unit(line[-2], line[-1])
    line[-1] = (line[-1][0] - ux * end_width, line[-1][1] - uy * end_width)
    before = 0.0
    for width in widths[:lane]:
        before += width
    offset = (before + (before + widths[lane])) / 2.0
    points = []
    for index, (x, y) in enumerate(line):
        if index == 0:
            ux, uy = _unit(line[0], line[1])
        elif index == len(line) - 1:
            ux, uy = _unit(line[index - 1], line[index])
        else:
            ahead, behind = _unit(line[index], line[index + 1]), _unit(line[index - 1], line[index])
            ux, uy = _unit((0.0, 0.0), (ahead[0] + behind[0], ahead[1] + behind[1]))
        points.append((x + uy * offset, y + -ux * offset))
    return tuple(points)


def curve(start_lane: Points, end_lane: Points, width: float) -> Points:
    """The line that the engine draws for a lane link without points: a cubic from lane to lane.

    The lanes are given as they run before the intersection, of the given width, is cut out of them.
    """
    cut = length(start_lane) - width
    start, end = _point_at(start_lane, cut), _point_at(end_lane, width)
    span = _norm(end[0] - start[0], end[1] - start[1])
    start_direction, end_direction = _direction_at(start_lane, cut), _direction_at(end_lane, width)
    leave = (start_direction[0] * span * 0.5, start_direction[1] * span * 0.5)
    arrive = (-end_direction[0] * span * 0.5, -end_direction[1] * span * 0.5)
    if leave[0] * leave[0] + leave[1] * leave[1] < 25 and width >= 5:
        leave = (_MIN_CONTROL * start_direction[0], _MIN_CONTROL * start_direction[1])
    if arrive[0] * arrive[0] + arrive[1] * arrive[1] < 25 and width >= 5:
        # The sign is the engine's: here the control point lies beyond the end, not before it.
        arrive = (_MIN_CONTROL * end_direction[0], _MIN_CONTROL * end_direction[1])
    corners = (start, (start[0] + leave[0], start[1] + leave[1]), (end[0] + arrive[0], end[1] + arrive[1]), end)
    points = []
    for index in range(_CURVE_SEGMENTS + 1):
        row = list(corners)
        while len(row) > 1:
            row = [_between(a, b, index / _CURVE_SEGMENTS) for a, b in zip(row, row[1:], strict=False)]
        points.append(row[0])
    return tuple(points)


def crossings(lines: list[Points]) -> list[Crossing]:
    """The first common point of each pair of lane links of an intersection, in the engine's order of search."""
    if len(lines) < 2:
        return []
    count = max(map(len, lines))
    points = np.array([line + (line[-1],) * (count - len(line)) for line in lines])
    steps = points[:, 1:] - points[:, :-1]
    lengths = np.sqrt(steps[..., 0] * steps[..., 0] + steps[..., 1] * steps[..., 1])
    travelled = np.concatenate([np.zeros((len(lines), 1)), np.cumsum(lengths, axis=1)], axis=1)
    first, second, i, j = _near_segments(points, lengths)
    a1, a2, b1, b2 = points[first, i], points[first, i + 1], points[second, j], points[second, j + 1]
    u, v = a2 - a1, b2 - b1
    turn = _cross(u, v)
    with np.errstate(divide="ignore", invalid="ignore"):
        point = a1 + u * (_cross(b1 - a1, v) / turn)[:, None]
        hit = (np.abs(turn) >= _TOLERANCE) & _on_segment(a1, a2, point) & _on_segment(b1, b2, point)
    # Candidates are in the order of the search, so of each pair's hits the first one counts.
    pair, chosen = np.unique((first * len(lines) + second)[hit], return_index=True)
    first, second, i, j, point = (values[hit][chosen] for values in (first, second, i, j, point))
    # Segments parallel to the other link's add nothing to the distance on this one: so the engine counts.
    meeting = np.abs(_cross(steps[first, i][:, None], steps[second])) >= _TOLERANCE
    passed = np.cumsum(np.where(meeting, lengths[second], 0.0), axis=1)
    passed = np.where(j > 0, np.take_along_axis(passed, np.maximum(j - 1, 0)[:, None], axis=1)[:, 0], 0.0)
    on_first = travelled[first, i] + _distance(points[first, i], point)
    on_second = passed + _distance(points[second, j], point)
    return list(map(Crossing, first.tolist(), second.tolist(), on_first.tolist(), on_second.tolist()))


def _near_segments(points: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """(first link, second link, segment of the first, of the second) of all that may meet, in order.

    A common point lies, within the engine's tolerance, in the boxes of both segments: no further out than half a short
    segment's length and a little.
    """
    margin = lengths / 2 + _BOX_MARGIN
    low = np.minimum(points[:, :-1], points[:, 1:]) - margin[..., None]
    high = np.maximum(points[:, :-1], points[:, 1:]) + margin[..., None]
    first, second = np.triu_indices(len(points), 1)
    whole = ((low.min(1)[first] <= high.max(1)[second]) & (low.min(1)[second] <= high.max(1)[first])).all(-1)
    first, second = first[whole], second[whole]
    near = np.ones((len(first), lengths.shape[1], lengths.shape[1]), bool)
    for axis in (0, 1):
        near &= low[first, :, None, axis] <= high[second, None, :, axis]
        near &= low[second, None, :, axis] <= high[first, :, None, axis]
    pair, i, j = np.nonzero(near)
    return first[pair], second[pair], i, j


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _on_segment(start: np.ndarray, end: np.ndarray, point: np.ndarray) -> np.ndarray:
    off = _cross(end - start, point - start)
    to_start, to_end = point - start, point - end
    along = to_start[..., 0] * to_end[..., 0] + to_start[..., 1] * to_end[..., 1]
    return (np.abs(off) < _TOLERANCE) & (along < _TOLERANCE)


def _distance(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    x, y = end[:, 0] - start[:, 0], end[:, 1] - start[:, 1]
    return np.sqrt(x * x + y * y)


def _norm(x: float, y: float) -> float:
    return math.sqrt(x * x + y * y)


def _unit(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    x, y = end[0] - start[0], end[1] - start[1]
    norm = _norm(x, y)
    return (x / norm, y / norm) if norm else (0.0, 0.0)


def _between(start: tuple[float, float], end: tuple[float, float], share: float) -> tuple[float, float]:
    return ((end[0] - start[0]) * share + start[0], (end[1] - start[1]) * share + start[1])


def _point_at(points: Points, distance: float) -> tuple[float, float]:
    remaining = min(max(distance, 0.0), length(points))
    if remaining <= 0.0:
        return points[0]
    for (x1, y1), (x2, y2) in zip(points, points[1:], strict=False):
        step = _norm(x1 - x2, y1 - y2)
        if remaining <= step:
            return (x1 + (x2 - x1) * (remaining / step), y1 + (y2 - y1) * (remaining / step))
        remaining -= step
    return points[-1]


def _direction_at(points: Points, distance: float) -> tuple[float, float]:
    remaining = distance
    for start, end in zip(points, points[1:], strict=False):
        step = _norm(end[0] - start[0], end[1] - start[1])
        if remaining < step:
            return _unit(start, end)
        remaining -= step
    return _unit(points[-2], points[-1])
