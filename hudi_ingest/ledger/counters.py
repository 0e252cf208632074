"""Counts per Hudi table that only grow, whatever housekeeping deletes from the other tables."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import sqlalchemy as sa

from hudi_ingest.ledger.database import Repository, inserting
from hudi_ingest.ledger.tables import COUNTERS, normal_base_path

ABORTED = "aborted"
ATTEMPTS_FAILED = "attempts_failed"
RETRIES = "retries"
BEGINS_REFUSED = "begins_refused"
LOCK_WAITS = "lock_waits"
LOCK_WAIT_SECONDS = "lock_wait_seconds"
TICK_FAILURES = "tick_failures/"
"""Before the error's class."""
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Upper bounds of the buckets of transaction seconds; a last one has no bound."""
SERVICES = "services/"
"""Before the service, a slash, and how its run ended."""
SUCCEEDED = "succeeded"
FAILED = "failed"
SECONDS = "seconds/"
SUM = "sum"
UNBOUNDED = "+Inf"


class Counters(Repository):
    """Counters of each table that only grow, for metrics."""

    def read(self) -> dict[str, dict[str, float]]:
        """Return all tables' counters, by base path and name."""
        with self._database.reading() as connection:
            return read(connection)

    def add(self, table: str, counts: Mapping[str, float]) -> None:
        """Add to the counters of the Hudi table at base path `table`; the names are above."""
        with self._database.writing() as connection:
            add(connection, normal_base_path(table), counts)


def timed(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of one transaction, by its seconds per phase: one in a bucket of each phase, and the sum."""
    counts = {}
    for phase, value in seconds.items():
        index = bisect_left(BUCKETS, value)
        counts[f"{SECONDS}{phase}/{BUCKETS[index] if index < len(BUCKETS) else UNBOUNDED}"] = 1.0
        counts[f"{SECONDS}{phase}/{SUM}"] = value
    return counts


def add(connection: sa.Connection, base_path: str, counts: Mapping[str, float]) -> None:
    """Count in the caller's database transaction, so that a count changes exactly when what it counts does."""
    if not counts:
        return
    # In one order everywhere, so that two processes never wait for each other's rows.
    rows = [{"base_path": base_path, "name": name, "value": float(counts[name])} for name in sorted(counts)]
    statement = inserting(connection, COUNTERS)
    grown = {"value": COUNTERS.c.value + statement.excluded.value}
    connection.execute(statement.on_conflict_do_update(index_elements=["base_path", "name"], set_=grown), rows)


def read(connection: sa.Connection) -> dict[str, dict[str, float]]:
    counts: dict[str, dict[str, float]] = {}
    for base_path, name, value in connection.execute(sa.select(COUNTERS)):
        counts.setdefault(base_path, {})[name] = value
    return counts
