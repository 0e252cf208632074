"""Serves the metrics to Prometheus: its text format, or OpenMetrics if the scraper asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as PrometheusMetric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as PrometheusCollector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hudi_ingest.metrics.definitions import Distribution, Family

_PLAIN = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def metrics_app(families: Callable[[], Sequence[Family]]) -> ASGIApp:
    """Build the ASGI application that answers a scrape."""
    registry = CollectorRegistry()
    registry.register(_Families(families))

    async def scrape(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # A look waits for brokers and disks, and the server has other requests.
        text = await run_in_threadpool(encode, registry)
        await Response(text, media_type=content_type)(scope, receive, send)

    return scrape


class _Families(PrometheusCollector):
    def __init__(self, families: Callable[[], Sequence[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[PrometheusMetric]:
        return map(prometheus_family, self._families())

    def describe(self) -> Iterator[PrometheusMetric]:
        """Nothing, so that registering does not look at everything."""
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
