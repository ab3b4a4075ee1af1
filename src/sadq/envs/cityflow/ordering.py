"""Sorting with ties as the C++ standard library leaves them, which decides which of two conflicts is looked at first."""

from collections.abc import Callable, Sequence
from typing import Any

_SMALL = 16


def engine_sorted(items: Sequence[Any], key: Callable[[Any], float]) -> list[Any]:
    """Sort by `key` with the library's introspective sort: quicksort down to short stretches, then insertion.

    Up to sixteen items it is stable; above, equal ones may swap, always in the same way.
    """
    ordered = sorted(items, key=key)
    if len(ordered) <= _SMALL or all(key(a) != key(b) for a, b in zip(ordered, ordered[1:], strict=False)):
        return ordered
    items = list(items)
    keys = list(map(key, items))

    def swap(a: int, b: int) -> None:
        items[a], items[b] = items[b], items[a]
        keys[a], keys[b] = keys[b], keys[a]

    def median_to(result: int, a: int, b: int, c: int) -> None:
        if keys[a] < keys[b]:
            chosen = b if keys[b] < keys[c] else c if keys[a] < keys[c] else a
        else:
            chosen = a if keys[a] < keys[c] else c if keys[b] < keys[c] else b
        swap(result, chosen)

    def partition(first: int, last: int, pivot: int) -> int:
        while True:
            while keys[first] < keys[pivot]:
                first += 1
            last -= 1
            while keys[pivot] < keys[last]:
                last -= 1
            if first >= last:
                return first
            swap(first, last)
            first += 1

    def split(first: int, last: int) -> None:
        while last - first > _SMALL:
            median_to(first, first + 1, first + (last - first) // 2, last - 1)
            cut = partition(first + 1, last, first)
            split(cut, last)
            last = cut

    split(0, len(items))
    for index in range(1, len(items)):
        place = index
        while place and keys[index] < keys[place - 1]:
            place -= 1
        items.insert(place, items.pop(index))
        keys.insert(place, keys.pop(index))
    return items
