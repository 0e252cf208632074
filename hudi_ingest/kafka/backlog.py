"""How far a consumer has come, and what it has read of several ranges until that is handed on: one Kafka partition after another,
within a bound of memory. Batches are joined and cut to a good size, for many small records and few large ones alike. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.model.offsets import Slice, TopicPartition

BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 50_000
_BYTES = ("key", "value", "headers")
MOST_WAITING_BYTES = 32 * 1024 * 1024
"""The size of ranges that are not being handed on."""
_A_TIMEOUT = 4
"""How often a client says how far it is, while it waits for as long as it may."""


@dataclass(slots=True)
class OpenRange:
    """The part of a range that has been read. `position` is the next offset to read; the range's end when all is read."""

    slice: Slice
    position: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    is_held: bool = False

    @property
    def is_complete(self) -> bool:
        return self.position >= self.slice.end

    @property
    def fills_a_batch(self) -> bool:
        return self.size >= BATCH_BYTES or self.rows >= BATCH_ROWS


class Backlog:
    """Ranges of different Kafka partitions that one consumer reads at the same time, in rounds.

    A range is handed on when it is complete, or, once it fills a batch, alone until it is. When the others have too much
    waiting meanwhile, they are held: the round ends without them, and the next one goes on where they were. Each round has a
    consumer of its own, because one that is told to go back may first deliver what it had fetched, which would look like a gap.
    """

    def __init__(self, slices: Collection[Slice], most_waiting_bytes: int = MOST_WAITING_BYTES) -> None:
        ranges = [OpenRange(slice_, slice_.start) for slice_ in slices if slice_.count]
        self._open = {range_.slice.source: range_ for range_ in ranges}
        if len(self._open) < len(ranges):
            raise ValueError(f"several ranges of one Kafka partition: {', '.join(map(str, slices))}")
        self._most_waiting_bytes = most_waiting_bytes
        self._current: OpenRange | None = None
        self._complete: deque[OpenRange] = deque()
        self._full: deque[OpenRange] = deque()
        self._size = 0
        self._reading = 0

    def begin_round(self) -> dict[TopicPartition, int]:
        """The offsets from which the round reads; none when everything has been read and handed on."""
        for range_ in self._open.values():
            range_.is_held = False
        self._reading = len(self._open)
        return {source: range_.position for source, range_ in self._open.items()}

    @property
    def is_reading(self) -> bool:
        """Whether the round has ranges that are neither complete nor held."""
        return self._reading > 0

    @property
    def reading(self) -> list[Slice]:
        return [range_.slice for range_ in self._open.values() if not range_.is_held and not range_.is_complete]

    def range_of(self, source: TopicPartition) -> OpenRange | None:
        """None if the round does not read the partition, or no longer: its messages are to be left out."""
        range_ = self._open.get(source)
        return None if range_ is None or range_.is_complete or range_.is_held else range_

    def add(self, range_: OpenRange, batch: pa.RecordBatch, size: int) -> None:
        """Records from the range's position on; `size` is what they count for."""
        range_.batches.append(batch)
        range_.rows += batch.num_rows
        range_.size += size
        self._size += size
        if range_.fills_a_batch and range_ is not self._current and range_ not in self._full:
            self._full.append(range_)

    def advance(self, range_: OpenRange, position: int) -> None:
        """All records before `position` have been added."""
        range_.position = min(position, range_.slice.end)
        if range_.is_complete:
            self._reading -= 1
            self._complete.append(range_)

    def set_aside(self, range_: OpenRange) -> None:
        """Leave the range to the next round."""
        range_.is_held = True
        self._reading -= 1

    def ready(self) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield the batches that can be handed on now, with their partitions."""
        while (range_ := self._current or self._next()) is not None:
            self._current = range_
            if range_.is_complete or range_.fills_a_batch:
                batches = range_.batches
                self._size -= range_.size
                range_.batches, range_.rows, range_.size = [], 0, 0
                for batch in bounded(iter(batches)):
                    yield range_.slice.source, batch
            if not range_.is_complete:
                return
            self._current = None
            self._complete.remove(range_)
            del self._open[range_.slice.source]

    def hold(self) -> list[TopicPartition]:
        """Hold the ranges that are not being handed on if too much of them waits. Returns the partitions to stop reading."""
        if self._current is None or self._size - self._current.size <= self._most_waiting_bytes:
            return []
        held = [
            range_
            for range_ in self._open.values()
            if range_ is not self._current and not range_.is_held and not range_.is_complete
        ]
        for range_ in held:
            range_.is_held = True
        self._reading -= len(held)
        return [range_.slice.source for range_ in held]

    def _next(self) -> OpenRange | None:
        if self._complete:
            return self._complete[0]
        while self._full:
            range_ = self._full.popleft()
            if range_.fills_a_batch:
                return range_
        if self._size > self._most_waiting_bytes:
            return max(self._open.values(), key=lambda range_: range_.size)
        return None


def statistics_options(timeout_seconds: float) -> dict[str, str]:
    """librdkafka's settings for a client that waits this long for an answer."""
    return {"statistics.interval.ms": str(max(1, int(timeout_seconds * 1000 / _A_TIMEOUT)))}


class FetchPositions:
    """The next offset to fetch of each partition, by librdkafka's statistics.

    A consumer delivers nothing of aborted transactions, however long it takes to pass over them, so silence alone does not mean
    that the broker is silent.
    """

    def __init__(self, starts: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(starts)
        self._statistics: bytes | str = ""

    def take(self, statistics: bytes | str) -> None:
        """The client's newest statistics."""
        self._statistics = statistics

    def advance(self, waited_for: Collection[TopicPartition]) -> bool:
        """Whether the client has come further in one of these partitions since it was last asked."""
        if not self._statistics:
            return False
        topics, self._statistics = json.loads(self._statistics)["topics"], ""
        has_advanced = False
        for source in waited_for:
            partition = topics.get(source.topic, {}).get("partitions", {}).get(str(source.partition))
            # Negative until the client has begun to fetch.
            if partition is not None and partition["next_offset"] > self._positions[source]:
                self._positions[source] = partition["next_offset"]
                has_advanced = True
        return has_advanced


def bounded(
    batches: Iterator[pa.RecordBatch], most_bytes: int = BATCH_BYTES, most_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The same records in the same order, in batches of about `most_bytes` of keys, values and headers and at most `most_rows`;
    a larger record gets a batch of its own."""
    pending: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        for piece in _pieces(batch, most_bytes):
            part_size = _size(piece)
            if pending and (size + part_size > most_bytes or rows + piece.num_rows > most_rows):
                yield _joined(pending)
                pending, size, rows = [], 0, 0
            pending.append(piece)
            size, rows = size + part_size, rows + piece.num_rows
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _size(batch: pa.RecordBatch) -> int:
    return sum(batch[name].nbytes for name in _BYTES if name in batch.schema.names)


def _pieces(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    if _size(batch) <= most_bytes:
        yield batch
        return
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in _BYTES:
        if name in batch.schema.names:
            sizes += _header_lengths(batch[name]) if name == "headers" else _lengths(batch[name])
    start = piece_bytes = 0
    for row, size in enumerate(sizes.tolist()):
        if row > start and piece_bytes + size > most_bytes:
            yield batch.slice(start, row - start)
            start, piece_bytes = row, 0
        piece_bytes += size
    yield batch.slice(start)


def _lengths(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0), np.int64)


def _header_lengths(headers: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Per record."""
    names, values = (headers.values.field(number) for number in range(2))
    before = np.concatenate([[0], np.cumsum(_lengths(names) + _lengths(values))])
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]] = np.diff(before[headers.offsets.to_numpy()])
    return lengths
