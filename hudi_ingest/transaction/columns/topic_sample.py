"""The first and the newest records of a pipeline's topics, for inferring columns: values with their positions. Commits no offset."""

from __future__ import annotations

from dataclasses import replace

from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.records import ReadRequest, read_records
from hudi_ingest.model.offsets import Slice
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import fair_shares

SAMPLE_BYTES = 64 * 1024 * 1024


def first_values(pipeline: Pipeline, count: int) -> list[tuple[str, bytes]]:
    """The values of up to `count` records from the broker's earliest offsets, shared fairly among the partitions; each with
    its `topic:partition:offset`. Skips tombstones, and ends early at SAMPLE_BYTES.

    Raises KafkaUnreachable, KafkaRefused, TopicMissing.
    """
    slices = _whole(pipeline)
    shares = fair_shares({slice_.source: slice_.count for slice_ in slices}, count)
    return _values(pipeline, [ReadRequest(slice_, shares[slice_.source]) for slice_ in slices])


def newest_values(pipeline: Pipeline, count: int) -> tuple[list[tuple[str, bytes]], dict[str, int]]:
    """The values at the last `count` offsets of each partition, as `first_values` but the newest first; and where each partition
    ends."""
    slices = _whole(pipeline)
    last = [replace(slice_, start=max(slice_.start, slice_.end - count)) for slice_ in slices]
    values = _values(pipeline, [ReadRequest(slice_, count) for slice_ in last])
    return values[::-1], {str(slice_.source): slice_.end for slice_ in slices}


def _whole(pipeline: Pipeline) -> list[Slice]:
    cluster = KafkaCluster(pipeline.source)
    partitions = [partition for topic in cluster.topics().values() for partition in topic.partitions]
    # No transaction reads a partition without a leader, so its records have no say.
    led = cluster.led_watermarks(partitions) or cluster.watermarks(partitions)
    return [Slice(source.topic, source.partition, marks.begin, marks.end) for source, marks in sorted(led.items())]


def _values(pipeline: Pipeline, requests: list[ReadRequest]) -> list[tuple[str, bytes]]:
    # Retention may advance between the two calls; the sample then begins at the first record that is still there.
    batches = read_records(pipeline.source, pipeline.group_id, requests, most_bytes=SAMPLE_BYTES, skip_gone=True)
    return [
        (f"{source}:{offset}", value)
        for source, batch in batches.items()
        for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        if value is not None
    ]
