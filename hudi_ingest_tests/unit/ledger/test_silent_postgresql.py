"""A PostgreSQL server that takes connections and answers nothing: every call ends in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from hudi_ingest.exceptions import LedgerUnreachable
from hudi_ingest.ledger import Ledger, answer_limit
from hudi_ingest.ledger.database import Database, open_engine
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.silent_server import silent_postgresql


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_limit, "SECONDS", 1.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "call",
    [
        Ledger.open,
        lambda url: Ledger(Database(open_engine(url))).transactions.history("orders"),
        lambda url: Ledger(Database(open_engine(url))).table_lock("/data/orders").__enter__(),
    ],
    ids=["open", "a query", "a lock"],
)
def test_a_server_that_does_not_answer_is_given_up(call: Callable[[str], object]) -> None:
    began = time.monotonic()
    with silent_postgresql() as url, pytest.raises(LedgerUnreachable, match="has not answered within 1 s") as raised:
        call(url)
    assert time.monotonic() - began < 20
    assert "secret" not in str(raised.value)
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_a_server_that_stops_answering_is_given_up_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres.running() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        with Ledger.open(url) as ledger:
            engine = open_engine(url)
            with engine.connect() as connection, pytest.raises(sa.exc.OperationalError, match="within 1 s"):
                monkeypatch.setattr(answer_limit, "SECONDS", 1.0)
                connection.execute(sa.text("SELECT pg_sleep(60)"))
            monkeypatch.undo()
            assert not ledger.transactions.history("orders")
            with engine.connect() as connection:
                assert connection.execute(sa.text("SHOW statement_timeout")).scalar_one() == "40s"
