"""New files of an open instant: marker first, then data, reports of closed files only, and nothing left after an error."""

from __future__ import annotations

from contextlib import suppress
from typing import IO, Generic, TypeVar

import pyarrow as pa

from hudi_ingest.faults import reach
from hudi_ingest.hudi.files.row_source import RowSource
from hudi_ingest.hudi.storage.paths import marker_path, partition_metadata_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.timeline.fence import Fence
from hudi_ingest.model.offsets import TopicPartition

Report = TypeVar("Report")


class NewFiles(Generic[Report]):
    """Opens and closes the files that one task writes, and deletes them all in `discard`.

    `files` holds the reports of closed files by Kafka partition; a file is in it only after a check of the fence that
    followed its closing. All methods raise Fenced, TableUnreachable and OSError.
    """

    def __init__(self, storage: TableStorage, instant: str, epoch: Epoch) -> None:
        self.files: dict[TopicPartition, list[Report]] = {}
        self._storage = storage
        self._instant = instant
        self._fence = Fence(storage, instant, epoch)
        self._known_folders: set[str] = set()
        self._created: list[str] = []
        self._streams: dict[str, IO[bytes]] = {}
        self._closed: list[tuple[TopicPartition, Report]] = []
        """Closed since the last check that the instant is open."""

    def open(self, source: RowSource, folder: str, path: str) -> IO[bytes]:
        """Open the file at `path`, which is in the table partition `folder`."""
        self.check_if_due(source)
        # The marker comes first: at commit and rollback Hudi only cleans up files that have one.
        self._storage.write(marker_path(self._instant, path), b"")
        reach("marker_written")
        self._ensure_partition_metadata(folder)
        self._created.append(path)
        stream = self._streams[path] = self._storage.open_output(path)
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
        stream = self._streams[path]
        size = stream.tell()
        stream.close()
        del self._streams[path]
        reach("file_closed")
        return size

    def report(self, source: TopicPartition, file: Report) -> None:
        """Add a closed file to `files` at the next check."""
        self._closed.append((source, file))

    def check_if_due(self, source: RowSource) -> None:
        """A process that stood still, or writes for long, learns here that it is fenced before it opens or closes a file.
        That makes files unlikely which are too late, and which a process that dies now would leave to the sweep."""
        if self._fence.check_is_due:
            self._check(source)

    def finish(self, source: RowSource) -> None:
        """Make `files` complete; all files must be closed."""
        if self._closed:
            self._check(source)

    def _check(self, source: RowSource) -> None:
        """Check the fence, and report the files closed before.

        Only this check, after they are closed, proves anything: closing may take long, and if the instant was rolled back
        meanwhile, the files were too late to be cleaned up with it. The error makes the writer delete them.
        """
        self._fence.require_open(source)
        for kafka_partition, file in self._closed:
            self.files.setdefault(kafka_partition, []).append(file)
        self._closed.clear()

    def discard(self) -> None:
        """Delete every file that was opened, closed or not."""
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

    def _ensure_partition_metadata(self, folder: str) -> None:
        if folder in self._known_folders:
            return
        self._known_folders.add(folder)
        metadata = partition_metadata_path(folder)
        existing = self._storage.file(metadata)
        # An empty one is not repaired by Hudi either, which then cannot find the table of a file in this folder.
        if existing is None or not existing.size_bytes:
            depth = folder.count("/") + 1 if folder else 0
            content = f"#partition metadata\ncommitTime={self._instant}\npartitionDepth={depth}\n"
            # Tasks may race here: each of their instants is valid, so the last write may win.
            self._storage.write_whole(metadata, content.encode())
