"""A settings file's YAML as plain values, with values filled in from the environment and from files, and its problems.

References (see references.py) are filled in. No problem shows a secret: neither a password, nor any
value in a place where a password may have been intended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from hudi_ingest.exceptions.problems import Place, kind_of
from hudi_ingest.pipeline.settings.describe import PlacedSetting, keys, setting_at
from hudi_ingest.pipeline.settings.references import Secret, Template

_MOST_LEVELS = 50
_MOST_CHARACTERS = 500_000
_MOST_DIGITS = 60
"""The digits of a number. Python refuses to print one of thousands of digits."""
MOST_PROBLEMS = 100
"""The most problems worth listing: a file with more is no settings file."""
_TAG = "tag:yaml.org,2002:"
_INT, _FLOAT, _BOOL, _NULL, _STR = (f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null", "str"))
_NUMBERS = {
    _INT: re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    _FLOAT: re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
"""PyYAML's, without those in base 60, which YAML 1.2 reads as text."""


@dataclass(slots=True)
class Document:
    """A YAML file as plain values, with what messages need to refer to them."""

    model: type[BaseModel]
    """The model of the whole file."""
    data: dict[str, Any] = field(default_factory=dict)
    """Empty when the file cannot be read at all; `problems` says why."""
    problems: list[str] = field(default_factory=list)
    broken: set[Place] = field(default_factory=set)
    """Values that are only stand-ins, because their problem is already noted."""
    written: dict[Place, str] = field(default_factory=dict)
    """The file's own spelling, where YAML reads something other than text."""
    lines: dict[Place, int] = field(default_factory=dict)
    """Line of each key."""
    numbered: bool = True
    """Whether problems name lines."""
    secrets: set[str] = field(default_factory=set)
    """Values of secrets, and of files and vaults: no message shows them, wherever they stand."""

    def line_of(self, place: Place) -> int | None:
        """The line of the key, or of the nearest one above it that the file has."""
        lines = self.lines if self.numbered else {}
        return next((line for end in range(len(place), 0, -1) if (line := lines.get(place[:end]))), None)

    def is_broken(self, place: Place) -> bool:
        return any(place[: len(broken_place)] == broken_place for broken_place in self.broken)


class _TooDeep(Exception):
    """More levels than any pipeline has, and perhaps more than Python's stack holds."""

    def __init__(self, mark: yaml.Mark) -> None:
        super().__init__(f"line {mark.line + 1}, column {mark.column + 1}")


class _TooMany(Exception):
    """More problems than are listed."""


class _Loader(yaml.SafeLoader):
    """Reads only numbers, booleans and null as something other than text."""

    _depth = 0

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
        first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in resolvers if tag in (_INT, _FLOAT, _BOOL, _NULL)]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth > _MOST_LEVELS:
            raise _TooDeep(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def read_document(path: Path, environment: Mapping[str, str], model: type[BaseModel]) -> Document:
    """Read a file; whatever is wrong with it is in the document's problems."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return Document(model, problems=["file not found; check the path, or list the folder"])
    except OSError as error:
        return Document(model, problems=[f"the file cannot be read: {error.strerror or error}"])
    except UnicodeDecodeError as error:
        return Document(model, problems=[f"the file is not UTF-8 text (byte {error.start + 1}); save it as UTF-8"])
    return parse_document(text, path.parent, environment, model)


@lru_cache(maxsize=4)
def _composed(text: str) -> yaml.Node | None:
    """The text's nodes, which nobody changes. A file that comes over REST is looked at several times."""
    root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return root


def compose_document(text: str) -> yaml.Node | None:
    """Return the text's YAML nodes; None if there are none. Raises ValueError if it is not YAML, or if it has what no settings
    file may have: anchors, and keys that are no text."""
    try:
        root = _composed(text)
    except (yaml.YAMLError, _TooDeep):
        raise ValueError("not YAML") from None
    if root is not None:
        _require_plain(root, set())
    return root


def _require_plain(node: yaml.Node, seen: set[int]) -> None:
    if id(node) in seen:
        raise ValueError("anchors and aliases")
    seen.add(id(node))
    for child in node.value if not isinstance(node, yaml.ScalarNode) else ():
        key, value = child if isinstance(child, tuple) else (None, child)
        if key is not None and not isinstance(key, yaml.ScalarNode):
            raise ValueError("a key that is no text")
        _require_plain(value, seen)


def plain_value(node: yaml.Node) -> Any:
    """The value of a scalar as YAML reads it, without filling in references."""
    try:
        return _constructed(node)
    except (ValueError, KeyError, IndexError):
        return str(node.value)


_CONSTRUCTOR = yaml.constructor.SafeConstructor()
"""Keeps nothing of the scalars that it reads."""
_CONSTRUCT: Mapping[str, Any] = {
    _INT: yaml.constructor.SafeConstructor.construct_yaml_int,
    _FLOAT: yaml.constructor.SafeConstructor.construct_yaml_float,
    _BOOL: yaml.constructor.SafeConstructor.construct_yaml_bool,
    _NULL: yaml.constructor.SafeConstructor.construct_yaml_null,
}


def _constructed(node: yaml.Node) -> Any:
    """The value of a scalar that is no text. Raises ValueError, KeyError and IndexError."""
    if len(node.value) > _MOST_DIGITS:
        raise ValueError("too long")
    return _CONSTRUCT[node.tag](_CONSTRUCTOR, node)


def parse_document(
    text: str, folder: Path, environment: Mapping[str, str], model: type[BaseModel], *, numbered: bool = True
) -> Document:
    """Parse the text of a file whose paths are relative to `folder`."""
    if len(text) > _MOST_CHARACTERS:
        problem = (
            f"{len(text):,} characters; allowed: up to {_MOST_CHARACTERS:,}; put large schemas into files of their own"
        )
        return Document(model, problems=[problem])
    try:
        root = _composed(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return Document(
            model, problems=[f"line {line}: character U+{error.character:04X} is not allowed in YAML; remove it"]
        )
    except _TooDeep as error:
        problem = f"{error}: nested deeper than {_MOST_LEVELS} levels, which no setting is; look for unclosed brackets"
        return Document(model, problems=[problem])
    except yaml.MarkedYAMLError as error:
        return Document(model, problems=[_syntax_problem(text, error)])
    document = Document(model, numbered=numbered)
    try:
        data = None if root is None else _Builder(folder, environment, document).value(root, ())
    except _TooMany:
        document.problems.append(f"perhaps more; correct these {MOST_PROBLEMS} first")
        return document
    if isinstance(data, dict) and data:
        document.data = data
        return document
    required = [key for key, info in keys(model).items() if info.is_required()]
    if not document.problems and not data and required:
        *first, last = (f"`{key}:`" for key in required)
        document.problems.append(f"the file is empty; begin with {', '.join(first)} and {last}")
    elif not document.problems and data:
        some = ", ".join((required or [*keys(model)])[:3])
        document.problems.append(f"the file must hold keys ({some} …); found {kind_of(data)}")
    return document


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
    elif "but found '<block mapping start>'" in words:
        hint = "; the line is indented more than those above it: keys of one mapping begin in the same column"
    elif "mapping values are not allowed" in words:
        hint = "; begin the keys of one mapping in the same column, and put a text with `: ` in quotes"
    elif "expected ',' or" in words:
        hint = "; close the bracket above, and put a text with `: ` or `, ` in quotes"
    return f"line {mark.line + 1}, column {mark.column + 1}: not YAML: {words}{hint}"


def _harmless(quoted: re.Match[str]) -> str:
    """Keep a single character or one of PyYAML's own words like '<scalar>'; mask anything else."""
    return quoted[0] if re.fullmatch(r"\\?.|<[a-z ]+>", quoted[0][1:-1]) else "****"


class _Builder:
    """Turns YAML nodes into plain values with the environment's values filled in, and notes problems."""

    def __init__(self, folder: Path, environment: Mapping[str, str], document: Document) -> None:
        self._folder = folder
        self._environment = environment
        self._document = document
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
        if isinstance(node, yaml.ScalarNode) and node.tag in _CONSTRUCT:
            return self._constructed(node, place)
        return self._note(place, "YAML tags (!…) are not supported; remove the tag")

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                where = f"{self._setting(place).shown}: " if place else ""
                self._add(f"{where}line {line}: a key must be plain text")
                continue
            key = str(key_node.value)  # keys are always text, even the number of a Kafka partition
            inner = (*place, key)
            if key in mapping:
                first = self._document.lines[inner]
                text = f"{self._setting(inner).shown}: duplicate key, in line {first} and in line {line}; keep one"
                self._add(text)
                continue
            self._document.lines[inner] = line
            mapping[key] = self.value(value_node, inner)
        return mapping

    def _constructed(self, node: yaml.ScalarNode, place: Place) -> Any:
        self._document.written[place] = str(node.value)
        try:
            return _constructed(node)
        except (ValueError, KeyError, IndexError):
            return self._note(place, "not a value that YAML can read; put it in quotes")

    def _substituted(self, text: str, place: Place) -> str | Secret:
        setting = self._setting(place)
        template = Template(text, self._folder, self._environment, takes_defaults=not setting.is_reference)
        ask = not (setting.is_reference or setting.is_fresh)
        filled_in = template.filled_in(lambda problem: self._note(place, problem), ask=ask)
        if filled_in and (template.has_a_secret or setting.is_secret):
            self._document.secrets.add(filled_in)
        if setting.is_identity and template.has_a_secret and place not in self._document.broken:
            self._note(
                place,
                "takes no secret, because run tags, metrics and answers show it: write the value, or use a variable without PASS, "
                "SECRET, TOKEN, KEY or CREDENTIAL in its name",
            )
        if setting.is_fresh and template.has_references and place not in self._document.broken:
            return Secret(filled_in, template, setting.shown)
        # A reference is resolved where the secret is used; here only its problems count.
        return text if setting.is_reference else filled_in

    def _note(self, place: Place, problem: str) -> None:
        line = self._document.line_of(place)
        self._add(f"{self._setting(place).shown}: {problem}{f' (line {line})' if line else ''}" if place else problem)
        self._document.broken.add(place)

    def _add(self, problem: str) -> None:
        if len(self._document.problems) == MOST_PROBLEMS:
            raise _TooMany
        self._document.problems.append(problem)

    def _setting(self, place: Place) -> PlacedSetting:
        return setting_at(place, self._document.model)
