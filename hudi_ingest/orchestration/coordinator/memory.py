"""The memory of a sensor between ticks, with a record for each pipeline. It is lost with the process, and a pipeline's record when its
file is loaded anew: the first look after that is full."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.model.offsets import Offsets, TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.orchestration.reports.complete_periods import seconds_to_period
from hudi_ingest.orchestration.reports.tick_reports import Reported
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.arithmetic import limits_of, next_due
from hudi_ingest.transaction.plan.planning import Situation, keep_group_told, time_to_wait

GROUP_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Idle:
    """The result of a full look that had nothing to do."""

    topic_ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    reason: str
    seconds: float = math.inf
    """After so long there may be something to do, whatever comes."""
    records: int = 1
    """Once so many more are there, there may be something to do."""
    period_seconds: float = math.inf
    """After so long an hour or a day that is to be reported may be complete."""
    since: float = field(default_factory=time.monotonic)

    @property
    def until(self) -> float:
        """When its `seconds` have passed, by the monotonic clock."""
        return self.since + self.seconds


@dataclass(frozen=True, slots=True)
class Busy:
    """A full look found a run at work, or requested one."""

    transaction_id: str = ""
    run_id: str = ""
    """Known once Dagster has made the run."""
    after: Idle | None = None
    """The wait once this transaction is committed, if the look requested it."""
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _Group:
    """The consumer group was asked whether it has these offsets. `trouble`: why it could not be."""

    offsets: Offsets
    trouble: str
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class PipelineMemory:
    """The record of one pipeline, changed by its looks and reports, of which there is one at a time."""

    pipeline: Pipeline
    idle: Idle | None = None
    busy: Busy | None = None
    ends: Mapping[TopicPartition, int] | None = None
    """Where its topics ended when the broker was first asked while it waited for its turn."""
    planned: tuple[str, datetime] | None = None
    """The newest transaction that was requested, and when it was planned. Without it, the time when it began is used."""
    blind_since: float | None = None
    """Since when broker, table or ledger could not be read, in seconds since 1970. The ledger may be among them."""
    reported: Reported = field(default_factory=Reported)
    group: _Group | None = None

    def forget(self) -> None:
        """Force a full look next, unless a new result is remembered before."""
        self.idle = self.busy = None

    def idle_at(self, situation: Situation, reason: str) -> Idle:
        """Return the result of a look at this situation that has nothing to do until the topics have more records. `reason`: of the tick."""
        ends = {source: marks.end for source, marks in situation.watermarks.items()}
        return Idle(situation.topic_ids, ends, reason, period_seconds=seconds_to_period(self.pipeline, time.time()))

    def remember_waiting(self, situation: Situation, reason: str, now: datetime) -> None:
        """Note that nothing is requested, and that records wait for their transaction, if there are any."""
        self.idle = self.idle_at(situation, reason)
        if situation.lag.total:
            seconds, records = time_to_wait(self.pipeline, situation, now)
            self.idle = replace(self.idle, seconds=seconds, records=records)

    def remember_busy(self) -> None:
        """Note that a run of the pipeline is at work, or will be."""
        self.busy = Busy()

    def remember_requested(self, situation: Situation, plan: TransactionPlan, now: datetime) -> None:
        """Note that a run of this plan is requested, so that nobody looks at the table when it has ended, only to find that the interval
        has not."""
        self.idle, after = None, self.idle_at(situation, "")
        self.planned = plan.transaction_id, now
        # A request continues at once, a commit may complete a period, and the end of a partition without a leader is unknown.
        if plan.request or after.period_seconds != math.inf or situation.leaderless:
            self.busy = Busy(plan.transaction_id)
            return
        records = time_to_wait(self.pipeline, situation, now, plan)[1]
        seconds = next_due(limits_of(self.pipeline), now).timestamp() - time.time()
        after = replace(after, records=records, seconds=seconds, since=time.monotonic())
        self.busy = Busy(plan.transaction_id, after=after)

    def with_plan_time(self, situation: Situation) -> Situation:
        """Add when the last committed transaction was planned, if this process requested it."""
        transaction_id, planned_at = self.planned or ("", None)
        checkpoint = situation.committed.checkpoint
        is_last = checkpoint is not None and checkpoint.transaction_id == transaction_id
        return replace(situation, planned_at=planned_at) if is_last else situation

    def keep_group_told(self, situation: Situation, cluster: KafkaCluster) -> str:
        """Set the consumer group's offsets to the table's if they differ, and return why that failed, or "". Every GROUP_SECONDS if nothing
        is committed meanwhile: only tools that show the group's lag use them, and a group without a coordinator costs a timeout.
        """
        checkpoint, known = situation.committed.checkpoint, self.group
        if checkpoint is None:
            return ""
        is_known = known is not None and known.offsets == checkpoint.offsets
        if known is not None and is_known and time.monotonic() - known.since <= GROUP_SECONDS:
            return known.trouble
        trouble = ""
        try:
            keep_group_told(self.pipeline, situation, cluster)
        except (KafkaUnreachable, KafkaRefused) as error:
            # A login that is refused as a whole has failed the look before this.
            trouble = str(error)
        self.group = _Group(checkpoint.offsets, trouble)
        return trouble


class Memory:
    """The records of a sensor's pipelines, by name."""

    def __init__(self) -> None:
        self._records: dict[str, PipelineMemory] = {}

    def of(self, pipeline: Pipeline) -> PipelineMemory:
        """Return the pipeline's record, a new one if its file was loaded anew."""
        known = self._records.get(pipeline.name)
        if known is None or known.pipeline is not pipeline:
            known = self._records[pipeline.name] = PipelineMemory(pipeline)
        return known

    def of_each(self, pipelines: Sequence[Pipeline]) -> list[PipelineMemory]:
        return [self.of(pipeline) for pipeline in pipelines]
