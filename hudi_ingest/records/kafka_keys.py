"""The fields of Kafka records' own keys, which are the key of a table with `key: kafka_key`, and the guard that keeps it so. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.convert.connect.json import members_of, payloads_of
from hudi_ingest.records.convert.converter import shortened
from hudi_ingest.records.convert.values import Indexes
from hudi_ingest.records.convert.wire_format import HEADER_BYTES, SchemaLookup, by_header, read_schema_id
from hudi_ingest.records.schema.avro import parse_connect_avro
from hudi_ingest.records.schema.connect import parse_connect_schema
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind

_SPACE = r"[ \t\r\n]*"
_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[^"\\,{}\[\] \t\r\n]+)'


@dataclass(frozen=True)
class KafkaKeys:
    """Names the fields of keys: of JSON, with Connect's schema or without, and of what schemas of a registry describe. Picklable."""

    schemas: Mapping[SchemaKind, SchemaLookup] = field(default_factory=dict)
    """The registry's, of each kind that keys may have; none if keys name no schemas of a registry."""
    _known: dict[bytes, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The fields by what names the schema: its text, or the header with its id. That never changes."""

    def __reduce__(self) -> tuple[type[KafkaKeys], tuple[object, ...]]:
        return (KafkaKeys, (self.schemas,))

    def fields(self, key: bytes) -> tuple[str, ...]:
        """Return the names of the key's fields, in their order. Raises ValueError if they have no names, and what `schemas` raises."""
        if self.schemas and key[:1] == b"\0":
            return self._of_schema(key[:HEADER_BYTES])
        for payloads in payloads_of(pa.array([key], pa.binary())):
            if payloads.schema not in (None, b"null"):
                return self._of_schema(payloads.schema)
            names = tuple(members_of(payloads.values[0].as_py()) or ())
            if names:
                return names
        raise ValueError(f"{shortened(repr(key)[1:])} is no JSON object with fields")

    def first_other(self, keys: pa.BinaryArray, wanted: tuple[str, ...]) -> int | None:
        """Return the place of the first key that has other fields than `wanted`, in any order, or none; None if there is no such key.
        Raises what `schemas` raises."""
        wrong = [np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))]
        present = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        some = keys.drop_null()
        registered = np.zeros(len(some), np.bool_)
        if self.schemas:
            registered = np.asarray(pc.equal(pc.binary_slice(some, 0, 1), b"\0"))
            framed = some.filter(pa.array(registered))
            for header, places in by_header(framed, HEADER_BYTES):
                if not self._has(header, wanted):
                    wrong.append(present[registered][places])
        json_keys, at = some.filter(pa.array(~registered)), present[~registered]
        for places in self._wrong_json(json_keys, wanted) if len(json_keys) else ():
            wrong.append(at[places])
        places = np.concatenate(wrong)
        return int(places.min()) if len(places) else None

    def _wrong_json(self, keys: pa.BinaryArray, wanted: tuple[str, ...]) -> Iterator[Indexes]:
        pairs = [f"{re.escape(json.dumps(name))}{_SPACE}:{_SPACE}{_SCALAR}" for name in wanted]
        pattern = f"^{_SPACE}\\{{{_SPACE}{f'{_SPACE},{_SPACE}'.join(pairs)}{_SPACE}\\}}{_SPACE}$"
        for payloads in payloads_of(keys):
            if payloads.schema not in (None, b"null"):
                if not self._has(payloads.schema, wanted):
                    yield payloads.places
                continue
            usual = pc.match_substring_regex(payloads.values, pattern).to_numpy(zero_copy_only=False)
            others = [
                index
                for index in np.flatnonzero(~usual).tolist()
                if (members_of(payloads.values[index].as_py()) or {}).keys() != {*wanted}
            ]
            yield payloads.places[np.array(others, np.int64)]

    def _has(self, schema: bytes, wanted: tuple[str, ...]) -> bool:
        try:
            return {*self._of_schema(schema)} == {*wanted}
        except ValueError:
            return False

    def _of_schema(self, schema: bytes) -> tuple[str, ...]:
        """`schema`: the text of Connect's schema, or the header of a key in Confluent's wire format. Raises ValueError."""
        names = self._known.get(schema)
        if names is None:
            names = self._names(schema)
            self._known[schema] = names
        return names

    def _names(self, schema: bytes) -> tuple[str, ...]:
        if schema[:1] == b"\0":
            schema_id = read_schema_id(schema)
            found = ((kind, schemas.schema(schema_id)) for kind, schemas in self.schemas.items())
            names = next((_registered_names(each, kind) for kind, each in found if each is not None), None)
            if names is None:
                raise ValueError(f"its schema, id {schema_id}, is not in the registry")
        else:
            connect = parse_connect_schema(schema)
            names = () if connect is None else tuple(connect.members)
        if not names:
            raise ValueError("its schema has no fields")
        return names


def _registered_names(schema: RegisteredSchema, kind: SchemaKind) -> tuple[str, ...]:
    """Raises ValueError."""
    if kind == "AVRO":
        return tuple(parse_connect_avro(schema).members)
    if kind == "JSON":
        properties = json.loads(schema.text).get("properties")
        return tuple(properties) if isinstance(properties, dict) else ()
    # Imported here, because only pipelines of this format need the libraries.
    from hudi_ingest.records.convert.protobuf.converter import first_message
    from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compiled, record_schema

    files = compiled(schema)
    message = first_message(files)
    return tuple(record_schema(ProtobufSchema(files).message(message)).names) if message is not None else ()


@dataclass(frozen=True)
class KeyGuard:
    """Refuses records whose own keys have other fields than the table's key is made of. Picklable."""

    pipeline: str
    base_path: str
    fields: tuple[str, ...]
    keys: KafkaKeys = KafkaKeys()

    def require(self, source: TopicPartition, batch: pa.RecordBatch) -> None:
        """`batch`: records of `source` that write or delete rows, with the columns key and offset. Raises SchemaRefused, and what the
        registry raises."""
        place = self.keys.first_other(batch["key"], self.fields)
        if place is None:
            return
        key, offset = batch["key"][place].as_py(), batch["offset"][place].as_py()
        error = SchemaRefused(
            f"pipeline {self.pipeline}: the record at {source}:{offset} has {self._found(key)}, and the table at {self.base_path} has "
            f"the key ({', '.join(self.fields)}), which its records had when it was created. Its files are laid out by that key, so it "
            "cannot change, and nothing of this transaction is visible. If the source's primary key changed, the way round is a new "
            f"table: set source.starting_offsets to {{{source.topic}: {{{source.partition}: {offset}}}}}, with the first record of the "
            "new key in each partition, and table.base_path, below `tables` if the file is a template, to another folder, run "
            f"`hudi-ingest recover {self.pipeline} --new-table`, and have the connector take a snapshot of the source table."
        )
        error.topic, error.partition, error.offset = source.topic, source.partition, offset
        raise error

    def _found(self, key: bytes | None) -> str:
        if key is None:
            return "no key"
        try:
            return f"the key ({', '.join(self.keys.fields(key))})"
        except ValueError as problem:
            return f"a key whose fields have no names ({problem})"
