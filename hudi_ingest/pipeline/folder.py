"""Loads the pipeline files of a folder, and says which pipelines cannot be loaded, alone or together."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType

from hudi_ingest.exceptions import ConfigError, NoSuchPipeline
from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.home.folder import Home
from hudi_ingest.model.offsets import SeenTopic
from hudi_ingest.model.storage_options import StorageOptions, bucket_and_key, is_s3
from hudi_ingest.pipeline.expansion import expand, template_text
from hudi_ingest.pipeline.file import LoadedFile, environment_or_own, load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.template import Template

_SUFFIXES = (".yaml", ".yml")
_NEVER = SeenTopic("", datetime.min.replace(tzinfo=timezone.utc), False)


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A settings file that cannot be loaded. `name` is the pipeline's, if it is a pipeline's file and has one. No problem shows a
    secret."""

    path: Path
    name: str | None
    problems: tuple[str, ...]
    effect: str = "its pipeline ingests nothing; other pipelines continue"

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
    """Load all *.yaml and *.yml files of the folder, ordered by file name: the good ones even if others are broken. `check` finds
    problems that the files alone do not show. Files that conflict with each other are all broken, because there is no telling
    which one is right. Raises ConfigError when the folder cannot be read."""
    content = load_folder(folder, environment, check=check)
    return content.pipelines, content.broken


@dataclass(frozen=True, slots=True)
class LoadedFolder:
    """The content of a folder of pipeline files."""

    pipelines: tuple[Pipeline, ...]
    broken: tuple[BrokenFile, ...] = ()
    templates: tuple[Template, ...] = ()
    paths: Mapping[str, Path] = field(default_factory=dict)
    """The file of each pipeline, by the pipeline's name."""


def load_folder(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    check: Callable[[Pipeline], Iterable[str]] = lambda pipeline: (),
    only: str = "",
) -> LoadedFolder:
    """Load what `load_each` does, with the templates. `only`: the one pipeline that is needed, which is quick: of files that cannot be its own,
    and of other pipelines of its template, nothing is loaded."""
    content = _load_all(folder, environment_or_own(environment), only, alone=bool(only))
    files = _judged(content, check)
    return LoadedFolder(
        tuple(pipeline for file in files if not file.problems for pipeline in file.pipelines),
        tuple(BrokenFile(file.path, file.name, file.problems) for file in files if file.problems),
        content.templates,
        {pipeline.name: file.path for file in files for pipeline in file.pipelines},
    )


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A pipeline file among the others of its folder. `name`: as written, if it has one; `problems`: its own, and conflicts with
    other files. What is wrong with single topics of a pattern comes as further ones of the same path, each with the name of
    its pipeline."""

    path: Path
    name: str | None
    pipelines: tuple[Pipeline, ...]
    problems: tuple[str, ...]


def folder_files(folder: Path, texts: Mapping[Path, str] = MappingProxyType({})) -> tuple[FolderFile, ...]:
    """All files of the folder, as `load_each` judges them. `texts`: files as if they had these texts, also new ones.

    Raises ConfigError when the folder cannot be read.
    """
    return _judged(_load_all(folder, environment_or_own(None), texts=texts), lambda pipeline: ())


def _judged(content: _Content, check: Callable[[Pipeline], Iterable[str]]) -> tuple[FolderFile, ...]:
    """Judge a file's pipelines. One of a topic that appeared gives way to those that were there before it: new topics must not stop
    other pipelines."""
    loaded = content.loaded
    problems = [[*file.problems, *(check(file.pipeline) if file.pipeline else ())] for file in loaded]
    for positions, text in conflicts(loaded):
        for position in set(_to_blame(loaded, positions)):
            problems[position].append(text)
    names = {template.path: template.pipeline_name for template in content.templates}
    files: dict[Path, FolderFile] = {}
    single: list[FolderFile] = []
    for file, texts in zip(loaded, problems, strict=True):
        if texts and file.seen is not None:
            single.append(FolderFile(file.path, file.name, (), tuple(texts)))
            continue
        whole = files.get(file.path, FolderFile(file.path, names.get(file.path, file.name), (), ()))
        pipelines = (file.pipeline,) if file.pipeline else ()
        files[file.path] = replace(whole, pipelines=(*whole.pipelines, *pipelines), problems=(*whole.problems, *texts))
    for path, name in names.items():
        files.setdefault(path, FolderFile(path, name, (), ()))
    return (*sorted(files.values(), key=lambda file: file.path), *single)


def _to_blame(loaded: Sequence[LoadedFile], positions: tuple[int, int]) -> Sequence[int]:
    """Return which of two pipelines that conflict gives way: the one whose topic appeared later; both if no topic has appeared."""
    appeared = [position for position in positions if loaded[position].seen is not None]
    if len(appeared) < 2:
        return appeared or positions
    return [max(appeared, key=lambda position: (loaded[position].seen or _NEVER).seen_at)]


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
            statuses = [(entry.name, _status(entry)) for entry in entries if entry.name.endswith(_SUFFIXES)]
    except OSError:
        return ()
    files = ((name, status) for name, status in statuses if status is not None and stat.S_ISREG(status.st_mode))
    return tuple(sorted((name, status.st_mtime_ns, status.st_size) for name, status in files))


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what is not loaded either: a link to nothing, like an editor's lock, or a file that has just gone."""
    try:
        return entry.stat()
    except OSError:
        return None


def find_pipeline(folder: Path, name_or_path: str, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Load a pipeline by path (with a slash, or ending in .yaml or .yml), or by name from the folder.

    Other files of the folder may be broken, as long as they do not claim the same name or table. Raises ConfigError.
    """
    if "/" in name_or_path or name_or_path.endswith(_SUFFIXES):
        return load_pipeline(Path(name_or_path), environment)
    return find_with_file(folder, name_or_path, environment)[0]


def find_with_file(folder: Path, name: str, environment: Mapping[str, str] | None = None) -> tuple[Pipeline, Path]:
    """Load a pipeline by name, as `find_pipeline` does, and return it with the path of its file. Raises ConfigError."""
    environment = environment_or_own(environment)
    files = _judged(_load_all(folder, environment, only=name), lambda pipeline: ())
    own = [(file, pipeline) for file in files for pipeline in file.pipelines if pipeline.name == name]
    for file, pipeline in own:
        if not file.problems:
            return pipeline, file.path
    wrong = [file for file, _ in own] or [file for file in files if file.name == name and file.problems]
    for file in wrong:
        raise ConfigError(str(file.path), file.problems)
    raise _not_found(folder, name, _load_all(folder, environment))


def _not_found(folder: Path, name: str, content: _Content) -> ConfigError:
    loaded = content.loaded
    for template in content.templates:
        if name in (template.name, template.pipeline_name):
            names = [file.name for file in loaded if file.path == template.path and file.name is not None]
            return ConfigError(str(template.path), [template_text(template, names)])
    known = [file.name for file in loaded if file.name is not None]
    shown = ", ".join(known) or "none; `hudi-ingest new TOPIC` writes a pipeline file"
    problem = f"no pipeline is called {quoted(name)}; known: {shown}{suggestion(name, known)}"
    nameless = [f"{file.path.name}: {text}" for file in loaded if file.name is None for text in file.problems]
    return NoSuchPipeline(str(folder), [problem, *nameless])


def load_file_alone(path: Path, environment: Mapping[str, str] | None = None) -> LoadedFolder:
    """One file as if it were alone in its folder, with its template if it is one. Raises ConfigError with all its problems."""
    expansion = expand(path, environment_or_own(environment), _seen_topics)
    if problems := [problem for file in expansion.loaded for problem in file.problems]:
        raise ConfigError(str(path), problems)
    pipelines = tuple(file.pipeline for file in expansion.loaded if file.pipeline is not None)
    return LoadedFolder(pipelines, templates=(expansion.template,) if expansion.template else ())


def find_template(folder: Path, name: str, environment: Mapping[str, str] | None = None) -> Template:
    """The template of the file that is called `name`. Raises NoSuchPipeline, ConfigError if the folder cannot be read."""
    content = _load_all(folder, environment_or_own(environment))
    for template in content.templates:
        if name in (template.name, template.pipeline_name, template.path.name):
            return template
    known = [template.name for template in content.templates]
    shown = ", ".join(known) or "none; a pipeline file with {topic} in table.base_path and in name is one"
    broken = [f"{file.path.name}: {text}" for file in content.loaded if file.name is None for text in file.problems]
    problem = f"no template is called {quoted(name)}; known: {shown}{suggestion(name, known)}"
    raise NoSuchPipeline(str(folder), [problem, *broken])


@dataclass(frozen=True, slots=True)
class _Content:
    loaded: tuple[LoadedFile, ...]
    templates: tuple[Template, ...]


def _load_all(
    folder: Path,
    environment: Mapping[str, str],
    only: str = "",
    texts: Mapping[Path, str] = MappingProxyType({}),
    *,
    alone: bool = False,
) -> _Content:
    """`only`: of templates, the one pipeline to load; `alone`: leave out files that cannot be that pipeline's."""
    try:
        paths = _files(folder)
    except OSError as error:
        why = f"the pipelines folder cannot be read: {error.strerror or error}"
        start = "" if folder.is_absolute() else f" (a relative path starts in the working directory, {Path.cwd()})"
        if folder != Home.from_environment().pipelines:
            text = f"{why}{start}; create it, or name another one"
        elif isinstance(error, FileNotFoundError):
            text = f"{why}{start}; `hudi-ingest new TOPIC` makes it with a pipeline file, or set HUDI_INGEST_PIPELINES to another one"
        else:
            text = f"{why}{start}; create it, or set HUDI_INGEST_PIPELINES to another one"
        raise ConfigError(str(folder), [text]) from None
    if alone:
        paths = [path for path in paths if _may_define(path, only)]
    expansions = [expand(path, environment, _seen_topics, only) for path in paths if path not in texts]
    expansions += [expand(path, environment, _seen_topics, only, text) for path, text in texts.items()]
    return _Content(
        tuple(file for expansion in expansions for file in expansion.loaded),
        tuple(expansion.template for expansion in expansions if expansion.template is not None),
    )


def _may_define(path: Path, name: str) -> bool:
    """Whether the file may define a pipeline of this name, in a hundredth of the time that reading YAML takes."""
    try:
        text = path.read_bytes()
    except OSError:
        return True
    # A name may be written out, or stand in braces, for the environment or a template, or in escapes.
    return name.encode() in text or b"{" in text or b"\\" in text


def _seen_topics(template: str) -> Sequence[SeenTopic]:
    # Imported here: without a template of a pattern, files are loaded without a ledger.
    from hudi_ingest.ledger import Ledger

    url = Home.from_environment().ledger_url
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        # Files are also validated where nothing runs and nothing should be left behind.
        return ()
    with Ledger.open(url) as ledger:
        return ledger.topics.of_template(template)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())


_OPS = ("__begin", "__write", "__commit")
"""How the names of a pipeline's ops in Dagster end, after its own."""


def conflicts(loaded: Sequence[LoadedFile]) -> list[tuple[tuple[int, int], str]]:
    """Pairs of positions, the earlier first, whose pipelines cannot coexist, and why; in the order of the later ones. A position twice:
    only this one is to blame."""
    valid = [(position, file.pipeline) for position, file in enumerate(loaded) if file.pipeline is not None]
    found = [
        *_same(valid, loaded),
        *_templates(valid, loaded),
        *_ops(valid, loaded),
        *_catalogs(valid, loaded),
        *_buckets(valid, loaded),
        *_nested(valid, loaded),
    ]
    return [(pair, text) for pair, _, text in sorted(found, key=lambda found: (found[0][1], found[0][0], found[1]))]


_Pair = tuple[int, int]
_Found = tuple[_Pair, int, str]
"""With the place of the text among those of one pair."""


def _same(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    names, tables = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    assets = dict[tuple[str, ...], int]()
    for position, pipeline in valid:
        base_path = pipeline.table.base_path
        for earlier in names[pipeline.name]:
            files = _both_files(loaded, earlier, position)
            yield (earlier, position), 0, f"{files}: both have the name {pipeline.name}; rename one"
        for earlier in tables[base_path]:
            text = f"both have the table.base_path {base_path}; a table has one pipeline"
            yield (earlier, position), 3, f"{_both_files(loaded, earlier, position)}: {text}"
        earlier = assets.setdefault(pipeline.asset_key, position)
        if earlier != position and earlier not in names[pipeline.name]:
            text = f"both have the asset key {'/'.join(pipeline.asset_key)}; set another asset.key"
            yield (earlier, position), 1, f"{_both_files(loaded, earlier, position)}: {text}"
        names[pipeline.name].append(position)
        tables[base_path].append(position)


def _templates(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    """Two files with templates of one name, by which commands and the ledger know them."""
    first = dict[str, int]()
    for position, pipeline in valid:
        earlier = first.setdefault(pipeline.template, position) if pipeline.template else position
        if loaded[earlier].path != loaded[position].path:
            text = f"both are templates with the name {pipeline.template}, which is the file's; rename one file"
            yield (earlier, position), 0, f"{_both_files(loaded, earlier, position)}: {text}"


def _ops(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    """Pipelines with the name of another one's op. Only they are to blame, and stop no other pipeline."""
    positions = {pipeline.name: position for position, pipeline in valid}
    for owner, pipeline in valid:
        for ending in _OPS:
            name = f"{pipeline.name}{ending}"
            if name in positions:
                text = f"the name {name} is that of an op of the pipeline {pipeline.name}; choose another one"
                yield (positions[name],) * 2, 0, f"{_both_files(loaded, owner, positions[name])}: {text}"


def _catalogs(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    places: defaultdict[tuple[str, str], list[tuple[int, Pipeline]]] = defaultdict(list)
    for position, pipeline in valid:
        if pipeline.catalog is None:
            continue
        own_places = [(pipeline.catalog.uris, table) for table in pipeline.catalog_tables]
        for earlier, other in {earlier: other for place in own_places for earlier, other in places[place]}.items():
            text = f"both have the catalog table {catalog_table_of_both(pipeline, other)}; set catalog.table in one of them"
            yield (earlier, position), 2, f"{_both_files(loaded, earlier, position)}: {text}"
        for place in own_places:
            places[place].append((position, pipeline))


def catalog_table_of_both(pipeline: Pipeline, other: Pipeline) -> str:
    """Return a table that both keep in the same catalog, with its address; "" if there is none."""
    if pipeline.catalog is None or other.catalog is None or pipeline.catalog.uris != other.catalog.uris:
        return ""
    shared = next((table for table in pipeline.catalog_tables if table in other.catalog_tables), "")
    return f"{shared} at {pipeline.catalog.uris}" if shared else ""


def _buckets(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    ways: defaultdict[str, defaultdict[StorageOptions, list[int]]] = defaultdict(lambda: defaultdict(list))
    for position, pipeline in valid:
        if not is_s3(pipeline.table.base_path):
            continue
        bucket, _ = bucket_and_key(pipeline.table.base_path)
        way = replace(pipeline.table.storage_options, conditional_writes=True)
        for other_way, others in ways[bucket].items():
            for earlier in others if other_way != way else ():
                text = (
                    f"{_both_files(loaded, earlier, position)}: their tables are in bucket {bucket}, but their table.storage differs; a "
                    "Spark driver reaches a bucket in one way, so give both the same"
                )
                yield (earlier, position), 1, text
        ways[bucket][way].append(position)


def _nested(valid: Sequence[tuple[int, Pipeline]], loaded: Sequence[LoadedFile]) -> Iterator[_Found]:
    """Tables inside others: sorted, a folder is followed by everything inside it."""
    above: list[tuple[str, str, int]] = []
    for folder, base_path, position in sorted(
        (f"{pipeline.table.base_path}/", pipeline.table.base_path, position) for position, pipeline in valid
    ):
        while above and not folder.startswith(above[-1][0]):
            above.pop()
        for outer_folder, outer, other in above:
            if outer_folder != folder:
                first, second = min(position, other), max(position, other)
                text = f"table.base_path {base_path} is inside the table {outer}; choose a folder beside it"
                yield (first, second), 3, f"{_both_files(loaded, first, second)}: {text}"
        above.append((folder, base_path, position))


def _both_files(loaded: Sequence[LoadedFile], first: int, second: int) -> str:
    return f"{_shown(loaded[first])} and {_shown(loaded[second])}"


def _shown(file: LoadedFile) -> str:
    return f"{file.path.name} ({file.variant.text})" if file.variant is not None else file.path.name
