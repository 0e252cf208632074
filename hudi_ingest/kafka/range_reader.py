"""Reads whole ranges of Kafka partitions into Arrow, by librdkafka. Runs in Spark's Python workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from hudi_ingest.exceptions import IngestError, LogTruncated, NoSuchOffset, WriteIncomplete, concerning
from hudi_ingest.exceptions.problems import listed
from hudi_ingest.kafka.backlog import BATCH_BYTES, BATCH_ROWS, Backlog, FetchPositions, OpenRange, statistics_options
from hudi_ingest.kafka.client_settings import (
    OUT_OF_RANGE,
    READ_COMMITTED,
    Trouble,
    client_logger,
    end_of_epoch,
    librdkafka_options,
    overriding,
    tokens_of,
    unusable_settings,
)
from hudi_ingest.kafka.librdkafka import ClientRefused, Consumer, Message, epoch_of, error_text
from hudi_ingest.kafka.message_columns import destroy, extent, record_batch
from hudi_ingest.model.offsets import LastRecord, Offsets, Slice, TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource

_OPTIONS: Mapping[str, str] = {
    **READ_COMMITTED,
    "check.crcs": "true",
    # The records exist already, so there is nothing to wait for.
    "fetch.wait.max.ms": "10",
    # What is fetched ahead, for all partitions together. One answer for a partition comes on top: at least a whole batch of
    # its producer's, uncompressed.
    "queued.max.messages.kbytes": "32768",
    "queued.min.messages": "100000",
    # Also bounds what one compressed batch may grow to; larger ones would never be read.
    "receive.message.max.bytes": "1000000000",
}
# librdkafka connects to a broker that another one has named after half of this at the earliest. The other clients' second would
# hold up one of eight small reads; but they may be refused, and must not come back ten times a second.
_PROMPT = {"reconnect.backoff.ms": "100"}
_POLL_MILLISECONDS = 100
_SHOWN_RANGES = 3
_AFTER_ALL = 2**62
_MOST_READ_AGAIN = 1000
"""Before a range, a record so far back is not read again: there may be many records of aborted transactions between."""


class Anchors:
    """The last records before ranges, and those of the ranges themselves. A partition with one before it is read from there on, and is
    only read if that record is still the same: offsets alone do not show that a log was cut and has grown over its old end since.

    The client compares the records' leader epochs with the broker's, too, which shows a cut where the record before is gone. They show
    none if the broker was restored from a copy: then it may have given the same epochs again. Compaction and retention may take the
    record, which proves nothing.
    """

    def __init__(self, slices: Collection[Slice], before: Mapping[TopicPartition, LastRecord]) -> None:
        self.last: dict[TopicPartition, LastRecord] = {}
        """The last records of the ranges, once they are read."""
        starts = {slice_.source: slice_.start for slice_ in slices}
        self._before: dict[TopicPartition, LastRecord | None] = {
            source: record
            if starts[source] - record.offset <= _MOST_READ_AGAIN
            else replace(record, offset=starts[source])
            for source, record in before.items()
            if source in starts
        }
        self._of_unknown_epoch: set[TopicPartition] = set()

    def starts(self, positions: Offsets) -> dict[TopicPartition, int]:
        """Where to read from, instead of the positions."""
        return {
            source: position if (record := self._before.get(source)) is None else record.offset
            for source, position in positions.items()
        }

    def epochs(self) -> dict[TopicPartition, int]:
        """The leader epochs that the logs must have at their starts."""
        return {
            source: record.epoch
            for source, record in self._before.items()
            if record is not None and record.epoch >= 0 and source not in self._of_unknown_epoch
        }

    def take(self, range_: OpenRange, address: int, offset: int) -> bool:
        """Whether the message is before the range, and as it was. Raises LogTruncated if it is another one."""
        source, start = range_.slice.source, range_.slice.start
        if source not in self._before:
            return False
        record = self._before[source]
        if offset >= start:
            del self._before[source]
            return False
        if record is None or not record.is_same(_record_at(address)):
            raise _truncated(range_.slice, None)
        self._before[source] = None
        return True

    def without(self, range_: OpenRange, text: str) -> bool:
        """Whether an error of this text is only that the record before the range, or its epoch, is not there any more: then the range is
        read without it. Raises LogTruncated if the log was cut."""
        source = range_.slice.source
        if source not in self._before:
            return False
        end = end_of_epoch(text)
        if end is None:
            del self._before[source]
        elif end >= 0:
            raise _truncated(range_.slice, end)
        else:
            # The record itself shows whether it is the same log.
            self._of_unknown_epoch.add(source)
        return True


def read_ranges(
    source: KafkaSource,
    group: str,
    slices: Collection[Slice],
    columns: Collection[str] = (),
    anchors: Anchors | None = None,
) -> Generator[tuple[TopicPartition, pa.RecordBatch], None, None]:
    """All committed records of the ranges (at most one per partition): one partition after the other, in any order, each in
    order of its offsets, in batches of about BATCH_BYTES and at most BATCH_ROWS.

    Columns offset, timestamp (KAFKA_TIME) and value, and those of `columns` that are key or headers. The consumer joins no
    group and commits nothing. Waits at most `request_timeout_seconds` for the broker's next records, aborted ones included.

    Raises KafkaUnreachable, KafkaRefused, NoSuchOffset if a range's first offset is not there, LogTruncated if the record of `anchors`
    before a range is another one by now, and WriteIncomplete if a partition ends within its range.
    """
    backlog, anchors = Backlog(slices), anchors or Anchors(slices, {})
    while positions := backlog.begin_round():
        positions, trouble = anchors.starts(positions), Trouble()
        fetched = FetchPositions(positions)
        with closing(_consumer(source, group, trouble, fetched.take)) as consumer:
            consumer.assign(positions, anchors.epochs())
            yield from _round(consumer, backlog, source, trouble, columns, fetched, anchors)


def _round(
    consumer: Consumer,
    backlog: Backlog,
    source: KafkaSource,
    trouble: Trouble,
    columns: Collection[str],
    fetched: FetchPositions,
    anchors: Anchors,
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    addresses = np.empty(BATCH_ROWS, np.int64)
    yield from backlog.ready()
    heard = time.monotonic()
    while backlog.is_reading:
        count = consumer.poll(addresses, _POLL_MILLISECONDS)
        if not count:
            if fetched.advance([slice_.source for slice_ in backlog.reading]):
                heard = time.monotonic()
            if trouble.is_final or time.monotonic() - heard > source.request_timeout_seconds:
                raise trouble.explained(f"read {_shown(backlog.reading)}", "no answer", source)
            continue
        place = 0
        try:
            while place < count:
                first = Message.from_address(int(addresses[place]))
                range_ = backlog.range_of(TopicPartition(consumer.topic(first), first.partition))
                if first.error:
                    if range_ is not None or first.topic is None:
                        _take_error(backlog, range_, first, trouble, source, anchors)
                    after = place + 1
                elif range_ is not None and anchors.take(range_, int(addresses[place]), first.offset):
                    trouble.answered()
                    after = place + 1
                else:
                    trouble.answered()
                    after = _take_records(backlog, range_, addresses, place, count, columns, anchors)
                destroy(addresses, place, after)
                place = after
                yield from backlog.ready()
                held = backlog.hold()
                if held:
                    consumer.unassign(held)
        finally:
            destroy(addresses, place, count)
        # Not the time before: whoever takes the batches may be slower than the broker may be.
        heard = time.monotonic()


def _take_records(
    backlog: Backlog,
    range_: OpenRange | None,
    addresses: np.ndarray[tuple[int], np.dtype[np.int64]],
    place: int,
    count: int,
    columns: Collection[str],
    anchors: Anchors,
) -> int:
    """Add the records at `place` and after that are of one partition, and return the place behind them."""
    keys, headers = "key" in columns, "headers" in columns
    run = extent(addresses, place, count, range_.slice.end if range_ is not None else 0, BATCH_BYTES, headers)
    if range_ is not None:
        if run.inside > place:
            batch = record_batch(addresses, place, run, keys, headers)
            anchors.last[range_.slice.source] = _last_of(batch, int(addresses[run.inside - 1]))
            backlog.add(range_, batch, run.size)
        backlog.advance(range_, run.last_offset + 1)
    return run.next


def _record_at(address: int) -> LastRecord:
    """Return what identifies the message at the address."""
    addresses = np.array([address], np.int64)
    only = extent(addresses, 0, 1, _AFTER_ALL, 0, False)
    return _last_of(record_batch(addresses, 0, only, False, False), address)


def _last_of(batch: pa.RecordBatch, address: int) -> LastRecord:
    """Return what identifies the last record of the batch, whose message is at the address."""
    last = batch.slice(batch.num_rows - 1)
    return LastRecord(last["offset"][0].as_py(), last["timestamp"].cast(pa.int64())[0].as_py(), epoch_of(address))


def _truncated(slice_: Slice, diverges_at: int | None) -> LogTruncated:
    where = "" if diverges_at is None else f"; the logs part at offset {diverges_at}"
    error = LogTruncated(
        f"{slice_.source}: the records before offset {slice_.start} are no longer those that were read: the broker cut its log before it, "
        f"or was restored from an older copy, and other records have their offsets{where}. Nothing of the transaction is visible. The "
        "partition is stopped from now on; `hudi-ingest status` names the commands that let it go on.",
        topic=slice_.topic,
        partition=slice_.partition,
        offset=slice_.start,
    )
    error.diverges_at = diverges_at
    return error


def _take_error(
    backlog: Backlog,
    range_: OpenRange | None,
    message: Message,
    trouble: Trouble,
    source: KafkaSource,
    anchors: Anchors,
) -> None:
    if range_ is None:
        raise trouble.explained(f"read {_shown(backlog.reading)}", error_text(message), source)
    slice_ = range_.slice
    with concerning(slice_.topic, slice_.partition, range_.position):
        if message.error in OUT_OF_RANGE and anchors.without(range_, error_text(message)):
            backlog.set_aside(range_)
            return
        if message.error != KafkaError._PARTITION_EOF:
            raise _error(range_, message, trouble, source)
        if message.offset < slice_.start:
            raise _truncated(slice_, None)
        if message.offset < slice_.end:
            raise WriteIncomplete(
                f"{slice_}: the partition ends at offset {message.offset}, within the range. Nothing of it is visible; the op "
                "is retried, and the next plan reports the loss."
            )
        backlog.advance(range_, message.offset)


def _error(range_: OpenRange, message: Message, trouble: Trouble, source: KafkaSource) -> IngestError:
    if message.error in OUT_OF_RANGE:
        return NoSuchOffset(
            f"{range_.slice}: the broker no longer has offset {range_.position}: retention deleted it, or the topic was "
            "recreated. Nothing is visible; the next plan reports the loss, and the command that accepts it.",
            servers=source.bootstrap_servers,
            topic=range_.slice.topic,
            partition=range_.slice.partition,
            offset=range_.position,
        )
    return trouble.explained(f"read {range_.slice}", error_text(message), source)


def _consumer(source: KafkaSource, group: str, trouble: Trouble, on_statistics: Callable[[bytes], None]) -> Consumer:
    options = {
        **_OPTIONS,
        **librdkafka_options(source),
        **overriding(_PROMPT, source),
        **statistics_options(source.request_timeout_seconds),
        "group.id": group,
    }
    try:
        return Consumer(options, trouble.note, on_statistics, client_logger, tokens_of(source, trouble))
    except ClientRefused as error:
        raise unusable_settings(source, str(error)) from error


def _shown(slices: Collection[Slice]) -> str:
    return listed([*slices], _SHOWN_RANGES)
