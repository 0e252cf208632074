"""What a pipeline's converter is made of, and records of schemas that are newer than their transaction."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from hudi_ingest.exceptions import SchemaOutdated
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind
from hudi_ingest.transaction.columns.decoding import NewerSchemaGuard


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
        ("PROTOBUF", PROTO % "message Order {", "a table cannot have its columns: protoc refuses"),
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
        assert lookup.schema(2) == registry.schema(2)
        return
    with pytest.raises(SchemaOutdated) as raised:
        lookup.schema(2)
    (change,) = raised.value.changes
    assert problem in change
