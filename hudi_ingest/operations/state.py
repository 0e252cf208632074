"""The state of a pipeline: the one record that `status`, metrics, REST, the pages and the demos render."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from hudi_ingest.exceptions import IngestError, KafkaRefused, KafkaUnreachable, TopicMissing
from hudi_ingest.hudi.files.read_amplification import ReadAmplification, read_amplification, why_due
from hudi_ingest.ledger import Ledger, PendingChange, TransactionRow
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.complete_through import UNKNOWN, Completeness, holding_back, of_table, seen_in_all
from hudi_ingest.model.counts import added
from hudi_ingest.model.finding import Finding
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition
from hudi_ingest.model.plan import OffsetLoss
from hudi_ingest.model.report import Totals, violations_in
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.health.judgement import CATALOG_SYNCED, ICEBERG_UP_TO_DATE, compacted_in_time
from hudi_ingest.operations.health.status import age_of_oldest, finding_on_table, findings_on_catalog
from hudi_ingest.operations.observation import Observation, Timeout, look_at, see_all
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.checks import lost_commits
from hudi_ingest.transaction.columns.schema_change import noted_change
from hudi_ingest.transaction.plan.arithmetic import stop_text
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest.transaction.table_preparation import require_writable_table

HISTORY = 5
_BROKERS = (KafkaUnreachable, KafkaRefused, TopicMissing, Timeout)
"""Errors of brokers, which leave a state by table and ledger."""


@dataclass(frozen=True, slots=True)
class PartitionState:
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
class TableSize:
    """Measures from a listing of the table's live files."""

    size_bytes: int
    partitions: int
    small_files: int | None = None
    """Files that clustering would merge; None for a keyed table."""
    partition_ends: tuple[datetime, ...] = ()
    """When the table's partitions ended, as far as that is known."""


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A pipeline's state. `transactions` come from this ledger, offsets from the table and the broker. What could not be read is None or
    empty, and `error` says why."""

    pipeline: Pipeline
    sequence: int | None = None
    """Number of the last transaction, 0 before the first; None if the table could not be read."""
    partitions: tuple[PartitionState, ...] = ()
    transactions: tuple[TransactionRow, ...] = ()
    stopped: tuple[OffsetLoss, ...] = ()
    """Committed offsets that the broker no longer has, and whose loss has not been accepted."""
    dead_letters: int = 0
    """Number of pending dead letters."""
    last_committed_at: datetime | None = None
    lag_seconds: float | None = None
    """Age of the oldest waiting record by its Kafka timestamp; None if unknown."""
    dead: frozenset[str] = frozenset()
    """Ids of open transactions whose owner is gone or whose deadline has passed: the next begin clears them."""
    totals: Totals = field(default_factory=dict)
    """What all commits count, by kind of transaction."""
    table: Finding | None = None
    """Whether the table has and lists all that its commits, and the ledger, say."""
    catalog: Finding | None = None
    """Whether the catalog has the table's columns and partitions, None if the table has no catalog."""
    iceberg: Finding | None = None
    """Whether Iceberg's readers see the newest commits, None if the table has no Iceberg metadata."""
    compaction: Finding | None = None
    """Whether log files are compacted in time, None if the table is not keyed."""
    amplification: ReadAmplification | None = None
    """None if the table is not keyed."""
    compaction_due: bool = False
    schema_change: PendingChange | None = None
    """The change of columns that waits for approval, None if none does."""
    error: IngestError | None = None
    """Why the broker, or the table, could not be asked. Then ends and lag are unknown, and so are stopped partitions."""
    on: bool | None = None
    """Whether Dagster begins its transactions; None if there is no Dagster that would know."""
    activity: str = "?"
    """The same in words, with the next step."""
    findings: tuple[Finding, ...] = ()
    """The answers to the table's checks that were asked for."""
    size: TableSize | None = None

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def is_on(self) -> bool:
        """Whether its transactions begin: by Dagster's switch, without Dagster by `enabled` of the file."""
        return self.pipeline.enabled if self.on is None else self.on

    @property
    def violations(self) -> dict[str, int]:
        """How many records of all commits violate each expectation, by its name."""
        named = {each.name: 0 for each in self.pipeline.expectations}
        return added([named, *map(violations_in, self.totals.values())])

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
            "pipeline": self.name,
            "error": str(self.error) if self.error else None,
            "base_path": self.pipeline.table.base_path,
            "sequence": self.sequence,
            "lag": self.lag,
            "lag_seconds": self.lag_seconds,
            "last_committed_at": self.last_committed_at.isoformat() if self.last_committed_at else None,
            "complete_through": _text(self.complete_through),
            "observed_through": _text(self.observed_through),
            "holding_back": [str(source) for source in self.holding_back],
            "dead_letters": self.dead_letters,
            "violations": self.violations,
            "table": _answered(self.table, "whole", self.table.figures if self.table else {}),
            "catalog": _answered(self.catalog, "synced", {}),
            "iceberg": _answered(self.iceberg, "up_to_date", self.iceberg.figures if self.iceberg else {}),
            "compaction": _answered(self.compaction, "in_time", self.compaction.figures if self.compaction else {}),
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
            "stopped": [{**loss.to_dict(), "text": stop_text(self.name, [loss])} for loss in self.stopped],
            "transactions": [
                {**transaction_dict(row), "dead": row.transaction_id in self.dead} for row in self.transactions
            ],
            "on": self.on,
            "activity": self.activity,
        }


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else as_datetime(milliseconds)


def _text(time: datetime | None) -> str | None:
    return time.isoformat(timespec="milliseconds") if time else None


def _answered(finding: Finding | None, passed: str, figures: Mapping[str, Any]) -> dict[str, Any] | None:
    return {passed: finding.passed, "text": finding.text, **figures} if finding else None


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


def states(pipelines: Sequence[Pipeline], ledger: Ledger) -> dict[str, PipelineState | IngestError]:
    """Return the state of each pipeline by name, or its error: one pipeline's must not hide the state of the others."""
    return see_all(pipelines, lambda observation: full_state(observation, ledger))


def state_now(pipeline: Pipeline, ledger: Ledger) -> PipelineState:
    """Look at one pipeline, and return its state. Raises the broker's errors, too: KafkaUnreachable, KafkaRefused, TopicMissing."""
    observation = look_at(pipeline)
    if observation.error is not None:
        raise observation.error
    return full_state(observation, ledger)


def full_state(observation: Observation, ledger: Ledger) -> PipelineState:
    """Return the state with the ledger's history, and the findings that do not change with time alone. While the broker is away, it has
    what table and ledger say, and the error. Raises other errors of the observation, TableMismatch of a table that is not this pipeline's
    to write, LedgerUnreachable, TableUnreachable."""
    pipeline, committed, table, now = observation.pipeline, observation.committed, observation.table, observation.at
    if observation.error is not None and not isinstance(observation.error, _BROKERS):
        raise observation.error
    if committed.checkpoint is None:
        require_writable_table(pipeline, table, ledger)
    rows = _with_figures(observation, ledger.transactions.history(pipeline.name, HISTORY))
    lost = lost_commits(pipeline.table.base_path, committed, rows)
    catalogs = {each.check: each for each in findings_on_catalog(pipeline, committed.commits, now, table)}
    return replace(
        table_state(observation),
        transactions=rows,
        lag_seconds=age_of_oldest(pipeline, observation.observed, now) if observation.observed else None,
        table=finding_on_table(table, committed, lost),
        catalog=catalogs.get(CATALOG_SYNCED),
        iceberg=catalogs.get(ICEBERG_UP_TO_DATE),
        compaction=compacted_in_time(pipeline, committed.commits, now) if pipeline.table.is_keyed else None,
        schema_change=noted_change(pipeline, ledger, table.timeline),
        dead=frozenset(
            row.transaction_id
            for row in rows
            if row.state is TransactionState.OPEN and is_over(row, lambda run_id: None)
        ),
    )


def table_state(observation: Observation, ages: Mapping[TopicPartition, float] = MappingProxyType({})) -> PipelineState:
    """Return the state by the table's checkpoint and the broker's offsets alone. `ages`: of the oldest waiting records, in seconds, as
    far as they are known. Raises KafkaUnreachable."""
    pipeline, committed, situation = observation.pipeline, observation.committed, observation.observed
    checkpoint = committed.checkpoint
    found = read_amplification(committed.commits) if pipeline.table.is_keyed else None
    partitions = tuple(_partitions(situation, observation.stopped, ages) if situation else _committed(observation))
    behind = [each.lag_seconds for each in partitions if each.lag_seconds is not None]
    return PipelineState(
        pipeline,
        sequence=checkpoint.sequence if checkpoint else 0,
        partitions=partitions,
        lag_seconds=max(behind) if behind and len(behind) == len(partitions) else None,
        stopped=observation.stopped if situation else (),
        dead_letters=checkpoint.letters.waiting if checkpoint and checkpoint.letters else 0,
        last_committed_at=committed.last_committed_at,
        totals=checkpoint.totals if checkpoint else {},
        amplification=found,
        compaction_due=found is not None and bool(why_due(pipeline.table.compaction, found, observation.at)),
        error=observation.error,
    )


def _partitions(
    situation: Situation, losses: Sequence[OffsetLoss], ages: Mapping[TopicPartition, float]
) -> Iterator[PartitionState]:
    """Yield each partition's state. `losses`: those that stop partitions."""
    checkpoint, lag = situation.committed.checkpoint, situation.lag.by_partition
    ends, leaderless, stopped = situation.ends, {*situation.leaderless}, {loss.source for loss in losses}
    complete = situation.complete
    for source in sorted(situation.watermarks.keys() | stopped):
        marks = situation.watermarks.get(source)
        open_from = marks.end if marks and marks.led and marks.undecided else None
        yield PartitionState(
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
            lag_seconds=ages.get(source) if lag.get(source) or source in leaderless else 0.0,
            complete=complete.get(source, UNKNOWN),
        )


def _committed(observation: Observation) -> Iterator[PartitionState]:
    """Yield the partitions of the table's checkpoint, while the broker is away."""
    checkpoint = observation.committed.checkpoint
    if checkpoint is None:
        return
    for source, offset in sorted(checkpoint.offsets.items()):
        covered, complete = checkpoint.covered.get(source), checkpoint.complete.get(source, UNKNOWN)
        yield PartitionState(source.topic, source.partition, offset, None, None, covered, complete=complete)


def _with_figures(observation: Observation, rows: Sequence[TransactionRow]) -> tuple[TransactionRow, ...]:
    """Fill in missing figures of committed transactions from the table: their op died before it could tell the ledger."""
    key = observation.pipeline.transaction_key
    commits = {each.instant: each for each in observation.committed.commits if key in each.metadata}
    return tuple(
        replace(row, rows=commit.accounting(key).rows, files=len(commit.files), size_bytes=commit.size_bytes)
        if row.state is TransactionState.COMMITTED
        and not row.has_receipt
        and row.instant is not None
        and (commit := commits.get(row.instant))
        else row
        for row in rows
    )
