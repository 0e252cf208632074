"""Which records of a topic are a table's own: by a field of their values, or by the type that their registered schema names.

Every table of a topic judges each record alike, and each judgement is one table's own: so each record is dealt with in exactly one
of them, and filtered in the others.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Converter, Mismatch, Rejected
from hudi_ingest.records.convert.wire_format import HEADER_BYTES, SchemaLookup, by_header, read_schema_id
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind, UnusableSchema

Rest = Literal["own", "bad", "filtered"]
"""The ways to treat records that no value claims."""


@dataclass(frozen=True, slots=True)
class Routing:
    """One table's part of a topic."""

    field: tuple[str, ...]
    """The field's path."""
    own: str | None
    """The value whose records are this table's; None for the table of the rest."""
    values: tuple[str, ...]
    """All values that have a table."""
    other_values: Rest
    """Records with another text in the field."""
    without_value: Rest
    """Records whose field is missing, null or no text, records that cannot be decoded, and records without a value."""

    @property
    def columns(self) -> pa.Schema:
        """The schema to decode a record with for its field alone."""
        field = pa.field(self.field[-1], pa.string())
        for name in reversed(self.field[:-1]):
            field = pa.field(name, pa.struct([field]))
        return pa.schema([field])

    def judge(self, converter: Converter, values: pa.BinaryArray) -> tuple[pa.Array, list[Rejected]]:
        """The int64 places of the table's own records, ascending, and the bad ones, which no other table has. `converter`: to
        `columns`."""
        texts = self._texts(converter, values)
        own = _is(texts, [self.own]) if self.own is not None else np.zeros(len(values), bool)
        known = _is(texts, self.values)
        tombstones = values.is_null().to_numpy(zero_copy_only=False)
        missing = texts.is_null().to_numpy(zero_copy_only=False) & ~tombstones
        if self.without_value != "filtered":
            # `on_tombstone` says what becomes of them.
            own = own | tombstones
        bad = np.zeros(len(values), bool)
        others = ~known & ~missing & ~tombstones
        for records, rest in ((others, self.other_values), (missing, self.without_value)):
            own = own | records if rest == "own" else own
            bad = bad | records if rest == "bad" else bad
        name, expected = ".".join(self.field), f"one of {', '.join(self.values)}, which have tables"
        rejected = []
        for index in np.flatnonzero(bad).tolist():
            text = texts[index].as_py()
            rejected.append(Rejected(index, name, expected, "no text" if text is None else f'"{text[:60]}"'))
        return pa.array(np.flatnonzero(own), pa.int64()), rejected

    def _texts(self, converter: Converter, values: pa.BinaryArray) -> pa.StringArray:
        """The field of each record; null where it has no text."""
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        if not len(present):
            return pa.nulls(len(values), pa.string())
        decoded = converter.decode(values.filter(values.is_valid()))
        places = present if decoded.kept is None else present[decoded.kept.to_numpy(zero_copy_only=False)]
        column = decoded.rows.column(0)
        for name in self.field[1:]:
            column = pc.struct_field(column, name)
        picks = np.full(len(values), -1)
        picks[places] = np.arange(len(places))
        return column.take(pa.array(picks, pa.int64(), mask=picks < 0))


def _is(texts: pa.StringArray, values: Collection[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found = pc.is_in(texts, value_set=pa.array(list(values), pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


@dataclass(frozen=True)
class RecordType:
    """The full name of a record type, and the schemas that records name by id. Picklable."""

    name: str
    schemas: SchemaLookup
    kind: SchemaKind

    def others(self, values: pa.BinaryArray) -> npt.NDArray[np.bool_]:
        """Which values are certainly of another type. Not those without a usable schema, of which a converter says what is
        wrong, and not tombstones. Raises what `SchemaLookup` raises when it is unavailable."""
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        others = np.zeros(len(values), np.bool_)
        values = values.drop_null()
        for header, places in by_header(values, HEADER_BYTES):
            names = self._union(header)
            if names is None:
                others[present[places]] = self._is_other(header)
                continue
            # A datum of a union begins with its branch's number.
            for branch, among in by_header(values.take(pa.array(places)), HEADER_BYTES + 1):
                number = branch[HEADER_BYTES:]
                is_known = len(number) == 1 and not number[0] & 1 and number[0] >> 1 < len(names)
                others[present[places[among]]] = is_known and names[number[0] >> 1] not in (None, self.name)
        return others

    def _union(self, header: bytes) -> list[str | None] | None:
        """The names of the records of a subject that is a union in Avro; None for any other."""
        try:
            schema = self.schemas.schema(read_schema_id(header))
            union = json.loads(schema.text) if schema is not None and self.kind == "AVRO" else None
        except (Mismatch, ValueError):
            return None
        return [*map(_full_name, union)] if isinstance(union, list) else None

    def _is_other(self, header: bytes) -> bool:
        try:
            schema = self.schemas.schema(read_schema_id(header))
        except (Mismatch, UnusableSchema):
            return False
        return schema is not None and not has_type(schema, self.kind, self.name)


def has_type(schema: RegisteredSchema, kind: SchemaKind, name: str) -> bool:
    """Whether records of a schema may be of the type: an Avro record, a JSON schema's title, or one of the messages of a
    Protobuf schema. Also when the schema names none."""
    if kind == "PROTOBUF":
        # Imported here, because only pipelines of this format need the libraries.
        from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compiled

        try:
            return ProtobufSchema(compiled(schema)).has(name)
        except ValueError:
            return True
    found = _declared_name(schema.text, kind)
    return found is None or found == name


def _declared_name(text: str, kind: SchemaKind) -> str | None:
    try:
        schema = json.loads(text)
    except ValueError:
        return None
    if not isinstance(schema, dict):
        return None
    if kind == "JSON":
        title = schema.get("title")
        return title if isinstance(title, str) else None
    return _full_name(schema)


def _full_name(schema: object) -> str | None:
    """The full name of an Avro type that is declared, or named in full; None if it has none."""
    if isinstance(schema, str):
        return schema if schema != "null" else None
    if not isinstance(schema, dict):
        return None
    name, namespace = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        return None
    return f"{namespace}.{name}" if namespace and "." not in name else name
