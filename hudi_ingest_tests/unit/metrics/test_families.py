"""Metrics of what one look found: names, labels and values, as Prometheus and OpenTelemetry get them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from starlette.testclient import TestClient

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.hudi.files.read_amplification import ReadAmplification
from hudi_ingest.ledger import Overview, ServiceRun, counters
from hudi_ingest.metrics.definitions import METRICS, Family
from hudi_ingest.metrics.exporters import OtlpExport, is_configured, metrics_app
from hudi_ingest.metrics.families import (
    Scene,
    families,
)
from hudi_ingest.model.complete_through import Completeness
from hudi_ingest.model.finding import answer
from hudi_ingest.operations.state import PartitionState, PipelineState, TableSize
from hudi_ingest_tests.support.http_server import QuietHandler, serving
from hudi_ingest_tests.support.observations import open_row
from hudi_ingest_tests.support.pipeline_files import pipeline_named
from hudi_ingest_tests.support.silent_server import silent_server

NOW = datetime(2026, 11, 23, 10, 0, tzinfo=timezone.utc)
EXPECTATIONS = [{"name": name, "condition": "n > 0"} for name in ("small", "named")]
WELL = PipelineState(
    pipeline_named(
        "orders",
        transaction__interval_seconds=60,
        expectations=EXPECTATIONS,
        table__ttl={"days": 30},
        table__partition_by=["dt"],
    ),
    sequence=3,
    on=True,
    partitions=(
        PartitionState("o.1", 0, 5, 9, 4, lag_seconds=12.5, complete=Completeness(1_500)),
        PartitionState("o.1", 1, None, 7, 7, stopped=True),
    ),
    totals={
        "ingest": {"rows": 100, "bytes": 2_000, "bad_kept": 3, "gaps": 2, "violates:small": 7},
        "replay": {"rows": 9},
    },
    dead_letters=3,
    last_committed_at=NOW,
    amplification=ReadAmplification(2, 4, 1_000, 2, 3, None),
    compaction_due=True,
    findings=(
        answer("orders", "up_to_date", True, ""),
        answer("orders", "lag_below_limit", False, "", warns=True),
        answer("orders", "accounting_holds", False, ""),
    ),
    size=TableSize(5_000, 3, 2, (NOW - timedelta(days=31), NOW - timedelta(days=29))),
)
COUNTS = {
    counters.ABORTED: 2.0,
    counters.LOCK_WAITS: 1.0,
    f"{counters.SERVICES}ttl/{counters.FAILED}": 2.0,
    f"{counters.TICK_FAILURES}KafkaUnreachable": 4.0,
    **counters.timed({"total": 0.7}),
    "seconds/total/0.9": 1.0,
}
LEDGER = Overview(
    counters={"/data/orders": COUNTS},
    open={"/data/orders": open_row("orders", NOW - timedelta(seconds=30))},
    ticked={"orders": NOW},
    requests={("orders", "backfill"): 1},
    rows={"ingest_slices": 12},
    size_bytes=4_096,
    services=(
        ServiceRun("/data/orders", "ttl", "orders", NOW, NOW, NOW - timedelta(days=2), 3.5, "EngineLost: gone", 4, 0),
        ServiceRun("/data/orders", "compaction", "orders", NOW - timedelta(minutes=1)),
        ServiceRun("", "housekeeping", "", NOW, NOW, NOW, 12.0, None, 70, 70),
        ServiceRun("/data/deleted", "ttl", "deleted", NOW),
    ),
)
BROKEN = PipelineState(pipeline_named("broken"), error=KafkaUnreachable("away"))
OVERDUE = frozenset({"/data/orders"})
SCENE = Scene(NOW, 0.25, (WELL, BROKEN), ("bad.yaml",), LEDGER, OVERDUE, True, ("0.1.0", "3.11.2"))


def values(found: Sequence[Family]) -> dict[tuple[str, ...], object]:
    return {(family.metric.name, *labels): value for family in found for labels, value in family.samples.items()}


def test_each_metric_has_its_value_and_what_is_unknown_is_missing() -> None:
    found = values(families(SCENE))
    assert {name for name, *_ in found} == {metric.name for metric in METRICS} - {"hudi_ingest_log_base_bytes"}
    expected = {
        ("pipeline_up", "orders"): 1,
        ("pipeline_up", "broken"): 0,
        ("pipeline_error", "broken", "KafkaUnreachable"): 1,
        ("lag_offsets", "orders", "o.1", "0"): 4,
        ("lag_seconds", "orders", "o.1", "0"): 12.5,
        ("complete_through_timestamp_seconds", "orders", "o.1", "0"): 1.5,
        ("committed_offset", "orders", "o.1", "0"): 5,
        ("end_offset", "orders", "o.1", "1"): 7,
        ("partition_stopped", "orders", "o.1", "1"): 1,
        ("rows_total", "orders", "ingest"): 100,
        ("rows_total", "orders", "replay"): 9,
        ("tombstones_total", "orders", "ingest"): 0,
        ("control_records_total", "orders", "ingest", "heartbeats"): 0,
        ("bad_records_total", "orders", "ingest", "dead_letter"): 3,
        ("bad_records_total", "orders", "ingest", "skipped"): 0,
        ("violations_total", "orders", "ingest", "small"): 7,
        ("violations_total", "orders", "ingest", "named"): 0,
        ("transactions_total", "orders", "committed"): 3,
        ("transactions_total", "orders", "aborted"): 2,
        ("transactions_total", "broken", "aborted"): 0,
        ("tick_failures_total", "orders", "KafkaUnreachable"): 4,
        ("open_transaction_seconds", "orders"): 30,
        ("open_transaction_overdue", "orders"): 1,
        ("check_failing", "orders", "up_to_date"): 0,
        ("check_failing", "orders", "lag_below_limit"): 1,
        ("check_failing", "orders", "accounting_holds"): 2,
        ("compaction_due", "orders"): 1,
        ("last_commit_timestamp_seconds", "orders"): NOW.timestamp(),
        ("active_requests", "orders", "backfill"): 1,
        ("broken_file", "bad.yaml"): 1,
        ("small_files", "orders"): 2,
        ("expired_partitions", "orders"): 1,
        ("service_failing", "orders", "ttl"): 1,
        ("service_last_success_timestamp_seconds", "orders", "ttl"): (NOW - timedelta(days=2)).timestamp(),
        ("service_last_run_seconds", "orders", "ttl"): 3.5,
        ("service_last_run_due", "orders", "ttl"): 4,
        ("service_last_run_done", "orders", "ttl"): 0,
        ("service_runs_total", "orders", "ttl", "failed"): 2,
        ("service_runs_total", "orders", "ttl", "succeeded"): 0,
        ("service_running_seconds", "orders", "compaction"): 60,
        ("service_running_seconds", "", "housekeeping"): 0,
        ("service_failing", "", "housekeeping"): 0,
        ("service_last_run_done", "", "housekeeping"): 70,
    }
    assert {key: found.get((f"hudi_ingest_{key[0]}", *key[1:])) for key in expected} == expected
    assert ("hudi_ingest_lag_seconds", "orders", "o.1", "1") not in found
    assert ("hudi_ingest_committed_offset", "orders", "o.1", "1") not in found
    assert ("hudi_ingest_service_last_success_timestamp_seconds", "orders", "compaction") not in found
    assert not [key for key in found if "deleted" in key]
    assert not [key for key in found if key[1:2] == ("broken",) and key[0].startswith("hudi_ingest_lag")]


def test_counters_only_grow_while_commits_are_archived_and_ledger_rows_deleted() -> None:
    pruned = replace(SCENE, ledger=replace(LEDGER, rows={}, open={}, requests={}))
    before, after = values(families(SCENE)), values(families(pruned))
    counted = {metric.name for metric in METRICS if metric.kind != "gauge"}
    assert {key: value for key, value in before.items() if key[0] in counted} == {
        key: value for key, value in after.items() if key[0] in counted
    }


def test_without_a_ledger_and_dagster_the_rest_is_there() -> None:
    found = values(families(replace(SCENE, ledger=None, dagster_up=None)))
    assert found[("hudi_ingest_ledger_up",)] == 0
    assert ("hudi_ingest_dagster_up",) not in found
    assert ("hudi_ingest_transactions_total", "orders", "aborted") not in found
    assert found[("hudi_ingest_rows_total", "orders", "ingest")] == 100


def test_prometheus_reads_the_same_in_both_of_its_formats() -> None:
    client = TestClient(metrics_app(lambda: families(SCENE)))
    plain = client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    openmetrics = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    for read in (parse_plain(plain.text), parse_openmetrics(openmetrics.text)):  # type: ignore[no-untyped-call]
        samples = {(s.name, *sorted(s.labels.items())): s.value for family in read for s in family.samples}
        assert samples[("hudi_ingest_rows_total", ("kind", "ingest"), ("pipeline", "orders"))] == 100
        buckets = {
            float(key[1][1]): value
            for key, value in samples.items()
            if key[0] == "hudi_ingest_transaction_seconds_bucket"
        }
        assert (buckets[0.5], buckets[1.0], buckets[float("inf")]) == (0, 2, 2), "another version's bounds are kept"
        assert samples[("hudi_ingest_transaction_seconds_sum", ("phase", "total"), ("pipeline", "orders"))] == 0.7


def test_an_unexpected_error_fails_the_scrape_and_not_the_server() -> None:
    def families_now() -> list[Family]:
        raise RuntimeError("no")

    client = TestClient(metrics_app(families_now), raise_server_exceptions=False)
    assert client.get("/metrics").status_code == 500


@contextmanager
def collector_of_otlp(status: int) -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            bodies.append(self.body())
            self.answer(status)

    with serving(Handler) as url:
        yield url, bodies


def test_opentelemetry_gets_the_same_values_when_its_variables_name_an_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not is_configured({})
    assert not is_configured({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"})
    with collector_of_otlp(200) as (url, bodies):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=lake")
        assert is_configured()
        export = OtlpExport(lambda: families(SCENE))
        export.start()
        export.stop()
    [body] = bodies
    [resource] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    attributes = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
    assert (attributes["service.name"], attributes["team"]) == ("hudi-ingest", "lake")
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert metrics.keys() == {family.metric.name for family in families(SCENE)}
    rows = metrics["hudi_ingest_rows_total"].sum
    assert rows.is_monotonic
    assert {point.attributes[1].value.string_value: point.as_double for point in rows.data_points} == {
        "ingest": 100,
        "replay": 9,
    }
    [point] = metrics["hudi_ingest_transaction_seconds"].histogram.data_points
    assert (point.count, point.sum, len(point.bucket_counts)) == (2, 0.7, len(point.explicit_bounds) + 1)
    assert (metrics["hudi_ingest_lag_seconds"].unit, point.HasField("min")) == ("s", False)


def test_an_export_that_is_refused_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collector_of_otlp(400) as (url, _):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        export = OtlpExport(lambda: families(SCENE))
        assert [export.export(), export.export()] == [False, False]
    assert len([record for record in caplog.records if record.name == "hudi_ingest.metrics.exporters"]) == 1


def test_an_endpoint_that_never_answers_holds_up_neither_the_metrics_nor_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    with silent_server() as address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address}")
        export = OtlpExport(lambda: families(SCENE))
        began = time.monotonic()
        export.start()
        assert not export.export()
        export.stop()
    assert time.monotonic() - began < 30
    assert "metrics could not be exported" in caplog.text
