"""Files that are no longer needed: the sweep finds those that no transaction will ever need, and optionally deletes them; housekeeping
deletes the leftovers below `.hoodie/hudi_ingest`.

A write op that was paused may finish a base file after its instant was rolled back or published, and die before it
deletes the file. No listing has that file, but readers that list folders themselves would show its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from hudi_ingest.exceptions import TableUnreachable, TransactionInFlight
from hudi_ingest.exceptions.problems import listed
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.live_files import SHOWN, hidden_text, live_files
from hudi_ingest.hudi.files.orphans import (
    MANIFEST,
    PARTIAL,
    Archive,
    Findings,
    KeptFile,
    Orphan,
    judge_archived,
    judge_files,
    judge_uploads,
    undecided_instants,
)
from hudi_ingest.hudi.storage.paths import (
    COPIED_LETTERS,
    DEAD_LETTERS,
    HEARTBEATS,
    HISTORY,
    HOODIE,
    MARKERS,
    METADATA_HISTORY,
    METADATA_TIMELINE,
    OWN_FILES,
    PUT_ASIDE,
    TIMELINE,
)
from hudi_ingest.hudi.storage.storage import StoredFile, TableStorage, Upload, advice
from hudi_ingest.hudi.timeline.archived_commits import archived_commits
from hudi_ingest.hudi.timeline.ownership import require_own_table
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline, instant_time, is_instant
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.ledger import Ledger, Service
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.operations.upkeep.service_log import connected, logged
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog, listed_paths

_logger = logging.getLogger(__name__)
DEFAULT_HOURS = 6.0
_LONGEST_HOURS = 24 * 3650
_PROGRESS_FILES = 1000


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The orphans that a sweep found at `at`; `deleted` says whether it also deleted them."""

    pipeline: str
    base_path: str
    at: datetime
    safe_age: timedelta
    orphans: tuple[Orphan, ...]
    kept: tuple[KeptFile, ...]
    """Files that look like orphans, but may be needed or are not this pipeline's."""
    deleted: bool
    unlisted: Mapping[str, str] = field(default_factory=dict)
    """Live files of commits that the table does not list, with their instants: it hides their rows."""

    @property
    def problem(self) -> str:
        """Say that the table hides rows, and what to do; "" if it does not."""
        return hidden_text(self.pipeline, self.base_path, self.unlisted) if self.unlisted else ""

    @property
    def size_bytes(self) -> int:
        return sum(orphan.file.size_bytes for orphan in self.orphans)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each orphan, for users' scripts."""
        return [
            {
                **self._row(orphan),
                "kafka_partition": orphan.origin.partition if orphan.origin else None,
                "first_offset": orphan.origin.first_offset if orphan.origin else None,
                "why": orphan.reason,
            }
            for orphan in self.orphans
        ]

    def kept_rows(self) -> list[dict[str, Any]]:
        """Return a row for each file that is left although the table does not list it, with the reason."""
        return [{**self._row(kept), "why": kept.reason} for kept in self.kept]

    def _row(self, found: Orphan | KeptFile) -> dict[str, Any]:
        return {
            "path": found.file.path,
            "bytes": found.file.size_bytes,
            "age_hours": round((self.at - found.file.modified).total_seconds() / 3600, 1),
            "instant": found.instant,
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "base_path": self.base_path,
            "older_than_hours": round(self.safe_age.total_seconds() / 3600, 3),
            "deleted": self.deleted,
            "bytes": self.size_bytes,
            "orphans": self.rows(),
            "kept": self.kept_rows(),
            "unlisted": dict(self.unlisted),
            "problem": self.problem,
        }


def safe_age(pipeline: Pipeline, hours: float | None) -> timedelta:
    """Return how old a file must be to be swept: `hours`, or by default 6 hours, but at least twice the transaction timeout.

    Raises ValueError if `hours` is less than that minimum.
    """
    least = 2 * pipeline.transaction.timeout_seconds / 3600
    if hours is None:
        return timedelta(hours=max(DEFAULT_HOURS, least))
    if not least <= hours <= _LONGEST_HOURS:
        raise ValueError(
            f"found {hours:g} hours, but transactions may still be writing files younger than {least:g} hours (twice the "
            f"timeout_seconds of pipeline {pipeline.name}). Give {least:g} to {_LONGEST_HOURS} hours."
        )
    return timedelta(hours=hours)


@dataclass(frozen=True)
class Sweep:
    """Sweeps one pipeline's table. `listed_files` returns the files that the table lists; see hudi/write_client.py."""

    pipeline: Pipeline
    ledger: Ledger
    listed_files: Callable[[], frozenset[str]]

    def run(self, age: timedelta, *, delete: bool, report: Callable[[str], None]) -> SweepResult:
        """Find orphans older than `age`, and delete them if `delete` is set. `report` receives progress.

        Raises TableMismatch, TableUnreachable, EngineLost, and TransactionInFlight if a rollback or restore is pending or
        the table's lock is not free.
        """
        with logged(self.ledger, Service.SWEEP, self.pipeline) as work:
            result = self._run(age, delete, report)
            work.due, work.done = len(result.orphans), len(result.orphans) if delete else 0
        return result

    def _run(self, age: timedelta, delete: bool, report: Callable[[str], None]) -> SweepResult:
        table = self.pipeline.table.base_path
        now = datetime.now(timezone.utc)
        older_than = now - age
        orphans: list[Orphan] = []
        kept: list[KeptFile] = []
        unlisted: dict[str, str] = {}
        if self._table.timeline.exists():
            require_own_table(self.pipeline, self._table.timeline.properties())
            report(f"listing the storage of {table}")
            stored, uploads = self._stored(), self._uploads()
            report(f"{len(stored)} files are stored; asking the table which of them it lists")
            findings = self._judge(stored, uploads, older_than)
            orphans, kept = findings.orphans, findings.kept
            unlisted = self._unlisted(kept)
        if delete and orphans:
            with self.ledger.table_lock(table):
                # Time has passed, so read everything again and delete only what is an unchanged orphan both times.
                orphans_before = set(orphans)
                orphans = [
                    orphan
                    for orphan in self._judge(self._stored_now(orphans), self._uploads_now(orphans), older_than).orphans
                    if orphan in orphans_before
                ]
                self._delete(orphans, report)
        return SweepResult(self.pipeline.name, table, now, age, tuple(orphans), tuple(kept), delete, unlisted)

    @cached_property
    def _table(self) -> PipelineTable:
        return PipelineTable(self.pipeline)

    @property
    def _storage(self) -> TableStorage:
        return self._table.storage

    def _judge(self, stored: list[StoredFile], uploads: list[Upload], older_than: datetime) -> Findings:
        """Do the second and third of the three reads (see hudi/files/orphans.py); `stored` and `uploads` were the first."""
        instants = self._table.timeline.instants()
        if instants.undoing:
            raise TransactionInFlight(
                f"the table at {self.pipeline.table.base_path} is being rolled back or restored (instant "
                f"{', '.join(sorted(instants.undoing))}). Nothing was deleted; sweep again once that is done. If its process is "
                "gone, the next transaction completes it."
            )
        commits = self._table.timeline.completed()
        published = frozenset(path for commit in commits for path in commit.files)
        known = self.listed_files()
        committed = self._table.committed().checkpoint
        known |= self._listed_letters(stored, committed)
        topics = sorted(
            {*self.pipeline.source.topics, *(source.topic for source in (committed.offsets if committed else ()))}
        )
        files = judge_files(stored, instants, known, named=published, topics=topics, older_than=older_than)
        # Last, because an instant that is archived meanwhile is in the history before it leaves the timeline.
        files = judge_archived(files, self._archive(files, commits))
        unfinished = judge_uploads(uploads, instants, topics=topics, older_than=older_than)
        return Findings(
            sorted([*files.orphans, *unfinished.orphans], key=lambda orphan: orphan.file.path),
            sorted([*files.kept, *unfinished.kept], key=lambda kept: kept.file.path),
        )

    def _archive(self, findings: Findings, commits: Sequence[CommittedInstant]) -> Archive:
        """Find out which instants of found data files were committed and archived. `commits`: those on the active timeline."""
        own = [commit for commit in commits if self.pipeline.transaction_key in commit.metadata]
        begin = min((commit.instant for commit in commits), default="")
        instants = undecided_instants(findings, {commit.instant for commit in commits})
        if not instants:
            return Archive({})
        oldest = min(
            (commit.accounting(self.pipeline.transaction_key).sequence for commit in own),
            default=0,
        )
        doubt = ""
        try:
            archived = archived_commits(self._storage, min(instants), instants)
            if oldest != 1 and not self._storage.exists(f"{HISTORY}/_version_"):
                doubt = "its instant may be committed and archived, and the table has no archived commits"
        except (OSError, ValueError) as error:
            archived, doubt = (
                [],
                f"its instant may be committed and archived, and the archived commits cannot be read: {error}",
            )
        return Archive(
            {commit.instant: commit.files.keys() for commit in archived},
            self.ledger.transactions.committed_instants(self.pipeline.table.base_path, instants),
            begin,
            doubt,
        )

    def _unlisted(self, kept: Iterable[KeptFile]) -> dict[str, str]:
        """Tell the live files among those that commits name from what later commits have replaced and cleaning has left."""
        named = {each.file.path: each.instant for each in kept if each.is_named}
        if not named:
            return {}
        commits = self._table.timeline.completed()
        try:
            # All since, because any may have replaced them.
            commits += tuple(archived_commits(self._storage, min(named.values())))
            live = live_files({commit.instant: commit for commit in commits}.values())
            # A cleaning may have deleted some since.
            return {path: live[path] for path in sorted(named) if path in live and self._storage.file(path) is not None}
        except (OSError, ValueError) as error:
            raise TableUnreachable(
                f"the archived commits of the table at {self.pipeline.table.base_path} cannot be read: {error}. They say whether rows of "
                f"{listed(sorted(named), SHOWN)} are hidden. Nothing was deleted. {advice(error)} Then sweep again."
            ) from error

    def _listed_letters(self, stored: list[StoredFile], committed: Checkpoint | None) -> frozenset[str]:
        """Return the dead-letter files in the list, and all manifests of its transactions: a rollback by another writer
        makes an older manifest the end of the list."""
        entries = DeadLetterLog(self._storage).entries(committed.letters if committed else None)
        instants = {entry.instant for entry in entries}
        matches = ((file.path, MANIFEST.fullmatch(file.path)) for file in stored)
        manifests = (path for path, match in matches if match is not None and match["instant"] in instants)
        return frozenset((*listed_paths(entries), *manifests))

    def _stored(self) -> list[StoredFile]:
        try:
            folders = [f"{MARKERS}/{name}" for name in self._storage.names(MARKERS) if is_instant(name)]
            markers = [self._marker_folder(folder) for folder in folders]
            places = (HOODIE, TIMELINE, HISTORY, METADATA_TIMELINE, METADATA_HISTORY)
            of_hudi = (f"{at}/{name}" for at in places for name in self._storage.names(at))
            partials = [self._storage.file(path) for path in of_hudi if PARTIAL.fullmatch(path)]
            beside = [*self._storage.files(HEARTBEATS), *self._storage.files(OWN_FILES), *filter(None, partials)]
            return [*self._storage.data_files(), *markers, *beside]
        except OSError as error:
            raise self._unreadable(error) from error

    def _stored_now(self, orphans: list[Orphan]) -> list[StoredFile]:
        """Return the orphans' files as they are now, without those that are gone."""
        try:
            current = [
                self._marker_folder(path) if path.startswith(f"{MARKERS}/") else self._storage.file(path)
                for path in (orphan.file.path for orphan in orphans if orphan.upload is None)
            ]
        except OSError as error:
            raise self._unreadable(error) from error
        return [file for file in current if file is not None]

    def _uploads(self) -> list[Upload]:
        try:
            return self._storage.unfinished_uploads()
        except OSError as error:
            raise self._unreadable(error) from error

    def _uploads_now(self, orphans: list[Orphan]) -> list[Upload]:
        """Return the orphans' uploads that are still open."""
        known = {orphan.upload for orphan in orphans} - {None}
        return [upload for upload in self._uploads() if upload in known] if known else []

    def _marker_folder(self, folder: str) -> StoredFile:
        """Return a folder of markers as a single file: as new as its newest marker, or as its instant if it is empty."""
        files = self._storage.files(folder)
        newest = max((file.modified for file in files), default=None)
        began = instant_time(folder.rpartition("/")[2])
        return StoredFile(folder, sum(file.size_bytes for file in files), newest or began)

    def _delete(self, orphans: list[Orphan], report: Callable[[str], None]) -> None:
        for number, orphan in enumerate(orphans):
            if number % _PROGRESS_FILES == 0:
                report(f"deleting {number + 1} to {min(number + _PROGRESS_FILES, len(orphans))} of {len(orphans)}")
            path = orphan.file.path
            try:
                if orphan.upload is not None:
                    self._storage.abort_upload(orphan.upload)
                elif path.startswith(f"{MARKERS}/"):
                    self._storage.delete_folder(path)
                else:
                    self._storage.delete(path)
            except OSError as error:
                raise TableUnreachable(
                    f"could not delete {path} of the table at {self.pipeline.table.base_path}: {error}. {number} of "
                    f"{len(orphans)} orphans were deleted. {advice(error)} Then sweep again."
                ) from error

    def _unreadable(self, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"could not list the files of the table at {self.pipeline.table.base_path}: {error}. Nothing was deleted. "
            f"{advice(error)} Then sweep again."
        )


def sweep_for(pipeline: Pipeline, ledger: Ledger, spark: SparkSession) -> Sweep:
    """Build the sweep of the pipeline's table, on the real table, ledger and Spark."""
    writer = HudiWriter(spark, pipeline)
    return Sweep(pipeline, ledger, writer.listed_files)


def run_sweep(
    pipeline: Pipeline,
    age: timedelta,
    *,
    delete: bool = False,
    home: Home | None = None,
    report: Callable[[str], None] = _logger.info,
) -> SweepResult:
    """Find files older than `age` (see sweep.safe_age) that no transaction needs, and delete them if `delete` is set.

    Attaches to a running engine, else starts Spark in this process. Raises what `Sweep.run` raises.
    """
    with connected(pipeline, home or Home.from_environment(), report) as (spark, ledger):
        return sweep_for(pipeline, ledger, spark).run(age, delete=delete, report=report)


@dataclass(frozen=True, slots=True)
class TableLeftovers:
    """Files below a table's `.hoodie/hudi_ingest` that are no longer needed and older than these times: damaged instants that
    a repair put aside, dead-letter files whose letters a retry has taken, and lists of dead letters that newer ones have replaced.

    A rollback or restore may bring an older list of dead letters back, and with it letters that were taken. It cannot go behind the
    active timeline, and nothing behind a savepoint is archived. So only what changed before the oldest commit on it may go.
    """

    pipeline: Pipeline
    put_aside_before: datetime
    letters_before: datetime

    def find(self) -> list[StoredFile]:
        """Raises TableUnreachable."""
        table = PipelineTable(self.pipeline)
        if not table.timeline.exists():
            return []
        try:
            aside = [file for file in table.storage.files(PUT_ASIDE) if file.modified < self.put_aside_before]
            letters = [file for file in table.storage.files(DEAD_LETTERS) if file.path != COPIED_LETTERS]
        except OSError as error:
            raise self._unreachable("listed", error) from error
        return [*aside, *(self._needless(table, letters) if letters else ())]

    def delete(self, files: list[StoredFile]) -> None:
        """Raises TableUnreachable."""
        storage = Timeline.of(self.pipeline.table).storage
        try:
            for file in files:
                storage.delete(file.path)
        except OSError as error:
            raise self._unreachable("deleted", error) from error

    def _needless(self, table: PipelineTable, letters: list[StoredFile]) -> Iterator[StoredFile]:
        checkpoint = table.committed().checkpoint
        head = checkpoint.letters if checkpoint else None
        if head is None:
            return
        oldest = min(table.timeline.instants().completed, default="")
        replaced_at = self._replaced_at(DeadLetterLog(table.storage), head, letters)
        for file in letters:
            instant = replaced_at.get(file.path, "")
            if instant and instant < oldest and instant_time(instant) < self.letters_before:
                yield file

    def _replaced_at(self, log: DeadLetterLog, head: LettersHead, letters: list[StoredFile]) -> dict[str, str]:
        """The instants whose commits made files needless, by path."""
        entries, current = log.entries(head), {*log.manifests(head)}
        replaced = {path: entry.instant for entry in entries for path in entry.taken}
        for file in letters:
            manifest = MANIFEST.fullmatch(file.path)
            if manifest is not None and file.path not in current:
                # Of a commit, because a rolled-back transaction has replaced nothing.
                later = (entry.instant for entry in entries if entry.instant > manifest["instant"])
                replaced[file.path] = min(later, default="")
        return replaced

    def _unreachable(self, done: str, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"what is left over in the table at {self.pipeline.table.base_path} could not be {done}: {error}. {advice(error)} "
            "The next housekeeping tries again."
        )
