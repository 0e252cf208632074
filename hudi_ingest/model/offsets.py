"""Kafka topics, partitions, offsets and ranges of them. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One Kafka partition. Its text form is `topic:partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Parse the text form. Raises ValueError."""
        topic, _, number = text.rpartition(":")
        if not topic or not number.isdecimal():
            raise ValueError(f"expected TOPIC:PARTITION, like orders:3; found {text!r}")
        return cls(topic, int(number))


Offsets = Mapping[TopicPartition, int]
Ranges = tuple[tuple[int, int], ...]
"""Sets of offsets of one partition, as half-open `(start, end)` pairs: none is empty, they are in order, and at least one offset
lies between two."""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """A partition's offsets on the broker now: the first offset that still exists, and the end that a reader may read to."""

    begin: int
    end: int
    led: bool = True
    """False: the partition has no leader now, so its offsets are unknown; both are the committed one, or 0 if none is."""
    written: int | None = field(default=None, compare=False)
    """Where the records end that had been appended at `asked_at`, undecided ones included; None if it was not asked for."""
    asked_at: int | None = field(default=None, compare=False)
    """When the broker was asked, in milliseconds since 1970 by this machine's clock; a moment before it answered."""
    broker_time: bool = field(default=False, compare=False)
    """Whether the records' timestamps are known to be the broker's (`message.timestamp.type` LogAppendTime)."""
    hides: bool = field(default=False, compare=False)
    """Whether there may be records of any time before `asked_at` behind `written`: nobody can read them yet, because they are not
    replicated, or it is unknown whose timestamps they have."""

    @property
    def undecided(self) -> int:
        """How many offsets cannot be read yet: their producer has not ended the transaction in which, or after which, they were
        written."""
        return max(0, (self.written or 0) - self.end)


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """One Kafka partition's bounded range `[start, end)`. Raises ValueError unless 0 <= start <= end."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a slice needs 0 <= start <= end, found [{self.start}, {self.end}) of {self.source}")

    @property
    def source(self) -> TopicPartition:
        """The Kafka partition of the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """The number of offsets in the range, including gaps in Kafka."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}[{self.start},{self.end})"


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record that was read of a partition, by which the partition's log is recognized."""

    offset: int
    timestamp: int
    """Kafka's, in milliseconds."""
    epoch: int = -1
    """The leader epoch in which it was written, -1 if the broker does not say."""

    def is_same(self, other: LastRecord) -> bool:
        """Whether both are the same record, as far as their epochs are known."""
        known = -1 not in (self.epoch, other.epoch)
        return (self.offset, self.timestamp) == (other.offset, other.timestamp) and (
            self.epoch == other.epoch or not known
        )


@dataclass(frozen=True, slots=True)
class TopicVersion:
    """Which topic of this name the offsets belong to.

    `topic_id` is the broker's, "" if it has none. `generation` grows by 1 whenever an accepted loss lets the topic's
    offsets be reused; it keeps their record keys apart.
    """

    topic_id: str
    generation: int = 0


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


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """A topic that has a pipeline because its name matches a pattern."""

    name: str
    seen_at: datetime
    """When it was first seen, in UTC."""
    at_start: bool
    """Whether it was there when the pattern's topics were first listed. One that appears later is new from its first offset."""
