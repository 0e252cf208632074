"""Hands the metrics on: to Prometheus in its text format, or in OpenMetrics if the scraper asks for it; and by OpenTelemetry (OTLP over
HTTP), configured by OpenTelemetry's own environment variables.

The SDK has no asynchronous histogram, and would count a second time what is counted already, so its exporter gets the data points
directly.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as PrometheusMetric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as PrometheusCollector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import hudi_ingest
from hudi_ingest.metrics.definitions import Distribution, Family, Metric

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export


_PLAIN = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
_logger = logging.getLogger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_MILLISECONDS = 60_000.0


def metrics_app(families: Callable[[], Sequence[Family]]) -> ASGIApp:
    """Build the ASGI application that answers a scrape."""
    registry = CollectorRegistry()
    registry.register(_Families(families))

    async def scrape(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # A scene waits for brokers and disks, and the server has other requests.
        text = await run_in_threadpool(encode, registry)
        await Response(text, media_type=content_type)(scope, receive, send)

    return scrape


class _Families(PrometheusCollector):
    def __init__(self, families: Callable[[], Sequence[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[PrometheusMetric]:
        return map(prometheus_family, self._families())

    def describe(self) -> Iterator[PrometheusMetric]:
        """Yield nothing, so that registering collects no scene."""
        return iter(())


def prometheus_family(family: Family) -> PrometheusMetric:
    metric = family.metric
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in family.samples.items():
            assert isinstance(value, Distribution)
            histogram.add_metric(labels, _cumulative(value), value.sum)
        return histogram
    plain: CounterMetricFamily | GaugeMetricFamily = _PLAIN[metric.kind](metric.name, metric.help, labels=metric.labels)
    for labels, value in family.samples.items():
        assert not isinstance(value, Distribution)
        plain.add_metric(labels, value)
    return plain


def _cumulative(distribution: Distribution) -> list[tuple[str, float]]:
    buckets, total = [], 0
    for bound, count in distribution.counts:
        total += count
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
    return buckets


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether OpenTelemetry's variables name an endpoint, and do not turn it off."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not off and any(environment.get(name) for name in _ENDPOINTS)


class OtlpExport:
    """Exports now and then until it is stopped. The first failure in a row is logged; a failed export is made up for by the next,
    because values are cumulative."""

    def __init__(self, families: Callable[[], Sequence[Family]], environment: Mapping[str, str] = os.environ) -> None:
        """Raises ModuleNotFoundError without the extra `metrics`."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._families = families
        self._seconds = float(environment.get(_INTERVAL) or _DEFAULT_MILLISECONDS) / 1000
        self._exporter = OTLPMetricExporter()
        self._began = time.time_ns()
        self._stopped = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Export a last time, and end."""
        self._stopped.set()
        self._thread.join()
        self._exporter.shutdown()

    def export(self) -> bool:
        """Export the current values; returns whether they arrived."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        try:
            data = metrics_data(self._families(), self._began, time.time_ns())
            arrived = self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception:
            # Broad, because whatever goes wrong now, the next export should be tried.
            _logger.exception("metrics could not be exported")
            return False
        if not arrived and not self._has_failed:
            _logger.warning("metrics could not be exported; see the exporter's own message. The export is retried.")
        self._has_failed = not arrived
        return arrived

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.export()
        self.export()


def metrics_data(families: Sequence[Family], began: int, now: int) -> export.MetricsData:
    """Convert families to OpenTelemetry's; times are nanoseconds since 1970."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    scope = InstrumentationScope("hudi_ingest", hudi_ingest.__version__)
    metrics = [_metric(family, began, now) for family in families]
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "hudi-ingest"}))
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric(family: Family, began: int, now: int) -> export.Metric:
    from opentelemetry.sdk.metrics import export

    cumulative = export.AggregationTemporality.CUMULATIVE
    metric = family.metric
    if metric.kind == "histogram":
        histogram_points = [
            _histogram_point(metric, labels, value, began, now)
            for labels, value in family.samples.items()
            if isinstance(value, Distribution)
        ]
        return export.Metric(metric.name, metric.help, _unit(metric), export.Histogram(histogram_points, cumulative))
    points = [
        export.NumberDataPoint(_attributes(metric, labels), began if metric.kind == "counter" else 0, now, float(value))
        for labels, value in family.samples.items()
        if not isinstance(value, Distribution)
    ]
    data = export.Sum(points, cumulative, is_monotonic=True) if metric.kind == "counter" else export.Gauge(points)
    return export.Metric(metric.name, metric.help, _unit(metric), data)


def _histogram_point(
    metric: Metric, labels: tuple[str, ...], value: Distribution, began: int, now: int
) -> export.HistogramDataPoint:
    from opentelemetry.sdk.metrics import export

    return export.HistogramDataPoint(
        attributes=_attributes(metric, labels),
        start_time_unix_nano=began,
        time_unix_nano=now,
        count=value.count,
        sum=value.sum,
        bucket_counts=[count for _, count in value.counts],
        explicit_bounds=[bound for bound, _ in value.counts if bound != math.inf],
        # Unknown: only what falls into a bucket is counted.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))


def _unit(metric: Metric) -> str:
    return {"seconds": "s", "bytes": "By"}.get(metric.unit, "1")
