"""pyiceberg's access to the metadata files of a table, through the table's own storage: one request for each file, and what is written
survives a power cut before a catalog names it."""

from __future__ import annotations

import io  # files: none, bytes in memory
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow.fs as pafs  # files: the base files, for pyiceberg's own reader
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import Properties

from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.s3_access import filesystem_of
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.timeline import ReadCommits
from hudi_ingest.model.storage_options import SecretReference, StorageOptions, is_s3

_BASE_PATH, _OPTIONS = "hudi-ingest.io-path", "hudi-ingest.io-options"
_MOST_BYTES = 32 * 1024 * 1024
_contents: ReadCommits[bytes] = ReadCommits(_MOST_BYTES)
"""What was read or written last: each metadata file has a name of its own, and never changes."""


def data_root(base_path: str) -> str:
    """Return the table's path as Iceberg's readers name it."""
    return f"s3://{base_path.partition('://')[2]}" if is_s3(base_path) else f"file://{base_path}"


def file_settings(base_path: str, options: StorageOptions) -> Mapping[str, str]:
    """Return the catalog's settings that give it this access. They hold references, no secrets."""
    plain = {**asdict(options), **{key: reference.text for key, reference in options.secrets}}
    return {"py-io-impl": f"{__name__}.TableFileIO", _BASE_PATH: base_path, _OPTIONS: json.dumps(plain)}


class TableFileIO(PyArrowFileIO):
    """The access to one table. pyarrow reads data files, by the same login."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        plain: dict[str, Any] = json.loads(properties[_OPTIONS])
        secrets = {
            key: SecretReference(plain[key]) for key in ("access_key", "secret_key", "session_token") if plain[key]
        }
        self._storage = storage_at(properties[_BASE_PATH], StorageOptions(**{**plain, **secrets}))
        self._root = f"{data_root(self._storage.base_path)}/"

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> pafs.FileSystem:
        return pafs.LocalFileSystem() if self._storage.is_local else filesystem_of(self._storage.options)

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        if not location.startswith(self._root):
            # Another table's, which is there under the same name.
            return super().new_input(location)
        return _File(location, self._storage, location.removeprefix(self._root))

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        return _File(location, self._storage, location.removeprefix(self._root))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        self._storage.delete(name.removeprefix(self._root))


class _File(InputFile, OutputFile):
    """A metadata file, read and written whole."""

    def __init__(self, location: str, storage: TableStorage, path: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._path = path

    @property
    def _key(self) -> tuple[str, str]:
        return self._storage.base_path, self._path

    def __len__(self) -> int:
        return len(self._content())

    def _content(self) -> bytes:
        known = _contents.get(self._key)
        if known is None:
            known = self._storage.read(self._path)
            _contents.keep(self._key, known, len(known))
        return known

    def exists(self) -> bool:
        return self._storage.exists(self._path)

    def to_input_file(self) -> InputFile:
        return self

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._content())

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)

    def write(self, content: bytes) -> None:
        self._storage.replace(self._path, content)
        _contents.keep(self._key, content, len(content))


class _Stream(io.BytesIO):
    """Writes the file when it is closed."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.write(self.getvalue())
        super().close()
