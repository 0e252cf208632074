"""Read the committed state without a JVM, by hudi-rs: checkpoints, transactions and the table's identity."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from re import Match
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from hudi import HudiReadOptions, HudiTable

from hudi_ingest.exceptions import IngestError, TableMismatch, TableUnreachable
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.file_groups import FileGroup, FileOrigin
from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.paths import INSTANT_FILE, PRIMARY, TIMELINE, path_in
from hudi_ingest.hudi.storage.s3_access import hudi_rs_options
from hudi_ingest.hudi.storage.storage import StoreError, beside, store_remedy
from hudi_ingest.hudi.timeline.properties_file import PropertiesFile
from hudi_ingest.model.accounting import Accounting, transaction_id_of
from hudi_ingest.model.storage_options import StorageOptions, is_s3
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC
from hudi_ingest.records.schema.columns import columns_of

PIPELINE_PROPERTY = "hudi_ingest.pipeline"
RECORD_PROPERTY = "hudi_ingest.record_schema"
"""The decoded records' columns, for a pipeline that declares none, as the JSON of a Spark StructType."""
MET_PROPERTY = "hudi_ingest.met_schema"
"""The columns of the newest schema that ended a transaction because its columns lacked some of them, in the same form."""
RECENT_PROPERTY = "hudi_ingest.recent_fields"
"""The fields that the records' schemas got last, as the JSON of RecentFields."""
SOURCE_PROPERTY = "hudi_ingest.source_table"
"""The table of the source that all changes are of, as in TransactionSchema, as JSON."""
_READS_AT_ONCE = 8
"""Commits read from a store at the same time."""
_UNREADABLE_REMEDY = (
    "If it is being written right now, try again; after a power cut, the next tick or `hudi-ingest run` repairs it. Otherwise "
    "check the path, its permissions and the network."
)
_OTHER_VERSION = "Only support table version"
"""In hudi-rs's error about a version that it does not know."""
_MOST_CHOSEN = 100
_PLAIN = re.compile(r"[\w-]+")
"""Values that are the same in a folder's name and in a filter."""
_SCHEMA = "schema"
"""Key of the table's columns in a commit's metadata."""
_ARCHIVE = "history"
"""The folder of archived instants, below the timeline's."""


@dataclass(frozen=True, slots=True)
class CommittedInstant:
    """A completed instant: its extra metadata, published files (path → bytes) and number of rows, written and deleted."""

    instant: str
    metadata: Mapping[str, str]
    completed_at: datetime
    files: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    operation: str = ""
    """Hudi's name for the commit's operation, such as INSERT or CLUSTER; "" if unnamed."""
    replaced: frozenset[tuple[str, str]] = frozenset()
    """The file groups that it removed: partition path and file id."""

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


@dataclass(frozen=True, slots=True)
class TableLogFile:
    """A log file that readers merge with its file group's base file."""

    path: str
    instant: str
    size_bytes: int


Parsed = TypeVar("Parsed")
Properties = TypeVar("Properties")
_MOST_BYTES = 64 * 1024 * 1024


class ReadCommits(Generic[Parsed]):
    """Parsed commits by what tells a commit's file from any other, at most `most_bytes` of their texts; the least recently used go
    first. Safe because Hudi writes a completed instant's file once, and names it after both of its times. Safe to share between
    threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[Parsed, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, file: Hashable) -> Parsed | None:
        with self._lock:
            if file not in self._kept:
                return None
            self._kept.move_to_end(file)
            return self._kept[file][0]

    def keep(self, file: Hashable, parsed: Parsed, text_bytes: int) -> None:
        with self._lock:
            self._bytes += text_bytes - self._kept.pop(file, (parsed, 0))[1]
            self._kept[file] = parsed, text_bytes
            while self._bytes > self._most_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]


@dataclass(slots=True)
class _Held:
    """Answers of a store that serve until they are forgotten; see `Timeline.held`."""

    names: tuple[str, ...] | None = None
    properties: dict[str, str] | None = None
    table: HudiTable | None = None


class Timeline:
    """The timeline of one table. Each call reads the storage again, except in a block of `held`."""

    _held: _Held | None = None

    def __init__(self, base_path: str, options: StorageOptions | None = None) -> None:
        self.base_path = base_path
        self._options = options or StorageOptions()
        self.storage = storage_at(base_path, self._options)
        self._properties = PropertiesFile(self.storage)
        self._written: dict[str, str] = {}
        """The JSON of the commit that this object's user has written, by its instant; see `wrote`."""

    @classmethod
    def of(cls, table: Table) -> Timeline:
        """Return the timeline of a table by its settings."""
        return cls(table.base_path, table.storage_options)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Ask an object store once for hoodie.properties and the names on the timeline in this block, which is a step that holds the
        table's lock.

        Safe because no other step of the pipeline changes them meanwhile, and the step calls `forget` after each change of its
        own and of the epoch. Another writer's commit that lands in the block is found as one that lands after the last look: by the
        guard, which reads the table itself inside Hudi's lock. The epoch is never held.
        """
        self._held = None if self.storage.is_local else _Held()
        try:
            yield
        finally:
            self._held = None

    def forget(self) -> None:
        """Let the next call read the storage again, also in a block of `held`."""
        if self._held is not None:
            self._held = _Held()

    def wrote(self, instant: str, text: str) -> None:
        """Know the metadata, as Hudi's JSON, that the caller has written by completing this instant, so that an object store is asked
        for no more than the name of its file.

        Safe because an instant is completed at most once, and its file does not change: where the timeline has one, it is this.
        """
        self._written = {instant: text}

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
        files = self._instant_files()
        completed = {file["requested"] for file in files if file["completed"]}
        open_ones = {
            # The inflight file of a commit has no action in its name.
            f"{file['requested']} ({file['rest'].partition('.')[0].replace('inflight', 'commit')})"
            for file in files
            if file["requested"] not in completed
            and not file["rest"].startswith(
                ("clean.", "clustering.", "compaction.", "rollback.", "restore.", "savepoint.")
            )
        }
        return tuple(sorted(open_ones))

    def pending_compactions(self) -> tuple[str, ...]:
        """List the instants of compactions that are not completed, oldest first. Raises TableUnreachable."""
        files = self._instant_files()
        planned = {file["requested"] for file in files if file["rest"] == "compaction.requested"}
        return tuple(sorted(planned - {file["requested"] for file in files if file["completed"]}))

    def schema(self) -> pa.Schema:
        """Read the table's columns without Hudi's own. Raises TableUnreachable."""
        try:
            if not is_s3(self.base_path):
                return columns_of(self._hudi_table().get_schema())
            files = self._commit_files()
            # Completed instants never change, and the newest one's schema is the table's.
            newest = _read_commits.get((self.base_path, files[max(files)][1])) if files else None
            text = newest.metadata.get(_SCHEMA) if newest else None
            key = (self.base_path, text or frozenset(file for _, file in files.values()))
            schema = _read_schemas.get(key)
            if schema is None:
                table = self._hudi_table()
                schema = columns_of(table.get_schema())
                if files and max(files) == table.get_timeline().get_latest_commit_timestamp():
                    # No newer one was completed between the two looks at the timeline.
                    _read_schemas.keep(key, schema, len(str(schema)))
            return schema
        except TableUnreachable:
            raise
        except Exception as error:
            raise self.unreadable("schema", error) from error

    def column_names(self) -> tuple[str, ...]:
        """Read the names of the table's columns, including Hudi's own. Raises TableUnreachable."""
        try:
            return tuple(self._hudi_table().get_schema().names)
        except Exception as error:
            raise self.unreadable("schema", error) from error

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
            raise self.unreadable("index definitions", error) from error
        columns = defined.get("column_stats", {}).get("sourceFields", ())
        return tuple(name for name in columns if not name.startswith("_hoodie_"))

    def exists(self) -> bool:
        """Whether there is a table at the path. Raises TableUnreachable, also when its properties file is missing."""
        try:
            if self.properties():
                return True
        except OSError as error:
            raise self.unreadable("properties", error) from error
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
            held = self._held
            if held is not None:
                # An object appears whole, so there is nothing to restore while there is one.
                held.properties = self._looked(held, self._properties.primary)
                if held.properties is not None:
                    return False
            return self._properties.restore()
        except OSError as error:
            raise self.unreadable("properties", error) from error

    def files(self) -> list[TableFile]:
        """List the live base files and where their rows came from, by partition path and name. Raises TableUnreachable."""
        files = []
        for file_slice in self._file_slices():
            partition, name = file_slice.partition_path, file_slice.base_file_name
            path = f"{partition}/{name}" if partition else name
            footer = self.storage.parquet_footer(path)
            files.append(
                TableFile(
                    path=path,
                    instant=file_slice.creation_instant_time,
                    rows=footer.num_rows,
                    size_bytes=file_slice.base_file_size,
                    origin=file_groups.decode(file_slice.file_id),
                    topics=column_range(footer, TOPIC),
                    partitions=column_range(footer, PARTITION),
                    offsets=column_range(footer, OFFSET),
                )
            )
        return sorted(files, key=lambda file: file.path)

    def base_file_paths(self) -> list[str]:
        """List the live base files, without reading any. Raises TableUnreachable."""
        slices = [(each.partition_path, each.base_file_name) for each in self._file_slices()]
        return sorted(f"{partition}/{name}" if partition else name for partition, name in slices)

    def log_files(self) -> list[TableLogFile]:
        """List the log files that readers merge with base files, by partition path and name. Raises TableUnreachable."""
        files = [
            TableLogFile(path, log_file_instant(path), size)
            for file_slice in self._file_slices()
            for path, size in zip(file_slice.log_files_relative_paths(), file_slice.log_file_sizes, strict=True)
        ]
        return sorted(files, key=lambda file: file.path)

    def live_paths(self, folders: Collection[str] | None = None) -> frozenset[str]:
        """List the live base files and log files, without reading any, at least those of these table partitions if hudi-rs can choose
        them; None for all. Raises TableUnreachable."""
        chosen = self._chosen(folders) if folders is not None else None
        return frozenset(
            path
            for each in self._file_slices(chosen)
            for path in (path_in(each.partition_path, each.base_file_name), *each.log_files_relative_paths())
        )

    def _chosen(self, folders: Collection[str]) -> HudiReadOptions | None:
        """Options that choose table partitions by the values of the first partition column; None if these values cannot be told."""
        column = self.properties().get("hoodie.table.partition.fields", "").split(",")[0].partition(":")[0]
        values = sorted({folder.partition("/")[0].removeprefix(f"{column}=") for folder in folders})
        if not column or not values or len(values) > _MOST_CHOSEN or not all(map(_PLAIN.fullmatch, values)):
            return None
        return HudiReadOptions(filters=[(column, "in", ",".join(values))])

    def file_groups(self) -> list[FileGroup]:
        """List the live file groups, each with its newest instant and its bytes. Raises TableUnreachable."""
        groups = []
        for file_slice in self._file_slices():
            logs = file_slice.log_files_relative_paths()
            groups.append(
                FileGroup(
                    file_slice.partition_path,
                    file_slice.file_id,
                    instant=max([file_slice.creation_instant_time, *map(log_file_instant, logs)]),
                    size_bytes=file_slice.base_file_size + sum(file_slice.log_file_sizes),
                    files=(file_slice.base_file_name, *(path.rpartition("/")[2] for path in logs)),
                )
            )
        return groups

    def partition_sizes(self) -> dict[str, int]:
        """Return the bytes of each table partition's live files. Raises TableUnreachable."""
        sizes: Counter[str] = Counter()
        for group in self.file_groups():
            sizes[group.partition_path] += group.size_bytes
        return dict(sizes)

    def _file_slices(self, chosen: HudiReadOptions | None = None) -> Sequence[Any]:
        if not self.exists():
            return ()
        try:
            slices: Sequence[Any] = self._hudi_table().get_file_slices(chosen)
        except Exception as error:
            raise self.unreadable("files", error) from error
        return slices

    def is_empty(self) -> bool:
        """Whether the active timeline has no instant, of any state and any writer."""
        return not any(name[:1].isdigit() for name in self._names())

    def instants(self) -> Instants:
        """List pending and completed instants by the file names on the storage. Raises TableUnreachable.

        An instant that is pending before and after the call is in `pending`, whatever happens meanwhile: its requested
        file is created before any of its data, and only removed by a rollback or archival.
        """
        seen, completed, undoing = set(), set(), set()
        for file in self._instant_files():
            seen.add(file["requested"])
            if file["completed"]:
                completed.add(file["requested"])
            elif file["rest"].startswith(("rollback.", "restore.")):
                undoing.add(file["requested"])
        return Instants(frozenset(seen - completed), frozenset(completed), frozenset(undoing - completed))

    def restored_at(self) -> datetime | None:
        """Return when the table was last restored to a savepoint, None if not on the active timeline. Raises TableUnreachable."""
        files = self._instant_files()
        times = [file["completed"] for file in files if file["completed"] and file["rest"] == "restore"]
        return instant_time(max(times)) if times else None

    def newest_instant(self) -> str:
        """Return the latest requested or completion time of any writer's action on the active timeline, "" if there is none.

        Raises TableUnreachable.
        """
        times = {time for file in self._instant_files() for time in (file["requested"], file["completed"] or "")}
        return max(filter(is_instant, times), default="")

    def properties(self) -> dict[str, str]:
        """Read hoodie.properties, empty when there is no table. Raises TableUnreachable when the file is damaged."""
        held = self._held
        if held is None:
            return self._properties.read()
        if held.properties is None:
            held.properties = self._looked(held, self._properties.read)
        return dict(held.properties)

    def _looked(self, held: _Held, read: Callable[[], Properties]) -> Properties:
        """Read the properties, and beside them the names on the timeline, which every step that holds them needs next."""
        if held.names is not None:
            return read()
        with beside(self.storage, self._names) as names:
            properties = read()
            names()
        return properties

    def _hudi_table(self) -> HudiTable:
        held = self._held
        if held is not None and held.table is not None:
            return held.table
        table = HudiTable(self.base_path, dict(hudi_rs_options(self.base_path, self._options)))
        if held is not None:
            # With its own listing of the timeline, so that ours must be a later one: see `_completed`.
            held.table, held.names = table, None
        return table

    def savepoints(self) -> frozenset[str]:
        """List the instants that have a savepoint. Raises TableUnreachable."""
        files = self._instant_files()
        return frozenset(file["requested"] for file in files if file["completed"] and file["rest"] == "savepoint")

    def _instant_files(self) -> list[Match[str]]:
        return [match for name in self._names() if (match := INSTANT_FILE.fullmatch(name))]

    def _names(self) -> tuple[str, ...]:
        held = self._held
        if held is not None and held.names is not None:
            return held.names
        try:
            names = self.storage.names(TIMELINE)
        except OSError as error:
            raise self.unreadable("timeline", error) from error
        if held is not None:
            held.names = names
        return names

    def _completed(self) -> Iterator[CommittedInstant]:
        try:
            files = self._commit_files()
            self._keep_written(files)
            read = [_read_commits.get((self.base_path, file)) for _, file in files.values()]
            if files and all(read):
                # Their names, on a local disk with sizes and times, were all there was to ask for.
                yield from (commit for commit in read if commit is not None)
                return
            actions: frozenset[str] | None = None
            if is_s3(self.base_path):
                actions = frozenset(completed.partition(".")[2] for completed, _ in files.values())
            timeline = self._hudi_table().get_timeline()
            files = self._commit_files()
            instants = _completed_of(timeline, actions)
            if not is_s3(self.base_path):
                yield from (self._commit(timeline, instant, files.get(instant.timestamp)) for instant in instants)
                return
            with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
                commits = [*pool.map(lambda i: self._commit(timeline, i, files.get(i.timestamp)), instants)]
            yield from commits
        except Exception as error:
            if isinstance(error, IngestError):
                raise
            raise self.unreadable("timeline", error) from error

    def _keep_written(self, files: Mapping[str, tuple[str, Hashable]]) -> None:
        for instant in self._written.keys() & files.keys():
            text, (completed, file) = self._written.pop(instant), files[instant]
            _read_commits.keep((self.base_path, file), _parsed(text, instant, completed), len(text))

    def _commit_files(self) -> dict[str, tuple[str, Hashable]]:
        """Each commit's time of completion, by its requested time, and its file's identity: on a local disk also size and
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

    def unreadable(self, part: str, error: Exception) -> TableUnreachable | TableMismatch:
        """Explain why hudi-rs could not read a part of the table."""
        if _OTHER_VERSION in str(error):
            return TableMismatch(
                f"cannot read the {part} of the table at {self.base_path}: {error}. A newer Hudi has upgraded it. Nothing was written. Upgrade "
                "hudi-ingest to one that writes that version, or let the Hudi that upgraded the table downgrade it: "
                "`CALL downgrade_table(table => …, to_version => 'NINE')`."
            )
        # hudi-rs's own error is only a text.
        known = error.remedy if isinstance(error, StoreError) else store_remedy(str(error))
        remedy = known if known and is_s3(self.base_path) else _UNREADABLE_REMEDY
        return TableUnreachable(f"cannot read the {part} of the table at {self.base_path}: {error}. {remedy}")


_read_commits: ReadCommits[CommittedInstant] = ReadCommits()
_read_schemas: ReadCommits[pa.Schema] = ReadCommits()


def _completed_of(timeline: Any, actions: Collection[str] | None) -> list[Any]:
    """The completed instants of hudi-rs's timeline, which asks a store for each action; `actions`: those that there are, if known."""
    ask = {
        "commit": timeline.get_completed_commits,
        "deltacommit": timeline.get_completed_deltacommits,
        "replacecommit": timeline.get_completed_replacecommits,
    }
    return [
        instant for action, listed in ask.items() if not actions or action in actions for instant in listed(desc=True)
    ]


def _parsed(text: str, requested: str, completed: str) -> CommittedInstant:
    return commit_of(json.loads(text), requested, completed)


def commit_of(content: Mapping[str, Any], requested: str, completed: str) -> CommittedInstant:
    """Build a commit from Hudi's metadata of it. `requested` and `completed`: its times."""
    partitions = (content.get("partitionToWriteStats") or {}).values()
    stats = [stat for partition_stats in partitions for stat in partition_stats]
    return CommittedInstant(
        instant=requested,
        metadata=content.get("extraMetadata") or {},
        completed_at=instant_time(completed),
        files={stat["path"]: stat["fileSizeInBytes"] for stat in stats if stat.get("path")},
        rows=sum((stat.get("numWrites") or 0) + (stat.get("numDeletes") or 0) for stat in stats),
        operation=content.get("operationType") or "",
        replaced=frozenset(
            (partition, file_id)
            for partition, file_ids in (content.get("partitionToReplaceFileIds") or {}).items()
            for file_id in file_ids
        ),
    )


def column_range(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    """Return a column's least and greatest value, by a file's statistics; None if it has none, or has nulls."""
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


def log_file_instant(path: str) -> str:
    """The instant in a log file's name."""
    return path.partition(".log.")[0].rpartition("_")[2]


@lru_cache(4096)
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
