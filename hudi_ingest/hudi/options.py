"""Hudi's settings for our tables and our client, each with the reason why it may not be left to its default."""

from __future__ import annotations

from collections.abc import Mapping

from hudi_ingest.config import Pipeline
from hudi_ingest.hudi.timeline import PIPELINE_PROPERTY


def table_properties(pipeline: Pipeline) -> dict[str, str]:
    """What goes into hoodie.properties, so that other writers with default settings heed it too."""
    return {
        PIPELINE_PROPERTY: pipeline.name,
        # Without LAZY another writer's plain DELETE rolls our open instant back.
        "hoodie.clean.failed.writes.policy": "LAZY",
        # Whoever judges our heartbeat uses his own interval; two misses of it are the transaction's timeout.
        "hoodie.client.heartbeat.interval_in_ms": str(pipeline.transaction.timeout_seconds * 1000 // 2),
        "hoodie.client.heartbeat.tolerable.misses": "2",
        # Other writers' commits carry the checkpoint on, so that archival cannot lose it.
        "hoodie.write.rolling.metadata.keys": pipeline.checkpoint_key,
        # Our base files have no bloom filter in their footer.
        "hoodie.index.type": "SIMPLE",
    }


def write_options(pipeline: Pipeline, metadata_partitions: str) -> dict[str, str]:
    """The write client's options. `metadata_partitions` is the table's own list of metadata-table partitions."""
    properties = {key: value for key, value in table_properties(pipeline).items() if key != PIPELINE_PROPERTY}
    return {
        **properties,
        "hoodie.table.name": pipeline.name,
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
        # With stats made outside Hudi's writers the streaming path leaves indexes unwritten.
        "hoodie.metadata.streaming.write.enabled": "false",
        # A client whose options do not name an existing index drops it.
        **_index_options(metadata_partitions),
        # Ops of several processes write markers; only files are common to them.
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        # They run after the commit is durable; what they throw must not look like a failed commit.
        "hoodie.write.can.ignore.post.commit.failures": "true",
        "hoodie.datasource.write.partitionpath.field": ",".join(pipeline.table.partition_by),
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
    }


def _index_options(metadata_partitions: str) -> Mapping[str, str]:
    names = metadata_partitions.split(",")
    options = {}
    if "record_index" in names:
        options["hoodie.metadata.record.index.enable"] = "true"
    if "bloom_filters" in names:
        options["hoodie.metadata.index.bloom.filter.enable"] = "true"
    return options
