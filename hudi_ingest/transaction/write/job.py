"""One Spark job whose tasks read exactly the slices' offsets and write them.

Spark reuses its Python workers from job to job, and they keep the modules they have imported: a corrected converter would
keep running in its old version, in live transactions and in the replay that is meant to correct its rows. So the version of the
users' own code, converters and functions, is part of the workers' environment.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path  # files: users' modules
from typing import Any

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
    RegistryRefused,
    RegistryUnreachable,
    SchemaMissing,
    TableUnreachable,
    TransformFailed,
    WriteIncomplete,
)
from hudi_ingest.hudi.files.new_files import ROWS_PER_FILE, BaseFileLayout, KeyedLayout, Past, PastCommit
from hudi_ingest.hudi.files.replaced_files import offsets_in_files
from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import ReplayPlan, RetryPlan, TransactionKind
from hudi_ingest.model.report import BaseFile, SliceReport
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.convert.formats import ENTRY_POINTS, is_built_in
from hudi_ingest.records.transform.chain import Chain, PythonFunction
from hudi_ingest.spark.executors import executor_problem
from hudi_ingest.spark.session import answers, job_group
from hudi_ingest.transaction.columns.decoding import applies_truncates, row_maker_of
from hudi_ingest.transaction.dead_letters.letter_file import (
    LetterLayout,
    keeps_letters,
    most_bad_records,
    withholds_bytes,
)
from hudi_ingest.transaction.write.reports import (
    longest_gaps,
    require_all_replaced,
    require_same_topics,
    require_true_gaps,
    slice_report,
)
from hudi_ingest.transaction.write.task import (
    CopyTask,
    OutOfOrder,
    RangesToRead,
    TaskReport,
    WriteTask,
    require_none,
    run_copies,
    run_ranges,
    run_retry,
)

SMALLEST_TASK_ROWS = 100_000
SMALLEST_TASK_BYTES = 20_000_000
"""Fewer records and bytes are not worth a Spark task of their own."""
_SLICES_OF_A_TASK = 100
"""So many with hardly a record are worth a task: each has files of its own, with markers."""
VARIABLE = "HUDI_INGEST_OWN_CODE"
_environment = threading.Lock()
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
            maker=row_maker_of(pipeline, transaction.schema, transaction.began_at, _kafka_partitions(pipeline)),
            attempts=dict(attempts),
            letters=_letter_layout(pipeline, transaction),
            most_bad=most_bad_records(pipeline, plan.kind),
            replaced=replaced,
            only_replaced=isinstance(plan, ReplayPlan) and plan.respect_deletes,
            late_before=transaction.late_before,
            fatal=pipeline.fatal_expectations if plan.kind is not TransactionKind.RETRY else frozenset(),
            certifies=pipeline.table.certificates,
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


def _kafka_partitions(pipeline: Pipeline) -> int:
    """Return how many Kafka partitions the topics have, if truncates depend on it, else 1. Not the plan's slices: a replay reads some of
    them. Raises KafkaUnreachable, KafkaRefused, TopicMissing."""
    if not applies_truncates(pipeline):
        return 1
    with kept_cluster(pipeline.source) as cluster:
        return sum(len(topic.partitions) for topic in cluster.topics().values())


def _layout(spark: SparkSession, pipeline: Pipeline, transaction: OpenTransaction) -> BaseFileLayout | KeyedLayout:
    """How rows become files: base files, or the log files of a keyed table."""
    table = pipeline.table
    if not table.is_keyed:
        return _base_file_layout(pipeline, transaction)
    return KeyedLayout(
        **_common_layout(pipeline, transaction),
        key=transaction.schema.record_key,
        ordering=table.ordering_fields,
        buckets=table.buckets,
        schema_json=HudiWriter(spark, pipeline).log_schema(transaction.schema),
        groups=transaction.groups,
        past=_past(pipeline, transaction.plan) if isinstance(transaction.plan, RetryPlan) else None,
    )


def _past(pipeline: Pipeline, plan: RetryPlan) -> Past:
    """The commits by which dead letters are judged."""
    committed = PipelineTable(pipeline).committed()
    versions = committed.checkpoint.topics if committed.checkpoint else {}
    # Offsets of a topic that was recreated since say nothing of those before.
    same = all(
        plan.generations.get(topic, 0) == versions[topic].generation
        for topic in {slice_.topic for slice_ in plan.slices}.intersection(versions)
    )
    commits = [
        replace(
            _past_commit(commit, pipeline.transaction_key, same), files=tuple(commit.files), replaced=commit.replaced
        )
        for commit in reversed(committed.commits)
    ]
    may_lack = pipeline.source.envelope == "debezium" or pipeline.source.unavailable_value is not None
    return Past(tuple(commits), pipeline.fills_values and may_lack)


def _past_commit(commit: CommittedInstant, transaction_key: str, knows_offsets: bool) -> PastCommit:
    """What a commit read, if its offsets are those of today's topics."""
    if transaction_key not in commit.metadata or not knows_offsets:
        return PastCommit()
    accounting = commit.accounting(transaction_key)
    truncates = tuple((account.slice, account.truncated) for account in accounting.slices if account.truncates)
    # A retry takes single records of its slices.
    is_retry = accounting.kind is TransactionKind.RETRY
    return PastCommit(() if is_retry else tuple(account.slice for account in accounting.slices), truncates)


def _base_file_layout(pipeline: Pipeline, transaction: OpenTransaction) -> BaseFileLayout:
    return BaseFileLayout(
        **_common_layout(pipeline, transaction),
        rows_per_file=ROWS_PER_FILE,
        target_file_bytes=pipeline.table.target_file_bytes,
        generations=transaction.plan.generations,
        record_key=transaction.schema.record_key,
        statistics=pipeline.table.iceberg is not None,
    )


def _common_layout(pipeline: Pipeline, transaction: OpenTransaction) -> dict[str, Any]:
    """The fields that both layouts have."""
    return {
        "instant": transaction.instant,
        "epoch": Epoch(transaction.epoch, transaction.plan.transaction_id),
        "partition_by": pipeline.table.partition_columns,
        "compression": pipeline.table.compression,
        "hive_style": pipeline.table.hive_style,
        "escaped_folders": transaction.schema.escaped_folders,
    }


def _letter_layout(pipeline: Pipeline, transaction: OpenTransaction) -> LetterLayout | None:
    plan = transaction.plan
    if not keeps_letters(pipeline, plan.kind):
        return None
    withhold = withholds_bytes(pipeline, plan.kind)
    return LetterLayout(transaction.instant, pipeline.name, plan.transaction_id, transaction.shape, withhold)


def _run(
    spark: SparkSession,
    pipeline: Pipeline,
    transaction: OpenTransaction,
    slices: Sequence[Slice],
    task: WriteTask,
    record_bytes: int,
) -> list[TaskReport]:
    with _job(spark, pipeline, transaction, slices, task.storage):

        def reports(
            parts: int, work: Callable[[Iterator[int]], Iterator[TaskReport | bytes]], tasks: int | None = None
        ) -> list[TaskReport]:
            # Not a DataFrame: planning one takes longer than such a job.
            outcomes = spark.sparkContext.parallelize(range(parts), tasks or parts).mapPartitions(work)
            with workers_of(spark, version_of(import_paths(_formats(pipeline), task.maker.chain))):
                # Spark notes the workers' environment now.
                outcomes.id()
            result = outcomes.collect()
            require_none(outcome for outcome in result if isinstance(outcome, bytes))
            return [outcome for outcome in result if not isinstance(outcome, bytes)]

        plan = transaction.plan
        if isinstance(plan, RetryPlan):
            files = [file for file in plan.retry.files if file.concerns(slices)]
            # In a keyed table a change may need an earlier one.
            return reports(len(files), partial(run_retry, task, files, slices), 1 if pipeline.table.is_keyed else None)
        # Dead letters hold the whole record, and certificates are of its key, too; otherwise keys and headers are read only where they
        # are used.
        extra_columns = task.maker.chain.kafka | ({"key", "headers"} if task.letters else frozenset())
        extra_columns |= {"key"} if task.certifies or pipeline.source.key or task.maker.key_guard else frozenset()
        extra_columns |= {"headers"} if task.maker.schema_headers else frozenset()
        slice_rows = rows_of_a_slice(record_bytes)
        rows = plan.count + slice_rows * len(plan.slices)
        most_rows = rows_per_task(rows, spark.sparkContext.defaultParallelism, record_bytes)
        tasks = ranges_of_tasks(slices, most_rows, slice_rows)
        reading = RangesToRead(pipeline.source, pipeline.group_id, tasks, extra_columns, transaction.follows)
        try:
            return reports(len(tasks), partial(run_ranges, task, reading))
        except OutOfOrder:
            # Only now it is known that a record needs an earlier one of its Kafka partition, so each is read by one task. The other
            # tasks' files are in no report, so the commit deletes them.
            whole = replace(reading, tasks=tuple((slice_,) for slice_ in slices))
            return reports(len(slices), partial(run_ranges, task, whole))


def _formats(pipeline: Pipeline) -> list[str]:
    return [pipeline.source.format, *([pipeline.source.key.format] if pipeline.source.key else [])]


def writing_group(transaction: OpenTransaction, slices: Sequence[Slice]) -> str:
    """The group of the Spark jobs that write the slices."""
    return f"{transaction.plan.transaction_id}/{slices[0].source}"


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
    remaining = (transaction.deadline - datetime.now(timezone.utc)).total_seconds()
    with job_group(spark, writing_group(transaction, slices), name, remaining) as expired:
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
            where = _where(transaction, slices)
            if expired.is_set():
                raise DeadlineExceeded(
                    f"{where}: not written within timeout_seconds {pipeline.transaction.timeout_seconds}; its Spark job was "
                    "cancelled and the instant will be rolled back. The next transaction reads the same offsets. Raise "
                    "transaction.timeout_seconds or lower transaction.max_records."
                ) from error
            if driver_gone:
                raise EngineLost(
                    f"{where}: the Spark driver went away while the op ran ({type(error).__name__}). Nothing of this attempt is "
                    "visible; it is retried. If the engine does not come back, start it with `hudi-ingest up` or `hudi-ingest engine`."
                ) from error
            failed = _fenced(transaction, slices, storage) or _failed(
                where, _text(error), spark.sparkContext.pythonExec
            )
            raise failed from error


def _failed(where: str, text: str, python: str) -> IngestError:
    """Explain the error text of a failed Spark job. `python`: the workers' interpreter."""
    problem = executor_problem(text, python)
    if problem is not None:
        return EnvironmentProblem(f"{where}: {problem} {_INVISIBLE}")
    return WriteIncomplete(f"{where}: the Spark job failed: {root_cause(text)}. {_INVISIBLE}")


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


def rows_per_task(count: int, parallelism: int, record_bytes: int) -> int:
    """Roughly how many of a transaction's `count` records a Spark task gets: few enough to keep all cores busy, but enough
    for files of a reasonable size. `parallelism`: tasks that run at the same time; `record_bytes`: 0 when unknown.
    """
    return min(ROWS_PER_FILE, max(1, _smallest_task(record_bytes), -(-count // parallelism)))


def rows_of_a_slice(record_bytes: int) -> int:
    """The cost of a slice besides its records, in records."""
    return _smallest_task(record_bytes) // _SLICES_OF_A_TASK


def _smallest_task(record_bytes: int) -> int:
    return min(SMALLEST_TASK_ROWS, SMALLEST_TASK_BYTES // max(1, record_bytes))


def ranges_of_tasks(slices: Sequence[Slice], most_rows: int, slice_rows: int) -> tuple[tuple[Slice, ...], ...]:
    """The ranges of each task. A slice longer than `most_rows` is cut into ranges for tasks of their own; shorter ones share
    tasks. Each task writes its own files, so fewer tasks make larger files."""
    long = [(part,) for slice_ in slices if slice_.count > most_rows for part in _parts(slice_, most_rows)]
    return (*long, *_shared([slice_ for slice_ in slices if 0 < slice_.count <= most_rows], most_rows, slice_rows))


def _parts(slice_: Slice, most_rows: int) -> Iterable[Slice]:
    """Even parts. Their number is rounded to the nearest: a slice slightly too long for one task would make twice the files."""
    count = max(1, (2 * slice_.count + most_rows) // (2 * most_rows))
    bounds = [slice_.start + slice_.count * part // count for part in range(count + 1)]
    return (Slice(slice_.topic, slice_.partition, start, end) for start, end in pairwise(bounds))


def _shared(slices: Sequence[Slice], most_rows: int, slice_rows: int) -> list[tuple[Slice, ...]]:
    """The fewest tasks that can have `most_rows` each, filled evenly: the longest slice first, to the task with the least. A slice
    counts for its own cost, too."""
    total = sum(slice_.count + slice_rows for slice_ in slices)
    count = min(len(slices), -(-total // (most_rows + slice_rows)))
    tasks: list[list[Slice]] = [[] for _ in range(count)]
    rows_of_tasks = [(0, task) for task in range(count)]
    for slice_ in sorted(slices, key=lambda slice_: (-slice_.count, slice_)):
        rows, task = heapq.heappop(rows_of_tasks)
        tasks[task].append(slice_)
        heapq.heappush(rows_of_tasks, (rows + slice_.count + slice_rows, task))
    return [tuple(sorted(ranges)) for ranges in tasks]


def import_paths(formats: Iterable[str], chain: Chain) -> tuple[str, ...]:
    """The `package.module:name` of each converter and function from outside this package."""
    foreign = [name for name in formats if not is_built_in(name)]
    # Looking for entry points reads the metadata of every installed package.
    registered = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)} if foreign else {}
    converters = {name if ":" in name else registered.get(name, "") for name in foreign}
    functions = {step.transform.path for step in chain.steps if isinstance(step.transform, PythonFunction)}
    return tuple(sorted((converters | functions) - {""}))


def version_of(paths: Iterable[str]) -> str:
    """A text that changes whenever a file of the modules, or of their packages, changes or is replaced; "" if there are no
    files. Other packages that they import do not count."""
    files = sorted({file for path in paths for file in _files(path.partition(":")[0].partition(".")[0])})
    facts = [f"{file} {status.st_mtime_ns} {status.st_size}" for file in files for status in [file.stat()]]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16] if facts else ""


def _files(name: str) -> list[Path]:
    spec = find_spec(name)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py")]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


@contextmanager
def workers_of(spark: SparkSession, version: str) -> Iterator[None]:
    """Functions passed to Spark inside run in workers that have imported no other version.

    Spark reuses workers only for jobs with the same environment. Workers of the previous version end after a minute of
    idleness; the process that forks them stays, idle, until the driver ends.
    """
    environment = spark.sparkContext.environment
    with _environment:
        if version:
            environment[VARIABLE] = version
        try:
            yield
        finally:
            environment.pop(VARIABLE, None)
