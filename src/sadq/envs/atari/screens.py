"""From the console's screen to the picture that an agent sees, to the bit as ALE's vector environment does it."""

import functools
import math

import numpy as np

from sadq.envs.atari.spec import SIZE


@functools.cache
def _taps(source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """For each target pixel the source pixels under it, i64[target, taps], and their shares, f32[target, taps]."""
    scale, rows = source / target, []
    for pixel in range(target):
        start, end = pixel * scale, (pixel + 1) * scale
        cell = min(scale, source - start)
        last = min(math.floor(end), source - 1)
        first = min(math.ceil(start), last)
        row = [(first - 1, (first - start) / cell)] if first - start > 1e-3 else []
        row += [(index, 1 / cell) for index in range(first, last)]
        row += [(last, min(end - last, 1, cell) / cell)] if end - last > 1e-3 else []
        rows.append(row)
    width = max(map(len, rows))
    padded = [row + [(0, 0.0)] * (width - len(row)) for row in rows]
    places = np.array([[place for place, _ in row] for row in padded])
    return places, np.array([[weight for _, weight in row] for row in padded], np.float32)


def resize(image: np.ndarray, size: tuple[int, int] = (SIZE, SIZE)) -> np.ndarray:
    """OpenCV's resizing by area: the mean of what lies under each pixel, u8[height, width] for a size (width, height).

    Sums are taken in float32 and in OpenCV's order, so that what it rounds is rounded alike.
    """
    columns, shares = _taps(image.shape[1], size[0])
    wide = image.astype(np.float32)
    narrow = np.zeros((len(image), size[0]), np.float32)
    for tap in range(columns.shape[1]):
        narrow = narrow + wide[:, columns[:, tap]] * shares[:, tap]
    rows, shares = _taps(image.shape[0], size[1])
    small = np.zeros(size[::-1], np.float32)
    for tap in range(rows.shape[1]):
        small = small + narrow[rows[:, tap]] * shares[:, tap, None]
    return np.rint(small).astype(np.uint8)
