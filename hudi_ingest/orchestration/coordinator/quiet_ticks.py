"""Ticks that check only the event that each pipeline waits for: new end offsets if it is idle, enough records or the time of the next
transaction if some are waiting, the end of its run if it has one, and then the time of the next.

A full look at a pipeline also reads the table, the ledger and Dagster, and reports. Most of its cost is wasted while a topic has nothing
new, or while a run is at work. So a process remembers the result of each pipeline's last full look. For some time after it, ticks only
check that the broker has the same topics with the same ends and that no request is pending, for all idle pipelines of a cluster with
one request to each broker; and that the runs of busy ones are still active, with one query. Such a tick begins nothing and reports
nothing, so it cannot be wrong: the next full look finds all that it overlooks.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from hudi_ingest.exceptions import IngestError, KafkaRefused, KafkaUnreachable
from hudi_ingest.kafka.admin_clients import settings_of
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.shared_clusters import SourceSnapshot, snapshot_of_ends
from hudi_ingest.ledger.requests import Wishes
from hudi_ingest.model.offsets import Offsets, TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.coordinator.next_tick import NextTick
from hudi_ingest.orchestration.coordinator.runs import busy_text
from hudi_ingest.orchestration.reports.complete_periods import seconds_to_period
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.arithmetic import limits_of, next_due
from hudi_ingest.transaction.plan.planning import Situation, keep_group_told, time_to_wait

WHOLE_SECONDS = 30.0
"""A pipeline gets a full look at least this often, unless it is an idle one of many."""
GROUP_SECONDS = 300.0
_WHOLE_SECONDS_OF_MANY = 300.0
_WHOLE_SECONDS_EACH = 1.5
"""Idle and waiting pipelines of one sensor share out their full looks: there is one in this time, but each has its own in 300 s."""
_ANSWER_SECONDS = 5.0
"""A tick asks a cluster two or three questions, and has looks to do after them."""


@dataclass(frozen=True, slots=True)
class _Idle:
    """The result of a full look that had nothing to do."""

    pipeline: Pipeline
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
class _Busy:
    """A full look found a run at work, or requested one."""

    pipeline: Pipeline
    transaction_id: str = ""
    run_id: str = ""
    """Known once Dagster has made the run."""
    after: _Idle | None = None
    """What the pipeline waits for once this transaction is committed, if the look requested it."""
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _Group:
    """The consumer group was asked whether it has these offsets. `trouble`: why it could not be."""

    pipeline: Pipeline
    offsets: Offsets
    trouble: str
    since: float = field(default_factory=time.monotonic)


_Known = TypeVar("_Known", _Idle, _Busy)
_groups: dict[str, _Group] = {}
_idle: dict[str, _Idle] = {}
_busy: dict[str, _Busy] = {}
_ends: dict[str, tuple[Pipeline, Mapping[TopicPartition, int]]] = {}
"""Where the topics of pipelines ended that waited for their turn when the broker was asked last."""
_planned: dict[str, tuple[str, datetime]] = {}
"""The newest transaction that was requested, and when it was planned. Without it, the time when it began is used.

All are by pipeline, and lost with the process, whose first looks are then full."""


def remember_idle(pipeline: Pipeline, situation: Situation, reason: str) -> None:
    """Note that everything on the broker is committed, that nothing is requested, and the `reason` that the tick gave."""
    ends = {source: marks.end for source, marks in situation.watermarks.items()}
    period = seconds_to_period(pipeline, time.time())
    _idle[pipeline.name] = _Idle(pipeline, situation.topic_ids, ends, reason, period_seconds=period)


def remember_waiting(pipeline: Pipeline, situation: Situation, reason: str, now: datetime) -> None:
    """Note that nothing is requested, and that records wait for their transaction, if there are any."""
    remember_idle(pipeline, situation, reason)
    if situation.lag.total:
        seconds, records = time_to_wait(pipeline, situation, now)
        _idle[pipeline.name] = replace(_idle[pipeline.name], seconds=seconds, records=records)


def remember_busy(pipeline: Pipeline) -> None:
    """Note that a run of the pipeline is at work, or will be."""
    _busy[pipeline.name] = _Busy(pipeline)


def remember_requested(pipeline: Pipeline, situation: Situation, plan: TransactionPlan, now: datetime) -> None:
    """Note that a run of this plan is requested, so that nobody looks at the table when it has ended, only to find that the interval
    has not."""
    remember_idle(pipeline, situation, "")
    after = replace(
        _idle.pop(pipeline.name),
        records=time_to_wait(pipeline, situation, now, plan)[1],
        seconds=next_due(limits_of(pipeline), now).timestamp() - time.time(),
        since=time.monotonic(),
    )
    _planned[pipeline.name] = plan.transaction_id, now
    # A request continues at once, a commit may complete a period, and the end of a partition without a leader is unknown.
    waits = not plan.request and after.period_seconds == math.inf and not situation.leaderless
    _busy[pipeline.name] = _Busy(pipeline, plan.transaction_id, after=after if waits else None)


def with_plan_time(pipeline: Pipeline, situation: Situation) -> Situation:
    """Add when the last committed transaction was planned, if this process requested it."""
    transaction_id, planned_at = _planned.get(pipeline.name, ("", None))
    checkpoint = situation.committed.checkpoint
    is_last = checkpoint is not None and checkpoint.transaction_id == transaction_id
    return replace(situation, planned_at=planned_at) if is_last else situation


def keep_group_told_now_and_then(pipeline: Pipeline, situation: Situation, cluster: KafkaCluster) -> str:
    """Set the consumer group's offsets to the table's if they differ, and return why that failed, or "". Every GROUP_SECONDS if nothing
    is committed meanwhile: only tools that show the group's lag use them, and a group without a coordinator costs a timeout.
    """
    checkpoint, known = situation.committed.checkpoint, _groups.get(pipeline.name)
    if checkpoint is None:
        return ""
    is_known = known is not None and known.pipeline is pipeline and known.offsets == checkpoint.offsets
    if known is not None and is_known and time.monotonic() - known.since <= GROUP_SECONDS:
        return known.trouble
    trouble = ""
    try:
        keep_group_told(pipeline, situation, cluster)
    except (KafkaUnreachable, KafkaRefused) as error:
        # A login that is refused as a whole has failed the look before this.
        trouble = str(error)
    _groups[pipeline.name] = _Group(pipeline, checkpoint.offsets, trouble)
    return trouble


def forget(pipeline: Pipeline) -> None:
    """Force a full look next, unless a new result is remembered before."""
    _idle.pop(pipeline.name, None)
    _busy.pop(pipeline.name, None)


def quiet_reasons(
    pipelines: Sequence[Pipeline], instance: DagsterInstance, wishes: Callable[[], Wishes]
) -> dict[str, str]:
    """Say of each of a sensor's pipelines that has still nothing to do why; the others need a full look. `wishes`: reads in the ledger
    which of them are requested."""
    shared = min(_WHOLE_SECONDS_OF_MANY, (len(pipelines) - 1) * _WHOLE_SECONDS_EACH)
    still_busy = _still_busy([*_recent(_busy, pipelines, WHOLE_SECONDS)], instance)
    idle = [
        known
        for known in _recent(_idle, pipelines, max(WHOLE_SECONDS, shared))
        # One that waits alone has a full look at each tick, which says how long it still waits.
        if (known.seconds == math.inf or time.monotonic() - known.since < min(shared, known.seconds))
        and time.monotonic() - known.since < known.period_seconds
    ]
    return {**still_busy, **_still_idle(idle, wishes)}


def moved(pipelines: Sequence[Pipeline]) -> frozenset[str]:
    """Ask each cluster once where the topics of these pipelines end, and return those with records that neither their last full look nor the
    last call saw. Without an answer none has: then the others' turns are as good."""
    clusters = defaultdict[tuple[Any, ...], list[Pipeline]](list)
    for pipeline in pipelines:
        clusters[settings_of(pipeline.source)].append(pipeline)
    found = set[str]()
    for each in clusters.values():
        try:
            cluster = snapshot_of_ends([pipeline.source for pipeline in each], _ANSWER_SECONDS)
        except IngestError:
            continue
        for pipeline in each:
            known = _idle.get(pipeline.name)
            before, ends = _ends.get(pipeline.name), _ends_of(cluster.of(pipeline.source))
            if ends is None:
                continue
            if known is not None and known.pipeline is pipeline:
                seen: Mapping[TopicPartition, int] | None = known.ends
            else:
                seen = before[1] if before is not None and before[0] is pipeline else None
            if seen is not None and seen != ends:
                found.add(pipeline.name)
            # Of one that is still to be looked at for the first time, the ends of the first call stay what they are compared with.
            if before is None or before[0] is not pipeline:
                _ends[pipeline.name] = pipeline, ends
    return frozenset(found)


def _ends_of(held: SourceSnapshot) -> dict[TopicPartition, int] | None:
    try:
        topics = held.topics()
        marks = held.watermarks(partition for topic in topics.values() for partition in topic.partitions)
    except IngestError:
        # A full look says what is wrong.
        return None
    return {partition: each.end for partition, each in marks.items()}


def next_tick(pipelines: Sequence[Pipeline], rest_seconds: float) -> NextTick:
    """Return when a sensor's pipelines need a tick next: when a transaction that waits for its interval's end is due, or when a run has
    ended and the transaction after it is due. `rest_seconds`: how long the sensor need not tick otherwise."""
    now = time.time()
    epoch = now - time.monotonic()
    due = [known.until for known in _recent(_idle, pipelines, math.inf)]
    runs = dict[str, float]()
    for known in _recent(_busy, pipelines, WHOLE_SECONDS):
        # Of a transaction that the last full look did not request, the interval is unknown.
        until = known.since if known.after is None else known.after.until
        if known.run_id:
            runs[known.run_id] = epoch + until
        else:
            due.append(until)
    return NextTick(epoch + min(due, default=math.inf), runs, now + rest_seconds)


def _recent(remembered: Mapping[str, _Known], pipelines: Sequence[Pipeline], seconds: float) -> Iterator[_Known]:
    for pipeline in pipelines:
        known = remembered.get(pipeline.name)
        if known is not None and known.pipeline is pipeline and time.monotonic() - known.since <= seconds:
            yield known


def _still_busy(busy: Sequence[_Busy], instance: DagsterInstance) -> dict[str, str]:
    if not busy:
        return {}
    runs = instance.get_runs(tags.active_runs([known.pipeline for known in busy]))
    by_table = {run.tags[tags.TABLE]: run for run in runs}
    for known in busy:
        if (run := by_table.get(known.pipeline.table.base_path)) is not None and known.run_id != run.run_id:
            _busy[known.pipeline.name] = replace(known, run_id=run.run_id)
    _note_committed([each for each in busy if each.pipeline.table.base_path not in by_table], instance)
    return {
        known.pipeline.name: busy_text(by_table[path])
        for known in busy
        if (path := known.pipeline.table.base_path) in by_table
    }


def _note_committed(ended: Sequence[_Busy], instance: DagsterInstance) -> None:
    """Note which of them are committed and have to wait until the next transaction is due."""
    now = time.monotonic()
    by_id = {
        known.transaction_id: known.after for known in ended if known.after is not None and now < known.after.until
    }
    if not by_id:
        return
    filters = RunsFilter(tags={tags.TRANSACTION: [*by_id]}, statuses=[DagsterRunStatus.SUCCESS])
    # A run that found nothing to do has no instant.
    for run in [each for each in instance.get_runs(filters) if tags.INSTANT in each.tags]:
        transaction_id = run.tags[tags.TRANSACTION]
        after = by_id[transaction_id]
        seconds = after.until - now
        due = datetime.fromtimestamp(time.time() + seconds, timezone.utc)
        reason = (
            f"{transaction_id} is committed; the next is due at {due:%H:%M:%S} UTC (interval_seconds "
            f"{after.pipeline.transaction.interval_seconds:g})"
        )
        _busy.pop(after.pipeline.name, None)
        _idle[after.pipeline.name] = replace(after, reason=reason, seconds=seconds, since=now)


def _still_idle(idle: Sequence[_Idle], wishes: Callable[[], Wishes]) -> dict[str, str]:
    clusters = defaultdict[tuple[Any, ...], list[_Idle]](list)
    for known in idle:
        clusters[settings_of(known.pipeline.source)].append(known)
    try:
        unchanged = [known for each in clusters.values() for known in _unchanged(each)]
        asked = wishes().requested if unchanged else frozenset[str]()
    except IngestError:
        # A full look says what is wrong.
        return {}
    return {known.pipeline.name: known.reason for known in unchanged if known.pipeline.name not in asked}


def _unchanged(idle: Sequence[_Idle]) -> list[_Idle]:
    """Return those whose topics have no more records than may wait; none if their cluster does not answer."""
    try:
        cluster = snapshot_of_ends([known.pipeline.source for known in idle], _ANSWER_SECONDS)
    except IngestError:
        return []
    return [known for known in idle if _still_waits(known, cluster.of(known.pipeline.source))]


def _still_waits(known: _Idle, held: SourceSnapshot) -> bool:
    try:
        topics = held.topics({source.topic for source in known.ends})
        if {name: topic.topic_id for name, topic in topics.items()} != known.topic_ids:
            return False
        marks = held.watermarks(partition for topic in topics.values() for partition in topic.partitions)
    except IngestError:
        return False
    if marks.keys() != known.ends.keys():
        return False
    grown = [each.end - known.ends[source] for source, each in marks.items()]
    return min(grown, default=0) >= 0 and sum(grown) < known.records
