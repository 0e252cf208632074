"""Requests: what the ledger keeps of them, and how their transactions and the live ones take turns."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.ledger import Ledger, Owner, Request, RequestState
from hudi_ingest.ledger.requests import TICK_NOTED_SECONDS
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import BackfillPlan, TransactionKind, TransactionPlan
from hudi_ingest.operations.requests.planning import ending_reason, request_goes_first
from hudi_ingest.operations.requests.work import has_worker, is_worked_on
from hudi_ingest.pipeline.sections.transaction import LONGEST_TICK_SECONDS, TICK_SECONDS

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
TABLE = "/lake/orders"
REQUEST = Request("orders-backfill-1", "orders", TABLE, TransactionKind.BACKFILL, NOON, (Slice("orders", 0, 5, 25),))
OWNER = Owner.dagster_run("run-1")


def plan(sequence: int, start: int, end: int, request: str = REQUEST.request_id) -> TransactionPlan:
    slices = (Slice("orders", 0, start, end),)
    return BackfillPlan("orders", f"t-{sequence}", sequence, slices, request=request)


def begin(ledger: Ledger, planned: TransactionPlan) -> None:
    ledger.transactions.begin(planned, table=TABLE, owner=OWNER, deadline=NOON + timedelta(hours=1))


def test_the_same_request_is_kept_once_until_it_has_ended(ledger: Ledger) -> None:
    assert ledger.requests.file(REQUEST) == REQUEST
    again = replace(REQUEST, request_id="orders-backfill-2", filed_at=NOON + timedelta(hours=1))
    assert ledger.requests.file(again) == REQUEST
    assert ledger.requests.standing(replace(again, table=f"{TABLE}/")) == REQUEST
    other = replace(again, request_id="orders-backfill-3", skip_covered=True)
    assert ledger.requests.standing(other) is None
    assert ledger.requests.file(other) == other
    assert [request.request_id for request in ledger.requests.active("orders")] == [
        REQUEST.request_id,
        "orders-backfill-3",
    ]
    assert ledger.requests.end(REQUEST.request_id, RequestState.CANCELLED, "no more")
    assert not ledger.requests.end(REQUEST.request_id, RequestState.DONE), "the first end stays"
    ended = ledger.requests.find(REQUEST.request_id)
    assert ended is not None
    assert (ended.state, ended.reason) == (RequestState.CANCELLED, "no more")
    assert ledger.requests.file(again) == again
    newest = {request.request_id for request in ledger.requests.newest(limit=2)}
    assert newest == {"orders-backfill-2", "orders-backfill-3"}
    assert ledger.requests.newest("payments") == ()


def test_p5_what_a_request_has_come_to_is_what_its_transactions_say(ledger: Ledger) -> None:
    ledger.requests.file(REQUEST)
    assert ledger.requests.last_tried(TABLE) is None
    begin(ledger, plan(7, 5, 10))
    assert ledger.requests.progress(REQUEST.request_id).commits == (), "an open one counts for nothing"
    # As the next begin tells it of a commit whose op was killed before it could.
    ledger.transactions.mark_committed_as_found("t-7", "20261122120000000")
    begin(ledger, plan(8, 10, 15))
    ledger.transactions.mark_aborted("t-8", "a bad record")
    begin(ledger, plan(9, 0, 99, request=""))
    ledger.transactions.mark_aborted("t-9", "a live one")
    progress = ledger.requests.progress(REQUEST.request_id)
    assert progress.done == (Slice("orders", 0, 5, 10),)
    assert [(commit.instant, commit.rows) for commit in progress.commits] == [("20261122120000000", None)]
    assert (progress.failures, progress.reason, progress.rows) == (1, "a bad record", 0)
    assert ledger.requests.last_tried(f"{TABLE}/") == 8
    assert ending_reason(REQUEST, progress) is None
    ledger.requests.pass_over(REQUEST.request_id, ["b"])
    ledger.requests.pass_over(REQUEST.request_id, ["a", "b"])
    (passing,) = ledger.requests.active("orders")
    assert passing.passed_over == ("a", "b")
    assert ending_reason(passing, progress) == "a bad record"
    assert (
        ending_reason(passing, replace(progress, reason=""))
        == "none of the dead letters in 2 files can become a row now"
    )


def test_ticks_are_noted_seldom_and_a_new_request_is_known_to_be_worked_on_at_once(ledger: Ledger) -> None:
    assert ledger.requests.ticked_at("orders") is None
    ledger.requests.note_tick("orders", NOON)
    ledger.requests.note_tick("orders", NOON + timedelta(seconds=TICK_NOTED_SECONDS - 1))
    assert ledger.requests.ticked_at("orders") == NOON
    # A clock that was set back must not make the coordinator look dead.
    ledger.requests.note_tick("orders", NOON - timedelta(hours=1))
    assert ledger.requests.ticked_at("orders") == NOON - timedelta(hours=1)
    ledger.requests.file(REQUEST)
    assert not is_worked_on(ledger, REQUEST, 300)
    now = datetime.now(timezone.utc)
    # As old as a note can be when the next tick renews it.
    ledger.requests.note_tick(
        "orders", now - timedelta(seconds=TICK_NOTED_SECONDS + LONGEST_TICK_SECONDS + TICK_SECONDS)
    )
    assert is_worked_on(ledger, REQUEST, 300)


def test_a_request_names_who_works_it_off(ledger: Ledger) -> None:
    ledger.requests.file(REQUEST)
    ledger.requests.work_on(REQUEST.request_id, Owner.this_process())
    (worked_on,) = ledger.requests.active("orders")
    assert worked_on.worker == Owner.this_process()
    ledger.requests.work_on(REQUEST.request_id, None)
    (free,) = ledger.requests.active("orders")
    assert free.worker is None


def test_p5_a_request_whose_worker_died_on_another_host_goes_back_to_the_coordinator(ledger: Ledger) -> None:
    ledger.requests.file(REQUEST)
    ledger.requests.work_on(REQUEST.request_id, Owner("process", "elsewhere/0/1:7:1.0"))
    (standing,) = ledger.requests.active("orders")
    assert has_worker(ledger, standing, 300, NOON + timedelta(seconds=900))
    assert not has_worker(ledger, standing, 300, NOON + timedelta(seconds=901))
    begin(ledger, plan(1, 5, 15))
    assert has_worker(ledger, standing, 300, NOON + timedelta(hours=1, seconds=900))
    assert not has_worker(ledger, standing, 300, NOON + timedelta(hours=1, seconds=901))
    ledger.requests.work_on(REQUEST.request_id, Owner.this_process())
    (standing,) = ledger.requests.active("orders")
    assert has_worker(ledger, standing, 300, NOON + timedelta(days=1)), "this host sees that it lives"


outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@given(outcomes)
def test_p5_live_transactions_wait_for_one_of_a_request_at_most_and_it_is_never_starved(
    steps: list[tuple[bool, bool]],
) -> None:
    """`steps`: whether a live transaction is due, and whether what runs is committed."""
    sequence, tried = 1, None
    waited = starved = 0
    for live_is_due, commits in steps:
        request_ran = request_goes_first(live_is_due, sequence + 1, tried)
        if request_ran:
            tried, starved = sequence + 1, 0
        waited = waited + 1 if request_ran and live_is_due else 0
        assert waited <= 1, "two of a request ran while a live one was due"
        if commits:
            starved += not request_ran
            sequence += 1
        assert starved <= 2, "live ones were committed again and again, and the request had no turn"
