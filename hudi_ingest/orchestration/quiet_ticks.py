"""Ticks of idle pipelines that look at the broker's end offsets only.

A whole tick also looks at the table, the ledger and Dagster, and reports what it finds. Most of what it costs is wasted while a topic has
nothing new. So a process remembers of each pipeline that its last whole tick found nothing to do. Until WHOLE_SECONDS have passed, its
ticks only ask whether the broker still has the same topics with the same ends and nobody has filed a request. Such a tick begins
nothing and reports nothing, so it cannot be wrong: whatever it overlooks, the next whole tick finds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hudi_ingest.exceptions import IngestError
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.situation import Situation

WHOLE_SECONDS = 30.0
"""A tick that comes later than this after the last whole one is whole, too."""


@dataclass(frozen=True, slots=True)
class _Idle:
    """What a whole tick found when there was nothing to do."""

    pipeline: Pipeline
    ledger: Ledger
    topic_ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    reason: str
    since: float = field(default_factory=time.monotonic)


_idle: dict[str, _Idle] = {}
"""By pipeline. Lost with the process, whose first ticks are then whole."""


def remember_idle(pipeline: Pipeline, situation: Situation, ledger: Ledger, reason: str) -> None:
    """Note that everything on the broker is committed, that nothing is requested, and the `reason` that the tick gave."""
    ends = {source: marks.end for source, marks in situation.watermarks.items()}
    _idle[pipeline.name] = _Idle(pipeline, ledger, situation.topic_ids, ends, reason)


def forget_idle(pipeline: Pipeline) -> None:
    """Have the pipeline's next tick be a whole one, unless `remember_idle` is called before."""
    _idle.pop(pipeline.name, None)


def still_idle(pipeline: Pipeline) -> str | None:
    """Say why there is still nothing to do, as the last whole tick did; None if it is time for a whole tick."""
    idle = _idle.get(pipeline.name)
    if idle is None or idle.pipeline is not pipeline or time.monotonic() - idle.since > WHOLE_SECONDS:
        return None
    try:
        return idle.reason if _nothing_is_new(idle) else None
    except IngestError:
        # A whole tick says what is wrong.
        return None


def _nothing_is_new(idle: _Idle) -> bool:
    with kept_cluster(idle.pipeline.source) as cluster:
        topics = cluster.topics({source.topic for source in idle.ends})
        if {name: topic.topic_id for name, topic in topics.items()} != idle.topic_ids:
            return False
        partitions = [partition for topic in topics.values() for partition in topic.partitions]
        if cluster.end_offsets(partitions) != idle.ends:
            return False
    return not idle.ledger.active_requests(idle.pipeline.name)
