"""One Spark job whose tasks read exactly the slices' offsets and write them, and the reports on each slice."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import (
    DeadlineExceeded,
    EngineLost,
    EnvironmentProblem,
    Fenced,
    IngestError,
    KafkaUnreachable,
    OffsetsLost,
    RangeRefused,
    RegistryRefused,
    RegistryUnreachable,
    SchemaMissing,
    TableUnreachable,
    TransformFailed,
    WriteIncomplete,
)
from hudi_ingest.hudi.files.new_files import BaseFileLayout, KeyedLayout
from hudi_ingest.hudi.files.replaced_files import offsets_in_files
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.storage.storage import TableStorage, storage_at
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, length
from hudi_ingest.model.plan import ReplayPlan, RetryPlan, TransactionPlan
from hudi_ingest.model.report import BaseFile, Counts, FieldsSeen, LogFile, SliceReport
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.executors import executor_problem
from hudi_ingest.spark.session import answers, job_group
from hudi_ingest.transaction.bad_records import (
    NAMED_BAD_RECORDS,
    keeps_letters,
    most_bad_records,
    withholds_bytes,
)
from hudi_ingest.transaction.dead_letters.letter_file import LetterLayout
from hudi_ingest.transaction.decoding import row_maker_of
from hudi_ingest.transaction.gaps import longest_gaps, require_true_gaps
from hudi_ingest.transaction.write.outcomes import require_none
from hudi_ingest.transaction.write.task import (
    CopyTask,
    RangesToRead,
    TaskReport,
    WriteTask,
    run_copies,
    run_ranges,
    run_retry,
)
from hudi_ingest.transaction.write.task_ranges import ranges_of_tasks, rows_of_a_slice, rows_per_task
from hudi_ingest.transaction.write.user_code import import_paths, version_of, workers_of

_SHUT_DOWN = "SparkContext was shut down"
_SILENT_ABOUT_ROWS = (
    RegistryUnreachable,
    RegistryRefused,
    SchemaMissing,
    KafkaUnreachable,
    TableUnreachable,
    TransformFailed,
)
"""Errors that are also raised outside transactions, so their messages do not say what happened to one."""
_INVISIBLE = "Nothing of it is visible."


def write_slices(
    spark: SparkSession,
    pipeline: Pipeline,
    transaction: OpenTransaction,
    slices: Sequence[Slice],
    attempts: Mapping[TopicPartition, int],
    record_bytes: int,
) -> tuple[SliceReport, ...]:
    """Write the slices' base files and report on each slice. `attempts` is the number of this attempt for each partition.

    `record_bytes` (0 when unknown) sizes the tasks. Memory depends on neither the slice's length nor the records' size.
    Too many bad records are counted to the end, without files, for the commit to refuse: only it knows those of all slices.
    Raises DeadlineExceeded, EngineLost, EnvironmentProblem, Fenced, KafkaRefused, KafkaUnreachable,
    NoSuchOffset, OffsetsLost, RangeRefused, RegistryRefused, RegistryUnreachable, SchemaMissing, SchemaOutdated,
    TableUnreachable, TransformFailed, WriteIncomplete.
    """
    began = time.monotonic()
    plan = transaction.plan
    pipeline = pipeline.reading(plan.topics)
    busy = [slice_ for slice_ in slices if slice_.count]
    storage = storage_at(pipeline.table.base_path, pipeline.table.storage_options)
    task_reports: list[TaskReport] = []
    if busy:
        replaced = offsets_in_files(storage, plan.replaces, busy)
        task = WriteTask(
            storage=storage,
            layout=_layout(spark, pipeline, transaction),
            maker=row_maker_of(pipeline, transaction.schema, transaction.began_at),
            attempts=dict(attempts),
            letters=_letter_layout(pipeline, transaction),
            most_bad=most_bad_records(pipeline, plan.kind),
            replaced=replaced,
            only_replaced=isinstance(plan, ReplayPlan) and plan.respect_deletes,
        )
        task_reports = _run(spark, pipeline, transaction, busy, task, record_bytes)
        if not isinstance(plan, RetryPlan):
            require_same_topics(pipeline, plan, {slice_.topic for slice_ in busy})
            require_true_gaps(pipeline, longest_gaps(busy, task_reports))
        require_all_replaced(plan.transaction_id, replaced, task_reports)
    copies: list[tuple[TopicPartition, BaseFile]] = []
    sources = {slice_.source for slice_ in slices}
    shared = [file for file in plan.replaces if file.kept and file.source in sources]
    if shared:
        copying = CopyTask(storage, _base_file_layout(pipeline, transaction), plan.slices, dict(attempts))
        with _job(spark, pipeline, transaction, slices, storage):
            files = spark.sparkContext.parallelize(shared, len(shared))
            copied = files.mapPartitions(partial(run_copies, copying)).collect()
            require_none(outcome for outcome in copied if isinstance(outcome, bytes))
            copies = [outcome for outcome in copied if not isinstance(outcome, bytes)]
    seconds = time.monotonic() - began
    reports_of: defaultdict[TopicPartition, list[TaskReport]] = defaultdict(list)
    for report in task_reports:
        reports_of[TopicPartition(report.topic, report.partition)].append(report)
    return tuple(
        replace(
            slice_report(slice_, attempts[slice_.source], reports_of[slice_.source], seconds),
            copies=tuple(file for source, file in copies if source == slice_.source),
        )
        for slice_ in slices
    )


def _layout(spark: SparkSession, pipeline: Pipeline, transaction: OpenTransaction) -> BaseFileLayout | KeyedLayout:
    """How rows become files: base files, or the log files of a keyed table."""
    if pipeline.table.is_keyed:
        return _keyed_layout(pipeline, transaction, HudiWriter(spark, pipeline).log_schema(transaction.schema))
    return _base_file_layout(pipeline, transaction)


def _base_file_layout(pipeline: Pipeline, transaction: OpenTransaction) -> BaseFileLayout:
    return BaseFileLayout(
        instant=transaction.instant,
        epoch=Epoch(transaction.epoch, transaction.plan.transaction_id),
        partition_by=pipeline.table.partition_columns,
        rows_per_file=pipeline.table.rows_per_file,
        target_file_bytes=pipeline.table.target_file_bytes,
        compression=pipeline.table.compression,
        generations=transaction.plan.generations,
        hive_style=pipeline.table.hive_style,
        escaped_folders=transaction.schema.escaped_folders,
        record_key=transaction.schema.record_key,
    )


def _keyed_layout(pipeline: Pipeline, transaction: OpenTransaction, log_schema: str) -> KeyedLayout:
    return KeyedLayout(
        instant=transaction.instant,
        epoch=Epoch(transaction.epoch, transaction.plan.transaction_id),
        partition_by=pipeline.table.partition_columns,
        hive_style=pipeline.table.hive_style,
        escaped_folders=transaction.schema.escaped_folders,
        key=pipeline.table.key,
        ordering=pipeline.table.ordering_fields,
        buckets=pipeline.table.buckets,
        schema_json=log_schema,
        compression=pipeline.table.compression,
        groups=transaction.groups,
    )


def _letter_layout(pipeline: Pipeline, transaction: OpenTransaction) -> LetterLayout | None:
    plan = transaction.plan
    if not keeps_letters(pipeline, plan.kind):
        return None
    withhold = withholds_bytes(pipeline, plan.kind)
    return LetterLayout(transaction.instant, pipeline.name, plan.transaction_id, transaction.shape, withhold)


def require_same_topics(pipeline: Pipeline, plan: TransactionPlan, topics: Iterable[str]) -> None:
    """Raises OffsetsLost if a topic was recreated since the plan: an id seen before and after reading was there all the time,
    because ids are never reused."""
    with kept_cluster(pipeline.source) as cluster:
        current = cluster.topics()
    for topic in sorted(topics):
        planned_id, current_id = plan.topics[topic].topic_id, current[topic].topic_id
        if planned_id and current_id and planned_id != current_id:
            raise OffsetsLost(
                f"topic {topic} was deleted and recreated while transaction {plan.transaction_id} read it (id {planned_id}, now "
                f"{current_id}), so the records read may be from either topic. Nothing of it is visible; the next plan reports "
                "the loss.",
                servers=pipeline.source.bootstrap_servers,
                topic=topic,
            )


def require_all_replaced(
    transaction_id: str, replaced: Mapping[TopicPartition, Ranges], task_reports: Iterable[TaskReport]
) -> None:
    """Raises RangeRefused unless Kafka returned every record whose row a replay removes from the table: compaction may have
    removed some since, and their rows would be lost."""
    read_again: Counter[TopicPartition] = Counter()
    for report in task_reports:
        read_again[TopicPartition(report.topic, report.partition)] += report.replaced
    problems = [
        f"{source}: {length(offsets) - read_again[source]} of {length(offsets)} records with a row in the table are no longer in "
        "Kafka (most likely compacted away), and their rows would be lost. Replay a range whose records are all there"
        for source, offsets in sorted(replaced.items())
        if read_again[source] != length(offsets)
    ]
    if problems:
        raise RangeRefused(f"replay {transaction_id} is refused, nothing of it is visible", problems)


def slice_report(slice_: Slice, attempt: int, task_reports: Sequence[TaskReport], seconds: float) -> SliceReport:
    """Combine the reports of the tasks that read the slice's partition into the slice's. Raises WriteIncomplete if they overlap or leave the range."""
    tasks = sorted(task_reports, key=_by_offset)
    expected = slice_.start
    for task in tasks:
        if task.first_offset < expected or task.last_offset >= slice_.end:
            raise WriteIncomplete(
                f"{slice_}: a task read offsets {task.first_offset} to {task.last_offset}, outside the rest of the range from "
                f"{expected}. Nothing is visible; the op is retried."
            )
        expected = task.last_offset + 1
    counted = Counts(**{name: sum(task.counts[name] for task in tasks) for name in Counts().counts})
    counted = replace(counted, gaps=slice_.count - counted.counted)
    files = [file for task in tasks for file in task.files]
    return SliceReport(
        slice=slice_,
        attempt=attempt,
        files=tuple(file for file in files if isinstance(file, BaseFile)),
        value_bytes=sum(task.value_bytes for task in tasks),
        seconds=round(seconds, 3),
        letters=tuple(file for task in tasks for file in task.letters),
        bad_records=tuple(note for task in tasks for note in task.bad_records)[:NAMED_BAD_RECORDS],
        log_files=tuple(file for file in files if isinstance(file, LogFile)),
        fields=FieldsSeen.combined(task.fields for task in tasks),
        copies=(),
        **counted.counts,
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
    with _job(spark, pipeline, transaction, slices, task.storage):

        def reports(tasks: int, work: Callable[[Iterator[int]], Iterator[TaskReport | bytes]]) -> list[TaskReport]:
            # Not a DataFrame: planning one takes longer than such a job.
            outcomes = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(work)
            with workers_of(spark, version_of(import_paths(_formats(pipeline), task.maker.chain))):
                # Spark notes the workers' environment now.
                outcomes.id()
            result = outcomes.collect()
            require_none(outcome for outcome in result if isinstance(outcome, bytes))
            return [outcome for outcome in result if not isinstance(outcome, bytes)]

        plan = transaction.plan
        if isinstance(plan, RetryPlan):
            # One task per file: a file's letters are in offset order, those of several files need not be.
            files = [file for file in plan.retry.files if file.concerns(slices)]
            return reports(len(files), partial(run_retry, task, files, slices))
        # Dead letters hold the whole record; otherwise keys and headers are read only where they are used.
        extra_columns = task.maker.chain.kafka | ({"key", "headers"} if task.letters else frozenset())
        extra_columns |= {"key"} if pipeline.source.key else frozenset()
        extra_columns |= {"headers"} if task.maker.schema_headers else frozenset()
        slice_rows = rows_of_a_slice(record_bytes)
        rows = plan.count + slice_rows * len(plan.slices)
        most_rows = rows_per_task(
            pipeline.table.rows_per_file, rows, spark.sparkContext.defaultParallelism, record_bytes
        )
        tasks = ranges_of_tasks(slices, most_rows, slice_rows)
        reading = RangesToRead(pipeline.source, pipeline.group_id, tasks, extra_columns)
        return reports(len(tasks), partial(run_ranges, task, reading))


def _formats(pipeline: Pipeline) -> list[str]:
    return [pipeline.source.format, *([pipeline.source.key.format] if pipeline.source.key else [])]


@contextmanager
def _job(
    spark: SparkSession,
    pipeline: Pipeline,
    transaction: OpenTransaction,
    slices: Sequence[Slice],
    storage: TableStorage,
) -> Iterator[None]:
    """Spark jobs inside belong to the slices' op, end at the transaction's deadline, and fail with an IngestError."""
    name = f"{transaction.plan.transaction_id}: {slices[0]}" + (f" and {len(slices) - 1} more" if slices[1:] else "")
    group = f"{transaction.plan.transaction_id}/{slices[0].source}"
    remaining = (transaction.deadline - datetime.now(timezone.utc)).total_seconds()
    with job_group(spark, group, name, remaining) as expired:
        try:
            yield
        except IngestError as error:
            fenced = _fenced(transaction, slices, storage)
            if fenced is not None:
                raise fenced from error
            error.locate(_where(transaction, slices), _INVISIBLE if isinstance(error, _SILENT_ABOUT_ROWS) else "")
            raise
        except Exception as error:
            # Broad, because a dying driver breaks pyspark anywhere, even in its own error handling.
            driver_gone = not answers(spark) or _SHUT_DOWN in _text(error)
            if not driver_gone and not isinstance(error, (Py4JError, PySparkException)):
                raise
            python = str(spark.sparkContext.pythonExec)
            raise _explained(
                error, expired.is_set(), driver_gone, python, pipeline, transaction, slices, storage
            ) from error


def _explained(
    error: Exception,
    expired: bool,
    driver_gone: bool,
    python: str,
    pipeline: Pipeline,
    transaction: OpenTransaction,
    slices: Sequence[Slice],
    storage: TableStorage,
) -> Exception:
    where = _where(transaction, slices)
    if expired:
        return DeadlineExceeded(
            f"{where}: not written within timeout_seconds {pipeline.transaction.timeout_seconds}; its Spark job was "
            "cancelled and the instant will be rolled back. The next transaction reads the same offsets. Raise "
            "transaction.timeout_seconds or lower transaction.max_records."
        )
    if driver_gone:
        return EngineLost(
            f"{where}: the Spark driver went away while the op ran ({type(error).__name__}). Nothing of this attempt is "
            "visible; it is retried. If the engine does not come back, start it with `hudi-ingest up` or `hudi-ingest engine`."
        )
    fenced = _fenced(transaction, slices, storage)
    if fenced is not None:
        return fenced
    problem = executor_problem(_text(error), python)
    if problem is not None:
        return EnvironmentProblem(f"{where}: {problem} {_INVISIBLE}")
    return WriteIncomplete(f"{where}: the Spark job failed: {root_cause(_text(error))}. {_INVISIBLE}")


def _fenced(transaction: OpenTransaction, slices: Sequence[Slice], storage: TableStorage) -> Fenced | None:
    """The error to raise if the instant is no longer open; None if it is open."""
    if storage.exists(heartbeat_path(transaction.instant)):
        return None
    return Fenced(
        f"{_where(transaction, slices)}: instant {transaction.instant} is no longer open (another process rolled it back or "
        "committed it). Nothing of this attempt is visible; the next transaction reads the same offsets.",
        transaction_id=transaction.plan.transaction_id,
        instant=transaction.instant,
    )


def _where(transaction: OpenTransaction, slices: Sequence[Slice]) -> str:
    return f"transaction {transaction.plan.transaction_id}, {', '.join(map(str, slices[:3]))}"


def _text(error: Exception) -> str:
    try:
        return str(error)
    except (Py4JError, ConnectionError, TypeError):
        # A Java error asks the driver for its text.
        return type(error).__name__


def root_cause(text: str) -> str:
    """The line of a Spark error that says what went wrong: the last error in a Python traceback, else the last cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if not line.startswith(("at ", "File ", "...", "Traceback")) and (": " in line) and "Exception: Job" not in line
    ]
    python = [line for line in errors if line.split(":", 1)[0].endswith("Error")]
    causes = [line for line in errors if line.startswith("Caused by: ")]
    return (python or causes or errors or lines[:1] or ["no text"])[-1].removeprefix("Caused by: ")[:500]
