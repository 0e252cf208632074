"""A pipeline's checks and its status: from table and broker, and its transactions from the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from hudi_ingest.exceptions import (
    IngestError,
    KafkaRefused,
    KafkaUnreachable,
    TableMismatch,
    TableUnreachable,
    TopicMissing,
)
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.kafka.admin_clients import settings_of
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.ledger import Ledger, PendingChange, TransactionRow
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.complete_through import UNKNOWN, Completeness, holding_back, of_table, seen_in_all
from hudi_ingest.model.counts import added
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition
from hudi_ingest.model.plan import OffsetLoss
from hudi_ingest.model.report import violations_in
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.health.judgement import (
    ACCOUNTING_HOLDS,
    accounting_holds,
    catalog_synced,
    compacted_in_time,
    dead_letters,
    expectations_met,
    files_large_enough,
    held_by_producers,
    lag_below_limit,
    not_fresh,
    nothing_late,
    offsets_honoured,
    runs_succeed,
    up_to_date,
    without_leader,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.checks import lost_commits
from hudi_ingest.transaction.columns.schema_change import noted_change
from hudi_ingest.transaction.plan.arithmetic import stop_text
from hudi_ingest.transaction.plan.planning import Situation, observe, oldest_waiting_seconds, stopped_partitions
from hudi_ingest.transaction.table_preparation import require_writable_table

HISTORY = 5
_AT_ONCE = 8
"""How many pipelines are asked at the same time; each waits for its broker and table most of the time."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One Kafka partition: next offset to read (None before the first commit), the broker's end (None if the broker no
    longer has the partition, or is away), and the lag in offsets."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    """None while the broker is away, or the partition has no leader."""
    covered: Ranges | None = None
    """Offset ranges already ingested; None if a checkpoint of an older version does not say."""
    undecided: Slice | None = None
    """Offsets that cannot be read yet: a producer has not ended the transaction in which, or after which, they were written."""
    stopped: bool = False
    """Whether the broker no longer has the committed offset, and its loss has not been accepted."""
    lag_seconds: float | None = None
    """Age of the oldest waiting record; None if unknown."""
    complete: Completeness = UNKNOWN
    """Up to which Kafka timestamp it is complete."""

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline's status. `transactions` come from this ledger, offsets from the table and the broker."""

    pipeline: str
    base_path: str
    sequence: int
    partitions: tuple[PartitionStatus, ...]
    transactions: tuple[TransactionRow, ...]
    stopped: tuple[OffsetLoss, ...] = ()
    """Committed offsets that the broker no longer has, and whose loss has not been accepted."""
    dead_letters: int = 0
    """Number of pending dead letters."""
    last_committed_at: datetime | None = None
    lag_seconds: float | None = None
    """Age of the oldest waiting record by its Kafka timestamp; None if unknown."""
    dead: frozenset[str] = frozenset()
    """Ids of open transactions whose owner is gone or whose deadline has passed: the next begin clears them."""
    violations: Mapping[str, int] = field(default_factory=dict)
    """How many records of all commits violate each expectation, by its name."""
    table: Finding | None = None
    """Whether the table has and lists all that its commits, and the ledger, say."""
    catalog: Finding | None = None
    """Whether the catalog has the table's columns and partitions, None if the table has no catalog."""
    compaction: Finding | None = None
    """Whether log files are compacted in time, None if the table is not keyed."""
    schema_change: PendingChange | None = None
    """The change of columns that waits for approval, None if none does."""
    error: IngestError | None = None
    """Why the broker could not be asked. Then ends and lag are unknown, and so are stopped partitions."""

    @property
    def is_table_broken(self) -> bool:
        return self.table is not None and not self.table.passed

    @property
    def complete_through(self) -> datetime | None:
        """No record with an earlier Kafka timestamp can still be committed; None if that is known of no time."""
        return _time(of_table(self._complete))

    @property
    def observed_through(self) -> datetime | None:
        """The Kafka timestamp that every partition with records has reached, which proves nothing."""
        return _time(seen_in_all(self._complete))

    @property
    def holding_back(self) -> tuple[TopicPartition, ...]:
        """The partitions without which the table would be complete through a later time."""
        return holding_back(self._complete)

    @property
    def _complete(self) -> dict[TopicPartition, Completeness]:
        return {partition.source: partition.complete for partition in self.partitions}

    @property
    def leaderless(self) -> tuple[TopicPartition, ...]:
        """Partitions of which the brokers know nothing, although they answer."""
        asked = () if self.error is not None else self.partitions
        return tuple(each.source for each in asked if each.lag is None)

    @property
    def lag(self) -> int | None:
        """None while that of a partition is unknown."""
        if self.error is not None or self.leaderless:
            return None
        return sum(partition.lag or 0 for partition in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "error": str(self.error) if self.error else None,
            "base_path": self.base_path,
            "sequence": self.sequence,
            "lag": self.lag,
            "lag_seconds": self.lag_seconds,
            "last_committed_at": self.last_committed_at.isoformat() if self.last_committed_at else None,
            "complete_through": _text(self.complete_through),
            "observed_through": _text(self.observed_through),
            "holding_back": [str(source) for source in self.holding_back],
            "dead_letters": self.dead_letters,
            "violations": dict(self.violations),
            "table": {"whole": self.table.passed, "text": self.table.text, **self.table.figures}
            if self.table
            else None,
            "catalog": {"synced": self.catalog.passed, "text": self.catalog.text} if self.catalog else None,
            "compaction": {"in_time": self.compaction.passed, "text": self.compaction.text, **self.compaction.figures}
            if self.compaction
            else None,
            "schema_change": self.schema_change.to_dict() if self.schema_change else None,
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": partition.committed,
                    "end": partition.end,
                    "lag": partition.lag,
                    "undecided": partition.undecided.count if partition.undecided else 0,
                    "covered": None if partition.covered is None else [list(pair) for pair in partition.covered],
                    "complete_through": _text(_time(partition.complete.through)),
                    "observed_through": _text(_time(partition.complete.seen)),
                }
                for partition in self.partitions
            ],
            "stopped": [{**loss.to_dict(), "text": stop_text(self.pipeline, [loss])} for loss in self.stopped],
            "transactions": [
                {**transaction_dict(row), "dead": row.transaction_id in self.dead} for row in self.transactions
            ],
        }


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else as_datetime(milliseconds)


def _text(time: datetime | None) -> str | None:
    return time.isoformat(timespec="milliseconds") if time else None


def transaction_dict(row: TransactionRow) -> dict[str, Any]:
    """Return one transaction of the ledger for users' scripts; times are ISO 8601 in UTC."""
    return {
        "transaction_id": row.transaction_id,
        "state": row.state.value,
        "instant": row.instant,
        "began_at": row.began_at.isoformat(),
        "ended_at": row.ended_at.isoformat() if row.ended_at else None,
        "rows": row.rows,
        "files": row.files,
        "bytes": row.size_bytes,
        "owner": str(row.owner),
        "reason": row.reason,
        "resets": [loss.to_dict() for loss in row.resets],
    }


def pipeline_status(
    pipeline: Pipeline, situation: Situation, ledger: Ledger, now: datetime | None = None
) -> PipelineStatus:
    """Combine the situation with the ledger's history. Raises KafkaUnreachable, KafkaRefused, LedgerUnreachable,
    TableUnreachable."""
    now = now or datetime.now(timezone.utc)
    stopped = stopped_partitions(pipeline, situation)
    return replace(
        status_without_broker(pipeline, situation.committed, ledger, now),
        partitions=tuple(partition_statuses(situation, stopped)),
        stopped=stopped,
        lag_seconds=age_of_oldest(pipeline, situation, now),
    )


def partition_statuses(situation: Situation, losses: Sequence[OffsetLoss]) -> Iterator[PartitionStatus]:
    """Yield each partition's status, without the age of its records. `losses`: those that stop partitions."""
    checkpoint, lag = situation.committed.checkpoint, situation.lag.by_partition
    ends, leaderless, stopped = situation.ends, {*situation.leaderless}, {loss.source for loss in losses}
    complete = situation.complete
    for source in sorted(situation.watermarks.keys() | stopped):
        marks = situation.watermarks.get(source)
        open_from = marks.end if marks and marks.led and marks.undecided else None
        yield PartitionStatus(
            source.topic,
            source.partition,
            committed=checkpoint.offsets.get(source) if checkpoint else None,
            end=ends.get(source),
            lag=lag.get(source, None if source in leaderless else 0),
            covered=checkpoint.covered.get(source) if checkpoint else None,
            undecided=None
            if marks is None or open_from is None
            else Slice(source.topic, source.partition, open_from, open_from + marks.undecided),
            stopped=source in stopped,
            complete=complete.get(source, UNKNOWN),
        )


def status_without_broker(
    pipeline: Pipeline,
    committed: CommittedState,
    ledger: Ledger,
    now: datetime,
    error: IngestError | None = None,
) -> PipelineStatus:
    """Return the status by table and ledger alone. `error`: why the broker could not be asked. Raises TableMismatch of a table that is not
    this pipeline's to write, LedgerUnreachable, TableUnreachable."""
    if committed.checkpoint is None:
        require_writable_table(pipeline, PipelineTable(pipeline), ledger)
    rows = with_figures(pipeline, ledger.transactions.history(pipeline.name, HISTORY))
    checkpoint, table = committed.checkpoint, PipelineTable(pipeline)
    own = [commit for commit in committed.commits if pipeline.transaction_key in commit.metadata]
    lost = lost_commits(pipeline.table.base_path, committed, rows)
    return PipelineStatus(
        pipeline=pipeline.name,
        base_path=pipeline.table.base_path,
        sequence=checkpoint.sequence if checkpoint else 0,
        partitions=tuple(
            PartitionStatus(
                source.topic,
                source.partition,
                offset,
                None,
                None,
                checkpoint.covered.get(source),
                complete=checkpoint.complete.get(source, UNKNOWN),
            )
            for source, offset in sorted(checkpoint.offsets.items())
        )
        if checkpoint
        else (),
        transactions=rows,
        dead_letters=checkpoint.letters.waiting if checkpoint and checkpoint.letters else 0,
        violations=added(
            [
                {each.name: 0 for each in pipeline.expectations},
                *map(violations_in, checkpoint.totals.values() if checkpoint else ()),
            ]
        ),
        last_committed_at=committed.last_committed_at,
        table=_finding_on_table(table, committed, own, lost),
        catalog=next(iter(findings_on_catalog(pipeline, committed.commits, now)), None),
        compaction=compacted_in_time(pipeline, committed.commits, now) if pipeline.table.is_keyed else None,
        schema_change=noted_change(pipeline, ledger, table.timeline),
        dead=frozenset(
            row.transaction_id
            for row in rows
            if row.state is TransactionState.OPEN and is_over(row, lambda run_id: None)
        ),
        error=error,
    )


def statuses(pipelines: Sequence[Pipeline], ledger: Ledger) -> dict[str, PipelineStatus | IngestError]:
    """The status of each pipeline by name, or its error: one pipeline's must not hide the state of the others. While the broker is
    away, a status has what table and ledger say, and the error.

    An unreachable cluster is tried once, and its pipelines share the error.
    """

    def of_pipeline(pipeline: Pipeline) -> PipelineStatus | IngestError:
        trouble = troubles[settings_of(pipeline.source)].result()
        try:
            try:
                if trouble is not None:
                    raise trouble
                return pipeline_status(pipeline, observe(pipeline), ledger)
            except (KafkaUnreachable, KafkaRefused, TopicMissing) as error:
                committed, now = PipelineTable(pipeline).committed(), datetime.now(timezone.utc)
                return status_without_broker(pipeline, committed, ledger, now, error)
        except IngestError as error:
            return error

    sources = {settings_of(pipeline.source): pipeline.source for pipeline in pipelines}
    with ThreadPoolExecutor(_AT_ONCE, "status") as pool:
        # Before the pipelines, or their threads would wait for questions that are never asked.
        troubles = {settings: pool.submit(_trouble, source) for settings, source in sources.items()}
        answers = pool.map(of_pipeline, pipelines)
        return {pipeline.name: answer for pipeline, answer in zip(pipelines, answers, strict=True)}


def _trouble(source: KafkaSource) -> IngestError | None:
    """Why the source's cluster does not answer, None if it does."""
    try:
        with kept_cluster(source) as cluster:
            cluster.require_answer()
    except IngestError as error:
        return error
    return None


def with_figures(pipeline: Pipeline, rows: Sequence[TransactionRow]) -> tuple[TransactionRow, ...]:
    """Fill in missing figures of committed transactions from the table: their op died before it could tell the ledger."""
    if not any(row.state is TransactionState.COMMITTED and not row.has_receipt for row in rows):
        return tuple(rows)
    key, commits = pipeline.transaction_key, {commit.instant: commit for commit in PipelineTable(pipeline).commits()}
    return tuple(
        replace(row, rows=commit.accounting(key).rows, files=len(commit.files), size_bytes=commit.size_bytes)
        if not row.has_receipt and row.instant is not None and (commit := commits.get(row.instant))
        else row
        for row in rows
    )


def findings_now(
    pipeline: Pipeline,
    situation: Situation,
    now: datetime,
    busy: str = "",
    oldest: Callable[[], float | None] | None = None,
    paused: bool = False,
) -> list[Finding]:
    """Evaluate the checks that can change at any moment. `oldest` says how long the oldest record has waited, in seconds, if the
    caller knows; `paused`: whether the pipeline's sensor was turned off in Dagster. Raises KafkaUnreachable, and TableUnreachable for a table in a catalog."""
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
        through = _time(of_table(complete))
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
    table = PipelineTable(pipeline)
    commits = table.commits()
    return [
        _finding_on_table(table, situation.committed, commits),
        files_large_enough(pipeline, checkpoint, commits),
        dead_letters(pipeline, checkpoint, situation.committed.last_rejected, situation.committed.last_fields),
        *([nothing_late(pipeline, checkpoint, commits)] if pipeline.declares_complete else []),
        *expectations_met(pipeline, checkpoint, commits),
    ]


def _finding_on_table(
    table: PipelineTable,
    committed: CommittedState,
    commits: Sequence[CommittedInstant],
    lost: Sequence[TransactionRow] = (),
) -> Finding:
    """Evaluate the check of the accounting. `commits`: the pipeline's own; `lost`: see `accounting_holds`."""
    try:
        unlisted = table.unlisted(committed.commits)
    except (TableMismatch, TableUnreachable) as error:
        return answer(table.pipeline.name, ACCOUNTING_HOLDS, False, str(error))
    return accounting_holds(table.pipeline, committed.checkpoint, commits, unlisted, lost)
