"""The newest results of the tables' checks, as Dagster stores them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from dagster import AssetCheckEvaluation, AssetCheckKey, AssetCheckSeverity, DagsterInstance

from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.operations.health.judgement import questions
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.pipeline.pipeline import Pipeline


def newest_results(
    instance: DagsterInstance, pipelines: Sequence[Pipeline], only: str = ""
) -> dict[str, dict[str, Finding]]:
    """Return the newest result of each check that was reported, by pipeline and check; one query. `only`: the one check to ask for."""
    owners = {
        AssetCheckKey(table_key(pipeline), check): pipeline.name
        for pipeline in pipelines
        for check in ([only] if only else questions(pipeline))
    }
    results: dict[str, dict[str, Finding]] = {pipeline.name: {} for pipeline in pipelines}
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key([*owners])
    for key, record in records.items():
        evaluation = record.evaluation
        if isinstance(evaluation, AssetCheckEvaluation) and record.event is not None:
            values = {name: entry.value for name, entry in evaluation.metadata.items()}
            results[owners[key]][key.name] = answer(
                owners[key],
                key.name,
                evaluation.passed,
                evaluation.description or "no reason is known",
                {name: value for name, value in values.items() if isinstance(value, (int, float, str))},
                evaluation.severity is AssetCheckSeverity.WARN,
                datetime.fromtimestamp(record.event.timestamp, timezone.utc),
            )
    return results
