"""What a pipeline's converter is made of, and records of schemas that are newer than their transaction."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.exceptions import SchemaMissing, SchemaOutdated
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.records.schema.columns import ddl, parse_spark_json
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind
from hudi_ingest.transaction.columns.decoding import NewerSchemaGuard, converter_of
from hudi_ingest.transaction.columns.registered_columns import changed_meanings_of, is_control
from hudi_ingest.transaction.columns.schema_change import resolve_schema
from hudi_ingest_tests.support.pipeline_files import Write, load
from hudi_ingest_tests.support.registry import canned_registry


@dataclass(frozen=True)
class Registered:
    """A registry that has these records' fields by schema id."""

    fields: Mapping[int, str]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        fields = self.fields.get(schema_id)
        text = f'{{"type": "record", "name": "R", "fields": [{fields}]}}'
        return None if fields is None else RegisteredSchema(text)


ID, N = '{"name": "id", "type": "string"}', '{"name": "n", "type": "%s"}'
UNION = '{"name": "u", "type": ["int", "string"]}'


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (ID, None),
        (f"{ID}, {N % 'int'}", None),
        (f"{ID}, {N % 'long'}, " + '{"name": "more", "type": "int"}', "column more int is added"),
        (f"{ID}, {N % 'double'}", "column n becomes double; it was long"),
        (f"{ID}, {N % 'string'}", "column n: expected long, as in the table, found string"),
        (f"{ID}, {UNION}", "a table cannot have its columns: column u: found a union"),
    ],
)
def test_d2_a_newer_schema_ends_the_transaction_when_it_has_more(fields: str, problem: str | None) -> None:
    registry = Registered({1: f"{ID}, {UNION}", 2: fields})
    lookup = pickle.loads(
        pickle.dumps(NewerSchemaGuard(registry, frozenset([1]), parse_ddl("id string, n long"), "orders-value"))
    )
    assert lookup.schema(1) == registry.schema(1), "what the transaction knew is the converter's matter"
    assert lookup.schema(3) is None
    if problem is None:
        assert lookup.schema(2) == registry.schema(2)
        return
    with pytest.raises(SchemaOutdated, match=r"schema id 2, which was not registered under orders-value") as raised:
        lookup.schema(2)
    assert (raised.value.schema_id, raised.value.subjects) == (2, "orders-value")
    assert problem in str(raised.value)


@dataclass(frozen=True)
class Texts:
    """A registry of schemas by id."""

    texts: Mapping[int, str]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return RegisteredSchema(self.texts[schema_id]) if schema_id in self.texts else None


JSON = '{"type": "object", "properties": {"id": {"type": "string"}, %s}}'
PROTO = 'syntax = "proto3"; package shop; %s'


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("JSON", JSON % '"n": {"type": ["integer", "null"]}', None),
        ("JSON", JSON % '"n": {"type": "number"}', "column n becomes double; it was long"),
        ("JSON", JSON % '"n": {"type": "integer"}, "more": {"type": "string"}', "column more string is added"),
        ("JSON", JSON % '"n": {"type": "string"}', "column n: expected long, as in the table, found string"),
        ("JSON", JSON % '"n": {}', "a table cannot have its columns: column n: found no type"),
        ("PROTOBUF", PROTO % "message Order { string id = 1; }", None),
        ("PROTOBUF", PROTO % "message Order { string id = 1; int32 n = 2; }", None),
        ("PROTOBUF", PROTO % "message Order { int64 n = 2; string more = 3; }", "column more string is added"),
        ("PROTOBUF", PROTO % "message Order { double n = 2; }", "column n becomes double; it was long"),
        ("PROTOBUF", PROTO % "message Other { string more = 1; }", None),
        ("PROTOBUF", PROTO % "message Order {", None),
    ],
)
def test_d2_a_newer_schema_of_another_kind_ends_the_transaction_too(
    kind: SchemaKind, text: str, problem: str | None
) -> None:
    registry = Texts({1: "what the transaction knew", 2: text})
    message = "shop.Order" if kind == "PROTOBUF" else None
    guarded = NewerSchemaGuard(registry, frozenset([1]), parse_ddl("id string, n long"), "orders-value", kind, message)
    lookup = pickle.loads(pickle.dumps(guarded))
    assert lookup.schema(1) == registry.schema(1)
    assert lookup.schema(3) is None
    if problem is None:
        assert lookup.schema(2) == registry.schema(2), (
            "one that nothing can be read with is the converter's matter, too"
        )
        return
    with pytest.raises(SchemaOutdated) as raised:
        lookup.schema(2)
    (change,) = raised.value.changes
    assert problem in change


AVRO_GOOD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]})
REFUSED: Mapping[SchemaKind, tuple[str, str, bytes]] = {
    # Two fields with one JSON name, which some registries take.
    "PROTOBUF": (
        PROTO % "message Ev { string id = 1; }",
        PROTO % "message Ev { string id = 1; string userId = 2; string user_id = 3; }",
        b"\x00\x0a\x01",
    ),
    "AVRO": (AVRO_GOOD, AVRO_GOOD.replace('"string"', '"strange"'), b"\x02"),
    "JSON": (
        '{"type": "object", "properties": {"id": {"type": "string"}}}',
        '{"connect.type": 7, "type": "object"}',
        b"",
    ),
}
"""By kind: a schema, one of the same records that cannot be compiled, and what is before the id in a record."""
PROTOBUF: dict[str, Any] = {"source__format": "protobuf", "source__protobuf": {"message": "shop.Ev"}}
DECLARED: dict[str, Any] = {"table__schema": "id string"}


def registered(kind: SchemaKind, *texts: str) -> dict[str, object]:
    path = "/subjects/orders-value/versions"
    versions = {
        f"{path}/{at}": {"subject": "orders-value", "version": at, "id": at, "schema": text, "schemaType": kind}
        for at, text in enumerate(texts, 1)
    }
    return {path: [*range(1, len(texts) + 1)], **versions, f"{path}/latest": versions[f"{path}/{len(texts)}"]}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("PROTOBUF", PROTOBUF | DECLARED),
        ("PROTOBUF", {"source__format": "protobuf"} | DECLARED),
        ("PROTOBUF", PROTOBUF),
        ("PROTOBUF", {"source__format": "protobuf"}),
        ("AVRO", {"source__format": "avro"} | DECLARED),
        ("AVRO", {"source__format": "avro"}),
        ("JSON", {"source__format": "json_schema"} | DECLARED),
        ("JSON", {"source__format": "json_schema"}),
    ],
)
def test_a_version_that_cannot_be_compiled_stops_only_its_own_records(
    write: Write, tmp_path: Path, kind: SchemaKind, settings: dict[str, Any]
) -> None:
    good, refused, head = REFUSED[kind]
    with canned_registry(registered(kind, good, refused)) as (url, _):
        common: dict[str, Any] = {
            "table__schema": None,
            "table__partition_by": [],
            "table__base_path": str(tmp_path / "table"),
        }
        pipeline = load(write, **{**common, **settings}, source__schema_registry={"url": url})
        schema = resolve_schema(pipeline, Timeline(pipeline.table.base_path))
        pipeline = pipeline.with_record(parse_spark_json(schema.record))
        lookup = pickle.loads(pickle.dumps(converter_of(pipeline, schema)))
        values = [
            b"\0\0\0\0" + bytes([schema_id]) + (head + b"a" if head else b'{"id": "a"}') for schema_id in (1, 2, 1)
        ]
        decoded = lookup.decode(pa.array(values, pa.binary()))
    assert decoded.rows.column("id").to_pylist() == ["a", "a"]
    (bad,) = decoded.rejected
    assert (bad.index, bad.expected) == (1, "a schema that records can be read with")
    reason = {
        "PROTOBUF": 'protoc refuses the schema: 1:88: The default JSON name of field "user_id"',
        "AVRO": "its schema is not Avro",
        "JSON": "it is no schema of Kafka Connect",
    }[kind]
    assert bad.found.startswith(reason)
    if "table__schema" in settings:
        return
    assert ddl(parse_spark_json(schema.record)) == ("id string NOT NULL" if kind == "AVRO" else "id string")
    assert schema.origin == "version 1 of orders-value (schema id 1)"
    (warning,) = schema.warnings
    start = "version 2 of orders-value (schema id 2) is passed over, and its records are bad: "
    assert warning.startswith(f"{start}{reason}")


def test_a_subject_of_only_such_versions_has_no_columns_but_records_of_other_subjects_are_read(
    write: Write, tmp_path: Path
) -> None:
    good, refused, head = REFUSED["PROTOBUF"]
    other = {"schema": good, "schemaType": "PROTOBUF"}
    with canned_registry({**registered("PROTOBUF", refused), "/schemas/ids/7": other}) as (url, _):
        settings: dict[str, Any] = {
            "table__schema": None,
            "table__partition_by": [],
            "table__base_path": str(tmp_path / "table"),
        }
        pipeline = load(write, **{**settings, **PROTOBUF}, source__schema_registry={"url": url})
        with pytest.raises(SchemaMissing, match="columns of version 1 of orders-value: protoc refuses"):
            resolve_schema(pipeline, Timeline(pipeline.table.base_path))
        declared = load(write, **{**settings, **PROTOBUF, **DECLARED}, source__schema_registry={"url": url})
        decoded = converter_of(declared).decode(pa.array([b"\0\0\0\0\x07" + head + b"a"], pa.binary()))
    assert decoded.rows.to_pylist() == [{"id": "a"}]


def test_older_versions_that_are_no_schemas_say_nothing_of_what_values_meant() -> None:
    known = pa.schema([("id", pa.string())])
    for kind, (good, _, _) in REFUSED.items():
        broken = RegisteredSchema('{"type": "record", "connect.x": 1, "properties": 7, "fields": [{}]}')
        for nonsense in (broken, RegisteredSchema('"connect. no JSON')):
            assert changed_meanings_of(known, [nonsense, RegisteredSchema(good)], kind) == ()
            assert not is_control(nonsense)
