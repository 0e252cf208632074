"""Slices → reports: one Spark job that reads exactly the slices' offsets and runs write tasks on them."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial, reduce

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from hudi_ingest.config import KafkaSource, Pipeline
from hudi_ingest.decoding import converter_of
from hudi_ingest.exceptions import (
    BadRecord,
    DeadlineExceeded,
    EngineLost,
    Fenced,
    OffsetsLost,
    SchemaOutdated,
    WriteIncomplete,
)
from hudi_ingest.hudi.base_file import BaseFileLayout, heartbeat_path
from hudi_ingest.hudi.epoch import Epoch
from hudi_ingest.kafka import KafkaCluster, spark_options, told_by_spark
from hudi_ingest.model import OpenTransaction, Slice, SliceReport, TopicPartition, TransactionPlan
from hudi_ingest.schema import parse_spark_json
from hudi_ingest.spark import answers, job_group
from hudi_ingest.storage import TableStorage
from hudi_ingest.write_task import NAMED_BAD_RECORDS, TaskReport, WriteTask, run_task

BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 50_000
UNMEASURED_BATCH_ROWS = 5_000
SMALLEST_TASK_ROWS = 100_000
"""What a Spark task costs is not worth fewer records, if others can share it."""
_SHUT_DOWN = "SparkContext was shut down"
_OUTDATED = re.compile(r"SchemaOutdated: (.*)")


def write_slices(
    spark: SparkSession,
    pipeline: Pipeline,
    transaction: OpenTransaction,
    slices: Sequence[Slice],
    attempts: Mapping[TopicPartition, int],
    record_bytes: int,
) -> tuple[SliceReport, ...]:
    """Writes the slices' base files and reports on each slice. `attempts` numbers this try at each partition.

    `record_bytes` (0 when unknown) sizes the Arrow batches, so that memory depends on neither the slice's length nor
    the records' size. Raises BadRecord, SchemaOutdated, DeadlineExceeded, Fenced, KafkaRefused, KafkaUnreachable,
    WriteIncomplete, EngineLost.
    """
    began = time.monotonic()
    pipeline = pipeline.with_record(parse_spark_json(transaction.schema.record))
    busy = [each for each in slices if each.count]
    storage = TableStorage(pipeline.table.base_path)
    found: list[TaskReport] = []
    if busy:
        task = WriteTask(
            storage=storage,
            layout=BaseFileLayout(
                instant=transaction.instant,
                epoch=Epoch(transaction.epoch, transaction.plan.transaction_id),
                partition_by=pipeline.table.partition_columns,
                rows_per_file=pipeline.table.rows_per_file,
                target_file_bytes=pipeline.table.target_file_bytes,
                compression=pipeline.table.compression,
                generations={topic: each.generation for topic, each in transaction.plan.topics.items()},
            ),
            converter=converter_of(pipeline, transaction.schema),
            chain=pipeline.chain.at(transaction.began_at),
            columns=parse_spark_json(transaction.schema.columns),
            attempts=dict(attempts),
        )
        found = _run(spark, pipeline, transaction, busy, task, record_bytes)
        require_same_topics(pipeline, transaction.plan, {each.topic for each in busy})
    _refuse_bad_records(pipeline, found)
    seconds = time.monotonic() - began
    return tuple(slice_report(each, attempts[each.source], found, seconds) for each in slices)


def require_same_topics(pipeline: Pipeline, plan: TransactionPlan, topics: Iterable[str]) -> None:
    """Raises OffsetsLost when a topic was made again since the plan: an id that is there before and after the reading was
    there all the time, because ids never come again."""
    now = KafkaCluster(pipeline.source).topics()
    for topic in sorted(topics):
        planned, found = plan.topics[topic].topic_id, now[topic].topic_id
        if planned and found and planned != found:
            raise OffsetsLost(
                f"topic {topic} was deleted and made again while transaction {plan.transaction_id} read it (id {planned}, now "
                f"{found}), so what was read is of either. Nothing of it is visible; the next plan says what is lost."
            )


def slice_report(each: Slice, attempt: int, found: Sequence[TaskReport], seconds: float) -> SliceReport:
    """The slice's report out of its tasks' reports. Raises WriteIncomplete when they overlap or leave the range."""
    tasks = sorted((t for t in found if (t.topic, t.partition) == (each.topic, each.partition)), key=_by_offset)
    expected = each.start
    for task in tasks:
        if task.first_offset < expected or task.last_offset >= each.end:
            raise WriteIncomplete(
                f"{each}: a task read offsets {task.first_offset} to {task.last_offset}, outside what was left of the range "
                f"from {expected}. Nothing is visible; the op is tried again."
            )
        expected = task.last_offset + 1
    rows, skipped, filtered = (sum(getattr(t, name) for t in tasks) for name in ("rows", "skipped", "filtered"))
    return SliceReport(
        slice=each,
        attempt=attempt,
        files=tuple(file for task in tasks for file in task.files),
        rows=rows,
        skipped=skipped,
        filtered=filtered,
        gaps=each.count - rows - skipped - filtered,
        value_bytes=sum(t.value_bytes for t in tasks),
        seconds=round(seconds, 3),
    )


def _by_offset(task: TaskReport) -> int:
    return task.first_offset


def _run(
    spark: SparkSession,
    pipeline: Pipeline,
    transaction: OpenTransaction,
    slices: Sequence[Slice],
    task: WriteTask,
    record_bytes: int,
) -> list[TaskReport]:
    name = f"{transaction.plan.transaction_id}: {slices[0]}" + (f" and {len(slices) - 1} more" if slices[1:] else "")
    group = f"{transaction.plan.transaction_id}/{slices[0].source}"
    left = (transaction.deadline - datetime.now(timezone.utc)).total_seconds()
    # A session of its own, because the batch size is a session setting and the engine's session is everybody's.
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch_rows(record_bytes)))
    with job_group(spark, group, name, left) as expired:
        try:
            parallelism = spark.sparkContext.defaultParallelism
            most_rows = rows_per_task(pipeline.table.rows_per_file, transaction.plan.count, parallelism)
            records = read_slices(session, pipeline.source, slices, most_rows, pipeline.chain.kafka)
            rows = records.mapInArrow(partial(run_task, task), "report string").collect()
        except Exception as error:
            # Broad, because a dying driver breaks pyspark anywhere, its own error handling included.
            gone = not answers(spark) or _SHUT_DOWN in _text(error)
            if not gone and not isinstance(error, (Py4JError, PySparkException)):
                raise
            raise _explained(error, expired.is_set(), gone, pipeline, transaction, slices, task.storage) from error
    return [TaskReport.from_json(row.report) for row in rows]


def batch_rows(record_bytes: int) -> int:
    """Rows of an Arrow batch of about BATCH_BYTES."""
    if not record_bytes:
        return UNMEASURED_BATCH_ROWS
    return max(1, min(BATCH_ROWS, BATCH_BYTES // record_bytes))


def rows_per_task(rows_per_file: int, count: int, parallelism: int) -> int:
    """How many of a transaction's `count` records a Spark task gets at most: as few as keep all cores busy, and no fewer
    than make files of a size. `parallelism`: tasks that run at the same time.
    """
    return min(rows_per_file, max(SMALLEST_TASK_ROWS, -(-count // parallelism)))


def cut(slices: Sequence[Slice], most_rows: int) -> tuple[tuple[Slice, ...], tuple[Slice, ...]]:
    """The slices that several Spark tasks read, and those that are short enough for tasks to read several of them."""
    long = tuple(each for each in slices if each.count > most_rows)
    return long, tuple(each for each in slices if each.count <= most_rows)


def tasks_for(slices: Iterable[Slice], most_rows: int) -> int:
    return -(-sum(each.count for each in slices) // most_rows)


def read_slices(
    session: SparkSession,
    source: KafkaSource,
    slices: Sequence[Slice],
    most_rows: int,
    also: Collection[str] = (),
) -> DataFrame:
    """The slices' records, in tasks of about `most_rows`. Each task writes files of its own, so fewer tasks make larger ones.

    Columns topic, partition, offset, timestamp and value; key and headers when they are in `also`.
    """
    long, short = cut(slices, most_rows)
    parts = []
    if long:
        parts.append(_read(session, source, long, tasks_for(long, most_rows), also))
    if short:
        # Narrow: a task reads its slices one after another, each in the order of its offsets.
        parts.append(_read(session, source, short, 1, also).coalesce(tasks_for(short, most_rows)))
    return reduce(DataFrame.union, parts)


def _read(
    session: SparkSession, source: KafkaSource, slices: Sequence[Slice], min_partitions: int, also: Collection[str]
) -> DataFrame:
    reader = session.read.format("kafka").option("includeHeaders", str("headers" in also).lower())
    for key, value in spark_options(source, slices, min_partitions).items():
        reader = reader.option(key, value)
    more = [name for name in ("key", "headers") if name in also]
    return reader.load().select("topic", "partition", "offset", "timestamp", "value", *more)


def _refuse_bad_records(pipeline: Pipeline, found: Sequence[TaskReport]) -> None:
    count = sum(task.rejected for task in found)
    if not count:
        return
    named = [line for task in sorted(found, key=_by_offset) for line in task.bad_records][:NAMED_BAD_RECORDS]
    records = "1 record" if count == 1 else f"{count} records"
    raise BadRecord(
        f"pipeline {pipeline.name}: {records} cannot become rows, and on_bad_record is {pipeline.on_bad_record}, so the "
        "transaction is refused and nothing of it is visible:\n"
        + "\n".join(f"  - {line}" for line in named)
        + ("" if count <= len(named) else f"\n  - and {count - len(named)} more")
        + "\nCorrect the producer and the records, or change table.schema, transforms or table.partition_by to fit them."
    )


def _explained(
    error: Exception,
    expired: bool,
    gone: bool,
    pipeline: Pipeline,
    transaction: OpenTransaction,
    slices: Sequence[Slice],
    storage: TableStorage,
) -> Exception:
    where = f"transaction {transaction.plan.transaction_id}, {', '.join(map(str, slices[:3]))}"
    if expired:
        return DeadlineExceeded(
            f"{where}: not written within timeout_seconds {pipeline.transaction.timeout_seconds}; its Spark job was "
            "cancelled and the instant will be rolled back. The next transaction reads the same offsets. Raise "
            "transaction.timeout_seconds or lower transaction.max_records."
        )
    if gone:
        return EngineLost(
            f"{where}: the Spark driver went away while the op ran ({type(error).__name__}). Nothing of this attempt is "
            "visible; it is tried again. If the engine stays away, start it with `hudi-ingest up` or `hudi-ingest engine`."
        )
    if not storage.exists(heartbeat_path(transaction.instant)):
        return Fenced(
            f"{where}: instant {transaction.instant} is not open any more (rolled back or committed by another). "
            "Nothing of this attempt is visible; the next transaction reads the same offsets."
        )
    outdated = _OUTDATED.findall(_text(error))
    if outdated:
        return SchemaOutdated(f"{where}: {outdated[-1]}")
    of_kafka = told_by_spark(_text(error), where, pipeline.source)
    if of_kafka is not None:
        return of_kafka
    return WriteIncomplete(f"{where}: the Spark job failed: {root_cause(_text(error))}. Nothing of it is visible.")


def _text(error: Exception) -> str:
    try:
        return str(error)
    except (Py4JError, ConnectionError, TypeError):
        # A Java error asks the driver for its text.
        return type(error).__name__


def root_cause(text: str) -> str:
    """The line of a Spark error that says what went wrong: the last error of a Python traceback, else the last cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if not line.startswith(("at ", "File ", "...", "Traceback")) and (": " in line) and "Exception: Job" not in line
    ]
    python = [
        line for line in errors if line.split(":", 1)[0].split(".")[-1].endswith(("Error", "Fenced", "Incomplete"))
    ]
    causes = [line for line in errors if line.startswith("Caused by: ")]
    return (python or causes or errors or lines[:1] or ["no text"])[-1].removeprefix("Caused by: ")[:500]
