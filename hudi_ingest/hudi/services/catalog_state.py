"""A table's known state in its catalog, so that the catalog is only asked when a commit has brought something new to it.

The knowledge is a file of the table. Losing it costs one sync.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.storage.paths import CATALOG_STATE
from hudi_ingest.hudi.storage.storage import TableStorage, reaching
from hudi_ingest.hudi.timeline.timeline import CommittedInstant

RECENT_PARTITIONS = 1000
"""Number of partitions remembered. A commit to an older one costs a sync that changes nothing."""
COMMITS_BEHIND = 10
"""Commits without anything new after which the state moves on to them: archival must not reach it, as the table keeps
at least twice as many."""
FIRST_RETRY_SECONDS = 30
LONGEST_RETRY_SECONDS = 900


@dataclass(frozen=True, slots=True)
class FailedSync:
    """Why the newest sync failed, when (in UTC), and how many have failed in a row."""

    at: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True)
class CatalogState:
    """The catalog's state: it has every commit up to `completed_at`, which is the completion of `instant`. `completed_at` is ISO 8601
    in UTC, "" before the first sync."""

    catalog: str = ""
    instant: str = ""
    completed_at: str = ""
    schema: str = ""
    """A digest of the newest commit's schema."""
    partitions: tuple[str, ...] = ()
    """Paths of the partitions written last, newest first."""
    failure: FailedSync | None = None

    @property
    def retry_at(self) -> datetime | None:
        """When a sync that failed is due again, None if none failed."""
        if self.failure is None:
            return None
        wait = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self.failure.tries - 1, 10))
        return datetime.fromisoformat(self.failure.at) + timedelta(seconds=wait)

    def may_try(self, now: datetime) -> bool:
        """Whether it has been long enough since the last failed sync."""
        return self.retry_at is None or now >= self.retry_at

    def failed(self, error: str, now: datetime) -> CatalogState:
        tries = 1 + (self.failure.tries if self.failure else 0)
        return replace(self, failure=FailedSync(now.isoformat(), tries, error))

    def with_commits(self, catalog: str, commits: Sequence[CommittedInstant]) -> CatalogState:
        """The state once `catalog` has these commits, newest first."""
        written = dict.fromkeys(partition for commit in commits for partition in partitions_of(commit))
        partitions = dict.fromkeys([*written, *self.partitions])
        return CatalogState(
            catalog=catalog,
            instant=commits[0].instant,
            completed_at=commits[0].completed_at.isoformat(),
            schema=_schema_of(commits),
            partitions=tuple(partitions)[:RECENT_PARTITIONS],
        )

    def unsynced(self, commits: Sequence[CommittedInstant]) -> list[CommittedInstant]:
        """Return the commits that completed after the last one the catalog has."""
        if not self.completed_at:
            return [*commits]
        since = datetime.fromisoformat(self.completed_at)
        return [commit for commit in commits if commit.completed_at > since]

    def news(self, catalog: str, commits: Sequence[CommittedInstant]) -> str:
        """Return what `catalog` lacks, as text; "" if nothing. `commits`: all on the active timeline, newest first."""
        if not commits:
            return ""
        if self.catalog != catalog:
            return "it is not there yet" if not self.catalog else f"previously it was in {self.catalog}"
        later = self.unsynced(commits)
        if len(later) == len(commits):
            return "commits that it does not have are already archived"
        if _schema_of(commits) != self.schema:
            return "its columns have changed"
        new = dict.fromkeys(partition for commit in later for partition in partitions_of(commit))
        for known in self.partitions:
            new.pop(known, None)
        if new:
            return f"{counted(len(new), 'partition')} may be missing there, such as {next(iter(new))}"
        if any(commit.operation == "DELETE_PARTITION" for commit in later):
            return "partitions were dropped"
        return ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> CatalogState:
        """Raises ValueError, TypeError."""
        content = json.loads(text)
        failure = content.pop("failure")
        partitions = tuple(content.pop("partitions"))
        return cls(**content, partitions=partitions, failure=FailedSync(**failure) if failure else None)


def partitions_of(commit: CommittedInstant) -> Iterable[str]:
    """The paths of the partitions that the commit wrote to; "" is a table without partitions."""
    return {path.rpartition("/")[0]: None for path in commit.files}


def read_state(storage: TableStorage, path: str = CATALOG_STATE) -> CatalogState:
    """Read what the catalog is known to have. A damaged file counts as none. Raises TableUnreachable."""
    with reaching(storage, f"read {path}"):
        try:
            return CatalogState.from_json(storage.read(path).decode())
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            # It only saves syncs, and the next one writes it anew.
            return CatalogState()


def write_state(storage: TableStorage, state: CatalogState, path: str = CATALOG_STATE) -> None:
    """Raises TableUnreachable."""
    with reaching(storage, f"write {path}"):
        storage.replace(path, state.to_json().encode())


def _schema_of(commits: Sequence[CommittedInstant]) -> str:
    schema = next((commit.metadata["schema"] for commit in commits if commit.metadata.get("schema")), "")
    return hashlib.sha256(schema.encode()).hexdigest()[:16]
