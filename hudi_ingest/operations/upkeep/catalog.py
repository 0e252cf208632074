"""Sync a table to its catalog by hand, whatever is known about the catalog."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.services.catalog_client import CatalogClient
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.catalog_sync import CatalogSync

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncedTable:
    """The outcome. `lacked`: what the catalog was known to lack, "" if nothing."""

    pipeline: str
    base_path: str
    catalog: str
    lacked: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sync_catalog(
    pipeline: Pipeline, *, home: Home | None = None, report: Callable[[str], None] = _logger.info
) -> SyncedTable:
    """Sync the table now, and compare all its partitions with the catalog's.

    Attaches to a running engine, else starts Spark in this process. Raises NothingToDo if the pipeline has no catalog or the
    table no commit; otherwise what `CatalogSync.in_full` raises.
    """
    if pipeline.catalog is None:
        raise NothingToDo(pipeline.name, "its file names no catalog")
    table = PipelineTable(pipeline)
    commits = table.timeline.completed() if table.timeline.exists() else ()
    if not commits:
        raise NothingToDo(pipeline.name, f"the table at {pipeline.table.base_path} has no commit yet")
    lacked = read_state(table.storage).news(pipeline.catalog_place, commits)
    report(f"{pipeline.name}: connecting to Spark")
    client = CatalogClient(current_session(home or Home.from_environment()), pipeline)
    report(f"{pipeline.name}: syncing to {pipeline.catalog_place}")
    began = time.monotonic()
    CatalogSync(pipeline, table, client).in_full(pipeline.catalog)
    seconds = round(time.monotonic() - began, 3)
    return SyncedTable(pipeline.name, pipeline.table.base_path, pipeline.catalog_place, lacked, seconds)
