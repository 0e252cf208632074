"""The work of a Spark Python worker: ranges of Kafka partitions, decoded in Arrow, become Hudi base files, and the bad
records among them dead letters. Tasks return their reports, or the IngestErrors that ended them, as class and arguments."""

from __future__ import annotations

import pickle
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from hudi_ingest.exceptions import (
    ExpectationViolated,
    IngestError,
    TableUnreachable,
    Terminal,
    WriteIncomplete,
    concerning,
)
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.faults import reach
from hudi_ingest.hudi.files.base_file import BaseFileWriter
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.late_changes import HELD
from hudi_ingest.hudi.files.new_files import RECORD, BaseFileLayout, KeyedLayout
from hudi_ingest.hudi.files.replaced_files import copy_other_rows, within
from hudi_ingest.hudi.storage.storage import StoreError, TableStorage
from hudi_ingest.model.certificate import Certificate
from hudi_ingest.model.complete_through import NO_TIMES, TimesRead
from hudi_ingest.model.counts import Counts
from hudi_ingest.model.offsets import LastRecord, Ranges, Slice, TopicPartition
from hudi_ingest.model.plan import ReplacedFile, RetriedFile
from hudi_ingest.model.report import BadRecordNote, BaseFile, FieldsSeen, LetterFile, LogFile
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.changes import DELETED, LEFT_OUT
from hudi_ingest.records.convert.connect.debezium import MOST_BETWEEN_KEYS
from hudi_ingest.records.kafka_columns import OFFSET
from hudi_ingest.records.row_maker import PARTITIONING, BatchOutcome, Refusal, RowMaker
from hudi_ingest.records.times import NO_TIME
from hudi_ingest.transaction.dead_letters.letter_file import (
    NAMED_BAD_RECORDS,
    LetterLayout,
    LetterWriter,
    records_in_order,
)

if TYPE_CHECKING:
    from hudi_ingest.hudi.files.keyed_writer import KeyedFileWriter, Refuse

EXPECTED_ROW = (
    "a value: the database left it out of an update that does not change it, and it is taken from the key's row. Have the connector take a "
    "snapshot of the source's table: its record of the row counts instead of this one if one transaction reads both "
    "(`transaction.max_records`), and repairs the row if this one is a dead letter (`on_bad_record: dead_letter`)"
)
EXPECTED_LATE = "a change that can be applied late. Replay from this offset (`hudi-ingest replay`), which applies all changes since in their order"
LONGEST_GAPS = 3
"""How many gaps per Kafka partition and task are looked up in Kafka again; see reports.py."""
LOOKED_AT = 100
"""The fields of how many records are named, per Kafka partition and task."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """All that a Spark task needs to turn records into base files. Pickled to the Python workers."""

    storage: TableStorage
    layout: BaseFileLayout | KeyedLayout
    maker: RowMaker
    attempts: Mapping[TopicPartition, int]
    letters: LetterLayout | None = None
    """How bad records are kept; None if they are only counted."""
    most_bad: int | None = 0
    """How many bad records the transaction may have; None for any number."""
    replaced: Mapping[TopicPartition, Ranges] = field(default_factory=dict)
    """The offsets with rows in the files that a replay replaces."""
    only_replaced: bool = False
    """Whether other offsets are filtered out."""
    divided: frozenset[TopicPartition] = frozenset()
    """The Kafka partitions that other tasks read, too."""
    late_before: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Before which Kafka timestamp a partition's records are late."""
    fatal: frozenset[str] = frozenset()
    """The expectations of which no record may violate any."""
    certifies: bool = False
    """Whether reports have certificates."""


@dataclass(frozen=True, slots=True)
class RangesToRead:
    """The input of the tasks. Pickled to the Python workers."""

    source: KafkaSource
    group: str
    tasks: tuple[tuple[Slice, ...], ...]
    """The ranges of each task."""
    columns: frozenset[str]
    """Whether keys and headers are read."""
    follows: Mapping[TopicPartition, LastRecord] = field(default_factory=dict)
    """The records before the first range of each partition."""

    def before(self, slices: Iterable[Slice]) -> dict[TopicPartition, LastRecord]:
        """Return the records before those of the ranges that are the first of their partitions."""
        firsts = {
            source: min(part.start for task in self.tasks for part in task if part.source == source)
            for source in self.follows.keys() & {slice_.source for slice_ in slices}
        }
        return {each.source: self.follows[each.source] for each in slices if firsts.get(each.source) == each.start}

    def divided(self, number: int) -> Iterator[TopicPartition]:
        """Yield the Kafka partitions of a task that other tasks read, too."""
        for part in self.tasks[number]:
            if any(other.source == part.source and other != part for task in self.tasks for other in task):
                yield part.source


@dataclass(frozen=True, slots=True)
class CopyTask:
    """All that a Spark task needs to copy rows outside the replay's `slices` from the files that the replay replaces."""

    storage: TableStorage
    layout: BaseFileLayout
    slices: tuple[Slice, ...]
    attempts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport(Counts):
    """One Spark task's report about one Kafka partition; `letters` are the files whose first letter is from it."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    value_bytes: int
    files: tuple[BaseFile | LogFile, ...]
    bad_records: tuple[BadRecordNote, ...]
    letters: tuple[LetterFile, ...] = ()
    replaced: int = 0
    """Number of records whose offsets are among the task's `replaced`."""
    longest_gaps: Ranges = ()
    """The longest offset ranges between two records, at most LONGEST_GAPS. Only the slice's report counts `gaps`."""
    fields: FieldsSeen | None = None
    times: TimesRead = NO_TIMES
    violations: Mapping[str, int] = field(default_factory=dict)
    certificate: Certificate | None = None
    last: LastRecord | None = None

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OutOfOrder(IngestError):
    """A record needs a row that another task may be writing."""


class WorkerTraceback(Exception):
    """The traceback of a Spark worker's error, set as that error's cause in the driver."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def run_ranges(task: WriteTask, reading: RangesToRead, numbers: Iterator[int]) -> Iterator[TaskReport | bytes]:
    """Write the ranges of the tasks with these numbers, in a Spark Python worker. Yields as `outcomes` does."""
    # Imported here because it loads compiled code, which drivers do not need.
    from hudi_ingest.kafka.range_reader import Anchors, read_ranges

    own = [*numbers]
    ranges = [slice_ for number in own for slice_ in reading.tasks[number]]
    task = replace(task, divided=frozenset(source for number in own for source in reading.divided(number)))
    anchors = Anchors(ranges, reading.before(ranges))
    with closing(read_ranges(reading.source, reading.group, ranges, reading.columns, anchors)) as records:
        for outcome in outcomes(task, records):
            if isinstance(outcome, TaskReport):
                outcome = replace(outcome, last=anchors.last.get(outcome.source))
            yield outcome


def outcomes(task: WriteTask, records: Iterator[tuple[TopicPartition, pa.RecordBatch]]) -> Iterator[TaskReport | bytes]:
    """Write records of Kafka partitions, one partition after another, each in offset order.

    Yields one report per Kafka partition; or only the packed IngestError that ended the task, whose files are then
    deleted. Other errors are raised and end the Spark job.
    """
    try:
        with _store_errors(task.storage):
            yield from _write_records(task, records)
    except IngestError as error:
        yield packed(error)


@contextmanager
def _store_errors(storage: TableStorage) -> Iterator[None]:
    """Raises TableUnreachable for an error of an object store or a full disk, which says what to do about it."""
    try:
        yield
    except OSError as error:
        explained = storage.explained(error)
        if not isinstance(explained, StoreError):
            raise
        raise TableUnreachable(
            f"files of the table at {storage.base_path} cannot be written: {explained}. {explained.remedy}"
        ) from error


def run_retry(
    task: WriteTask, files: Sequence[RetriedFile], slices: Sequence[Slice], numbers: Iterator[int]
) -> Iterator[TaskReport | bytes]:
    """Write the dead letters within `slices` of the files with these numbers, in a Spark Python worker, like `run_ranges`."""
    task_files = [files[number] for number in numbers]
    yield from outcomes(task, records_in_order(task.storage, task_files, slices))


@dataclass(slots=True)
class RangeProgress:
    """A task's progress in one Kafka partition."""

    first_offset: int
    last_offset: int
    counts: Counts = field(default_factory=Counts)
    value_bytes: int = 0
    replaced: int = 0
    bad_records: list[BadRecordNote] = field(default_factory=list)
    gaps: Ranges = ()
    fields: FieldsSeen | None = None
    times: TimesRead = NO_TIMES
    violations: Counter[str] = field(default_factory=Counter)
    newest: pa.RecordBatch | None = None
    """The last records of the batch before, if rows may need them."""
    certificate: Certificate | None = None

    def add(self, source: TopicPartition, batch: pa.RecordBatch, outcome: BatchOutcome, dropped: int) -> None:
        """Count the outcome of a batch. `dropped`: its records that were not asked for."""
        self.value_bytes += batch["value"].nbytes
        self.violations.update(outcome.violations)
        self.fields = FieldsSeen.combined((self.fields, outcome.fields))
        self._note_bad(source, batch, outcome.bad)
        deletes = (pc.sum(outcome.rows[DELETED]).as_py() or 0) if DELETED in outcome.rows.column_names else 0
        counts = Counts(
            rows=outcome.rows.num_rows - outcome.moves,
            skipped=outcome.skipped,
            filtered=outcome.filtered + dropped,
            rejected=len(outcome.bad),
            deletes=deletes - outcome.moves,
            moves=outcome.moves,
            **Counter(outcome.control.values()),
        )
        self.counts = Counts.total((self.counts, counts))

    def refuse(self, source: TopicPartition, rows: pa.Table, reasons: Sequence[str]) -> tuple[pa.Table, list[Refusal]]:
        """Count the records of rows that cannot be filled, or are held, as bad ones. Returns a row of each record, and why it is bad."""
        # A record that moves its row has two.
        first = np.unique(rows[OFFSET].to_numpy(), return_index=True)[1]
        moves, reasons = rows.num_rows - len(first), [reasons[place] for place in first]
        rows = rows.take(pa.array(first))
        self.counts = replace(
            self.counts,
            rows=self.counts.rows - rows.num_rows,
            rejected=self.counts.rejected + rows.num_rows,
            moves=self.counts.moves - moves,
        )
        lacking = rows[LEFT_OUT].to_pylist() if LEFT_OUT in rows.column_names else [None] * rows.num_rows
        bad = [
            Refusal(index, PARTITIONING, "", EXPECTED_LATE, reason)
            if reason in HELD
            else Refusal(index, PARTITIONING, names[0], EXPECTED_ROW, reason)
            for index, (names, reason) in enumerate(zip(lacking, reasons, strict=True))
        ]
        self._note_bad(source, pa.RecordBatch.from_pydict({"offset": rows[OFFSET].combine_chunks()}), bad)
        return rows, bad

    def _note_bad(self, source: TopicPartition, batch: pa.RecordBatch, bad: Sequence[Refusal]) -> None:
        self.bad_records += notes_of(source, batch, bad[: NAMED_BAD_RECORDS - len(self.bad_records)])

    def report(
        self, source: TopicPartition, writer: BaseFileWriter | KeyedFileWriter, letters: Sequence[LetterWriter]
    ) -> TaskReport:
        """Return the report of the partition. `letters`: the closed writers of dead letters."""
        superseded, truncated = writer.superseded.get(source, 0), writer.truncated.get(source, 0)
        return TaskReport(
            topic=source.topic,
            partition=source.partition,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            **replace(self.counts, superseded=superseded, truncated=truncated).counts,
            value_bytes=self.value_bytes,
            files=tuple(writer.files.get(source, ())),
            bad_records=tuple(self.bad_records),
            letters=tuple(written.files[source] for written in letters if source in written.files),
            replaced=self.replaced,
            longest_gaps=self.gaps,
            fields=self.fields,
            times=self.times,
            violations=dict(self.violations),
            certificate=self.certificate,
            last=None,
        )


def _require_met(fatal: frozenset[str], source: TopicPartition, batch: pa.RecordBatch, outcome: BatchOutcome) -> None:
    """Raises ExpectationViolated for the first record that violates a fatal expectation."""
    if not fatal & outcome.violations.keys():
        return
    first = next(bad for bad in outcome.bad if bad.rule in fatal)
    (note,) = notes_of(source, batch, [first])
    number = outcome.violations[first.rule]
    others = f", and {counted(number - 1, 'record')} after it" if number > 1 else ""
    with concerning(note.topic, note.partition, note.offset):
        raise ExpectationViolated(
            f"{note}{others}: the severity of expectation {first.rule} is fail, so the transaction is refused and nothing of it is visible. "
            "Correct the producer and the records, or change the expectation's condition or severity; then the next transaction goes on here."
        )


def run_copies(task: CopyTask, files: Iterator[ReplacedFile]) -> Iterator[tuple[TopicPartition, BaseFile] | bytes]:
    """Copy rows, in a Spark Python worker. Yields the copies, each with the partition whose slice reports it; last, the IngestError
    that ended the task, if any."""
    try:
        for file in files:
            origin = _row_source(file.source, task.attempts)
            with concerning(file.topic, file.partition), _store_errors(task.storage):
                copy = copy_other_rows(task.storage, task.layout, origin, file, task.slices)
            yield file.source, copy
    except IngestError as error:
        yield packed(error)


def _write_records(task: WriteTask, records: Iterator[tuple[TopicPartition, pa.RecordBatch]]) -> list[TaskReport]:
    progress_of: dict[TopicPartition, RangeProgress] = {}
    refused = False

    def refuse(source: TopicPartition, rows: pa.Table, reasons: Sequence[str]) -> None:
        rows, bad = progress_of[source].refuse(source, rows, reasons)
        if late is not None:
            record = pa.Table.from_struct_array(rows[RECORD]).combine_chunks().to_batches()[0]
            late.write(_row_source(source, task.attempts), record, bad)

    def too_many() -> bool:
        most = task.most_bad
        return most is not None and sum(progress.counts.rejected for progress in progress_of.values()) > most

    # Those refused when rows are written have a file of their own, or one file's letters would not be in offset order.
    with _letter_writer(task) as letters, _letter_writer(task) as late, _file_writer(task, refuse) as writer:
        for source, batch in records:
            with concerning(source.topic, source.partition, batch["offset"][0].as_py()):
                _note_offsets(progress_of, source, batch)
                batch, outcome = _made(task, progress_of[source], source, batch)
                refused = too_many()
                if not refused:
                    _write_outcome(task, source, batch, outcome, writer, letters)
        if not refused:
            writer.close()
            # The last rows may be refused only now.
            refused = too_many()
        if refused:
            # The transaction will be refused, so no file of this task may stay.
            writer.discard()
        closed = [*filter(None, (letters, late))]
        for written in closed:
            (written.discard if refused else written.close)()
        reach("task_done")
        return [progress.report(source, writer, closed) for source, progress in progress_of.items()]


def _made(
    task: WriteTask, progress: RangeProgress, source: TopicPartition, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, BatchOutcome]:
    """Make rows of the batch's records that were asked for, which are returned, too, and add them to the progress."""
    read, dropped = times_read(batch["timestamp"], task.late_before.get(source)), 0
    progress.times = TimesRead.combined((progress.times, read))
    if task.certifies:
        # Imported here because it loads compiled code, which drivers do not need.
        from hudi_ingest.records.digests import record_hashes, row_hashes, total

        digest_read = total(record_hashes(source, batch))
    if task.replaced or task.only_replaced:
        had_rows = within(batch["offset"], task.replaced.get(source, ()))
        progress.replaced += had_rows.true_count
        if task.only_replaced:
            dropped = batch.num_rows - had_rows.true_count
            batch = batch.filter(had_rows)
    outcome = task.maker.make(source, batch, LOOKED_AT if progress.fields is None else 0, progress.newest)
    if task.maker.key_changes is not None:
        progress.newest = _newest(progress.newest, batch)
    _require_met(task.fatal, source, batch, outcome)
    progress.add(source, batch, outcome, dropped)
    if task.certifies:
        is_keyed = DELETED in outcome.rows.column_names
        own = Certificate(digest_read, None if is_keyed else total(row_hashes(outcome.rows, source)))
        progress.certificate = own + progress.certificate if progress.certificate else own
    return batch, outcome


def _write_outcome(
    task: WriteTask,
    source: TopicPartition,
    batch: pa.RecordBatch,
    outcome: BatchOutcome,
    writer: BaseFileWriter | KeyedFileWriter,
    letters: LetterWriter | None,
) -> None:
    """Write a batch's truncate, rows and dead letters. Raises OutOfOrder if they need what another task may be writing."""
    origin = _row_source(source, task.attempts)
    if outcome.truncated_at is not None:
        if source in task.divided:
            raise OutOfOrder(f"{source}: a truncate deletes rows that another task may be writing")
        assert not isinstance(writer, BaseFileWriter), "only tables with keys apply truncates"
        writer.truncate(origin, outcome.truncated_at)
    if outcome.rows.num_rows:
        if LEFT_OUT in outcome.rows.column_names and source in task.divided:
            raise OutOfOrder(f"{source}: a record needs a row that another task may be writing")
        are_late = isinstance(task.layout, KeyedLayout) and task.layout.past is not None
        writer.write(origin, outcome.rows if letters is None else _with_records(outcome, batch, are_late))
    if outcome.bad and letters is not None:
        letters.write(origin, batch, outcome.bad)


def _newest(before: pa.RecordBatch | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the last MOST_BETWEEN_KEYS records, as a copy, or all of the batch would stay in memory."""
    last = batch.slice(max(0, batch.num_rows - MOST_BETWEEN_KEYS))
    both = last if before is None else pa.concat_batches([before, last])
    return both.take(pa.array([*range(both.num_rows)][-MOST_BETWEEN_KEYS:], pa.int64()))


def _row_source(source: TopicPartition, attempts: Mapping[TopicPartition, int]) -> RowSource:
    """Its write token keeps the files of attempts apart, of which several may be alive: ops are retried, and Spark retries
    tasks silently, runs slow ones twice and repeats a stage whose executor is lost. Spark numbers the attempts anew in each
    stage attempt; their ids are unique in a driver, and an op that uses another driver is another attempt."""
    context = TaskContext.get()
    return RowSource(source, f"{source.partition}-{attempts[source]}-{context.taskAttemptId() if context else 0}")


def _with_records(outcome: BatchOutcome, batch: pa.RecordBatch, are_late: bool) -> pa.Table:
    """Return the rows, and for those that may yet be refused their Kafka records: late ones, and those that lack a value."""
    if LEFT_OUT not in outcome.rows.column_names and not are_late:
        return outcome.rows
    places = pa.array(range(outcome.rows.num_rows)) if outcome.kept is None else outcome.kept
    if not are_late:
        lacking = pc.is_valid(outcome.rows[LEFT_OUT]).combine_chunks()
        places = pc.if_else(lacking, places, pa.scalar(None, places.type))
    records = batch.to_struct_array().take(places)
    return outcome.rows.append_column(RECORD, records)


def _file_writer(task: WriteTask, refuse: Refuse) -> BaseFileWriter | KeyedFileWriter:
    if isinstance(task.layout, BaseFileLayout):
        return BaseFileWriter(task.storage, task.layout)
    # Imported here because it loads compiled code, which drivers do not need.
    from hudi_ingest.hudi.files.keyed_writer import KeyedFileWriter

    return KeyedFileWriter(task.storage, task.layout, refuse)


def _letter_writer(task: WriteTask) -> AbstractContextManager[LetterWriter | None]:
    return nullcontext() if task.letters is None else LetterWriter(task.storage, task.letters)


def _note_offsets(
    progress_of: dict[TopicPartition, RangeProgress], source: TopicPartition, batch: pa.RecordBatch
) -> None:
    """Record the batch's offsets and gaps. Raises WriteIncomplete if it does not continue its partition's progress."""
    offsets = batch["offset"]
    first, last = offsets[0].as_py(), offsets[batch.num_rows - 1].as_py()
    progress = progress_of.get(source)
    before = progress.last_offset if progress else first - 1
    steps = pc.subtract(offsets[1:], offsets[:-1])
    if first <= before or (len(steps) and pc.min(steps).as_py() < 1):
        raise WriteIncomplete(
            f"{source}: the broker delivered offsets out of order after {before}. Nothing of it is visible."
        )
    if progress:
        progress.last_offset = last
    else:
        progress = progress_of[source] = RangeProgress(first, last)
    if first > before + 1 or (len(steps) and pc.max(steps).as_py() > 1):
        progress.gaps = longest((*progress.gaps, (before + 1, first), *_gaps(offsets, steps)))


def times_read(timestamps: pa.Array, late_before: int | None) -> TimesRead:
    """`timestamps`: a batch's, of KAFKA_TIME; `late_before`: None if none is late."""
    times = timestamps.cast(pa.int64())
    extent = pc.min_max(times).as_py()
    if extent["min"] == NO_TIME:
        times = times.filter(pc.not_equal(times, NO_TIME))
        extent = pc.min_max(times).as_py()
    if extent["max"] is None:
        return NO_TIMES
    if late_before is None or extent["min"] >= late_before:
        return TimesRead(extent["min"], extent["max"])
    late = pc.sum(pc.less(times, late_before)).as_py()
    return TimesRead(extent["min"], extent["max"], late, extent["min"])


def _gaps(offsets: pa.Array, steps: pa.Array) -> Ranges:
    """The longest ranges between two of the offsets."""
    if not len(steps):
        return ()
    places = pc.top_k_unstable(steps, LONGEST_GAPS).to_pylist()
    return tuple((offsets[place].as_py() + 1, offsets[place + 1].as_py()) for place in places)


def longest(gaps: Iterable[tuple[int, int]]) -> Ranges:
    """At most LONGEST_GAPS gaps, the longest first, without empty ones."""
    return tuple(sorted((gap for gap in gaps if gap[0] < gap[1]), key=lambda gap: gap[0] - gap[1])[:LONGEST_GAPS])


def notes_of(source: TopicPartition, batch: pa.RecordBatch, bad: Sequence[Refusal]) -> list[BadRecordNote]:
    """Return the faults of a batch's bad records, and their positions in Kafka."""
    offsets = batch["offset"]
    return [
        BadRecordNote(
            source.topic,
            source.partition,
            offsets[refusal.index].as_py(),
            refusal.field,
            refusal.expected,
            refusal.found,
        )
        for refusal in bad
    ]


def packed(error: IngestError) -> bytes:
    """Pickle the error and its traceback, for `require_none`."""
    return pickle.dumps((error, "".join(traceback.format_exception(error))))


def require_none(errors: Iterable[bytes]) -> None:
    """Raises the tasks' most important error: terminal ones first, then the lowest topic, partition and offset."""
    unpacked: list[tuple[IngestError, str]] = [pickle.loads(packed_error) for packed_error in errors]
    if unpacked:
        error, worker_traceback = min(unpacked, key=lambda failure: _rank(failure[0]))
        raise error from WorkerTraceback(worker_traceback)


def _rank(error: IngestError) -> tuple[bool, str, int, int]:
    partition = -1 if error.partition is None else error.partition
    offset = -1 if error.offset is None else error.offset
    return not isinstance(error, Terminal), error.topic or "", partition, offset
