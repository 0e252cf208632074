"""Loads the pipeline files of a folder, and finds those that conflict with each other."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hudi_ingest.exceptions import ConfigError, NoSuchPipeline
from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.model.storage_options import bucket_and_key, is_s3
from hudi_ingest.pipeline.file import LoadedFile, environment_or_own, load_file, load_pipeline, load_text
from hudi_ingest.pipeline.pipeline import Pipeline

_SUFFIXES = (".yaml", ".yml")


def load_pipelines(folder: Path, environment: Mapping[str, str] | None = None) -> tuple[Pipeline, ...]:
    """Load all *.yaml and *.yml files of the folder, ordered by file name. Raises ConfigError with all problems."""
    loaded = _load_all(folder, environment_or_own(environment))
    problems = [f"{file.path.name}: {problem}" for file in loaded for problem in file.problems]
    problems += [problem for _, problem in _conflicts(loaded)]
    if problems:
        raise ConfigError(str(folder), problems)
    return tuple(file.pipeline for file in loaded if file.pipeline is not None)


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A pipeline file that cannot be loaded. `name` is the pipeline's, if the file has one. No problem shows a secret."""

    path: Path
    name: str | None
    problems: tuple[str, ...]

    @property
    def in_one_line(self) -> str:
        first, *more_problems = self.problems
        note = f" (and {len(more_problems)} more: `hudi-ingest validate {self.path}`)" if more_problems else ""
        return f"not loaded: {self.path}: {' '.join(first.split())}{note}"


def load_each(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    check: Callable[[Pipeline], Iterable[str]] = lambda pipeline: (),
) -> tuple[tuple[Pipeline, ...], tuple[BrokenFile, ...]]:
    """Like `load_pipelines`, but loads the good files even if others are broken. `check` finds problems that the files alone
    do not show. Files that conflict with each other are all broken, because there is no telling which one is right. Raises
    ConfigError when the folder cannot be read."""
    files = folder_files(folder, environment, check=check)
    pipelines = tuple(pipeline for file in files for pipeline in file.pipelines if not file.problems)
    return pipelines, tuple(BrokenFile(file.path, file.name, file.problems) for file in files if file.problems)


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A pipeline file among the others of its folder. `name`: as written, if it has one; `problems`: its own, and conflicts with
    other files."""

    path: Path
    name: str | None
    pipelines: tuple[Pipeline, ...]
    problems: tuple[str, ...]


def folder_files(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    check: Callable[[Pipeline], Iterable[str]] = lambda pipeline: (),
    texts: Mapping[Path, str] | None = None,
) -> tuple[FolderFile, ...]:
    """All files of the folder, as `load_each` judges them. `texts`: files as if they had these texts, also new ones.

    Raises ConfigError when the folder cannot be read.
    """
    variables = environment_or_own(environment)
    imagined = [load_text(path, text, variables) for path, text in (texts or {}).items()]
    loaded = [*(file for file in _load_all(folder, variables) if file.path not in (texts or {})), *imagined]
    problems = {file.path: [*file.problems, *(check(file.pipeline) if file.pipeline else ())] for file in loaded}
    for paths, text in _conflicts(loaded):
        for path in paths:
            problems[path].append(text)
    return tuple(
        FolderFile(file.path, file.name, (file.pipeline,) if file.pipeline else (), tuple(problems[file.path]))
        for file in loaded
    )


def broken_files(folder: Path, *, check: Callable[[Pipeline], Iterable[str]]) -> tuple[BrokenFile, ...]:
    """The files that `load_each` cannot load; an unreadable folder counts as one."""
    try:
        return load_each(folder, check=check)[1]
    except ConfigError as error:
        return (BrokenFile(folder, None, error.problems),)


def folder_version(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, modification time in ns and size in bytes of each pipeline file, so that the value differs once a file was
    changed, added or removed. () also when the folder cannot be read."""
    # Called each second, perhaps for hundreds of files: one stat for each and no Path.
    try:
        with os.scandir(folder) as entries:
            statuses = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(_SUFFIXES)]
    except OSError:
        return ()
    files = sorted((name, status) for name, status in statuses if stat.S_ISREG(status.st_mode))
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in files)


def find_pipeline(folder: Path, name_or_path: str, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Load a pipeline by path (with a slash, or ending in .yaml or .yml), or by name from the folder.

    Other files of the folder may be broken, as long as they do not claim the same name or table. Raises ConfigError.
    """
    if "/" in name_or_path or name_or_path.endswith(_SUFFIXES):
        return load_pipeline(Path(name_or_path), environment)
    loaded = _load_all(folder, environment_or_own(environment))
    matching = [file for file in loaded if file.name == name_or_path]
    for file in matching:
        if file.pipeline is None:
            raise ConfigError(str(file.path), file.problems)
    conflicts = [text for paths, text in _conflicts(loaded) if any(file.path in paths for file in matching)]
    if conflicts:
        raise ConfigError(str(folder), conflicts)
    for file in matching:
        if file.pipeline is not None:
            return file.pipeline
    known = [file.name for file in loaded if file.name is not None]
    shown = ", ".join(known) or "none; put a pipeline file there"
    problem = f"no pipeline is called {quoted(name_or_path)}; known: {shown}{suggestion(name_or_path, known)}"
    nameless = [f"{file.path.name}: {text}" for file in loaded if file.name is None for text in file.problems]
    raise NoSuchPipeline(str(folder), [problem, *nameless])


def _load_all(folder: Path, environment: Mapping[str, str]) -> list[LoadedFile]:
    try:
        paths = _files(folder)
    except OSError as error:
        why = f"the pipelines folder cannot be read: {error.strerror or error}"
        raise ConfigError(str(folder), [f"{why}; create it, or set HUDI_INGEST_PIPELINES to another one"]) from None
    return [load_file(path, environment) for path in paths]


def catalog_table_of_both(pipeline: Pipeline, other: Pipeline) -> str:
    """A table that both keep in the same catalog, with its address; "" if there is none."""
    if pipeline.catalog is None or other.catalog is None or pipeline.catalog.uris != other.catalog.uris:
        return ""
    shared = next((table for table in pipeline.catalog_tables if table in other.catalog_tables), "")
    return f"{shared} at {pipeline.catalog.uris}" if shared else ""


def _reach_a_bucket_differently(one: Pipeline, other: Pipeline) -> bool:
    tables = (one.table, other.table)
    if not all(is_s3(table.base_path) for table in tables):
        return False
    buckets = {bucket_and_key(table.base_path)[0] for table in tables}
    ways = {replace(table.storage_options, conditional_writes=True) for table in tables}
    return len(buckets) == 1 and len(ways) == 2


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def _conflicts(loaded: Iterable[LoadedFile]) -> Iterator[tuple[tuple[Path, Path], str]]:
    """Yield pairs of files whose pipelines cannot coexist, and why."""
    valid = [(file.path, file.pipeline) for file in loaded if file.pipeline is not None]
    for index, (path, pipeline) in enumerate(valid):
        for earlier_path, earlier in valid[:index]:
            files = f"{earlier_path.name} and {path.name}"
            if pipeline.name == earlier.name:
                yield (earlier_path, path), f"{files}: both have the name {pipeline.name}; rename one"
            if _reach_a_bucket_differently(pipeline, earlier):
                bucket, _ = bucket_and_key(pipeline.table.base_path)
                text = (
                    f"{files}: their tables are in bucket {bucket}, but their table.storage differs; a Spark driver reaches a "
                    "bucket in one way, so give both the same"
                )
                yield (earlier_path, path), text
            if shared := catalog_table_of_both(pipeline, earlier):
                yield (
                    (earlier_path, path),
                    f"{files}: both have the catalog table {shared}; set catalog.table in one of them",
                )
            base, earlier_base = (f"{candidate.table.base_path}/" for candidate in (pipeline, earlier))
            if base == earlier_base:
                text = f"{files}: both have the table.base_path {pipeline.table.base_path}; a table has one pipeline"
                yield (earlier_path, path), text
            elif base.startswith(earlier_base) or earlier_base.startswith(base):
                inner, outer = (pipeline, earlier) if base.startswith(earlier_base) else (earlier, pipeline)
                yield (
                    (earlier_path, path),
                    f"{files}: table.base_path {inner.table.base_path} is inside the table "
                    f"{outer.table.base_path}; choose a folder beside it",
                )
