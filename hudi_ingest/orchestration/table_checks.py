"""The table's asset checks, to be run by hand or with the asset; between runs the coordinator's ticks report them."""

from collections.abc import Iterator
from datetime import datetime, timezone

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSpec,
    multi_asset_check,
)

from hudi_ingest.operations.health import QUESTIONS
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.check_reports import evaluation, finding_on_runs, findings_now, findings_on_commits
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.situation import observe


def table_checks(pipeline: Pipeline) -> AssetChecksDefinition:
    """One op for all of them; a part may be chosen."""

    @multi_asset_check(
        name=f"{pipeline.name}__checks",
        specs=[AssetCheckSpec(name, asset=table_key(pipeline), description=asks) for name, asks in QUESTIONS.items()],
        can_subset=True,
        description=f"Asks the table and the broker whether ingestion into {pipeline.name} is well.",
    )
    def checks(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        with as_dagster_failures():
            situation = observe(pipeline)
            findings = findings_now(pipeline, situation, datetime.now(timezone.utc))
            findings += findings_on_commits(pipeline, situation)
            findings.append(finding_on_runs(pipeline, context.instance, situation.committed.last_began_at))
        wanted = {key.name for key in context.selected_asset_check_keys}
        for each in findings:
            if each.check in wanted:
                found = evaluation(pipeline, each)
                yield AssetCheckResult(
                    passed=found.passed,
                    asset_key=found.asset_key,
                    check_name=found.check_name,
                    metadata=found.metadata,
                    severity=found.severity,
                    description=found.description,
                )

    return checks
