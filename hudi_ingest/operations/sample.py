"""Sample a few records: read, decode and transform them as a write task would, and show them instead of writing.

No JVM: committed offsets come from hudi-rs, records from confluent-kafka.
"""

from __future__ import annotations

import base64
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions import NoSuchOffset
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.records import RECORDS, ReadRequest, read_records
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition, Watermarks
from hudi_ingest.model.report import FieldsSeen
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.kafka_columns import is_kafka
from hudi_ingest.records.row_maker import BatchOutcome, Refusal, Tombstones
from hudi_ingest.records.schema.columns import columns_to_dicts
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.columns.decoding import row_maker_of
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest.transaction.plan.arithmetic import fair_shares
from hudi_ingest.transaction.plan.planning import observe

_MOST_OFFSETS_AT_ONCE = 100_000
FILLED = "the value of the key's row"
"""Stands for one that the database left out."""


class Outcome(str, Enum):
    """The outcome of a record."""

    ROW = "row"
    DELETE = "delete"
    """It deletes a row of a keyed table."""
    BAD = "bad"
    FILTERED = "filtered"
    """A transform filtered it out."""
    SKIPPED = "skipped"
    """A tombstone that becomes no row."""


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """A record, and what a transaction would make of it."""

    source: TopicPartition
    offset: int
    timestamp: int
    """Kafka's milliseconds since 1970, any number; -1 for none."""
    is_tombstone: bool
    outcome: Outcome
    row: Mapping[str, Any] | None = None
    """The values of the table's columns, without the Kafka columns; of a delete those that name the deleted row."""
    moved_from: Mapping[str, Any] | None = None
    """Where the row was before, if the record moves it to another key or table partition."""
    refusal: Refusal | None = None
    """Why it is bad."""

    @property
    def place(self) -> str:
        """`topic:partition:offset`."""
        return f"{self.source}:{self.offset}"

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "offset": self.offset,
            "timestamp": time.isoformat() if (time := as_datetime(self.timestamp)) else None,
            "timestamp_ms": self.timestamp,
            "tombstone": self.is_tombstone,
            "outcome": self.outcome.value,
        }
        if self.row is not None:
            fields["row"] = {name: as_json(value) for name, value in self.row.items()}
        if self.moved_from is not None:
            fields["moved_from"] = {name: as_json(value) for name, value in self.moved_from.items()}
        if self.refusal is not None:
            fields |= {
                "stage": self.refusal.stage,
                "field": self.refusal.field,
                "expected": self.refusal.expected,
                "found": self.refusal.found,
            }
        return fields


@dataclass(frozen=True, slots=True)
class Sample:
    """Some records of a pipeline's topics, ordered by partition and offset."""

    pipeline: str
    columns: pa.Schema
    """The table's, without the Kafka columns."""
    searched: tuple[Slice, ...]
    """The offsets that the records were taken from: from each partition's start to the broker's end."""
    records: tuple[SampledRecord, ...]
    fields: FieldsSeen | None = None
    """The records' fields, compared with the columns; None if unknown."""
    newest: bool = False
    """Whether nothing waits for the next transaction, so that these are the newest records."""

    def count(self, outcome: Outcome) -> int:
        return sum(record.outcome is outcome for record in self.records)

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "columns": columns_to_dicts(self.columns),
            "partitions": [
                {"topic": slice_.topic, "partition": slice_.partition, "start": slice_.start, "end": slice_.end}
                for slice_ in self.searched
            ],
            "counts": {outcome.value: self.count(outcome) for outcome in Outcome},
            "fields": self.fields.to_dict() if self.fields else None,
            "records": [record.to_dict() for record in self.records],
        }


def take_sample(pipeline: Pipeline, starts: Offsets | None, most: int) -> Sample:
    """Sample at most `most` records in total, shared fairly among the partitions: from `starts` on or, without `starts`,
    from where the next transaction begins. If nothing waits for that one, the newest records of all partitions.

    Raises NoSuchOffset, KafkaUnreachable, KafkaRefused, TopicMissing, TransformFailed, and what `row_maker_of` raises;
    without `starts` also what `observe` raises.
    """
    watermarks: Mapping[TopicPartition, Watermarks]
    is_given = bool(starts)
    if starts:
        watermarks = _watermarks(pipeline, starts)
    else:
        situation = observe(pipeline)
        starts, watermarks = situation.starts, situation.watermarks
    pipeline = pipeline.reading({source.topic for source in starts})
    schema = proposed_schema(pipeline, Timeline.of(pipeline.table))
    maker = row_maker_of(pipeline, schema, datetime.now(timezone.utc), len(starts))
    slices = [_slice(source, start, watermarks[source].end) for source, start in sorted(starts.items())]
    batches = read_fairly(pipeline, slices, most)
    newest = not is_given and not any(batch.num_rows for batch in batches.values())
    if newest:
        starts, batches = _read_newest(pipeline, {source: watermarks[source] for source in starts}, most)
    outcomes = {source: maker.make(source, batch, batch.num_rows) for source, batch in sorted(batches.items())}
    return Sample(
        pipeline.name,
        pa.schema([column for column in maker.columns if not is_kafka(column.name)]),
        tuple(_slice(source, start, watermarks[source].end) for source, start in sorted(starts.items())),
        tuple(
            record
            for source, outcome in outcomes.items()
            for record in sampled(maker.on_tombstone, source, batches[source], outcome)
        ),
        FieldsSeen.combined(outcome.fields for outcome in outcomes.values()),
        newest,
    )


def read_fairly(pipeline: Pipeline, slices: Sequence[Slice], most: int) -> dict[TopicPartition, pa.RecordBatch]:
    """Read at most `most` records in total from the starts of the slices, shared fairly among them. Raises KafkaUnreachable,
    KafkaRefused, TopicMissing."""
    shares = fair_shares({slice_.source: slice_.count for slice_ in slices}, most)
    requests = [ReadRequest(slice_, shares[slice_.source]) for slice_ in slices]
    return read_records(pipeline.source, pipeline.group_id, requests)


def _read_newest(
    pipeline: Pipeline, watermarks: Mapping[TopicPartition, Watermarks], most: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, pa.RecordBatch]]:
    """Read the `most` records of all partitions with the latest timestamps. Returns with them the offsets where the search began.

    Raises NoSuchOffset, KafkaUnreachable, KafkaRefused, TopicMissing.
    """
    starts = {source: marks.end for source, marks in watermarks.items()}
    batches = dict.fromkeys(starts, pa.RecordBatch.from_pylist([], RECORDS))
    step = most
    # Offsets without a record leave gaps, so a partition is read further back until it has given enough.
    while behind := [s for s in starts if starts[s] > watermarks[s].begin and batches[s].num_rows < most]:
        slices = [_slice(s, max(watermarks[s].begin, starts[s] - step), starts[s]) for s in behind]
        requests = [ReadRequest(slice_, slice_.count) for slice_ in slices]
        for source, older in read_records(pipeline.source, pipeline.group_id, requests).items():
            batches[source] = pa.concat_batches([older, batches[source]])
            starts[source] = max(watermarks[source].begin, starts[source] - step)
        step = min(2 * step, _MOST_OFFSETS_AT_ONCE)
    times = {source: batch["timestamp"].cast(pa.int64()).to_pylist() for source, batch in batches.items()}
    newest = heapq.nlargest(
        most, ((time, source, index) for source in times for index, time in enumerate(times[source]))
    )
    return starts, {
        source: batch.take(pa.array(sorted(index for _, of, index in newest if of == source), pa.int64()))
        for source, batch in batches.items()
    }


def _slice(source: TopicPartition, start: int, end: int) -> Slice:
    return Slice(source.topic, source.partition, start, end)


def sampled(
    on_tombstone: Tombstones, source: TopicPartition, batch: pa.RecordBatch, batch_outcome: BatchOutcome
) -> Iterator[SampledRecord]:
    """Yield what became of each record of `batch`, which has the columns of `kafka.records`."""
    rows, deletes = _rows_by_index(batch_outcome)
    bad = {refusal.index: refusal for refusal in batch_outcome.bad}
    values = batch["value"]
    for index, (offset, time) in enumerate(
        zip(batch["offset"].to_pylist(), batch["timestamp"].cast(pa.int64()).to_pylist(), strict=True)
    ):
        is_tombstone = not values[index].is_valid
        is_skipped = (is_tombstone and on_tombstone == "skip") or index in batch_outcome.control
        outcome = Outcome.SKIPPED if is_skipped else Outcome.FILTERED
        written, deleted = rows.get(index), deletes.get(index)
        if written is not None:
            outcome = Outcome.ROW
        elif deleted is not None:
            outcome, written, deleted = Outcome.DELETE, deleted, None
        elif index in bad:
            outcome = Outcome.BAD
        yield SampledRecord(source, offset, time, is_tombstone, outcome, written, deleted, bad.get(index))


def _rows_by_index(batch_outcome: BatchOutcome) -> tuple[dict[int, Mapping[str, Any]], dict[int, Mapping[str, Any]]]:
    """The rows to write and those to delete."""
    names = [name for name in batch_outcome.rows.schema.names if name != OLD_KEY and not is_kafka(name)]
    written, deleted = dict[int, Mapping[str, Any]](), dict[int, Mapping[str, Any]]()
    rows = batch_outcome.rows.select(names).to_pylist()
    indices = range(len(rows)) if batch_outcome.kept is None else batch_outcome.kept.to_pylist()
    for index, row in zip(indices, rows, strict=True):
        for name in row.pop(LEFT_OUT, None) or ():
            row[name] = FILLED
        (deleted if row.pop(DELETED, False) else written)[index] = row
    return written, deleted


def _watermarks(pipeline: Pipeline, starts: Offsets) -> dict[TopicPartition, Watermarks]:
    """Return the partitions' watermarks. Raises NoSuchOffset unless the broker has each start, or it is the next offset."""
    cluster = KafkaCluster(pipeline.source)
    topics = cluster.topics()
    for source in starts:
        if source.topic not in topics:
            raise NoSuchOffset(
                f"{source.topic} is not a topic of pipeline {pipeline.name}; choose one of {', '.join(sorted(topics))}.",
                servers=pipeline.source.bootstrap_servers,
                topic=source.topic,
                partition=source.partition,
            )
        if source not in topics[source.topic].partitions:
            numbers = ", ".join(str(partition.partition) for partition in topics[source.topic].partitions)
            raise NoSuchOffset(
                f"topic {source.topic} has no partition {source.partition}; choose one of {numbers}.",
                servers=pipeline.source.bootstrap_servers,
                topic=source.topic,
                partition=source.partition,
            )
    watermarks = cluster.watermarks(starts)
    for source, start in starts.items():
        marks = watermarks[source]
        if not marks.begin <= start <= marks.end:
            available = f"offsets {marks.begin} to {marks.end - 1}" if marks.begin < marks.end else "no records"
            raise NoSuchOffset(
                f"{source} has no offset {start}. The broker has {available}, and the next offset is {marks.end}; choose an "
                f"offset from {marks.begin} on.",
                servers=pipeline.source.bootstrap_servers,
                topic=source.topic,
                partition=source.partition,
                offset=start,
            )
    return watermarks


def as_json(value: Any) -> Any:
    """Convert a value for JSON: times to ISO 8601, bytes to base64, NaN and infinities to text, also decimals with digits after the
    point, which readers of JSON would round."""
    if isinstance(value, (date, datetime, time_of_day)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value) if value.as_tuple().exponent else int(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        # pyarrow hands out maps as lists of pairs.
        if value and all(isinstance(item, tuple) for item in value):
            return {key: as_json(item) for key, item in value}
        return [as_json(item) for item in value]
    return value
