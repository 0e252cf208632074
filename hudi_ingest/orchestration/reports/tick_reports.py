"""Reports from every coordinator tick to Dagster, whatever it decides: checks, lag, and commits that no run has reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from dagster import (
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    DagsterRunStatus,
    EventLogRecord,
    MetadataValue,
    RunsFilter,
)

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.operations.health.judgement import LAG_RECORDS
from hudi_ingest.operations.observation import Observation
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.reports.checks import report_checks
from hudi_ingest.orchestration.reports.complete_periods import ReportedPeriods, report_periods
from hudi_ingest.orchestration.reports.materialization import (
    by_kind,
    changes_of,
    complete_metadata,
    lag_metadata,
    row_count,
)
from hudi_ingest.orchestration.switch import DECISION, WHY, observed_decision
from hudi_ingest.pipeline.pipeline import Pipeline

LEAST_SECONDS = 60
"""Minimum time between lag observations: Dagster keeps each for as long as the asset."""
_LOOKED_BACK = 50


@dataclass(slots=True)
class Reported:
    """The events that Dagster was found to have of one table, so that it is not asked while nothing is new."""

    commits: tuple[tuple[int, float, str] | None, tuple[str, ...]] | None = None
    """The newest materialization, and transactions that all had one before it was found. It stays true while that one is still the
    newest: Dagster only adds materializations, or deletes all of an asset's."""
    periods: ReportedPeriods | None = None
    decision: str = ""
    """The decision that was shown last, without its numbers."""
    decided_at: float = 0.0


def report(observation: Observation, instance: DagsterInstance, reported: Reported) -> None:
    """Report checks, commits and lag; `reported` is kept up to date. Raises KafkaUnreachable, KafkaRefused, TableUnreachable."""
    pipeline = observation.pipeline
    newest = newest_materialization(pipeline, instance)
    if report_commits(observation, instance, newest, reported):
        newest = newest_materialization(pipeline, instance)
    report_checks(observation, instance)
    reported.periods = report_periods(observation, instance, reported.periods)
    report_lag(observation, instance, newest)


def report_decision(
    pipeline: Pipeline,
    instance: DagsterInstance,
    decision: str,
    reason: str,
    now: datetime,
    reported: Reported,
    on: bool = True,
) -> None:
    """Show the decision on the asset, and why, once it has changed by more than its numbers, and at most once per interval and per
    minute. `on`: whether the pipeline is."""
    shown = without_numbers(f"{decision}: {reason}")
    soon = now.timestamp() - reported.decided_at < max(LEAST_SECONDS, pipeline.transaction.interval_seconds)
    if not reported.decision or not on:
        # Another process may have shown it, such as the command that paused the pipeline.
        records = instance.fetch_observations(table_key(pipeline), limit=10).records
        metadata = [each.asset_observation.metadata for each in records if each.asset_observation]
        newest = next((each for each in metadata if DECISION in each), {})
        reported.decision = without_numbers(
            ": ".join(str(newest[key].value) for key in (DECISION, WHY) if key in newest)
        )
    if shown == reported.decision or (soon and on):
        return
    instance.report_runless_asset_event(observed_decision(pipeline, decision, reason, on))
    reported.decision, reported.decided_at = shown, now.timestamp()


def without_numbers(text: str) -> str:
    """Replace numbers and ids, which differ without anything having changed."""
    return re.sub(r"\b(?=[\w-]*\d)[\w.,:-]+", "0", text)


def report_repairs(pipeline: Pipeline, instance: DagsterInstance, repairs: Sequence[str]) -> None:
    """Show on the asset what was repaired after a power cut."""
    for text in repairs:
        instance.report_runless_asset_event(
            AssetObservation(table_key(pipeline), description=f"Repaired: {text}", metadata={"repair": text})
        )


def report_lag(observation: Observation, instance: DagsterInstance, materialized: EventLogRecord | None) -> None:
    """Observe the lag while there are no commits to show it: at most once per interval and per minute, and only while records
    are waiting or were at the last point. `materialized`: the table's newest materialization."""
    pipeline = observation.pipeline
    recent = observation.at.timestamp() - max(LEAST_SECONDS, pipeline.transaction.interval_seconds)
    newest = _newest_lag(pipeline, instance, materialized, recent)
    if newest is not None and newest[0] > recent:
        return
    waiting = observation.situation.lag.total
    if not waiting and (newest is None or not newest[1]):
        return
    seconds = observation.oldest_seconds
    metadata = lag_metadata(waiting, seconds)
    since = f", the oldest for {seconds:,.0f} s." if seconds else "."
    event = AssetObservation(
        table_key(pipeline), description=f"{counted(waiting, 'record')} waiting{since}", metadata=metadata
    )
    instance.report_runless_asset_event(event)


def report_commits(
    observation: Observation, instance: DagsterInstance, newest: EventLogRecord | None, reported: Reported
) -> bool:
    """Materialize the newest commits that Dagster does not know: from the command line, from Python, and from runs that died
    after their commit. `newest`: the table's newest materialization. Returns whether there was such a commit."""
    pipeline, transactions, before = observation.pipeline, observation.committed.transactions, reported.commits
    if before == (_identity(newest), transactions):
        return False
    unknown: Sequence[str] = transactions
    if before is not None:
        # Mostly there is one more. Without the one before it, which was the newest, all of the asset's have been deleted.
        last, earlier, *_ = [*instance.fetch_materializations(table_key(pipeline), limit=2).records, None, None]
        if earlier is not None and _identity(earlier) == before[0]:
            unknown = sorted({*transactions} - {*before[1], *_transactions_of([last])})
    unknown = _unknown(pipeline, instance, unknown)
    # A run reports its commit before it ends, so ask for the runs first and for the events after them.
    unreported = [transaction for transaction in unknown if not _may_still_report(instance, transaction)]
    unreported = _unknown(pipeline, instance, unreported)
    if not unknown:
        reported.commits = (_identity(newest), transactions)
    if not unreported:
        return False
    for commit, accounting in observation.accounted:
        if accounting.transaction_id in unreported:
            instance.report_runless_asset_event(_materialization(pipeline, commit, accounting))
    return True


def newest_materialization(pipeline: Pipeline, instance: DagsterInstance) -> EventLogRecord | None:
    return next(iter(instance.fetch_materializations(table_key(pipeline), limit=1).records), None)


def _identity(record: EventLogRecord | None) -> tuple[int, float, str] | None:
    return (record.storage_id, record.timestamp, record.run_id) if record else None


def _materialization(pipeline: Pipeline, commit: CommittedInstant, accounting: Accounting) -> AssetMaterialization:
    checkpoint = Checkpoint.from_json(commit.metadata[pipeline.checkpoint_key])
    metadata = {
        "instant": commit.instant,
        "transaction": accounting.transaction_id,
        "committed at": MetadataValue.timestamp(commit.completed_at),
        "rows": accounting.rows,
        "skipped": sum(account.skipped for account in accounting.slices),
        "filtered": sum(account.filtered for account in accounting.slices),
        **changes_of(accounting.slices),
        "bad records": accounting.rejected,
        "files": len(commit.files),
        "bytes": commit.size_bytes,
        "bytes per file": commit.size_bytes // len(commit.files) if commit.files else 0,
        **complete_metadata(checkpoint.complete),
        **row_count(pipeline, checkpoint),
    }
    return AssetMaterialization(
        table_key(pipeline),
        description="Committed outside of Dagster, or by a run that died before it could report it.",
        metadata=by_kind(accounting.kind, metadata),
    )


def _may_still_report(instance: DagsterInstance, transaction_id: str) -> bool:
    runs = instance.get_runs(RunsFilter(tags={tags.TRANSACTION: transaction_id}))
    return any(run.status in _ALIVE for run in runs)


_ALIVE = (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)


def _unknown(pipeline: Pipeline, instance: DagsterInstance, transactions: Sequence[str]) -> list[str]:
    """Return the transactions without one of the asset's newest materializations, in order."""
    if not transactions:
        return []
    known = {*_transactions_of(instance.fetch_materializations(table_key(pipeline), limit=_LOOKED_BACK).records)}
    return [transaction for transaction in transactions if transaction not in known]


def _transactions_of(records: Iterable[EventLogRecord | None]) -> Iterator[str]:
    for record in records:
        metadata = record.asset_materialization.metadata if record and record.asset_materialization else {}
        if "transaction" in metadata:
            yield str(metadata["transaction"].value)


def _newest_lag(
    pipeline: Pipeline, instance: DagsterInstance, materialized: EventLogRecord | None, recent: float
) -> tuple[float, int] | None:
    """Return when a commit or a tick last reported the lag, and what it was then. A commit's report later than `recent` will do."""
    points = [*_lags([materialized] if materialized else [])]
    if not points or points[0][0] <= recent:
        points += _lags(instance.fetch_observations(table_key(pipeline), limit=10).records)
    return max(points, default=None)


def _lags(records: Iterable[EventLogRecord]) -> Iterator[tuple[float, int]]:
    for record in records:
        event = record.asset_materialization or record.asset_observation
        lag = event.metadata.get(LAG_RECORDS) if event else None
        # A commit that a tick reported has no lag, so it is not a point.
        if lag is not None and isinstance(lag.value, int):
            yield record.timestamp, lag.value
