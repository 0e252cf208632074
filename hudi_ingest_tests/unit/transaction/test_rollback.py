"""What the ledger says of a transaction that ends while the ledger fails; orders of steps are for hudi_ingest_tests/simulation."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hudi_ingest.exceptions import LedgerUnreachable
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.transaction import OpenInstant, TransactionState
from hudi_ingest.transaction.rollback import roll_back


@pytest.mark.parametrize("is_open", [True, False], ids=["its instant was still open", "its instant was completed"])
def test_a_commit_that_landed_is_not_recorded_as_aborted_when_the_ledger_fails(
    is_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        deadline = datetime.now(timezone.utc) + timedelta(minutes=5)
        plan = IngestPlan("orders", "t1", 1, (Slice("orders", 0, 0, 10),))
        ledger.transactions.begin(plan, table="/data/orders", owner=Owner.this_process(), deadline=deadline)

        def fail(*_: object) -> bool:
            raise LedgerUnreachable("database is locked")

        monkeypatch.setattr(ledger.transactions, "mark_committed_as_found", fail)
        opened = [OpenInstant("20261121120000000", "t1", leased=False)] if is_open else []
        ports: Any = SimpleNamespace(
            timeline=SimpleNamespace(
                exists=lambda: True, forget=lambda: None, storage=SimpleNamespace(files=lambda folder: [])
            ),
            instants=SimpleNamespace(open_instants=lambda: opened, roll_back=lambda instant: False),
            epoch=SimpleNamespace(retire=lambda transaction_id: None),
            table=SimpleNamespace(instant_of=lambda transaction_id: "20261121120000000"),
            ledger=ledger,
            kept=nullcontext,
            flush_all=lambda: None,
            step=lambda *_, **__: nullcontext({}),
            tell_lineage=told.append,
        )
        roll_back(ports, "t1", "its op was cancelled")
        row = ledger.transactions.find("t1")
        assert row is not None and row.state is TransactionState.OPEN, "the next begin records the commit"
    assert told == []
