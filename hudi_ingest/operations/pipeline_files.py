"""Creates, changes and deletes pipeline files for programs: checked before they are written, and never over another's change."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os  # files: pipeline files
import re
import stat
import tempfile  # files: pipeline files
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path  # files: pipeline files

from hudi_ingest.exceptions import ConfigError, FileChanged, FileExists, FileNotWritable, NoSuchPipeline
from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.home.folder import Home
from hudi_ingest.operations.validation import Validation, validate_text
from hudi_ingest.pipeline.file import shown_file
from hudi_ingest.pipeline.folder import FolderFile, folder_files
from hudi_ingest.pipeline.template import TOPIC


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A pipeline file as it is stored. `version` differs once a byte of it was changed."""

    name: str
    path: Path
    content: bytes

    @property
    def version(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:32]


class PipelineFiles:
    """The files of a home's pipelines folder. A change is written whole or not at all, and only one at a time.

    What a person or Git does to a file at the very moment of a change cannot be noticed.
    """

    def __init__(self, home: Home) -> None:
        self._home = home

    def all(self) -> tuple[FolderFile, ...]:
        """All files with their pipelines or problems. Raises ConfigError if the folder cannot be read."""
        return folder_files(self._home.pipelines)

    def find(self, name: str) -> FolderFile:
        """The file with this name. A file that says no name is found by its file name, and one for many topics also by that
        without its ending. Names are compared, never joined to a path.

        Raises NoSuchPipeline, and ConfigError if the folder cannot be read.
        """
        return _found(self.all(), name, self._home.pipelines)

    def read(self, name: str) -> tuple[StoredFile, FolderFile]:
        """The file with this name, or the one that makes this pipeline of a topic. Raises NoSuchPipeline, ConfigError."""
        files = self.all()
        makers = [file for file in files if any(name == made.name for made in file.pipelines)]
        file = makers[0] if makers else _found(files, name, self._home.pipelines)
        return _stored(file), file

    def validate(self, text: str, name: str | None = None) -> Validation:
        """Check a text as a new file, or as the new content of the file of pipeline `name`. Writes nothing.

        Raises NoSuchPipeline, ConfigError if the folder cannot be read.
        """
        if name is None:
            path = self._new_path(text)
            validation = validate_text(self._home, path, text)
            taken = _taken(path, validation)
            return replace(validation, problems=(*validation.problems, f"name: {taken}")) if taken else validation
        file = self.find(name)
        return validate_text(self._home, file.path, text, keep_name=file.name)

    def require_none(self, name: str) -> None:
        """Raises FileExists if a pipeline or a file of this name is there; ConfigError if the folder cannot be read."""
        path = self._path_of(name)
        files = self.all() if path.parent.is_dir() else ()
        if taken := path if path.exists() else next((file.path for file in files if file.name == name), None):
            raise FileExists(f"pipeline {name} has a file already, {taken}; change that one")

    def create(self, text: str) -> tuple[StoredFile, Validation]:
        """Write a new file; the validation says whether it was written. Raises FileExists, FileNotWritable, ConfigError."""
        with self._alone():
            path = self._new_path(text)
            validation = validate_text(self._home, path, text)
            stored = StoredFile(validation.name or "", path, text.encode())
            if taken := _taken(path, validation):
                raise FileExists(taken)
            if not validation.problems:
                _write(path, stored.content, replaces=False)
            return stored, validation

    def replace(self, name: str, text: str, version: str | None) -> tuple[StoredFile, Validation]:
        """Write new content, if the file still has the `version` (None: any); the validation says whether it was written.

        Raises NoSuchPipeline, FileChanged, FileNotWritable, ConfigError.
        """
        with self._alone():
            file = self._unchanged(name, version)
            path = file.path
            validation = validate_text(self._home, path, text, keep_name=file.name)
            if not validation.problems:
                _write(path, text.encode(), replaces=True)
            return StoredFile(name, path, text.encode()), validation

    def delete(self, name: str, version: str | None) -> Path:
        """Delete the file, if it still has the `version` (None: any), and return where it was. The table stays.

        Raises NoSuchPipeline, FileChanged, FileNotWritable, ConfigError.
        """
        with self._alone():
            path = self._unchanged(name, version).path
            with _writing(path):
                path.unlink()
                _flush_folder(path.parent)
            return path

    def _unchanged(self, name: str, version: str | None) -> FolderFile:
        file = self.find(name)
        stored = _stored(file)
        if version is not None and version != stored.version:
            raise FileChanged(
                f"{stored.path}: the file was changed since version {quoted(version)} was read; its version is "
                f"{stored.version!r} now. Read it again, and make the change there."
            )
        return file

    def _new_path(self, text: str) -> Path:
        return self._path_of(str(shown_file(text).settings.get("name") or ""))

    def _path_of(self, name: str) -> Path:
        """Where the file of this name would be: the name decides, and no other character of it than these gets there."""
        stem = re.sub("[^A-Za-z0-9_]+", "_", name.replace(TOPIC, "")).strip("_")[:100]
        return self._home.pipelines / f"{stem or 'unnamed'}.yaml"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other change of this home's pipelines happen meanwhile."""
        self._home.make()
        with open(self._home.root / "pipeline-files.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _taken(path: Path, validation: Validation) -> str:
    """Say which file a new one at `path` would be in the way of; "" if none."""
    taken = path if validation.name is not None and path.exists() else validation.namesake
    return f"pipeline {validation.name} has a file already, {taken}; change that one" if taken else ""


def _found(files: Sequence[FolderFile], name: str, folder: Path) -> FolderFile:
    """Raises NoSuchPipeline."""
    for file in files:
        if name == (file.path.name if file.name is None else file.name) or (
            TOPIC in (file.name or "") and name == file.path.stem
        ):
            return file
    known = [file.name for file in files if file.name is not None]
    problem = (
        f"no pipeline file has the name {quoted(name)}; known: {', '.join(known) or 'none'}{suggestion(name, known)}"
    )
    raise NoSuchPipeline(str(folder), [problem])


def _stored(file: FolderFile) -> StoredFile:
    """Raises NoSuchPipeline, ConfigError."""
    try:
        return StoredFile(file.name or file.path.name, file.path, file.path.read_bytes())
    except FileNotFoundError:
        raise NoSuchPipeline(str(file.path), ["the file was deleted a moment ago"]) from None
    except OSError as error:
        raise ConfigError(str(file.path), [f"the file cannot be read: {error.strerror or error}"]) from None


def _write(path: Path, content: bytes, *, replaces: bool) -> None:
    """Write the file, flushed, so that a reader finds all of it or what was there before. Raises FileExists, FileNotWritable."""
    with _writing(path):
        mode = 0o644
        if replaces:
            facts = path.lstat()
            if stat.S_ISLNK(facts.st_mode):
                raise FileNotWritable(
                    f"{path} is a symbolic link; change the file that it points to where that is made."
                )
            mode = stat.S_IMODE(facts.st_mode)
        # Not a name that is loaded.
        descriptor, partial = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            if replaces:
                os.replace(partial, path)
            else:
                os.link(partial, path)
        finally:
            Path(partial).unlink(missing_ok=True)
        _flush_folder(path.parent)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise FileExists(f"{path} exists already.") from None
    except OSError as error:
        read_only = error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        remedy = (
            "The pipelines folder is read-only for the server; change the file where the folder comes from, such as its Git "
            "repository, or let this user write there."
            if read_only
            else "Nothing was changed."
        )
        raise FileNotWritable(f"{path} cannot be written: {error.strerror or error}. {remedy}") from None


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
