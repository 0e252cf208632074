"""What people ask to backfill or to replay, as offsets: a range of a partition, a time window, or what a transaction read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from hudi_ingest.exceptions import NothingToDo, RangeRefused
from hudi_ingest.hudi.offsets_in_files import read_kafka_columns
from hudi_ingest.hudi.storage import TableStorage
from hudi_ingest.hudi.timeline import Timeline
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.model.offset_ranges import ranges
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.operations.ranges import RangeContext
from hudi_ingest.operations.replaced_files import accounted_slices, first_offsets
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.situation import Situation


def in_time(pipeline: Pipeline, situation: Situation, start: datetime, end: datetime) -> tuple[Slice, ...]:
    """Of each partition the records from the first one not before `start` to the first one not before `end`, as far as they
    are before the committed offset: what comes behind that is live.

    Times are the records' Kafka timestamps. Where producers set them and records are out of order, the borders are where
    Kafka's index says. Raises NothingToDo, KafkaUnreachable, KafkaRefused.
    """
    cluster = KafkaCluster(pipeline.source)
    starts = cluster.offsets_at(start, situation.watermarks)
    ends = cluster.offsets_at(end, situation.watermarks)
    checkpoint = situation.committed.checkpoint
    committed = checkpoint.offsets if checkpoint else {}
    bounds = {
        source: (starts[source], min(ends[source], committed.get(source, ends[source])))
        for source in sorted(situation.watermarks)
    }
    slices = tuple(Slice(source.topic, source.partition, *pair) for source, pair in bounds.items() if pair[0] < pair[1])
    if not slices:
        raise NothingToDo(
            pipeline.name,
            f"Kafka has no records from {start.isoformat()} to {end.isoformat()} before the committed offsets",
        )
    return slices


def of_transaction(pipeline: Pipeline, transaction_id: str) -> tuple[Slice, ...]:
    """What a committed transaction read. Raises RangeRefused when no active commit is of it, TableUnreachable."""
    timeline = Timeline(pipeline.table.base_path)
    instant = timeline.instant_of(pipeline.transaction_key, transaction_id)
    commits = [commit for commit in timeline.commits_of(pipeline.transaction_key) if commit.instant == instant]
    slices = tuple(
        account.slice for account in accounted_slices(commits, pipeline.transaction_key) if account.slice.count
    )
    if not slices:
        raise RangeRefused(
            f"transaction {transaction_id} of pipeline {pipeline.name}",
            [
                "no commit on the table's active timeline is of it and has records: it was rolled back, or archived. Name its "
                "offsets by --partition, --start and --end"
            ],
        )
    return tuple(sorted(slices))


def known_state(pipeline: Pipeline, situation: Situation, sources: Iterable[TopicPartition]) -> RangeContext:
    """What table and broker say of the partitions. Tables of older versions are asked for what they cover: their commits and
    the statistics of their files. Raises TableUnreachable."""
    checkpoint = situation.committed.checkpoint
    covered = dict(checkpoint.covered) if checkpoint else {}
    committed = checkpoint.offsets if checkpoint else {}
    unknown = {source for source in sources if source in committed and source not in covered}
    if unknown:
        timeline = Timeline(pipeline.table.base_path)
        accounts = accounted_slices(timeline.commits_of(pipeline.transaction_key), pipeline.transaction_key)
        read = partial(read_kafka_columns, TableStorage(pipeline.table.base_path))
        least = first_offsets(timeline.files(), accounts, unknown, read)
        covered |= {source: ranges([(least.get(source, committed[source]), committed[source])]) for source in unknown}
    return RangeContext(pipeline.name, checkpoint, covered, situation.watermarks, situation.topic_ids)
