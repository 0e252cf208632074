"""A schema from a registry: its text, and the texts of the schemas that it references. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
