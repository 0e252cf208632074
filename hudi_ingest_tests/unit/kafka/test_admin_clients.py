"""Which admin clients a tick may use again. None of them connects here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.kafka import admin_clients
from hudi_ingest.kafka.admin_clients import AdminClients, kept_clients
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.local.processes import free_port
from hudi_ingest.pipeline.sections.source import KafkaSource


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_clients, "_by_process", {})


def source(password: str = "a", ca_file: Path | None = None, servers: str = "a:1") -> KafkaSource:
    security = {
        "protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "username": "reader",
        "password": password,
        **({"ca_file": str(ca_file)} if ca_file else {}),
    }
    return KafkaSource.model_validate(
        {"bootstrap_servers": servers, "topics": ["orders"], "request_timeout_seconds": 0.2, "security": security}
    )


def lent(of: KafkaSource) -> AdminClients:
    with kept_clients(of) as clients:
        return clients


def test_clients_are_lent_again_to_one_at_a_time() -> None:
    with kept_clients(source()) as first:
        assert lent(source()) is not first
    assert lent(source()) is first


def test_clients_with_other_settings_are_others(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("old")
    kept = lent(source(ca_file=file))
    assert lent(source(ca_file=file)) is kept
    assert lent(source("rotated", file)) is not kept
    assert lent(source(ca_file=file, servers="b:1")) is not kept
    file.write_text("replaced")
    assert lent(source(ca_file=file)) is not kept


def test_clients_that_failed_are_not_lent_again() -> None:
    nobody = KafkaSource(bootstrap_servers=f"127.0.0.1:{free_port()}", topics=("orders",), request_timeout_seconds=0.2)
    with kept_clients(nobody) as failed, pytest.raises(KafkaUnreachable):
        KafkaCluster(nobody, failed).topics()
    assert "admin" not in failed.__dict__, "closed: a refused client would keep trying to log in"
    with pytest.raises(ZeroDivisionError), kept_clients(nobody) as interrupted:
        raise ZeroDivisionError
    assert lent(nobody) not in (failed, interrupted)


def test_clients_are_not_kept_long(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = lent(source())
    monkeypatch.setattr(admin_clients, "_OLDEST_SECONDS", -1.0)
    newer = lent(source())
    assert newer is not kept
    monkeypatch.setattr(admin_clients, "_OLDEST_SECONDS", 300.0)
    monkeypatch.setattr(admin_clients, "_IDLE_SECONDS", -1.0)
    assert lent(source()) is not newer


def test_a_forked_process_leaves_its_parents_clients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = lent(source())
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        assert lent(source()) is not parents
    assert lent(source()) is parents
