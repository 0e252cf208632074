"""All file access to a table goes through here: local paths and object stores, by pyarrow.fs."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.paths import HOODIE

_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_UNKNOWN = datetime.max.replace(tzinfo=timezone.utc)
"""Time of a file for which the storage has none: it never counts as old."""
_SYNCS_AT_ONCE = 8
"""Concurrent syncs: a journal writes simultaneous requests together."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a storage listing; `modified` is in UTC."""

    path: str
    size_bytes: int
    modified: datetime


class TableStorage:
    """Files below one table's base path. Paths are relative to it and use `/`.

    Picklable: only its base path goes to Spark's Python workers, which connect there.
    """

    def __init__(self, base_path: str) -> None:
        self.base_path = base_path
        self._filesystem, self._root = _connect(base_path)

    def __reduce__(self) -> tuple[type[TableStorage], tuple[str]]:
        return (TableStorage, (self.base_path,))

    def make(self) -> None:
        """Create the table's folder and its parents. Raises TableUnreachable when it cannot be created or written to."""
        try:
            self._filesystem.create_dir(self._root, recursive=True)
            # Probe by writing, because permissions alone are not conclusive; readers ignore names that begin with a dot.
            probe = f".{uuid.uuid4().hex}.partial"
            self.write(probe, b"")
            self.delete(probe)
        except OSError as error:
            raise TableUnreachable(
                f"the table's folder {self.base_path} cannot be created or written to: {error}. Correct table.base_path, or make "
                "the folder writable for the engine's user. Nothing was written."
            ) from error

    def exists(self, path: str) -> bool:
        return bool(self._info(path).type != pafs.FileType.NotFound)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes. Raises FileNotFoundError."""
        info = self._info(path)
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(f"{self.base_path}/{path}")
        return int(info.size)

    def read(self, path: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError."""
        with self._filesystem.open_input_stream(self._absolute(path)) as stream:
            return bytes(stream.read())

    def parquet_footer(self, path: str) -> pq.FileMetaData:
        """Read the schema and statistics of a Parquet file, without its rows."""
        return pq.read_metadata(self._absolute(path), filesystem=self._filesystem)

    def parquet_batches(self, path: str, columns: Sequence[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Read a Parquet file in batches of at most `rows`; with `columns` None, all columns."""
        names = None if columns is None else [*columns]
        # Not as a dataset, which would add columns from the path.
        with self._filesystem.open_input_file(self._absolute(path)) as file:
            yield from pq.ParquetFile(file).iter_batches(rows, columns=names)

    def parquet_file(self, path: str) -> pq.ParquetFile:
        """Open a Parquet file; the caller closes it. Raises FileNotFoundError."""
        return pq.ParquetFile(self._absolute(path), filesystem=self._filesystem)

    def write(self, path: str, content: bytes) -> None:
        """Replace the file; creates its folders."""
        with self.open_output(path) as stream:
            stream.write(content)

    def replace(self, path: str, content: bytes) -> None:
        """Replace the file atomically: even after a power cut a reader sees all of the old content or all of the new."""
        if not isinstance(self._filesystem, pafs.LocalFileSystem):
            # An object store's objects appear whole.
            self.write(path, content)
            return
        partial = f"{path}.{uuid.uuid4().hex}.partial"
        self.write(partial, content)
        _sync(self._absolute(partial))
        self._filesystem.move(self._absolute(partial), self._absolute(path))
        _sync_folder(os.path.dirname(self._absolute(path)))

    def sync(self, paths: Iterable[str]) -> None:
        """Flush the files, and the folders that lead to them, so that they survive a power cut. Raises OSError.

        Only on a local or mounted file system; an object store keeps what it has acknowledged.
        """
        if not isinstance(self._filesystem, pafs.LocalFileSystem):
            return
        files = {self._absolute(path) for path in paths}
        # The table's own folder may be new too, and its parent names it, but we may not be allowed to read that.
        above = os.path.dirname(self._root)
        top = above if os.access(above, os.R_OK) else self._root
        folders = {folder for file in files for folder in _folders_up_to(file, top)}
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
            # Files before folders: a name must not be on disk before what it names.
            list(pool.map(_sync, sorted(files)))
            list(pool.map(_sync_folder, sorted(folders)))

    def open_output(self, path: str) -> IO[bytes]:
        """Open a stream that replaces the file; creates its folders. Closing it, even on an error, completes the file."""
        absolute = self._absolute(path)
        if isinstance(self._filesystem, pafs.LocalFileSystem):
            self._filesystem.create_dir(absolute.rsplit("/", 1)[0], recursive=True)
        stream: IO[bytes] = self._filesystem.open_output_stream(absolute)
        return stream

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        if self.exists(path):
            self._filesystem.delete_file(self._absolute(path))

    def names(self, folder: str) -> tuple[str, ...]:
        """List the names of files and folders directly below `folder`, sorted; empty if the folder does not exist."""
        selector = pafs.FileSelector(self._absolute(folder), allow_not_found=True)
        return tuple(sorted(info.base_name for info in self._filesystem.get_file_info(selector)))

    def data_files(self) -> list[StoredFile]:
        """List all files of the table outside .hoodie, in no particular order."""
        return self.files_beside("", {HOODIE})

    def files_beside(self, folder: str, excluded: Container[str]) -> list[StoredFile]:
        """List all files below `folder`, in no particular order, except in the `excluded` folders directly below it."""
        files = []
        for info in self._filesystem.get_file_info(pafs.FileSelector(self._absolute(folder), allow_not_found=True)):
            if info.type == pafs.FileType.File:
                files.append(self._stored(info))
            elif info.base_name not in excluded:
                files += self.files(f"{folder}/{info.base_name}".lstrip("/"))
        return files

    def files(self, folder: str) -> list[StoredFile]:
        """List all files below `folder`, at any depth and in no particular order; empty if the folder does not exist."""
        selector = pafs.FileSelector(self._absolute(folder), recursive=True, allow_not_found=True)
        infos = self._filesystem.get_file_info(selector)
        return [self._stored(info) for info in infos if info.type == pafs.FileType.File]

    def file(self, path: str) -> StoredFile | None:
        """Return the file's current size and time, or None if it does not exist."""
        info = self._info(path)
        return self._stored(info) if info.type == pafs.FileType.File else None

    def delete_folder(self, folder: str) -> None:
        """Delete a folder and its contents, if it exists."""
        self._filesystem.delete_dir_contents(self._absolute(folder), missing_dir_ok=True)
        if self.exists(folder):
            self._filesystem.delete_dir(self._absolute(folder))

    def _stored(self, info: Any) -> StoredFile:
        return StoredFile(info.path.removeprefix(f"{self._root}/"), int(info.size), info.mtime or _UNKNOWN)

    def _info(self, path: str) -> Any:
        return self._filesystem.get_file_info(self._absolute(path))

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def advice(error: Exception) -> str:
    """Advise on a storage error, in one sentence."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return "This process has reached its limit of open files: raise `ulimit -n` (LimitNOFILE in a systemd unit)."
    if number == errno.ENFILE:
        return "This machine has reached its limit of open files: raise fs.file-max, or find the process that opens so many (`lsof`)."
    return "Check the path, its permissions and free space."


def _folders_up_to(path: str, top: str) -> Iterator[str]:
    while path != top and path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path


def _sync_folder(path: str) -> None:
    try:
        _sync(path)
    except OSError as error:
        # Some network file systems cannot sync folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connect(base_path: str) -> tuple[Any, str]:
    scheme, separator, rest = base_path.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), base_path.rstrip("/")
    try:
        filesystem, root = pafs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableUnreachable(
            f"cannot open the storage of table {base_path}: {error}. Check the scheme, the credentials and the network."
        ) from error
    if isinstance(filesystem, pafs.S3FileSystem):
        filesystem = pafs.S3FileSystem(region=filesystem.region, allow_delayed_open=True)
    return filesystem, root.rstrip("/")
