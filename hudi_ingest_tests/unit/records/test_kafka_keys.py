"""The fields of records' own keys, and the guard of a table's key that is made of them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.kafka_keys import KafkaKeys, KeyGuard
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind

pytestmark = pytest.mark.fast

PROTOBUF = 'syntax = "proto3"; message Key { int64 id = 1; string region = 2; }'


def framed(*fields: str, **payload: Any) -> bytes:
    schema = {"type": "struct", "fields": [{"type": "int64", "field": name} for name in fields]}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def compact(*fields: str, **payload: Any) -> bytes:
    return json.dumps(json.loads(framed(*fields, **payload)), separators=(",", ":")).encode()


@dataclass(frozen=True)
class Schemas:
    texts: tuple[str, ...]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return RegisteredSchema(self.texts[schema_id]) if schema_id < len(self.texts) else None


def avro(*fields: str) -> str:
    return json.dumps({"type": "record", "name": "Key", "fields": [{"name": name, "type": "long"} for name in fields]})


def of_id(schema_id: int) -> bytes:
    return struct.pack(">bi", 0, schema_id) + b"\x02"


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (b'{"id": 1}', ("id",)),
        (b' {"region" : "a{}", "id":1} ', ("region", "id")),
        (framed("id", id=1), ("id",)),
        (compact("b", "a", a=1, b=2), ("b", "a")),
        (b'{"schema":null,"payload":{"id":1}}', ("id",)),
        (b'{"payload": {"x": 1}}', ("payload",)),
    ],
)
def test_the_fields_of_a_json_key(key: bytes, fields: tuple[str, ...]) -> None:
    assert KafkaKeys().fields(key) == fields


@pytest.mark.parametrize("key", [b"7", b'"a"', b"Struct{id=1}", b"{}", b"", b"\xff", b"[1]", of_id(0)])
def test_a_key_without_named_fields_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="is no JSON object with fields"):
        KafkaKeys().fields(key)


def test_a_connect_schema_of_a_single_value_has_no_fields() -> None:
    with pytest.raises(ValueError, match="its schema has no fields"):
        KafkaKeys().fields(b'{"schema":{"type":"int64"},"payload":1}')


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", avro("id", "region")),
        ("JSON", '{"type": "object", "properties": {"id": {}, "region": {}}}'),
        ("PROTOBUF", PROTOBUF),
    ],
)
def test_the_fields_of_a_registered_key(kind: SchemaKind, text: str) -> None:
    if kind == "PROTOBUF":
        pytest.importorskip("google.protobuf")
    keys = KafkaKeys({"AVRO": Schemas(()), "JSON": Schemas(()), kind: Schemas((text,))})
    assert keys.fields(of_id(0)) == ("id", "region")
    with pytest.raises(ValueError, match="its schema, id 7, is not in the registry"):
        keys.fields(of_id(7))


USUAL = [b'{"id":1,"region":"a"}', b'{ "id" : 1 , "region" : "q\\"}\xc3\xa4" }\n', framed("id", "region", id=1)]


@pytest.mark.parametrize(
    "other",
    [
        b'{"id":1}',
        b'{"id":1,"region":"a","x":2}',
        b'{"id":1,"regio":"a"}',
        framed("id", id=1),
        compact("id", "region", "x", id=1),
        b"1",
        None,
        b"",
        of_id(0),
    ],
)
def test_the_first_key_with_other_fields_is_found(other: bytes | None) -> None:
    swapped = b'{"region":{"a":[1,2]},"id":null}'
    for registry in (KafkaKeys(), KafkaKeys({"AVRO": Schemas((avro("id"), avro("region", "id")))})):
        usual = [*USUAL, swapped, *([of_id(1)] if registry.schemas else [])]
        assert registry.first_other(pa.array(usual, pa.binary()), ("id", "region")) is None
        keys = pa.array([*usual, other, *usual, other], pa.binary())
        assert registry.first_other(keys, ("id", "region")) == len(usual)
        assert registry.first_other(keys[1:], ("id", "region")) == len(usual) - 1


def test_the_guard_names_the_record_both_keys_and_the_way_round() -> None:
    guard = KeyGuard("shop_orders", "/lake/shop.orders", ("id",))
    batch = pa.record_batch(
        {"key": pa.array([b'{"id":1}', framed("id", "region")], pa.binary()), "offset": pa.array([40, 42], pa.int64())}
    )
    guard.require(TopicPartition("shop.orders", 3), batch[:1])
    with pytest.raises(SchemaRefused) as told:
        guard.require(TopicPartition("shop.orders", 3), batch)
    assert (told.value.topic, told.value.partition, told.value.offset) == ("shop.orders", 3, 42)
    text = str(told.value)
    assert "shop.orders:3:42 has the key (id, region), and the table at /lake/shop.orders has the key (id)" in text
    assert "source.starting_offsets to {shop.orders: {3: 42}}" in text
    assert "hudi-ingest recover shop_orders --new-table" in text
    for key, found in ((None, "has no key,"), (b"7", "has a key whose fields have no names")):
        batch = pa.record_batch({"key": pa.array([key], pa.binary()), "offset": pa.array([1], pa.int64())})
        with pytest.raises(SchemaRefused, match=found):
            guard.require(TopicPartition("shop.orders", 3), batch)
