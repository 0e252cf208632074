"""The ledger's connections to a PostgreSQL server, and what a restart of that server leaves behind."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from datetime import datetime

import pytest
import sqlalchemy as sa

from benchmarks.ledger import run_load, wrong_rows
from hudi_ingest.ledger import Ledger
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.waiting import wait_for
from hudi_ingest_tests.unit.ledger.test_ledger import P0, TABLE, begin, report

TRANSACTIONS = 6
LOOKER = "a look of the test"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres.running(more=postgres.LOGGED) as served:
        if served is None:
            pytest.skip("PostgreSQL is not installed")
        yield served


def looker(url: str) -> sa.Engine:
    """Connections for the test's own looks, which have a name: the server ends one's backend some time after the look."""
    return sa.create_engine(url, poolclass=sa.NullPool, connect_args={"application_name": LOOKER})


def backends(url: str) -> set[int]:
    """Those of this database, of all but lookers."""
    with looker(url).connect() as connection:
        statement = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name <> :looker"
        )
        return set(connection.execute(sa.text(statement), {"looker": LOOKER}).scalars())


def last_statements(url: str, pids: set[int]) -> list[tuple[datetime, str]]:
    """Of these backends: when each began, and its text."""
    with looker(url).connect() as connection:
        rows = connection.execute(sa.text("SELECT pid, query_start, query FROM pg_stat_activity")).all()
    return [(began, query) for pid, began, query in rows if pid in pids]


def test_one_connection_serves_all_calls_and_none_waits_for_a_writing_op(url: str) -> None:
    Ledger.open(url).dispose()
    with Ledger.open(url) as ledger:
        begin(ledger, "t1")
    wait_for(lambda: len(backends(url)) == 1, "only the kept connection is open")
    kept = backends(url)
    with Ledger.open(url) as ledger:
        ledger.transactions.open_in(TABLE)
        assert backends(url) == kept
        ledger.attempts.start("t1", [P0])
        wait_for(lambda: not backends(url), "the op that writes has no connection")
        ledger.attempts.finish("t1", [report()])
        with ledger.table_lock(TABLE):
            ledger.transactions.mark_aborted("t1", "the test ends")
            assert len(backends(url)) == 2
        wait_for(lambda: len(backends(url)) == 1, "the lock's session has ended")


def test_the_question_of_a_quiet_tick_is_one_statement_on_a_kept_connection(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.requests.active("orders")
        assert postgres.counted(sa.make_url(url), lambda: ledger.requests.active("orders")) == (0, 1)


def test_a_database_of_the_locale_c_takes_every_text(url: str) -> None:
    with looker(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"))
    with Ledger.open(sa.make_url(url).set(database="ascii").render_as_string(hide_password=False)) as ledger:
        begin(ledger, "größe")
        assert [row.transaction_id for row in ledger.transactions.history("orders")] == ["größe"]


def test_a_forked_process_leaves_its_parent_s_connection_alone(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.transactions.history("orders")
        wait_for(lambda: len(backends(url)) == 1, "the connections of earlier tests have ended")
        ours = backends(url)
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)

        def child() -> None:
            ledger.transactions.history("orders")
            sender.send(backends(url))

        before = last_statements(url, ours)

        process = context.Process(target=child)
        process.start()
        assert receiver.poll(300)
        childs = receiver.recv() - ours
        assert len(childs) == 1
        process.join(300)
        assert process.exitcode == 0
        # Not even a ping: its answer could reach the parent in place of another.
        assert last_statements(url, ours) == before
        ledger.transactions.history("orders")
        wait_for(lambda: not backends(url) & childs, "the child's connection has ended")
        # One: after a minute without use, which a busy machine may take for this, the parent opens another.
        wait_for(lambda: len(backends(url)) == 1, "only the parent's connection is open")


def test_p5_a_restart_of_the_server_loses_and_doubles_nothing(url: str) -> None:
    def restart_after_a_commit() -> None:
        with Ledger.open(url) as ledger:
            wait_for(
                lambda: any(row.ended_at for row in ledger.transactions.history("load000")), "a transaction has ended"
            )
        postgres.restart(url)

    done = run_load(url, 4, TRANSACTIONS, 2, 2, beside=restart_after_a_commit)
    assert done.errors, "the restart came too late to disturb anything"
    for message in done.errors:
        assert message.startswith(f"ledger {url}: ")
        assert "Try again" in message
        assert "\n" not in message
    assert not wrong_rows(url, 4, TRANSACTIONS)
