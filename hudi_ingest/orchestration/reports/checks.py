"""The checks of a table in Dagster: run by hand or with the asset, else reported by the coordinator's ticks, each change once.

Dagster reads the annotations of the checks' function, so they are not postponed here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import takewhile
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    In,
    Nothing,
    OpDefinition,
    Out,
    RunsFilter,
)

from hudi_ingest.exceptions import OffsetsLost, Transient
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.operations.health.judgement import (
    ABOUT_COMMITS,
    ACCOUNTING_HOLDS,
    LAG_BELOW_LIMIT,
    UP_TO_DATE,
    questions,
    runs_succeed,
)
from hudi_ingest.operations.observation import Observation, look_at
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key, topic_observations
from hudi_ingest.orchestration.failures import HOUSEKEEPING, STOPPED, as_dagster_failures
from hudi_ingest.orchestration.switch import switches_of
from hudi_ingest.pipeline.pipeline import Pipeline

REPEAT_SECONDS = 300
"""How often a check is reported again when only its numbers have changed."""
BLIND_SECONDS = 60
"""How long broker or table may be unreachable before a check fails."""
_SHOWN_RUNS = 50


# Shared by the checks of all pipelines. `@multi_asset_check` would inspect the function anew for each.
_TABLE = In(Nothing)
_RESULT = Out(None, is_required=False)


def table_checks(pipeline: Pipeline) -> AssetChecksDefinition:
    """Build one op for all checks; a subset may be selected."""

    def checks(context: AssetCheckExecutionContext, inputs: Mapping[str, Any]) -> Iterator[AssetCheckResult]:
        with as_dagster_failures():
            paused = switches_of(context.instance).is_paused(pipeline)
            observation = replace(look_at(pipeline).whole(), paused=paused)
            findings = [*observation.findings_now, *observation.findings_on_commits]
            findings.append(finding_on_runs(pipeline, context.instance, observation.committed.last_began_at))
        selected = {key.name for key in context.selected_asset_check_keys}
        for finding in findings:
            if finding.check in selected:
                yield AssetCheckResult(**_shown(pipeline, finding))

    table = table_key(pipeline)
    specs = [AssetCheckSpec(name, asset=table, description=question) for name, question in questions(pipeline).items()]
    by_output = {spec.get_python_identifier(): spec for spec in specs}
    definition: AssetChecksDefinition = AssetChecksDefinition.create(
        keys_by_input_name={pipeline.name: table},
        node_def=OpDefinition(
            checks,
            f"{pipeline.name}__checks",
            ins={pipeline.name: _TABLE},
            outs=dict.fromkeys(by_output, _RESULT),
            config_schema={},
            description=f"Checks with the table and the broker that ingestion into {pipeline.name} is healthy.",
        ),
        check_specs_by_output_name=by_output,
        can_subset=True,
    )
    return definition


def report_checks(observation: Observation, instance: DagsterInstance) -> None:
    """Report the checks whose answers have changed, and with the lag the topics' end offsets. Raises KafkaUnreachable, TableUnreachable."""
    pipeline, now = observation.pipeline, observation.at
    reported = _ReportedChecks.of(pipeline, instance)
    runs = finding_on_runs(pipeline, instance, observation.committed.last_began_at)
    findings = [*observation.findings_now, runs]
    checkpoint = observation.committed.checkpoint
    newest = checkpoint.transaction_id if checkpoint else ""
    # A table that was damaged since its last commit stops the runs.
    if not runs.passed or any(reported.is_outdated(name, newest) for name in ABOUT_COMMITS):
        findings += observation.findings_on_commits
    news = [finding for finding in findings if reported.is_news(finding, now)]
    if any(reported.is_turn(finding) for finding in news):
        # So that a pipeline that has just failed, or recovered, is shown with the lag of that moment.
        news = [finding for finding in findings if finding in news or finding.check in (LAG_BELOW_LIMIT, UP_TO_DATE)]
    for finding in news:
        instance.report_runless_asset_event(evaluation(pipeline, finding))
    if any(finding.check == LAG_BELOW_LIMIT for finding in news):
        for event in topic_observations(pipeline, observation.situation):
            instance.report_runless_asset_event(event)


def report_trouble(
    pipeline: Pipeline, instance: DagsterInstance, error: BaseException, now: datetime, blind_since: float | None = None
) -> None:
    """Report why a tick could not read broker or table: at once if a person must act, else once it has lasted BLIND_SECONDS since
    `blind_since`, in seconds since 1970. Failed runs are reported either way."""
    reported = _ReportedChecks.of(pipeline, instance)
    findings = [finding_on_runs(pipeline, instance, None)]
    if isinstance(error, OffsetsLost):
        findings.append(answer(pipeline.name, ACCOUNTING_HOLDS, False, str(error)))
    elif not isinstance(error, Transient) or (blind_since and now.timestamp() - blind_since >= BLIND_SECONDS):
        findings.append(answer(pipeline.name, UP_TO_DATE, False, f"It is unknown whether records are waiting: {error}"))
    for finding in findings:
        if reported.is_news(finding, now):
            instance.report_runless_asset_event(evaluation(pipeline, finding))


def finding_on_runs(pipeline: Pipeline, instance: DagsterInstance, since: datetime | None) -> Finding:
    """Find out whether the newest runs failed, of those that ended after `since`, the begin of the last committed transaction."""
    ended_runs = RunsFilter(
        tags={tags.TABLE: pipeline.table.base_path}, statuses=[DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
    )
    records = instance.get_run_records(ended_runs, limit=1)
    if records and records[0].dagster_run.status is DagsterRunStatus.FAILURE:
        records = instance.get_run_records(ended_runs, limit=_SHOWN_RUNS)
    failed = [
        record.dagster_run.run_id
        for record in takewhile(lambda record: record.dagster_run.status is DagsterRunStatus.FAILURE, records)
        if since is None or (record.end_time or 0) > since.timestamp()
    ]
    return (
        runs_succeed(pipeline, len(failed), failed[0], why_failed(instance, failed[0]))
        if failed
        else runs_succeed(pipeline, 0)
    )


def why_failed(instance: DagsterInstance, run_id: str) -> str:
    """Return the error of the op that failed first, or of the run if no op did, e.g. after a kill; "" if unknown."""
    steps = instance.all_logs(run_id, of_type=DagsterEventType.STEP_FAILURE)
    texts = [_step_error(entry.dagster_event) for entry in steps if entry.dagster_event]
    own = [text for text in texts if text and not text.startswith(STOPPED)]
    if own or texts:
        return (own or texts)[0]
    ends = instance.all_logs(run_id, of_type=DagsterEventType.RUN_FAILURE)
    return next((entry.message or entry.user_message for entry in ends), "")


def _step_error(event: DagsterEvent) -> str:
    failure = event.step_failure_data
    if failure.user_failure_data is not None and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error else ""


def why_housekeeping_failed(instance: DagsterInstance) -> str:
    """Why the newest run of housekeeping that has ended failed; "" if it succeeded, or none has ended."""
    statuses = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
    runs = instance.get_runs(RunsFilter(tags={tags.HOUSEKEEPING: "true"}, statuses=statuses), limit=1)
    if not runs or runs[0].status is DagsterRunStatus.SUCCESS:
        return ""
    reason = why_failed(instance, runs[0].run_id) or "its page says why"
    return (
        f"The last run of {HOUSEKEEPING}, {runs[0].run_id[:8]}, failed: {reason} While it fails, old runs, events and rows of the ledger pile "
        "up. The next one comes within an hour; `hudi-ingest housekeeping` does its work now."
    )


def evaluation(pipeline: Pipeline, finding: Finding) -> AssetCheckEvaluation:
    """Convert a finding to a Dagster evaluation."""
    return AssetCheckEvaluation(**_shown(pipeline, finding))


def _shown(pipeline: Pipeline, finding: Finding) -> dict[str, Any]:
    return {
        "asset_key": table_key(pipeline),
        "check_name": finding.check,
        "passed": finding.passed,
        "severity": AssetCheckSeverity.WARN if finding.warning else AssetCheckSeverity.ERROR,
        "description": as_markdown(finding.text),
        "metadata": dict(finding.figures),
    }


def as_markdown(text: str) -> str:
    """Separate lines by blank lines: Dagster shows a check's description as Markdown, which would join them."""
    return re.sub(r"\n+", "\n\n", text.strip())


@dataclass(frozen=True, slots=True)
class _Report:
    """The newest report of a check; `evaluation`: None if there is only a plan for one. `at`: seconds since 1970, 0 without an event."""

    evaluation: AssetCheckEvaluation | None
    run_id: str
    at: float


@dataclass(frozen=True, slots=True)
class _ReportedChecks:
    """The reports that Dagster already shows: the newest evaluation of each check, and when and by which run the table was
    materialized."""

    records: Mapping[str, _Report]
    materialized_at: float = 0.0
    materialized_by: str = ""

    @classmethod
    def of(cls, pipeline: Pipeline, instance: DagsterInstance) -> "_ReportedChecks":
        table = table_key(pipeline)
        keys = [AssetCheckKey(table, name) for name in questions(pipeline)]
        by_key = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        materialized = instance.get_latest_materialization_event(table)
        records = {
            key.name: _Report(
                record.evaluation if isinstance(record.evaluation, AssetCheckEvaluation) else None,
                record.run_id,
                record.event.timestamp if record.event else 0.0,
            )
            for key, record in by_key.items()
        }
        return cls(records, materialized.timestamp, materialized.run_id) if materialized else cls(records)

    def is_outdated(self, check: str, transaction_id: str) -> bool:
        """Whether the check's last report was about a transaction older than the newest, or says what a person may have mended since."""
        known = self._known(check)
        reported = known.metadata.get("transaction") if known else None
        broken = check == ACCOUNTING_HOLDS and known is not None and not known.passed
        return broken or reported is None or reported.value != transaction_id or self._is_grey(check)

    def is_news(self, finding: Finding, now: datetime) -> bool:
        known = self._known(finding.check)
        if known is None or known.passed != finding.passed or self._is_grey(finding.check):
            return True
        before = {name: entry.value for name, entry in known.metadata.items()}
        changed = {
            name for name in before.keys() | finding.figures.keys() if before.get(name) != finding.figures.get(name)
        }
        if any(isinstance(before.get(name, finding.figures.get(name)), str) for name in changed):
            return True
        return bool(changed) and now.timestamp() - self._reported_at(finding.check) >= REPEAT_SECONDS

    def is_turn(self, finding: Finding) -> bool:
        """Whether the check passed until now and fails, or the other way around."""
        known = self._known(finding.check)
        return known is not None and known.passed != finding.passed

    def _is_grey(self, check: str) -> bool:
        """Whether Dagster shows it as not evaluated: reported before the newest materialization, and not by its run."""
        record = self.records.get(check)
        by_the_commit = record is not None and record.run_id == self.materialized_by
        return self._reported_at(check) < self.materialized_at and not by_the_commit

    def _known(self, check: str) -> AssetCheckEvaluation | None:
        return self.records[check].evaluation if check in self.records else None

    def _reported_at(self, check: str) -> float:
        return self.records[check].at if check in self.records else 0.0


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
