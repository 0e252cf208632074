"""OpenLineage events as a backend gets them: every document fits the client's own classes, which refuse what they do not know."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

import hudi_ingest.lineage as emitter
from hudi_ingest.lineage import is_configured, listener
from hudi_ingest.lineage.events import column_origins
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import BaseFile, CommitReceipt, SliceReport
from hudi_ingest.model.transaction import (
    OpenTransaction,
    TransactionSchema,
    began,
    committed,
    found_committed,
    rolled_back,
    unheard,
)
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import spark_json
from hudi_ingest_tests.support.lineage_backend import backend, without_meta
from hudi_ingest_tests.support.silent_server import silent_server


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    settings = {
        "name": "orders",
        "source": {"bootstrap_servers": "broker:9092,other:9092", "topics": ["orders"]},
        "table": {
            "base_path": "s3://lake/orders",
            "schema": "id string, paid string, amount double, card string, customer struct<city: string, zip: string>",
            "partition_by": ["day(paid_at)"],
            "kafka_columns": [],
        },
        "transforms": [
            {"rename": {"paid": "paid_at"}},
            {"timestamp": {"fields": ["paid_at"], "format": "iso8601"}},
            {"cast": {"amount": "string"}},
            {"mask": {"fields": ["card"], "method": "redact"}},
            {"flatten": ["customer"]},
            {"sql": "select *, upper(id) || card as label from records"},
            {"constant": {"column": "origin", "value": "shop"}},
        ],
    }
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(settings))
    return load_pipeline(path)


def opened(pipeline: Pipeline) -> OpenTransaction:
    columns = pipeline.table_schema
    now = datetime(2026, 11, 23, 10, tzinfo=timezone.utc)
    plan = IngestPlan("orders", "orders-1", 1, (Slice("orders", 0, 5, 9), Slice("orders", 1, 7, 7)))
    schema = TransactionSchema("declared", spark_json(columns.record), columns.spark_json)
    return OpenTransaction(plan, "20261123100000000", 1, now, now, schema, "shape")


def receipt(transaction: OpenTransaction) -> CommitReceipt:
    file = BaseFile("", "f", "f.parquet", 4, 100, 5, 8)
    report = SliceReport(Slice("orders", 0, 5, 9), 0, (file,), rows=4)
    return CommitReceipt(transaction.plan, transaction.instant, Checkpoint(1, "orders-1", {}), (report,))


def test_each_column_is_traced_through_the_transforms(pipeline: Pipeline) -> None:
    origins = column_origins(pipeline.chain)
    assert {name: (sorted(origin.fields), origin.how, origin.is_masked) for name, origin in origins.items()} == {
        "id": (["id"], (), False),
        "paid_at": (["paid"], ("timestamp",), False),
        "amount": (["amount"], ("cast",), False),
        "card": (["card"], ("mask",), True),
        "customer_city": (["customer.city"], (), False),
        "customer_zip": (["customer.zip"], (), False),
        "label": (["card", "id"], ("mask", "sql"), True),
        "paid_at_day": (["paid"], ("timestamp", "day"), False),
    }


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No client, nothing said, and no configuration but the test's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(emitter, "_said", threading.Event())
    client = emitter._client
    client.cache_clear()
    yield
    client.cache_clear()
    # The client copies OPENLINEAGE_URL to variables of its own.
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE_")]:
        del os.environ[name]


def test_s7_a_transaction_starts_and_completes_with_its_offsets_and_columns(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backend() as found:
        monkeypatch.setenv("OPENLINEAGE_URL", found.url)
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
        tell, transaction = listener(pipeline), opened(pipeline)
        tell(began(transaction))
        tell(committed(transaction, receipt(transaction)))
    start, complete = found.documents
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("shop", "orders")
    [topic], [table] = complete["inputs"], complete["outputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://broker:9092", "orders")
    assert topic["inputFacets"]["hudi_ingest_offsets"]["ranges"] == [{"partition": 0, "start": 5, "end": 9}]
    assert (table["namespace"], table["name"]) == ("s3://lake", "orders")
    columns = [column["name"] for column in table["facets"]["schema"]["fields"]]
    assert columns == [
        "id",
        "paid_at",
        "amount",
        "card",
        "customer_city",
        "customer_zip",
        "label",
        "origin",
        "paid_at_day",
        "_kafka_partition",
        "_kafka_offset",
    ]
    lineage = table["facets"]["columnLineage"]["fields"]
    assert lineage.keys() == {*columns} - {"origin", "_kafka_partition", "_kafka_offset"}
    assert lineage["paid_at"]["inputFields"] == [
        {
            "namespace": "kafka://broker:9092",
            "name": "orders",
            "field": "paid",
            "transformations": [
                {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "timestamp", "masking": False}
            ],
        }
    ]
    assert lineage["card"]["inputFields"][0]["transformations"][0]["masking"] is True
    assert table["facets"]["version"]["datasetVersion"] == transaction.instant
    statistics = without_meta(table["outputFacets"]["outputStatistics"])
    assert statistics == {"rowCount": 4, "size": 100, "fileCount": 1}


def test_a_rollback_fails_the_run_and_a_commit_found_later_completes_it(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backend() as found:
        Path("openlineage.yml").write_text(yaml.safe_dump({"transport": {"type": "http", "url": found.url}}))
        tell = listener(pipeline)
        tell(rolled_back("orders-1", "orders:0:7 field n: expected long"))
        tell(found_committed("orders-2"))
    failed, complete = found.documents
    assert (failed["eventType"], complete["eventType"]) == ("FAIL", "COMPLETE")
    assert failed["run"]["facets"]["errorMessage"]["message"] == "orders:0:7 field n: expected long"
    assert failed["run"]["runId"] != complete["run"]["runId"]


def test_a_backend_that_fails_is_logged_once_and_holds_up_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with backend(status=400) as found:
        monkeypatch.setenv("OPENLINEAGE_URL", found.url)
        tell = listener(pipeline)
        for _ in range(2):
            tell(began(opened(pipeline)))
    [warning] = [record.getMessage() for record in caplog.records if record.name == emitter.__name__]
    assert "could not be emitted" in warning and "The transaction goes on." in warning


def test_a_backend_that_hangs_is_not_waited_for(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(emitter, "LONGEST_SECONDS", 0.5)
    with silent_server() as address:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://{address}")
        tell = listener(pipeline)
        began_at = time.monotonic()
        for _ in range(2):
            tell(began(opened(pipeline)))
        assert time.monotonic() - began_at < 30
    assert caplog.text.count("did not answer within 0.5 s; the transaction goes on") == 1


def test_without_a_configuration_nobody_is_told(pipeline: Pipeline, tmp_path: Path) -> None:
    assert listener(pipeline) is unheard
    assert not is_configured({"OPENLINEAGE_URL": "http://x", "OPENLINEAGE_DISABLED": "true"})
    assert is_configured({"OPENLINEAGE__TRANSPORT__TYPE": "console"})
    assert not is_configured({"OPENLINEAGE_CONFIG": str(tmp_path / "missing.yml")})
