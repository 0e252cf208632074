"""Tables on a local or mounted file system."""

from __future__ import annotations

import errno
import os  # files: the tables'
import uuid
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import pyarrow.fs as pafs  # files: the tables'

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.storage import (
    FULL,
    FULL_REMEDY,
    UNKNOWN_TIME,
    StoredFile,
    StoreError,
    TableStorage,
    Upload,
    Versioned,
)
from hudi_ingest.model.storage_options import StorageOptions

_SYNCS_AT_ONCE = 8
"""Concurrent syncs: a journal writes simultaneous requests together."""


class LocalStorage(TableStorage):
    """Files below a folder of this machine."""

    is_local = True

    def __init__(self, base_path: str) -> None:
        super().__init__(base_path, StorageOptions())
        self._filesystem = pafs.LocalFileSystem()
        self._root = base_path.rstrip("/")

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[str]]:
        return (LocalStorage, (self.base_path,))

    def make(self) -> None:
        try:
            self._filesystem.create_dir(self._root, recursive=True)
            # Probe by writing, because permissions alone are not conclusive; readers ignore names that begin with a dot.
            probe = _hidden_partial("")
            self.write(probe, b"")
            self.delete(probe)
        except OSError as error:
            raise TableUnreachable(
                f"the table's folder {self.base_path} cannot be created or written to: {error}. Correct table.base_path, or make "
                "the folder writable for the engine's user. Nothing was written."
            ) from error

    def require_creatable(self) -> None:
        folder = os.path.dirname(self._root)
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise TableUnreachable(
                f"this user may not create a folder in {folder}, so there can be no table at {self.base_path}. Correct "
                "table.base_path, or the folder's owner or mode."
            )

    def explained(self, error: OSError) -> OSError:
        full = error.errno in FULL and not isinstance(error, StoreError)
        return StoreError(str(error), FULL_REMEDY) if full else error

    def require_conditional_writes(self) -> None:
        return

    def exists(self, path: str) -> bool:
        return bool(self._info(path).type != pafs.FileType.NotFound)

    def size(self, path: str) -> int:
        info = self._info(path)
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(f"{self.base_path}/{path}")
        return int(info.size)

    def read(self, path: str) -> bytes:
        with self._filesystem.open_input_stream(self._absolute(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        with self.open_output(path) as stream:
            stream.write(content)

    def write_whole(self, path: str, content: bytes) -> None:
        # Not named after the file: Hudi takes names that begin like a partition's metadata for it.
        partial = _hidden_partial(os.path.dirname(path))
        self.write(partial, content)
        self._filesystem.move(self._absolute(partial), self._absolute(path))

    def replace(self, path: str, content: bytes) -> None:
        partial = f"{path}.{uuid.uuid4().hex}.partial"
        self.write(partial, content)
        _sync(self._absolute(partial))
        self._filesystem.move(self._absolute(partial), self._absolute(path))
        _sync_folder(os.path.dirname(self._absolute(path)))

    def read_versioned(self, path: str) -> Versioned:
        try:
            return Versioned(self.read(path), None)
        except FileNotFoundError:
            return Versioned(b"", None)

    def put_if(self, path: str, content: bytes, before: Versioned) -> None:
        self.replace(path, content)

    def sync(self, paths: Iterable[str]) -> None:
        files = {self._absolute(path) for path in paths}
        # The table's own folder may be new too, and its parent names it, but we may not be allowed to read that.
        above = os.path.dirname(self._root)
        top = above if os.access(above, os.R_OK) else self._root
        folders = {folder for file in files for folder in _folders_up_to(file, top)}
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
            # Files before folders: a name must not be on disk before what it names.
            list(pool.map(_sync, sorted(files)))
            list(pool.map(_sync_folder, sorted(folders)))

    def open_output(self, path: str, ready: Callable[[], object] | None = None) -> IO[bytes]:
        if ready is not None:
            ready()
        absolute = self._absolute(path)
        try:
            stream: IO[bytes] = self._filesystem.open_output_stream(absolute)
        except FileNotFoundError:
            self._filesystem.create_dir(absolute.rsplit("/", 1)[0], recursive=True)
            stream = self._filesystem.open_output_stream(absolute)
        return stream

    def delete(self, path: str) -> None:
        if self.exists(path):
            self._filesystem.delete_file(self._absolute(path))

    def names(self, folder: str) -> tuple[str, ...]:
        selector = pafs.FileSelector(self._absolute(folder), allow_not_found=True)
        return tuple(sorted(info.base_name for info in self._filesystem.get_file_info(selector)))

    def files_beside(self, folder: str, excluded: Container[str]) -> list[StoredFile]:
        files = []
        for info in self._filesystem.get_file_info(pafs.FileSelector(self._absolute(folder), allow_not_found=True)):
            if info.type == pafs.FileType.File:
                files.append(self._stored(info))
            elif info.base_name not in excluded:
                files += self.files(f"{folder}/{info.base_name}".lstrip("/"))
        return files

    def files(self, folder: str) -> list[StoredFile]:
        selector = pafs.FileSelector(self._absolute(folder), recursive=True, allow_not_found=True)
        infos = self._filesystem.get_file_info(selector)
        return [self._stored(info) for info in infos if info.type == pafs.FileType.File]

    def file(self, path: str) -> StoredFile | None:
        info = self._info(path)
        return self._stored(info) if info.type == pafs.FileType.File else None

    def delete_folder(self, folder: str) -> None:
        self._filesystem.delete_dir_contents(self._absolute(folder), missing_dir_ok=True)
        if self.exists(folder):
            self._filesystem.delete_dir(self._absolute(folder))

    def unfinished_uploads(self, suspected: Iterable[str] = ()) -> list[Upload]:
        return []

    def abort_upload(self, upload: Upload) -> bool:
        return False

    @property
    def _arrow(self) -> Any:
        return self._filesystem

    def _stored(self, info: Any) -> StoredFile:
        return StoredFile(info.path.removeprefix(f"{self._root}/"), int(info.size), info.mtime or UNKNOWN_TIME)

    def _info(self, path: str) -> Any:
        return self._filesystem.get_file_info(self._absolute(path))

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _hidden_partial(folder: str) -> str:
    return os.path.join(folder, f".{uuid.uuid4().hex}.partial")


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
