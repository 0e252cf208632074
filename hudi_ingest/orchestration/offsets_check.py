"""The asset check `offsets_honoured`: red while the broker does not hold what comes next for some partition."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetKey,
    DagsterInstance,
    MetadataValue,
    asset_check,
)

from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import observe, stopped_partitions
from hudi_ingest.model import OffsetLoss
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.orchestration.table_asset import table_key
from hudi_ingest.planning import sources_text, stop_text

NAME = "offsets_honoured"
_DESCRIPTION = "Fails while a partition is stopped because the broker does not hold its committed offset any more."


def offsets_check(pipeline: Pipeline) -> AssetChecksDefinition:
    """The pipeline's check, as it is run by hand or with the asset; between runs the sensor's ticks report it."""

    @asset_check(asset=table_key(pipeline), name=NAME, description=_DESCRIPTION)
    def offsets_honoured() -> AssetCheckResult:
        with as_dagster_failures():
            stopped = stopped_partitions(pipeline, observe(pipeline))
        return AssetCheckResult(
            passed=not stopped,
            severity=AssetCheckSeverity.ERROR,
            description=stop_text(pipeline.name, stopped),
            metadata={"stopped": sources_text(stopped)},
        )

    return offsets_honoured


def report_offsets_check(pipeline: Pipeline, instance: DagsterInstance, stopped: Sequence[OffsetLoss]) -> None:
    """Tells Dagster what the check finds, when that is news. After each materialization it is: Dagster shows a check that is
    older than that as not evaluated."""
    key = AssetCheckKey(table_key(pipeline), NAME)
    record = instance.get_latest_asset_check_evaluation_record(key)
    known = record.evaluation if record else None
    names = sources_text(stopped)
    same = isinstance(known, AssetCheckEvaluation) and known.metadata.get("stopped") == MetadataValue.text(names)
    told_at = record.event.timestamp if record and record.event else 0.0
    if same and told_at >= materialized_at(instance, key.asset_key):
        return
    instance.report_runless_asset_event(
        AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=NAME,
            passed=not stopped,
            severity=AssetCheckSeverity.ERROR,
            description=stop_text(pipeline.name, stopped),
            metadata={"stopped": names},
        )
    )


def materialized_at(instance: DagsterInstance, key: AssetKey) -> float:
    """Seconds since the epoch; 0 for an asset that never was."""
    event = instance.get_latest_materialization_event(key)
    return event.timestamp if event else 0.0
