"""What the next transaction reads: a pure function of committed offsets, watermarks, limits and the clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hudi_ingest.exceptions import NothingToDo, OffsetsLost
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import IngestPlan, OffsetLoss, TakeOver
from hudi_ingest.transaction.plan.offset_losses import find_losses, is_stopped, sources_text, stop_text

_SHOWN = 10
FIRST_GUESS_RECORD_BYTES = 1000
"""Mean record size assumed for `max_bytes` until a transaction has measured one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a transaction is due and how large it may be."""

    interval_seconds: float
    min_records: int
    max_records: int
    max_bytes: int | None = None
    max_wait_seconds: float = math.inf
    """How long `min_records` may hold a transaction back."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Offsets between the committed ones and the broker's ends, per partition and in total."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())


def slice_starts(
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    first: Offsets,
    losses: Iterable[OffsetLoss],
) -> dict[TopicPartition, int]:
    """Where each partition resumes: its committed offset, else its configured first offset; after a loss, where it would
    resume if the loss were accepted."""
    starts = {
        source: min(max(first.get(source, marks.begin), marks.begin), marks.end)
        for source, marks in sorted(watermarks.items())
    }
    committed = checkpoint.offsets if checkpoint else {}
    starts.update({source: committed[source] for source in starts.keys() & committed.keys()})
    starts.update({loss.source: loss.restart for loss in losses if loss.restart is not None})
    return starts


def lag(starts: Offsets, watermarks: Mapping[TopicPartition, Watermarks]) -> Lag:
    """Partitions without a leader have none: it is unknown."""
    return Lag({source: marks.end - starts[source] for source, marks in sorted(watermarks.items()) if marks.led})


def plan_transaction(
    *,
    pipeline: str,
    suffix: str,
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    topic_ids: Mapping[str, str],
    first: Offsets,
    limits: Limits,
    now: datetime,
    last_began_at: datetime | None,
    accepts: Callable[[OffsetLoss], bool] = lambda loss: False,
    take_over: TakeOver | None = None,
    starts_at_ends: bool = False,
) -> IngestPlan:
    """The next transaction.

    `suffix` makes the transaction's id unique among attempts at the same sequence. `first` holds the configured first
    offsets of partitions without a commit. The interval and `max_wait_seconds` count from the start of the table's last
    transaction; the first transaction and a full one do not wait. Every partition gets a slice, an empty one if idle; all
    are empty when a first start is pinned at the topics' ends. A partition whose committed offset the broker cannot honour
    is reset if `accepts` says so (for all partitions of a recreated topic, or for none), else it is stopped: the plan
    names it and gives it no slice. One without a leader gets an empty slice where it is committed, and none if it is not.
    `take_over`: another system's rows in the table; `first` then holds its offsets.
    `starts_at_ends`: `first` holds the topics' ends, which move on until they are committed.

    Raises NothingToDo when none is due; OffsetsLost instead when a partition is stopped; and KafkaUnreachable.
    """
    losses = find_losses(checkpoint, watermarks, topic_ids)
    resets = tuple(loss for loss in losses if accepts(loss))
    stopped = tuple(loss for loss in losses if not accepts(loss))
    committed = checkpoint.offsets if checkpoint else {}
    readable = {
        source: marks
        for source, marks in watermarks.items()
        if not is_stopped(source, stopped) and (marks.led or source in committed)
    }
    starts = slice_starts(checkpoint, readable, first, resets)
    backlog = lag(starts, readable)
    most = backlog_limit(limits, checkpoint.record_bytes if checkpoint else 0)
    # A first start at a topic's end must be committed, or each tick would find a later end and never read anything; at the end of
    # an empty topic, too, or the records that come before the next tick would be skipped. A take-over must be, so that the table
    # belongs to this pipeline from then on, and an accepted loss too, or it would stay invisible until the next record.
    has_to_commit = bool(resets or take_over) or (
        checkpoint is None
        and (starts_at_ends or any(starts[source] > marks.begin for source, marks in readable.items()))
    )
    wait = "no topic on the broker matches source.topics_pattern yet"
    if readable:
        led = len(backlog.by_partition)
        wait = _reason_to_wait(backlog.total, most, led, has_to_commit, limits, now, last_began_at)
    leaderless = [source for source, marks in sorted(watermarks.items()) if not marks.led]
    if wait and leaderless:
        wait += f"; nobody knows what is waiting in {listed(leaderless, _SHOWN)}, which {'has' if len(leaderless) == 1 else 'have'} no leader"
    if wait:
        raise _lost_for_now(pipeline, stopped, wait if readable else "") if stopped else NothingToDo(pipeline, wait)
    shares = fair_shares(backlog.by_partition, most)
    sequence = checkpoint.sequence + 1 if checkpoint else 1
    return IngestPlan(
        pipeline=pipeline,
        transaction_id=f"{pipeline}-{sequence:06d}-{suffix}",
        sequence=sequence,
        slices=tuple(
            Slice(source.topic, source.partition, starts[source], starts[source] + shares.get(source, 0))
            for source in sorted(readable)
        ),
        topics={
            topic: _version(topic, checkpoint, topic_ids, resets)
            for topic in sorted({source.topic for source in readable})
        },
        resets=resets,
        stopped=stopped,
        take_over=take_over,
    )


def _lost_for_now(pipeline: str, stopped: Sequence[OffsetLoss], others_wait: str) -> OffsetsLost:
    others = f"\nThe other partitions continue; now: {others_wait}." if others_wait else ""
    return OffsetsLost(
        f"pipeline {pipeline}: the broker no longer has the next offset of {sources_text(stopped)}. Nothing was "
        f"written.\n{stop_text(pipeline, stopped)}{others}",
        topic=stopped[0].topic,
        partition=stopped[0].partition,
        offset=stopped[0].committed,
    )


def _version(
    topic: str, checkpoint: Checkpoint | None, topic_ids: Mapping[str, str], resets: Iterable[OffsetLoss]
) -> TopicVersion:
    version = checkpoint.topics.get(topic, TopicVersion("")) if checkpoint else TopicVersion("")
    repeats = any(loss.topic == topic and loss.repeats for loss in resets)
    return TopicVersion(topic_ids.get(topic) or version.topic_id, version.generation + repeats)


def _reason_to_wait(
    waiting: int,
    most: int,
    partitions: int,
    has_to_commit: bool,
    limits: Limits,
    now: datetime,
    last_began_at: datetime | None,
) -> str:
    """Why no transaction begins now; "" when one does."""
    if waiting == 0 and not has_to_commit:
        return (
            f"no new records: all {partitions} partitions are read to their ends"
            if partitions != 1
            else "no new records: the only partition is read to its end"
        )
    if last_began_at is not None and last_began_at > now:
        # That clock was ahead; do not wait until its time comes.
        last_began_at = None
    if last_began_at is not None and waiting < most:
        due = last_began_at + timedelta(seconds=limits.interval_seconds)
        if now < due:
            return (
                f"{counted(waiting, 'record')} waiting; the next transaction is due in {(due - now).total_seconds():.0f} s "
                f"(interval_seconds {limits.interval_seconds:g}) or at {most:,} records"
            )
    if last_began_at is not None and waiting < min(limits.min_records, most) and not has_to_commit:
        remaining = limits.max_wait_seconds - (now - last_began_at).total_seconds()
        if remaining > 0:
            return (
                f"{counted(waiting, 'record')} waiting, fewer than min_records {limits.min_records:,}; a transaction takes them within "
                f"{remaining:.0f} s (max_wait_seconds {limits.max_wait_seconds:g})"
            )
    return ""


def backlog_limit(limits: Limits, record_bytes: int) -> int:
    """The tighter of `max_records` and what `max_bytes` allows at a mean of `record_bytes`, at least 1."""
    if limits.max_bytes is None:
        return limits.max_records
    return max(1, min(limits.max_records, limits.max_bytes // (record_bytes or FIRST_GUESS_RECORD_BYTES)))


def fair_shares(waiting: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Max-min fair shares that add up to min(most, the whole backlog).

    No partition gets more than it has; one with less than an even share leaves the rest to the others, so a busy
    partition cannot starve a quiet one.
    """
    shares = {}
    remaining = min(most, sum(waiting.values()))
    by_size = sorted(waiting, key=lambda source: (waiting[source], source))
    for position, source in enumerate(by_size):
        even_share = -(-remaining // (len(by_size) - position))
        shares[source] = min(waiting[source], even_share)
        remaining -= shares[source]
    return shares


def group_slices(slices: Sequence[Slice], most: int) -> tuple[tuple[Slice, ...], ...]:
    """Group slices into at most `most` groups with even record counts; one slice per group if there are few enough.

    The longest goes first, onto the lightest group (Graham's LPT rule). Groups and their slices are sorted.
    """
    if len(slices) <= most:
        return tuple((slice_,) for slice_ in slices)
    groups: list[list[Slice]] = [[] for _ in range(most)]
    weights = [(0, 0)] * most
    for slice_ in sorted(slices, key=lambda slice_: (-slice_.count, slice_)):
        lightest = min(range(most), key=lambda index: weights[index])
        groups[lightest].append(slice_)
        weights[lightest] = (weights[lightest][0] + slice_.count, weights[lightest][1] + 1)
    return tuple(sorted(tuple(sorted(group)) for group in groups))
