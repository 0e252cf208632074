"""Kafka partitions, offsets and ranges of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Watermarks:
    """What a broker has of one partition now: the first offset that still exists, and the end that a reader may read to."""

    begin: int
    end: int
    led: bool = True
    """False: the partition has no leader now, so nobody knows its offsets; both are the committed one, or 0 if none is."""


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """One Kafka partition's bounded range `[start, end)`."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a slice needs 0 <= start <= end, found [{self.start}, {self.end}) of {self.source}")

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """The number of offsets in the range, including gaps in Kafka."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}[{self.start},{self.end})"


@dataclass(frozen=True, slots=True)
class TopicVersion:
    """Which topic of this name the offsets belong to.

    `topic_id` is the broker's, "" if it has none. `generation` grows by 1 whenever an accepted loss lets the topic's
    offsets be reused; it keeps their record keys apart.
    """

    topic_id: str
    generation: int = 0
