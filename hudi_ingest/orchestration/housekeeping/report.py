"""What housekeeping has deleted, in numbers and as a sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hudi_ingest.exceptions.problems import counted


@dataclass(frozen=True, slots=True)
class HousekeepingReport:
    """What was deleted or, in a dry run, would be. `freed_bytes`: of files on this machine; a PostgreSQL server reuses the space of
    deleted rows itself."""

    dry_run: bool
    runs: int
    events: int
    ticks: int
    transactions: int
    requests: int
    topics: int
    """Topics of templates that have no pipeline."""
    files: int
    """Expired files of tables: dead letters, listings, and instants put aside."""
    snapshots: int
    """Of jobs, that no run has any more."""
    deleted_pipelines: tuple[str, ...]
    """Pipelines without a file of which everything goes; it is counted above."""
    unreadable: tuple[str, ...]
    """Why tables could not be looked at."""
    freed_bytes: int
    runs_left: int
    """Runs of ours that remain, whatever their state."""
    database_bytes: int
    """Size of Dagster's and the ledger's SQLite databases now, without those of single runs."""
    runs_expired: int
    """Those that are left for the next time, when time runs out, are in it."""

    @property
    def complete(self) -> bool:
        """Whether nothing expired is left for the next time."""
        return self.runs == self.runs_expired

    @property
    def deleted(self) -> int:
        parts = (
            self.runs,
            self.events,
            self.ticks,
            self.transactions,
            self.requests,
            self.topics,
            self.files,
            self.snapshots,
        )
        return sum(parts)

    @property
    def due(self) -> int:
        return self.deleted + self.runs_expired - self.runs

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers and lists: Dagster takes no tuple as metadata."""
        facts = asdict(self)
        del facts["runs_expired"]
        names = {"deleted_pipelines": list(self.deleted_pipelines), "unreadable": list(self.unreadable)}
        return {**facts, **names, "complete": self.complete}

    @property
    def sentence(self) -> str:
        done = "would delete" if self.dry_run else "deleted"
        counts = (
            (self.runs, "run", ""),
            (self.events, "event", ""),
            (self.ticks, "tick", ""),
            (self.transactions, "transaction", " of the ledger"),
            (self.requests, "request", ""),
            (self.topics, "topic", " of deleted templates"),
            (self.files, "file", " of tables"),
            (self.snapshots, "snapshot", " of jobs"),
        )
        parts = [f"{counted(count, name)}{place}" for count, name, place in counts if count]
        sizes = [counted(self.freed_bytes, "byte")] if parts or self.freed_bytes else ["nothing"]
        what = ", ".join([*parts, *sizes])
        rest = "" if self.complete else " Time ran out; the next run continues."
        gone = f" All of {', '.join(self.deleted_pipelines)}, which no file has." if self.deleted_pipelines else ""
        tables = "".join(f" {text}" for text in self.unreadable)
        return f"Housekeeping {done} {what}.{gone}{rest}{tables}"
