"""The ledger's behaviour, the same on each backend.

SQLite always; PostgreSQL too when HUDI_INGEST_TEST_POSTGRES_URL names a database in which schemas may be made.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Queue
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import alembic.command
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest.exceptions import (
    ConfigError,
    EnvironmentProblem,
    Fenced,
    IngestError,
    LedgerUnreachable,
    Terminal,
    TransactionInFlight,
    Transient,
)
from hudi_ingest.ledger import AttemptState, Ledger, database, locks, migrations
from hudi_ingest.ledger.database import Database
from hudi_ingest.ledger.locks import _look
from hudi_ingest.ledger.owner import Owner, is_dead, is_of_this_host, living_process
from hudi_ingest.ledger.tables import METADATA, REVISION_TABLE, TRANSACTIONS
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan, TransactionPlan
from hudi_ingest.model.report import BaseFile, CommitReceipt, SliceReport
from hudi_ingest.model.transaction import CommittedTransaction, TransactionState
from hudi_ingest_tests.support.statements import statements_of
from hudi_ingest_tests.support.waiting import wait_for

POSTGRES_URL = os.environ.get("HUDI_INGEST_TEST_POSTGRES_URL")
BACKENDS = ["sqlite", "postgresql"] if POSTGRES_URL else ["sqlite"]
WAIT_SECONDS = 300.0
"""A bound for what should take milliseconds, on a machine that others use too."""

TABLE = "/data/orders"
OWNER = Owner.dagster_run("run-1")
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for a new ledger that nobody has opened yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'made' / 'ledger.db'}"
        return
    server = sa.make_url(str(POSTGRES_URL))
    schema = f"ledger_{uuid4().hex[:12]}"
    engine = sa.create_engine(server.set(drivername="postgresql+psycopg2"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    placed = server.set(drivername="postgresql+psycopg2").update_query_dict({"options": f"-csearch_path={schema}"})
    yield placed.render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")
    engine.dispose()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as opened:
        yield opened


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def plan(transaction_id: str = "t1", *, pipeline: str = "orders", sequence: int = 1) -> TransactionPlan:
    return IngestPlan(pipeline, transaction_id, sequence, (Slice("orders", 0, 10, 20), Slice("orders", 1, 0, 2**40)))


def deadline() -> datetime:
    return datetime.now(timezone.utc) + timedelta(minutes=5)


def begin(ledger: Ledger, transaction_id: str = "t1", *, table: str = TABLE, pipeline: str = "orders") -> int:
    return ledger.transactions.begin(
        plan(transaction_id, pipeline=pipeline), table=table, owner=OWNER, deadline=deadline()
    )


def report(attempt: int = 0, *, rows: int = 10) -> SliceReport:
    file = BaseFile("dt=2024-01-01", "f-0", "dt=2024-01-01/f-0_0_1.parquet", rows, 4096, 10, 19)
    return SliceReport(Slice("orders", 0, 10, 20), attempt, (file,), rows=rows, gaps=10 - rows, seconds=0.1)


def start(ledger: Ledger, transaction_id: str, source: TopicPartition) -> int:
    return ledger.attempts.start(transaction_id, [source])[source]


def receipt(transaction_id: str = "t1", instant: str = "i1", *reports: SliceReport) -> CommitReceipt:
    return CommitReceipt(plan(transaction_id), instant, Checkpoint(1, transaction_id, {P0: 20}), reports or (report(),))


def state_of(ledger: Ledger, transaction_id: str = "t1") -> TransactionState:
    row = ledger.transactions.find(transaction_id)
    assert row is not None
    return row.state


def at_once(count: int, action: Callable[[int], Any]) -> list[Future[Any]]:
    """Runs `action(0) … action(count - 1)`, each in a thread, all let go by one barrier."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait(WAIT_SECONDS)
        return action(number)

    with ThreadPoolExecutor(count) as pool:
        return [pool.submit(run, number) for number in range(count)]


class TestCounters:
    def test_they_say_what_was_retried_failed_aborted_and_how_long_it_took_each_once(self, ledger: Ledger) -> None:
        begin(ledger)
        start(ledger, "t1", P0)
        for _ in range(2):
            ledger.attempts.fail("t1", P0, 0, "no")
        start(ledger, "t1", P0)
        for _ in range(2):
            ledger.transactions.mark_aborted("t1", "no")
        begin(ledger, "t2")
        timed = replace(receipt("t2"), seconds={"begin": 0.3, "total": 4000.0})
        ledger.transactions.mark_committed_as_found("t2", "i1")
        for _ in range(2):
            ledger.transactions.mark_committed(timed)
        assert ledger.counters.read()[TABLE] == {
            "attempts_failed": 1,
            "retries": 1,
            "aborted": 1,
            "seconds/begin/0.5": 1,
            "seconds/begin/sum": 0.3,
            "seconds/total/+Inf": 1,
            "seconds/total/sum": 4000.0,
        }
        begin(ledger, "t3")
        assert ledger.attempts.start("t3", [P0, P1], 2) == {P0: 2, P1: 2}, "two tries died before they got here"
        assert ledger.attempts.start("t3", [P0], 2) == {P0: 3}
        assert ledger.attempts.start("t3", [P1], 3) == {P1: 3}
        counts = ledger.counters.read()[TABLE]
        assert (counts["attempts_failed"], counts["retries"]) == (1 + 4, 1 + 6)
        ledger.counters.add(TABLE + "/", {"aborted": 2})
        assert ledger.counters.read()[TABLE]["aborted"] == 3

    def test_the_overview_has_what_is_open_and_the_sizes_of_all_pipelines(self, ledger: Ledger) -> None:
        begin(ledger)
        begin(ledger, "t2", table="/data/users", pipeline="users")
        ledger.transactions.mark_aborted("t2", "no")
        ledger.requests.note_tick("orders", datetime(2026, 11, 23, tzinfo=timezone.utc))
        found = ledger.overview()
        assert {table: row.transaction_id for table, row in found.open.items()} == {TABLE: "t1"}
        assert found.counters == {"/data/users": {"aborted": 1}}
        assert found.ticked == {"orders": datetime(2026, 11, 23, tzinfo=timezone.utc)}
        assert found.requests == {}
        assert (found.rows["ingest_transactions"], found.rows["ingest_slices"]) == (2, 4)
        assert found.size_bytes > 10_000

    def test_the_rows_that_pipelines_have_committed_are_counted_by_time(self, ledger: Ledger) -> None:
        since = datetime(2026, 11, 21, 14, 0, tzinfo=timezone.utc)
        for number, (pipeline, seconds) in enumerate(
            [("orders", -1), ("orders", 0), ("orders", 299), ("orders", 300), ("users", 700), ("others", 0)]
        ):
            ended = since + timedelta(seconds=seconds)
            transaction = plan(f"t{number}", pipeline=pipeline, sequence=number)
            found = CommittedTransaction(transaction, f"i{number}", ended - timedelta(seconds=9), ended, 10, 1, 4096)
            ledger.transactions.restore_committed(found, table=f"/data/{pipeline}", owner=OWNER, deadline=deadline())
        begin(ledger, "open")
        counted = ledger.transactions.committed_rows(["orders", "users"], since, 300)
        assert counted == {"orders": {0: 20, 1: 10}, "users": {2: 10}}
        assert all(type(rows) is int for periods in counted.values() for rows in periods.values())

    def test_a_wait_for_the_tables_lock_is_counted_also_if_it_was_in_vain(self, ledger: Ledger) -> None:
        with ledger.table_lock(TABLE), pytest.raises(TransactionInFlight), ledger.table_lock(TABLE, 0.06):
            raise AssertionError("two holders")
        counts = ledger.counters.read()[TABLE]
        assert counts["lock_waits"] == 1
        assert counts["lock_wait_seconds"] >= 0.06


class TestBegin:
    def test_records_the_transaction_and_its_slices(self, ledger: Ledger) -> None:
        before, until = datetime.now(timezone.utc), deadline()
        assert ledger.transactions.begin(plan(), table=TABLE, owner=OWNER, deadline=until) == 1
        row = ledger.transactions.find("t1")
        assert row is not None
        assert row == ledger.transactions.open_in(TABLE)
        assert (row.pipeline, row.table, row.sequence, row.epoch) == ("orders", TABLE, 1, 1)
        assert (row.state, row.owner, row.instant) == (TransactionState.OPEN, OWNER, None)
        assert (row.ended_at, row.rows, row.files, row.size_bytes, row.reason) == (None,) * 5
        assert row.deadline == until
        assert before <= row.began_at <= datetime.now(timezone.utc)
        assert row.began_at.utcoffset() == row.deadline.utcoffset() == timedelta(0)
        assert ledger.transactions.slices("t1") == plan().slices
        assert ledger.attempts.of_transaction("t1") == ()

    def test_takes_times_of_other_zones(self, ledger: Ledger) -> None:
        until = datetime(2031, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        ledger.transactions.begin(plan(), table=TABLE, owner=OWNER, deadline=until)
        row = ledger.transactions.find("t1")
        assert row is not None
        assert row.deadline == until
        assert row.deadline.isoformat() == "2030-12-31T20:00:00+00:00"

    @pytest.mark.parametrize("spelling", [TABLE, TABLE + "/"])
    def test_refuses_a_second_open_transaction_and_names_the_first(self, ledger: Ledger, spelling: str) -> None:
        begin(ledger)
        first = ledger.transactions.find("t1")
        assert first is not None
        with pytest.raises(TransactionInFlight) as caught:
            begin(ledger, "t2", table=spelling)
        for part in (TABLE, "t1", "t2", str(OWNER), f"{first.began_at:%H:%M:%S}", f"{first.deadline:%H:%M:%S}"):
            assert part in str(caught.value)
        assert ledger.transactions.find("t2") is None
        assert ledger.transactions.slices("t2") == ()

    def test_the_database_itself_refuses_a_second_open_transaction(self, ledger: Ledger) -> None:
        begin(ledger)
        values = sa.select(sa.literal("t2"), *[c for c in TRANSACTIONS.c if c.name not in ("transaction_id", "epoch")])
        names = ["transaction_id", *[c.name for c in TRANSACTIONS.c if c.name not in ("transaction_id", "epoch")]]
        copy = TRANSACTIONS.insert().from_select([*names, "epoch"], values.add_columns(sa.literal(2)))
        with pytest.raises(sa.exc.IntegrityError), ledger.database.writing() as connection:
            connection.execute(copy)

    def test_tables_do_not_share_their_open_transaction_or_epochs(self, ledger: Ledger) -> None:
        assert begin(ledger, "t1") == 1
        assert begin(ledger, "t2", table="/data/users") == 1

    def test_epochs_grow_over_commits_and_aborts(self, ledger: Ledger) -> None:
        assert begin(ledger, "t1") == 1
        ledger.transactions.mark_committed(receipt("t1"))
        assert begin(ledger, "t2") == 2
        ledger.transactions.mark_aborted("t2", "x")
        assert begin(ledger, "t3") == 3

    def test_a_transaction_id_is_used_once(self, ledger: Ledger) -> None:
        begin(ledger)
        ledger.transactions.mark_aborted("t1", "x")
        with pytest.raises(Fenced, match="t1 was used before: it has been aborted"):
            begin(ledger)

    def test_refuses_what_is_no_plan_and_writes_nothing(self, ledger: Ledger) -> None:
        twice = IngestPlan("orders", "t1", 1, (Slice("orders", 0, 0, 1), Slice("orders", 0, 1, 2)))
        with pytest.raises(ValueError, match="more than one slice of orders:0"):
            ledger.transactions.begin(twice, table=TABLE, owner=OWNER, deadline=deadline())
        with pytest.raises(ValueError, match="needs a time zone"):
            ledger.transactions.begin(plan(), table=TABLE, owner=OWNER, deadline=datetime(2030, 1, 1))
        assert ledger.transactions.find("t1") is None

    def test_of_racing_threads_exactly_one_wins(self, ledger: Ledger) -> None:
        epochs = []
        for turn in range(5):
            results = at_once(6, lambda number, turn=turn: begin(ledger, f"t{turn}-{number}"))  # type: ignore[misc]
            errors = [each.exception() for each in results]
            assert [type(each) for each in errors if each] == [TransactionInFlight] * 5
            winner = errors.index(None)
            epochs.append(results[winner].result())
            ledger.transactions.mark_aborted(f"t{turn}-{winner}", "next turn")
        assert epochs == [1, 2, 3, 4, 5]

    def test_of_racing_processes_exactly_one_wins(self, ledger: Ledger, url: str) -> None:
        results = in_processes(3, begin_in_process, url)
        assert sorted(results) == ["1", "TransactionInFlight", "TransactionInFlight"]
        assert ledger.transactions.open_in(TABLE) is not None


def in_processes(count: int, action: Callable[[str, int, Barrier, Any], None], url: str) -> list[str]:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(count), context.Queue()
    children = [context.Process(target=action, args=(url, number, barrier, answers)) for number in range(count)]
    for child in children:
        child.start()
    try:
        return [answers.get(timeout=WAIT_SECONDS) for _ in children]
    finally:
        for child in children:
            child.join(WAIT_SECONDS)


def begin_in_process(url: str, number: int, barrier: Barrier, answers: Queue[str]) -> None:
    ledger = Ledger.open(url)
    barrier.wait(WAIT_SECONDS)
    try:
        answers.put(str(begin(ledger, f"t{number}")))
    except IngestError as error:
        answers.put(type(error).__name__)


def open_in_process(url: str, number: int, barrier: Barrier, answers: Queue[str]) -> None:
    barrier.wait(WAIT_SECONDS)
    try:
        answers.put(str(begin(Ledger.open(url), f"t{number}", table=f"/data/{number}")))
    except IngestError as error:
        answers.put(str(error))


class TestInstant:
    def test_is_kept(self, ledger: Ledger) -> None:
        begin(ledger)
        ledger.transactions.record_instant("t1", "i1")
        ledger.transactions.record_instant("t1", "i1")
        row = ledger.transactions.find("t1")
        assert row is not None
        assert row.instant == "i1"

    def test_a_second_one_is_refused(self, ledger: Ledger) -> None:
        begin(ledger)
        ledger.transactions.record_instant("t1", "i1")
        with pytest.raises(Fenced, match="has instant i1") as raised:
            ledger.transactions.record_instant("t1", "i2")
        assert (raised.value.transaction_id, raised.value.instant) == ("t1", "i1")

    def test_of_a_transaction_that_is_not_open_is_refused(self, ledger: Ledger) -> None:
        begin(ledger)
        ledger.transactions.mark_aborted("t1", "too late")
        with pytest.raises(Fenced, match=r"t1 .*aborted.*too late.*instant i1 cannot be recorded"):
            ledger.transactions.record_instant("t1", "i1")
        with pytest.raises(Fenced, match="is unknown") as raised:
            ledger.transactions.record_instant("t9", "i1")
        assert (raised.value.transaction_id, raised.value.instant) == ("t9", None)


class TestAttempts:
    def test_are_numbered_for_each_partition(self, ledger: Ledger) -> None:
        begin(ledger)
        assert [start(ledger, "t1", each) for each in (P0, P0, P1, P0)] == [0, 1, 0, 2]
        assert [(each.source, each.attempt) for each in ledger.attempts.of_transaction("t1")] == [
            (P0, 0),
            (P0, 1),
            (P0, 2),
            (P1, 0),
        ]
        assert ledger.attempts.counts("t1") == {P0: 3, P1: 1}
        assert ledger.attempts.counts("t9") == {}
        first = ledger.attempts.of_transaction("t1")[0]
        assert (first.state, first.ended_at, first.report, first.error) == (AttemptState.RUNNING, None, None, None)
        assert first.started_at.utcoffset() == timedelta(0)

    def test_of_several_partitions_start_and_end_at_once(self, ledger: Ledger) -> None:
        begin(ledger)
        assert start(ledger, "t1", P1) == 0
        assert ledger.attempts.start("t1", [P0, P1]) == {P0: 0, P1: 1}
        other = replace(report(1), slice=Slice("orders", 1, 0, 10))
        with pytest.raises(Fenced, match="attempt 1 at orders:0 of transaction t1 was never started"):
            ledger.attempts.finish("t1", [other, report(1)])
        assert {each.state for each in ledger.attempts.of_transaction("t1")} == {AttemptState.RUNNING}, "none of them"
        ledger.attempts.finish("t1", [other, report(0)])
        assert ledger.attempts.start("t1", []) == {}, "a transaction that only resets offsets reads nothing"
        ledger.attempts.finish("t1", [])
        states = {(each.source, each.attempt): each.report for each in ledger.attempts.of_transaction("t1")}
        assert states == {(P0, 0): report(0), (P1, 0): None, (P1, 1): other}
        with pytest.raises(ValueError, match="no slice of orders:7 and 1 more in its plan"):
            ledger.attempts.start("t1", [P0, TopicPartition("orders", 7), TopicPartition("orders", 8)])

    def test_racing_threads_get_distinct_numbers(self, ledger: Ledger) -> None:
        begin(ledger)
        results = at_once(8, lambda _: [start(ledger, "t1", P0) for _ in range(3)])
        assert sorted(itertools.chain.from_iterable(each.result() for each in results)) == list(range(24))

    def test_none_starts_once_the_transaction_ended(self, ledger: Ledger) -> None:
        begin(ledger, "t1")
        ledger.transactions.mark_aborted("t1", "deadline passed")
        with pytest.raises(Fenced, match=r"t1 of table /data/orders was aborted at .*deadline passed"):
            start(ledger, "t1", P0)
        begin(ledger, "t2")
        ledger.transactions.mark_committed(receipt("t2"))
        with pytest.raises(Fenced, match="was committed"):
            start(ledger, "t2", P0)
        with pytest.raises(Fenced, match="unknown to this ledger"):
            start(ledger, "t9", P0)

    def test_an_unplanned_partition_is_refused(self, ledger: Ledger) -> None:
        begin(ledger)
        with pytest.raises(ValueError, match="no slice of orders:7"):
            start(ledger, "t1", TopicPartition("orders", 7))

    def test_none_is_left_running_by_a_race_with_an_abort(self, ledger: Ledger) -> None:
        begin(ledger)

        def run(number: int) -> None:
            if number == 0:
                ledger.transactions.mark_aborted("t1", "raced")
                return
            while True:
                start(ledger, "t1", P0)

        results = at_once(4, run)
        assert [type(each.exception()) for each in results] == [type(None), Fenced, Fenced, Fenced]
        assert {each.state for each in ledger.attempts.of_transaction("t1")} <= {AttemptState.FAILED}

    def test_done_keeps_the_report(self, ledger: Ledger) -> None:
        begin(ledger)
        start(ledger, "t1", P0)
        ledger.attempts.finish("t1", [report()])
        ledger.attempts.finish("t1", [report()])
        (row,) = ledger.attempts.of_transaction("t1")
        assert (row.state, row.report, row.error) == (AttemptState.DONE, report(), None)
        assert row.ended_at is not None
        assert row.started_at <= row.ended_at

    def test_done_again_with_an_equal_report_is_no_error_even_after_the_end(self, ledger: Ledger) -> None:
        begin(ledger)
        start(ledger, "t1", P0)
        ledger.attempts.finish("t1", [report()])
        ledger.transactions.mark_committed(receipt())
        ledger.attempts.finish("t1", [report()])

    def test_done_is_refused_for_what_must_not_be_published(self, ledger: Ledger) -> None:
        begin(ledger)
        with pytest.raises(Fenced, match="never started"):
            ledger.attempts.finish("t1", [report()])
        start(ledger, "t1", P0)
        ledger.attempts.fail("t1", P0, 0, "disk full")
        with pytest.raises(Fenced, match=r"failed \(disk full\)"):
            ledger.attempts.finish("t1", [report()])
        start(ledger, "t1", P0)
        ledger.attempts.finish("t1", [report(1)])
        with pytest.raises(Fenced, match="with another report"):
            ledger.attempts.finish("t1", [report(1, rows=9)])
        start(ledger, "t1", P0)
        ledger.transactions.mark_aborted("t1", "x")
        with pytest.raises(Fenced, match="attempt 2 at orders:0 does not count"):
            ledger.attempts.finish("t1", [report(2)])
        with pytest.raises(Fenced, match="is unknown"):
            ledger.attempts.finish("t9", [report()])

    def test_failed_keeps_the_error(self, ledger: Ledger) -> None:
        begin(ledger)
        start(ledger, "t1", P0)
        ledger.attempts.fail("t1", P0, 0, "disk full")
        ledger.attempts.fail("t1", P0, 0, "something later")
        (row,) = ledger.attempts.of_transaction("t1")
        assert (row.state, row.error, row.report) == (AttemptState.FAILED, "disk full", None)

    def test_failed_takes_any_text(self, ledger: Ledger) -> None:
        begin(ledger)
        start(ledger, "t1", P0)
        ledger.attempts.fail("t1", P0, 0, "bad \x00 byte, lone \ud800 surrogate, ok ü " + "x" * 100_000)
        (row,) = ledger.attempts.of_transaction("t1")
        assert row.error is not None
        assert row.error.startswith("bad \\x00 byte, lone \\ud800 surrogate, ok ü xxx")
        assert len(row.error) < 21_000
        assert row.error.endswith("characters)")

    def test_failed_neither_undoes_done_nor_complains(self, ledger: Ledger) -> None:
        begin(ledger)
        start(ledger, "t1", P0)
        ledger.attempts.finish("t1", [report()])
        ledger.attempts.fail("t1", P0, 0, "late")
        ledger.attempts.fail("t1", P0, 5, "not known")
        ledger.attempts.fail("t9", P0, 0, "not known")
        assert [each.state for each in ledger.attempts.of_transaction("t1")] == [AttemptState.DONE]


class TestEnds:
    def test_commit_keeps_instant_and_figures_and_frees_the_table(self, ledger: Ledger) -> None:
        begin(ledger)
        assert ledger.transactions.mark_committed(receipt()) is True
        row = ledger.transactions.find("t1")
        assert row is not None
        assert (row.state, row.instant, row.rows, row.files, row.size_bytes) == (
            TransactionState.COMMITTED,
            "i1",
            10,
            1,
            4096,
        )
        assert row.ended_at is not None
        assert row.began_at <= row.ended_at
        assert ledger.transactions.open_in(TABLE) is None

    def test_both_are_idempotent(self, ledger: Ledger) -> None:
        begin(ledger, "t1")
        ledger.transactions.mark_committed(receipt("t1"))
        begin(ledger, "t2")
        ledger.transactions.mark_aborted("t2", "first")
        rows = ledger.transactions.history("orders")
        assert ledger.transactions.mark_committed(receipt("t1")) is True
        assert ledger.transactions.mark_committed_as_found("t1", "i1") is False
        assert ledger.transactions.mark_aborted("t2", "second") is True
        assert ledger.transactions.history("orders") == rows
        assert rows[0].reason == "first"

    def test_committed_is_final(self, ledger: Ledger) -> None:
        begin(ledger)
        ledger.transactions.mark_committed(receipt())
        with pytest.raises(Fenced, match=r"committed by instant i1 .*cannot be aborted \(too slow\)"):
            ledger.transactions.mark_aborted("t1", "too slow")
        with pytest.raises(Fenced, match="by instant i1 and now reported as committed by i2"):
            ledger.transactions.mark_committed(receipt("t1", "i2"))
        assert state_of(ledger) is TransactionState.COMMITTED

    def test_the_table_overrules_a_recorded_abort(self, ledger: Ledger) -> None:
        begin(ledger)
        ledger.transactions.mark_aborted("t1", "thought lost")
        begin(ledger, "t2")
        assert ledger.transactions.mark_committed(receipt()) is True
        row = ledger.transactions.find("t1")
        assert row is not None
        assert (row.state, row.instant, row.reason, row.rows) == (TransactionState.COMMITTED, "i1", None, 10)

    def test_what_a_wiped_ledger_does_not_know_is_no_error(self, ledger: Ledger) -> None:
        assert ledger.transactions.mark_committed(receipt("t9")) is False
        assert ledger.transactions.mark_committed_as_found("t9", "i9") is False
        assert ledger.transactions.mark_aborted("t9", "x") is False
        assert ledger.transactions.find("t9") is None

    def test_a_commit_found_in_the_table_gets_its_figures_later(self, ledger: Ledger) -> None:
        begin(ledger)
        assert ledger.transactions.mark_committed_as_found("t1", "i1") is True
        row = ledger.transactions.find("t1")
        assert row is not None
        assert (row.state, row.instant, row.rows) == (TransactionState.COMMITTED, "i1", None)
        ledger.transactions.mark_committed(receipt())
        assert ledger.transactions.find("t1") == replace(row, rows=10, files=1, size_bytes=4096)

    def test_p5_a_commit_is_restored_into_a_ledger_that_was_wiped(self, ledger: Ledger) -> None:
        began = datetime(2026, 11, 21, 14, 0, tzinfo=timezone.utc)
        found = CommittedTransaction(plan("t7", sequence=7), "i7", began, began + timedelta(seconds=9), 10, 1, 4096)
        restore = partial(ledger.transactions.restore_committed, found, table=TABLE, owner=OWNER, deadline=deadline())
        assert restore() is True
        row = ledger.transactions.find("t7")
        assert row is not None
        assert (row.state, row.instant, row.sequence) == (TransactionState.COMMITTED, "i7", 7)
        assert (row.began_at, row.ended_at) == (found.began_at, found.ended_at)
        assert (row.rows, row.files, row.size_bytes) == (10, 1, 4096)
        assert ledger.transactions.slices("t7") == found.plan.slices
        assert restore() is False
        assert ledger.transactions.find("t7") == row
        assert begin(ledger, "t8") > row.epoch
        with pytest.raises(Fenced, match="by instant i7 and now reported as committed by i8"):
            ledger.transactions.restore_committed(
                replace(found, instant="i8"), table=TABLE, owner=OWNER, deadline=deadline()
            )

    @pytest.mark.parametrize("end", ["open", "aborted", "found"])
    def test_p5_a_restored_commit_overrules_what_the_ledger_said(self, ledger: Ledger, end: str) -> None:
        begin(ledger)
        if end == "aborted":
            ledger.transactions.mark_aborted("t1", "thought lost")
        if end == "found":
            ledger.transactions.mark_committed_as_found("t1", "i1")
        now = datetime.now(timezone.utc)
        found = CommittedTransaction(plan(), "i1", now, now, 10, 1, 4096)
        assert ledger.transactions.restore_committed(found, table=TABLE, owner=OWNER, deadline=deadline()) is True
        row = ledger.transactions.find("t1")
        assert row is not None
        assert (row.state, row.instant, row.reason, row.rows) == (TransactionState.COMMITTED, "i1", None, 10)

    def test_commit_ends_the_attempts_that_run_still(self, ledger: Ledger) -> None:
        begin(ledger)
        for each in (P0, P0, P1):
            start(ledger, "t1", each)
        ledger.transactions.mark_committed(receipt("t1", "i1", report(1)))
        unused, published, other = ledger.attempts.of_transaction("t1")
        assert (published.state, published.report) == (AttemptState.DONE, report(1))
        for each_row in (unused, other):
            assert each_row.state is AttemptState.FAILED
            assert each_row.error == "the transaction was committed without this attempt"

    def test_abort_ends_the_attempts_that_run_still(self, ledger: Ledger) -> None:
        begin(ledger)
        start(ledger, "t1", P0)
        start(ledger, "t1", P1)
        ledger.attempts.finish("t1", [report()])
        ledger.transactions.mark_aborted("t1", "deadline")
        done, running = ledger.attempts.of_transaction("t1")
        assert done.state is AttemptState.DONE
        assert (running.state, running.error) == (AttemptState.FAILED, "the transaction was aborted: deadline")


class TestHistory:
    def test_is_the_pipeline_s_newest_first(self, ledger: Ledger) -> None:
        for number in range(5):
            begin(ledger, f"t{number}")
            ledger.transactions.mark_aborted(f"t{number}", "x")
        begin(ledger, "other", table="/data/users", pipeline="users")
        assert [each.transaction_id for each in ledger.transactions.history("orders", 3)] == ["t4", "t3", "t2"]
        assert [each.epoch for each in ledger.transactions.history("orders")] == [5, 4, 3, 2, 1]
        assert ledger.transactions.history("nobody") == ()
        with pytest.raises(ValueError, match="at least 1"):
            ledger.transactions.history("orders", 0)


TABLES = ("/a", "/b")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(TABLES)),
        st.tuples(st.sampled_from(("commit", "abort", "attempt")), st.integers(0, 7)),
    ),
    max_size=14,
)


class TestModel:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps=STEPS)
    def test_any_sequence_keeps_one_open_a_table_and_growing_epochs(
        self, ledger: Ledger, steps: list[tuple[str, Any]]
    ) -> None:
        run = uuid4().hex
        states: dict[str, TransactionState] = {}
        tables: dict[str, str] = {}
        epochs: dict[str, list[int]] = {table: [] for table in TABLES}

        for step, what in steps:
            if step == "begin":
                name = f"{run}-{len(states)}"
                busy = any(states[k] is TransactionState.OPEN for k, table in tables.items() if table == what)
                try:
                    epochs[what].append(begin(ledger, name, table=f"/{run}{what}"))
                    assert not busy
                    states[name], tables[name] = TransactionState.OPEN, what
                except TransactionInFlight:
                    assert busy
                continue
            name = f"{run}-{what}"
            before = states.get(name)
            if step == "commit":
                assert ledger.transactions.mark_committed(receipt(name)) is (before is not None)
                if before is not None:
                    states[name] = TransactionState.COMMITTED
            elif step == "abort":
                try:
                    assert ledger.transactions.mark_aborted(name, "x") is (before is not None)
                    assert before is not TransactionState.COMMITTED
                    if before is not None:
                        states[name] = TransactionState.ABORTED
                except Fenced:
                    assert before is TransactionState.COMMITTED
            else:
                try:
                    start(ledger, name, P0)
                    assert before is TransactionState.OPEN
                except Fenced:
                    assert before is not TransactionState.OPEN

        assert {name: state_of(ledger, name) for name in states} == states
        for table in TABLES:
            assert epochs[table] == list(range(1, len(epochs[table]) + 1))
            opened = [k for k in states if tables[k] == table and states[k] is TransactionState.OPEN]
            row = ledger.transactions.open_in(f"/{run}{table}")
            assert opened == ([row.transaction_id] if row else [])


LOCK_UNTIL_KILLED = """
import sys
from hudi_ingest.ledger import Ledger
with Ledger.open(sys.argv[1]).table_lock(sys.argv[2]):
    print("locked", flush=True)
    sys.stdin.read()
"""


class TestTableLock:
    def test_keeps_threads_out(self, ledger: Ledger) -> None:
        inside, seen = [0], []

        def enter(_: int) -> None:
            for _ in range(5):
                with ledger.table_lock(TABLE, WAIT_SECONDS):
                    inside[0] += 1
                    seen.append(inside[0])
                    threading.Event().wait(0.001)  # gives others the chance to break in
                    inside[0] -= 1

        for each in at_once(4, enter):
            each.result()
        assert seen == [1] * 20

    def test_timeout_names_the_table_and_the_holder(self, ledger: Ledger) -> None:
        with ledger.table_lock(TABLE):
            with pytest.raises(TransactionInFlight) as caught, ledger.table_lock(TABLE + "/", 0.05):
                pass
            assert f"table {TABLE}:" in str(caught.value)
            assert "within 0.05 s" in str(caught.value)
            assert re.search(rf"held by .*\b{os.getpid()}\b", str(caught.value))
        with ledger.table_lock(TABLE, 0):
            pass

    def test_tables_have_locks_of_their_own(self, ledger: Ledger) -> None:
        with ledger.table_lock(TABLE), ledger.table_lock("/data/users", 0):
            pass

    def test_is_released_by_an_error_inside(self, ledger: Ledger) -> None:
        with pytest.raises(RuntimeError, match="inside"), ledger.table_lock(TABLE):
            raise RuntimeError("inside")
        with ledger.table_lock(TABLE, 0):
            pass

    def test_the_ledger_works_under_it(self, ledger: Ledger) -> None:
        with ledger.table_lock(TABLE):
            begin(ledger)
            ledger.transactions.mark_aborted("t1", "x")

    def test_is_released_when_its_holder_is_killed(self, ledger: Ledger, url: str) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", LOCK_UNTIL_KILLED, url, TABLE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"locked\n"
            with (
                pytest.raises(TransactionInFlight, match=rf"held by .*\b{child.pid}\b"),
                ledger.table_lock(TABLE, 0.05),
            ):
                pass
            child.send_signal(signal.SIGKILL)
            with ledger.table_lock(TABLE, WAIT_SECONDS):
                pass

    def test_p5_is_taken_away_from_a_holder_that_hangs(self, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
        with ledger.table_lock(TABLE):
            with pytest.raises(TransactionInFlight), ledger.table_lock(TABLE, 0.05, stale_seconds=60):
                pass
            with ledger.table_lock(TABLE, WAIT_SECONDS, stale_seconds=0.3):
                assert re.search(rf"taking its lock from .*\b{os.getpid()}\b.*held it for more than 0.3 s", caplog.text)
                with pytest.raises(TransactionInFlight), ledger.table_lock(TABLE, 0.05):
                    pass
        # The one that hung has let go of nothing that was not its own.
        with ledger.table_lock(TABLE, 0):
            pass

    def test_p4_is_left_to_a_holder_that_nothing_fences(self, ledger: Ledger) -> None:
        with (
            ledger.table_lock(TABLE, unfenced=True),
            pytest.raises(TransactionInFlight, match=rf"held by .*\b{os.getpid()}\b"),
            ledger.table_lock(TABLE, 0.5, stale_seconds=0),
        ):
            pass
        with ledger.table_lock(TABLE, 0):
            pass

    def test_p4_a_clock_that_is_set_takes_it_from_nobody(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        with ledger.table_lock(TABLE):
            monkeypatch.setattr(time, "time", lambda: 4e9)
            with pytest.raises(TransactionInFlight), ledger.table_lock(TABLE, 0.1, stale_seconds=60):
                pass

    def test_p5_of_many_who_take_it_away_one_gets_it_at_a_time(self, ledger: Ledger) -> None:
        inside, seen = [0], []

        def enter(_: int) -> None:
            with ledger.table_lock(TABLE, WAIT_SECONDS, stale_seconds=0.5):
                inside[0] += 1
                seen.append(inside[0])
                threading.Event().wait(0.001)
                inside[0] -= 1

        with ledger.table_lock(TABLE):
            for each in at_once(8, enter):
                each.result()
        assert seen == [1] * 8

    def test_p5_is_taken_from_a_holder_that_no_longer_renews_it(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As after a pause of the whole process, or while it does not reach the ledger."""
        monkeypatch.setattr(locks, "LEASE_SECONDS", 0.3)
        with ledger.table_lock(TABLE), ledger.table_lock(TABLE, WAIT_SECONDS):
            assert "has not renewed it for more than 0.3 s" in caplog.text
        assert "its lock was lost while this process held it" in caplog.text

    def test_p4_is_renewed_while_it_is_held(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(locks, "RENEWAL_SECONDS", 0.02)
        monkeypatch.setattr(locks, "LEASE_SECONDS", 5)
        with ledger.table_lock(TABLE):
            found = _look(ledger.database, f"table {TABLE}")[0]
            assert found is not None
            wait_for(lambda: _look(ledger.database, f"table {TABLE}")[0] != found, "it is renewed")

    def test_p4_what_has_been_renewed_since_the_look_is_not_taken(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(locks, "RENEWAL_SECONDS", 0.02)
        with ledger.table_lock(TABLE):
            name = f"table {TABLE}"
            found = _look(ledger.database, name)[0]
            wait_for(lambda: _look(ledger.database, name)[0] != found, "it is renewed")
            assert not locks.HeldLock(ledger.database, name, unfenced=False).take(found)

    def test_p4_of_two_that_found_a_dead_holder_one_takes_its_lock(self, ledger: Ledger) -> None:
        name = f"table {TABLE}"
        dead = locks.HeldLock(ledger.database, name, unfenced=False)
        assert dead.take(None)
        found = _look(ledger.database, name)[0]
        takers = [locks.HeldLock(ledger.database, name, unfenced=False) for _ in range(2)]
        assert [taker.take(found) for taker in takers] == [True, False]

    def test_p4_one_that_has_lost_it_does_not_release_another_s(self, ledger: Ledger) -> None:
        hung = locks.acquire(ledger.database, f"table {TABLE}", 0)
        with ledger.table_lock(TABLE, WAIT_SECONDS, stale_seconds=0.1):
            hung.release()
            with pytest.raises(TransactionInFlight), ledger.table_lock(TABLE, 0.05):
                pass

    def test_p5_is_free_at_once_for_a_process_that_could_not_release_it(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        away = LedgerUnreachable("the server is away")
        with monkeypatch.context() as patched:
            with ledger.table_lock(TABLE):
                patched.setattr(Database, "writing", Mock(side_effect=away))
            assert "could not be released, and is free" in caplog.text
        with ledger.table_lock(TABLE, 0):
            pass

    @given(
        taken=st.floats(0, 1000),
        renewed=st.floats(0, 1000),
        now=st.floats(-1000, 2000),
        unfenced=st.booleans(),
        stale=st.none() | st.floats(0, 1000),
    )
    def test_p4_a_living_holder_that_renews_keeps_it_unless_it_is_stale(
        self, taken: float, renewed: float, now: float, unfenced: bool, stale: float | None
    ) -> None:
        row = locks.LockRow("token", Owner.this_process(), "somebody", unfenced, taken, renewed)
        lease = 600 if unfenced else 45
        expired = abs(now - renewed) > lease
        hangs = stale is not None and not unfenced and now - taken > stale
        assert bool(row.lost_because(now, stale, ended=False)) == (expired or hangs)
        assert row.lost_because(now, stale, ended=True)


class TestOpening:
    def test_makes_the_tables_once(self, url: str) -> None:
        with Ledger.open(url) as first:
            begin(first)
        with Ledger.open(url) as second:
            assert state_of(second) is TransactionState.OPEN

    def test_threads_may_do_so_at_once(self, url: str) -> None:
        results = at_once(6, lambda number: begin(Ledger.open(url), f"t{number}", table=f"/data/{number}"))
        assert [each.result() for each in results] == [1] * 6

    def test_threads_may_make_several_ledgers_at_once(self, tmp_path: Path) -> None:
        def make(number: int) -> int:
            with Ledger.open(f"sqlite:///{tmp_path / str(number)}.db") as ledger:
                return begin(ledger)

        assert [each.result() for each in at_once(6, make)] == [1] * 6

    def test_a_statement_is_compiled_once_for_all_sqlite_files(self, tmp_path: Path) -> None:
        first, second = (Ledger.open(f"sqlite:///{tmp_path / name}.db") for name in ("first", "second"))
        begin(first)
        compiled = {*database._COMPILED}
        begin(second)
        assert compiled
        assert {*database._COMPILED} == compiled

    def test_processes_may_do_so_at_once(self, url: str) -> None:
        assert in_processes(3, open_in_process, url) == ["1", "1", "1"]

    def test_a_newer_ledger_is_refused(self, url: str) -> None:
        with Ledger.open(url) as ledger, ledger.database.writing() as connection:
            connection.exec_driver_sql(f"UPDATE {REVISION_TABLE} SET version_num = '9999'")
        with pytest.raises(EnvironmentProblem, match=r"revision 9999(.|\n)*Upgrade hudi-ingest") as caught:
            Ledger.open(url)
        assert isinstance(caught.value, Terminal)

    def test_a_ledger_from_before_the_first_release_is_refused_with_the_way_out(self, url: str) -> None:
        with Ledger.open(url) as ledger, ledger.database.writing() as connection:
            connection.exec_driver_sql(f"UPDATE {REVISION_TABLE} SET version_num = '0003'")
        with pytest.raises(EnvironmentProblem, match=r"revision 0003(.|\n)*`hudi-ingest recover PIPELINE`"):
            Ledger.open(url)

    def test_a_migration_that_breaks_leaves_nothing_behind(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def migrate_and_break(connection: sa.Connection, where: str) -> None:
            upgrade(connection, where)
            raise RuntimeError("power cut")

        upgrade = migrations.upgrade
        monkeypatch.setattr(migrations, "upgrade", migrate_and_break)
        with pytest.raises(RuntimeError, match="power cut"):
            Ledger.open(url)
        engine = sa.create_engine(url)
        assert sa.inspect(engine).get_table_names() == []
        engine.dispose()
        monkeypatch.undo()
        begin(Ledger.open(url))

    def test_a_wiped_ledger_is_made_anew(self, url: str) -> None:
        ledger = Ledger.open(url)
        with ledger.database.writing() as connection:
            METADATA.drop_all(connection)
            connection.exec_driver_sql(f"DROP TABLE {REVISION_TABLE}")
        assert begin(Ledger.open(url)) == 1

    def test_use_of_a_ledger_that_was_wiped_meanwhile_is_transient(self, ledger: Ledger) -> None:
        with ledger.database.writing() as connection:
            METADATA.drop_all(connection)
        with pytest.raises(LedgerUnreachable, match="recreated when it is opened again") as caught:
            begin(ledger)
        assert isinstance(caught.value, Transient)

    def test_migrations_make_what_the_tables_say(self, ledger: Ledger) -> None:
        def ours(name: str | None, kind: str, _: object) -> bool:
            return kind != "table" or name != REVISION_TABLE

        with ledger.database.engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"version_table": REVISION_TABLE, "include_name": ours, "compare_type": True}
            )
            assert compare_metadata(context, METADATA) == []
            inspector = sa.inspect(connection)
            for table in METADATA.sorted_tables:
                wanted = {str(each.name) for each in table.constraints if isinstance(each, sa.CheckConstraint)}
                assert {each["name"] for each in inspector.get_check_constraints(table.name)} == wanted

    def test_head_is_the_newest_migration(self) -> None:
        assert ScriptDirectory.from_config(migrations.config()).get_current_head() == migrations.HEAD

    def test_migrations_can_be_undone(self, ledger: Ledger) -> None:
        with ledger.database.writing() as connection:
            alembic.command.downgrade(migrations.config(connection), "base")
        with ledger.database.engine.connect() as connection:
            assert sa.inspect(connection).get_table_names() == [REVISION_TABLE]


class TestUrls:
    def test_a_password_is_never_shown(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            for url in (
                f"postgresql+psycopg2://me:s3cret@127.0.0.1:{port}/x",
                f"postgresql://me:s3cret@127.0.0.1:{port}/x",
                f"postgresql+psycopg2://me@127.0.0.1:{port}/x?password=s3cret",
            ):
                with pytest.raises(LedgerUnreachable, match=rf"127\.0\.0\.1:{port}") as caught:
                    Ledger.open(url)
                assert "s3cret" not in str(caught.value)

    @pytest.mark.parametrize("url", ["mysql://me:s3cret@host/x", "sqlite://", "sqlite:///:memory:", "s3cret", ""])
    def test_what_cannot_be_a_ledger_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigError, match="HUDI_INGEST_LEDGER_URL") as caught:
            Ledger.open(url)
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None


class TestSqlite:
    def test_settings(self, sqlite_url: str) -> None:
        with Ledger.open(sqlite_url).database.engine.connect() as connection:
            found = {
                each: connection.exec_driver_sql(f"PRAGMA {each}").scalar_one()
                for each in ("journal_mode", "busy_timeout", "foreign_keys")
            }
        assert found == {"journal_mode": "wal", "busy_timeout": 30_000, "foreign_keys": 1}

    def test_writers_take_turns_and_readers_do_not_wait(self, sqlite_url: str) -> None:
        ledger = Ledger.open(sqlite_url)
        begin(ledger)
        with ThreadPoolExecutor(1) as pool:
            with ledger.database.writing():
                waiting = pool.submit(ledger.transactions.mark_aborted, "t1", "x")
                assert state_of(ledger) is TransactionState.OPEN
                assert not waiting.done()
            assert waiting.result(WAIT_SECONDS) is True

    def test_a_file_that_is_no_database_is_named(self, tmp_path: Path, sqlite_url: str) -> None:
        (tmp_path / "ledger.db").write_text("something else " * 100)
        with pytest.raises(EnvironmentProblem, match=r"ledger\.db.*not a database.*Move it aside"):
            Ledger.open(sqlite_url)

    def test_a_deleted_file_is_made_anew(self, tmp_path: Path, sqlite_url: str) -> None:
        begin(Ledger.open(sqlite_url))
        for each in tmp_path.glob("ledger.db*"):
            if each.is_file():
                each.unlink()
        assert begin(Ledger.open(sqlite_url)) == 1

    def test_the_connection_stays_open_between_calls(self, tmp_path: Path, sqlite_url: str) -> None:
        ledger = Ledger.open(sqlite_url)
        begin(ledger)
        assert (tmp_path / "ledger.db-wal").stat().st_size, "the last to close a connection deletes the log"
        ledger.dispose()
        assert not (tmp_path / "ledger.db-wal").exists()

    def test_a_forked_process_leaves_its_parents_connection_alone(self, tmp_path: Path, sqlite_url: str) -> None:
        ledger = Ledger.open(sqlite_url)
        begin(ledger)

        def child() -> None:
            gc.collect()
            begin(ledger, "t2", table="/data/other")
            ledger.dispose()

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(WAIT_SECONDS)
        assert process.exitcode == 0
        # Had the child closed it, nobody else would have the file open, and its own would have been the last.
        assert (tmp_path / "ledger.db-wal").stat().st_size
        assert state_of(ledger, "t2") is TransactionState.OPEN
        ledger.transactions.record_instant("t1", "i1")
        ledger.dispose()
        assert Ledger.open(sqlite_url).damage() == ""

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(EnvironmentProblem, match="cannot create its folder"):
            Ledger.open(f"sqlite:///{tmp_path / 'file' / 'ledger.db'}")

    def test_a_relative_path_stays_where_it_was_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        ledger = Ledger.open("sqlite:///ledger.db")
        monkeypatch.chdir("/")
        begin(ledger)
        with sqlite3.connect(tmp_path / "ledger.db") as connection:
            assert connection.execute("SELECT count(*) FROM ingest_transactions").fetchone() == (1,)
        connection.close()


def unknown(_: str) -> None:
    return None


class TestOwner:
    @pytest.mark.parametrize("owner", [Owner.dagster_run("a:b"), Owner.this_process()])
    def test_text_form(self, owner: Owner) -> None:
        assert Owner.parse(str(owner)) == owner
        assert str(owner).startswith(f"{owner.kind}:")

    @pytest.mark.parametrize(
        "text", ["", "dagster", "dagster:", "process:host", "process:h:x:1", "process::1:1", "cron:1"]
    )
    def test_other_texts_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="owner is"):
            Owner.parse(text)

    def test_this_process_lives(self) -> None:
        owner = Owner.this_process()
        assert str(os.getpid()) in str(owner)
        assert not is_dead(owner, unknown)

    def test_a_process_that_got_the_number_later_is_another(self) -> None:
        host, pid, started = Owner.this_process().ident.rsplit(":", 2)
        assert is_dead(Owner("process", f"{host}:{pid}:{float(started) - 100}"), unknown)

    @pytest.mark.parametrize("other", ["host name", "boot", "pid namespace"])
    def test_p4_processes_of_other_hosts_and_containers_are_not_judged_by_this_process_table(self, other: str) -> None:
        """Two machines may share name and namespace, two containers their name, two boots everything but the boot."""
        place, living, started = Owner.this_process().ident.rsplit(":", 2)
        host, boot, namespace = place.split("/")
        elsewhere = {
            "host name": f"elsewhere/{boot}/{namespace}",
            "boot": f"{host}/0123456789ab/{namespace}",
            "pid namespace": f"{host}/{boot}/1",
        }[other]
        for pid, start in ((living, started), (living, float(started) - 100), (999999999, 1.0)):
            owner = Owner("process", f"{elsewhere}:{pid}:{start}")
            assert not is_dead(owner, unknown)
            assert living_process(owner) is None
            assert not is_of_this_host(owner)

    def test_p4_the_place_is_the_kernels_boot_and_the_pid_namespace(self) -> None:
        host, boot, namespace = Owner.this_process().ident.rsplit(":", 2)[0].split("/")
        assert host == socket.gethostname()
        if sys.platform == "linux":
            assert Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "").startswith(boot)
            assert len(boot) == 12
            assert os.readlink("/proc/self/ns/pid") == f"pid:[{namespace}]"

    def test_p5_an_owner_of_an_earlier_release_is_alive_until_its_deadline(self) -> None:
        host, pid, started = Owner.this_process().ident.rsplit(":", 2)
        name, _, namespace = host.split("/")
        assert not is_dead(Owner.parse(f"process:{name}/{namespace}:999999999:{started}"), unknown)
        assert not is_dead(Owner.parse(f"process:{name}/{namespace}:{pid}:{started}"), unknown)

    def test_a_killed_process_is_dead_before_and_after_it_is_reaped(self) -> None:
        code = "import sys; from hudi_ingest.ledger.owner import Owner; print(Owner.this_process(), flush=True); sys.stdin.read()"
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        with child:
            assert child.stdout is not None
            owner = Owner.parse(child.stdout.readline().strip())
            assert not is_dead(owner, unknown)
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert is_dead(owner, unknown)
        assert is_dead(owner, unknown)

    @pytest.mark.parametrize(("answer", "dead"), [(True, True), (False, False), (None, False)])
    def test_a_dagster_run_is_as_dagster_says(self, answer: bool | None, dead: bool) -> None:
        asked: list[str] = []

        def run_is_finished(run_id: str) -> bool | None:
            asked.append(run_id)
            return answer

        assert is_dead(Owner.dagster_run("r-1"), run_is_finished) is dead
        assert asked == ["r-1"]


def test_a_pipelines_newest_commit_is_known_until_its_table_is_forgotten(ledger: Ledger) -> None:
    begin(ledger)
    assert ledger.transactions.newest_commit("orders") is None, "nothing is committed yet"
    ledger.transactions.mark_committed(receipt())
    begin(ledger, "t2", pipeline="payments", table="/data/payments")
    ledger.transactions.mark_committed(receipt("t2", "i2"))
    found = ledger.transactions.newest_commit("orders")
    assert found is not None and (found.transaction_id, found.table) == ("t1", TABLE)
    begin(ledger, "t3", table="/data/other")
    ledger.transactions.mark_committed(receipt("t3", "i3"))
    found = ledger.transactions.newest_commit("orders")
    assert found is not None and found.transaction_id == "t3"
    assert ledger.transactions.forget_other_tables("orders", TABLE) == 1
    found = ledger.transactions.newest_commit("orders")
    assert found is not None and found.transaction_id == "t1"
    assert ledger.transactions.find("t2") is not None


# ---- What people want, asked by every tick


def date_back(file: Path, seconds: float) -> None:
    """Let the database and its log have changed so much earlier."""
    for path in filter(Path.exists, (file, file.with_name(f"{file.name}-wal"))):
        changed = path.stat().st_mtime_ns - round(seconds * 1e9)
        os.utime(path, ns=(changed, changed))


def test_wishes_take_one_statement_and_none_while_nothing_is_written(ledger: Ledger) -> None:
    wishes, engine = ledger.requests.wishes, ledger.database.engine
    assert len(statements_of(engine, wishes)) == 1
    if ledger.file is None:
        assert len(statements_of(engine, wishes)) == 1
        return
    date_back(ledger.file, -3600)
    assert len(statements_of(engine, wishes)) == 1
    assert len(statements_of(engine, wishes)) == 1, "a file that has just changed may change once more at the same time"
    for is_on in (False, True):
        ledger.requests.switch("orders", is_on)
        date_back(ledger.file, 7200)
        assert len(statements_of(engine, wishes)) == 1
        assert statements_of(engine, wishes) == []
        assert wishes().switches == {"orders": is_on}


WRITER = """
import sqlite3, sys
connections = []
for line in sys.stdin:
    act, _, value = line.strip().partition(" ")
    if act == "open":
        connections.append(sqlite3.connect(sys.argv[1], isolation_level=None, timeout=300))
        connections[-1].execute("SELECT count(*) FROM ingest_switches").fetchone()
    elif act == "close" and connections:
        connections.pop().close()
    elif act == "switch" and connections:
        connections[-1].execute("INSERT INTO ingest_switches VALUES (?, 0) ON CONFLICT DO UPDATE SET is_on = NOT is_on", (value,))
    elif act == "checkpoint" and connections:
        connections[-1].execute("PRAGMA wal_checkpoint(RESTART)")
    print("done", flush=True)
"""
"""Another process, which may keep connections open, so that the log stays, is checkpointed and begins anew."""
ACTS = ("open", "close", "switch a", "switch b", "checkpoint", "age", "own a", "own b", "look")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.sampled_from(ACTS), min_size=5, max_size=40))
def test_wishes_are_never_older_than_the_last_commit_of_any_process(sqlite_url: str, acts: list[str]) -> None:
    with Ledger.open(sqlite_url) as ledger:
        assert ledger.file is not None
        command = [sys.executable, "-c", WRITER, str(ledger.file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            for act in acts:
                if act == "age":
                    date_back(ledger.file, 10)
                elif act.startswith("own "):
                    name = act.removeprefix("own ")
                    ledger.requests.switch(name, not ledger.requests.switches().get(name, False))
                elif act != "look":
                    other.stdin.write(f"{act}\n")
                    other.stdin.flush()
                    assert other.stdout.readline() == "done\n"
                assert ledger.requests.wishes().switches == ledger.requests.switches()
            other.stdin.close()


def test_a_file_that_this_process_has_opened_is_opened_once_more_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger.open(url)
    with monkeypatch.context() as patch:
        patch.setattr(locks, "acquire", None)
        assert Ledger.open(url).transactions.find("t1") is None
    (tmp_path / "ledger.db").unlink()
    assert Ledger.open(url).transactions.find("t1") is None, "another file in its place gets its tables"
