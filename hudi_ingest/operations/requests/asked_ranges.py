"""Offset ranges of a backfill or replay request, given as a time window or as a transaction's id."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from hudi_ingest.exceptions import LeaderMissing, NothingToDo, RangeRefused
from hudi_ingest.hudi.files.replaced_files import read_kafka_columns
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.model.offsets import Slice, TopicPartition, ranges
from hudi_ingest.operations.requests.ranges import RangeContext
from hudi_ingest.operations.requests.replaced_files import accounted_slices, first_offsets
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation, observe


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one Kafka partition, up to the committed one if there is no `end`."""

    source: TopicPartition
    start: int
    end: int | None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.start >= self.end


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Kafka timestamps, in all partitions, up to the committed offsets if there is no `end`."""

    start: datetime
    end: datetime | None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.start >= self.end


@dataclass(frozen=True, slots=True)
class ReadBy:
    """Everything that one transaction read."""

    transaction_id: str


class EmptyRange(ValueError):
    """The range ends where it starts, or before."""


Asked = OffsetRange | TimeWindow | ReadBy


def asked_slices(pipeline: Pipeline, asked: Asked) -> tuple[tuple[Slice, ...], Situation]:
    """Return the slices that are asked for, and the state of table and broker.

    Raises EmptyRange, NothingToDo, RangeRefused, KafkaUnreachable, KafkaRefused, TableUnreachable.
    """
    if isinstance(asked, ReadBy):
        return of_transaction(pipeline, asked.transaction_id), observe(pipeline)
    if asked.is_empty:
        raise EmptyRange(f"start {asked.start} is not before end {asked.end}")
    situation = observe(pipeline)
    if isinstance(asked, TimeWindow):
        return in_time(pipeline, situation, asked.start, asked.end), situation
    source = asked.source
    stop = committed_end(situation, source, asked.start) if asked.end is None else asked.end
    if asked.start >= stop:
        raise EmptyRange(f"start {asked.start} is not before the committed end, {stop}")
    return (Slice(source.topic, source.partition, asked.start, stop),), situation


def committed_end(situation: Situation, source: TopicPartition, start: int) -> int:
    """Return the partition's committed offset; without one, an end that makes the range from `start` be judged, and refused."""
    checkpoint = situation.committed.checkpoint
    return checkpoint.offsets.get(source, start + 1) if checkpoint else start + 1


def in_time(pipeline: Pipeline, situation: Situation, start: datetime, end: datetime | None) -> tuple[Slice, ...]:
    """Return each partition's slice from its first record at or after `start` to its first record at or after `end`, cut
    at the committed offset: later records belong to live transactions. Without an `end` it is the committed offset.

    Times are the records' Kafka timestamps. If producers set them and they are out of order, the slice's ends are where
    Kafka's time index puts them. Raises NothingToDo, KafkaUnreachable, KafkaRefused; LeaderMissing rather than leave a partition
    out.
    """
    _require_leaders(situation.leaderless)
    with kept_cluster(pipeline.source) as cluster:
        starts = cluster.offsets_at(start, situation.watermarks)
        ends = None if end is None else cluster.offsets_at(end, situation.watermarks)
    checkpoint = situation.committed.checkpoint
    committed = checkpoint.offsets if checkpoint else {}
    if ends is None:
        ends = {source: committed.get(source, starts[source]) for source in situation.watermarks}
    bounds = {
        source: (starts[source], min(ends[source], committed.get(source, ends[source])))
        for source in sorted(situation.watermarks)
    }
    slices = tuple(
        Slice(source.topic, source.partition, begin, stop) for source, (begin, stop) in bounds.items() if begin < stop
    )
    if not slices:
        raise NothingToDo(
            pipeline.name,
            f"Kafka has no records from {start.isoformat()}{f' to {end.isoformat()}' if end else ''} before the committed offsets",
        )
    return slices


def of_transaction(pipeline: Pipeline, transaction_id: str) -> tuple[Slice, ...]:
    """Return the slices that a committed transaction read. Raises RangeRefused if its commit is not on the active timeline,
    TableUnreachable."""
    table = PipelineTable(pipeline)
    instant = table.instant_of(transaction_id)
    commits = [commit for commit in table.commits() if commit.instant == instant]
    slices = tuple(
        account.slice for account in accounted_slices(commits, pipeline.transaction_key) if account.slice.count
    )
    if not slices:
        raise RangeRefused(
            f"transaction {transaction_id} of pipeline {pipeline.name}",
            [
                "the table's active timeline has no commit of it with records: its id is misspelt, or it was rolled back or archived. "
                f"`hudi-ingest status {pipeline.name}` shows the last ids; or give the offsets with --partition, --start and --end"
            ],
        )
    return tuple(sorted(slices))


def known_state(pipeline: Pipeline, situation: Situation, sources: Iterable[TopicPartition]) -> RangeContext:
    """Return the table's and the broker's state of the partitions. Where a checkpoint of an older version does not say what
    is covered, it is derived from the table's commits and its files' statistics. Raises TableUnreachable, and LeaderMissing if
    nobody knows now what the broker has of one of them."""
    sources = set(sources)
    _require_leaders(sources.intersection(situation.leaderless))
    checkpoint = situation.committed.checkpoint
    covered = dict(checkpoint.covered) if checkpoint else {}
    committed = checkpoint.offsets if checkpoint else {}
    unrecorded = {source for source in sources if source in committed and source not in covered}
    if unrecorded:
        table = PipelineTable(pipeline)
        accounts = accounted_slices(table.commits(), pipeline.transaction_key)
        read = partial(read_kafka_columns, table.storage)
        first = first_offsets(table.timeline.files(), accounts, unrecorded, read)
        covered |= {
            source: ranges([(first.get(source, committed[source]), committed[source])]) for source in unrecorded
        }
    return RangeContext(pipeline.name, checkpoint, covered, situation.watermarks, situation.topic_ids)


def _require_leaders(leaderless: Collection[TopicPartition]) -> None:
    source = min(leaderless, default=None)
    if source is not None:
        raise LeaderMissing(
            f"{source} has no leader, so the range cannot be read whole. Nothing was written. Try again when the brokers that have "
            "the partition are up; `kafka-topics.sh --describe --unavailable-partitions` names them.",
            topic=source.topic,
            partition=source.partition,
        )
