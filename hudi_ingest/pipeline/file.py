"""Loads one pipeline file, and reports all its problems at once, each with its place and none with a secret."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import Place, unexpected
from hudi_ingest.home.folder import Home
from hudi_ingest.home.stack_variables import pipeline_environment
from hudi_ingest.model.seen_topic import SeenTopic
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.error_sentences import all_sentences
from hudi_ingest.pipeline.settings.yaml_document import Document, parse_document, read_document
from hudi_ingest.pipeline.template import Variant, is_template

_logger = logging.getLogger(__name__)


def load_pipeline(path: Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Load the pipeline of one file. Raises ConfigError with all problems of the file.

    Without an `environment`, values come from this process's environment and from the variables that a running embedded
    stack of its home sets.
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
    document = parse_document(yaml.safe_dump(dict(settings)), folder, environment_or_own(environment), Pipeline)
    document.lines.clear()  # line numbers of the dump above mean nothing to the user
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
    """Of a template: what this is of."""

    @property
    def seen(self) -> SeenTopic | None:
        """Of a template with a pattern: its topic."""
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
