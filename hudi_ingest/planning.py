"""What the next transaction reads: a pure function of committed offsets, watermarks, limits and the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hudi_ingest.exceptions import OffsetsLost
from hudi_ingest.model import Checkpoint, Offsets, Slice, TopicPartition, TransactionPlan, Watermarks

FIRST_GUESS_RECORD_BYTES = 1000
"""Mean record size that `max_bytes` reckons with before any transaction has measured one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a transaction is due and how large it may be."""

    interval_seconds: float
    min_records: int
    max_records: int
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """There is no transaction to begin now, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits: offsets between the committed ones and the broker's ends, per partition and in sum."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())


def slice_starts(
    checkpoint: Checkpoint | None, watermarks: Mapping[TopicPartition, Watermarks], first: Offsets
) -> dict[TopicPartition, int]:
    """Where each partition continues: its committed offset, else its configured first offset.

    Raises OffsetsLost when a committed offset lies outside what the broker holds, which reading on would turn into a
    silent loss (retention has passed it) or a silent repetition (the topic was made again).
    """
    committed = checkpoint.offsets if checkpoint else {}
    starts = {}
    for source, marks in sorted(watermarks.items()):
        start = committed.get(source)
        if start is None:
            starts[source] = min(max(first.get(source, marks.begin), marks.begin), marks.end)
        elif start < marks.begin:
            raise OffsetsLost(
                f"{source}: the next offset to read is {start}, but the broker's first is {marks.begin}: "
                f"{marks.begin - start} records were deleted by retention before they were ingested. Nothing was "
                "written. Restore the records, or make a table with a new name that starts at the broker's first offset."
            )
        elif start > marks.end:
            raise OffsetsLost(
                f"{source}: the next offset to read is {start}, but the broker's end is {marks.end}: the topic was "
                "deleted and made again, or restored from an older copy. Nothing was written. Ingest the new topic "
                "into a table with a new name."
            )
        else:
            starts[source] = start
    for source in sorted(committed.keys() - watermarks.keys()):
        if any(source.topic == each.topic for each in watermarks):
            raise OffsetsLost(
                f"{source}: its committed offset is {committed[source]}, but the broker knows no such partition: the "
                "topic was deleted and made again with fewer. Ingest the new topic into a table with a new name."
            )
    return starts


def lag(starts: Offsets, watermarks: Mapping[TopicPartition, Watermarks]) -> Lag:
    return Lag({source: marks.end - starts[source] for source, marks in sorted(watermarks.items())})


def plan_transaction(
    *,
    pipeline: str,
    suffix: str,
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    first: Offsets,
    limits: Limits,
    now: datetime,
    last_began_at: datetime | None,
) -> TransactionPlan | Skip:
    """The next transaction, or why there is none.

    `suffix` makes the transaction's id unique among attempts at the same sequence. `first` holds the configured first
    offsets of partitions that were never committed. The interval counts from the begin of the last transaction, and a
    transaction that would be full does not wait for it. Every partition gets a slice; an idle one's is empty, and all are when a first start at the topics' ends is pinned.

    Raises OffsetsLost.
    """
    starts = slice_starts(checkpoint, watermarks, first)
    waiting = lag(starts, watermarks)
    most = backlog_limit(limits, checkpoint.record_bytes if checkpoint else 0)
    # A first start at a topic's end must be committed, or each tick would find a later end and never read anything.
    pins_the_start = checkpoint is None and any(starts[each] > marks.begin for each, marks in watermarks.items())
    if waiting.total == 0 and not pins_the_start:
        return Skip(f"all {len(watermarks)} partitions are read to their ends; no new records")
    if last_began_at is not None and waiting.total < most:
        due = last_began_at + timedelta(seconds=limits.interval_seconds)
        if now < due:
            return Skip(
                f"{waiting.total:,} records wait; the next transaction is due in {(due - now).total_seconds():.0f} s "
                f"(interval_seconds {limits.interval_seconds:g}) or at {most:,} records"
            )
    if waiting.total < limits.min_records and not pins_the_start:
        return Skip(f"{waiting.total:,} records wait, fewer than min_records {limits.min_records:,}")
    shares = fair_shares(waiting.by_partition, most)
    sequence = checkpoint.sequence + 1 if checkpoint else 1
    return TransactionPlan(
        pipeline=pipeline,
        transaction_id=f"{pipeline}-{sequence:06d}-{suffix}",
        sequence=sequence,
        slices=tuple(
            Slice(source.topic, source.partition, starts[source], starts[source] + shares[source])
            for source in sorted(watermarks)
        ),
    )


def backlog_limit(limits: Limits, record_bytes: int) -> int:
    """The tighter of `max_records` and what `max_bytes` allows at a mean of `record_bytes`, at least 1."""
    if limits.max_bytes is None:
        return limits.max_records
    return max(1, min(limits.max_records, limits.max_bytes // (record_bytes or FIRST_GUESS_RECORD_BYTES)))


def fair_shares(waiting: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Max-min fair shares that add up to min(most, all that waits).

    No partition gets more than it has; one that has less than an even part leaves the rest to the others, so a busy
    partition cannot starve a quiet one.
    """
    shares = {}
    left = min(most, sum(waiting.values()))
    by_size = sorted(waiting, key=lambda source: (waiting[source], source))
    for position, source in enumerate(by_size):
        part = -(-left // (len(by_size) - position))
        shares[source] = min(waiting[source], part)
        left -= shares[source]
    return shares


def group_slices(slices: Sequence[Slice], most: int) -> tuple[tuple[Slice, ...], ...]:
    """At most `most` groups of slices with even record counts; one slice a group when there are few enough.

    Longest first onto the lightest group (Graham's LPT rule); groups and the slices in them come out in order.
    """
    if len(slices) <= most:
        return tuple((each,) for each in slices)
    groups: list[list[Slice]] = [[] for _ in range(most)]
    weights = [(0, 0)] * most
    for each in sorted(slices, key=lambda found: (-found.count, found)):
        lightest = min(range(most), key=lambda index: weights[index])
        groups[lightest].append(each)
        weights[lightest] = (weights[lightest][0] + each.count, weights[lightest][1] + 1)
    return tuple(sorted(tuple(sorted(group)) for group in groups))
