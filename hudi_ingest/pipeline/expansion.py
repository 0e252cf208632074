"""Loads all pipelines of one file: one, or one for each topic and route of a template."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hudi_ingest.exceptions import IngestError
from hudi_ingest.exceptions.problems import listed, quoted, unexpected
from hudi_ingest.model.offsets import SeenTopic
from hudi_ingest.pipeline.file import LoadedFile, validated
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource, loop_problem
from hudi_ingest.pipeline.settings.settings_file import all_sentences
from hudi_ingest.pipeline.settings.yaml_document import Document, parse_document, read_document
from hudi_ingest.pipeline.template import (
    ROUTE,
    TOPIC,
    Route,
    Template,
    TopicTables,
    Variant,
    base_path_of,
    for_variant,
    has_topics,
    is_template,
    pipeline_name,
)

_logger = logging.getLogger(__name__)
SeenTopics = Callable[[str], Sequence[SeenTopic]]
"""The topics that have matched the pattern of the template whose `name` is given, oldest first. Raises IngestError."""
_STAND_IN = "topic"


@dataclass(frozen=True, slots=True)
class Expansion:
    """The content of one file."""

    loaded: tuple[LoadedFile, ...]
    """One for each pipeline, or one with what is wrong with all of them."""
    template: Template | None = None


def expand(
    path: Path, environment: Mapping[str, str], seen: SeenTopics, only: str = "", text: str | None = None
) -> Expansion:
    """Load the file's pipelines. `only`: of a template, the one pipeline to load; `text`: as if the file had it."""
    try:
        return _expanded(path, environment, seen, only, text)
    except Exception as error:
        # Only this file is lost: those beside it are loaded.
        _logger.exception("%s cannot be loaded", path)
        return _broken(path, [unexpected(error)])


def _expanded(path: Path, environment: Mapping[str, str], seen: SeenTopics, only: str, text: str | None) -> Expansion:
    document = (
        read_document(path, environment, Pipeline)
        if text is None
        else parse_document(text, path.parent, environment, Pipeline)
    )
    if not is_template(document.data):
        return Expansion((validated(document, path, path.parent),))
    name, base_path = document.data.get("name"), base_path_of(document.data)
    placeholders = [TOPIC] * has_topics(document.data) + [ROUTE] * ("route" in document.data)
    for placeholder in placeholders:
        if not isinstance(name, str) or placeholder not in name or placeholder not in base_path:
            problem = f"{placeholder} must be in `name` and in `table.base_path`: each of several pipelines has its own"
            return _broken(path, [*document.problems, problem])
    assert isinstance(name, str)
    source = _part(KafkaSource, "source", document, path)
    if not isinstance(source, KafkaSource):
        return _broken(path, [*document.problems, *source])
    tables = _part(TopicTables, "tables", document, path, source=source) if document.data.get("tables") else None
    if isinstance(tables, list):
        return _broken(path, [*document.problems, *tables])
    if tables is not None and TOPIC not in placeholders:
        return _broken(path, [*document.problems, f"tables: needs {TOPIC} in `name` and in `table.base_path`"])
    source = source.without(tables.excluded if tables is not None else ())
    routes: tuple[str | None, ...] = (None,)
    if ROUTE in placeholders:
        route = _part(Route, "route", document, path)
        if not isinstance(route, Route):
            return _broken(path, [*document.problems, *route])
        routes = route.names
    topics: list[Variant] = [Variant()]
    known: tuple[SeenTopic, ...] = ()
    if TOPIC in placeholders and source.topics_pattern is not None:
        try:
            known = tuple(topic for topic in seen(name) if source.reads(topic.name))
        except IngestError as error:
            problem = f"source.topics_pattern: its topics are in the ledger, which cannot be read: {error}"
            return _broken(path, [problem])
        topics = [Variant(topic.name, topic) for topic in known]
    elif TOPIC in placeholders:
        topics = [Variant(topic) for topic in source.topics]
    template = Template(path, name, source, known, TOPIC in placeholders)
    if not topics:
        return Expansion(_problems_without_topics(document, path, routes), template)
    variants = [replace(topic, route=route_name) for topic in topics for route_name in routes]
    made = (_made_by(template, file) for file in _variants(document, path, name, variants, only))
    loaded = tuple(_without_own_letters(file, source) for file in made)
    return Expansion(_together(loaded, len(variants), only), template)


_Part = TypeVar("_Part", bound=BaseModel)


def _part(model: type[_Part], key: str, document: Document, path: Path, **context: Any) -> _Part | list[str]:
    """Load a part of the template itself, or return its problems."""
    settings: Any = document.data.get(key)
    try:
        return model.model_validate(settings, context={"folder": path.parent, **context})
    except ValidationError as error:
        details = error.errors(include_url=False)
        for problem in details:
            problem["loc"] = (key, *problem["loc"])
        return all_sentences(details, document)


def _variants(
    document: Document, path: Path, name: str, variants: Sequence[Variant], only: str
) -> Iterator[LoadedFile]:
    named: dict[str, Variant] = {}
    for variant in variants:
        own_name = pipeline_name(name, variant)
        first = named.setdefault(own_name, variant)
        if only not in ("", own_name):
            continue
        if first is not variant:
            problem = (
                f"{first.text} and {variant.text} would both have the pipeline {own_name}; give one of them a file of its own, and "
                "leave it out here"
            )
            yield LoadedFile(path, own_name, None, (problem,), variant)
        else:
            yield _loaded(document, path, variant)


def _loaded(document: Document, path: Path, variant: Variant) -> LoadedFile:
    loaded = validated(for_variant(document, variant), path, path.parent)
    pipeline = loaded.pipeline
    if pipeline is not None and variant.route is not None:
        pipeline = pipeline.routed(variant.route)
    return replace(loaded, pipeline=pipeline, variant=variant)


def _made_by(template: Template, file: LoadedFile) -> LoadedFile:
    return file if file.pipeline is None else replace(file, pipeline=file.pipeline.made_by(template.name))


def _without_own_letters(file: LoadedFile, source: KafkaSource) -> LoadedFile:
    """Refuse a pipeline whose dead letters go to a topic that matches the template's pattern: that topic would get a pipeline, whose
    dead letters would be a further topic, and so on."""
    if file.pipeline is None or source.topics_pattern is None:
        return file
    problem = loop_problem(file.pipeline.dead_letters, source)
    return replace(file, pipeline=None, problems=(f"dead_letters.topic: {problem}",)) if problem else file


def _together(loaded: tuple[LoadedFile, ...], variants: int, only: str) -> tuple[LoadedFile, ...]:
    """Say once what is wrong with all, and of what is wrong with some, with which. What the file lists is right or wrong as a
    whole: only its author can make it wrong."""
    problems = {file.problems for file in loaded}
    if len(problems) == 1 and () not in problems and (not only or variants == 1):
        return (replace(loaded[0], name=None, variant=None),)
    placed = [
        replace(file, problems=tuple(f"{file.variant.text}: {problem}" for problem in file.problems))
        for file in loaded
        if file.variant is not None
    ]
    wrong = [problem for file in placed if file.seen is None for problem in file.problems]
    if wrong:
        return (LoadedFile(loaded[0].path, None, None, tuple(wrong)),)
    return tuple(placed)


def _problems_without_topics(document: Document, path: Path, routes: Sequence[str | None]) -> tuple[LoadedFile, ...]:
    """Return the problems that do not depend on the topics. Files that are named after a topic do not exist yet."""
    if TOPIC in str(document.data["table"].get("schema_file", "")):
        return ()
    loaded = _loaded(document, path, Variant(_STAND_IN, route=routes[0]))
    return (replace(loaded, name=None, pipeline=None, variant=None),) if loaded.problems else ()


def _broken(path: Path, problems: Sequence[str]) -> Expansion:
    return Expansion((LoadedFile(path, None, None, tuple(problems)),))


def template_text(template: Template, names: Sequence[str]) -> str:
    """Word the problem of a template where one pipeline is expected."""
    topics = "it has seen no topic yet" if not names else f"name one of its pipelines: {listed(names, 20)}"
    return f"{quoted(template.name)} is a template, which makes several pipelines; {topics}"
