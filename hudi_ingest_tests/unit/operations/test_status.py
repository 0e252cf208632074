"""What `status` says beyond offsets: ages, dead transactions, reasons, and sizes that are not zero."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from rich.console import Console

from hudi_ingest.cli.views import age_text, by_error, size_text, status_view
from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.exceptions.problems import counted, duration_text
from hudi_ingest.ledger import Owner, TransactionRow
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.state import PartitionState, PipelineState
from hudi_ingest_tests.support.pipeline_files import pipeline_named

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=timezone.utc)


def row(number: int, state: TransactionState, **changes: object) -> TransactionRow:
    found = TransactionRow(
        transaction_id=f"orders-{number}",
        pipeline="orders",
        table="/data/orders",
        sequence=number,
        epoch=number,
        state=state,
        owner=Owner.this_process(),
        instant=f"2026112203000{number}000",
        began_at=NOW,
        deadline=NOW + timedelta(minutes=5),
        ended_at=None if state is TransactionState.OPEN else NOW,
        rows=None,
        files=None,
        size_bytes=None,
        reason=None,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def status(*rows: TransactionRow, **changes: object) -> PipelineState:
    partitions = (PartitionState("orders", 0, 5, 8, 3),)
    return replace(PipelineState(pipeline_named("orders"), 3, partitions, rows), **changes)  # type: ignore[arg-type]


def shown(found: PipelineState) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(status_view(found))
    return captured.get()


def test_the_ages_of_the_last_commit_and_of_the_oldest_waiting_record_are_shown() -> None:
    found = status(last_committed_at=NOW - timedelta(seconds=90), lag_seconds=75.4)
    assert (
        age_text(found, NOW)
        == "last commit 90 s ago, at 2026-11-22 02:58:30 UTC; the oldest waiting record is 75 s old"
    )
    assert age_text(replace(found, partitions=()), NOW).endswith("UTC; no records are waiting")
    assert age_text(status(), NOW).startswith("nothing committed yet; the age")
    assert [duration_text(each) for each in (-3, 599, 600, 10_800, 259_200)] == [
        "0 s",
        "599 s",
        "10 min",
        "3 h",
        "3 days",
    ]
    assert (found.to_dict()["lag_seconds"], found.to_dict()["last_committed_at"]) == (75.4, "2026-11-22T02:58:30+00:00")


def test_records_behind_an_open_transaction_are_told() -> None:
    text = " ".join(
        shown(status(partitions=(PartitionState("orders", 0, 8, 8, 0, undecided=Slice("orders", 0, 8, 20)),))).split()
    )
    assert (
        "orders:0 has 12 offsets from 8 on that are not readable yet: a producer has a transaction open there." in text
    )
    assert "nobody can read" not in shown(status())


def test_the_tables_path_stays_in_one_piece() -> None:
    path = "/data/lake/orders/customers/europe"
    assert f"orders → {path}\n" in re.sub(
        " +\n", "\n", shown(status(pipeline=pipeline_named("orders", table__base_path=path)))
    )


def test_a_dead_transaction_is_not_shown_as_open_and_an_aborted_one_has_its_reason() -> None:
    why = "pipeline orders: 1 record cannot become rows, so the transaction is refused:\n  - orders:3:17: field n\nCorrect it."
    found = status(
        row(3, TransactionState.OPEN),
        row(2, TransactionState.ABORTED, reason=why),
        row(1, TransactionState.COMMITTED, rows=3, files=1, size_bytes=4_321),
        dead=frozenset({"orders-3"}),
    )
    text = shown(found)
    assert "│ open" not in text
    assert "│ dead" in text
    assert "orders-3 is dead: " in text and "The next begin clears it." in text
    assert "orders-2 was aborted: pipeline orders: 1 record cannot become rows" in text
    assert "refused: orders:3:17: field n" in text
    assert "4.3 kB" in text
    again = status(*(row(number, TransactionState.ABORTED, reason=why) for number in (4, 3, 2)))
    assert shown(again).count("field n") == 1, "three attempts at the same record"
    assert "orders-4, orders-3, orders-2 were aborted: pipeline orders" in shown(again)
    assert [row["dead"] for row in found.to_dict()["transactions"]] == [True, False, False]


def test_numbers_have_units_and_plurals() -> None:
    assert [size_text(each) for each in (0, 900, 999_949, 1_000_000, 2_500_000_000)] == [
        "0.0 kB",
        "0.9 kB",
        "999.9 kB",
        "1.0 MB",
        "2,500.0 MB",
    ]
    assert [counted(each, "file") for each in (0, 1, 2, 1200)] == ["0 files", "1 file", "2 files", "1,200 files"]


def test_an_error_of_many_pipelines_is_said_once() -> None:
    errors = {f"p{number}": "no broker answers" for number in range(22)} | {"other": "its table is gone"}
    assert by_error(errors) == [
        (", ".join(f"p{number}" for number in range(20)) + " and 2 more", "no broker answers"),
        ("other", "its table is gone"),
    ]


def test_a_partition_without_a_leader_has_an_unknown_lag_and_is_named_with_what_to_do() -> None:
    found = status(partitions=(PartitionState("orders", 0, 5, 8, 3), PartitionState("orders", 1, 7, None, None)))
    assert found.lag is None
    lines = [re.sub(r"[│ ]+", " ", line).strip() for line in shown(found).splitlines()]
    assert {"orders:0 5 8 3", "orders:1 7 ? ?", "all ?"} <= set(lines)
    assert "orders:1 has no leader, so it is unknown how many records wait there" in shown(found)
    assert "has no leader" not in shown(status(error=KafkaUnreachable("away")))
