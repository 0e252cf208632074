"""Spark and the ledger for a service of a table, and the notes in the ledger when a service, or housekeeping, begins and how it ends,
for metrics and alerts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyspark.sql import SparkSession

from hudi_ingest.exceptions import IngestError
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger, Service, ServiceRun
from hudi_ingest.ledger.tables import normal_base_path
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session

_LOG = logging.getLogger(__name__)
MERGING_SHARE = 0.25
"""The part of the time that merging files takes at most, of all tables with frequent commits together."""
_COMPETES_SECONDS = 3600
_TURN_MINUTES = 3
"""Within so many minutes each table may have its files merged. All at once, they would keep the cores busy for so long that transactions
fall behind."""


@dataclass
class Work:
    """How much a service finds to do, and how much of it it does, in its own unit. None while unknown."""

    due: int | None = None
    done: int | None = None


@contextmanager
def logged(ledger: Ledger, service: Service, pipeline: Pipeline | None = None) -> Iterator[Work]:
    """Note when the block begins and how it ends; the block says how much there is to do. `pipeline`: None for housekeeping.

    Raises LedgerUnreachable before the block. Afterwards that is only logged, because the work is done.
    """
    table, name = (pipeline.table.base_path, pipeline.name) if pipeline else ("", "")
    began_at, work = datetime.now(timezone.utc), Work()
    ledger.service_runs.began(table, name, service, began_at)

    def note(error: str | None) -> None:
        ended_at = datetime.now(timezone.utc)
        run = ServiceRun(table, service.value, name, began_at, ended_at, error=error, due=work.due, done=work.done)
        try:
            ledger.service_runs.ended(run)
        except IngestError as unnoted:
            _LOG.warning(
                "the ledger could not note how %s of %s ended: %s", service.value, name or "the ledger", unnoted
            )

    try:
        yield work
    except BaseException as error:
        note(f"{type(error).__name__}: {error}")
        raise
    note(None)


def merges_again_at(runs: Iterable[ServiceRun], base_path: str, now: datetime) -> datetime | None:
    """Return from when on the table's files may be merged again, so that merges take at most MERGING_SHARE of the time: as long after
    the last one as it took, times the tables that share the engine. None if it never was. `runs`: the newest of each service and
    table; those tables count that were merged within the last hour."""
    merges = [run for run in runs if run.service in (Service.CLUSTERING.value, Service.COMPACTION.value)]
    table = normal_base_path(base_path)
    own = max((run for run in merges if run.base_path == table), key=lambda run: run.began_at, default=None)
    if own is None:
        return None
    others = {run.base_path for run in merges if (now - run.began_at).total_seconds() < _COMPETES_SECONDS} - {table}
    return own.began_at + timedelta(seconds=(own.seconds or 0.0) * (1 + len(others)) / MERGING_SHARE)


def merged_now(due: Iterable[str], tables: Sequence[str], now: datetime) -> list[str]:
    """Return those of the tables that are `due` whose files are merged in this minute: a third of all at most, each first in its turn."""
    most = -(-len(tables) // _TURN_MINUTES)
    first = int(now.timestamp()) // 60 * most
    turns = {table: (place - first) % len(tables) for place, table in enumerate(tables)}
    return sorted(due, key=turns.__getitem__)[:most]


@contextmanager
def connected(pipeline: Pipeline, home: Home, report: Callable[[str], None]) -> Iterator[tuple[SparkSession, Ledger]]:
    """Open Spark and the ledger for one operation on a table. Raises EngineLost, LedgerUnreachable."""
    report(f"{pipeline.name}: connecting to Spark")
    spark = current_session(home, report=report)
    with Ledger.open(home.ledger_url) as ledger:
        yield spark, ledger
