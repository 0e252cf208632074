"""Clusters that many pipelines share: one snapshot of the topics and offsets of all, with a few requests, and only one tick at a time
that waits for a cluster which accepts no connections.

Ticks share a few threads. If each waited for a cluster that is away, those of other clusters would come minutes late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from hudi_ingest.exceptions import IngestError, KafkaUnreachable, TopicMissing
from hudi_ingest.kafka.admin_clients import Silence, clients_of_this_process, settings_of
from hudi_ingest.kafka.cluster import KafkaCluster, Topic, answered, kept_cluster, with_leader
from hudi_ingest.model.offsets import TopicPartition, Watermarks
from hudi_ingest.pipeline.sections.source import KafkaSource

_ASK_AGAIN_SECONDS = 10.0


class HeldOffsets(Protocol):
    """A broker's answers about one source: a KafkaCluster, or a SourceSnapshot."""

    def topics(self, committed: Iterable[str] = ()) -> dict[str, Topic]: ...
    def watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]: ...
    def led_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]: ...
    def first_offsets(self, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]: ...


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster's answers about each topic and partition, or why there are none."""

    topics: Mapping[str, Topic | IngestError]
    watermarks: Mapping[TopicPartition, Watermarks | IngestError]

    def of(self, source: KafkaSource) -> SourceSnapshot:
        return SourceSnapshot(source, self)


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """The part of one source. Raises what the cluster answered about it."""

    source: KafkaSource
    cluster: ClusterSnapshot

    def topics(self, committed: Iterable[str] = ()) -> dict[str, Topic]:
        names = self.source.topics
        if self.source.topics_pattern is not None:
            names = tuple(sorted(filter(self.source.reads, {*self.cluster.topics, *committed})))
        missing = [name for name in names if name not in self.cluster.topics]
        if missing:
            raise TopicMissing(f"topic {missing[0]}, of which the table has committed offsets, is not on the broker")
        return {name: answered(self.cluster.topics[name]) for name in names}

    def watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return {partition: answered(self.cluster.watermarks[partition]) for partition in partitions}

    def led_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return with_leader({partition: self.cluster.watermarks[partition] for partition in partitions})

    def first_offsets(self, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        """Asks the broker only if the pipeline starts at a time and has committed nothing yet."""
        with kept_cluster(self.source) as cluster:
            return cluster.first_offsets(watermarks)


def snapshot(sources: Sequence[KafkaSource], seconds: float) -> ClusterSnapshot:
    """Look at all topics of the sources, which are of one cluster and log in alike; waits at most `seconds` for each of its answers.
    Raises KafkaUnreachable and KafkaRefused if it answers none."""
    with kept_cluster(_every_topic(sources[0], seconds)) as cluster:
        # One error for all pipelines, instead of one about each topic.
        cluster.require_answer()
        return _snapshot(cluster, sources, cluster.each_watermarks)


def snapshot_of_ends(sources: Sequence[KafkaSource], seconds: float) -> ClusterSnapshot:
    """Return where the topics end, by fewer requests than `snapshot`, from an `answering_cluster`. Raises KafkaUnreachable and
    KafkaRefused."""
    with answering_cluster(_every_topic(sources[0], seconds)) as cluster:
        return _snapshot(cluster, sources, cluster.each_end)


def _every_topic(source: KafkaSource, seconds: float) -> KafkaSource:
    patience = min(seconds, source.request_timeout_seconds)
    return source.model_copy(
        update={
            "topics": (),
            "topics_pattern": ".*",
            "request_timeout_seconds": patience,
            # Each source has its own.
            "lateness_seconds": None,
        }
    )


def _snapshot(
    cluster: KafkaCluster,
    sources: Sequence[KafkaSource],
    held: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Watermarks | IngestError]],
) -> ClusterSnapshot:
    names = {topic for source in sources for topic in source.topics}
    patterns = [source for source in sources if source.topics_pattern is not None]
    if patterns:
        names |= {topic for topic in cluster.topic_names() if any(source.reads(topic) for source in patterns)}
    topics = cluster.each_topic(sorted(names))
    partitions = [
        partition for topic in topics.values() if not isinstance(topic, IngestError) for partition in topic.partitions
    ]
    return ClusterSnapshot(topics, held(partitions))


@contextmanager
def answering_cluster(source: KafkaSource) -> Iterator[KafkaCluster]:
    """Yield a `kept_cluster`; but if no broker accepted a connection a moment ago, or another thread is trying again, this raises
    the same KafkaUnreachable at once."""
    settings, known = settings_of(source), clients_of_this_process()
    # The others wait no longer than this one's question may take.
    silence = known.silence(settings, source.request_timeout_seconds + _ASK_AGAIN_SECONDS)
    if silence is not None:
        raise KafkaUnreachable(silence.text, servers=source.bootstrap_servers)
    with kept_cluster(source) as cluster:
        try:
            yield cluster
        finally:
            text = cluster.silence
            known.note_silence(settings, Silence(text, time.monotonic() + _ASK_AGAIN_SECONDS) if text else None)
