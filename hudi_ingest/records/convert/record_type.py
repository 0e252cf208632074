"""Picks the records of one type from a topic that has several, by the names in their registered schemas."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_ingest.records.convert.mismatch import Mismatch
from hudi_ingest.records.convert.wire_format import HEADER_BYTES, SchemaLookup, by_header, read_schema_id
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind, UnusableSchema


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
        from hudi_ingest.records.convert.compiled_schemas import compiled
        from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema

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
