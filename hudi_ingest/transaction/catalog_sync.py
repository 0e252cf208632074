"""Keeps a table's catalog up to date: after commits that bring something new to it, once more after a failure, and
by hand, whatever is known about the catalog.

A sync that finishes reads the timeline once more. So whichever of two syncs ends last leaves the newest state in the
catalog, even if it began first.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

import pyarrow as pa

from hudi_ingest.exceptions import IngestError, NothingToDo
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.services.catalog_client import CatalogClient
from hudi_ingest.hudi.services.catalog_state import COMMITS_BEHIND, CatalogState, read_state, write_state
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.asset import Catalog
from hudi_ingest.spark.session import current_session

_logger = logging.getLogger(__name__)
_ROUNDS = 3
"""How often one sync is repeated because commits came meanwhile; the next commit or tick does the rest."""


class CatalogWriter(Protocol):
    """What writes to the catalog; see hudi/services/catalog_client.py."""

    def sync(
        self, catalog: Catalog, columns: pa.Schema, state: CatalogState, *, full: bool, complete_through: str = ""
    ) -> None: ...


def complete_through_of(commits: Sequence[CommittedInstant], key: str) -> str:
    """Return the time through which the table is complete by the newest of its commits under this key, in ISO 8601; "" if by none.
    `commits`: newest first."""
    newest = next((commit.metadata[key] for commit in commits if key in commit.metadata), "{}")
    return str(json.loads(newest).get("complete_through") or "")


@dataclass(frozen=True, slots=True)
class CatalogSync:
    """The catalog of one pipeline's table."""

    pipeline: Pipeline
    timeline: Timeline
    writer: CatalogWriter

    def if_due(self, commits: Sequence[CommittedInstant], now: datetime | None = None) -> str:
        """Sync the table if its commits, newest first, bring something new to the catalog, and say what; "" if nothing was done.

        After a failed sync nothing is tried for a while, so that a catalog that is away does not hold up every commit. Raises
        CatalogNotSynced, EngineLost, TableUnreachable.
        """
        if self.pipeline.catalog is None:
            return ""
        now = now or datetime.now(timezone.utc)
        state = read_state(self.timeline.storage)
        news = state.news(self.pipeline.catalog_place, commits)
        if news and state.may_try(now):
            self._sync(self.pipeline.catalog, state, commits, full=False)
            return news
        if not news and len(state.unsynced(commits)) >= COMMITS_BEHIND:
            write_state(self.timeline.storage, state.with_commits(self.pipeline.catalog_place, commits))
        return ""

    def in_full(self, catalog: Catalog) -> None:
        """Sync the table whatever is known about the catalog, and compare all partitions; raises as `if_due`."""
        commits = self.timeline.completed()
        self._sync(catalog, read_state(self.timeline.storage), commits, full=True)

    def _sync(self, catalog: Catalog, state: CatalogState, commits: Sequence[CommittedInstant], *, full: bool) -> None:
        place = self.pipeline.catalog_place
        for _ in range(_ROUNDS):
            known = state if state.catalog == place else CatalogState()
            complete = complete_through_of(commits, self.pipeline.complete_key)
            began = time.monotonic()
            try:
                self.writer.sync(catalog, self.timeline.schema(), known, full=full, complete_through=complete)
            except IngestError as error:
                write_state(self.timeline.storage, state.failed(str(error), datetime.now(timezone.utc)))
                raise
            _logger.info("%s is synced to %s, in %.1f s", self.pipeline.name, place, time.monotonic() - began)
            state = known.with_commits(place, commits)
            write_state(self.timeline.storage, state)
            commits = self.timeline.completed()
            if not state.news(place, commits):
                return


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
    timeline = Timeline.of(pipeline.table)
    commits = timeline.completed() if timeline.exists() else ()
    if not commits:
        raise NothingToDo(pipeline.name, f"the table at {pipeline.table.base_path} has no commit yet")
    lacked = read_state(timeline.storage).news(pipeline.catalog_place, commits)
    report(f"{pipeline.name}: connecting to Spark")
    client = CatalogClient(current_session(home or Home.from_environment(), report=report), pipeline)
    report(f"{pipeline.name}: syncing to {pipeline.catalog_place}")
    began = time.monotonic()
    CatalogSync(pipeline, timeline, client).in_full(pipeline.catalog)
    seconds = round(time.monotonic() - began, 3)
    return SyncedTable(pipeline.name, pipeline.table.base_path, pipeline.catalog_place, lacked, seconds)
