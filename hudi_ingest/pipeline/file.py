"""One pipeline file: loads it and reports all its problems at once, or masks its text. No problem and no text shows a secret."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import Place, unexpected
from hudi_ingest.home.folder import Home, pipeline_environment
from hudi_ingest.model.offsets import SeenTopic
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import setting_at
from hudi_ingest.pipeline.settings.settings_file import all_sentences
from hudi_ingest.pipeline.settings.yaml_document import (
    Document,
    compose_document,
    parse_document,
    plain_value,
    read_document,
)
from hudi_ingest.pipeline.template import Variant, is_template

_logger = logging.getLogger(__name__)


def load_pipeline(path: Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Load the pipeline of one file, which must not be a template.

    `path`: a YAML file; paths in it are relative to its folder. `environment`: where `${NAME}` gets its values; by default this
    process's environment and the variables that a running embedded stack of its home sets. Neither broker nor table is asked.

    Raises ConfigError with all problems of the file, each with its line.

    >>> from tempfile import TemporaryDirectory
    >>> text = '''
    ... name: orders
    ... source: {bootstrap_servers: "${BROKERS}", topics: [orders]}
    ... table: {base_path: /data/orders, schema: "id string, amount double"}
    ... '''
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "orders.yaml")
    ...     _ = path.write_text(text)
    ...     load_pipeline(path, {"BROKERS": "kafka:9092"}).source.bootstrap_servers
    'kafka:9092'
    """
    loaded = load_file(path, environment_or_own(environment))
    if loaded.pipeline is None:
        raise ConfigError(str(path), loaded.problems)
    return loaded.pipeline


def pipeline_from(
    settings: Mapping[str, Any], folder: Path, where: str, environment: Mapping[str, str] | None = None
) -> Pipeline:
    """Load a pipeline from settings inside another file, `where`, whose paths are relative to `folder`.

    The settings mean the same as in a pipeline file. Raises ConfigError with all problems.
    """
    # Line numbers of the dump mean nothing to the user.
    dump, environment = yaml.safe_dump(dict(settings)), environment_or_own(environment)
    document = parse_document(dump, folder, environment, Pipeline, numbered=False)
    if is_template(document.data):
        problem = (
            "{topic} in table.base_path and `route` make several pipelines, and here only one can be; put this into a file of "
            "its own, and name it by pipeline_file"
        )
        raise ConfigError(where, [*document.problems, problem])
    loaded = validated(document, Path(where), folder)
    if loaded.pipeline is None:
        raise ConfigError(where, loaded.problems)
    return loaded.pipeline


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """The result of loading one pipeline of a file: a pipeline, or problems. One with problems may still have a name."""

    path: Path
    name: str | None
    pipeline: Pipeline | None
    problems: tuple[str, ...] = ()
    variant: Variant | None = None
    """The topic or route that a template's pipeline is made of; None for a file of one pipeline."""

    @property
    def seen(self) -> SeenTopic | None:
        """Return the topic, if this is made of a template with a pattern."""
        return self.variant.seen if self.variant is not None else None


def load_file(path: Path, environment: Mapping[str, str]) -> LoadedFile:
    """Load a file of one pipeline."""
    try:
        document = read_document(path, environment, Pipeline)
        return _only_pipeline(document, path)
    except Exception as error:
        _logger.exception("%s cannot be loaded", path)
        return LoadedFile(path, None, None, (unexpected(error),))


def _only_pipeline(document: Document, path: Path) -> LoadedFile:
    if is_template(document.data):
        text = f"it is a template, which makes several pipelines; name one of them (`hudi-ingest validate {path}` lists them)"
        return LoadedFile(path, None, None, (text,))
    return validated(document, path, path.parent)


def environment_or_own(environment: Mapping[str, str] | None) -> Mapping[str, str]:
    """The environment, or else this process's with the variables of a running embedded stack."""
    return pipeline_environment(Home.from_environment()) if environment is None else environment


def validated(document: Document, path: Path, folder: Path) -> LoadedFile:
    """Validate the pipeline of one document."""
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
                return LoadedFile(path, name, pipeline)
            errors = []
        if errors:
            errors += _hidden_errors(document, [details["loc"] for details in errors], context)
        problems += all_sentences(errors, document)
    return LoadedFile(path, name, None, tuple(problems))


_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "source": {"bootstrap_servers": "localhost:9092", "topics": ["topic"]},
    "table": {"base_path": "/table"},
}


def _hidden_errors(document: Document, places: Iterable[Place], context: Mapping[str, Any]) -> list[ErrorDetails]:
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
        if "topics_pattern" in usable:
            data[part].pop("topics")
    if any(place[:1] == ("transforms",) for place in wrong):
        return []
    try:
        Pipeline.model_validate(data, context=context)
    except ValidationError as error:
        return [details for details in error.errors(include_url=False) if details["loc"] == ("transforms",)]
    return []


MASK = "****"
_REFERENCE = re.compile(r"\$\{(file:[^-}][^}]*|[A-Za-z_][A-Za-z0-9_]*)\}")
_LOGIN = re.compile(r"://[^/\s@]*@")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file without secrets. `text` is None if it is not YAML, because then it is unknown where its secrets are."""

    text: str | None
    settings: dict[str, Any] = field(default_factory=dict)
    """The values as written: references are not filled in, and defaults are not added."""
    masked: tuple[str, ...] = ()
    """Dotted places whose values are replaced by the mask."""
    were_masks: tuple[str, ...] = ()
    """Places among them that hold nothing but the mask in the file itself."""
    lines: dict[str, int] = field(default_factory=dict)
    """The line of each key, by dotted place."""


def shown_file(text: str) -> ShownFile:
    """Mask what may be a secret in the text of a pipeline file."""
    try:
        root = compose_document(text)
    except ValueError:
        return ShownFile(None)
    if root is None:
        return ShownFile(text)
    original, spans = text, [*_secrets(root, ())]
    for start, end, _ in sorted(spans, reverse=True):
        # A block scalar ends after its last line break.
        text = text[:start] + f'"{MASK}"' + ("\n" if text[start:end].endswith("\n") else "") + text[end:]
    were_masks = [place for start, end, place in spans if original[start:end].strip("\"' \n") == MASK]
    settings = _value(root, (), frozenset(start for start, _, _ in spans))
    return ShownFile(
        text,
        settings if isinstance(settings, dict) else {},
        tuple(dict.fromkeys(setting_at(place, Pipeline).shown for _, _, place in spans)),
        tuple(setting_at(place, Pipeline).shown for place in were_masks),
        dict(_lines(root, ())),
    )


def _secrets(node: yaml.Node, place: Place) -> Iterator[tuple[int, int, Place]]:
    """Yield start, end and place of each value or key that may be a secret."""
    if isinstance(node, yaml.MappingNode):
        is_shown = MASK not in setting_at(place, Pipeline).shown
        for key, value in node.value:
            inner = (*place, str(key.value))
            if is_shown and MASK in setting_at(inner, Pipeline).shown:
                yield key.start_mark.index, key.end_mark.index, inner
            yield from _secrets(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _secrets(value, (*place, index))
    elif isinstance(node, yaml.ScalarNode):
        written = str(node.value)
        is_secret = setting_at(place, Pipeline).may_be_secret and _REFERENCE.sub("", written).strip() != ""
        if is_secret or _LOGIN.search(written):
            yield node.start_mark.index, node.end_mark.index, place


def _value(node: yaml.Node, place: Place, masked: frozenset[int]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {
            MASK if key.start_mark.index in masked else str(key.value): _value(value, (*place, str(key.value)), masked)
            for key, value in node.value
        }
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, index), masked) for index, item in enumerate(node.value)]
    return MASK if node.start_mark.index in masked else plain_value(node)


def _lines(node: yaml.Node, place: Place) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            yield setting_at(inner, Pipeline).shown, key.start_mark.line + 1
            yield from _lines(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield setting_at((*place, index), Pipeline).shown, item.start_mark.line + 1
            yield from _lines(item, (*place, index))
