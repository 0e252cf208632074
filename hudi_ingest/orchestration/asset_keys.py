"""Asset keys of tables and topics, and a pipeline's topics as external assets with their observations.

The topics of a pattern are one asset: there may be hundreds, and Dagster would have to reload the code location for each that appears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dagster import AssetKey, AssetObservation, AssetSpec, TableColumn, TableMetadataValue, TableRecord, TableSchema

from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation

_MOST_ROWS = 100
_COLUMNS = [
    TableColumn("partition", "int"),
    TableColumn("committed", "int"),
    TableColumn("end", "int"),
    TableColumn("lag", "int"),
]


def table_key(pipeline: Pipeline) -> AssetKey:
    return AssetKey(pipeline.asset_key)


def source_keys(pipeline: Pipeline) -> tuple[AssetKey, ...]:
    """Return the assets upstream of the table: its topics, or all that match a pattern as one."""
    if pipeline.source.topics_pattern is not None:
        return (AssetKey(["kafka", f"{pipeline.name}_topics"]),)
    return tuple(map(topic_key, pipeline.source.topics))


def topic_key(topic: str) -> AssetKey:
    return AssetKey(["kafka", f"{topic}_topic"])


def topics_by_pipeline(pipelines: Iterable[Pipeline]) -> dict[str, tuple[str, ...]]:
    """Return the topics that each pipeline, by name, provides as assets. A topic that several read belongs to the first."""
    assigned: set[str] = set()
    topics = {}
    for pipeline in sorted(pipelines, key=lambda pipeline: pipeline.name):
        topics[pipeline.name] = tuple(topic for topic in pipeline.source.topics if topic not in assigned)
        assigned.update(pipeline.source.topics)
    return topics


def topic_assets(pipeline: Pipeline, topics: Iterable[str]) -> list[AssetSpec]:
    """Build the assets of some of the pipeline's topics, and the one that stands for all topics of its pattern."""
    pattern = pipeline.source.topics_pattern
    if pattern is not None:
        (key,) = source_keys(pipeline)
        return [
            AssetSpec(
                key,
                group_name=pipeline.asset.group or pipeline.name,
                kinds={"kafka"},
                description=f"All Kafka topics that match `{pattern}`. The sensor records their end offsets and lag.",
                metadata={"topics_pattern": pattern, "bootstrap_servers": pipeline.source.bootstrap_servers},
            )
        ]
    return [
        AssetSpec(
            topic_key(topic),
            group_name=pipeline.asset.group or pipeline.name,
            kinds={"kafka"},
            description=f"Kafka topic `{topic}`. The sensor records its end offsets and lag.",
            metadata={"topic": topic, "bootstrap_servers": pipeline.source.bootstrap_servers},
        )
        for topic in topics
    ]


def topic_observations(pipeline: Pipeline, situation: Situation) -> Iterator[AssetObservation]:
    """Report the end offsets and lag of each topic, under names that keep pipelines of one topic apart. Raises KafkaUnreachable."""
    if pipeline.source.topics_pattern is not None:
        (key,) = source_keys(pipeline)
        topics = {source.topic for source in situation.watermarks}
        yield _observation(pipeline, situation, key, sorted(situation.watermarks), {"topics": len(topics)})
        return
    for topic in pipeline.source.topics:
        sources = sorted(source for source in situation.watermarks if source.topic == topic)
        yield _observation(pipeline, situation, topic_key(topic), sources, {})


def _observation(
    pipeline: Pipeline,
    situation: Situation,
    key: AssetKey,
    sources: Sequence[TopicPartition],
    counts: Mapping[str, int],
) -> AssetObservation:
    waiting, ends = situation.lag.by_partition, situation.ends
    checkpoint = situation.committed.checkpoint
    committed = checkpoint.offsets if checkpoint else {}
    several = pipeline.source.topics_pattern is not None
    rows = [
        TableRecord(
            {
                **({"topic": source.topic} if several else {}),
                "partition": source.partition,
                "committed": committed.get(source),
                "end": ends.get(source),
                "lag": waiting.get(source),
            }
        )
        # If there are very many partitions, only those with the largest lag.
        for source in sorted(sorted(sources, key=lambda partition: -waiting.get(partition, 0))[:_MOST_ROWS])
    ]
    sums = {
        "end offsets": sum(ends.get(source, 0) for source in sources),
        f"lag/{pipeline.name}": sum(waiting.get(source, 0) for source in sources),
    }
    columns = [TableColumn("topic", "string"), *_COLUMNS] if several else _COLUMNS
    return AssetObservation(
        key,
        description=f"Records waiting for pipeline {pipeline.name}.",
        metadata={
            **counts,
            "partitions": len(sources),
            # Without the partitions that cannot be read now they would be too small.
            **({} if set(sources).intersection(situation.leaderless) else sums),
            f"offsets/{pipeline.name}": TableMetadataValue(rows, schema=TableSchema(columns)),
        },
    )
