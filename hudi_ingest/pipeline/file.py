"""Reads pipeline files, and reports all problems of a file at once, each with its place.

Values may come from the environment (`${NAME}`, `${NAME:-default}`) or from a file (`${file:PATH}`). No message shows a
secret: neither a password, nor any value in a place where a password may have been intended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import (
    Place,
    PlacedProblems,
    ProblemsFromTop,
    describe,
    kind_of,
    quoted,
    suggestion,
)
from hudi_ingest.home.folder import Home
from hudi_ingest.home.stack_variables import missing_because, pipeline_environment
from hudi_ingest.pipeline.describe import allowed, has_secrets, is_secret, keys, nested_model, type_in_words
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import SchemaProblem


def load_pipeline(path: Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Load the pipeline of one file. Raises ConfigError with all problems of the file.

    Without an `environment`, values come from this process's environment and from the variables that a running embedded
    stack of its home sets.
    """
    loaded = _load(path, _environment(environment))
    if loaded.pipeline is None:
        raise ConfigError(str(path), loaded.problems)
    return loaded.pipeline


def pipeline_from(
    settings: Mapping[str, Any], folder: Path, where: str, environment: Mapping[str, str] | None = None
) -> Pipeline:
    """Load a pipeline from settings inside another file, `where`, whose paths are relative to `folder`.

    The settings mean the same as in a pipeline file. Raises ConfigError with all problems.
    """
    document = _Document()
    _parse(yaml.safe_dump(dict(settings)), folder, _environment(environment), document)
    document.lines.clear()  # line numbers of the dump above mean nothing to the user
    loaded = _load_document(document, Path(where), folder)
    if loaded.pipeline is None:
        raise ConfigError(where, loaded.problems)
    return loaded.pipeline


def load_pipelines(folder: Path, environment: Mapping[str, str] | None = None) -> tuple[Pipeline, ...]:
    """Load all *.yaml and *.yml files of the folder, ordered by file name. Raises ConfigError with all problems."""
    loaded = _load_folder(folder, _environment(environment))
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
    folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[tuple[Pipeline, ...], tuple[BrokenFile, ...]]:
    """Like `load_pipelines`, but loads the good files even if others are broken. Files that conflict with each other are
    all broken, because there is no telling which one is right. Raises ConfigError when the folder cannot be read."""
    loaded = _load_folder(folder, _environment(environment))
    problems = {file.path: list(file.problems) for file in loaded}
    for paths, text in _conflicts(loaded):
        for path in paths:
            problems[path].append(text)
    pipelines = tuple(file.pipeline for file in loaded if file.pipeline is not None and not problems[file.path])
    broken = (BrokenFile(file.path, file.name, tuple(problems[file.path])) for file in loaded if problems[file.path])
    return pipelines, tuple(broken)


def broken_files(folder: Path) -> tuple[BrokenFile, ...]:
    """The files that `load_each` cannot load; an unreadable folder counts as one."""
    try:
        return load_each(folder)[1]
    except ConfigError as error:
        return (BrokenFile(folder, None, error.problems),)


def folder_version(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, modification time in ns and size in bytes of each pipeline file, so that the value differs once a file was
    changed, added or removed. () also when the folder cannot be read."""
    try:
        statuses = [(file.name, file.stat()) for file in _files(folder)]
    except OSError:
        return ()
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in statuses)


def find_pipeline(folder: Path, name_or_path: str, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Load a pipeline by path (with a slash, or ending in .yaml or .yml), or by name from the folder.

    Other files of the folder may be broken, as long as they do not claim the same name or table. Raises ConfigError.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return load_pipeline(Path(name_or_path), environment)
    loaded = _load_folder(folder, _environment(environment))
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
    raise ConfigError(str(folder), [problem, *nameless])


def _environment(environment: Mapping[str, str] | None) -> Mapping[str, str]:
    return pipeline_environment(Home.from_environment()) if environment is None else environment


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The result of loading one file: a pipeline, or problems. A file with problems may still have a name."""

    path: Path
    name: str | None
    pipeline: Pipeline | None
    problems: tuple[str, ...] = ()


def _load_folder(folder: Path, environment: Mapping[str, str]) -> list[_Loaded]:
    try:
        paths = _files(folder)
    except OSError as error:
        why = f"the pipelines folder cannot be read: {error.strerror or error}"
        raise ConfigError(str(folder), [f"{why}; create it, or set HUDI_INGEST_PIPELINES to another one"]) from None
    return [_load(path, environment) for path in paths]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())


def _load(path: Path, environment: Mapping[str, str]) -> _Loaded:
    return _load_document(_read(path, environment), path, path.parent)


def _load_document(document: _Document, path: Path, folder: Path) -> _Loaded:
    raw_name = document.data.get("name")
    name = raw_name if isinstance(raw_name, str) else None
    problems = document.problems
    if document.data:
        source = document.data.get("source")
        keyed = isinstance(source, Mapping) and source.get("key") is not None
        context = {"folder": folder, "transformed": keyed or bool(document.data.get("transforms"))}
        try:
            pipeline = Pipeline.model_validate(document.data, context=context)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        else:
            if not problems:
                return _Loaded(path, name, pipeline)
            errors = []
        if errors:
            errors += _hidden_errors(document, [details["loc"] for details in errors], context)
        problems += [line for details in errors for line in _sentences(details, document)]
    return _Loaded(path, name, None, tuple(problems))


_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "source": {"bootstrap_servers": "localhost:9092", "topics": ["topic"]},
    "table": {"base_path": "/table"},
}


def _hidden_errors(document: _Document, places: Iterable[Place], context: Mapping[str, Any]) -> list[ErrorDetails]:
    """Problems of the transforms that other problems hide.

    Transforms are validated against the table and the source, and pydantic passes on no part that has an error anywhere.
    So validate them again without the wrong keys.
    """
    wrong = {place[:2] for place in [*places, *document.broken]}
    data: dict[str, Any] = {"name": "name", "transforms": document.data.get("transforms") or []}
    for part, needed in _STAND_INS.items():
        settings = document.data.get(part)
        usable = (
            {key: value for key, value in settings.items() if (part, key) not in wrong}
            if isinstance(settings, Mapping)
            else {}
        )
        data[part] = {**needed, **usable}
    if any(place[:1] == ("transforms",) for place in wrong):
        return []
    try:
        Pipeline.model_validate(data, context=context)
    except ValidationError as error:
        return [details for details in error.errors(include_url=False) if details["loc"] == ("transforms",)]
    return []


def _conflicts(loaded: Iterable[_Loaded]) -> Iterator[tuple[tuple[Path, Path], str]]:
    """Yield pairs of files whose pipelines cannot coexist, and why."""
    valid = [(file.path, file.pipeline) for file in loaded if file.pipeline is not None]
    for index, (path, pipeline) in enumerate(valid):
        for earlier_path, earlier in valid[:index]:
            files = f"{earlier_path.name} and {path.name}"
            if pipeline.name == earlier.name:
                yield (earlier_path, path), f"{files}: both have the name {pipeline.name}; rename one"
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


# ---- From the file to plain values

_MOST_LEVELS = 50
_TAG = "tag:yaml.org,2002:"
_INT, _FLOAT, _BOOL, _NULL, _STR = (f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null", "str"))


@dataclass(slots=True)
class _Document:
    """A YAML file as plain values, with what messages need to refer to them."""

    data: dict[str, Any] = field(default_factory=dict)
    """Empty when the file cannot be read at all; `problems` says why."""
    problems: list[str] = field(default_factory=list)
    broken: set[Place] = field(default_factory=set)
    """Values that are only stand-ins, because their problem is already noted."""
    written: dict[Place, str] = field(default_factory=dict)
    """The file's own spelling, where YAML reads something other than text."""
    lines: dict[Place, int] = field(default_factory=dict)
    """Line of each key."""

    def is_broken(self, place: Place) -> bool:
        return any(place[: len(broken_place)] == broken_place for broken_place in self.broken)


class _TooDeep(Exception):
    """More levels than any pipeline has, and perhaps more than Python's stack holds."""

    def __init__(self, mark: yaml.Mark) -> None:
        super().__init__(f"line {mark.line + 1}, column {mark.column + 1}")


class _Loader(yaml.SafeLoader):
    """Reads only numbers, booleans and null as something other than text."""

    _depth = 0

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag in (_INT, _FLOAT, _BOOL, _NULL)]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth > _MOST_LEVELS:
            raise _TooDeep(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _read(path: Path, environment: Mapping[str, str]) -> _Document:
    document = _Document()
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        document.problems.append("file not found; check the path, or list the folder")
    except OSError as error:
        document.problems.append(f"the file cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        document.problems.append(f"the file is not UTF-8 text (byte {error.start + 1}); save it as UTF-8")
    else:
        _parse(text, path.parent, environment, document)
    return document


def _parse(text: str, folder: Path, environment: Mapping[str, str], document: _Document) -> None:
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append(f"line {line}: character U+{error.character:04X} is not allowed in YAML; remove it")
        return
    except _TooDeep as error:
        document.problems.append(
            f"{error}: nested deeper than {_MOST_LEVELS} levels, which no setting is; look for unclosed brackets"
        )
        return
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax_problem(text, error))
        return
    data = None if root is None else _Builder(folder, environment, document).value(root, ())
    if isinstance(data, dict) and data:
        document.data = data
    elif not document.problems and not data:
        document.problems.append("the file is empty; begin with `name:`, `source:` and `table:`")
    elif not document.problems:
        document.problems.append(f"the file must hold keys (name, source, table …); found {kind_of(data)}")


def _syntax_problem(text: str, error: yaml.MarkedYAMLError) -> str:
    """PyYAML's message without its excerpt of the file and without quoted words; either may contain a secret."""
    mark = error.problem_mark
    assert mark is not None, "PyYAML marks every problem of the text"
    words = re.sub(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", _harmless, str(error.problem))
    line_text = "".join(text.splitlines()[mark.line : mark.line + 1])
    hint = ""
    if "${" in line_text:
        hint = '; inside [ ] and { } put "${NAME}" in quotes'
    elif "\\t" in words:
        hint = "; indent with spaces, not with a tab"
    return f"line {mark.line + 1}, column {mark.column + 1}: not YAML: {words}{hint}"


def _harmless(quoted: re.Match[str]) -> str:
    """Keep a single character or one of PyYAML's own words like '<scalar>'; mask anything else."""
    return quoted[0] if re.fullmatch(r"\\?.|<[a-z ]+>", quoted[0][1:-1]) else "****"


class _Builder:
    """Turns YAML nodes into plain values with the environment's values filled in, and notes problems."""

    _CONSTRUCT: Mapping[str, Any] = {
        _INT: yaml.constructor.SafeConstructor.construct_yaml_int,
        _FLOAT: yaml.constructor.SafeConstructor.construct_yaml_float,
        _BOOL: yaml.constructor.SafeConstructor.construct_yaml_bool,
        _NULL: yaml.constructor.SafeConstructor.construct_yaml_null,
    }

    def __init__(self, folder: Path, environment: Mapping[str, str], document: _Document) -> None:
        self._folder = folder
        self._environment = environment
        self._document = document
        self._constructor = yaml.constructor.SafeConstructor()
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        if id(node) in self._seen:
            return self._note(place, "anchors and aliases (& and *) are not supported; write the value out")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag == _STR:
            return self._substituted(str(node.value), place)
        if isinstance(node, yaml.ScalarNode) and node.tag in self._CONSTRUCT:
            return self._constructed(node, place)
        return self._note(place, "YAML tags (!…) are not supported; remove the tag")

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                where = f"{_shown(place)}: " if place else ""
                self._document.problems.append(f"{where}line {line}: a key must be plain text")
                continue
            key = str(key_node.value)  # keys are always text, even the number of a Kafka partition
            inner = (*place, key)
            if key in mapping:
                first = self._document.lines[inner]
                text = f"{_shown(inner)}: duplicate key, in line {first} and in line {line}; keep one"
                self._document.problems.append(text)
                continue
            self._document.lines[inner] = line
            mapping[key] = self.value(value_node, inner)
        return mapping

    def _constructed(self, node: yaml.ScalarNode, place: Place) -> Any:
        self._document.written[place] = str(node.value)
        try:
            return self._CONSTRUCT[node.tag](self._constructor, node)
        except (ValueError, KeyError, IndexError):
            return self._note(place, "not a value that YAML can read; put it in quotes")

    def _substituted(self, text: str, place: Place) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name, default = match["name"], match["default"]
            if match["file"] is not None:
                return self._content(match["file"], place)
            if name is None:
                known = "${NAME}, ${NAME:-default} or ${file:PATH}"
                self._note(place, f"`${{` does not start {known}; complete it, or write $${{ for a literal ${{")
                return ""
            value = self._environment.get(name)
            if default is not None:
                return value or default
            if value is None:
                down = missing_because(name, self._environment)
                remedy = f", because {down}" if down else f"; set it or write ${{{name}:-default}}"
                self._note(place, f"environment variable {name} is not set{remedy}")
                return ""
            return value

        pattern = r"\$\$\{|\$\{file:(?P<file>[^-}][^}]*)\}|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{"
        return re.sub(pattern, replace, text)

    def _content(self, name: str, place: Place) -> str:
        path = self._folder / name
        try:
            # Editors and `echo` end a file with a newline that is not part of the value.
            return path.read_bytes().decode().removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError) as error:
            why = "is not UTF-8 text" if isinstance(error, ValueError) else getattr(error, "strerror", None) or error
            self._note(place, f"file {path} cannot be read: {why}; make it readable for this user, or correct the path")
            return ""

    def _note(self, place: Place, problem: str) -> None:
        self._document.problems.append(f"{_shown(place)}: {problem}" if place else problem)
        self._document.broken.add(place)


# ---- From pydantic's errors to sentences

_PROBLEMS = {
    "missing": "missing",
    "literal_error": "not one of the allowed values",
    "string_type": "must be text",
    "path_type": "must be text",
    "tuple_type": "must be a list",
    "model_type": "must be a mapping of keys",
    "string_pattern_mismatch": "not allowed",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "too small",
    "greater_than_equal": "too small",
}


def _sentences(error: ErrorDetails, document: _Document) -> Iterator[str]:
    """Yield one line for each problem in a pydantic error."""
    place: Place = error["loc"]
    if document.is_broken(place):
        return
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, SchemaProblem):
        yield from (f"{_shown(place)}: {problem}" for problem in cause.problems)
    elif isinstance(cause, PlacedProblems):
        if isinstance(cause, ProblemsFromTop):
            place = ()
        for below, problem in cause.problems:
            if not document.is_broken((*place, *below)):
                yield f"{_shown((*place, *below))}: {problem}"
    elif isinstance(cause, ValueError):
        yield f"{_shown(place)}: {cause}"
    elif error["type"] == "extra_forbidden":
        model = _model_at(place[:-1]) or Pipeline
        known = list(keys(model))
        line = f" in line {document.lines[place]}" if place in document.lines else ""
        close = suggestion(str(place[-1]), known)
        yield f"{_shown(place)}: unknown key{line}; allowed: {', '.join(known)}{close}"
    else:
        problem = _PROBLEMS.get(error["type"], "not allowed" if _is_secret(place) else error["msg"])
        parts = [problem]
        if error["type"] != "missing":
            parts.append(f"found {_found(error, place, document)}")
        if allowed_values := _allowed_at(place):
            parts.append(f"allowed: {allowed_values}")
        yield f"{_shown(place)}: {'; '.join(parts)}"


def _found(error: ErrorDetails, place: Place, document: _Document) -> str:
    value = error["input"]
    if _is_secret(place):
        return "****" if value is not None else "nothing"
    if error["type"] == "model_type":
        return kind_of(value)  # the value may contain a login
    shown = describe(value)
    if isinstance(value, bool):
        hint = "; put it in quotes" if error["type"] in ("string_type", "path_type", "literal_error") else ""
        return f"{document.written.get(place, shown)}, which YAML reads as a boolean{hint}"
    if isinstance(value, (int, float)) and error["type"] in ("string_type", "path_type"):
        return f"the number {document.written.get(place, shown)[:60]}; put it in quotes"
    return shown


def _shown(place: Place) -> str:
    """The dotted path with list indexes. A key that may be a misplaced secret is shown as ****."""
    text = "".join(
        f"[{part}]" if isinstance(part, int) else ".****" if hidden else f".{part}" for part, _, hidden in _walk(place)
    )
    return text.lstrip(".") or "the file"


def _is_secret(place: Place) -> bool:
    return any(hidden or (info is not None and is_secret(info)) for _, info, hidden in _walk(place))


def _walk(place: Place) -> Iterator[tuple[str | int, FieldInfo | None, bool]]:
    """Yield each step of a place with its field, and whether it is an unknown key (or below one) next to a secret."""
    model: type[BaseModel] | None = Pipeline
    info: FieldInfo | None = None
    hidden = False
    for part in place:
        if isinstance(part, str):
            info = keys(model).get(part) if model is not None else None
            hidden = hidden or (info is None and model is not None and has_secrets(model))
            model = nested_model(info) if info is not None else None
        yield part, info, hidden


def _model_at(place: Place) -> type[BaseModel] | None:
    steps = [*_walk(place)]
    return Pipeline if not steps else nested_model(steps[-1][1]) if steps[-1][1] is not None else None


def _allowed_at(place: Place) -> str:
    steps = [*_walk(place)]
    info = steps[-1][1] if steps else None
    if info is None:
        return ""
    if isinstance(place[-1], int):  # an item of a list
        return type_in_words(get_args(info.annotation)[0])
    return allowed(info)
