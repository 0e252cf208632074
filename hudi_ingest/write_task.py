"""What runs in a Spark Python worker: ranges of Kafka partitions, decoded in Arrow, become Hudi base files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.faults import reach
from hudi_ingest.hudi.base_file import BaseFileLayout, BaseFileWriter, RowSource
from hudi_ingest.model import BaseFile, TopicPartition
from hudi_ingest.record_rows import RowMaker, bad_record_text
from hudi_ingest.storage import TableStorage

NAMED_BAD_RECORDS = 5
"""How many bad records a report names; all are counted."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What a Spark task needs to turn records into base files. Crosses to the Python workers by pickle."""

    storage: TableStorage
    layout: BaseFileLayout
    maker: RowMaker
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
            progress.value_bytes += batch["value"].nbytes
            made = task.maker.make(source, batch)
            progress.skipped += made.skipped
            progress.filtered += made.filtered
            progress.rejected += len(made.bad)
            progress.bad_records += [
                bad_record_text(source, batch["offset"][each.index].as_py(), each)
                for each in made.bad[: NAMED_BAD_RECORDS - len(progress.bad_records)]
            ]
            if made.rows.num_rows and not any(each.rejected for each in seen.values()):
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
