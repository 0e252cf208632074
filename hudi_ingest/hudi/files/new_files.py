"""New files of an open instant: how rows are laid out in them, the fence that stops late writers, and their order: marker first,
then data, reports of closed files only, and nothing left after an error."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import IO, Generic, TypeVar

import pyarrow as pa

from hudi_ingest.exceptions import Fenced
from hudi_ingest.faults import reach
from hudi_ingest.hudi.files.file_groups import RowSource, id_of
from hudi_ingest.hudi.storage.paths import MARKERS, heartbeat_path, marked_path, marker_path, partition_metadata_path
from hudi_ingest.hudi.storage.storage import TableStorage, beside
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.model.offsets import Slice, TopicPartition

ROWS_PER_FILE = 2_000_000
"""Rows at which a base file is closed, unless `target_file_bytes` closes it first; a longer range of offsets is split over Spark tasks."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How rows become files; the same for all tasks of a transaction."""

    instant: str
    epoch: Epoch
    partition_by: tuple[str, ...]
    hive_style: bool = field(default=True, kw_only=True)
    """Whether folders are named `column=value`."""
    escaped_folders: bool = field(default=True, kw_only=True)
    """Whether unsafe characters of a value are escaped in folder names."""


@dataclass(frozen=True, slots=True)
class BaseFileLayout(FileLayout):
    """How rows become base files."""

    rows_per_file: int
    target_file_bytes: int
    compression: str
    generations: Mapping[str, int] = field(default_factory=dict)
    """Generation of each topic whose offsets have started over; see TopicVersion."""
    record_key: tuple[str, ...] = ()
    """Columns that form the record key; empty if it is made of topic, partition and offset."""
    statistics: bool = False
    """Whether the reports have the statistics of the files' columns."""


RECORD = "_hudi_ingest_record"
"""A struct column: the Kafka record of a row that may be refused, as it was read; null for others."""


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A completed commit on a keyed table's active timeline, whoever made it."""

    read: tuple[Slice, ...] = ()
    """The offsets whose changes it applied."""
    truncates: tuple[tuple[Slice, int], ...] = ()
    """The slices that have truncates, each with the number of deletes that these wrote; 0 also if they were skipped."""
    files: tuple[str, ...] = ()
    """The paths of its data files."""
    replaced: frozenset[tuple[str, str]] = frozenset()
    """The file groups that it removed: partition path and file id."""


@dataclass(frozen=True, slots=True)
class Past:
    """The commits by which changes that come late are judged, in the order of their completion."""

    commits: tuple[PastCommit, ...]
    leaves_values_out: bool = False
    """Whether later changes may have taken values from the rows before them."""


@dataclass(frozen=True, slots=True)
class KeyedLayout(FileLayout):
    """How changes become log files."""

    key: tuple[str, ...]
    ordering: tuple[str, ...]
    """The table's ordering fields. Of two changes of a key the one with the greater values wins, and of equal ones the later."""
    buckets: int
    schema_json: str
    """The Avro schema of a log file's rows, with Hudi's columns."""
    compression: str
    groups: Mapping[str, str] = field(default_factory=dict)
    """File ids of buckets that do not have the fixed one, by `<partition path>|<bucket>`."""
    past: Past | None = None
    """None unless the changes come late."""

    def file_id(self, partition_path: str, bucket: int) -> str:
        """Return the id of the file group that holds a bucket. It begins with the bucket, as Hudi requires."""
        return id_of(self.groups, partition_path, bucket)

    @property
    def names_single_key(self) -> bool:
        """Whether the record key is `id:x` rather than `x` if its only column is id: see `hudi.options.key_generator`."""
        return len(self.partition_by) > 1


Self = TypeVar("Self", bound="DiscardedOnError")


class DiscardedOnError(ABC):
    """A task's files, as a context manager: if it exits with an error, every file it created is deleted, because pyarrow would
    complete an unfinished one as a valid file with fewer rows."""

    @abstractmethod
    def close(self) -> None:
        """Write what is buffered, and close all files. Raises Fenced, OSError."""

    @abstractmethod
    def discard(self) -> None:
        """Delete every file that was created, closed or not."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.discard()


CHECK_SECONDS = 0.05
"""How old the last check may be when a file is opened or closed; a check costs 0.1 ms."""
_AT_ONCE = 8
"""Requests to an object store at the same time; each may have a part of a file in memory."""
_CHECK_SECONDS_OF_A_STORE = 1.0
"""On an object store, where a check is two requests."""


class Fence:
    """Refuses writers whose instant is no longer open, or whose transaction's epoch is over."""

    def __init__(self, storage: TableStorage, instant: str, epoch: Epoch) -> None:
        self._storage = storage
        self._instant = instant
        self._epoch = epoch
        self._check_seconds = CHECK_SECONDS if storage.is_local else _CHECK_SECONDS_OF_A_STORE
        self._checked_at = float("-inf")

    @property
    def check_is_due(self) -> bool:
        return time.monotonic() - self._checked_at > self._check_seconds

    def require_open(self, source: RowSource) -> None:
        """Raises Fenced, TableUnreachable."""
        require = partial(TableEpoch(self._storage).require, self._epoch, f"{source} must not be written")
        # In either order: each stays over once it is over.
        with beside(self._storage, require) as required:
            if not self._storage.exists(heartbeat_path(self._instant)):
                raise Fenced(
                    f"instant {self._instant} of {self._storage.base_path} is no longer open (rolled back, or "
                    f"committed by another process), so {source} must not write to it. "
                    "Nothing of this attempt is visible; the next transaction reads the same offsets.",
                    transaction_id=self._epoch.transaction_id,
                    instant=self._instant,
                )
            required()
        self._checked_at = time.monotonic()


Report = TypeVar("Report")


class NewFiles(Generic[Report]):
    """Opens and closes the files that one task writes, and deletes them all in `discard`.

    `files` holds the reports of closed files by Kafka partition; a file is in it only after a check of the fence that
    followed its closing. On an object store, files are closed side by side, and an error of one is raised by a later call, at the
    latest by `finish`. All methods raise Fenced, TableUnreachable and OSError.
    """

    def __init__(self, storage: TableStorage, instant: str, epoch: Epoch) -> None:
        self.files: dict[TopicPartition, list[Report]] = {}
        self._storage = storage
        self._instant = instant
        self._fence = Fence(storage, instant, epoch)
        self._known_folders: set[str] = set()
        self._created: list[str] = []
        self._streams: dict[str, IO[bytes]] = {}
        self._pool = None if storage.is_local else ThreadPoolExecutor(_AT_ONCE, "files")
        self._closing: list[Future[None]] = []
        self._closed: list[tuple[TopicPartition, Report]] = []
        """Closed since the last check that the instant is open."""

    def open(self, source: RowSource, folder: str, path: str) -> IO[bytes]:
        """Open the file at `path`, which is in the table partition `folder`."""
        self.check_if_due(source)
        # The marker comes first: at commit and rollback Hudi only cleans up files that have one. On an object store nothing of the
        # file is there before its stream has waited for both.
        first = [self._begun(partial(self._write_marker, path))]
        if folder not in self._known_folders:
            self._known_folders.add(folder)
            first.append(self._begun(partial(self._ensure_partition_metadata, folder)))
        self._created.append(path)
        stream = self._streams[path] = self._storage.open_output(path, lambda: [call.result() for call in first])
        reach("file_opened")
        return stream

    def rows_are_written(self) -> None:
        """Say that a file has some of its rows, or all."""
        reach("rows_written")

    def rows_are_complete(self, source: RowSource) -> None:
        """Say that a file has all its rows and will be closed next."""
        reach("file_ready")
        self.check_if_due(source)

    def close(self, path: str) -> int:
        """Close the file. Returns its size in bytes."""
        size = self._streams[path].tell()
        if len(self._closing) >= _AT_ONCE:
            self._closing.pop(0).result()
        self._closing.append(self._begun(partial(self._close, path)))
        return size

    def report(self, source: TopicPartition, file: Report) -> None:
        """Add a closed file to `files` at the next check."""
        self._closed.append((source, file))

    def wait_closed(self) -> None:
        """Wait until all files that are being closed can be read."""
        while self._closing:
            self._closing.pop(0).result()

    def check_if_due(self, source: RowSource) -> None:
        """Check the fence from time to time, so that a process that stood still, or writes for long, stops before it opens or closes
        a file. So few files are too late, or left to the sweep by a process that dies now."""
        if self._fence.check_is_due:
            self._check(source)

    def finish(self, source: RowSource) -> None:
        """Make `files` complete; all files must be closed."""
        if self._closed:
            self._check(source)
        if self._pool is not None:
            self._pool.shutdown()

    def _check(self, source: RowSource) -> None:
        """Check the fence, and report the files closed before.

        Only this check, after they are closed, proves anything: closing may take long, and if the instant was rolled back
        meanwhile, the files were too late to be cleaned up with it. The error makes the writer delete them.
        """
        self.wait_closed()
        self._fence.require_open(source)
        for kafka_partition, file in self._closed:
            self.files.setdefault(kafka_partition, []).append(file)
        self._closed.clear()

    def discard(self) -> None:
        """Delete every file that was opened, closed or not."""
        self._closing.clear()
        if self._pool is not None:
            # Waits for all that are being closed: deleted before, a file would be there again.
            self._pool.shutdown()
        for stream in self._streams.values():
            # The file is deleted next, so errors of a full disk or a lost connection do not matter here.
            with suppress(OSError, pa.ArrowException):
                stream.close()
        self._streams.clear()
        for path in self._created:
            # A file that cannot be deleted now has a marker, so Hudi deletes it at commit or rollback.
            with suppress(OSError):
                self._storage.delete(path)
        self._closed.clear()
        self.files.clear()

    def _begun(self, call: Callable[[], None]) -> Future[None]:
        """Make the call, beside what follows if it waits for an object store."""
        if self._pool is not None:
            return self._pool.submit(call)
        call()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _write_marker(self, path: str) -> None:
        self._storage.write(marker_path(self._instant, path), b"")
        reach("marker_written")

    def _close(self, path: str) -> None:
        self._streams[path].close()
        del self._streams[path]
        reach("file_closed")

    def _ensure_partition_metadata(self, folder: str) -> None:
        metadata = partition_metadata_path(folder)
        existing = self._storage.file(metadata)
        # An empty one is not repaired by Hudi either, which then cannot find the table of a file in this folder.
        if existing is None or not existing.size_bytes:
            depth = folder.count("/") + 1 if folder else 0
            content = f"#partition metadata\ncommitTime={self._instant}\npartitionDepth={depth}\n"
            # Tasks may race here: each of their instants is valid, so the last write may win.
            self._storage.write_whole(metadata, content.encode())


def written_so_far(storage: TableStorage, instant: str) -> int:
    """Return the bytes of the files that an open instant has begun, by their markers. Raises OSError."""
    begun = [marked_path(instant, marker.path) for marker in storage.files(f"{MARKERS}/{instant}")]
    return sum(file.size_bytes for path in begun if (file := storage.file(path)) is not None)
