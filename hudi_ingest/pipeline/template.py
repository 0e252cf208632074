"""Pipeline files that stand for several pipelines: `{topic}` in `table.base_path` and `name` makes one for each topic, and `route` one
for each value of a field; `tables` and `route.tables` say what one of them has of its own. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel, StringConstraints, ValidationInfo, field_validator

from hudi_ingest.exceptions.problems import Place, PlacedProblems, suggestion
from hudi_ingest.model.offsets import SeenTopic
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.pipeline.settings.model import Model
from hudi_ingest.pipeline.settings.yaml_document import Document
from hudi_ingest.records.routing import Rest, Routing

TOPIC = "{topic}"
_IDENTIFIERS = {("name",), ("asset", "group"), ("catalog", "database"), ("catalog", "table")}
"""Where a topic becomes a name of letters, digits and _."""


@dataclass(frozen=True, slots=True)
class Template:
    """A pipeline file with `{topic}` or `route`."""

    path: Path
    pipeline_name: str
    """The `name` of the file, with `{topic}`. The ledger knows the template by it."""
    source: KafkaSource
    """With the file's own `topics` or `topics_pattern`."""
    topics: tuple[SeenTopic, ...]
    """The topics that have matched its pattern, oldest first. () if it lists topics."""
    per_topic: bool
    """Whether each topic has pipelines of its own."""

    @property
    def finds_topics(self) -> bool:
        """Whether a topic that appears gets a pipeline."""
        return self.per_topic and self.source.topics_pattern is not None

    @property
    def name(self) -> str:
        """The file's name, as Dagster and the command line accept it."""
        return re.sub(r"[^A-Za-z0-9_]", "_", self.path.stem)


@dataclass(frozen=True, slots=True)
class Variant:
    """The topic or route that one of a template's pipelines is made of."""

    topic: str | None = None
    seen: SeenTopic | None = None
    """The time when a pattern's topic appeared."""
    route: str | None = None

    @property
    def text(self) -> str:
        topic = "" if self.topic is None else f"topic {self.topic}"
        return topic if self.route is None else f"{topic}{', ' if topic else ''}route {self.route}"


def is_template(data: Mapping[str, Any]) -> bool:
    return has_topics(data) or data.get("route") is not None


def has_topics(data: Mapping[str, Any]) -> bool:
    return TOPIC in base_path_of(data)


def base_path_of(data: Mapping[str, Any]) -> str:
    table = data.get("table")
    base_path = table.get("base_path") if isinstance(table, Mapping) else None
    return base_path if isinstance(base_path, str) else ""


def pipeline_name(name: str, variant: Variant) -> str:
    """The name of the variant's pipeline; two may have the same."""
    return str(_filled(name, ("name",), variant))


def for_variant(document: Document, variant: Variant) -> Document:
    """The file as it would be written for one of its pipelines alone."""
    route, tables = document.data.get("route"), document.data.get("tables")
    data = {key: value for key, value in document.data.items() if key not in ("route", "tables")}
    if variant.topic is not None and isinstance(tables, Mapping):
        data = _changed(data, tables.get(variant.topic) or {})
    if variant.route is not None and isinstance(route, Mapping):
        data = _changed(data, route["tables"].get(variant.route, {}))
    data = _filled(data, (), variant)
    if route is not None:
        data["route"] = route
    if variant.topic is not None:
        data["source"] = _source_of(data["source"], variant)
    return replace(document, data=data, problems=[*document.problems])


def _changed(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The file with what one of its tables has of its own."""
    table = dict(data["table"])
    if changes.get("mode") == "append":
        # What the others have for their keys.
        table = {key: value for key, value in table.items() if key not in _OF_KEYED}
    own: dict[str, Any] = {_STEPS: [*(data.get(_STEPS) or []), *changes[_STEPS]]} if _STEPS in changes else {}
    if _OPTIONAL in changes:
        source = data["source"]
        own["source"] = {**source, _OPTIONAL: [*(source.get(_OPTIONAL) or []), *changes[_OPTIONAL]]}
    own |= {key: changes[key] for key in _OF_FILE if key in changes}
    of_table = {key: value for key, value in changes.items() if key not in _LISTS and key not in _OF_FILE}
    return {**data, "table": {**table, **of_table}, **own}


def _source_of(source: Mapping[str, Any], variant: Variant) -> dict[str, Any]:
    topic = variant.topic
    settings = {key: value for key, value in source.items() if key != "topics_pattern"}
    starts = settings.get("starting_offsets")
    is_named = isinstance(starts, Mapping) and topic in starts
    if variant.seen is not None and not variant.seen.at_start and not is_named:
        # It appeared while its template was running, so all of it is new.
        settings["starting_offsets"] = "earliest"
    elif isinstance(starts, Mapping) and "timestamp" not in starts:
        settings["starting_offsets"] = {topic: starts[topic]} if topic in starts else "earliest"
    return {**settings, "topics": [topic]}


def _filled(value: Any, place: Place, variant: Variant) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, (*place, key), variant) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, (*place, index), variant) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    for placeholder, text in ((TOPIC, variant.topic), (ROUTE, variant.route)):
        if text is not None and placeholder in value:
            value = value.replace(placeholder, _written(text, place))
    return value


def _written(text: str, place: Place) -> str:
    if place not in _IDENTIFIERS:
        return text
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return identifier.lower() if place[0] == "catalog" else identifier


_STEPS, _OPTIONAL = "transforms", "optional_fields"
_LISTS = {_STEPS: "steps", _OPTIONAL: "fields"}
"""The keys of one of `tables` that are not keys of `table`: what their lists have comes after what the file has for all."""
_OF_FILE = ("on_bad_record",)
"""The keys of one of `tables` that stand beside `table` in a file."""
_OF_KEYED = ("key", "ordering", "buckets", "delete_field", "cdc", "compaction")
"""The keys of `table` that only a keyed one can have."""
EXCLUDED = "exclude"


class TopicTables(RootModel[dict[str, dict[str, Any] | Literal["exclude"]]]):
    """A template's `tables`."""

    @field_validator("root", mode="before")
    @classmethod
    def _are_of_topics(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, Mapping):
            raise ValueError(f"allowed: {TABLES_TEXT}")
        source: KafkaSource = (info.context or {})["source"]
        problems: list[tuple[Place, str]] = []
        for topic, changes in value.items():
            if not source.reads(str(topic)):
                text = f"not a topic of this file, {source.topics_text}{suggestion(str(topic), source.topics)}"
                problems.append(((str(topic),), text))
            elif changes != EXCLUDED and not isinstance(changes, Mapping):
                problems.append(((str(topic),), f"allowed: {{key: …}} with keys of `table`, or {EXCLUDED}"))
            elif changes != EXCLUDED:
                problems += [
                    ((str(topic), key), f"allowed: a list of {items}")
                    for key, items in _LISTS.items()
                    if not isinstance(changes.get(key, []), list)
                ]
        if problems:
            raise PlacedProblems(problems)
        return value

    @property
    def excluded(self) -> frozenset[str]:
        """The topics that have no pipeline."""
        return frozenset(topic for topic, changes in self.root.items() if changes == EXCLUDED)


TABLES_TEXT = f"{{topic: {{key: …}}}} with keys of `table`, `transforms`, `optional_fields` and `on_bad_record`, or {{topic: {EXCLUDED}}}"
ROUTE = "{route}"
REST = "others"
"""The name of the table of the rest."""


class Route(Model):
    """Writes a topic's records to several tables, by the value of a field."""

    field: Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")] = Field(
        json_schema_extra={"allowed": "a field of the records, like `type` or `header.type`"}
    )
    """The field, whose value must be text. It need not be a column of the tables."""

    tables: dict[str, dict[str, Any]] = Field(
        json_schema_extra={"allowed": "{value: {}}, or {value: {key: …}} with keys of `table` that differ for this one"}
    )
    """A table for each value, with what it has other than `table` says, such as its `schema`. `{route}` in `name` and
    `table.base_path` is the value."""

    others: Literal["fail", "skip", "table"] = "fail"
    """What happens to records with another value. `fail`: they are bad records of the first table, as are those whose field is
    missing, null or no text, and those that are no JSON. `skip`: they are left out, but the latter stay bad. `table`: all of these
    go to a table of their own, with `{route}` as `others`."""

    @field_validator("tables")
    @classmethod
    def _names_differ(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if not value:
            raise ValueError("found an empty mapping; allowed: at least one value")
        problems: list[tuple[Place, str]] = []
        for name, changes in value.items():
            if name == REST:
                problems.append(((name,), f"{REST} is the table of the rest; set `others: table` instead"))
            problems += [
                ((name, "base_path"), f"use {ROUTE} in table.base_path") for key in changes if key == "base_path"
            ]
        if problems:
            raise PlacedProblems(problems)
        return value

    @property
    def names(self) -> tuple[str, ...]:
        """The values of `{route}`, one for each table."""
        return (*self.tables, *([REST] if self.others == "table" else []))

    def routing(self, name: str) -> Routing:
        """Return the part of the table with this name. What no value claims belongs to exactly one table, or to none."""
        values, other_values, without_value = tuple(self.tables), "filtered", "filtered"
        if name == REST:
            other_values = without_value = "own"
        elif name == values[0] and self.others != "table":
            other_values = "bad" if self.others == "fail" else "filtered"
            without_value = "bad"
        path = tuple(self.field.split("."))
        return Routing(path, None if name == REST else name, values, _rest(other_values), _rest(without_value))


def _rest(text: str) -> Rest:
    assert text in ("own", "bad", "filtered")
    return text  # type: ignore[return-value]
