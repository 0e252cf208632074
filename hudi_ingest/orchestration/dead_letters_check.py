"""The asset check `dead_letters`: a warning while the last transaction had bad records that it left out of the table."""

from __future__ import annotations

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    DagsterInstance,
    MetadataValue,
    asset_check,
)

from hudi_ingest.config import Pipeline
from hudi_ingest.hudi.timeline import CommittedState, Timeline
from hudi_ingest.orchestration.check_reports import materialized_at
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.orchestration.table_asset import table_key

NAME = "dead_letters"
_DESCRIPTION = "Warns when the last transaction had records that could not become rows."


def dead_letters_check(pipeline: Pipeline) -> AssetChecksDefinition:
    """The pipeline's check, as it is run by hand or with the asset; between runs the sensor's ticks report it."""

    @asset_check(asset=table_key(pipeline), name=NAME, description=_DESCRIPTION)
    def dead_letters() -> AssetCheckResult:
        with as_dagster_failures():
            timeline = Timeline(pipeline.table.base_path)
            committed = timeline.committed(pipeline.checkpoint_key, pipeline.transaction_key)
        return AssetCheckResult(
            passed=not committed.last_rejected,
            severity=AssetCheckSeverity.WARN,
            description=_text(pipeline, committed),
            metadata=_metadata(committed),
        )

    return dead_letters


def report_dead_letters_check(pipeline: Pipeline, instance: DagsterInstance, committed: CommittedState) -> None:
    """Tells Dagster what the check finds, when that is news. After each materialization it is: Dagster shows a check that is
    older than that as not evaluated."""
    key = AssetCheckKey(table_key(pipeline), NAME)
    record = instance.get_latest_asset_check_evaluation_record(key)
    known = record.evaluation if record else None
    metadata = {name: MetadataValue.int(value) for name, value in _metadata(committed).items()}
    same = isinstance(known, AssetCheckEvaluation) and metadata == dict(known.metadata)
    told_at = record.event.timestamp if record and record.event else 0.0
    if same and told_at >= materialized_at(instance, key.asset_key):
        return
    instance.report_runless_asset_event(
        AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=NAME,
            passed=not committed.last_rejected,
            severity=AssetCheckSeverity.WARN,
            description=_text(pipeline, committed),
            metadata=metadata,
        )
    )


def _metadata(committed: CommittedState) -> dict[str, int]:
    return {
        "bad records of the last transaction": committed.last_rejected,
        "dead letters that wait": _waiting(committed),
    }


def _waiting(committed: CommittedState) -> int:
    checkpoint = committed.checkpoint
    return checkpoint.letters.waiting if checkpoint and checkpoint.letters else 0


def _text(pipeline: Pipeline, committed: CommittedState) -> str:
    waiting = _waiting(committed)
    wait = f"{waiting} dead letters wait: `hudi-ingest dead-letters list {pipeline.name}` says why." if waiting else ""
    if not committed.last_rejected:
        return f"The last transaction had no bad records. {wait}".strip()
    kept = "kept as dead letters" if pipeline.on_bad_record == "dead_letter" else "counted and left out"
    return f"The last transaction had {committed.last_rejected} bad records, which were {kept}. {wait}".strip()
