"""Keeps a table's Iceberg metadata up to date: behind each commit, once more after a failure, and by hand. No failure or delay of a catalog
fails a commit, or delays it beyond `table.iceberg.timeout_seconds`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from hudi_ingest.exceptions import CatalogNotSynced, IngestError, NothingToDo
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.iceberg.steps import Publication, due_commits
from hudi_ingest.hudi.services.catalog_state import CatalogState, read_state, write_state
from hudi_ingest.hudi.storage.paths import ICEBERG_STATE
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline
from hudi_ingest.model.report import SliceReport
from hudi_ingest.pipeline.pipeline import Pipeline

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IcebergSync:
    """The Iceberg metadata of one pipeline's table."""

    pipeline: Pipeline
    timeline: Timeline
    home: Home

    def if_due(
        self, commits: Sequence[CommittedInstant], reports: Iterable[SliceReport] = (), now: datetime | None = None
    ) -> str:
        """Publish what Iceberg lacks of the table's commits, newest first, and say what; "" if nothing was due.

        `reports`: of the newest commit, with the statistics of its files. After a failure nothing is tried for a while. Raises
        CatalogNotSynced, TableUnreachable.
        """
        iceberg = self.pipeline.table.iceberg
        if iceberg is None:
            return ""
        now = now or datetime.now(timezone.utc)
        state = read_state(self.timeline.storage, ICEBERG_STATE)
        due = due_commits(self.pipeline, state, commits, now)
        if not due or not state.may_try(now):
            return ""
        self.publish(reports, at_once=bool(iceberg.every_seconds), seconds=iceberg.timeout_seconds)
        return f"{counted(len(due), 'commit')} to Iceberg"

    def publish(
        self, reports: Iterable[SliceReport] = (), at_once: bool = False, seconds: float | None = None
    ) -> Publication | None:
        """Publish whatever is known of Iceberg's state; None if the table has no commit. `seconds`: how long to wait, None for as long as it
        takes. Raises CatalogNotSynced, TableUnreachable."""
        storage, place = self.timeline.storage, self.pipeline.iceberg_table
        try:
            publication: Publication | None = within(
                seconds, f"Iceberg table {place}", lambda: self._publish(reports, at_once)
            )
        except IngestError as error:
            state = read_state(storage, ICEBERG_STATE)
            write_state(storage, state.failed(str(error), datetime.now(timezone.utc)), ICEBERG_STATE)
            raise
        if publication is not None:
            newest = publication.newest
            state = CatalogState(catalog=place, instant=newest.instant, completed_at=newest.completed_at.isoformat())
            write_state(storage, state, ICEBERG_STATE)
        return publication

    def newest_text(self) -> str:
        """Ask the catalog, and say what it has. Raises CatalogNotSynced."""
        from hudi_ingest.hudi.iceberg.publisher import IcebergPublisher

        iceberg, name = self.pipeline.table.iceberg, self.pipeline.iceberg_table
        seconds = iceberg.timeout_seconds if iceberg is not None else None
        newest = within(
            seconds, f"Iceberg table {name}", IcebergPublisher(self.pipeline, self.timeline, self.home).newest
        )
        return (
            f"{name} has the commit {newest.instant}"
            if newest
            else f"its catalog answers; the next commit makes {name}"
        )

    def _publish(self, reports: Iterable[SliceReport], at_once: bool) -> Publication | None:
        # Imported here, because it is an extra, and slow.
        from hudi_ingest.hudi.iceberg.publisher import IcebergPublisher

        reported = {file.path: file for report in reports for file in (*report.files, *report.copies)}
        return IcebergPublisher(self.pipeline, self.timeline, self.home).publish(reported, at_once)


def within(seconds: float | None, place: str, call: Callable[[], Any]) -> Any:
    """Return the call's result, or raise its error; CatalogNotSynced if it takes longer, and then it goes on in a thread of its own, which
    does no harm: whatever it publishes late, the next publication finds."""
    if seconds is None:
        return call()
    name = f"publish {place}"
    if any(thread.name == name for thread in threading.enumerate()):
        raise CatalogNotSynced(
            f"{place}: an earlier publication still waits for the catalog. The next commit looks again."
        )
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["result"] = call()
        except BaseException as error:  # noqa: BLE001
            outcome["error"] = error

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if "error" in outcome:
        raise outcome["error"]
    if "result" not in outcome:
        raise CatalogNotSynced(
            f"{place}: its catalog has not answered within {seconds:g} s (table.iceberg.timeout_seconds). The commit is not affected; "
            "check that the catalog is up."
        )
    return outcome["result"]


def publish_iceberg(pipeline: Pipeline, *, home: Home | None = None) -> Publication:
    """Publish the table's commits to its Iceberg catalog now, without Spark.

    Raises NothingToDo if the pipeline has no `table.iceberg` or the table no commit; CatalogNotSynced, TableUnreachable.

        publish_iceberg(load_pipeline(Path("pipelines/orders.yaml"))).newest.snapshot_id
    """
    if pipeline.table.iceberg is None:
        raise NothingToDo(pipeline.name, "its file has no table.iceberg")
    timeline = Timeline.of(pipeline.table)
    sync = IcebergSync(pipeline, timeline, home or Home.from_environment())
    publication = sync.publish() if timeline.exists() else None
    if publication is None:
        raise NothingToDo(pipeline.name, f"the table at {pipeline.table.base_path} has no commit yet")
    return publication
