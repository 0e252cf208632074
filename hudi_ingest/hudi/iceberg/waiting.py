"""The commits that a table's Iceberg metadata lacks, by the state that its publisher has written: pure, without asking the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from hudi_ingest.hudi.services.catalog_state import CatalogState
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.pipeline.pipeline import Pipeline


def waiting_commits(
    pipeline: Pipeline, state: CatalogState, commits: Sequence[CommittedInstant]
) -> tuple[CommittedInstant, ...]:
    """Return the commits that Iceberg does not have yet, newest first. `commits`: all on the active timeline, newest first.

    All, if they are not what was published before: after a restore, or under another name.
    """
    if not commits:
        return ()
    instants = {commit.instant for commit in commits}
    is_gone = state.instant not in instants and state.instant > min(instants)
    later = commits if state.catalog != pipeline.iceberg_table or is_gone else state.unsynced(commits)
    return tuple(commit for commit in later if changes_files(commit, pipeline.transaction_key, pipeline.table.is_keyed))


def due_commits(
    pipeline: Pipeline, state: CatalogState, commits: Sequence[CommittedInstant], now: datetime
) -> tuple[CommittedInstant, ...]:
    """Return the commits that wait, if `table.iceberg.every_seconds` have passed since the newest published one."""
    every = pipeline.table.iceberg.every_seconds if pipeline.table.iceberg else 0
    if state.completed_at and now - datetime.fromisoformat(state.completed_at) < timedelta(seconds=every):
        return ()
    return waiting_commits(pipeline, state, commits)


def changes_files(commit: CommittedInstant, own_key: str, keyed: bool) -> bool:
    """Whether the commit is a snapshot of Iceberg's: a keyed table's own commits only add log files, which its compactions make base files
    of."""
    return not keyed or own_key not in commit.metadata or bool(commit.replaced)
