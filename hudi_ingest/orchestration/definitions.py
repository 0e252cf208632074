"""What Dagster loads: the definitions of each pipeline file. workspace.yaml names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagster import Definitions

from hudi_ingest.config import Pipeline
from hudi_ingest.home import Home
from hudi_ingest.orchestration.executor import EXECUTOR
from hudi_ingest.orchestration.pipeline_definitions import pipeline_definitions
from hudi_ingest.orchestration.resources import IO_MANAGER, InstanceStorageIOManager, ingest_resources
from hudi_ingest.orchestration.run_config import job_name
from hudi_ingest.orchestration.topic_assets import topic_assets, topics_by_pipeline
from hudi_ingest.pipeline_file import load_pipelines

__all__ = ["build_definitions", "defs", "job_name"]


def build_definitions(pipelines: Sequence[Pipeline], spark_config: Mapping[str, Any] | None = None) -> Definitions:
    """All pipelines' assets, checks, jobs, sensors and schedules. `spark_config` are settings for ops that find no engine and
    start a Spark of their own."""
    ours = Definitions(executor=EXECUTOR, resources={IO_MANAGER: InstanceStorageIOManager()})
    resources = ingest_resources(spark_config)
    topics = topics_by_pipeline(pipelines)
    parts = [pipeline_definitions(each, topic_assets(each, topics[each.name]), resources) for each in pipelines]
    return Definitions.merge(ours, *parts)


defs = build_definitions(load_pipelines(Home.from_environment().pipelines))
