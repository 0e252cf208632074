"""The code location that workspace.yaml names: the definitions of every pipeline file."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dagster import Definitions

from hudi_ingest.home.folder import RUN_ASSETS_VARIABLE, RUN_PIPELINE_VARIABLE, Home


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Load much that stays until the process ends. The collector would look through all of it again and again: now, which takes a quarter of
    the CPU of the imports below, and later in each full collection. A run's process has other runs after this one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if RUN_PIPELINE_VARIABLE not in os.environ:
            gc.freeze()
        if was_enabled:
            gc.enable()


with _without_garbage_collection():
    from hudi_ingest.orchestration.code_location import definitions_of, shared_definitions
    from hudi_ingest.orchestration.executor import EXECUTOR
    from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, InstanceStorageIOManager
    from hudi_ingest.pipeline.folder import BrokenFile, LoadedFolder, load_folder
    from hudi_ingest.pipeline.pipeline import Pipeline
    from hudi_ingest.pipeline.template import Template
    from hudi_ingest.transaction.columns.decoding import format_problems

__all__ = ["build_definitions", "defs"]


def build_definitions(
    pipelines: Sequence[Pipeline],
    spark_config: Mapping[str, Any] | None = None,
    broken: Sequence[BrokenFile] = (),
    only: str = "",
    templates: Sequence[Template] = (),
    paths: Mapping[str, Path] = MappingProxyType({}),
    maintained: bool = True,
) -> Definitions:
    """Build our own code location: what `ingest_definitions` returns, with our executor and IO manager.
    `spark_config`: settings for ops that find no engine and start their own Spark; `only`: the one pipeline to build, if it is
    among them; `maintained`: whether to build the maintenance jobs."""
    ours = Definitions(executor=EXECUTOR, resources={IO_MANAGER: InstanceStorageIOManager()})
    folder = LoadedFolder(tuple(pipelines), tuple(broken), tuple(templates), paths)
    definitions, folder = definitions_of(folder, spark_config, only=only, jobs="" if maintained else None)
    # The process of a pipeline's run has no use for what pipelines share.
    shared = Definitions() if only else shared_definitions(folder)
    return Definitions.merge(ours, definitions, shared)


def _defined() -> Definitions:
    only = os.environ.get(RUN_PIPELINE_VARIABLE, "")
    folder = _loaded(only)
    if only and only not in {pipeline.name for pipeline in folder.pipelines}:
        # The run's asset is none of a pipeline, such as the overview, or the file has gone.
        only, folder = "", _loaded()
    loaded = build_definitions(
        folder.pipelines,
        broken=folder.broken,
        only=only,
        templates=folder.templates,
        paths=folder.paths,
        maintained=not (only and os.environ.get(RUN_ASSETS_VARIABLE)),
    )
    if not only:
        # Dagster asks for all of it before it shows anything; a run needs one job. It is kept.
        loaded.get_repository_def().get_all_jobs()
    return loaded


def _loaded(only: str = "") -> LoadedFolder:
    def problems(pipeline: Pipeline) -> Iterable[str]:
        return format_problems(pipeline) if only in ("", pipeline.name) else ()

    return load_folder(Home.from_environment().pipelines, check=problems, only=only)


with _without_garbage_collection():
    defs = _defined()
