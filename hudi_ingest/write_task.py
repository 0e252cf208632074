"""What runs in a Spark Python worker: one range of a Kafka partition, decoded in Arrow, becomes Hudi base files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from hudi_ingest.convert import Converter, converter_for
from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.faults import reach
from hudi_ingest.hudi.base_file import BaseFileLayout, BaseFileWriter
from hudi_ingest.hudi.partition_paths import MAX_FOLDER_BYTES, folder_bytes
from hudi_ingest.model import BaseFile, TopicPartition
from hudi_ingest.storage import TableStorage

NAMED_BAD_RECORDS = 5
"""How many bad records a report names; all are counted."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What a Spark task needs to turn records into base files. Crosses to the Python workers by pickle."""

    storage: TableStorage
    layout: BaseFileLayout
    format: str
    record_schema: pa.Schema
    columns: pa.Schema
    attempts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one Spark task saw of one Kafka partition."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    skipped: int
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
    """Runs in a Spark Python worker on one Kafka partition's records in offset order; yields one row, its report."""
    report = _write_records(task, batches)
    if report is not None:
        yield pa.RecordBatch.from_pydict({"report": pa.array([json.dumps(asdict(report))])})


def _write_records(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> TaskReport | None:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    topic, partition = first["topic"][0].as_py(), first["partition"][0].as_py()
    first_offset = first["offset"][0].as_py()
    last_offset = first_offset - 1
    # Spark retries failed tasks silently, and an op is retried too: both numbers keep attempts' files apart.
    context = TaskContext.get()
    token = f"{partition}-{task.attempts[TopicPartition(topic, partition)]}-{context.attemptNumber() if context else 0}"
    converter = converter_for(task.format, task.record_schema)
    rows = skipped = rejected = value_bytes = 0
    bad: list[str] = []
    with BaseFileWriter(task.storage, task.layout, topic, partition, token) as writer:
        for batch in _chain(first, batches):
            if not batch.num_rows:
                continue
            _require_increasing(batch, topic, partition, last_offset)
            last_offset = batch["offset"][batch.num_rows - 1].as_py()
            values = batch["value"]
            value_bytes += values.nbytes
            if values.null_count:
                skipped += values.null_count
                batch = batch.filter(pc.is_valid(values))
            decoded, faults, count = _decode(converter, task, batch, topic, partition)
            rejected += count
            bad += faults[: NAMED_BAD_RECORDS - len(bad)]
            if not rejected and decoded is not None:
                rows += decoded.num_rows
                writer.write(decoded)
        if rejected:
            # The transaction will be refused, so none of this task's files may stay.
            writer.discard()
        else:
            writer.close()
        reach("task_done")
        return TaskReport(
            topic,
            partition,
            first_offset,
            last_offset,
            rows,
            skipped,
            rejected,
            value_bytes,
            tuple(writer.files),
            tuple(bad),
        )


def _decode(
    converter: Converter, task: WriteTask, batch: pa.RecordBatch, topic: str, partition: int
) -> tuple[pa.Table | None, list[str], int]:
    if not batch.num_rows:
        return None, [], 0
    decoded = converter.decode(batch["value"])
    if decoded.rejected:
        named = [
            f"{topic}:{partition}:{batch['offset'][each.index].as_py()}"
            f"{f' field {each.field}' if each.field else ''}: expected {each.expected}, found {each.found}"
            for each in decoded.rejected[:NAMED_BAD_RECORDS]
        ]
        return None, named, len(decoded.rejected)
    kafka = {
        "_kafka_topic": lambda: pa.repeat(topic, batch.num_rows),
        "_kafka_partition": lambda: batch["partition"],
        "_kafka_offset": lambda: batch["offset"],
        "_kafka_timestamp": lambda: batch["timestamp"].cast(pa.timestamp("us", "UTC")),
    }
    record = decoded.rows
    if record.num_rows != batch.num_rows:
        raise WriteIncomplete(f"{topic}:{partition}: {batch.num_rows} records became {record.num_rows} rows")
    names = set(record.schema.names)
    arrays = [record[each.name] if each.name in names else kafka[each.name]() for each in task.columns]
    rows = pa.Table.from_arrays(arrays, schema=task.columns)
    faults = _folders_too_long(rows, task.layout.partition_by)
    if faults:
        return None, [f"{topic}:{partition}:{offset} {fault}" for offset, fault in sorted(faults.items())], len(faults)
    return rows, [], 0


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


def _require_increasing(batch: pa.RecordBatch, topic: str, partition: int, last_offset: int) -> None:
    offsets = batch["offset"]
    steps = pc.subtract(offsets[1:], offsets[:-1])
    if offsets[0].as_py() <= last_offset or (len(steps) and pc.min(steps).as_py() < 1):
        raise WriteIncomplete(f"{topic}:{partition}: Spark handed out offsets out of order after {last_offset}")


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
