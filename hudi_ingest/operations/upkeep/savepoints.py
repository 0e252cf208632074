"""Savepoints of a pipeline's table: made before commands that remove or rewrite rows, listed, deleted and restored.

A savepoint keeps its commit's files from cleaning, and Hudi's archival stops at the oldest one, so ticks read an ever longer
timeline while it exists. Scheduled jobs make none for that reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from hudi_ingest.exceptions import NoSuchSavepoint, NothingToDo, TransactionInFlight
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.services.savepoints import HudiSavepoints, Savepoint
from hudi_ingest.hudi.storage.paths import HOODIE
from hudi_ingest.hudi.timeline.ownership import require_own_table
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep.service_log import connected
from hudi_ingest.pipeline.pipeline import Pipeline

_logger = logging.getLogger(__name__)


class SavepointsClient(Protocol):
    """The calls to Hudi; see hudi/services/savepoints.py."""

    def list(self) -> tuple[Savepoint, ...]: ...
    def newest_commit(self) -> str | None: ...
    def create(self, instant: str, comment: str) -> None: ...
    def delete(self, instant: str) -> None: ...
    def restore(self, instant: str) -> None: ...


@dataclass(frozen=True)
class Savepoints:
    """Savepoints of one pipeline's table. Every method raises TableUnreachable and EngineLost."""

    pipeline: Pipeline
    ledger: Ledger
    client: SavepointsClient

    def list(self) -> tuple[Savepoint, ...]:
        return self.client.list() if self._exists() else ()

    def create(self, why: str, report: Callable[[str], None]) -> str | None:
        """Make a savepoint of the newest commit, unless it has one, and return its instant; None if the table has no commit."""
        instant = self.client.newest_commit() if self._exists() else None
        if instant is None:
            return None
        if instant not in {savepoint.instant for savepoint in self.client.list()}:
            self.client.create(instant, why)
        report(
            f"savepoint {instant}: `hudi-ingest savepoints {self.pipeline.name} --restore {instant}` takes back what follows; "
            f"delete it with --delete {instant} once that is not needed, because nothing is archived while it exists"
        )
        return instant

    def delete(self, instant: str) -> None:
        """Raises NoSuchSavepoint."""
        self._require(instant)
        self.client.delete(instant)

    def restore(self, instant: str, report: Callable[[str], None]) -> None:
        """Take back all commits after the savepoint, with their checkpoint: the next transaction reads their offsets again.

        Raises NoSuchSavepoint, and TransactionInFlight if a transaction, a request or services are at work.
        """
        self._require(instant)
        table = self.pipeline.table.base_path
        with (
            self.ledger.table_lock(f"{table}/{HOODIE}/services", timeout_seconds=1, unfenced=True),
            self.ledger.table_lock(table, unfenced=True),
        ):
            opened = self.ledger.transactions.open_in(table)
            if opened is not None:
                raise TransactionInFlight(
                    f"table {table}: transaction {opened.transaction_id} is open, owned by {opened.owner}. Nothing was changed. "
                    f"Pause the pipeline (`hudi-ingest pause {self.pipeline.name}`), wait until its run has ended, and try again."
                )
            self._require_no_request()
            report(f"restoring {table} to savepoint {instant}")
            self.client.restore(instant)

    def _require_no_request(self) -> None:
        # A replay's progress is in the ledger: what the restore took back would count as replayed.
        active = self.ledger.requests.active(self.pipeline.name)
        if active:
            raise TransactionInFlight(
                f"table {self.pipeline.table.base_path}: request {active[0].request_id} is active. Nothing was changed. Wait until it "
                f"is done, or cancel it (`hudi-ingest requests cancel {active[0].request_id}`), and try again; file it again "
                "afterwards if it is still needed."
            )

    def _exists(self) -> bool:
        timeline = Timeline.of(self.pipeline.table)
        if not timeline.exists():
            return False
        require_own_table(self.pipeline, timeline.properties())
        return True

    def _require(self, instant: str) -> None:
        instants = [savepoint.instant for savepoint in self.list()]
        if instant not in instants:
            raise NoSuchSavepoint(
                f"table {self.pipeline.table.base_path} has no savepoint {instant}; there is "
                f"{', '.join(instants) if instants else 'none'}. Nothing was changed."
            )


@contextmanager
def savepoints_of(
    pipeline: Pipeline, home: Home | None = None, report: Callable[[str], None] = _logger.info
) -> Iterator[Savepoints]:
    """Yield the savepoints of the pipeline's table. Attaches to a running engine, else starts Spark in this process."""
    with connected(pipeline, home or Home.from_environment(), report) as (spark, ledger):
        yield Savepoints(pipeline, ledger, HudiSavepoints(spark, pipeline))


def list_savepoints(pipeline: Pipeline, home: Home) -> tuple[Savepoint, ...]:
    """Return the savepoints of the pipeline's table, oldest first."""
    with savepoints_of(pipeline, home) as savepoints:
        return savepoints.list()


def create_savepoint(pipeline: Pipeline, home: Home, comment: str) -> Savepoint:
    """Make a savepoint of the newest commit, unless it has one, and return it. Raises NothingToDo if the table has no commit."""
    with savepoints_of(pipeline, home) as savepoints:
        instant = savepoints.create(comment, _logger.info)
        if instant is None:
            raise NothingToDo(pipeline.name, "the table has no commit yet")
        return next(savepoint for savepoint in savepoints.list() if savepoint.instant == instant)


def delete_savepoint(pipeline: Pipeline, home: Home, instant: str) -> None:
    """Delete a savepoint. Raises NoSuchSavepoint."""
    with savepoints_of(pipeline, home) as savepoints:
        savepoints.delete(instant)
