"""How the coordinator's ticks tell Dagster what the table's checks find: what is news, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dagster import AssetCheckEvaluation, AssetCheckKey, AssetCheckSeverity, DagsterInstance
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import Situation, stopped_partitions
from hudi_ingest.exceptions import IngestError, OffsetsLost, Transient
from hudi_ingest.health import (
    ABOUT_COMMITS,
    ACCOUNTING_HOLDS,
    DEAD_LETTERS,
    FILES_LARGE_ENOUGH,
    LAG_BELOW_LIMIT,
    QUESTIONS,
    UP_TO_DATE,
    Finding,
    accounting_holds,
    dead_letters,
    files_large_enough,
    lag_below_limit,
    offsets_honoured,
    up_to_date,
)
from hudi_ingest.hudi.timeline import Timeline
from hudi_ingest.orchestration.table_asset import table_key
from hudi_ingest.orchestration.topic_assets import topic_observations

RETOLD_SECONDS = 300
"""How often a check is told again when only its numbers have changed: often enough for a plot."""
_WARNINGS = (LAG_BELOW_LIMIT, FILES_LARGE_ENOUGH, DEAD_LETTERS)


def report_checks(pipeline: Pipeline, instance: DagsterInstance, situation: Situation, now: datetime) -> None:
    """Tells Dagster what is news of the checks, and with the lag the topics' ends. Raises KafkaUnreachable, TableUnreachable."""
    told = _Told.of(pipeline, instance)
    findings = findings_now(pipeline, situation, now)
    checkpoint = situation.committed.checkpoint
    if any(told.is_outdated(name, checkpoint.transaction_id if checkpoint else "") for name in ABOUT_COMMITS):
        findings += findings_on_commits(pipeline, situation)
    news = [each for each in findings if told.is_news(each, now)]
    for each in news:
        instance.report_runless_asset_event(evaluation(pipeline, each))
    if any(each.check == LAG_BELOW_LIMIT for each in news):
        for observation in topic_observations(pipeline, situation):
            instance.report_runless_asset_event(observation)


def report_trouble(pipeline: Pipeline, instance: DagsterInstance, error: IngestError, now: datetime) -> None:
    """Tells Dagster of what keeps a tick from looking: at once when a person must act, else when it lasts too long."""
    told = _Told.of(pipeline, instance)
    if isinstance(error, OffsetsLost):
        finding = Finding(ACCOUNTING_HOLDS, False, str(error))
    else:
        last = told.materialized_at
        late = last and now.timestamp() - last > pipeline.late_after_seconds
        if isinstance(error, Transient) and not late:
            return
        finding = Finding(UP_TO_DATE, False, f"Whether records wait cannot be told: {error}")
    if told.is_news(finding, now):
        instance.report_runless_asset_event(evaluation(pipeline, finding))


def findings_now(pipeline: Pipeline, situation: Situation, now: datetime) -> list[Finding]:
    """What can change at any moment. Raises KafkaUnreachable."""
    waiting = situation.lag.total
    return [
        offsets_honoured(pipeline, stopped_partitions(pipeline, situation)),
        lag_below_limit(pipeline, waiting),
        up_to_date(pipeline, waiting, situation.committed.last_began_at, now),
    ]


def findings_on_commits(pipeline: Pipeline, situation: Situation) -> list[Finding]:
    """What changes with commits only; reads them again. Raises TableUnreachable."""
    checkpoint = situation.committed.checkpoint
    commits = Timeline(pipeline.table.base_path).commits_of(pipeline.transaction_key)
    return [
        accounting_holds(pipeline, checkpoint, commits),
        files_large_enough(pipeline, checkpoint, commits),
        dead_letters(pipeline, checkpoint, situation.committed.last_rejected),
    ]


def evaluation(pipeline: Pipeline, finding: Finding) -> AssetCheckEvaluation:
    """The finding as Dagster's."""
    return AssetCheckEvaluation(
        asset_key=table_key(pipeline),
        check_name=finding.check,
        passed=finding.passed,
        severity=AssetCheckSeverity.WARN if finding.check in _WARNINGS else AssetCheckSeverity.ERROR,
        description=finding.text,
        metadata=dict(finding.figures),
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """What Dagster knows: the newest evaluation of each check, and when the table was materialized (0: never)."""

    records: Mapping[str, AssetCheckExecutionRecord]
    materialized_at: float

    @classmethod
    def of(cls, pipeline: Pipeline, instance: DagsterInstance) -> _Told:
        table = table_key(pipeline)
        keys = [AssetCheckKey(table, name) for name in QUESTIONS]
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        materialized = instance.get_latest_materialization_event(table)
        return cls({key.name: record for key, record in found.items()}, materialized.timestamp if materialized else 0.0)

    def is_outdated(self, check: str, transaction_id: str) -> bool:
        """Whether the check was told of another transaction than the newest. Dagster shows a check that is older than the
        newest materialization as not evaluated, so that one counts, too."""
        known = self._known(check)
        told = known.metadata.get("transaction") if known else None
        return told is None or told.value != transaction_id or self._told_at(check) < self.materialized_at

    def is_news(self, finding: Finding, now: datetime) -> bool:
        known = self._known(finding.check)
        if known is None or known.passed != finding.passed or self._told_at(finding.check) < self.materialized_at:
            return True
        before = {name: each.value for name, each in known.metadata.items()}
        changed = {
            name for name in before.keys() | finding.figures.keys() if before.get(name) != finding.figures.get(name)
        }
        if any(isinstance(before.get(name, finding.figures.get(name)), str) for name in changed):
            return True
        return bool(changed) and now.timestamp() - self._told_at(finding.check) >= RETOLD_SECONDS

    def _known(self, check: str) -> AssetCheckEvaluation | None:
        found = self.records[check].evaluation if check in self.records else None
        return found if isinstance(found, AssetCheckEvaluation) else None

    def _told_at(self, check: str) -> float:
        record = self.records.get(check)
        return record.event.timestamp if record and record.event else 0.0
