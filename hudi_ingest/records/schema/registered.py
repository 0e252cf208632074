"""A schema from a registry: its text, the texts of the schemas that it references, and the descriptions of its columns. Pure.

Descriptions are Avro's `doc` and JSON Schema's `description`, those of top-level columns only, as catalogs and Dagster show no
others. Texts that no parser could read have none: the columns are parsed elsewhere, with all problems.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
KINDS: Mapping[str, SchemaKind] = {"avro": "AVRO", "json_schema": "JSON", "protobuf": "PROTOBUF"}
"""The registry's name for the schemas of each format."""


class UnusableSchema(ValueError):
    """No record of this schema id can be read; the text says why."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of one kind. Picklable, hashable."""

    text: str
    references: tuple[str, ...] = ()
    """Texts of the schemas that `text` uses, each after those that it uses itself."""
    names: tuple[str, ...] = ()
    """The name by which each of `references` is used: its import path in Protobuf."""


_AFTER = "after"


def avro_descriptions(text: str, of_events: bool = False) -> dict[str, str]:
    """Return the `doc` of each field of an Avro record that has one. `of_events`: of the record `after` of Debezium's events."""
    record = _json(text)
    if of_events:
        record = next((_record_in(field.get("type")) for field in _fields(record) if field.get("name") == _AFTER), {})
    return _texts({str(field.get("name")): field.get("doc") for field in _fields(record)})


def json_schema_descriptions(text: str) -> dict[str, str]:
    """Return the `description`, or else the `title`, of each property of a JSON Schema that has one."""
    document = _json(text)
    properties = document.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return _texts(
        {
            name: schema.get("description", schema.get("title"))
            for name, schema in properties.items()
            if isinstance(schema, Mapping)
        }
    )


def _json(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (RecursionError, ValueError):
        return {}
    return document if isinstance(document, Mapping) else {}


def _fields(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    fields = record.get("fields")
    return [field for field in fields if isinstance(field, Mapping)] if isinstance(fields, list) else []


def _record_in(kind: object) -> Mapping[str, Any]:
    """The record that a field's type is, or that is in its union with null."""
    kinds = kind if isinstance(kind, list) else [kind]
    return next((one for one in kinds if isinstance(one, Mapping) and one.get("type") == "record"), {})


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in values.items() if isinstance(text, str) and text.strip()}
