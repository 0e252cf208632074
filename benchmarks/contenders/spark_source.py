"""Spark's Kafka source, as the contenders that are made of Spark use it: exactly the given slices, only what is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from hudi_ingest.model.offsets import Slice
from hudi_ingest.pipeline.sections.source import KafkaSource


def spark_options(source: KafkaSource, slices: Iterable[Slice], min_partitions: int) -> dict[str, str]:
    """Options of Spark's Kafka source for exactly `slices`, on a broker that asks for no login."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for slice_ in slices:
        starts.setdefault(slice_.topic, {})[str(slice_.partition)] = slice_.start
        ends.setdefault(slice_.topic, {})[str(slice_.partition)] = slice_.end
    return {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "assign": json.dumps({topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        # The range already exists, so there is nothing to wait for. While reading, the client prefetches beyond the range's
        # end, and at the default of 500 ms its next request would queue behind that one: half a second per slice.
        "kafka.fetch.max.wait.ms": "10",
        # After each poll Spark asks for the partition's first and last offset; at the default of 500 records that takes a
        # third of the time.
        "kafka.max.poll.records": "20000",
        "minPartitions": str(min_partitions),
    }


def tasks_for(slices: Iterable[Slice], most_rows: int) -> int:
    """Tasks of about `most_rows`; rounded to the nearest."""
    return max(1, (2 * sum(slice_.count for slice_ in slices) + most_rows) // (2 * most_rows))


def read_slices(session: SparkSession, source: KafkaSource, slices: Sequence[Slice], most_rows: int) -> DataFrame:
    """The slices' records, in tasks of about `most_rows`: columns topic, partition, offset, timestamp and value."""
    long = [slice_ for slice_ in slices if slice_.count > most_rows]
    short = [slice_ for slice_ in slices if slice_.count <= most_rows]
    parts = []
    if long:
        parts.append(_read(session, source, long, tasks_for(long, most_rows)))
    if short:
        # Narrow: a task reads its slices one after another, each in the order of its offsets.
        tasks = -(-sum(slice_.count for slice_ in short) // most_rows)
        parts.append(_read(session, source, short, 1).coalesce(tasks))
    return reduce(DataFrame.union, parts)


def _read(session: SparkSession, source: KafkaSource, slices: Sequence[Slice], min_partitions: int) -> DataFrame:
    reader = session.read.format("kafka").option("includeHeaders", "false")
    for key, value in spark_options(source, slices, min_partitions).items():
        reader = reader.option(key, value)
    return reader.load().select("topic", "partition", "offset", "timestamp", "value")
