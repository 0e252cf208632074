"""Pipelines as part of a code location that is not ours: definitions to merge with a team's own.

defs = Definitions.merge(
    ingest_definitions(Path(__file__).parent / "pipelines"),
    Definitions(assets=[...], executor=k8s_job_executor, resources={"io_manager": ...}),
)
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dagster import AssetSpec, Definitions

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import unexpected
from hudi_ingest.home.folder import Home
from hudi_ingest.orchestration.asset_keys import topic_assets, topics_by_pipeline
from hudi_ingest.orchestration.broken_files import broken_definitions, named_files, problem_text
from hudi_ingest.orchestration.coordinator.sensor import coordinator_sensor
from hudi_ingest.orchestration.housekeeping import housekeeping_definitions
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, ingest_resources
from hudi_ingest.orchestration.pipeline_definitions import maintenance_of, pipeline_definitions
from hudi_ingest.orchestration.reports.alerts_sensor import alerts_definitions
from hudi_ingest.orchestration.reports.overview import overview_definitions
from hudi_ingest.pipeline.code_location import load_alert_settings, load_housekeeping_settings
from hudi_ingest.pipeline.folder import BrokenFile, LoadedFolder, load_folder
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.decoding import format_problems

_logger = logging.getLogger(__name__)
Settings = TypeVar("Settings")


def ingest_definitions(
    pipelines: Path | str | Sequence[Pipeline] | None = None,
    *,
    spark_config: Mapping[str, Any] | None = None,
    io_manager_key: str = IO_MANAGER,
    housekeeping: bool = True,
) -> Definitions:
    """Return the assets, checks, jobs, sensors and schedules of pipelines, for `Definitions.merge` with a team's own.

    They set neither executor nor IO manager: jobs take those of the merged definitions. Their own resources are called
    `hudi_ingest_spark` and `hudi_ingest_ledger`.

    `pipelines`: a folder of pipeline files, by default `HUDI_INGEST_PIPELINES`, or loaded pipelines. A file that cannot be
    loaded becomes an asset that says why. `spark_config`: Spark settings for ops that find no engine and start their own
    driver. `io_manager_key`: the resource through which a run's ops hand each other their results, small values that any JSON
    or pickle store takes; name another one if the location's `io_manager` stores only tables. `housekeeping`: whether old runs,
    events and ticks of the location's pipelines, and their rows in the ledger, are deleted by a job with an hourly schedule; nothing
    else of the instance is touched.

    Raises ConfigError if the folder cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     definitions = ingest_definitions(folder, housekeeping=False)
    >>> [sensor.name.rsplit("_", 1)[0] for sensor in definitions.sensors or ()]
    []
    """
    home = Home.from_environment()
    where = str(Path(pipelines).resolve()) if isinstance(pipelines, (str, Path)) else ""
    if pipelines is None or isinstance(pipelines, (str, Path)):
        loaded = load_folder(home.pipelines if pipelines is None else Path(pipelines), check=format_problems)
    else:
        loaded = LoadedFolder(tuple(pipelines))
    # Definitions of several folders may be merged, and no two sensors or schedules of a code location may have the same name.
    suffix = "" if where in ("", str(home.pipelines)) else f"_{zlib.crc32(where.encode()):08x}"
    definitions, loaded = definitions_of(loaded, spark_config, io_manager_key, jobs=suffix)
    shared = shared_definitions(loaded, suffix, housekeeping=housekeeping)
    return Definitions.merge(definitions, shared)


def shared_definitions(folder: LoadedFolder, suffix: str = "", *, housekeeping: bool = True) -> Definitions:
    """Return the definitions that the pipelines of a code location share: the coordinator, alerts, overview, housekeeping, and assets for
    settings files that cannot be loaded. `suffix`: of their names, if a code location merges several."""
    home, pipelines = Home.from_environment(), folder.pipelines
    kept = _loaded(load_housekeeping_settings, home, home.housekeeping_settings_file, "nothing old is deleted", suffix)
    told = _loaded(load_alert_settings, home, home.alerts_settings_file, "no alerts are sent", suffix)
    settings = [file for file in (kept, told) if isinstance(file, BrokenFile)]
    is_on = isinstance(kept, BrokenFile) or kept.enabled
    broken = {**named_files(folder.broken, [pipeline.name for pipeline in pipelines]), **named_files(settings, ())}
    sensors = [coordinator_sensor(pipelines, folder.templates, broken, suffix)]
    return Definitions.merge(
        Definitions(sensors=sensors if pipelines or folder.templates or broken else []),
        alerts_definitions(pipelines, [*broken.values()], suffix),
        overview_definitions(pipelines, suffix),
        housekeeping_definitions(is_on, suffix) if housekeeping else Definitions(),
        broken_definitions(settings, ()),
    )


def _loaded(
    load: Callable[[Home], Settings], home: Home, path: Path, effect: str, suffix: str
) -> Settings | BrokenFile:
    """Load one of the location's own settings files, or return why it cannot be loaded. engine.yaml is the engine's, whose variables
    need not be set here."""
    try:
        return load(home)
    except ConfigError as error:
        return BrokenFile(
            path, f"hudi_ingest_{path.stem}_file{suffix}", error.problems, f"{effect}; pipelines continue"
        )


def definitions_of(
    folder: LoadedFolder,
    spark_config: Mapping[str, Any] | None = None,
    io_manager_key: str = IO_MANAGER,
    only: str = "",
    others: Sequence[Pipeline] = (),
    jobs: str | None = "",
    specs: Mapping[str, AssetSpec] | None = None,
) -> tuple[Definitions, LoadedFolder]:
    """Return the definitions of each pipeline of a folder already loaded, with the maintenance jobs that they share, and the folder with
    pipelines that have none among the broken. `only`: the one pipeline to build, if it is among them; `others`: pipelines that the
    code location has elsewhere, which may provide the topics that both read; `jobs`: how the names of the maintenance jobs end,
    None for no such jobs; `specs`: of tables, by pipeline, instead of `table_spec`."""
    resources = ingest_resources(spark_config)
    pipelines = [pipeline for pipeline in folder.pipelines if pipeline.name == only] or folder.pipelines
    topics = topics_by_pipeline([*folder.pipelines, *others])
    parts, broken = list[Definitions](), list(folder.broken)
    if jobs is not None:
        parts.append(maintenance_of(pipelines, jobs).definitions(resources))
    for pipeline in pipelines:
        own_topics = topic_assets(pipeline, topics[pipeline.name])
        try:
            parts.append(
                pipeline_definitions(pipeline, own_topics, resources, io_manager_key, (specs or {}).get(pipeline.name))
            )
        except Exception as error:
            _logger.error("Pipeline %s cannot be defined in Dagster", pipeline.name, exc_info=error)
            path = folder.paths.get(pipeline.name, Path(f"{pipeline.name}.yaml"))
            broken.append(BrokenFile(path, pipeline.name, (f"Dagster cannot define it: {error}; {unexpected(error)}",)))
            parts.append(Definitions(assets=own_topics))
    for file in broken:
        # In a run's or a step's process nothing else would say why the asset is missing, for example for a variable that is
        # set for the code server only.
        _logger.warning("%s", problem_text(file))
    failed = {file.name for file in broken[len(folder.broken) :]}
    built = replace(
        folder,
        pipelines=tuple(pipeline for pipeline in folder.pipelines if pipeline.name not in failed),
        broken=tuple(broken),
    )
    assets = broken_definitions(broken, [pipeline.name for pipeline in built.pipelines])
    return Definitions.merge(*parts, assets), built
