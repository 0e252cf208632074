"""Sets of offsets of one Kafka partition, as ranges. Pure arithmetic.

`Ranges` are half-open `(start, end)` pairs: none is empty, they are in order, and at least one offset lies between two.
"""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]


def ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """The offsets in any of the pairs."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(pair for pair in pairs if pair[0] < pair[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def union(first: Ranges, second: Iterable[tuple[int, int]]) -> Ranges:
    return ranges([*first, *second])


def intersection(first: Ranges, second: Ranges) -> Ranges:
    return ranges((max(a, c), min(b, d)) for a, b in first for c, d in second)


def difference(first: Ranges, second: Ranges) -> Ranges:
    """The offsets in `first` that are not in `second`."""
    remaining = []
    for start, end in first:
        for gone_start, gone_end in second:
            if gone_start < end and start < gone_end:
                remaining.append((start, gone_start))
                start = gone_end
        remaining.append((start, end))
    return ranges(remaining)


def length(pairs: Ranges) -> int:
    """The number of offsets in the ranges."""
    return sum(end - start for start, end in pairs)


def to_bounds(pairs: Ranges, end: int) -> list[int]:
    """Flatten to start, end, start, end…; omits a last end that equals `end`, so one range up to there is one number."""
    bounds = [bound for pair in pairs for bound in pair]
    return bounds[:-1] if bounds and bounds[-1] == end else bounds


def from_bounds(bounds: list[int], end: int) -> Ranges:
    """Undo `to_bounds`."""
    complete = [*bounds, end] if len(bounds) % 2 else bounds
    return tuple(zip(complete[::2], complete[1::2], strict=True))
