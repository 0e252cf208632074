"""An observation of one pipeline: its table, its topics, and what they say about its health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property

from hudi_ingest.exceptions import IngestError, KafkaRefused, KafkaUnreachable, TableMismatch, TableUnreachable
from hudi_ingest.hudi.files.read_amplification import ReadAmplification, read_amplification
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.storage.paths import ICEBERG_STATE
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.kafka.shared_clusters import HeldOffsets
from hudi_ingest.ledger import TransactionRow
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.complete_through import holding_back, of_table
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import OffsetLoss
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
    up_to_date,
    without_leader,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.plan.planning import Situation, observe, oldest_waiting_seconds, stopped_partitions


@dataclass(frozen=True)
class Observation:
    """A pipeline's table and topics at one moment. All that is no field is read when it is first asked for, and once."""

    table: PipelineTable
    at: datetime
    committed: CommittedState
    observed: Situation | None
    """None if the broker did not answer, or table and broker contradict each other."""
    error: IngestError | None = None
    """Why there is no situation, if there is none."""
    busy: str = ""
    """The run or process at work, in words."""
    paused: bool = False
    ages: Mapping[TopicPartition, float] | None = None
    """The ages of the oldest waiting records, in seconds, if the broker was asked already; without those that have no time."""

    @property
    def pipeline(self) -> Pipeline:
        return self.table.pipeline

    @property
    def situation(self) -> Situation:
        """The state of table and broker. Raises the observation's error if there is one."""
        if self.observed is None:
            assert self.error is not None
            raise self.error
        return self.observed

    def whole(self) -> Observation:
        """Return this observation. Raises its error if it has one."""
        if self.error is not None:
            raise self.error
        return self

    @cached_property
    def stopped(self) -> tuple[OffsetLoss, ...]:
        """Losses that a person has to accept. Raises KafkaUnreachable."""
        return stopped_partitions(self.pipeline, self.situation)

    @cached_property
    def oldest_seconds(self) -> float | None:
        """How long the oldest record has waited; None if that is unknown, or if the broker does not answer this question now. Then nothing
        proves that the waiting records are recent, and all else still stands."""
        if self.ages is not None:
            return max(self.ages.values(), default=None)
        try:
            return oldest_waiting_seconds(self.pipeline, self.situation, self.at)
        except (KafkaUnreachable, KafkaRefused):
            return None

    @cached_property
    def own_commits(self) -> tuple[CommittedInstant, ...]:
        """The pipeline's own commits on the active timeline, oldest first."""
        own = (each for each in self.committed.commits if self.pipeline.transaction_key in each.metadata)
        return tuple(sorted(own, key=lambda commit: commit.instant))

    @cached_property
    def accounted(self) -> tuple[tuple[CommittedInstant, Accounting], ...]:
        """The pipeline's own commits, each with its accounting."""
        return tuple((commit, commit.accounting(self.pipeline.transaction_key)) for commit in self.own_commits)

    @cached_property
    def amplification(self) -> ReadAmplification | None:
        """What readers of a keyed table have to merge; None for other tables."""
        return read_amplification(self.committed.commits) if self.pipeline.table.is_keyed else None

    @cached_property
    def findings_now(self) -> tuple[Finding, ...]:
        """The answers to the checks that can change at any moment. Raises KafkaUnreachable, and TableUnreachable for a table in a
        catalog."""
        waiting = self.situation.lag.total
        return (
            offsets_honoured(self.pipeline, self.stopped),
            lag_below_limit(self.pipeline, waiting, self.paused),
            self._timely(waiting),
            *filter(None, (self.on_catalog, self.on_iceberg, self.on_compaction)),
        )

    def _timely(self, waiting: int) -> Finding:
        pipeline, situation, committed, now = self.pipeline, self.situation, self.committed, self.at
        timely = up_to_date(pipeline, waiting, committed, now, busy=self.busy, paused=self.paused)
        if situation.leaderless:
            return without_leader(pipeline, situation.leaderless)
        if not timely.passed:
            # Records may have started waiting long after the last commit, e.g. on a topic that was idle.
            return up_to_date(pipeline, waiting, committed, now, self.oldest_seconds, self.busy)
        if committed.checkpoint is None or self.paused:
            return timely
        undecided = [source for source, marks in sorted(situation.watermarks.items()) if marks.led and marks.undecided]
        complete = situation.complete
        milliseconds = of_table(complete)
        through = None if milliseconds is None else as_datetime(milliseconds)
        return (
            held_by_producers(pipeline, through, undecided, committed, now)
            or not_fresh(pipeline, through, holding_back(complete), now)
            or timely
        )

    @cached_property
    def on_catalog(self) -> Finding | None:
        """The answer to the check of the catalog, if the table has one. Raises TableUnreachable."""
        if self.pipeline.catalog is None:
            return None
        return catalog_synced(self.pipeline, read_state(self.table.storage), self.committed.commits, self.at)

    @cached_property
    def on_iceberg(self) -> Finding | None:
        """The answer to the check of the Iceberg metadata, if the table has any. Raises TableUnreachable."""
        if self.pipeline.table.iceberg is None:
            return None
        state = read_state(self.table.storage, ICEBERG_STATE)
        return iceberg_up_to_date(self.pipeline, state, self.committed.commits, self.at)

    @cached_property
    def on_compaction(self) -> Finding | None:
        """The answer to the check of the compaction, if the table is keyed."""
        return compacted_in_time(self.pipeline, self.amplification, self.at) if self.amplification else None

    @cached_property
    def findings_on_commits(self) -> tuple[Finding, ...]:
        """The answers to the checks that change only with commits. Raises KafkaUnreachable."""
        pipeline, committed, commits = self.pipeline, self.situation.committed, self.own_commits
        checkpoint = committed.checkpoint
        return (
            self.on_table(),
            files_large_enough(pipeline, checkpoint, commits),
            dead_letters(pipeline, checkpoint, committed.last_rejected, committed.last_fields),
            *([nothing_late(pipeline, checkpoint, commits)] if pipeline.declares_complete else []),
            *expectations_met(pipeline, checkpoint, commits),
        )

    def on_table(self, lost: Sequence[TransactionRow] = ()) -> Finding:
        """Return the answer to the check of the accounting. `lost`: see `accounting_holds`."""
        try:
            unlisted = self.table.unlisted(self.committed.commits)
        except (TableMismatch, TableUnreachable) as error:
            return answer(self.pipeline.name, ACCOUNTING_HOLDS, False, str(error))
        return accounting_holds(self.pipeline, self.committed.checkpoint, self.own_commits, unlisted, lost)


def look_at(
    pipeline: Pipeline,
    cluster: HeldOffsets | IngestError | None = None,
    table: PipelineTable | None = None,
    at: datetime | None = None,
) -> Observation:
    """Look at the table and, unless `cluster` is its error already, at the broker. `cluster` and `table`: the caller's, if it has them.

    The broker's error is the observation's. Raises the table's: TableUnreachable, OffsetsLost, TableMismatch."""
    table = table or PipelineTable(pipeline)
    at = at or datetime.now(timezone.utc)
    if isinstance(cluster, IngestError):
        return Observation(table, at, table.committed(), None, cluster)
    try:
        situation = observe(pipeline, cluster, table)
    except IngestError as error:
        # Without its frames: the client of a cluster that refused it would try to log in for as long as they live.
        return Observation(table, at, table.committed(), None, error.with_traceback(None))
    return Observation(table, at, situation.committed, situation)
