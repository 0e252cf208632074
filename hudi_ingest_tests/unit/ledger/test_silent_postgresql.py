"""A PostgreSQL server that takes connections and answers nothing: every call ends in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from dagster import DagsterInstance, build_sensor_context

from hudi_ingest.exceptions import LedgerUnreachable
from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.ledger import Ledger, answer_limit
from hudi_ingest.ledger.database import Database, open_engine
from hudi_ingest.orchestration.code_location import ingest_definitions
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.pipeline_files import Write, load
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


@pytest.mark.usefixtures("impatient")
def test_each_tick_ends_and_says_why(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipelines = [load(write, name=name, table__base_path=str(tmp_path / name)) for name in ("a", "b")]
    with silent_postgresql() as url, DagsterInstance.local_temp(str(tmp_path)) as instance:
        monkeypatch.setenv(LEDGER_VARIABLE, url)
        repository = ingest_definitions(pipelines).get_repository_def()
        context = build_sensor_context(instance, repository_def=repository)
        said = {sensor.name: str(sensor.evaluate_tick(context).skip_message) for sensor in repository.sensor_defs}
    assert "has not answered within 1 s" in said["hudi_ingest_coordinator"]
    assert said["hudi_ingest_overview"] == "2 paused"


@pytest.mark.tier(2)
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
            with ledger.database.writing() as connection:
                assert connection.execute(sa.text("SHOW statement_timeout")).scalar_one() == "40s"
