"""Asset keys of tables and topics."""

from __future__ import annotations

from dagster import AssetKey

from hudi_ingest.pipeline.pipeline import Pipeline


def table_key(pipeline: Pipeline) -> AssetKey:
    return AssetKey([pipeline.name])


def topic_key(topic: str) -> AssetKey:
    return AssetKey(["kafka", f"{topic}_topic"])
