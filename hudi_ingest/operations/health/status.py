"""The answers to a pipeline's checks, from the state of table and broker at one moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from hudi_ingest.exceptions import (
    KafkaRefused,
    KafkaUnreachable,
    TableMismatch,
    TableUnreachable,
)
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.storage.paths import ICEBERG_STATE
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.ledger import TransactionRow
from hudi_ingest.model.complete_through import holding_back, of_table
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.operations.health.judgement import (
    ACCOUNTING_HOLDS,
    accounting_holds,
    catalog_synced,
    compacted_in_time,
    dead_letters,
    expectations_met,
    files_large_enough,
    held_by_producers,
    iceberg_up_to_date,
    lag_below_limit,
    not_fresh,
    nothing_late,
    offsets_honoured,
    runs_succeed,
    up_to_date,
    without_leader,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.plan.planning import Situation, oldest_waiting_seconds, stopped_partitions


def findings_now(
    pipeline: Pipeline,
    situation: Situation,
    now: datetime,
    busy: str = "",
    oldest: Callable[[], float | None] | None = None,
    paused: bool = False,
) -> list[Finding]:
    """Evaluate the checks that can change at any moment. `oldest` says how long the oldest record has waited, in seconds, if the
    caller knows; `paused`: whether the pipeline is paused. Raises KafkaUnreachable, and TableUnreachable for a table in a catalog."""
    waiting, committed = situation.lag.total, situation.committed
    timely = up_to_date(pipeline, waiting, committed, now, busy=busy, paused=paused)
    if situation.leaderless:
        timely = without_leader(pipeline, situation.leaderless)
    elif not timely.passed:
        # Records may have started waiting long after the last commit, e.g. on a topic that was idle.
        age = oldest() if oldest else age_of_oldest(pipeline, situation, now)
        timely = up_to_date(pipeline, waiting, committed, now, age, busy)
    elif committed.checkpoint is not None and not paused:
        undecided = [source for source, marks in sorted(situation.watermarks.items()) if marks.led and marks.undecided]
        complete = situation.complete
        milliseconds = of_table(complete)
        through = None if milliseconds is None else as_datetime(milliseconds)
        timely = (
            held_by_producers(pipeline, through, undecided, committed, now)
            or not_fresh(pipeline, through, holding_back(complete), now)
            or timely
        )
    return [
        offsets_honoured(pipeline, stopped_partitions(pipeline, situation)),
        lag_below_limit(pipeline, waiting, paused),
        timely,
        *findings_on_catalog(pipeline, committed.commits, now),
        *([compacted_in_time(pipeline, committed.commits, now)] if pipeline.table.is_keyed else []),
    ]


def findings_on_catalog(
    pipeline: Pipeline, commits: Sequence[CommittedInstant], now: datetime, table: PipelineTable | None = None
) -> list[Finding]:
    """Evaluate the checks of the catalog and of Iceberg, if the table has them. `table`: the caller's, if it has opened it. Raises
    TableUnreachable."""
    if pipeline.catalog is None and pipeline.table.iceberg is None:
        return []
    storage, found = (table or PipelineTable(pipeline)).storage, []
    if pipeline.catalog is not None:
        found.append(catalog_synced(pipeline, read_state(storage), commits, now))
    if pipeline.table.iceberg is not None:
        found.append(iceberg_up_to_date(pipeline, read_state(storage, ICEBERG_STATE), commits, now))
    return found


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


def findings_on_commits(pipeline: Pipeline, situation: Situation, table: PipelineTable | None = None) -> list[Finding]:
    """Evaluate the checks that change only with commits. `table`: the caller's, if it has opened it. Raises TableUnreachable."""
    checkpoint = situation.committed.checkpoint
    table = table or PipelineTable(pipeline)
    commits = _own(pipeline, situation.committed)
    return [
        finding_on_table(table, situation.committed),
        files_large_enough(pipeline, checkpoint, commits),
        dead_letters(pipeline, checkpoint, situation.committed.last_rejected, situation.committed.last_fields),
        *([nothing_late(pipeline, checkpoint, commits)] if pipeline.declares_complete else []),
        *expectations_met(pipeline, checkpoint, commits),
    ]


def _own(pipeline: Pipeline, committed: CommittedState) -> tuple[CommittedInstant, ...]:
    """Return the pipeline's own commits on the active timeline, oldest first."""
    own = (each for each in committed.commits if pipeline.transaction_key in each.metadata)
    return tuple(sorted(own, key=lambda commit: commit.instant))


def finding_on_table(table: PipelineTable, committed: CommittedState, lost: Sequence[TransactionRow] = ()) -> Finding:
    """Evaluate the check of the accounting. `lost`: see `accounting_holds`."""
    try:
        unlisted = table.unlisted(committed.commits)
    except (TableMismatch, TableUnreachable) as error:
        return answer(table.pipeline.name, ACCOUNTING_HOLDS, False, str(error))
    commits = _own(table.pipeline, committed)
    return accounting_holds(table.pipeline, committed.checkpoint, commits, unlisted, lost)
