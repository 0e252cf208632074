"""Reads a few records, for people and for inferring columns, and looks up where ranges have their first. Whole ranges are read by
range_reader.py."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from hudi_ingest.exceptions import NoSuchOffset
from hudi_ingest.kafka.backlog import FetchPositions, statistics_options
from hudi_ingest.kafka.client_settings import (
    OUT_OF_RANGE,
    READ_COMMITTED,
    Trouble,
    client_logger,
    confluent_options,
    end_of_epoch,
    overriding,
    unusable_settings,
)
from hudi_ingest.kafka.cluster import unanswered
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.times import KAFKA_TIME, NO_TIME

RECORDS = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", KAFKA_TIME),
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("headers", KAFKA_FIELDS["headers"].type),
    ]
)
"""Kafka's columns of a record, with times that no producer's number can overflow."""

_POLL_SECONDS = 0.1
_SMALL_FETCH_BYTES = 65536
_FETCH_WAIT_MILLISECONDS = 50


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """At most the first `most` records of an offset range."""

    slice: Slice
    most: int


def read_records(
    source: KafkaSource,
    group: str,
    requests: Sequence[ReadRequest],
    *,
    most_bytes: int | None = None,
    skip_gone: bool = False,
) -> dict[TopicPartition, pa.RecordBatch]:
    """The records of each partition (at most one range each), with the columns RECORDS, in offset order.

    Only committed records; offsets that the broker does not return (compaction, transaction markers) are skipped, so a range
    may yield fewer records than `most`, or none. Reading ends early with the record at which all keys and values reach
    `most_bytes`. The consumer joins no group and commits nothing. Waits at most `request_timeout_seconds` for the broker's
    next records, aborted ones included.

    Raises KafkaUnreachable, KafkaRefused, and NoSuchOffset if a range begins where the broker has nothing, unless `skip_gone`
    is set: then the range begins with the broker's first record.
    """
    busy = [request for request in requests if request.slice.count and request.most]
    messages: dict[TopicPartition, list[Message]] = {request.slice.source: [] for request in requests}
    if busy:
        trouble = Trouble()
        fetched = FetchPositions({request.slice.source: request.slice.start for request in busy})
        listening = {"stats_cb": fetched.take, **statistics_options(source.request_timeout_seconds)}
        consumer = _consumer(source, group, trouble, "earliest" if skip_gone else "error", listening)
        try:
            pending = {request.slice.source: request for request in busy}
            _read(consumer, source, pending, messages, most_bytes, trouble, fetched)
        finally:
            consumer.close()
    return {partition: _batch(received) for partition, received in messages.items()}


def first_times(source: KafkaSource, group: str, ranges: Sequence[Slice]) -> dict[TopicPartition, int]:
    """The Kafka timestamp, in milliseconds, of the first committed record of each range. Omits ranges without a record, or
    whose record has no timestamp. The broker sends about one batch of records per partition.

    Long runs of aborted records are not read to their ends. Raises KafkaUnreachable, KafkaRefused.
    """
    requests = {slice_.source: ReadRequest(slice_, 1) for slice_ in ranges if slice_.count}
    messages: dict[TopicPartition, list[Message]] = {source: [] for source in requests}
    if requests:
        trouble = Trouble()
        consumer = _consumer(
            source, group, trouble, "earliest", {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
        )
        try:
            _read(consumer, source, requests, messages, None, trouble)
        finally:
            consumer.close()
    times = {partition: _time_of(received[0]) for partition, received in messages.items() if received}
    return {partition: milliseconds for partition, milliseconds in times.items() if milliseconds >= 0}


def _read(
    consumer: Consumer,
    source: KafkaSource,
    pending: dict[TopicPartition, ReadRequest],
    messages: Mapping[TopicPartition, list[Message]],
    most_bytes: int | None,
    trouble: Trouble,
    fetched: FetchPositions | None = None,
) -> None:
    consumer.assign(
        [
            KafkaTopicPartition(partition.topic, partition.partition, request.slice.start)
            for partition, request in pending.items()
        ]
    )
    heard = time.monotonic()
    size = 0
    while pending and (most_bytes is None or size < most_bytes):
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            if fetched is not None and fetched.advance(pending):
                heard = time.monotonic()
            if trouble.is_final or time.monotonic() - heard > source.request_timeout_seconds:
                action = f"read {', '.join(str(request.slice) for request in pending.values())}"
                raise unanswered(action, source, trouble, {partition.topic for partition in pending})
            continue
        heard = time.monotonic()
        trouble.answered()
        partition = TopicPartition(message.topic(), message.partition())
        request = pending.get(partition)
        if request is None:
            continue  # was fetched before its partition was paused
        error = message.error()
        if error is not None and error.code() in OUT_OF_RANGE:
            raise NoSuchOffset(
                f"{partition}: the broker no longer has offset {request.slice.start}: retention has just deleted it, or the "
                "topic was recreated. Try again.",
                servers=source.bootstrap_servers,
                topic=partition.topic,
                partition=partition.partition,
                offset=request.slice.start,
            )
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise trouble.explained(
                f"read {request.slice}", error.str(), source, operation="Read", topic=request.slice.topic
            )
        inside = error is None and message.offset() < request.slice.end
        if inside:
            messages[partition].append(message)
            size += len(message.key() or b"") + len(message.value() or b"")
        if not inside or len(messages[partition]) == request.most or message.offset() == request.slice.end - 1:
            del pending[partition]
            consumer.pause([KafkaTopicPartition(partition.topic, partition.partition)])


def first_records_in(
    source: KafkaSource, group: str, ranges: Sequence[Slice], seconds: float
) -> dict[Slice, int | None]:
    """The offset of the first committed record in each range, None if there is none; omits ranges about which the broker
    does not answer within `seconds`.

    Deleted ranges have no record. Raises KafkaRefused if no connection can be made with the source's settings.
    """
    first_offsets: dict[Slice, int | None] = {}
    pending: dict[TopicPartition, list[Slice]] = {}
    for slice_ in ranges:
        pending.setdefault(slice_.source, []).append(slice_)
    if not pending:
        return first_offsets
    trouble = Trouble()
    # Only the first record of each answer matters.
    consumer = _consumer(source, group, trouble, "earliest", {"fetch.message.max.bytes": _SMALL_FETCH_BYTES})
    try:
        consumer.assign([_start(slices[0]) for slices in pending.values()])
        deadline = time.monotonic() + seconds
        while pending and not trouble.is_final and (wait := deadline - time.monotonic()) > 0:
            message = consumer.poll(min(wait, _POLL_SECONDS))
            if message is None or (partition := TopicPartition(message.topic(), message.partition())) not in pending:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                continue
            slice_ = pending[partition].pop(0)
            inside = error is None and slice_.start <= message.offset() < slice_.end
            first_offsets[slice_] = message.offset() if inside else None
            if pending[partition]:
                consumer.seek(_start(pending[partition][0]))
            else:
                del pending[partition]
                consumer.pause([_start(slice_)])
    finally:
        consumer.close()
    return first_offsets


def compare_logs(
    source: KafkaSource, group: str, last: Mapping[TopicPartition, LastRecord], seconds: float
) -> dict[TopicPartition, int | bool]:
    """Whether the broker still has these records: True; False if it has others there; or the offset from which on its log is another one,
    if its leader epochs show that. Omits partitions about which the broker does not answer within `seconds`, and those whose record
    is gone. Raises KafkaRefused if no connection can be made with the source's settings.
    """
    found: dict[TopicPartition, int | bool] = {}
    pending, trouble = dict(last), Trouble()
    consumer = _consumer(source, group, trouble, "error", {"fetch.message.max.bytes": 1, "queued.min.messages": 1})
    try:
        consumer.assign([_place(partition, record, record.epoch) for partition, record in pending.items()])
        deadline = time.monotonic() + seconds
        while pending and not trouble.is_final and (wait := deadline - time.monotonic()) > 0:
            message = consumer.poll(min(wait, _POLL_SECONDS))
            if message is None or (partition := TopicPartition(message.topic(), message.partition())) not in pending:
                continue
            record, error = pending[partition], message.error()
            end = end_of_epoch(error.str()) if error is not None and error.code() in OUT_OF_RANGE else None
            if end == -1 and record.epoch >= 0:
                # Only the record itself can say whether it is the same log.
                pending[partition] = replace(record, epoch=-1)
                consumer.assign([_place(each, known, known.epoch) for each, known in pending.items()])
                continue
            if end is not None and end >= 0:
                found[partition] = end
            elif error is None and message.offset() == record.offset:
                epoch = message.leader_epoch()
                at = LastRecord(message.offset(), _time_of(message), -1 if epoch is None else epoch)
                found[partition] = last[partition].is_same(at)
            del pending[partition]
            consumer.pause([_place(partition, record)])
    finally:
        consumer.close()
    return found


def _place(partition: TopicPartition, record: LastRecord, epoch: int = -1) -> KafkaTopicPartition:
    known = {"leader_epoch": epoch} if epoch >= 0 else {}
    return KafkaTopicPartition(partition.topic, partition.partition, record.offset, **known)


def _start(slice_: Slice) -> KafkaTopicPartition:
    return KafkaTopicPartition(slice_.topic, slice_.partition, slice_.start)


def _consumer(
    source: KafkaSource, group: str, trouble: Trouble, where_gone: str, extra: Mapping[str, Any] | None = None
) -> Consumer:
    options = {
        **confluent_options(source, trouble),
        **overriding(READ_COMMITTED, source),
        "group.id": group,
        "fetch.wait.max.ms": _FETCH_WAIT_MILLISECONDS,
        "auto.offset.reset": where_gone,
        **(extra or {}),
    }
    try:
        return Consumer(options, logger=client_logger)
    except KafkaException as error:
        raise unusable_settings(source, error.args[0].str()) from error


def _time_of(message: Message) -> int:
    """The Kafka timestamp in milliseconds. The oldest message format has none, for which the client gives 0."""
    kind, milliseconds = message.timestamp()
    return NO_TIME if kind == TIMESTAMP_NOT_AVAILABLE else int(milliseconds)


def _batch(messages: Sequence[Message]) -> pa.RecordBatch:
    headers = [
        None if message.headers() is None else [{"key": key, "value": value} for key, value in message.headers()]
        for message in messages
    ]
    milliseconds = pa.array([*map(_time_of, messages)], pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.topic() for message in messages], pa.string()),
            pa.array([message.partition() for message in messages], pa.int32()),
            pa.array([message.offset() for message in messages], pa.int64()),
            milliseconds.cast(KAFKA_TIME),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array(headers, RECORDS.field("headers").type),
        ],
        schema=RECORDS,
    )
