"""The ledger's connections to a PostgreSQL server, and what a restart of that server leaves behind."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest
import sqlalchemy as sa

from benchmarks.ledger import run_load, wrong_rows
from hudi_ingest.exceptions import EnvironmentProblem, LedgerUnreachable, TransactionInFlight
from hudi_ingest.ledger import Ledger, locks
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.waiting import wait_for
from hudi_ingest_tests.unit.ledger.test_ledger import LOCK_UNTIL_KILLED, P0, TABLE, WAIT_SECONDS, begin, report

pytestmark = pytest.mark.tier(2)

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
            assert len(backends(url)) == 1, "the lock needs no connection"


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


@pytest.fixture(scope="module")
def pooled(url: str) -> Iterator[str]:
    with postgres.pooled(url) as served:
        if served is None:
            pytest.skip("PgBouncer is not installed")
        yield served


def test_behind_a_pooler_the_lock_keeps_other_processes_out_until_its_holder_is_killed(pooled: str) -> None:
    with (
        Ledger.open(pooled) as ledger,
        subprocess.Popen(
            [sys.executable, "-c", LOCK_UNTIL_KILLED, pooled, TABLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        for _ in range(3):
            with (
                pytest.raises(TransactionInFlight, match=rf"held by .*\b{child.pid}\b"),
                ledger.table_lock(TABLE, 0.05),
            ):
                pass
        child.kill()
        child.wait()
        with ledger.table_lock(TABLE, 0):
            pass


def test_behind_a_pooler_a_holder_that_hangs_loses_the_lock_and_lets_go_of_no_other_s(pooled: str) -> None:
    ledger = Ledger.open(pooled)
    with (
        ledger.table_lock(TABLE),
        ledger.table_lock(TABLE, WAIT_SECONDS, stale_seconds=0.2),
        pytest.raises(TransactionInFlight),
        ledger.table_lock(TABLE, 0.05),
    ):
        pass
    with ledger.table_lock(TABLE, 0):
        pass


def test_p5_a_lock_that_could_not_be_released_is_free_at_once_for_its_own_process(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger.open(url) as ledger:
        with ledger.table_lock(TABLE):
            postgres.restart(url)
            server(url, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
            wait_for(lambda: refused(ledger), "the server is read-only")
        writable(url)
        assert "its lock could not be released" in caplog.text
        wait_for(lambda: not refused(ledger), "the server may be written to")
        with ledger.table_lock(TABLE, 0):
            pass


def test_behind_a_pooler_other_programs_do_not_get_the_ledgers_settings(pooled: str) -> None:
    """The pooler has one connection to the server, which both use in turns."""
    names = (
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "default_transaction_isolation",
    )

    def found(connection: sa.Connection) -> list[str]:
        return [str(connection.execute(sa.text(f"SHOW {name}")).scalar_one()) for name in names]

    other = sa.create_engine(pooled, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with other.connect() as connection:
        before = found(connection)
    with Ledger.open(pooled) as ledger:
        begin(ledger, "pooled", table="/data/pooled")
        with ledger.database.writing() as writing:
            assert found(writing) != before
        with ledger.table_lock(TABLE), other.connect() as connection:
            assert found(connection) == before
        ledger.transactions.mark_aborted("pooled", "the test ends")


def test_behind_a_pooler_processes_lose_and_double_nothing(pooled: str) -> None:
    assert not run_load(pooled, 4, TRANSACTIONS, 2, 2).errors
    assert not wrong_rows(pooled, 4, TRANSACTIONS)


def test_p5_a_holder_that_no_longer_renews_loses_the_lock_and_says_so(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a pause of the whole process, or while it did not reach the server."""
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.3)
    with Ledger.open(url) as ledger:
        with ledger.table_lock(TABLE), ledger.table_lock(TABLE, WAIT_SECONDS):
            assert "which has not renewed it for more than 0.3 s" in caplog.text
        assert "its lock was lost while this process held it" in caplog.text
        monkeypatch.setattr(locks, "RENEWAL_SECONDS", 0.02)
        with (
            ledger.table_lock(TABLE),
            pytest.raises(TransactionInFlight, match=r"within 1 s"),
            ledger.table_lock(TABLE, 1),
        ):
            pass


# ---- Servers that refuse


def server(url: str, *statements: str) -> None:
    with looker(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def test_p5_a_read_only_server_is_named_and_left_at_the_next_call(url: str) -> None:
    # Of a pooler, or of a ledger that another test has left open.
    others = backends(url)
    with Ledger.open(url) as ledger:
        ledger.require_writable()
        server(url, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        try:
            wait_for(lambda: refused(ledger), "the server is read-only")
            for call in (
                lambda: begin(ledger, "secret-1", table="/data/secret"),
                ledger.require_writable,
                lambda: ledger.table_lock(TABLE).__enter__(),
            ):
                with pytest.raises(
                    LedgerUnreachable, match=r"The server is read-only: a standby.*HUDI_INGEST_LEDGER_URL"
                ) as raised:
                    call()
                for part in ("INSERT INTO", "secret-1", "SQL", "\n"):
                    assert part not in str(raised.value)
                wait_for(
                    lambda: not backends(url) - others, "the kept connection is closed: the next may reach the primary"
                )
        finally:
            writable(url)
        wait_for(lambda: not refused(ledger), "the server may be written to")
        begin(ledger, "secret-1", table="/data/secret")
        ledger.transactions.mark_aborted("secret-1", "the test ends")


def writable(url: str) -> None:
    server(url, "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")


def refused(ledger: Ledger) -> bool:
    try:
        ledger.require_writable()
    except LedgerUnreachable:
        return True
    return False


def test_a_user_without_a_right_learns_which(url: str) -> None:
    Ledger.open(url).dispose()
    server(url, "CREATE ROLE reader LOGIN", "GRANT pg_read_all_data TO reader")
    reading = sa.make_url(url).set(username="reader").render_as_string(hide_password=False)
    with Ledger.open(reading) as ledger:
        assert ledger.transactions.find("t9") is None
        with pytest.raises(
            EnvironmentProblem, match=r"permission denied for table ingest_.*INSERT, UPDATE and DELETE"
        ) as raised:
            begin(ledger, "t9")
    assert "[SQL" not in str(raised.value)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DO $$ BEGIN RAISE disk_full; END $$", "The server's disk is full"),
        ("DO $$ BEGIN RAISE too_many_connections; END $$", "max_connections"),
        ("DO $$ BEGIN RAISE cannot_connect_now; END $$", "starting up, recovering or shutting down"),
        ("DO $$ BEGIN RAISE admin_shutdown; END $$", "An administrator has ended the connection"),
        ("DO $$ BEGIN RAISE internal_error; END $$", "Try again"),
        ("DO $$ BEGIN RAISE in_failed_sql_transaction; END $$", "Try again"),
        ("DO $$ BEGIN RAISE SQLSTATE '25P03'; END $$", "Try again"),
    ],
)
def test_p5_what_passes_is_transient_and_quotes_no_statement(url: str, statement: str, named: str) -> None:
    with Ledger.open(url) as ledger:
        with pytest.raises(LedgerUnreachable, match=named) as raised, ledger.database.writing() as connection:
            connection.exec_driver_sql(statement)
        assert "RAISE" not in str(raised.value)
        ledger.require_writable()


def test_a_missing_schema_says_how_to_make_one(url: str) -> None:
    placed = sa.make_url(url).update_query_dict({"options": "-csearch_path=no_such_schema"})
    with pytest.raises(EnvironmentProblem, match=r"no schema (.|\n)*CREATE SCHEMA"):
        Ledger.open(placed.render_as_string(hide_password=False))


def test_a_wrong_database_hides_the_password(url: str) -> None:
    wrong = sa.make_url(url).set(password="s3cret", database="no_such_database")
    with pytest.raises(LedgerUnreachable, match="no_such_database") as caught:
        Ledger.open(wrong.render_as_string(hide_password=False))
    assert "s3cret" not in str(caught.value)
