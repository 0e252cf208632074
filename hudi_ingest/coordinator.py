"""What to do next for one pipeline: reads the table's committed offsets and the broker's watermarks, and plans.

No JVM: committed offsets come from hudi-rs, watermarks from confluent-kafka.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from hudi_ingest.config import Pipeline
from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.hudi.timeline import CommittedState, Timeline
from hudi_ingest.kafka import KafkaCluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.model import TopicPartition, TransactionPlan, Watermarks
from hudi_ingest.planning import Lag, Limits, Skip, lag, plan_transaction, slice_starts


@dataclass(frozen=True, slots=True)
class Situation:
    """What the table and the broker said at one moment."""

    committed: CommittedState
    watermarks: Mapping[TopicPartition, Watermarks]
    first: Mapping[TopicPartition, int]

    @property
    def starts(self) -> dict[TopicPartition, int]:
        """Where each partition continues. Raises OffsetsLost."""
        return slice_starts(self.committed.checkpoint, self.watermarks, self.first)

    @property
    def lag(self) -> Lag:
        """Raises OffsetsLost."""
        return lag(self.starts, self.watermarks)


def observe(pipeline: Pipeline) -> Situation:
    """Raises KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable."""
    committed = Timeline(pipeline.table.base_path).committed(pipeline.checkpoint_key, pipeline.transaction_key)
    cluster = KafkaCluster(pipeline.source)
    watermarks = cluster.watermarks()
    known = committed.checkpoint.offsets if committed.checkpoint else {}
    new = {source: marks for source, marks in watermarks.items() if source not in known}
    # "latest" places only the partitions of a first start; one that appears later is new data from its first offset.
    first = {s: m.begin for s, m in new.items()} if known else (cluster.first_offsets(new) if new else {})
    return Situation(committed, watermarks, first)


def tell_of_commit(pipeline: Pipeline, ledger: Ledger, transaction_id: str) -> bool:
    """Tells the ledger and the consumer group of a commit that landed, and whose op died before it could tell anyone.

    False: the transaction has not landed. Raises TableUnreachable, KafkaUnreachable, LedgerUnreachable.
    """
    timeline = Timeline(pipeline.table.base_path)
    instant = timeline.instant_of(pipeline.transaction_key, transaction_id)
    if instant is None:
        return False
    checkpoint = timeline.committed(pipeline.checkpoint_key, pipeline.transaction_key).checkpoint
    if checkpoint is not None:
        KafkaCluster(pipeline.source).commit_group_offsets(pipeline.group_id, checkpoint.offsets)
    return ledger.mark_committed_as_found(transaction_id, instant)


def plan_next(
    pipeline: Pipeline, situation: Situation, *, now: datetime | None = None, at_once: bool = False
) -> TransactionPlan | Skip:
    """The next transaction, or why there is none. `at_once` ignores the interval and min_records. Raises OffsetsLost."""
    settings = pipeline.transaction
    return plan_transaction(
        pipeline=pipeline.name,
        suffix=secrets.token_hex(3),
        checkpoint=situation.committed.checkpoint,
        watermarks=situation.watermarks,
        first=situation.first,
        limits=Limits(
            interval_seconds=settings.interval_seconds,
            min_records=1 if at_once else settings.min_records,
            max_records=settings.max_records,
            max_bytes=settings.max_bytes,
        ),
        now=now or datetime.now(timezone.utc),
        last_began_at=None if at_once else situation.committed.last_began_at,
    )


def plan_now(pipeline: Pipeline) -> TransactionPlan:
    """A transaction of what waits at this moment, whatever the interval.

    Raises NothingToDo, OffsetsLost, KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable.
    """
    found = plan_next(pipeline, observe(pipeline), at_once=True)
    if isinstance(found, Skip):
        raise NothingToDo(pipeline.name, found.reason)
    return found
