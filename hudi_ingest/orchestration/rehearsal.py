"""A run that does nothing, in a Dagster of its own in a temporary folder, executed when this module is imported.

Dagster and SQLAlchemy import modules and fill caches when they are first used: 0.25 CPU seconds of a run. What the forking process has
done once, no run repeats. multiprocessing takes a list of modules that its fork server imports before it forks, and offers no other
way to have that process do anything. So this module is the last of that list (`run_processes.IMPORTED_BY_RUNS`), and nothing
else may import it.
"""

import logging
import tempfile
from pathlib import Path

from dagster import (
    AssetCheckEvaluation,
    AssetExecutionContext,
    AssetKey,
    Config,
    DagsterInstance,
    Definitions,
    JobDefinition,
    TableColumn,
    asset,
    define_asset_job,
    execute_job,
    reconstructable,
)
from pydantic import Field

from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.sqlite_storage import close_connections
from hudi_ingest.orchestration.executor import EXECUTOR
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, LEDGER, LEDGER_ONLY, InstanceStorageIOManager
from hudi_ingest.orchestration.reports.materialization import metadata_table

_logger = logging.getLogger(__name__)
_INSTANCE = """
telemetry: {enabled: false}
storage: {custom: {module: hudi_ingest.orchestration.embedded.sqlite_storage, class: QuickSqliteStorage, config: {base_dir: %s}}}
compute_logs: {module: hudi_ingest.orchestration.embedded.step_logs, class: FileComputeLogManager, config: {base_dir: %s}}
"""
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_NAME = "rehearsal"


class RehearsalConfig(Config):
    """The config of a transaction's first op."""

    slices: list[str] = Field(default=[], description="Offset ranges")


@asset(name=_NAME, io_manager_key=IO_MANAGER, required_resource_keys={LEDGER})
def rehearsal(context: AssetExecutionContext, config: RehearsalConfig) -> int:
    context.instance.add_run_tags(context.run_id, {"a": "b"})
    context.log.info("begun")
    context.log_event(AssetCheckEvaluation(AssetKey(_NAME), "works", True))
    context.add_output_metadata({"slices": metadata_table([TableColumn("rows", "int")], [{"rows": 1}])})
    return len(config.slices)


def rehearsed_job() -> JobDefinition:
    """Build the asset's job, with the executor and the resources of a transaction."""
    definitions = Definitions(
        assets=[rehearsal],
        jobs=[define_asset_job(f"{_NAME}_job", [rehearsal], tags={tags.IN_PROCESS: "true"}, config=_QUIET)],
        resources={**LEDGER_ONLY, IO_MANAGER: InstanceStorageIOManager()},
        executor=EXECUTOR,
    )
    return definitions.resolve_job_def(f"{_NAME}_job")


def _rehearse() -> None:
    """Run the job. Leaves no thread and no connection, so that the process can be forked. A failure is logged, not raised: runs are as
    right without a rehearsal, they only take longer to start."""
    try:
        with tempfile.TemporaryDirectory(prefix="hudi-ingest-rehearsal-") as folder:
            Path(folder, "dagster.yaml").write_text(_INSTANCE % (folder, folder))
            try:
                with DagsterInstance.from_config(folder) as instance:
                    execute_job(reconstructable(rehearsed_job), instance, raise_on_error=True)
            finally:
                close_connections()
    except Exception:
        _logger.warning("The rehearsal of a run failed, so each run takes longer to start.", exc_info=True)


_rehearse()
