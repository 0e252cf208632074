"""A schema from a registry: its text, and the texts of the schemas that it references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]


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
