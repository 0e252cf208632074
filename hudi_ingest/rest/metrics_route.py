"""What `hudi-ingest serve` has at /metrics, and exports by OpenTelemetry if that is configured."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from starlette.types import ASGIApp

from hudi_ingest.home.folder import Home
from hudi_ingest.orchestration.reports.instance_view import InstanceView
from hudi_ingest.pipeline.extras import require

PATH = "/metrics"
_logger = logging.getLogger(__name__)


@contextmanager
def metrics_route(home: Home) -> Iterator[Mapping[str, ASGIApp]]:
    """Yield the application by its path; empty without the extra `metrics`, which is logged."""
    try:
        require("metrics")
    except ValueError as error:
        _logger.warning("there is no %s, because it %s", PATH, error)
        yield {}
        return
    from hudi_ingest.metrics.collector import Collector
    from hudi_ingest.metrics.otlp import OtlpExport, is_configured
    from hudi_ingest.metrics.prometheus import metrics_app

    with ExitStack() as resources:
        view = resources.enter_context(closing(InstanceView(home)))
        collector = resources.enter_context(closing(Collector(home, view)))
        if is_configured():
            export = OtlpExport(collector.families)
            export.start()
            resources.callback(export.stop)
        yield {PATH: metrics_app(collector.families)}
