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
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from hudi_ingest.exceptions import IngestError
from hudi_ingest.kafka.admin_clients import settings_of
from hudi_ingest.kafka.shared_clusters import SourceSnapshot, snapshot_of_ends
from hudi_ingest.ledger.requests import Wishes
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.coordinator.memory import Idle, PipelineMemory
from hudi_ingest.orchestration.coordinator.runs import busy_text
from hudi_ingest.orchestration.embedded.next_tick import NextTick

WHOLE_SECONDS = 30.0
"""A pipeline gets a full look at least this often, unless it is an idle one of many."""
_WHOLE_SECONDS_OF_MANY = 300.0
_WHOLE_SECONDS_EACH = 1.5
"""Idle and waiting pipelines of one sensor share out their full looks: there is one in this time, but each has its own in 300 s."""
_ANSWER_SECONDS = 5.0
"""A tick asks a cluster two or three questions, and has looks to do after them."""


def quiet_reasons(
    memory: Sequence[PipelineMemory], instance: DagsterInstance, wishes: Callable[[], Wishes]
) -> dict[str, str]:
    """Say of each of a sensor's pipelines that has still nothing to do why; the others need a full look. `wishes`: reads in the ledger
    which of them are requested."""
    shared = min(_WHOLE_SECONDS_OF_MANY, (len(memory) - 1) * _WHOLE_SECONDS_EACH)
    now = time.monotonic()
    busy = [each for each in memory if each.busy is not None and now - each.busy.since <= WHOLE_SECONDS]
    still_busy = _still_busy(busy, instance)
    most, idle = max(WHOLE_SECONDS, shared), list[PipelineMemory]()
    for each in memory:
        if (known := each.idle) is None:
            continue
        age = time.monotonic() - known.since
        # One that waits alone has a full look at each tick, which says how long it still waits.
        waits = known.seconds == math.inf or age < min(shared, known.seconds)
        if age <= most and waits and age < known.period_seconds:
            idle.append(each)
    return {**still_busy, **_still_idle(idle, wishes)}


def moved(memory: Sequence[PipelineMemory]) -> frozenset[str]:
    """Ask each cluster once where the topics of these pipelines end, and return those with records that neither their last full look nor the
    last call saw. Without an answer none has: then the others' turns are as good."""
    found = set[str]()
    for pipelines in _by_cluster(memory):
        try:
            cluster = snapshot_of_ends([each.pipeline.source for each in pipelines], _ANSWER_SECONDS)
        except IngestError:
            continue
        for each in pipelines:
            ends = _ends_of(cluster.of(each.pipeline.source))
            if ends is None:
                continue
            seen = each.idle.ends if each.idle is not None else each.ends
            if seen is not None and seen != ends:
                found.add(each.pipeline.name)
            # Of one that is still to be looked at for the first time, the ends of the first call stay what they are compared with.
            if each.ends is None:
                each.ends = ends
    return frozenset(found)


def _by_cluster(memory: Sequence[PipelineMemory]) -> list[list[PipelineMemory]]:
    clusters = defaultdict[tuple[Any, ...], list[PipelineMemory]](list)
    for each in memory:
        clusters[settings_of(each.pipeline.source)].append(each)
    return [*clusters.values()]


def _ends_of(held: SourceSnapshot) -> dict[TopicPartition, int] | None:
    try:
        topics = held.topics()
        marks = held.watermarks(partition for topic in topics.values() for partition in topic.partitions)
    except IngestError:
        # A full look says what is wrong.
        return None
    return {partition: each.end for partition, each in marks.items()}


def next_tick(memory: Sequence[PipelineMemory]) -> NextTick:
    """Return when a sensor's pipelines need a tick next: when a transaction that waits for its interval's end is due, or when a run has
    ended and the transaction after it is due."""
    epoch = time.time() - time.monotonic()
    due = [each.idle.until for each in memory if each.idle is not None]
    runs = dict[str, float]()
    for known in (each.busy for each in memory):
        if known is None or time.monotonic() - known.since > WHOLE_SECONDS:
            continue
        # Of a transaction that the last full look did not request, the interval is unknown.
        until = known.since if known.after is None else known.after.until
        if known.run_id:
            runs[known.run_id] = epoch + until
        else:
            due.append(until)
    return NextTick(epoch + min(due, default=math.inf), runs)


def _still_busy(busy: Sequence[PipelineMemory], instance: DagsterInstance) -> dict[str, str]:
    if not busy:
        return {}
    runs = instance.get_runs(tags.active_runs([each.pipeline for each in busy]))
    by_table = {run.tags[tags.TABLE]: run for run in runs}
    working = dict[str, str]()
    for each in busy:
        if (run := by_table.get(each.pipeline.table.base_path)) is not None and each.busy is not None:
            working[each.pipeline.name] = busy_text(run)
            each.busy = replace(each.busy, run_id=run.run_id)
    _note_committed([each for each in busy if each.pipeline.name not in working], instance)
    return working


def _note_committed(ended: Sequence[PipelineMemory], instance: DagsterInstance) -> None:
    """Note which of them are committed and have to wait until the next transaction is due."""
    now = time.monotonic()
    by_id = {
        known.transaction_id: (each, after)
        for each in ended
        if (known := each.busy) is not None and (after := known.after) is not None and now < after.until
    }
    if not by_id:
        return
    filters = RunsFilter(tags={tags.TRANSACTION: [*by_id]}, statuses=[DagsterRunStatus.SUCCESS])
    # A run that found nothing to do has no instant.
    for run in [run for run in instance.get_runs(filters) if tags.INSTANT in run.tags]:
        transaction_id = run.tags[tags.TRANSACTION]
        each, after = by_id[transaction_id]
        seconds = after.until - now
        due = datetime.fromtimestamp(time.time() + seconds, timezone.utc)
        reason = (
            f"{transaction_id} is committed; the next is due at {due:%H:%M:%S} UTC (interval_seconds "
            f"{each.pipeline.transaction.interval_seconds:g})"
        )
        each.busy, each.idle = None, replace(after, reason=reason, seconds=seconds, since=now)


def _still_idle(idle: Sequence[PipelineMemory], wishes: Callable[[], Wishes]) -> dict[str, str]:
    try:
        unchanged = [each for pipelines in _by_cluster(idle) for each in _unchanged(pipelines)]
        asked = wishes().requested if unchanged else frozenset[str]()
    except IngestError:
        # A full look says what is wrong.
        return {}
    return {
        each.pipeline.name: each.idle.reason
        for each in unchanged
        if each.idle is not None and each.pipeline.name not in asked
    }


def _unchanged(idle: Sequence[PipelineMemory]) -> list[PipelineMemory]:
    """Return those whose topics have no more records than may wait; none if their cluster does not answer."""
    try:
        cluster = snapshot_of_ends([each.pipeline.source for each in idle], _ANSWER_SECONDS)
    except IngestError:
        return []
    return [
        each for each in idle if each.idle is not None and _still_waits(each.idle, cluster.of(each.pipeline.source))
    ]


def _still_waits(known: Idle, held: SourceSnapshot) -> bool:
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
