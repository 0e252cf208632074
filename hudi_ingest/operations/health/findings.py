"""Evaluates the checks of a pipeline's table from what table and broker say; health.py judges each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.model.finding import Finding
from hudi_ingest.operations.health.judgement import (
    accounting_holds,
    catalog_synced,
    compacted_in_time,
    dead_letters,
    files_large_enough,
    lag_below_limit,
    offsets_honoured,
    runs_succeed,
    up_to_date,
    without_leader,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation, oldest_waiting_seconds, stopped_partitions


def findings_now(
    pipeline: Pipeline,
    situation: Situation,
    now: datetime,
    busy: str = "",
    oldest: Callable[[], float | None] | None = None,
) -> list[Finding]:
    """Evaluate the checks that can change at any moment. `oldest` says how long the oldest record has waited, in seconds, if the
    caller knows. Raises KafkaUnreachable, and TableUnreachable for a table in a catalog."""
    waiting, committed = situation.lag.total, situation.committed
    timely = up_to_date(pipeline, waiting, committed, now, busy=busy)
    if situation.leaderless:
        timely = without_leader(pipeline, situation.leaderless)
    elif not timely.passed:
        # Records may have started waiting long after the last commit, e.g. on a topic that was idle.
        age = oldest() if oldest else age_of_oldest(pipeline, situation, now)
        timely = up_to_date(pipeline, waiting, committed, now, age, busy)
    return [
        offsets_honoured(pipeline, stopped_partitions(pipeline, situation)),
        lag_below_limit(pipeline, waiting),
        timely,
        *findings_on_catalog(pipeline, committed.commits, now),
        *([compacted_in_time(pipeline, committed.commits, now)] if pipeline.table.is_keyed else []),
    ]


def findings_on_catalog(pipeline: Pipeline, commits: Sequence[CommittedInstant], now: datetime) -> list[Finding]:
    """Evaluate the check of the catalog, if the table has one. Raises TableUnreachable."""
    if pipeline.catalog is None:
        return []
    return [catalog_synced(pipeline, read_state(PipelineTable(pipeline).storage), commits, now)]


def age_of_oldest(pipeline: Pipeline, situation: Situation, now: datetime) -> float | None:
    """Return `oldest_waiting_seconds`, or None if the broker does not answer this question now. Then nothing proves that the
    waiting records are recent, and the other findings still stand."""
    try:
        return oldest_waiting_seconds(pipeline, situation, now)
    except (KafkaUnreachable, KafkaRefused):
        return None


def findings_after_commit(pipeline: Pipeline, situation: Situation, now: datetime) -> list[Finding]:
    """Evaluate all checks, to be reported by the run that made the newest commit. Raises KafkaUnreachable, TableUnreachable."""
    return [
        *findings_now(pipeline, situation, now),
        *findings_on_commits(pipeline, situation),
        runs_succeed(pipeline, 0),
    ]


def findings_on_commits(pipeline: Pipeline, situation: Situation) -> list[Finding]:
    """Evaluate the checks that change only with commits; reads the commits again. Raises TableUnreachable."""
    checkpoint = situation.committed.checkpoint
    commits = PipelineTable(pipeline).commits()
    return [
        accounting_holds(pipeline, checkpoint, commits),
        files_large_enough(pipeline, checkpoint, commits),
        dead_letters(pipeline, checkpoint, situation.committed.last_rejected, situation.committed.last_fields),
    ]
