"""Asset keys of tables and topics, and the names of sensors."""

from __future__ import annotations

from dagster import AssetKey

from hudi_ingest.pipeline.pipeline import Pipeline


def table_key(pipeline: Pipeline) -> AssetKey:
    return AssetKey([pipeline.name])


def source_keys(pipeline: Pipeline) -> tuple[AssetKey, ...]:
    """What the table is downstream of: its topics, or all that match a pattern as one."""
    if pipeline.source.topics_pattern is not None:
        return (AssetKey(["kafka", f"{pipeline.name}_topics"]),)
    return tuple(map(topic_key, pipeline.source.topics))


def topic_key(topic: str) -> AssetKey:
    return AssetKey(["kafka", f"{topic}_topic"])


def sensor_name(pipeline: str) -> str:
    """Return the name of the sensor that begins the pipeline's transactions."""
    return f"{pipeline}_coordinator"
