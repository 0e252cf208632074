"""Loads all pipelines of one file: one, or one for each topic of a template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hudi_ingest.exceptions import IngestError
from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.model.seen_topic import SeenTopic
from hudi_ingest.pipeline.error_sentences import sentences
from hudi_ingest.pipeline.file import LoadedFile, validated
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.source import KafkaSource
from hudi_ingest.pipeline.template import TOPIC, Template, for_topic, is_template, pipeline_name
from hudi_ingest.pipeline.yaml_document import Document, parse_document, read_document

SeenTopics = Callable[[str], Sequence[SeenTopic]]
"""The topics that have matched the pattern of the template whose `name` is given, oldest first. Raises IngestError."""
_STAND_IN = "topic"


@dataclass(frozen=True, slots=True)
class Expansion:
    """What is in one file."""

    loaded: tuple[LoadedFile, ...]
    """One for each pipeline, or one with what is wrong with all of them."""
    template: Template | None = None


def expand(
    path: Path, environment: Mapping[str, str], seen: SeenTopics, only: str = "", text: str | None = None
) -> Expansion:
    """Load the file's pipelines. `only`: of a template, the one pipeline to load; `text`: as if the file had it."""
    document = (
        read_document(path, environment, Pipeline)
        if text is None
        else parse_document(text, path.parent, environment, Pipeline)
    )
    if not is_template(document.data):
        return Expansion((validated(document, path, path.parent),))
    name = document.data.get("name")
    if not isinstance(name, str) or TOPIC not in name:
        problem = f"name: {TOPIC} is in table.base_path, so each topic has a pipeline of its own; put it in `name` too, like shop_{TOPIC}"
        return _broken(path, [*document.problems, problem])
    source = _source(document, path)
    if not isinstance(source, KafkaSource):
        return _broken(path, [*document.problems, *source])
    topics: list[tuple[str, SeenTopic | None]] = [(topic, None) for topic in source.topics]
    known: tuple[SeenTopic, ...] = ()
    if source.topics_pattern is not None:
        try:
            known = tuple(topic for topic in seen(name) if source.reads(topic.name))
        except IngestError as error:
            return _broken(
                path, [f"source.topics_pattern: its topics are in the ledger, which cannot be read: {error}"]
            )
        topics = [(topic.name, topic) for topic in known]
    template = Template(path, name, source, known)
    if not topics:
        return Expansion(_problems_without_topics(document, path), template)
    loaded = tuple(_instances(document, path, name, topics, only))
    return Expansion(_together(loaded, len(topics), only), template)


def _source(document: Document, path: Path) -> KafkaSource | list[str]:
    """The template's own source, or what is wrong with it."""
    settings: Any = document.data.get("source")
    try:
        return KafkaSource.model_validate(settings, context={"folder": path.parent})
    except ValidationError as error:
        details = error.errors(include_url=False)
        for problem in details:
            problem["loc"] = ("source", *problem["loc"])
        return [line for problem in details for line in sentences(problem, document)]


def _instances(
    document: Document, path: Path, name: str, topics: Sequence[tuple[str, SeenTopic | None]], only: str
) -> Iterator[LoadedFile]:
    named: dict[str, str] = {}
    for topic, seen in topics:
        own_name = pipeline_name(name, topic)
        first = named.setdefault(own_name, topic)
        if only not in ("", own_name):
            continue
        if first != topic:
            problem = (
                f"topics {first} and {topic} would both have the pipeline {own_name}; give one of them a file of its own, and "
                "leave it out here"
            )
            yield LoadedFile(path, own_name, None, (problem,), topic, seen)
        else:
            late = seen is not None and not seen.at_start
            loaded = validated(for_topic(document, topic, from_first_offset=late), path, path.parent)
            yield replace(loaded, topic=topic, seen=seen)


def _together(loaded: tuple[LoadedFile, ...], topics: int, only: str) -> tuple[LoadedFile, ...]:
    """Say once what is wrong with all, and of what is wrong with some, with which topics. A list of topics is right or wrong as
    a whole: nobody but its author can make it wrong."""
    problems = {file.problems for file in loaded}
    if len(problems) == 1 and () not in problems and (not only or topics == 1):
        return (replace(loaded[0], name=None, topic="", seen=None),)
    placed = [
        replace(file, problems=tuple(f"topic {file.topic}: {problem}" for problem in file.problems)) for file in loaded
    ]
    wrong = [problem for file in placed if file.seen is None for problem in file.problems]
    if wrong:
        return (LoadedFile(loaded[0].path, None, None, tuple(wrong)),)
    return tuple(placed)


def _problems_without_topics(document: Document, path: Path) -> tuple[LoadedFile, ...]:
    """What is wrong whatever the topics are. Files that are named after a topic do not exist yet."""
    if any(f"{TOPIC}" in str(value) for key, value in (document.data["table"]).items() if key == "schema_file"):
        return ()
    loaded = validated(for_topic(document, _STAND_IN, from_first_offset=True), path, path.parent)
    return (replace(loaded, name=None, pipeline=None),) if loaded.problems else ()


def _broken(path: Path, problems: Sequence[str]) -> Expansion:
    return Expansion((LoadedFile(path, None, None, tuple(problems)),))


def template_text(template: Template, names: Sequence[str]) -> str:
    """What to say of a template where one pipeline is expected."""
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    topics = "it has seen no topic yet" if not names else f"name one of its pipelines: {shown}"
    return f"{quoted(template.name)} is a template, with a pipeline for each topic; {topics}"
