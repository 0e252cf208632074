"""D2, K3: records of every format change their shape, and the table and both readers follow."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.exceptions import BadRecord
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos
from hudi_ingest.records.schema.avro import crc_64
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.registry import Registry
from hudi_ingest_tests.support.serializers import avro_bytes, json_bytes, protobuf_bytes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Record = Mapping[str, Any]
Encode = Callable[[Registry, str, Record], bytes]

OLD_AVSC, NEW_AVSC = (
    f'{{"type": "record", "name": "Item", "fields": [{{"name": "id", "type": "string"}}, {more}]}}'
    for more in (
        '{"name": "n", "type": "int"}',
        '{"name": "n", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}',
    )
)
OLD_JSON, NEW_JSON = (
    json.dumps({"title": "Item", "type": "object", "properties": {"id": {"type": "string"}, **more}})
    for more in ({"n": {"type": "integer"}}, {"n": {"type": "integer"}, "note": {"type": ["string", "null"]}})
)
OLD_PROTO, NEW_PROTO = (
    compile_protos(
        "item.proto", {"item.proto": f'syntax = "proto3"; package shop; message Item {{ string id = 1; {more} }}'}
    )
    for more in ("int32 n = 2;", "int64 n = 2; optional string note = 3;")
)
OldItem, NewItem = (
    GetMessageClass(ProtobufSchema(descriptors).message("shop.Item")) for descriptors in (OLD_PROTO, NEW_PROTO)
)


def datum(text: str, record: Record) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(json.loads(text)), record)
    return target.getvalue()


def single_object(text: str, record: Record) -> bytes:
    return b"\xc3\x01" + crc_64(text) + datum(text, record)


@dataclass(frozen=True)
class Shape:
    """How producers write records, and what the pipeline says of it."""

    encode: Encode
    schema: str | None
    source: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    format: str
    old: Shape
    new: Shape
    registry: bool = False
    mixed: bool = True
    """Whether a pipeline that knows the new shape reads records of the old one."""


OLD_COLUMNS, NEW_COLUMNS = "id string NOT NULL, n int", "id string NOT NULL, n long, note string"


def avro_files(wire_format: str, *names: str) -> Mapping[str, Any]:
    return {"avro": {"wire_format": wire_format, "schema_files": [*names]}}


PROTOBUF_FILE = {"protobuf": {"descriptor_file": "item.pb", "message": "shop.Item"}}
CASES = {
    "json": Case(
        "json",
        Shape(lambda r, t, v: json.dumps(v).encode(), OLD_COLUMNS),
        Shape(lambda r, t, v: json.dumps(v).encode(), NEW_COLUMNS),
    ),
    "json_schema": Case(
        "json_schema",
        Shape(lambda r, t, v: json_bytes(r, t, OLD_JSON, v), OLD_COLUMNS),
        Shape(lambda r, t, v: json_bytes(r, t, NEW_JSON, v), NEW_COLUMNS),
        registry=True,
    ),
    "avro confluent": Case(
        "avro",
        Shape(lambda r, t, v: avro_bytes(r, t, OLD_AVSC, v), OLD_COLUMNS),
        Shape(lambda r, t, v: avro_bytes(r, t, NEW_AVSC, v), NEW_COLUMNS),
        registry=True,
    ),
    "avro datum": Case(
        "avro",
        Shape(
            lambda r, t, v: datum(OLD_AVSC, v), None, avro_files("datum", "item.avsc"), {"item.avsc": OLD_AVSC.encode()}
        ),
        Shape(
            lambda r, t, v: datum(NEW_AVSC, v), None, avro_files("datum", "item.avsc"), {"item.avsc": NEW_AVSC.encode()}
        ),
        mixed=False,
    ),
    "avro single_object": Case(
        "avro",
        Shape(
            lambda r, t, v: single_object(OLD_AVSC, v),
            None,
            avro_files("single_object", "item.avsc"),
            {"item.avsc": OLD_AVSC.encode()},
        ),
        Shape(
            lambda r, t, v: single_object(NEW_AVSC, v),
            None,
            avro_files("single_object", "item.avsc", "older.avsc"),
            {"item.avsc": NEW_AVSC.encode(), "older.avsc": OLD_AVSC.encode()},
        ),
    ),
    "protobuf file": Case(
        "protobuf",
        Shape(lambda r, t, v: OldItem(**v).SerializeToString(), OLD_COLUMNS, PROTOBUF_FILE, {"item.pb": OLD_PROTO}),
        Shape(lambda r, t, v: NewItem(**v).SerializeToString(), NEW_COLUMNS, PROTOBUF_FILE, {"item.pb": NEW_PROTO}),
    ),
    "protobuf registry": Case(
        "protobuf",
        Shape(lambda r, t, v: protobuf_bytes(r, t, OldItem(**v)), OLD_COLUMNS),
        Shape(lambda r, t, v: protobuf_bytes(r, t, NewItem(**v)), NEW_COLUMNS),
        registry=True,
    ),
    "csv": Case(
        "csv",
        Shape(lambda r, t, v: f"{v['id']},{v['n']}".encode(), OLD_COLUMNS),
        Shape(
            lambda r, t, v: f"{v['id']},{v['n']},{v['note'] or ''}".encode(),
            NEW_COLUMNS,
            {"csv": {"optional_fields": 1}},
        ),
    ),
}
READ_BY_SPARK = ("json", "avro datum")
"""One with declared columns and one with those of a schema file. The others' tables have the same columns in the same files."""


@pytest.mark.parametrize("name", CASES)
def test_d2_records_of_every_format_evolve(name: str, ground: Ground, topic: str, registry: Registry) -> None:
    case = CASES[name]

    def run(shape: Shape) -> tuple[str, ...]:
        ground.home.pipelines.mkdir(parents=True, exist_ok=True)
        for file, content in shape.files.items():
            (ground.home.pipelines / file).write_bytes(content)
        source = {"format": case.format, **shape.source}
        if case.registry:
            source["schema_registry"] = {"url": registry.url}
        table: dict[str, Any] = {"schema": shape.schema, "partition_by": []}
        if shape.schema is None:
            table["schema_file"] = "item.avsc"
        return ground.run(make_pipeline(ground, source=source, table=table)).plan.schema_changes

    def old(identifier: str, n: int) -> bytes:
        return case.old.encode(registry, topic, {"id": identifier, "n": n})

    def new(identifier: str, n: int, note: str | None) -> bytes:
        return case.new.encode(registry, topic, {"id": identifier, "n": n, "note": note})

    ground.send(0, [old("a", 1)])
    assert run(case.old) == ()
    expected: list[tuple[str, int, str | None]] = [("a", 1, None), ("b", 2**40, "x"), ("c", 3, None)]
    values = [new("b", 2**40, "x"), new("c", 3, None)]
    if case.mixed:
        # Producers change one after another, so both shapes interleave for a while.
        values.insert(1, old("d", 4))
        expected.append(("d", 4, None))
    ground.send(0, values)
    assert run(case.new) == ("column n becomes long; it was int", "column note string is added")
    if name in READ_BY_SPARK:
        frame = current_session(ground.home).newSession().read.format("hudi").load(ground.base_path)
        assert sorted(tuple(row) for row in frame.select("id", "n", "note").collect()) == expected
    by_hudi_rs = ground.rows().select(["id", "n", "note"]).to_pylist()
    assert sorted(tuple(each.values()) for each in by_hudi_rs) == expected
    if not case.mixed:
        ground.send(0, [old("late", 5)])
        with pytest.raises(BadRecord, match=f"{topic}:0:3"):
            run(case.new)
