from __future__ import annotations

from typing import Any

import pytest

from hudi_ingest.exceptions import TableMismatch
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss
from hudi_ingest.transaction.plan.arithmetic import require_offset_order
from hudi_ingest_tests.support.pipeline_files import Write, load

pytestmark = pytest.mark.fast

KEYED: dict[str, Any] = {"table__mode": "upsert", "table__key": ["id"]}
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
CHECKPOINT = Checkpoint(3, "orders-3", {ZERO: 10})


def loss(reason: LossReason) -> OffsetLoss:
    return OffsetLoss("orders", 0, 10, 0, None, reason)


def plan(*sources: TopicPartition, reason: LossReason | None = None) -> IngestPlan:
    slices = tuple(Slice(source.topic, source.partition, 0, 5) for source in sources)
    return IngestPlan("orders", "orders-4", 4, slices, resets=(loss(reason),) if reason else ())


def test_p6_offsets_of_new_partitions_and_new_topics_order_no_keys(write: Write) -> None:
    keyed = load(write, **KEYED)
    require_offset_order(keyed, None, plan(ZERO, ONE))
    require_offset_order(keyed, CHECKPOINT, plan(ZERO, reason=LossReason.RETENTION))
    with pytest.raises(TableMismatch, match=r"orders:1 did not exist when the table was created.*table\.ordering"):
        require_offset_order(keyed, CHECKPOINT, plan(ZERO, ONE))
    for reason in (LossReason.RECREATED, LossReason.TRUNCATED):
        with pytest.raises(TableMismatch, match="the offsets of orders:0 start over"):
            require_offset_order(keyed, CHECKPOINT, plan(ZERO, reason=reason))


def test_a_column_orders_the_records_of_any_partition(write: Write) -> None:
    for changes in ({**KEYED, "table__ordering": "n"}, {}):
        require_offset_order(load(write, **changes), CHECKPOINT, plan(ZERO, ONE, reason=LossReason.RECREATED))
