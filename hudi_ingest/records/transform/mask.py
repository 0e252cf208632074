"""`mask`: what fields say, hidden in one of three ways. Chain keeps their values out of messages too."""

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
"""Stands for hidden characters, however many they are."""


class Masking(Protocol):
    """How one value becomes another that says less. Picklable; equal values become equal ones."""

    def output_field(self, incoming: pa.Field) -> pa.Field:
        """What the column is afterwards. Raises ValueError when a column of this type cannot be masked so."""

    def masked(self, column: pa.Array) -> pa.Array:
        """The column, value by value."""


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
    """SHA-256 of the salt's and the value's UTF-8 bytes, as 64 hex digits: Spark's `sha2(concat(salt, value), 256)`.

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
        # No kernel of Arrow hashes by SHA-256. Each distinct value is hashed once.
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
    """One constant instead of every value, null included; without a constant, null."""

    constant: str | int | float | bool | None = None

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if self.constant is None:
            return incoming.with_nullable(True)
        if pa.types.is_nested(incoming.type):
            raise ValueError(f"has type {ddl_type(incoming.type)}, which no constant stands for; leave `constant` out")
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
    """Four stars and the last characters of a text; four stars alone when the text is not longer than those."""

    characters: int

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if incoming.type != pa.string():
            raise ValueError(f"has type {ddl_type(incoming.type)}; only a string has last characters, so cast it first")
        return incoming

    def masked(self, column: pa.Array) -> pa.Array:
        longer = pc.greater(pc.utf8_length(column), self.characters)
        tail = pc.if_else(longer, pc.utf8_slice_codeunits(column, -self.characters), "")
        return pc.binary_join_element_wise(COVER, tail, "")
