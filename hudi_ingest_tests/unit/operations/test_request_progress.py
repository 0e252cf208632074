"""Requests of several transactions: their own commits are not in the way of the next, and none is done a second time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from hudi_ingest.exceptions import RangeRefused
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.ledger import Ledger, Owner, Request, RequestProgress
from hudi_ingest.ledger.requests import RequestedCommit
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import BackfillPlan, TransactionKind
from hudi_ingest.operations.requests import planning
from hudi_ingest.operations.requests.planning import next_transaction, settled_progress
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.pipeline_files import Write, load

P0 = TopicPartition("orders", 0)
NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
ASKED = Slice("orders", 0, 0, 50)


@pytest.fixture
def pipeline(write: Write) -> Pipeline:
    return load(write, transaction__max_records=20)


def situation(covered: Ranges) -> Situation:
    checkpoint = Checkpoint(4, "t-4", {P0: 100}, 10, {"orders": TopicVersion("id")}, "4", covered={P0: covered})
    return Situation(CommittedState(True, checkpoint), {P0: Watermarks(0, 110)}, {}, {"orders": "id"})


def request(kind: TransactionKind, skip_covered: bool = False) -> Request:
    return Request("r-1", "orders", "/data/orders", kind, NOON, (ASKED,), skip_covered=skip_covered)


def progress(*done: Slice) -> RequestProgress:
    return RequestProgress(
        tuple(RequestedCommit(f"t-{number}", str(number), 1, 1, (slice_,)) for number, slice_ in enumerate(done))
    )


def planned(pipeline: Pipeline, kind: TransactionKind, covered: Ranges, *done: Slice) -> Sequence[Slice]:
    plan = next_transaction(seen(pipeline, situation(covered)), request(kind), progress(*done))
    return () if plan is None else plan.slices


def test_p2_a_backfill_goes_on_behind_its_own_commits(pipeline: Pipeline) -> None:
    backfill = TransactionKind.BACKFILL
    assert planned(pipeline, backfill, ((50, 100),)) == (Slice("orders", 0, 0, 20),)
    first = Slice("orders", 0, 0, 20)
    assert planned(pipeline, backfill, ((0, 20), (50, 100)), first) == (Slice("orders", 0, 20, 40),)
    rest = Slice("orders", 0, 20, 50)
    assert planned(pipeline, backfill, ((0, 100),), first, rest) == ()
    with pytest.raises(RangeRefused):
        planned(pipeline, backfill, ((0, 20), (50, 100)))


def test_p2_a_replay_takes_no_range_twice(pipeline: Pipeline) -> None:
    replay = TransactionKind.REPLAY
    done = [Slice("orders", 0, 0, 20), Slice("orders", 0, 20, 40)]
    assert planned(pipeline, replay, ((0, 100),)) == (done[0],)
    assert planned(pipeline, replay, ((0, 100),), done[0]) == (done[1],)
    assert planned(pipeline, replay, ((0, 100),), *done) == (Slice("orders", 0, 40, 50),)
    assert planned(pipeline, replay, ((0, 100),), ASKED) == ()


def test_p5_a_requests_commit_whose_process_died_behind_it_counts(
    pipeline: Pipeline, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.requests.file(request(TransactionKind.BACKFILL))
    plan = BackfillPlan("orders", "t-5", 5, (Slice("orders", 0, 0, 20),), request="r-1")
    ledger.transactions.begin(
        plan, table="/data/orders", owner=Owner.dagster_run("run"), deadline=NOON + timedelta(hours=1)
    )
    monkeypatch.setattr(planning, "PipelineTable", lambda _: SimpleNamespace())
    monkeypatch.setattr(
        planning,
        "mark_if_committed",
        lambda table, ledger, transaction_id: ledger.transactions.mark_committed_as_found(transaction_id, "5"),
    )
    assert settled_progress(pipeline, ledger, "r-1").done == plan.slices
