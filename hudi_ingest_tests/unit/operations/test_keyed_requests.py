"""Requests for keyed tables: one transaction up to the committed end, and what is refused (P8)."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.exceptions import PlanOutdated, RangeRefused
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.ledger import Request, RequestProgress
from hudi_ingest.ledger.requests import RequestedCommit
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import BackfillPlan, ReplayPlan, TransactionKind
from hudi_ingest.operations.requests.asked_ranges import committed_end
from hudi_ingest.operations.requests.planning import (
    completed,
    new_request,
    next_transaction,
    survey_replay,
    what_is_missing,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.pipeline_files import Write, load

pytestmark = pytest.mark.fast

P0 = TopicPartition("orders", 0)
PLAN_TYPES: dict[TransactionKind, Any] = {
    TransactionKind.REPLAY: ReplayPlan,
    TransactionKind.BACKFILL: BackfillPlan,
}


@pytest.fixture
def keyed(write: Write) -> Pipeline:
    return load(write, table__mode="upsert", table__key=["id"], transaction__max_records=1000)


def situation(committed: int, first: int = 0) -> Situation:
    checkpoint = Checkpoint(
        4, "t-4", {P0: committed}, 10, {"orders": TopicVersion("id")}, "4", covered={P0: ((first, committed),)}
    )
    return Situation(CommittedState(True, checkpoint), {P0: Watermarks(0, committed + 10)}, {}, {"orders": "id"})


def request(kind: TransactionKind) -> Request:
    noon = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
    return Request("r-1", "orders", "/data/orders", kind, noon, (Slice("orders", 0, 20, 100),))


@pytest.mark.parametrize("kind", [TransactionKind.REPLAY, TransactionKind.BACKFILL])
def test_p8_a_request_is_one_transaction_that_also_reads_what_live_ones_have_read_since(
    keyed: Pipeline, kind: TransactionKind
) -> None:
    """The table has no files here, so nothing looks for some to replace."""
    first = 0 if kind is TransactionKind.REPLAY else 60
    plan = next_transaction(seen(keyed, situation(150, first)), request(kind), RequestProgress())
    assert isinstance(plan, PLAN_TYPES[kind])
    assert plan.upserts
    assert plan.slices == (Slice("orders", 0, 20, 150),)
    assert completed(seen(keyed, situation(150, first)), request(kind), RequestProgress(), plan).replaces == ()
    with pytest.raises(PlanOutdated, match=r"planned orders:0\[20,150\), but next is orders:0\[20,151\)"):
        completed(seen(keyed, situation(151, first)), request(kind), RequestProgress(), plan)
    done = RequestProgress((RequestedCommit("t-5", "5", 130, 1, plan.slices),))
    assert next_transaction(seen(keyed, situation(170, first)), request(kind), done) is None


def test_p8_a_replay_is_refused_that_one_transaction_cannot_do(keyed: Pipeline) -> None:
    with pytest.raises(RangeRefused, match="the replay of pipeline orders is refused") as raised:
        next_transaction(seen(keyed, situation(1021)), request(TransactionKind.REPLAY), RequestProgress())
    assert raised.value.problems[0].startswith("1,001 offsets up to the committed ones are more than the 1,000 of one")


def test_p8_an_end_before_the_committed_one_is_refused_when_it_is_asked_for(keyed: Pipeline) -> None:
    early = [Slice("orders", 0, 20, 99)]
    for ask in (
        lambda: survey_replay(seen(keyed, situation(100)), early),
        lambda: what_is_missing(seen(keyed, situation(100, 50)), early, skip_covered=False),
    ):
        with pytest.raises(RangeRefused) as raised:
            ask()
        assert "ends before the committed offset 100. The table is keyed" in raised.value.problems[0]
    survey = survey_replay(seen(keyed, situation(100)), [Slice("orders", 0, 20, 100)])
    assert (survey.remaining, survey.transactions, survey.replaces) == ({P0: ((20, 100),)}, 1, ())


def test_p8_dead_letters_of_a_keyed_table_can_be_retried(keyed: Pipeline, tmp_path: Path) -> None:
    table = keyed.table.model_copy(update={"base_path": str(tmp_path / "table")})
    pipeline = keyed.model_copy(update={"table": table})
    asked = new_request(pipeline, TransactionKind.RETRY)
    assert (asked.kind, asked.ranges) == (TransactionKind.RETRY, ())
    assert next_transaction(seen(pipeline, situation(100)), asked, RequestProgress()) is None, "there are none"


def test_without_an_end_a_range_ends_at_the_committed_offset() -> None:
    assert committed_end(situation(100), P0, 20) == 100
    unknown = TopicPartition("orders", 7)
    assert committed_end(situation(100), unknown, 20) == 21, "a range that is refused by name"


def test_p8_a_replay_cannot_leave_deleted_rows_out(keyed: Pipeline) -> None:
    with pytest.raises(RangeRefused, match="--respect-deletes is for tables that are not keyed"):
        new_request(keyed, TransactionKind.REPLAY, [Slice("orders", 0, 20, 100)], respect_deletes=True)
