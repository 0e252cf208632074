"""D2, X1: columns from the schema registry and from a sample: found at begin, the same for all ops, kept by the table."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.exceptions import SchemaMissing, SchemaOutdated, SchemaRefused
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos
from hudi_ingest.records.schema.columns import ddl
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.columns.schema_change import resolve_schema
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.registry import Registry
from hudi_ingest_tests.support.serializers import avro_bytes, json_bytes, protobuf_bytes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KAFKA = "_kafka_topic string NOT NULL, _kafka_partition int NOT NULL, _kafka_offset long NOT NULL"


AVRO_ID = '{"name": "id", "type": "string"}'
COUNT = '{"name": "n", "type": "%s"}'
GONE = '{"name": "gone", "type": ["null", "string"], "default": null}'
QUANTITY = '{"name": "quantity", "type": "int", "default": 7}'
LATER = '{"name": "later", "type": ["null", "string"], "default": null}'
AVRO = [
    f'{{"type": "record", "name": "Order", "fields": [{", ".join(fields)}]}}'
    for fields in (
        (AVRO_ID, COUNT % "int", GONE),
        (AVRO_ID, COUNT % "long", QUANTITY),
        (AVRO_ID, COUNT % "long", QUANTITY, LATER),
    )
]
JSON = [
    json.dumps(
        {"title": "Order", "type": "object", "properties": {"id": {"type": "string"}, **more}, "required": [*more]}
    )
    for more in (
        {"n": {"type": "integer"}, "gone": {"type": ["string", "null"]}},
        {"n": {"type": "number"}, "quantity": {"type": "integer"}},
        {"n": {"type": "number"}, "quantity": {"type": "integer"}, "later": {"type": ["string", "null"]}},
    )
]
PROTO = [
    GetMessageClass(ProtobufSchema(compile_protos("order.proto", {"order.proto": text})).message("shop.Order"))
    for text in (
        f'syntax = "proto3"; package shop; message Order {{ string id = 1; {fields} }}'
        for fields in (
            "int32 n = 2; optional string gone = 3;",
            "int64 n = 2; int32 quantity = 4;",
            "int64 n = 2; int32 quantity = 4; optional string later = 5;",
        )
    )
]


@dataclass(frozen=True)
class Versions:
    """A format, and how a record is written with the first, second or third version of its schema."""

    format: str
    encode: Callable[[Registry, str, int, Mapping[str, Any]], bytes]
    columns: str
    """Of the first version."""
    changes: tuple[str, ...]
    """By the second."""
    default: int | None = None
    """Of `quantity`, in records of the first."""


FORMATS = {
    "avro": Versions(
        "avro",
        lambda r, t, v, record: avro_bytes(r, t, AVRO[v - 1], record),
        "id string, n int, gone string",
        ("column n becomes long; it was int", "column quantity int is added"),
        default=7,
    ),
    "json_schema": Versions(
        "json_schema",
        lambda r, t, v, record: json_bytes(r, t, JSON[v - 1], record),
        "id string, n long, gone string",
        ("column n becomes double; it was long", "column quantity long is added"),
    ),
    "protobuf": Versions(
        "protobuf",
        lambda r, t, v, record: protobuf_bytes(r, t, PROTO[v - 1](**record)),
        "id string, n int, gone string",
        ("column n becomes long; it was int", "column quantity int is added"),
    ),
}
each_format = pytest.mark.parametrize("of", FORMATS.values(), ids=FORMATS)


def registered_pipeline(ground: Ground, registry: Registry, format: str) -> Pipeline:
    return make_pipeline(
        ground,
        source={"format": format, "schema_registry": {"url": registry.url}},
        table={"schema": None, "partition_by": []},
    )


def rows(ground: Ground, *columns: str) -> list[tuple[Any, ...]]:
    """All rows by Spark, by the first of the columns."""
    frame = current_session(ground.home).newSession().read.format("hudi").load(ground.base_path)
    return sorted(tuple(row) for row in frame.select(*columns).collect())


@each_format
def test_d2_two_registered_versions_interleave_and_the_table_evolves(
    of: Versions, ground: Ground, topic: str, registry: Registry
) -> None:
    pipeline = registered_pipeline(ground, registry, of.format)
    ground.send(0, [of.encode(registry, topic, 1, {"id": "a", "n": 1, "gone": "g"})])
    receipt = ground.run(pipeline)
    assert receipt.plan.schema_changes == ()
    assert ddl(Timeline(ground.base_path).schema()).startswith(f"{of.columns}, {KAFKA}")

    values = [
        of.encode(registry, topic, 2, {"id": "b", "n": 2**40, "quantity": 3}),
        of.encode(registry, topic, 1, {"id": "c", "n": 3, "gone": "h"}),
        of.encode(registry, topic, 2, {"id": "d", "n": 4, "quantity": 5}),
    ]
    ground.send(0, values)
    ground.send(1, values[1:2])
    receipt = ground.run(pipeline)
    assert receipt.plan.schema_changes == of.changes
    expected = [
        ("a", 1, "g", None),
        ("b", 2**40, None, 3),
        ("c", 3, "h", of.default),
        ("c", 3, "h", of.default),
        ("d", 4, None, 5),
    ]
    names = ["id", "n", "gone", "quantity"]
    assert rows(ground, *names) == expected
    by_hudi_rs = ground.rows().select(names).to_pylist()
    assert sorted((tuple(each.values()) for each in by_hudi_rs), key=lambda each: str(each[0])) == expected
    # A producer that is behind writes the old version on, whose column the newest version does not have.
    ground.send(0, [of.encode(registry, topic, 1, {"id": "e", "n": 5, "gone": "i"})])
    assert ground.run(pipeline).plan.schema_changes == ()
    assert rows(ground, "id", "gone", "quantity")[-1] == ("e", "i", of.default)


def test_d2_aliases_are_followed_and_a_default_that_does_not_fit_stops_nothing(
    ground: Ground, topic: str, registry: Registry
) -> None:
    customer = '{"name": "customer", "type": "string", "aliases": ["cust"]}'
    day = '{"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 2147483647}'
    old, new = (
        f'{{"type": "record", "name": "Order", "fields": [{AVRO_ID}, {fields}]}}'
        for fields in ('{"name": "cust", "type": "string"}', f"{customer}, {day}")
    )
    of_old = avro_bytes(registry, topic, old, {"id": "a", "cust": "Ann"})
    with SchemaRegistryClient({"url": registry.url}) as client:
        newest = client.register_schema(f"{topic}-value", Schema(new, "AVRO"))
    pipeline = registered_pipeline(ground, registry, "avro").model_copy(update={"on_bad_record": "skip"})
    ground.send(0, [of_old, struct.pack(">BI", 0, newest) + b"\x02b\x06Bob\x02"])
    receipt = ground.run(pipeline)
    assert rows(ground, "id", "customer", "day") == [("b", "Bob", date(1970, 1, 2))], (
        "the old record would need the default"
    )
    assert receipt.plan.schema_changes == ()
    whole = new.replace("2147483647", "0")
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.register_schema(f"{topic}-value", Schema(whole, "AVRO"))
    ground.send(0, [of_old])
    ground.run(pipeline)
    assert rows(ground, "id", "customer", "day") == [("a", "Ann", date(1970, 1, 1)), ("b", "Bob", date(1970, 1, 2))]


@each_format
def test_d2_a_version_that_is_newer_than_its_transaction_loses_no_column(
    of: Versions, ground: Ground, topic: str, registry: Registry
) -> None:
    """The ops have the transaction from the orchestrator's storage, and the columns come with it."""
    pipeline = registered_pipeline(ground, registry, of.format)
    ground.send(0, [of.encode(registry, topic, 2, {"id": "a", "n": 1, "quantity": 1})])
    # Known to the registry, and not yet a version of the topic's own subject.
    newer = of.encode(registry, f"{topic}_soon", 3, {"id": "b", "n": 2, "quantity": 2, "later": "l"})
    ground.send(1, [newer])
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    handed_on = OpenTransaction.from_dict(json.loads(json.dumps(opened.to_dict())))
    assert handed_on == opened
    of.encode(registry, topic, 3, {"id": "x", "n": 0, "quantity": 0, "later": None})
    good, bad = handed_on.plan.slices
    assert protocol.write(handed_on, [good])[0].rows == 1, "what was registered since changes nothing for old records"
    with pytest.raises(
        SchemaOutdated, match=r"schema id \d+, .* column later string is added.*next transaction reads"
    ) as raised:
        protocol.write(handed_on, [bad])
    error = raised.value
    assert (error.topic, error.partition, error.offset) == (topic, 1, 0)
    assert error.changes == ("column later string is added",)
    assert str(error).startswith(f"transaction {opened.plan.transaction_id}, {topic}:1[0,1): a record was written with")
    protocol.abort(handed_on, "refused")

    assert ground.run(pipeline).rows == 2
    assert rows(ground, "id", "n", "quantity", "later") == [("a", 1, 1, None), ("b", 2, 2, "l")]


def test_d2_a_registered_schema_that_no_table_can_have_is_refused_with_its_place(
    ground: Ground, topic: str, registry: Registry
) -> None:
    properties = {"id": {"type": "string"}, "what": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}
    text = json.dumps({"title": "Order", "type": "object", "properties": properties})
    ground.send(0, [json_bytes(registry, topic, text, {"id": "a", "what": 1})])
    told = f"version 1 of {topic}-value: column what: found oneOf of 2 schemas.*declare table.schema"
    with pytest.raises(SchemaMissing, match=told):
        ground.run(registered_pipeline(ground, registry, "json_schema"))
    assert ground.ledger.transactions.open_in(ground.base_path) is None


def test_d2_inferred_columns_are_kept_by_the_table(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(
        ground,
        table={"schema": "infer", "partition_by": ["day"]},
        transforms=[{"rename": {"dt": "day"}}, {"drop": ["secret"]}],
    )
    with pytest.raises(SchemaRefused, match="there is no record with a value"):
        resolve_schema(pipeline, Timeline(ground.base_path))
    first = [{"id": "a", "n": 1, "dt": "x", "secret": 1, "never": None}, {"id": "b", "n": 2.5, "dt": "y", "secret": 2}]
    ground.send(0, [None, json.dumps(first[0]).encode()])
    ground.send(1, [json.dumps(first[1]).encode()])
    found = resolve_schema(pipeline, Timeline(ground.base_path))
    assert found.origin == "inferred from the first 2 records"
    assert found.warnings == ("column never is null in the whole sample, and assumed to be string",)
    assert ground.run(pipeline).rows == 2
    names = [name for name in Timeline(ground.base_path).schema().names if not name.startswith("_kafka")]
    assert sorted(names) == ["day", "id", "n", "never"]

    ground.send(0, [json.dumps({"id": "c", "n": 3, "dt": "x", "secret": 3, "new": "is read over"}).encode()])
    assert resolve_schema(pipeline, Timeline(ground.base_path)).origin == "inferred when the table was made"
    ground.run(pipeline)
    assert rows(ground, "id", "n", "never", "day") == [
        ("a", 1.0, None, "x"),
        ("b", 2.5, None, "y"),
        ("c", 3.0, None, "x"),
    ]

    declared = make_pipeline(
        ground,
        table={
            "schema": "id string, n double, dt string, secret long, never string, new string",
            "partition_by": ["day"],
        },
        transforms=[{"rename": {"dt": "day"}}, {"drop": ["secret"]}],
    )
    ground.send(0, [json.dumps({"id": "d", "new": "is there"}).encode()])
    assert ground.run(declared).plan.schema_changes == ("column new string is added",)
    assert rows(ground, "id", "new")[2:] == [("c", None), ("d", "is there")]
