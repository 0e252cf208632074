"""What passes between the server and the process with Spark."""

from __future__ import annotations

import pickle

import pytest

from hudi_ingest.exceptions import NoSuchSavepoint
from hudi_ingest.hudi.services.savepoints import Savepoint
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest.operations.upkeep.partition_ttl import AgedPartition, TtlResult

pytestmark = pytest.mark.fast

SLICE = Slice("orders", 0, 5, 9)
LOSS = OffsetLoss("orders", 0, 3, 5, 2, LossReason.RETENTION)
RECEIPT = CommitReceipt(
    IngestPlan("orders", "orders-1", 1, (SLICE,), resets=(LOSS,)),
    "20260101000000000",
    Checkpoint(1, "orders-1", {TopicPartition("orders", 0): 9}),
    (SliceReport(SLICE, 1, rows=4),),
    {"total": 1.5},
)
EXPIRED = TtlResult("orders", "/data/orders", 30, (AgedPartition("dt=2026-01-01", None, 1, 2),), ("dt=x",), 3)


@pytest.mark.parametrize("result", [RECEIPT, EXPIRED, Savepoint("20260101000000000", "hudi-ingest", "by REST")])
def test_results_survive_the_way_back(result: object) -> None:
    assert pickle.loads(pickle.dumps(result)) == result


def test_errors_survive_the_way_back() -> None:
    error = NoSuchSavepoint("table /data/orders has no savepoint 1; there is none. Nothing was changed.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
