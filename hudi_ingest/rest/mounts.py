"""What `hudi-ingest serve` has beside the API: the pages for people, and /metrics, which it exports by OpenTelemetry if that is
configured. Both show what one collector has seen."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from starlette.types import ASGIApp

from hudi_ingest.home.folder import Home
from hudi_ingest.metrics.collector import Collector
from hudi_ingest.orchestration.reports.instance_view import InstanceView
from hudi_ingest.pipeline.extras import require
from hudi_ingest.rest.pages import FLEET, PIPELINE, Pages

METRICS = "/metrics"
_logger = logging.getLogger(__name__)


@contextmanager
def mounts(home: Home) -> Iterator[Mapping[str, ASGIApp]]:
    """Yield the applications by their paths; /metrics is missing without the extra `metrics`, which is logged."""
    with ExitStack() as resources:
        view = resources.enter_context(closing(InstanceView(home)))
        collector = resources.enter_context(closing(Collector(home, view)))
        pages = Pages(home, collector.scene)
        applications: dict[str, ASGIApp] = {FLEET: pages, PIPELINE: pages}
        try:
            require("metrics")
        except ValueError as error:
            _logger.warning("there is no %s, because it %s", METRICS, error)
        else:
            from hudi_ingest.metrics.exporters import OtlpExport, is_configured, metrics_app

            if is_configured():
                export = OtlpExport(collector.families)
                export.start()
                resources.callback(export.stop)
            applications[METRICS] = metrics_app(collector.families)
        yield applications
