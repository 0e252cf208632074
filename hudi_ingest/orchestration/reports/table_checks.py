"""The table's asset checks, run by hand or with the asset. Between runs, the coordinator's ticks report them."""

from collections.abc import Iterator
from datetime import datetime, timezone

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSpec,
    multi_asset_check,
)

from hudi_ingest.operations.health.findings import findings_now, findings_on_commits
from hudi_ingest.operations.health.judgement import questions
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.jobs.failures import as_dagster_failures
from hudi_ingest.orchestration.reports.check_reports import evaluation, finding_on_runs
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import observe


def table_checks(pipeline: Pipeline) -> AssetChecksDefinition:
    """Build one op for all checks; a subset may be selected."""

    @multi_asset_check(
        name=f"{pipeline.name}__checks",
        specs=[
            AssetCheckSpec(name, asset=table_key(pipeline), description=question)
            for name, question in questions(pipeline).items()
        ],
        can_subset=True,
        description=f"Checks with the table and the broker that ingestion into {pipeline.name} is healthy.",
    )
    def checks(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        with as_dagster_failures():
            situation = observe(pipeline)
            findings = findings_now(pipeline, situation, datetime.now(timezone.utc))
            findings += findings_on_commits(pipeline, situation)
            findings.append(finding_on_runs(pipeline, context.instance, situation.committed.last_began_at))
        selected = {key.name for key in context.selected_asset_check_keys}
        for finding in findings:
            if finding.check in selected:
                check = evaluation(pipeline, finding)
                yield AssetCheckResult(
                    passed=check.passed,
                    asset_key=check.asset_key,
                    check_name=check.check_name,
                    metadata=check.metadata,
                    severity=check.severity,
                    description=check.description,
                )

    return checks
