"""Schemas named in headers, in the form of Confluent's own serializers, and records of several types in one topic."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.exceptions import SchemaOutdated
from hudi_ingest.kafka import registry as registry_module
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos
from hudi_ingest.records.convert.wire_format import guid_of, with_schema_ids
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.routing import has_type
from hudi_ingest.records.row_maker import BatchOutcome
from hudi_ingest.records.schema.columns import spark_json
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind
from hudi_ingest.records.times import KAFKA_TIME
from hudi_ingest.transaction.columns.decoding import NewerSchemaGuard, row_maker_of
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.registry import canned_registry

GUID, OTHER_GUID = "b1946ac9-2492-4d23-8f45-3a5f4e1c7a10", "591785b7-9c0d-4b1e-8a55-0f2a3c4d5e6f"
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "string"}]}
REFUND = {**ORDER, "name": "Refund"}
PROTO = 'syntax = "proto3"; package shop; message Other { int64 n = 1; } message Order { string id = 1; }'
JSON = {"title": "shop.Order", "type": "object", "properties": {"id": {"type": "string"}}}
Headers = Sequence[tuple[str, bytes]] | None


def header(kind: SchemaKind, guid: str, indexes: list[int] | None = None, field: str = MessageField.VALUE) -> Headers:
    """By Confluent's own serializer."""
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("orders", field, headers)
    assert header_schema_id_serializer(b"x", context, SchemaId(kind, 7, guid, indexes)) == b"x"
    return headers


def avro_text(text: str) -> bytes:
    return bytes([2 * len(text)]) + text.encode()


def batch_of(*records: tuple[bytes | None, Headers]) -> pa.RecordBatch:
    headers = [None if of is None else [{"key": key, "value": value} for key, value in of] for _, of in records]
    columns = {
        "offset": pa.array(range(len(records)), pa.int64()),
        "timestamp": pa.array([0] * len(records), KAFKA_TIME),
        "value": pa.array([value for value, _ in records], pa.binary()),
        "headers": pa.array(headers, KAFKA_FIELDS["headers"].type),
    }
    return pa.RecordBatch.from_pydict(columns)


def made(url: str, tmp_path: Path, format: str, *records: tuple[bytes | None, Headers], **more: Any) -> BatchOutcome:
    source: dict[str, Any] = {"source__format": format}
    if format == "protobuf":
        source["source__protobuf"] = {"message": "shop.Order"}
    settings = document(table__schema="id string", **source)
    settings["source"]["schema_registry"] = {"url": url, **more}
    pipeline = Pipeline.model_validate(settings)
    columns = pipeline.table_schema
    schema = TransactionSchema("declared", spark_json(columns.record), columns.spark_json)

    maker = pickle.loads(pickle.dumps(row_maker_of(pipeline, schema, datetime.now(timezone.utc))))
    outcome: BatchOutcome = maker.make(TopicPartition("orders", 0), batch_of(*records))
    return outcome


def answers(kind: SchemaKind, by: Mapping[str, object]) -> dict[str, object]:
    """A registry that has these schemas by `ids/N` or `guids/GUID`."""
    return {
        f"/schemas/{place}": {"schema": text if isinstance(text, str) else json.dumps(text), "schemaType": kind}
        for place, text in by.items()
    }


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_fetched", {})


def proto_bytes() -> bytes:
    compiled = compile_protos("order.proto", {"order.proto": PROTO})
    content: bytes = GetMessageClass(ProtobufSchema(compiled).message("shop.Order"))(id="a").SerializeToString()
    return content


@pytest.mark.parametrize("format", ["avro", "json_schema", "protobuf"])
def test_a_schema_named_by_guid_in_a_header_is_read_as_one_before_the_value(format: str, tmp_path: Path) -> None:
    kind, text, payload, indexes = {
        "avro": ("AVRO", ORDER, avro_text("a"), None),
        "json_schema": ("JSON", JSON, b'{"id": "a"}', None),
        "protobuf": ("PROTOBUF", PROTO, proto_bytes(), [1]),
    }[format]
    named = header(kind, GUID, indexes)  # type: ignore[arg-type]
    before = b"\x00\x00\x00\x00\x07" + (b"\x02\x02" if indexes else b"") + payload
    with canned_registry(answers(kind, {"ids/7": text, f"guids/{GUID}": text})) as (url, asked):  # type: ignore[arg-type]
        outcome = made(
            url,
            tmp_path,
            format,
            (payload, named),
            (before, None),
            (payload, [("trace", b"1"), *(named or ())]),
            (None, named),
            (payload, header(kind, OTHER_GUID, indexes)),  # type: ignore[arg-type]
            schema_ids="headers",
        )
        assert asked.count(f"/schemas/guids/{GUID}") == 1
    assert outcome.rows["id"].to_pylist() == ["a"] * 3
    assert outcome.skipped == 1
    (bad,) = outcome.bad
    assert (bad.index, bad.found) == (4, f"schema GUID {OTHER_GUID}, which it does not have")


def test_without_the_setting_headers_are_not_read(tmp_path: Path) -> None:
    with canned_registry(answers("AVRO", {f"guids/{GUID}": ORDER})) as (url, asked):
        outcome = made(url, tmp_path, "avro", (avro_text("a"), header("AVRO", GUID)))
    assert len(outcome.bad) == 1
    assert not any("guids" in path for path in asked)


def test_keys_have_a_header_of_their_own_and_a_broken_one_names_no_schema() -> None:
    batch = batch_of(
        (b"v", header("AVRO", GUID, field=MessageField.KEY)),
        (b"v", [("__value_schema_id", b"\x01short")]),
        (b"v", [("__value_schema_id", b"\x00\x00\x00\x00\x09")]),
        (b"v", []),
    )
    batch = batch.append_column("key", pa.array([b"k", None, b"k", b"k"], pa.binary()))
    framed = with_schema_ids(batch.slice(0))
    number = int.from_bytes(framed["key"][0].as_py()[1:5], "big")
    assert guid_of(number) == uuid.UUID(GUID)
    assert framed["key"].to_pylist()[1:] == [None, b"k", b"k"]
    assert framed["value"].to_pylist() == [b"v", b"\xffv", b"\x00\x00\x00\x00\x09v", b"v"]
    assert with_schema_ids(batch.slice(2)) == framed.slice(2)


def test_d2_a_schema_that_the_transaction_knows_by_id_is_known_by_guid_too() -> None:
    first, newer = RegisteredSchema(json.dumps(ORDER)), RegisteredSchema(json.dumps({**ORDER, "doc": "newer"}))

    class Lookup:
        def schema(self, schema_id: int) -> RegisteredSchema | None:
            return {2**31: first, 2**31 + 1: newer}.get(schema_id)

    guard = NewerSchemaGuard(Lookup(), frozenset([1]), parse_ddl("n long"), "s", resolved_schemas=frozenset([first]))
    assert guard.schema(2**31) == first
    with pytest.raises(SchemaOutdated):
        guard.schema(2**31 + 1)


@pytest.mark.parametrize(("policy", "filtered", "rows"), [("filter", 2, 1), ("refuse", 0, 3)])
def test_records_of_other_types_are_filtered_where_the_pipeline_says_so(
    policy: str, filtered: int, rows: int, tmp_path: Path
) -> None:
    order, refund = (b"\x00\x00\x00\x00" + number + avro_text("a") for number in (b"\x01", b"\x02"))
    unknown = b"\x00\x00\x00\x00\x03" + avro_text("a")
    with canned_registry(answers("AVRO", {"ids/1": ORDER, "ids/2": REFUND})) as (url, _):
        outcome = made(
            url,
            tmp_path,
            "avro",
            (refund, None),
            (order, None),
            (unknown, None),
            (None, None),
            (refund, None),
            subject="topic_record",
            record="shop.Order",
            other_records=policy,
        )
    assert (outcome.filtered, outcome.rows.num_rows, outcome.skipped) == (filtered, rows, 1)
    assert [refusal.index for refusal in outcome.bad] == [2], "what has no schema is never filtered"
    assert outcome.kept is not None
    if policy == "filter":
        assert outcome.kept.to_pylist() == [1]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("AVRO", ORDER, True),
        ("AVRO", {**ORDER, "name": "shop.Order", "namespace": "x"}, True),
        ("AVRO", REFUND, False),
        ("AVRO", ["null", "string"], True),
        ("JSON", JSON, True),
        ("JSON", {**JSON, "title": "shop.Refund"}, False),
        ("JSON", {"type": "object"}, True),
        ("PROTOBUF", PROTO, True),
        ("PROTOBUF", 'syntax = "proto3"; package shop; message Refund { string id = 1; }', False),
        ("PROTOBUF", "message {", True),
    ],
)
def test_the_name_in_a_schema(kind: SchemaKind, text: object, expected: bool) -> None:
    schema = RegisteredSchema(text if isinstance(text, str) else json.dumps(text))
    assert has_type(schema, kind, "shop.Order") is expected
