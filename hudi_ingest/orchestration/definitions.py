"""The code location that workspace.yaml names: the definitions of every pipeline file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagster import Definitions

from hudi_ingest.home.folder import Home
from hudi_ingest.orchestration.broken_files import broken_definitions
from hudi_ingest.orchestration.executor import EXECUTOR
from hudi_ingest.orchestration.pipeline_definitions import pipeline_definitions
from hudi_ingest.orchestration.resources import IO_MANAGER, InstanceStorageIOManager, ingest_resources
from hudi_ingest.orchestration.run_config import job_name
from hudi_ingest.orchestration.run_launcher import RUN_PIPELINE
from hudi_ingest.orchestration.topic_assets import topic_assets, topics_by_pipeline
from hudi_ingest.pipeline.folder import BrokenFile, load_each
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.decoding import format_problems

__all__ = ["build_definitions", "defs", "job_name"]


def build_definitions(
    pipelines: Sequence[Pipeline],
    spark_config: Mapping[str, Any] | None = None,
    broken: Sequence[BrokenFile] = (),
    only: str = "",
) -> Definitions:
    """Build the assets, checks, jobs, sensors and schedules of all pipelines, and report files that cannot be loaded.
    `spark_config`: settings for ops that find no engine and start their own Spark; `only`: the one pipeline to build, if it is
    among them."""
    ours = Definitions(executor=EXECUTOR, resources={IO_MANAGER: InstanceStorageIOManager()})
    resources = ingest_resources(spark_config)
    topics = topics_by_pipeline(pipelines)
    parts = [
        pipeline_definitions(pipeline, topic_assets(pipeline, topics[pipeline.name]), resources)
        for pipeline in [one for one in pipelines if one.name == only] or pipelines
    ]
    return Definitions.merge(ours, *parts, broken_definitions(broken, [pipeline.name for pipeline in pipelines]))


def _problems(pipeline: Pipeline) -> Iterable[str]:
    return format_problems(pipeline) if _only in ("", pipeline.name) else ()


_only = os.environ.get(RUN_PIPELINE, "")
_loaded, _broken = load_each(Home.from_environment().pipelines, check=_problems)
defs = build_definitions(_loaded, broken=_broken, only=_only)
