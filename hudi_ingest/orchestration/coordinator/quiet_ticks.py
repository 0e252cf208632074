"""Ticks that check only the event that the pipeline waits for: new end offsets if it is idle, the end of its run if it has one.

A full tick also reads the table, the ledger and Dagster, and reports. Most of its cost is wasted while a topic has nothing new, or while
a run is at work. So a process remembers the result of each pipeline's last full tick. Until WHOLE_SECONDS have passed, the ticks of an
idle pipeline only check that the broker has the same topics with the same ends and that no request is pending; those of a busy one,
that its run is still active. Such a tick begins nothing and reports nothing, so it cannot be wrong: the next full tick finds all that it
overlooks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from dagster import DagsterInstance

from hudi_ingest.exceptions import IngestError
from hudi_ingest.kafka.shared_clusters import answering_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.orchestration.coordinator.runs import active_runs, busy_text
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation

WHOLE_SECONDS = 30.0
"""A full tick runs at least this often."""


@dataclass(frozen=True, slots=True)
class _Idle:
    """The result of a full tick that had nothing to do."""

    pipeline: Pipeline
    ledger: Ledger
    topic_ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    reason: str
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _Busy:
    """A full tick found a run at work, or requested one."""

    pipeline: Pipeline
    since: float = field(default_factory=time.monotonic)


_idle: dict[str, _Idle] = {}
_busy: dict[str, _Busy] = {}
"""By pipeline. Lost with the process, whose first ticks are then full."""


def remember_idle(pipeline: Pipeline, situation: Situation, ledger: Ledger, reason: str) -> None:
    """Note that everything on the broker is committed, that nothing is requested, and the `reason` that the tick gave."""
    ends = {source: marks.end for source, marks in situation.watermarks.items()}
    _idle[pipeline.name] = _Idle(pipeline, ledger, situation.topic_ids, ends, reason)


def remember_busy(pipeline: Pipeline) -> None:
    """Note that a run of the pipeline is at work, or will be."""
    _busy[pipeline.name] = _Busy(pipeline)


def forget(pipeline: Pipeline) -> None:
    """Force a full tick next, unless a new result is remembered before."""
    _idle.pop(pipeline.name, None)
    _busy.pop(pipeline.name, None)


def still_quiet(pipeline: Pipeline, instance: DagsterInstance) -> str | None:
    """Say why there is still nothing to do; None if it is time for a full tick."""
    idle, busy = _idle.get(pipeline.name), _busy.get(pipeline.name)
    if idle is not None and _is_recent(idle, pipeline):
        try:
            return idle.reason if _nothing_is_new(idle) else None
        except IngestError:
            # A full tick says what is wrong.
            return None
    if busy is not None and _is_recent(busy, pipeline):
        run = next(iter(instance.get_runs(active_runs(pipeline), limit=1)), None)
        return busy_text(run) if run is not None else None
    return None


def _is_recent(known: _Idle | _Busy, pipeline: Pipeline) -> bool:
    return known.pipeline is pipeline and time.monotonic() - known.since <= WHOLE_SECONDS


def _nothing_is_new(idle: _Idle) -> bool:
    with answering_cluster(idle.pipeline.source) as cluster:
        topics = cluster.topics({source.topic for source in idle.ends})
        if {name: topic.topic_id for name, topic in topics.items()} != idle.topic_ids:
            return False
        partitions = [partition for topic in topics.values() for partition in topic.partitions]
        if cluster.end_offsets(partitions) != idle.ends:
            return False
    return not idle.ledger.requests.active(idle.pipeline.name)
