"""K3, D3, R11: records of every format, from the real broker and registry into the table, and bad ones by name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.exceptions import BadRecord, RegistryUnreachable
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.registry import Registry, canned_registry, door
from hudi_ingest_tests.support.serializers import json_bytes, protobuf_bytes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JSON_SCHEMA = '{"title": "Item", "type": "object", "properties": {"id": {"type": "string"}}}'
PROTO = 'syntax = "proto3"; package shop; message Item { string id = 1; optional int64 n = 2; }'
Item: Any = GetMessageClass(ProtobufSchema(compile_protos("item.proto", {"item.proto": PROTO})).message("shop.Item"))

Record = Mapping[str, Any]
Encode = Callable[[Registry, str, Record], bytes]


CASES: dict[str, Encode] = {
    "json": lambda registry, topic, record: json.dumps(record).encode(),
    "protobuf": lambda registry, topic, record: protobuf_bytes(registry, topic, Item(**record)),
}


@pytest.mark.parametrize("format", CASES)
def test_records_become_rows_and_a_bad_one_is_named(
    format: str, ground: Ground, topic: str, registry: Registry
) -> None:
    """With a registry and without; test_format_evolution.py has all formats here, and a unit test bad records of each."""
    encode = partial(CASES[format], registry, topic)
    settings = {} if format == "json" else {"schema_registry": {"url": registry.url}}
    table = {"schema": "id string NOT NULL, n long NOT NULL", "partition_by": []}
    pipeline = make_pipeline(ground, source={"format": format, **settings}, table=table)
    records = [{"id": f"ü{number}", "n": number} for number in range(20)]
    ground.send(0, map(encode, records))
    ground.run(pipeline)
    rows = sorted(ground.rows().select(["id", "n"]).to_pylist(), key=lambda each: int(each["n"]))
    assert rows == records
    ground.send(0, map(encode, (records[0], {"id": "bad", "n": None}, records[1])))
    with pytest.raises(BadRecord, match=f"{topic}:0:21 field n: expected "):
        ground.run(pipeline)
    assert ground.rows().num_rows == 20


def test_whole_values_and_keys_become_columns(ground: Ground, topic: str) -> None:
    key = {"format": "json", "schema": "customer long NOT NULL, region string"}
    pipeline = make_pipeline(
        ground,
        source={"format": "string", "key": key},
        table={"schema": "line string NOT NULL", "partition_by": ["region"]},
    )

    def send(*records: tuple[bytes | None, bytes | None]) -> None:
        producer: Producer = ground.producer
        for key_bytes, value in records:
            producer.produce(topic, value, key=key_bytes, partition=0)
        assert producer.flush(300) == 0

    send((b'{"customer":1,"region":"eu"}', b"one"), (b'{"customer":2}', b""), (b"tombstone", None))
    ground.run(pipeline)
    rows = ground.rows().select(["line", "customer", "region", "_kafka_offset"]).to_pylist()
    assert sorted(rows, key=lambda each: int(each["customer"])) == [
        {"line": "one", "customer": 1, "region": "eu", "_kafka_offset": 0},
        {"line": "", "customer": 2, "region": None, "_kafka_offset": 1},
    ]
    send((b'{"customer":"x"}', b"good"), (b'{"customer":3}', b"\xff"), (None, b"good"))
    with pytest.raises(BadRecord) as raised:
        ground.run(pipeline)
    told = str(raised.value)
    assert f'{topic}:0:3 field key.customer: expected int (64 bit), found "x"' in told
    assert f"{topic}:0:4 field line: expected string in UTF-8" in told
    assert f"{topic}:0:5 field key.customer: expected a value, because it is NOT NULL, found no key" in told


def test_bytes_are_kept(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, source={"format": "bytes"}, table={"schema": "raw binary", "partition_by": []})
    ground.send(0, [b"\xff\0", b""])
    ground.run(pipeline)
    assert sorted(ground.rows()["raw"].to_pylist()) == [b"", b"\xff\0"]


def test_p5_a_registry_that_does_not_answer_a_worker_is_worth_another_attempt(
    ground: Ground, topic: str, registry: Registry
) -> None:
    other_topics = json_bytes(registry, f"{topic}-other", JSON_SCHEMA, {"id": "a"})
    ground.send(0, [other_topics])
    with door(registry, None, closed="/schemas/ids/") as url:
        source = {"format": "json_schema", "schema_registry": {"url": url, "timeout_seconds": 60}}
        pipeline = make_pipeline(ground, source=source, table={"schema": "id string", "partition_by": []})
        with pytest.raises(RegistryUnreachable, match=r"HTTP 503.* Nothing of it is visible\.$"):
            ground.run(pipeline)
    source["schema_registry"] = {"url": registry.url}
    ground.run(make_pipeline(ground, source=source, table={"schema": "id string", "partition_by": []}))
    assert ground.rows()["id"].to_pylist() == ["a"]


@pytest.mark.tier(1)
def test_k3_schemas_in_headers_and_one_type_of_a_topic_that_has_two(ground: Ground, topic: str) -> None:
    """By GUID, from a registry that is not asked for what a header does not name."""
    guids = {name: str(uuid.uuid4()) for name in ("Order", "Refund")}
    fields = [{"name": "id", "type": "string"}]
    answers = {
        f"/schemas/guids/{guid}": {"schema": json.dumps({"type": "record", "name": name, "fields": fields})}
        for name, guid in guids.items()
    }
    for number, name in enumerate(("Order", "Refund", "Order")):
        header = b"\x01" + uuid.UUID(guids[name]).bytes
        value = bytes([2]) + str(number).encode()
        ground.producer.produce(topic, value, partition=0, headers={"__value_schema_id": header})
    assert ground.producer.flush(300) == 0
    with canned_registry(answers) as (url, _):
        settings = {"subject": "record", "record": "Order", "other_records": "filter", "schema_ids": "headers"}
        source = {"format": "avro", "schema_registry": {"url": url, **settings}}
        table = {"schema": "id string", "partition_by": []}
        receipt = ground.run(make_pipeline(ground, source=source, table=table))
    assert sorted(ground.rows()["id"].to_pylist()) == ["0", "2"]
    assert sum(report.filtered for report in receipt.reports) == 1
