"""Bad records: how many a transaction may have, and the files of dead letters that keep them: their contents, how a write task
writes one, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.exceptions import BadRecord, TableUnreachable, WriteIncomplete
from hudi_ingest.faults import reach
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.new_files import DiscardedOnError
from hudi_ingest.hudi.storage.paths import dead_letters_folder
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.kafka.backlog import bounded
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import RetriedFile, TransactionKind
from hudi_ingest.model.report import BadRecordNote, LetterFile, SliceReport
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.row_maker import Refusal
from hudi_ingest.records.times import KAFKA_TIME, kafka_times

NAMED_BAD_RECORDS = 5
"""How many bad records a report names; all of them are counted."""
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_RECORD = [
    pa.field("topic", pa.string(), False),
    pa.field("partition", pa.int32(), False),
    pa.field("offset", pa.int64(), False),
    pa.field("timestamp", KAFKA_TIME, False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS),
]
LETTERS = pa.schema(
    [
        *_RECORD,
        pa.field("stage", pa.string(), False),
        pa.field("field", pa.string(), False),
        pa.field("expected", pa.string(), False),
        pa.field("found", pa.string(), False),
        pa.field("pipeline", pa.string(), False),
        pa.field("transaction_id", pa.string(), False),
        pa.field("shape", pa.string(), False),
    ]
)
"""One row per dead letter: the record as it was in Kafka, then what is wrong with it and which pipeline and transaction found
it. Withheld bytes are null."""
ROW_GROUP_LETTERS = 10_000
READ_LETTERS = 1000
BUFFERED_BYTES = 16 * 1024 * 1024
"""Bytes of dead letters, as counted by Arrow, to buffer before a row group is written."""


@dataclass(frozen=True, slots=True)
class LetterLayout:
    """The values that all dead letters of a transaction share."""

    instant: str
    pipeline: str
    transaction_id: str
    shape: str
    """Digest of the settings by which the records were judged."""
    withhold: bool
    """Whether the records' own bytes are left out."""


class LetterWriter(DiscardedOnError):
    """Writes a task's bad records to one file, named after the first of them.

    It needs no Hudi marker: the file counts only if a committed manifest lists it, otherwise the sweep deletes it. After `close`,
    `files` holds it by the Kafka partition of its first letter.
    """

    def __init__(self, storage: TableStorage, layout: LetterLayout) -> None:
        self.files: dict[TopicPartition, LetterFile] = {}
        self._storage = storage
        self._layout = layout
        self._buffered: list[pa.RecordBatch] = []
        self._letters = 0
        self._origin: TopicPartition | None = None
        self._path = ""
        self._stream: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, origin: RowSource, batch: pa.RecordBatch, refusals: Sequence[Refusal]) -> None:
        """Add the refused records of a batch with the columns offset, timestamp, key, value and headers.
        Raises OSError."""
        if self._origin is None:
            self._origin = origin.source
            self._path = _path(origin, batch["offset"][refusals[0].index].as_py(), self._layout.instant)
        self._buffered.append(letters_of(origin.source, batch, refusals, self._layout))
        self._letters += len(refusals)
        if (
            sum(buffered.num_rows for buffered in self._buffered) >= ROW_GROUP_LETTERS
            or sum(buffered.nbytes for buffered in self._buffered) >= BUFFERED_BYTES
        ):
            self._flush()

    def close(self) -> None:
        if self._origin is None:
            return
        self._flush()
        assert self._writer is not None
        assert self._stream is not None
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        self.files[self._origin] = LetterFile(self._path, self._letters, size)
        reach("letters_closed")

    def discard(self) -> None:
        for part in (self._writer, self._stream):
            if part is not None:
                # The file is deleted next, so errors of a full disk or a lost connection do not matter here.
                with suppress(OSError, pa.ArrowException):
                    part.close()
        if self._path:
            # A file that cannot be deleted now is in no manifest, and the sweep finds it.
            with suppress(OSError):
                self._storage.delete(self._path)
        self._buffered.clear()
        self.files.clear()

    def _flush(self) -> None:
        buffered, self._buffered = self._buffered, []
        if not buffered:
            return
        if self._writer is None:
            self._stream = self._storage.open_output(self._path)
            self._writer = pq.ParquetWriter(self._stream, LETTERS, compression="zstd")
        self._writer.write_table(pa.Table.from_batches(buffered))


def letters_of(
    source: TopicPartition, batch: pa.RecordBatch, refusals: Sequence[Refusal], layout: LetterLayout
) -> pa.RecordBatch:
    """The dead letters of a batch of one partition, of schema LETTERS."""
    refused = _with_kafka_times(batch.take(pa.array([refusal.index for refusal in refusals], pa.int64())))
    count = len(refusals)
    withheld = ("key", "value", "headers") if layout.withhold else ()
    place = {"topic": source.topic, "partition": source.partition}
    record = [
        pa.repeat(pa.scalar(place[column.name], column.type), count)
        if column.name in place
        else pa.nulls(count, column.type)
        if column.name in withheld
        else refused[column.name].cast(column.type)
        for column in _RECORD
    ]
    reasons = [pa.array([getattr(refusal, name) for refusal in refusals], pa.string()) for name in _TOLD]
    common = [pa.repeat(text, count) for text in (layout.pipeline, layout.transaction_id, layout.shape)]
    return pa.RecordBatch.from_arrays([*record, *reasons, *common], schema=LETTERS)


def _with_kafka_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert timestamps from microseconds, which older files have, to Kafka's milliseconds."""
    place = batch.schema.get_field_index("timestamp")
    if place < 0 or batch.schema.field(place).type == KAFKA_TIME:
        return batch
    return batch.set_column(place, batch.schema.field(place).with_type(KAFKA_TIME), kafka_times(batch["timestamp"]))


_TOLD = ("stage", "field", "expected", "found")


def _path(origin: RowSource, first_offset: int, instant: str) -> str:
    folder = dead_letters_folder(instant)
    # Built like a base file's name, so it is unique to an attempt and the sweep can tell whose file it is.
    identifier = file_groups.file_id(origin.source.topic, origin.source.partition, first_offset, folder, instant)
    return f"{folder}/{identifier}_{origin.write_token}_{instant}.parquet"


def most_bad_records(pipeline: Pipeline, kind: TransactionKind) -> int | None:
    """The number that a transaction may have; None for any. A retry's bad records have all been counted before."""
    if kind is TransactionKind.RETRY:
        return None
    return 0 if pipeline.on_bad_record == "fail" else pipeline.max_bad_records


def keeps_letters(pipeline: Pipeline, kind: TransactionKind) -> bool:
    """Whether bad records become dead letters. In a retry they stay dead letters whatever the pipeline file says now."""
    return pipeline.on_bad_record == "dead_letter" or kind is TransactionKind.RETRY


def withholds_bytes(pipeline: Pipeline, kind: TransactionKind) -> bool:
    """Whether dead letters must not hold the records' bytes, because they include masked values. A retry's letters keep the
    bytes they have: removing them would lose the records."""
    if kind is TransactionKind.RETRY:
        return False
    return any(transform.kind == "mask" for transform in pipeline.transforms) and not pipeline.dead_letters.keep_masked


def require_bad_accounted(pipeline: Pipeline, kind: TransactionKind, reports: Sequence[SliceReport]) -> None:
    """Raises BadRecord if the whole transaction has more bad records than the pipeline allows, WriteIncomplete unless each of
    them is a dead letter, if they are kept."""
    rejected = sum(report.rejected for report in reports)
    records = sum(report.rows + report.filtered + report.rejected for report in reports)
    # The first of each slice before the second of any.
    ranks = zip_longest(*(report.bad_records for report in sorted(reports, key=lambda report: report.slice)))
    notes = [note for rank in ranks for note in rank if note is not None]
    limit = most_bad_records(pipeline, kind)
    if limit is not None and rejected > limit:
        number = "1 record cannot become a row" if rejected == 1 else f"{rejected} records cannot become rows"
        setting = "on_bad_record is fail" if pipeline.on_bad_record == "fail" else f"max_bad_records is {limit}"
        raise _refusal(pipeline, f"{number}, and {setting}", rejected, notes)
    ratio = None if kind is TransactionKind.RETRY else pipeline.max_bad_ratio
    if ratio is not None and records and rejected / records > ratio:
        ratio_text = f"{rejected} of {records} records ({rejected / records:.2%}) cannot become rows, and max_bad_ratio is {ratio:g}"
        raise _refusal(pipeline, ratio_text, rejected, notes)
    kept = sum(file.letters for report in reports for file in report.letters)
    expected = rejected if keeps_letters(pipeline, kind) else 0
    if kept != expected:
        raise WriteIncomplete(
            f"pipeline {pipeline.name}: {rejected} bad records are reported, but the files of dead letters hold {kept}. "
            "Nothing was published; run the ops again."
        )


def _refusal(pipeline: Pipeline, limit: str, count: int, notes: Sequence[BadRecordNote]) -> BadRecord:
    alternative = "raise that limit"
    if pipeline.on_bad_record == "fail":
        alternative = (
            "continue without such records with on_bad_record: skip, or dead_letter, which keeps them for a retry"
        )
    return BadRecord(
        pipeline=pipeline.name,
        limit=limit,
        count=count,
        records=sorted(notes[:NAMED_BAD_RECORDS], key=lambda note: (note.topic, note.partition, note.offset)),
        alternative=alternative,
    )


def letter_batches(
    storage: TableStorage, path: str, columns: Sequence[str] | None = None, without: Sequence[Slice] = ()
) -> Iterator[pa.RecordBatch]:
    """A file's dead letters in offset order, without those in the ranges `without`; few in memory at a time.

    `columns` includes topic, partition and offset, or is None for all. Raises TableUnreachable.
    """
    try:
        for batch in storage.parquet_batches(path, columns, READ_LETTERS):
            for slice_ in without:
                batch = batch.filter(pc.invert(_within(batch, slice_)))
            if batch.num_rows:
                yield _with_kafka_times(batch)
    except (OSError, pa.ArrowException) as error:
        raise TableUnreachable(
            f"the dead letters {path} of the table at {storage.base_path} cannot be read: {error}. Check the path, its "
            "permissions and the network; if the file is gone, restore it from a copy of the table."
        ) from error


def read_letters(
    storage: TableStorage, path: str, columns: Sequence[str] | None = None, without: Sequence[Slice] = ()
) -> pa.Table:
    """Like `letter_batches`, but all at once, for small columns."""
    schema = LETTERS if columns is None else pa.schema([LETTERS.field(name) for name in columns])
    return pa.Table.from_batches(letter_batches(storage, path, columns, without), schema)


def records_for_retry(
    storage: TableStorage, files: Sequence[RetriedFile], slices: Sequence[Slice]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The records of the files' dead letters within `slices`, each batch of one partition: columns topic, partition, offset,
    timestamp, key, value and headers. Raises TableUnreachable."""
    return by_source(bounded(_batches_for_retry(storage, files, slices)))


def records_in_order(
    storage: TableStorage, files: Sequence[RetriedFile], slices: Sequence[Slice]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Like `records_for_retry`, one Kafka partition after another, each in offset order. The files' ranges do not overlap in a partition."""
    if len(files) == 1:
        yield from records_for_retry(storage, files, slices)
        return
    for slice_ in slices:
        starts: list[tuple[int, RetriedFile]] = []
        for file in files:
            batches = _batches_for_retry(storage, [file], [slice_]) if file.concerns([slice_]) else iter(())
            first = next((batch["offset"][0].as_py() for batch in batches if batch.num_rows), None)
            starts += [] if first is None else [(first, file)]
        ordered = [file for _, file in sorted(starts, key=lambda start: start[0])]
        yield from records_for_retry(storage, ordered, [slice_])


def by_source(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Cut the batches where the next Kafka partition begins."""
    for batch in batches:
        while batch.num_rows:
            source = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
            same = pc.and_(pc.equal(batch["topic"], source.topic), pc.equal(batch["partition"], source.partition))
            end = pc.index(same, False).as_py()
            yield source, batch if end < 0 else batch.slice(0, end)
            batch = batch.slice(batch.num_rows if end < 0 else end)


def _batches_for_retry(
    storage: TableStorage, files: Sequence[RetriedFile], slices: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    for file in files:
        for batch in letter_batches(storage, file.path, [column.name for column in _RECORD], file.without):
            selected = pa.repeat(False, batch.num_rows)
            for slice_ in slices:
                selected = pc.or_(selected, _within(batch, slice_))
            yield batch.filter(selected)


def _within(letters: pa.RecordBatch, range_: Slice) -> pa.BooleanArray:
    source = pc.and_(pc.equal(letters["topic"], range_.topic), pc.equal(letters["partition"], range_.partition))
    offsets = letters["offset"]
    return pc.and_(source, pc.and_(pc.greater_equal(offsets, range_.start), pc.less(offsets, range_.end)))
