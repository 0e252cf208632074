"""Reads pipeline files, and reports every problem of a file at once, each with its place.

Values may come from the environment by `${NAME}` or `${NAME:-default}`, and from a file by `${file:PATH}`. No message shows a secret: neither a password
nor what stands where a password may have been meant.
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
    """The pipeline of one file. Raises ConfigError with all problems of the file.

    Without an `environment` values come from this process's, and from what a running embedded stack of its home sets.
    """
    loaded = _load(path, _given_or_own(environment))
    if loaded.pipeline is None:
        raise ConfigError(str(path), loaded.problems)
    return loaded.pipeline


def pipeline_from(
    settings: Mapping[str, Any], folder: Path, where: str, environment: Mapping[str, str] | None = None
) -> Pipeline:
    """The pipeline of settings that stand in another file, `where`, whose paths are relative to `folder`.

    They mean what they mean in a pipeline file. Raises ConfigError with all problems.
    """
    document = _Document()
    _parse(yaml.safe_dump(dict(settings)), folder, _given_or_own(environment), document)
    document.lines.clear()  # they are of no file
    loaded = _load_document(document, Path(where), folder)
    if loaded.pipeline is None:
        raise ConfigError(where, loaded.problems)
    return loaded.pipeline


def load_pipelines(folder: Path, environment: Mapping[str, str] | None = None) -> tuple[Pipeline, ...]:
    """The pipelines of all *.yaml and *.yml files of the folder, by file name. Raises ConfigError with all problems."""
    loaded = _load_folder(folder, _given_or_own(environment))
    problems = [f"{each.path.name}: {problem}" for each in loaded for problem in each.problems]
    problems += [problem for _, problem in _conflicts(loaded)]
    if problems:
        raise ConfigError(str(folder), problems)
    return tuple(each.pipeline for each in loaded if each.pipeline is not None)


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A pipeline file that cannot be loaded. `name`: the pipeline's, where the file says it; no problem shows a secret."""

    path: Path
    name: str | None
    problems: tuple[str, ...]

    @property
    def in_one_line(self) -> str:
        first, *others = self.problems
        more = f" (and {len(others)} more: `hudi-ingest validate {self.path}`)" if others else ""
        return f"not loaded: {self.path}: {' '.join(first.split())}{more}"


def load_each(
    folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[tuple[Pipeline, ...], tuple[BrokenFile, ...]]:
    """As `load_pipelines`, but a wrong file does not keep the others from being loaded. Of files that cannot live together none
    is: which of them is meant, nobody can tell. Raises ConfigError when the folder cannot be read."""
    loaded = _load_folder(folder, _given_or_own(environment))
    problems = {each.path: list(each.problems) for each in loaded}
    for paths, text in _conflicts(loaded):
        for path in paths:
            problems[path].append(text)
    right = tuple(each.pipeline for each in loaded if each.pipeline is not None and not problems[each.path])
    broken = (BrokenFile(each.path, each.name, tuple(problems[each.path])) for each in loaded if problems[each.path])
    return right, tuple(broken)


def broken_files(folder: Path) -> tuple[BrokenFile, ...]:
    """What `load_each` cannot load; a folder that cannot be read is one of these."""
    try:
        return load_each(folder)[1]
    except ConfigError as error:
        return (BrokenFile(folder, None, error.problems),)


def folder_version(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time of change in ns and size in bytes of each pipeline file: another value when one was changed, came or went,
    () also when the folder cannot be read."""
    try:
        found = [(file.name, file.stat()) for file in _files(folder)]
    except OSError:
        return ()
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in found)


def find_pipeline(folder: Path, name_or_path: str, environment: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of a file, when a path is given (with a slash, or ending in .yaml or .yml), or of the folder by name.

    Other files of the folder may be wrong, as long as they do not claim the same name or table. Raises ConfigError.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return load_pipeline(Path(name_or_path), environment)
    loaded = _load_folder(folder, _given_or_own(environment))
    named = [each for each in loaded if each.name == name_or_path]
    for each in named:
        if each.pipeline is None:
            raise ConfigError(str(each.path), each.problems)
    conflicts = [text for paths, text in _conflicts(loaded) if any(each.path in paths for each in named)]
    if conflicts:
        raise ConfigError(str(folder), conflicts)
    for each in named:
        if each.pipeline is not None:
            return each.pipeline
    known = [each.name for each in loaded if each.name is not None]
    shown = ", ".join(known) or "none; put a pipeline file there"
    problem = f"no pipeline is called {quoted(name_or_path)}; known: {shown}{suggestion(name_or_path, known)}"
    nameless = [f"{each.path.name}: {text}" for each in loaded if each.name is None for text in each.problems]
    raise ConfigError(str(folder), [problem, *nameless])


def _given_or_own(environment: Mapping[str, str] | None) -> Mapping[str, str]:
    return pipeline_environment(Home.from_environment()) if environment is None else environment


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What became of one file: a pipeline, or problems. A file with problems may still say its name."""

    path: Path
    name: str | None
    pipeline: Pipeline | None
    problems: tuple[str, ...] = ()


def _load_folder(folder: Path, environment: Mapping[str, str]) -> list[_Loaded]:
    try:
        paths = _files(folder)
    except OSError as error:
        why = f"the folder of pipeline files cannot be read: {error.strerror or error}"
        raise ConfigError(str(folder), [f"{why}; create it, or set HUDI_INGEST_PIPELINES to another one"]) from None
    return [_load(each, environment) for each in paths]


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.suffix in (".yaml", ".yml") and each.is_file())


def _load(path: Path, environment: Mapping[str, str]) -> _Loaded:
    return _load_document(_read(path, environment), path, path.parent)


def _load_document(document: _Document, path: Path, folder: Path) -> _Loaded:
    given = document.data.get("name")
    name = given if isinstance(given, str) else None
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
            errors += _hidden_errors(document, [each["loc"] for each in errors], context)
        problems += [line for each in errors for line in _sentences(each, document)]
    return _Loaded(path, name, None, tuple(problems))


_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "source": {"bootstrap_servers": "localhost:9092", "topics": ["topic"]},
    "table": {"base_path": "/table"},
}


def _hidden_errors(document: _Document, places: Iterable[Place], context: Mapping[str, Any]) -> list[ErrorDetails]:
    """What is wrong with the transforms besides: they are judged with what the table and the source say, and pydantic gives
    a part that is wrong anywhere to nobody. So they are judged again, without the keys that are wrong."""
    wrong = {place[:2] for place in [*places, *document.broken]}
    data: dict[str, Any] = {"name": "name", "transforms": document.data.get("transforms") or []}
    for part, needed in _STAND_INS.items():
        given = document.data.get(part)
        right = (
            {key: value for key, value in given.items() if (part, key) not in wrong}
            if isinstance(given, Mapping)
            else {}
        )
        data[part] = {**needed, **right}
    if any(place[:1] == ("transforms",) for place in wrong):
        return []
    try:
        Pipeline.model_validate(data, context=context)
    except ValidationError as error:
        return [each for each in error.errors(include_url=False) if each["loc"] == ("transforms",)]
    return []


def _conflicts(loaded: Iterable[_Loaded]) -> Iterator[tuple[tuple[Path, Path], str]]:
    """Pairs of files whose pipelines cannot live together, and why."""
    good = [(each.path, each.pipeline) for each in loaded if each.pipeline is not None]
    for index, (path, pipeline) in enumerate(good):
        for other_path, other in good[:index]:
            files = f"{other_path.name} and {path.name}"
            if pipeline.name == other.name:
                yield (other_path, path), f"{files}: both have the name {pipeline.name}; rename one"
            mine, its = (f"{each.table.base_path}/" for each in (pipeline, other))
            if mine == its:
                text = f"{files}: both have the table.base_path {pipeline.table.base_path}; a table has one pipeline"
                yield (other_path, path), text
            elif mine.startswith(its) or its.startswith(mine):
                inner, outer = (pipeline, other) if mine.startswith(its) else (other, pipeline)
                yield (
                    (other_path, path),
                    f"{files}: table.base_path {inner.table.base_path} is inside the table "
                    f"{outer.table.base_path}; choose a folder beside it",
                )


# ---- From the file to plain values

_MOST_LEVELS = 50
_TAG = "tag:yaml.org,2002:"
_INT, _FLOAT, _BOOL, _NULL, _STR = (f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null", "str"))


@dataclass(slots=True)
class _Document:
    """A YAML file as plain values, and what is needed to speak about them."""

    data: dict[str, Any] = field(default_factory=dict)
    """Empty when the file cannot be read at all; `problems` says why."""
    problems: list[str] = field(default_factory=list)
    broken: set[Place] = field(default_factory=set)
    """Values that are no more than a stand-in, because their problem is already noted."""
    written: dict[Place, str] = field(default_factory=dict)
    """What the file says where YAML reads something other than text."""
    lines: dict[Place, int] = field(default_factory=dict)
    """Line of each key."""

    def is_broken(self, place: Place) -> bool:
        return any(place[: len(each)] == each for each in self.broken)


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
        document.problems.append("the file is not there; check the path, or list the folder")
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
            f"{error}: nested deeper than {_MOST_LEVELS} levels; no setting is, so look for brackets"
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
    """PyYAML's message without its excerpt of the file and without quoted words: either may be a secret."""
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
    """A single sign, or one of PyYAML's own words like '<scalar>'."""
    return quoted[0] if re.fullmatch(r"\\?.|<[a-z ]+>", quoted[0][1:-1]) else "****"


class _Builder:
    """Turns YAML nodes into plain values, with the environment's values put in, and notes what is wrong."""

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
            return [self.value(each, (*place, index)) for index, each in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag == _STR:
            return self._substituted(str(node.value), place)
        if isinstance(node, yaml.ScalarNode) and node.tag in self._CONSTRUCT:
            return self._constructed(node, place)
        return self._note(place, "YAML tags (!…) are not supported; remove it")

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                where = f"{_shown(place)}: " if place else ""
                self._document.problems.append(f"{where}line {line}: a key must be plain text")
                continue
            key = str(key_node.value)  # whatever YAML would read: keys are text, the number of a Kafka partition too
            inner = (*place, key)
            if key in found:
                first = self._document.lines[inner]
                text = f"{_shown(inner)}: the key is there twice, in line {first} and in line {line}; keep one"
                self._document.problems.append(text)
                continue
            self._document.lines[inner] = line
            found[key] = self.value(value_node, inner)
        return found

    def _constructed(self, node: yaml.ScalarNode, place: Place) -> Any:
        self._document.written[place] = str(node.value)
        try:
            return self._CONSTRUCT[node.tag](self._constructor, node)
        except (ValueError, KeyError, IndexError):
            return self._note(place, "not a value that YAML can read; put it in quotes")

    def _substituted(self, text: str, place: Place) -> str:
        def replace(found: re.Match[str]) -> str:
            if found[0] == "$${":
                return "${"
            name, default = found["name"], found["default"]
            if found["file"] is not None:
                return self._content(found["file"], place)
            if name is None:
                known = "${NAME}, ${NAME:-default} or ${file:PATH}"
                self._note(place, f"`${{` begins no {known}; complete it, or write $${{ for a plain ${{")
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
            # Editors and `echo` end a file with a newline that is no part of the value.
            return path.read_bytes().decode().removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError) as error:
            why = "is not UTF-8 text" if isinstance(error, ValueError) else getattr(error, "strerror", None) or error
            self._note(place, f"file {path} cannot be read: {why}; make it readable for this user, or correct the path")
            return ""

    def _note(self, place: Place, problem: str) -> None:
        self._document.problems.append(f"{_shown(place)}: {problem}" if place else problem)
        self._document.broken.add(place)


# ---- From pydantic's errors to sentences

_WHAT = {
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
    """One line for each problem in a pydantic error."""
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
        what = _WHAT.get(error["type"], "not allowed" if _is_secret(place) else error["msg"])
        parts = [what]
        if error["type"] != "missing":
            parts.append(f"found {_found(error, place, document)}")
        if may_be := _allowed_at(place):
            parts.append(f"allowed: {may_be}")
        yield f"{_shown(place)}: {'; '.join(parts)}"


def _found(error: ErrorDetails, place: Place, document: _Document) -> str:
    value = error["input"]
    if _is_secret(place):
        return "****" if value is not None else "nothing"
    if error["type"] == "model_type":
        return kind_of(value)  # a login may stand there
    shown = describe(value)
    if isinstance(value, bool):
        hint = "; put it in quotes" if error["type"] in ("string_type", "path_type", "literal_error") else ""
        return f"{document.written.get(place, shown)}, which YAML reads as a boolean{hint}"
    if isinstance(value, (int, float)) and error["type"] in ("string_type", "path_type"):
        return f"the number {document.written.get(place, shown)[:60]}; put it in quotes"
    return shown


def _shown(place: Place) -> str:
    """The dotted path, with list indexes. A key that may be a misplaced secret is shown as ****."""
    text = "".join(
        f"[{part}]" if isinstance(part, int) else ".****" if hidden else f".{part}" for part, _, hidden in _walk(place)
    )
    return text.lstrip(".") or "the file"


def _is_secret(place: Place) -> bool:
    return any(hidden or (info is not None and is_secret(info)) for _, info, hidden in _walk(place))


def _walk(place: Place) -> Iterator[tuple[str | int, FieldInfo | None, bool]]:
    """Each step of a place with its field, and whether it is an unknown key (or below one) beside a secret."""
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
