"""What runs in a Spark Python worker: ranges of Kafka partitions, decoded in Arrow, become Hudi base files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from hudi_ingest.convert import Converter, Rejected
from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.faults import reach
from hudi_ingest.hudi.base_file import BaseFileLayout, BaseFileWriter, RowSource
from hudi_ingest.hudi.partition_paths import MAX_FOLDER_BYTES, folder_bytes
from hudi_ingest.model import BaseFile, TopicPartition
from hudi_ingest.storage import TableStorage
from hudi_ingest.table_rows import table_rows
from hudi_ingest.transform import KAFKA_FIELDS
from hudi_ingest.transform.chain import Chain

NAMED_BAD_RECORDS = 5
"""How many bad records a report names; all are counted."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What a Spark task needs to turn records into base files. Crosses to the Python workers by pickle."""

    storage: TableStorage
    layout: BaseFileLayout
    converter: Converter
    chain: Chain
    """From what a record is decoded to, `chain.record`, to the table's columns without its Kafka columns."""
    columns: pa.Schema
    attempts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one Spark task saw of one Kafka partition; `files` are those whose first row is of it."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    skipped: int
    filtered: int
    rejected: int
    value_bytes: int
    files: tuple[BaseFile, ...]
    bad_records: tuple[str, ...]

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        found = json.loads(text)
        found["files"] = tuple(BaseFile(**each) for each in found["files"])
        found["bad_records"] = tuple(found["bad_records"])
        return cls(**found)


def run_task(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark Python worker on records of Kafka partitions, one after another, each in offset order.

    Yields a row for each of them, its report.
    """
    reports = [json.dumps(asdict(report)) for report in _write_records(task, batches)]
    if reports:
        yield pa.RecordBatch.from_pydict({"report": pa.array(reports, pa.string())})


@dataclass(slots=True)
class _Progress:
    """What was seen of one Kafka partition so far."""

    first_offset: int
    last_offset: int
    rows: int = 0
    skipped: int = 0
    filtered: int = 0
    rejected: int = 0
    value_bytes: int = 0
    bad_records: list[str] = field(default_factory=list)


def _write_records(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> list[TaskReport]:
    # Spark retries failed tasks silently, and an op is retried too: both numbers keep attempts' files apart.
    context = TaskContext.get()
    spark_attempt = context.attemptNumber() if context else 0
    seen: dict[TopicPartition, _Progress] = {}
    with BaseFileWriter(task.storage, task.layout) as writer:
        for source, batch in _by_source(batches):
            _note_offsets(seen, source, batch)
            progress = seen[source]
            values = batch["value"]
            progress.value_bytes += values.nbytes
            if values.null_count:
                progress.skipped += values.null_count
                batch = batch.filter(pc.is_valid(values))
            made = _rows(task, batch, source)
            progress.filtered += made.filtered
            progress.rejected += made.rejected
            progress.bad_records += made.faults[: NAMED_BAD_RECORDS - len(progress.bad_records)]
            if made.rows is not None and not any(each.rejected for each in seen.values()):
                progress.rows += made.rows.num_rows
                writer.write(
                    RowSource(source, f"{source.partition}-{task.attempts[source]}-{spark_attempt}"), made.rows
                )
        if any(each.rejected for each in seen.values()):
            # The transaction will be refused, so none of this task's files may stay.
            writer.discard()
        else:
            writer.close()
        reach("task_done")
        return [
            TaskReport(
                source.topic,
                source.partition,
                each.first_offset,
                each.last_offset,
                each.rows,
                each.skipped,
                each.filtered,
                each.rejected,
                each.value_bytes,
                tuple(writer.files.get(source, ())),
                tuple(each.bad_records),
            )
            for source, each in seen.items()
        ]


def _by_source(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The batches, cut where the next Kafka partition begins."""
    for batch in batches:
        while batch.num_rows:
            source = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
            same = pc.and_(pc.equal(batch["topic"], source.topic), pc.equal(batch["partition"], source.partition))
            end = pc.index(same, False).as_py()
            yield source, batch if end < 0 else batch.slice(0, end)
            batch = batch.slice(batch.num_rows if end < 0 else end)


def _note_offsets(seen: dict[TopicPartition, _Progress], source: TopicPartition, batch: pa.RecordBatch) -> None:
    """Raises WriteIncomplete when the batch does not continue what was seen of its partition."""
    offsets = batch["offset"]
    first, last = offsets[0].as_py(), offsets[batch.num_rows - 1].as_py()
    known = seen.get(source)
    before = known.last_offset if known else first - 1
    steps = pc.subtract(offsets[1:], offsets[:-1])
    if first <= before or (len(steps) and pc.min(steps).as_py() < 1):
        raise WriteIncomplete(f"{source}: Spark handed out offsets out of order after {before}")
    if known:
        known.last_offset = last
    else:
        seen[source] = _Progress(first, last)


@dataclass(frozen=True, slots=True)
class _Made:
    """What became of a batch of one Kafka partition."""

    rows: pa.Table | None
    """None when there are none, or when one was rejected."""
    filtered: int = 0
    rejected: int = 0
    faults: Sequence[str] = ()


def _rows(task: WriteTask, batch: pa.RecordBatch, source: TopicPartition) -> _Made:
    if not batch.num_rows:
        return _Made(None)
    chain = task.chain
    decoded = task.converter.decode(batch["value"])
    if decoded.rejected:
        return _bad(batch, source, [chain.redact(each) for each in decoded.rejected])
    if decoded.rows.num_rows != batch.num_rows:
        raise WriteIncomplete(f"{source}: {batch.num_rows} records became {decoded.rows.num_rows} rows")
    done = chain.apply(_beside_kafka(decoded.rows, batch, source, _kafka_columns(task)))
    if done.rejected:
        return _bad(batch, source, done.rejected)
    if done.rows.num_rows + done.filtered != batch.num_rows:
        raise WriteIncomplete(
            f"{source}: {batch.num_rows} records became {done.rows.num_rows} rows, and {done.filtered} were filtered out"
        )
    if not done.rows.num_rows:
        return _Made(None, done.filtered)
    rows = table_rows(done.rows, task.columns)
    faults = _folders_too_long(rows, task.layout.partition_by)
    if faults:
        named = [f"{source}:{offset} {fault}" for offset, fault in sorted(faults.items())]
        return _Made(None, done.filtered, len(faults), named)
    return _Made(rows, done.filtered)


def _bad(batch: pa.RecordBatch, source: TopicPartition, rejected: Sequence[Rejected]) -> _Made:
    named = [
        f"{source}:{batch['offset'][each.index].as_py()}"
        f"{f' field {each.field}' if each.field else ''}: expected {each.expected}, found {each.found}"
        for each in rejected[:NAMED_BAD_RECORDS]
    ]
    return _Made(None, 0, len(rejected), named)


def _kafka_columns(task: WriteTask) -> list[str]:
    """By their names in KAFKA_FIELDS: those that the transforms read and those that the table has."""
    names = set(task.columns.names)
    return [kind for kind, each in KAFKA_FIELDS.items() if kind in task.chain.kafka or each.name in names]


def _beside_kafka(
    record: pa.RecordBatch, batch: pa.RecordBatch, source: TopicPartition, kinds: Sequence[str]
) -> pa.RecordBatch:
    fields = [KAFKA_FIELDS[kind] for kind in kinds]
    columns = [
        pa.repeat(source.topic, batch.num_rows) if kind == "topic" else batch[kind].cast(each.type)
        for kind, each in zip(kinds, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*record.columns, *columns], schema=pa.schema([*record.schema, *fields]))


def _folders_too_long(rows: pa.Table, partition_by: Sequence[str]) -> dict[int, str]:
    """By offset, what is wrong with the records that no folder can be named after."""
    faults: dict[int, str] = {}
    for name in partition_by:
        column = rows[name]
        if column.type != pa.string():
            continue
        # An escaped byte becomes three, so shorter values need no closer look; that is nearly always all of them.
        suspect = pc.greater(pc.binary_length(column), (MAX_FOLDER_BYTES - folder_bytes(name, " ") + 1) // 3)
        if not pc.any(suspect).as_py():
            continue
        sizes = {value: folder_bytes(name, value) for value in column.filter(suspect).unique().to_pylist()}
        too_long = [value for value, size in sizes.items() if size > MAX_FOLDER_BYTES]
        found = rows.filter(pc.is_in(column, value_set=pa.array(too_long, pa.string())))
        for offset, value in zip(found["_kafka_offset"].to_pylist(), found[name].to_pylist(), strict=True):
            faults[offset] = (
                f"field {name}: expected a value that makes a folder name of at most {MAX_FOLDER_BYTES} bytes, because the "
                f"table is partitioned by it, found one of {sizes[value]} bytes, {value[:20]!a}…"
            )
    return faults
