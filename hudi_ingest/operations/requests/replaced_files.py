"""Which base files hold rows of a replay's range, and what commits recorded about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import RangeRefused
from hudi_ingest.hudi.files.replaced_files import in_slices, offsets_by_slice
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, TableFile
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, difference, intersection, length, ranges
from hudi_ingest.model.plan import ReplacedFile, TransactionKind
from hudi_ingest.operations.requests.allowed_ranges import RemainingRanges, range_facts, total
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION


@dataclass(frozen=True, slots=True)
class AccountedSlice:
    """One slice of a commit's accounting; `sequence` is that of its transaction."""

    sequence: int
    slice: Slice
    rows: int


@dataclass(frozen=True, slots=True)
class MissingRows:
    """Number of offsets of a range that have no row in the table now. According to the commits, `deleted` of them had one.
    For `unknown` more it cannot be told: their commit is archived, or the range has only a part of what it read."""

    deleted: int
    unknown: int


@dataclass(frozen=True, slots=True)
class ReplaySurvey:
    """The effect of a replay as a single transaction. As it takes `transactions` of them, files at their borders are
    rewritten more than once."""

    pipeline: str
    remaining: RemainingRanges
    replaces: tuple[ReplacedFile, ...]
    missing: MissingRows
    transactions: int
    upserts: bool = False
    """Whether the table is keyed: changes are applied again, and no file is replaced."""

    @property
    def rewritten(self) -> tuple[ReplacedFile, ...]:
        """Files whose other rows are copied."""
        return tuple(file for file in self.replaces if file.kept)

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "ranges": range_facts(self.remaining),
            "offsets": total(self.remaining),
            "transactions": self.transactions,
            "files": [asdict(file) for file in self.replaces],
            "deleted": self.missing.deleted,
            "unknown": self.missing.unknown,
        }


def files_to_replace(
    files: Iterable[TableFile], slices: Sequence[Slice], read: Callable[[str], pa.Table], where: str
) -> tuple[ReplacedFile, ...]:
    """Return the live files with rows of the slices. `read` returns a file's Kafka columns; it is called only if the file's
    statistics do not settle the question. Raises RangeRefused, which names `where`."""
    replaced, problems = [], []
    for file in files:
        if not _may_hold(file, slices):
            continue
        owner = _whole_in(file, slices)
        if owner is not None:
            replaced.append(ReplacedFile(file.path, file.rows, 0, file.size_bytes, owner.topic, owner.partition))
            continue
        columns = read(file.path)
        if not {PARTITION, OFFSET} <= set(columns.column_names):
            problems.append(
                f"file {file.path} was written by another writer without Kafka columns, so it is not known which of its rows "
                "are in the range; remove that writer's rows, or choose a range that the file's offsets do not meet"
            )
            continue
        mask = in_slices(columns, slices)
        rows = pc.sum(mask).as_py() or 0
        if not rows:
            continue
        other_rows = columns.filter(pc.invert(mask))
        if other_rows.num_rows and not other_rows[OFFSET].is_valid().combine_chunks().true_count:
            problems.append(
                f"file {file.path} holds {rows} rows of the range and {other_rows.num_rows} of another writer without Kafka "
                "columns; cluster the table so that they end up in files with other rows"
            )
            continue
        owner = next(slice_ for slice_ in sorted(slices) if offsets_by_slice(columns, [slice_]))
        replaced.append(
            ReplacedFile(file.path, rows, other_rows.num_rows, file.size_bytes, owner.topic, owner.partition)
        )
    if problems:
        raise RangeRefused(where, problems)
    return tuple(sorted(replaced))


def first_offsets(
    files: Iterable[TableFile],
    accounts: Iterable[AccountedSlice],
    sources: Iterable[TopicPartition],
    read: Callable[[str], pa.Table],
) -> dict[TopicPartition, int]:
    """Return each partition's smallest offset in any live file or any commit on the active timeline; partitions with no
    offset there are absent.

    For tables whose checkpoints do not say what they cover. Everything from there to the committed offset counts as
    covered: the opposite mistake would write rows twice.
    """
    partitions = set(sources)
    first: dict[TopicPartition, int] = {}
    for account in accounts:
        if account.slice.source in partitions:
            first[account.slice.source] = min(account.slice.start, first.get(account.slice.source, account.slice.start))
    for file in files:
        unread = [
            Slice(source.topic, source.partition, 0, first.get(source, 2**63 - 1)) for source in sorted(partitions)
        ]
        if not _may_hold(file, unread):
            continue
        for source, offsets in offsets_by_slice(read(file.path), unread).items():
            first[source] = offsets[0][0]
    return first


def accounted_slices(commits: Iterable[CommittedInstant], transaction_key: str) -> tuple[AccountedSlice, ...]:
    """Return the slices of the commits' accountings, newest transaction first."""
    accounts = []
    for commit in commits:
        accounting = commit.accounting(transaction_key)
        if accounting.respect_deletes or accounting.kind is TransactionKind.RETRY:
            # It skipped offsets without a row, or took individual dead letters: the commits before it say more.
            continue
        accounts += [AccountedSlice(accounting.sequence, account.slice, account.rows) for account in accounting.slices]
    return tuple(sorted(accounts, key=lambda account: -account.sequence))


def missing_rows(
    slices: Sequence[Slice], present: Mapping[TopicPartition, Ranges], accounts: Sequence[AccountedSlice]
) -> MissingRows:
    """Count the offsets of the slices that have no row. `accounts` are newest first: a replay counts instead of the
    transactions that read the same offsets before it."""
    deleted = unknown = 0
    for slice_ in slices:
        present_ranges = present.get(slice_.source, ())
        unexplained = ranges([(slice_.start, slice_.end)])
        for account in accounts:
            read = account.slice
            if read.source != slice_.source:
                continue
            explained = intersection(unexplained, ranges([(read.start, read.end)]))
            unexplained = difference(unexplained, explained)
            without_row = length(difference(explained, present_ranges))
            if account.rows == read.count or length(explained) == read.count:
                # If all of the commit's offsets had rows, or all of them are in the range, the number that had one is known.
                deleted += (
                    without_row
                    if account.rows == read.count
                    else max(0, account.rows - length(explained) + without_row)
                )
            else:
                unknown += without_row
        unknown += length(difference(unexplained, present_ranges))
    return MissingRows(deleted, unknown)


def _may_hold(file: TableFile, slices: Iterable[Slice]) -> bool:
    return any(
        _meets(file.topics, slice_.topic, slice_.topic)
        and _meets(file.partitions, slice_.partition, slice_.partition)
        and _meets(file.offsets, slice_.start, slice_.end - 1)
        for slice_ in slices
    )


def _meets(bounds: tuple[Any, Any] | None, least: Any, greatest: Any) -> bool:
    """Return whether the bounds overlap `least` to `greatest`; a file without statistics may hold anything."""
    return bounds is None or bool(bounds[0] <= greatest and least <= bounds[1])


def _whole_in(file: TableFile, slices: Sequence[Slice]) -> Slice | None:
    """Return a slice that the file has rows of, if its statistics alone say that all its rows are in the slices."""
    if file.partitions is None or file.offsets is None:
        return None
    topics = file.topics or (slices[0].topic, slices[0].topic)
    if topics[0] != topics[1]:
        return None
    low, high = file.offsets
    holders = [
        next(
            (
                slice_
                for slice_ in slices
                if slice_.source == TopicPartition(topics[0], number) and slice_.start <= low and high < slice_.end
            ),
            None,
        )
        for number in range(file.partitions[0], file.partitions[1] + 1)
    ]
    return None if None in holders else holders[0]
