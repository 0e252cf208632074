"""Sets of offsets of one Kafka partition, kept as ranges: pure arithmetic.

`Ranges` are half-open `(start, end)` pairs, none of them empty, in order, with at least one offset between two.
"""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]


def ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """The offsets that are in any of the pairs."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(each for each in pairs if each[0] < each[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def union(one: Ranges, other: Iterable[tuple[int, int]]) -> Ranges:
    return ranges([*one, *other])


def intersection(one: Ranges, other: Ranges) -> Ranges:
    return ranges((max(a, c), min(b, d)) for a, b in one for c, d in other)


def difference(one: Ranges, other: Ranges) -> Ranges:
    """What is in `one` and not in `other`."""
    found = []
    for start, end in one:
        for gone_start, gone_end in other:
            if gone_start < end and start < gone_end:
                found.append((start, gone_start))
                start = gone_end
        found.append((start, end))
    return ranges(found)


def length(one: Ranges) -> int:
    """How many offsets they hold."""
    return sum(end - start for start, end in one)


def to_bounds(found: Ranges, end: int) -> list[int]:
    """`found` as start, end, start, end…; a last end that is `end` is left out, so one range up to there is one number."""
    bounds = [bound for pair in found for bound in pair]
    return bounds[:-1] if bounds and bounds[-1] == end else bounds


def from_bounds(bounds: list[int], end: int) -> Ranges:
    """Undoes `to_bounds`."""
    whole = [*bounds, end] if len(bounds) % 2 else bounds
    return tuple(zip(whole[::2], whole[1::2], strict=True))
