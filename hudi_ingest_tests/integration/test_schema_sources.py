"""D2, X1: columns from the schema registry and from a sample: found at begin, the same for all ops, kept by the table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from hudi_ingest.config import Pipeline
from hudi_ingest.exceptions import SchemaOutdated, SchemaRefused
from hudi_ingest.hudi.timeline import Timeline
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model import OpenTransaction
from hudi_ingest.schema import ddl
from hudi_ingest.schema_source import resolve_schema
from hudi_ingest.spark import current_session
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.registry import Registry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KAFKA = "_kafka_topic string NOT NULL, _kafka_partition int NOT NULL, _kafka_offset long NOT NULL"


def avro(*fields: str) -> str:
    return f'{{"type": "record", "name": "Order", "fields": [{", ".join(fields)}]}}'


ID = '{"name": "id", "type": "string"}'
COUNT = '{"name": "n", "type": "%s"}'
GONE = '{"name": "gone", "type": ["null", "string"], "default": null}'
QUANTITY = '{"name": "quantity", "type": "int", "default": 7}'
LATER = '{"name": "later", "type": ["null", "string"], "default": null}'
FIRST = avro(ID, COUNT % "int", GONE)
SECOND = avro(ID, COUNT % "long", QUANTITY)
THIRD = avro(ID, COUNT % "long", QUANTITY, LATER)


def serialized(registry: Registry, topic: str, text: str, value: dict[str, Any]) -> bytes:
    with SchemaRegistryClient({"url": registry.url}) as client:
        content = AvroSerializer(client, text)(value, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(content, bytes)
    return content


def avro_pipeline(ground: Ground, registry: Registry) -> Pipeline:
    return make_pipeline(
        ground,
        source={"format": "avro", "schema_registry": {"url": registry.url}},
        table={"schema": None, "partition_by": []},
    )


def rows(ground: Ground, *columns: str) -> list[tuple[Any, ...]]:
    """All rows by Spark, by the first of the columns."""
    frame = current_session(ground.home).newSession().read.format("hudi").load(ground.base_path)
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_d2_two_registered_versions_interleave_and_the_table_evolves(
    ground: Ground, topic: str, registry: Registry
) -> None:
    pipeline = avro_pipeline(ground, registry)
    ground.send(0, [serialized(registry, topic, FIRST, {"id": "a", "n": 1, "gone": "g"})])
    receipt = ground.run(pipeline)
    assert receipt.plan.schema_changes == ()
    assert ddl(Timeline(ground.base_path).schema()).startswith(f"id string, n int, gone string, {KAFKA}")

    values = [
        serialized(registry, topic, SECOND, {"id": "b", "n": 2**40, "quantity": 3}),
        serialized(registry, topic, FIRST, {"id": "c", "n": 3, "gone": "h"}),
        serialized(registry, topic, SECOND, {"id": "d", "n": 4, "quantity": 5}),
    ]
    ground.send(0, values)
    ground.send(1, values[1:2])
    receipt = ground.run(pipeline)
    assert receipt.plan.schema_changes == ("column n becomes long; it was int", "column quantity int is added")
    assert rows(ground, "id", "n", "gone", "quantity") == [
        ("a", 1, "g", None),
        ("b", 2**40, None, 3),
        ("c", 3, "h", 7),
        ("c", 3, "h", 7),
        ("d", 4, None, 5),
    ]
    # A producer that is behind writes the old version on, whose column the newest version does not have.
    ground.send(0, [serialized(registry, topic, FIRST, {"id": "e", "n": 5, "gone": "i"})])
    assert ground.run(pipeline).plan.schema_changes == ()
    assert rows(ground, "id", "gone", "quantity")[-1] == ("e", "i", 7)


def test_d2_a_version_that_is_newer_than_its_transaction_loses_no_column(
    ground: Ground, topic: str, registry: Registry
) -> None:
    """The ops have the transaction from the orchestrator's storage, and the columns come with it."""
    pipeline = avro_pipeline(ground, registry)
    ground.send(0, [serialized(registry, topic, SECOND, {"id": "a", "n": 1, "quantity": 1})])
    # Known to the registry, and not yet a version of the topic's own subject.
    newer = serialized(registry, f"{topic}_soon", THIRD, {"id": "b", "n": 2, "quantity": 2, "later": "l"})
    ground.send(1, [newer])
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    handed_on = OpenTransaction.from_dict(json.loads(json.dumps(opened.to_dict())))
    assert handed_on == opened
    serialized(registry, topic, THIRD, {"id": "x", "n": 0, "quantity": 0, "later": None})
    good, bad = handed_on.plan.slices
    assert protocol.write(handed_on, [good])[0].rows == 1, "what was registered since changes nothing for old records"
    with pytest.raises(SchemaOutdated, match=r"schema id \d+, .* column later string is added.*next transaction takes"):
        protocol.write(handed_on, [bad])
    protocol.abort(handed_on, "refused")

    assert ground.run(pipeline).rows == 2
    assert rows(ground, "id", "n", "quantity", "later") == [("a", 1, 1, None), ("b", 2, 2, "l")]


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
    assert found.warnings == ("column never is null in the whole sample, and taken for string",)
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
