"""Read the committed state without a JVM, by hudi-rs: checkpoints, transactions and the table's identity."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hudi import HudiTable

from hudi_ingest.exceptions import IngestError, OffsetsLost, TableMismatch, TableUnreachable
from hudi_ingest.hudi import file_ids
from hudi_ingest.hudi.file_ids import FileOrigin
from hudi_ingest.hudi.other_writers import HUDI_STREAMER, last_ingest, other_writer
from hudi_ingest.hudi.paths import PRIMARY, TIMELINE
from hudi_ingest.hudi.properties_file import PropertiesFile
from hudi_ingest.hudi.read_commits import ReadCommits
from hudi_ingest.hudi.s3_access import hudi_rs_options
from hudi_ingest.hudi.s3_errors import StoreError
from hudi_ingest.hudi.storage_at import storage_at
from hudi_ingest.hudi.store_errors import store_advice
from hudi_ingest.model.accounting import Accounting, transaction_id_of
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.storage_options import StorageOptions, is_s3
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC
from hudi_ingest.records.schema.columns import columns_of

PIPELINE_PROPERTY = "hudi_ingest.pipeline"
RECORD_PROPERTY = "hudi_ingest.record_schema"
"""The decoded records' columns, for a pipeline that declares none, as the JSON of a Spark StructType."""
NEWEST_COMMITS = 20
"""Maximum number of transactions that `committed` lists."""
_READS_AT_ONCE = 8
"""Commits read from a store at the same time."""
_ARCHIVE = "history"
"""The folder of archived instants, below the timeline's."""
_INSTANT_FILE = re.compile(r"(?P<requested>\d+)(?P<completed>_\d+)?\.(?P<rest>.+)")
"""`<requested>_<completed>.<action>`, or `<requested>.` and anything else while it is pending."""


@dataclass(frozen=True, slots=True)
class CommittedInstant:
    """A completed instant: its extra metadata, published files (path → bytes) and number of rows."""

    instant: str
    metadata: Mapping[str, str]
    completed_at: datetime
    files: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    operation: str = ""
    """Hudi's name for the commit's operation, such as INSERT or CLUSTER; "" if unnamed."""

    @property
    def size_bytes(self) -> int:
        return sum(self.files.values())

    def accounting(self, transaction_key: str) -> Accounting:
        """Parse the accounting of a commit of the pipeline with this key. Raises KeyError for other commits."""
        return Accounting.from_json(self.metadata[transaction_key])


@dataclass(frozen=True, slots=True)
class Instants:
    """Requested times of every writer's actions on the active timeline; archived ones are in neither set."""

    pending: frozenset[str]
    completed: frozenset[str]
    undoing: frozenset[str] = frozenset()
    """The pending rollbacks and restores."""


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


@dataclass(frozen=True, slots=True)
class TableFile:
    """A live base file. `origin` is decoded from its file id (None for other writers' files, such as clustering's). The
    ranges are the (minimum, maximum) of the Kafka columns, None if the file has no statistics of them or has nulls."""

    path: str
    instant: str
    rows: int
    size_bytes: int
    origin: FileOrigin | None
    topics: tuple[Any, Any] | None
    partitions: tuple[Any, Any] | None
    offsets: tuple[Any, Any] | None


class Timeline:
    """The timeline of one table. Each call reads the storage again."""

    def __init__(self, base_path: str, options: StorageOptions | None = None) -> None:
        self.base_path = base_path
        self._options = options or StorageOptions()
        self.storage = storage_at(base_path, self._options)
        self._properties = PropertiesFile(self.storage)

    def committed(self, checkpoint_key: str, transaction_key: str) -> CommittedState:
        """Read the pipeline's checkpoint: the one with the greatest sequence that an active completed instant carries.

        Not the newest instant's: another writer's commit carries the checkpoint that was current when it began, and may
        sort after our newer commit. Raises TableUnreachable; OffsetsLost when the pipeline's own table has commits but none
        carries its checkpoint, or the checkpoint counts a commit that was rolled back; TableMismatch when another system
        has ingested since.
        """
        if not self.exists():
            return CommittedState(exists=False)
        commits = self.completed()
        carriers = [
            (commit, self._carried_checkpoint(commit, checkpoint_key))
            for commit in commits
            if checkpoint_key in commit.metadata
        ]
        if not carriers:
            self._require_no_lost_checkpoint(checkpoint_key, commits)
            return CommittedState(exists=True, commits=commits)
        best_commit, best = max(carriers, key=lambda carrier: carrier[1].sequence)
        own = [(commit, carried) for commit, carried in carriers if transaction_key in commit.metadata]
        own_instants = {commit.instant for commit, _ in own}
        sequences = {commit.instant: 0 for commit in commits}
        sequences |= {commit.instant: carried.sequence for commit, carried in carriers}
        self._require_none_missing(best, sequences, own_instants)
        self._require_nobody_ahead(best, commits, own_instants)
        newest = best.moved_by or best.instant
        began = instant_time(newest) if newest else None
        completed = next((commit.completed_at for commit, _ in own if commit.instant == newest), began)
        own_commits = {carried.sequence: commit for commit, carried in own}
        newest_commits = [own_commits[sequence] for sequence in sorted(own_commits)[-NEWEST_COMMITS:]]
        transactions = tuple(transaction_id_of(commit.metadata[transaction_key]) for commit in newest_commits)
        last = own_commits.get(best.sequence)
        rejected = last.accounting(transaction_key).rejected if last is not None else 0
        best_text = best_commit.metadata[checkpoint_key]
        instants = frozenset(commit.instant for commit in commits)
        return CommittedState(True, best, best_text, began, completed, rejected, transactions, instants, commits)

    def instant_of(self, transaction_key: str, transaction_id: str) -> str | None:
        """Find the completed instant that published the transaction, or None. Raises TableUnreachable."""
        if not self.exists():
            return None
        for commit in self._completed():
            text = commit.metadata.get(transaction_key)
            if text is not None and transaction_id_of(text) == transaction_id:
                return commit.instant
        return None

    def commits_of(self, transaction_key: str) -> tuple[CommittedInstant, ...]:
        """List the pipeline's own completed instants on the active timeline, oldest first. Raises TableUnreachable."""
        own = [commit for commit in self._completed() if transaction_key in commit.metadata] if self.exists() else []
        return tuple(sorted(own, key=lambda commit: commit.instant))

    def completed(self) -> tuple[CommittedInstant, ...]:
        """List every writer's completed instants on the active timeline, by completion, newest first.

        Raises TableUnreachable.
        """
        return tuple(sorted(self._completed(), key=lambda commit: (commit.completed_at, commit.instant), reverse=True))

    def pending_writes(self) -> tuple[str, ...]:
        """List every writer's instants that may still add rows, with their actions. Raises TableUnreachable."""
        files = [match for name in self._names() if (match := _INSTANT_FILE.fullmatch(name))]
        completed = {file["requested"] for file in files if file["completed"]}
        open_ones = {
            # The inflight file of a commit has no action in its name.
            f"{file['requested']} ({file['rest'].partition('.')[0].replace('inflight', 'commit')})"
            for file in files
            if file["requested"] not in completed
            and not file["rest"].startswith(("clean.", "clustering.", "rollback.", "restore.", "savepoint."))
        }
        return tuple(sorted(open_ones))

    def schema(self) -> pa.Schema:
        """Read the table's columns without Hudi's own. Raises TableUnreachable."""
        try:
            return columns_of(self._hudi_table().get_schema())
        except Exception as error:
            raise self._unreadable("schema", error) from error

    def column_names(self) -> tuple[str, ...]:
        """Read the names of the table's columns, including Hudi's own. Raises TableUnreachable."""
        try:
            return tuple(self._hudi_table().get_schema().names)
        except Exception as error:
            raise self._unreadable("schema", error) from error

    def statistics_columns(self) -> tuple[str, ...]:
        """List the columns with statistics in the metadata table, without Hudi's own; empty if it does not list them.

        Raises TableUnreachable.
        """
        path = self.properties().get("hoodie.table.index.defs.path", "")
        try:
            defined = json.loads(self.storage.read(path))["indexDefinitions"] if path else {}
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError) as error:
            raise self._unreadable("index definitions", error) from error
        columns = defined.get("column_stats", {}).get("sourceFields", ())
        return tuple(name for name in columns if not name.startswith("_hoodie_"))

    def exists(self) -> bool:
        """Whether there is a table at the path. Raises TableUnreachable, also when its properties file is missing."""
        try:
            if self.properties():
                return True
        except OSError as error:
            raise self._unreadable("properties", error) from error
        if not self.is_empty():
            # Creating a table here would start over on top of what is committed.
            raise TableUnreachable(
                f"the table at {self.base_path} has commits but no {PRIMARY}. Nothing was written. Put a copy of that file in "
                "place: Hudi's was deleted, or the path is not completely mounted or restored."
            )
        return False

    def restore_properties(self) -> bool:
        """Restore a hoodie.properties that a crash left empty or truncated from Hudi's backup; returns whether it did.

        Until then nothing of the table can be read. Raises TableUnreachable.
        """
        try:
            return self._properties.restore()
        except OSError as error:
            raise self._unreadable("properties", error) from error

    def files(self) -> list[TableFile]:
        """List the live base files and where their rows came from, by partition path and name. Raises TableUnreachable."""
        if not self.exists():
            return []
        try:
            slices = self._hudi_table().get_file_slices()
        except Exception as error:
            raise self._unreadable("files", error) from error
        files = []
        for file_slice in slices:
            partition, name = file_slice.partition_path, file_slice.base_file_name
            path = f"{partition}/{name}" if partition else name
            footer = self.storage.parquet_footer(path)
            files.append(
                TableFile(
                    path=path,
                    instant=file_slice.creation_instant_time,
                    rows=footer.num_rows,
                    size_bytes=file_slice.base_file_size,
                    origin=file_ids.decode(file_slice.file_id),
                    topics=_range(footer, TOPIC),
                    partitions=_range(footer, PARTITION),
                    offsets=_range(footer, OFFSET),
                )
            )
        return sorted(files, key=lambda file: file.path)

    def is_empty(self) -> bool:
        """Whether the active timeline has no instant, of any state and any writer."""
        return not any(name[:1].isdigit() for name in self._names())

    def instants(self) -> Instants:
        """List pending and completed instants by the file names on the storage. Raises TableUnreachable.

        An instant that is pending before and after the call is in `pending`, whatever happens meanwhile: its requested
        file is created before any of its data, and only removed by a rollback or archival.
        """
        names = self._names()
        seen, completed, undoing = set(), set(), set()
        for name in names:
            parsed = _INSTANT_FILE.fullmatch(name)
            if parsed is None:
                continue
            seen.add(parsed["requested"])
            if parsed["completed"]:
                completed.add(parsed["requested"])
            elif parsed["rest"].startswith(("rollback.", "restore.")):
                undoing.add(parsed["requested"])
        return Instants(frozenset(seen - completed), frozenset(completed), frozenset(undoing - completed))

    def newest_instant(self) -> str:
        """Return the latest requested or completion time of any writer's action on the active timeline, "" if there is none.

        Raises TableUnreachable.
        """
        files = [match for name in self._names() if (match := _INSTANT_FILE.fullmatch(name))]
        times = {time for file in files for time in (file["requested"], (file["completed"] or "").lstrip("_"))}
        return max(filter(is_instant, times), default="")

    def published_files(self) -> frozenset[str]:
        """List files that active completed instants published, even if replaced or cleaned since. Raises TableUnreachable."""
        return frozenset(path for commit in self._completed() for path in commit.files)

    def properties(self) -> dict[str, str]:
        """Read hoodie.properties, empty when there is no table. Raises TableUnreachable when the file is damaged."""
        return self._properties.read()

    def _require_none_missing(self, checkpoint: Checkpoint, sequences: Mapping[str, int], own: Set[str]) -> None:
        missing = missing_sequences(checkpoint, sequences, own, ())
        if missing:
            # Archival may keep a savepointed commit when it removes later ones.
            missing = missing_sequences(checkpoint, sequences, own, self._savepoints())
        if not missing:
            return
        later = sorted((instant for instant, sequence in sequences.items() if sequence >= missing[0]), reverse=True)
        raise OffsetsLost(
            f"the table at {self.base_path} lost rows that its checkpoint counts: another writer rolled back the commit of "
            f"transaction number {', '.join(map(str, missing[:5]))}{' and others' if missing[5:] else ''} of this pipeline, "
            f"but the commits {', '.join(later[:10])}{' and others' if later[10:] else ''}, which carry the checkpoint forward, "
            "remain. Nothing was written. First confirm it: `hudi-ingest files` must show no file of the lost commits (if it "
            "does, archival removed them next to a savepoint that was deleted since: run `CALL archive_commits(table => …)` "
            "and roll nothing back). Then roll these back too, in this order, with `CALL rollback_to_instant(table => …, "
            "instant_time => …)`, or restore an earlier savepoint: the checkpoint goes back with them, and the next "
            "transaction reads the lost offsets again."
        )

    def _carried_checkpoint(self, commit: CommittedInstant, checkpoint_key: str) -> Checkpoint:
        try:
            return Checkpoint.from_json(commit.metadata[checkpoint_key])
        except (ValueError, KeyError, TypeError) as error:
            raise TableUnreachable(
                f"instant {commit.instant} of {self.base_path} carries a checkpoint under {checkpoint_key} that cannot "
                f"be read ({error}). Upgrade hudi-ingest if a newer version wrote it."
            ) from error

    def _require_no_lost_checkpoint(self, checkpoint_key: str, commits: Sequence[CommittedInstant]) -> None:
        """Raises OffsetsLost when no commit of the pipeline's own table carries its checkpoint."""
        owned = checkpoint_key.endswith(f".{self.properties().get(PIPELINE_PROPERTY)}")
        # A table that is being taken over is ours before our first commit to it: see take_over.py.
        if commits and owned and last_ingest(commits) is None:
            # Starting over would ingest everything twice.
            raise OffsetsLost(
                f"the table at {self.base_path} belongs to this pipeline, but none of its {len(commits)} active commits carries "
                f"{checkpoint_key}: other writers' commits did not carry it forward and archival removed the last one that "
                "had it, or the table was restored. Nothing was written. Ingest into a table with a new name, or restore a "
                "copy whose commits carry it."
            )

    def _require_nobody_ahead(
        self, checkpoint: Checkpoint, commits: Collection[CommittedInstant], own: Set[str]
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
                f"{writer.name} has written into the table at {self.base_path} since this pipeline's last commit, in its commit "
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
            offsets = {
                TopicPartition(writer.topic, number): offset for number, offset in sorted(writer.offsets.items())
            }
            ahead = [
                f"{source} {offset}" for source, offset in offsets.items() if offset > checkpoint.offsets.get(source, 0)
            ]
            if ahead and writer.topic in topics:
                raise TableMismatch(
                    f"{where}. That commit ends at {', '.join(ahead)}, ahead of the committed offsets: continuing from those would "
                    f"write its rows a second time, so nothing was written. Stop one of the two. To undo its commit, {undo}. "
                    "To continue after it, give the pipeline a new name and set table.take_over: hudi_streamer."
                )

    def _hudi_table(self) -> HudiTable:
        return HudiTable(self.base_path, dict(hudi_rs_options(self.base_path, self._options)))

    def _savepoints(self) -> frozenset[str]:
        return frozenset(name.split("_", 1)[0] for name in self._names() if name.endswith(".savepoint"))

    def _names(self) -> tuple[str, ...]:
        try:
            return self.storage.names(TIMELINE)
        except OSError as error:
            raise self._unreadable("timeline", error) from error

    def _completed(self) -> Iterator[CommittedInstant]:
        try:
            timeline = self._hudi_table().get_timeline()
            files = self._commit_files()
            instants = [
                *timeline.get_completed_commits(desc=True),
                *timeline.get_completed_deltacommits(desc=True),
                *timeline.get_completed_replacecommits(desc=True),
            ]
            if not is_s3(self.base_path):
                yield from (self._commit(timeline, instant, files.get(instant.timestamp)) for instant in instants)
                return
            with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
                commits = [*pool.map(lambda i: self._commit(timeline, i, files.get(i.timestamp)), instants)]
            yield from commits
        except Exception as error:
            if isinstance(error, IngestError):
                raise
            raise self._unreadable("timeline", error) from error

    def _commit_files(self) -> dict[str, tuple[str, Hashable]]:
        """By requested time, each commit's time of completion and what tells its file from any other: on a local disk also size and
        time, which a store's names do not come with."""
        named: list[tuple[str, Hashable]]
        if is_s3(self.base_path):
            named = [(name, name) for name in self._names()]
        else:
            named = [(file.path.rpartition("/")[2], file) for file in self.storage.files_beside(TIMELINE, {_ARCHIVE})]
        # A commit's file is <requested time>_<completion time>.<action>.
        parts = [(*name.partition("_")[::2], file) for name, file in named]
        return {requested: (completed, file) for requested, completed, file in parts if completed.endswith("commit")}

    def _commit(self, timeline: Any, instant: Any, known: tuple[str, Hashable] | None) -> CommittedInstant:
        """Read a commit, once in this process while its file stays the same."""
        if known is None:
            # Its file was not there when the files were listed, so its time of completion is unknown.
            return _parsed(timeline.get_instant_metadata_in_json(instant), instant.timestamp, instant.timestamp)
        completed, file = known
        commit = _read_commits.get((self.base_path, file))
        if commit is None:
            text = timeline.get_instant_metadata_in_json(instant)
            commit = _parsed(text, instant.timestamp, completed)
            _read_commits.keep((self.base_path, file), commit, len(text))
        return commit

    def _unreadable(self, part: str, error: Exception) -> TableUnreachable:
        remedy = (
            "If it is being written right now, try again; otherwise check the path, its permissions and the network."
        )
        if isinstance(error, StoreError):
            remedy = error.remedy
        elif is_s3(self.base_path) and (cause := store_advice(str(error))):
            # hudi-rs's error.
            remedy = f"{cause[0].upper()}{cause[1:]}."
        return TableUnreachable(f"cannot read the {part} of the table at {self.base_path}: {error}. {remedy}")


_read_commits: ReadCommits[CommittedInstant] = ReadCommits()


def _parsed(text: str, requested: str, completed: str) -> CommittedInstant:
    content: dict[str, Any] = json.loads(text)
    partitions = (content.get("partitionToWriteStats") or {}).values()
    stats = [stat for partition_stats in partitions for stat in partition_stats]
    return CommittedInstant(
        instant=requested,
        metadata=content.get("extraMetadata") or {},
        completed_at=instant_time(completed),
        files={stat["path"]: stat["fileSizeInBytes"] for stat in stats if stat.get("path")},
        rows=sum(stat["numWrites"] for stat in stats),
        operation=content.get("operationType") or "",
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


def _range(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    names = footer.schema.to_arrow_schema().names
    if column not in names:
        return None
    index = [footer.schema.column(i).path for i in range(footer.num_columns)].index(column)
    groups = [footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups)]
    if not groups or any(group is None or not group.has_min_max for group in groups):
        return None
    if any(not group.has_null_count or group.null_count for group in groups):
        # Another writer's rows, whose source is unknown.
        return None
    return min(group.min for group in groups), max(group.max for group in groups)


def instant_time(instant: str) -> datetime:
    """Parse the UTC time of an instant such as 20261121140405123; our tables keep their timeline in UTC."""
    return datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(
        microsecond=int(instant[14:17] or 0) * 1000, tzinfo=timezone.utc
    )


def is_instant(name: str) -> bool:
    """Whether the text is an instant that `instant_time` can parse."""
    try:
        return name.isdigit() and bool(instant_time(name))
    except ValueError:
        return False
