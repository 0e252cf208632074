"""A pipeline's table: its timeline, its storage, and what the pipeline itself has committed to it: its checkpoint, judged by all completed
instants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from hudi_ingest.exceptions import OffsetsLost, TableMismatch, TableUnreachable
from hudi_ingest.hudi.files.live_files import unlisted_files
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.other_writers import HUDI_STREAMER, last_ingest, other_writer
from hudi_ingest.hudi.timeline.ownership import require_metadata_table
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY, CommittedInstant, Timeline, instant_time
from hudi_ingest.model.accounting import transaction_id_of
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import FieldsSeen
from hudi_ingest.pipeline.pipeline import Pipeline

NEWEST_COMMITS = 20
"""Maximum number of transactions in a CommittedState."""

LISTED_COMMITS = 10
"""Newest commits whose files are looked for in the table's list: before each transaction, so that every commit is looked at several times."""


@dataclass(frozen=True, slots=True)
class CommittedState:
    """One pipeline's committed state in its table. `checkpoint` is None before the first commit."""

    exists: bool
    checkpoint: Checkpoint | None = None
    checkpoint_text: str | None = None
    """The checkpoint's exact text in the commit, which the commit guard compares."""
    last_began_at: datetime | None = None
    """When the pipeline's newest instant that moved its offsets began."""
    last_committed_at: datetime | None = None
    """When that instant was completed, or when it began if its own commit is archived."""
    last_rejected: int = 0
    """Bad records of the pipeline's last transaction; also 0 if its commit is archived."""
    transactions: tuple[str, ...] = ()
    """Ids of the pipeline's newest transactions on the active timeline, oldest first, at most NEWEST_COMMITS."""
    instants: frozenset[str] = frozenset()
    """Every writer's completed instants on the active timeline, among which the checkpoint is the greatest."""
    commits: tuple[CommittedInstant, ...] = ()
    """Every writer's completed instants on the active timeline, by completion, newest first."""
    last_fields: FieldsSeen | None = None
    """The fields of the pipeline's last transaction; None if unknown."""


def committed_state(timeline: Timeline, checkpoint_key: str, transaction_key: str) -> CommittedState:
    """Read the pipeline's checkpoint: the one with the greatest sequence that an active completed instant carries.

    Not the newest instant's: another writer's commit carries the checkpoint that was current when it began, and may
    sort after our newer commit. Raises TableUnreachable; OffsetsLost when the pipeline's own table has commits but none
    carries its checkpoint, or the checkpoint counts a commit that was rolled back; TableMismatch when another system
    has ingested since.
    """
    if not timeline.exists():
        return CommittedState(exists=False)
    commits = timeline.completed()
    carriers = [
        (commit, _carried_checkpoint(timeline.base_path, commit, checkpoint_key))
        for commit in commits
        if checkpoint_key in commit.metadata
    ]
    if not carriers:
        _require_no_lost_checkpoint(timeline, checkpoint_key, commits)
        return CommittedState(exists=True, commits=commits)
    best_commit, best = max(carriers, key=lambda carrier: carrier[1].sequence)
    own = [(commit, carried) for commit, carried in carriers if transaction_key in commit.metadata]
    own_instants = {commit.instant for commit, _ in own}
    sequences = {commit.instant: 0 for commit in commits}
    sequences |= {commit.instant: carried.sequence for commit, carried in carriers}
    _require_none_missing(timeline, best, sequences, own_instants)
    _require_nobody_ahead(timeline.base_path, best, commits, own_instants)
    newest = best.moved_by or best.instant
    began = instant_time(newest) if newest else None
    completed = next((commit.completed_at for commit, _ in own if commit.instant == newest), began)
    own_commits = {carried.sequence: commit for commit, carried in own}
    newest_commits = [own_commits[sequence] for sequence in sorted(own_commits)[-NEWEST_COMMITS:]]
    transactions = tuple(transaction_id_of(commit.metadata[transaction_key]) for commit in newest_commits)
    last = own_commits.get(best.sequence)
    accounting = last.accounting(transaction_key) if last is not None else None
    rejected, fields = (accounting.rejected, accounting.fields) if accounting else (0, None)
    best_text = best_commit.metadata[checkpoint_key]
    instants = frozenset(commit.instant for commit in commits)
    return CommittedState(True, best, best_text, began, completed, rejected, transactions, instants, commits, fields)


def _require_none_missing(
    timeline: Timeline, checkpoint: Checkpoint, sequences: Mapping[str, int], own: Set[str]
) -> None:
    missing = missing_sequences(checkpoint, sequences, own, ())
    if missing:
        # Archival may keep a savepointed commit when it removes later ones.
        missing = missing_sequences(checkpoint, sequences, own, timeline.savepoints())
    if not missing:
        return
    later = sorted((instant for instant, sequence in sequences.items() if sequence >= missing[0]), reverse=True)
    raise OffsetsLost(
        f"the table at {timeline.base_path} lost rows that its checkpoint counts: another writer rolled back the commit of "
        f"transaction number {', '.join(map(str, missing[:5]))}{' and others' if missing[5:] else ''} of this pipeline, "
        f"but the commits {', '.join(later[:10])}{' and others' if later[10:] else ''}, which carry the checkpoint forward, "
        "remain. Nothing was written. First confirm it: `hudi-ingest files` must show no file of the lost commits (if it "
        "does, archival removed them next to a savepoint that was deleted since: run `CALL archive_commits(table => …)` "
        "and roll nothing back). Then roll these back too, in this order, with `CALL rollback_to_instant(table => …, "
        "instant_time => …)`, or restore an earlier savepoint: the checkpoint goes back with them, and the next "
        "transaction reads the lost offsets again."
    )


def _carried_checkpoint(base_path: str, commit: CommittedInstant, checkpoint_key: str) -> Checkpoint:
    try:
        return Checkpoint.from_json(commit.metadata[checkpoint_key])
    except (ValueError, KeyError, TypeError) as error:
        raise TableUnreachable(
            f"instant {commit.instant} of {base_path} carries a checkpoint under {checkpoint_key} that cannot "
            f"be read ({error}). Upgrade hudi-ingest if a newer version wrote it."
        ) from error


def _require_no_lost_checkpoint(timeline: Timeline, checkpoint_key: str, commits: Sequence[CommittedInstant]) -> None:
    """Raises OffsetsLost when no commit of the pipeline's own table carries its checkpoint."""
    owned = checkpoint_key.endswith(f".{timeline.properties().get(PIPELINE_PROPERTY)}")
    # A table that is being taken over is ours before our first commit to it: see take_over.py.
    if commits and owned and last_ingest(commits) is None:
        # Starting over would ingest everything twice.
        raise OffsetsLost(
            f"the table at {timeline.base_path} belongs to this pipeline, but none of its {len(commits)} active commits carries "
            f"{checkpoint_key}: other writers' commits did not carry it forward and archival removed the last one that "
            "had it, or the table was restored. Nothing was written. Ingest into a table with a new name, or restore a "
            "copy whose commits carry it."
        )


def _require_nobody_ahead(
    base_path: str, checkpoint: Checkpoint, commits: Collection[CommittedInstant], own: Set[str]
) -> None:
    """Raises TableMismatch when another system has ingested the same topics since our last commit.

    Our commits carry Hudi Streamer's key, so it resumes where we ended, but our checkpoint does not count what it reads.
    Other systems resume where they themselves ended, which is where this pipeline took the table over.
    """
    topics = {source.topic for source in checkpoint.offsets}
    ours = max((commit.completed_at for commit in commits if commit.instant in own), default=None)
    for commit in commits:
        writer = other_writer(commit.metadata)
        later = commit.completed_at > ours if ours else commit.instant > checkpoint.instant
        if writer is None or not later:
            continue
        where = (
            f"{writer.name} has written into the table at {base_path} since this pipeline's last commit, in its commit "
            f"{commit.instant}"
        )
        undo = f"roll it back (`CALL rollback_to_instant(table => …, instant_time => '{commit.instant}')`)"
        if writer.name != HUDI_STREAMER:
            # Its topics are unknown, so it only matters if the pipeline took the table over.
            if checkpoint.taken_over:
                raise TableMismatch(
                    f"{where}, after this pipeline took the table over. It does not know what this pipeline has read, so "
                    f"records may be in the table twice. Nothing was written. Stop it and {undo}; then this pipeline continues."
                )
            continue
        offsets = {TopicPartition(writer.topic, number): offset for number, offset in sorted(writer.offsets.items())}
        ahead = [
            f"{source} {offset}" for source, offset in offsets.items() if offset > checkpoint.offsets.get(source, 0)
        ]
        if ahead and writer.topic in topics:
            raise TableMismatch(
                f"{where}. That commit ends at {', '.join(ahead)}, ahead of the committed offsets: continuing from those would "
                f"write its rows a second time, so nothing was written. Stop one of the two. To undo its commit, {undo}. "
                "To continue after it, give the pipeline a new name and set table.take_over: hudi_streamer."
            )


def missing_sequences(
    checkpoint: Checkpoint, sequences: Mapping[str, int], own: Set[str], savepoints: Collection[str]
) -> tuple[int, ...]:
    """Return the numbers of the pipeline's transactions that the checkpoint counts but whose commits were rolled back.

    `sequences` maps active completed instants to the sequence of the checkpoint that each carries, `own` are those that
    wrote theirs. Archival removes the oldest instants first, except `savepoints`, so an instant missing after the oldest
    remaining one was not archived.
    """
    remaining = [instant for instant in sequences if instant not in savepoints]
    present = {sequences[instant] for instant in own}
    archivable = [sequences[instant] for instant in remaining if instant in own]
    if archivable:
        first = min(archivable)
    elif remaining and checkpoint.instant >= min(remaining):
        first = checkpoint.sequence
    else:
        return ()
    return tuple(number for number in range(first, checkpoint.sequence + 1) if number not in present)


class PipelineTable:
    """The table that a pipeline writes to. Each call reads the storage again."""

    def __init__(self, pipeline: Pipeline, timeline: Timeline | None = None) -> None:
        self.pipeline = pipeline
        self.timeline = timeline or Timeline.of(pipeline.table)

    @property
    def storage(self) -> TableStorage:
        return self.timeline.storage

    def committed(self) -> CommittedState:
        """Read the pipeline's checkpoint. Raises what `committed_state` raises."""
        return committed_state(self.timeline, self.pipeline.checkpoint_key, self.pipeline.transaction_key)

    def unlisted(self, commits: Sequence[CommittedInstant], newest: int | None = LISTED_COMMITS) -> dict[str, str]:
        """Compare what the table lists with its commits: return the live files of the `newest` of these, or of all, that it does not list,
        with their instants. `commits`: every writer's on the active timeline, newest first, read before.

        A second look at the whole list must find the same, because others may replace and clean files between the looks at the commits and
        at the list. Raises TableUnreachable, and TableMismatch if the metadata table is gone.
        """
        if commits:
            require_metadata_table(self.storage, self.timeline.properties())
        found: dict[str, str] | None = None
        while commits:
            judged = {commit.instant for commit in commits[:newest]}
            folders = {path.rpartition("/")[0] for commit in commits[:newest] for path in commit.files}
            listed = self.timeline.live_paths(folders if found is None and newest is not None else None)
            missing = {path: at for path, at in unlisted_files(commits, listed).items() if at in judged}
            if missing:
                # Archival keeps a savepoint's commit when it removes those that have replaced its files.
                kept = self.timeline.savepoints()
                missing = {path: instant for path, instant in missing.items() if instant not in kept}
            if not missing or missing == found:
                return missing
            found = missing
            self.timeline.forget()
            commits = self.timeline.completed()
        return {}

    def commits(self) -> tuple[CommittedInstant, ...]:
        """List the pipeline's own completed instants on the active timeline, oldest first. Raises TableUnreachable."""
        return self.timeline.commits_of(self.pipeline.transaction_key)

    def instant_of(self, transaction_id: str) -> str | None:
        """Find the completed instant that published the transaction, or None. Raises TableUnreachable."""
        return self.timeline.instant_of(self.pipeline.transaction_key, transaction_id)
