"""`mask`: hide fields' values in one of three ways. The chain also keeps the values out of messages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions.problems import describe
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.casts import scalar_of
from hudi_ingest.records.transform.fields import missing_fields, require, unchanged

COVER = "****"
"""Replaces hidden characters, however many there are."""


class Masking(Protocol):
    """A way to replace values by others that reveal less. Picklable; equal values stay equal."""

    def output_field(self, incoming: pa.Field) -> pa.Field:
        """Return the masked column's field. Raises ValueError when this type of column cannot be masked this way."""

    def masked(self, column: pa.Array) -> pa.Array:
        """Mask the column, value by value."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Masks fields of the record."""

    fields: tuple[str, ...]
    masking: Masking

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([(("fields", i), name) for i, name in enumerate(self.fields)], incoming)])
        problems = []
        fields = {column.name: column for column in incoming}
        for index, name in enumerate(self.fields):
            try:
                fields[name] = self.masking.output_field(incoming.field(name))
            except ValueError as error:
                problems.append(Problem(("fields", index), f"{name} {error}"))
        require(problems)
        return pa.schema([*fields.values()])

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        columns = [
            self.masking.masked(column) if name in self.fields else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return Transformed(pa.RecordBatch.from_arrays(columns, schema=self.output_schema(batch.schema)), None)


@dataclass(frozen=True, slots=True)
class Hash:
    """Replaces a value by the SHA-256 of the salt and the value in UTF-8, as 64 hex digits: Spark's
    `sha2(concat(salt, value), 256)`.

    Whole numbers are hashed as their decimal text. Null stays null.
    """

    salt: str = field(default="", repr=False)

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if incoming.type not in (pa.string(), pa.binary(), pa.int32(), pa.int64()):
            raise ValueError(
                f"has type {ddl_type(incoming.type)}; a hash takes string, binary, int or long, so cast it first"
            )
        return incoming.with_type(pa.string())

    def masked(self, column: pa.Array) -> pa.Array:
        # Arrow has no SHA-256 kernel. Each distinct value is hashed once.
        text = column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
        encoded = text.dictionary_encode()
        salted = hashlib.sha256(self.salt.encode())
        digests = []
        for value in encoded.dictionary.to_pylist():
            digest = salted.copy()
            digest.update(value)
            digests.append(digest.hexdigest())
        return pa.array(digests, pa.string()).take(encoded.indices)


@dataclass(frozen=True, slots=True)
class Redact:
    """Replaces every value, null included, by a constant; by null if there is no constant."""

    constant: str | int | float | bool | None = None

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if self.constant is None:
            return incoming.with_nullable(True)
        if pa.types.is_nested(incoming.type):
            raise ValueError(f"has type {ddl_type(incoming.type)}, which cannot have a constant; leave `constant` out")
        try:
            scalar_of(self.constant, incoming.type)
        except ValueError as error:
            raise ValueError(f"gets a constant that is {error}; found {describe(self.constant)}") from None
        return incoming.with_nullable(False)

    def masked(self, column: pa.Array) -> pa.Array:
        if self.constant is None:
            return pa.nulls(len(column), column.type)
        return pa.repeat(scalar_of(self.constant, column.type), len(column))


@dataclass(frozen=True, slots=True)
class KeepLast:
    """Keeps only a text's last characters, after four stars; a text with no more characters than that becomes four stars."""

    characters: int

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if incoming.type != pa.string():
            raise ValueError(f"has type {ddl_type(incoming.type)}; only a string has last characters, so cast it first")
        return incoming

    def masked(self, column: pa.Array) -> pa.Array:
        longer = pc.greater(pc.utf8_length(column), self.characters)
        tail = pc.if_else(longer, pc.utf8_slice_codeunits(column, -self.characters), "")
        return pc.binary_join_element_wise(COVER, tail, "")
