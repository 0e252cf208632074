"""What a pipeline file may say of formats that need a registry, and of records' keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.transaction.columns.decoding import format_problems, key_converter_of
from hudi_ingest_tests.support.pipeline_files import Write, load, problem, problems

REGISTRY = {"url": "http://registry:8081"}


@pytest.mark.parametrize("format", ["avro", "json_schema", "protobuf"])
def test_a_wire_format_with_schema_ids_needs_a_registry(write: Write, format: str) -> None:
    said = f"source.schema_registry: missing; format {format} in Confluent's wire format needs it"
    assert said in problem(write, source__format=format)
    assert load(write, source__format=format, source__schema_registry=REGISTRY).source.format == format
    key = {"format": format, "schema": "k string"}
    assert said in problem(write, source__key=key)
    assert load(write, source__schema_registry=REGISTRY, source__key=key).source.format == "json"


def test_plain_protobuf_messages_need_file_and_type(write: Write) -> None:
    told = problem(write, source__format="protobuf", source__protobuf={"descriptor_file": "shop.pb"})
    assert "source.protobuf.message: missing; descriptor_file needs the full name of the message type" in told
    right = {"descriptor_file": "shop.pb", "message": "shop.Order"}
    pipeline = load(write, source__format="protobuf", source__protobuf=right)
    assert isinstance(pipeline.source.protobuf.descriptor_file, Path)
    (told,) = format_problems(pipeline)
    assert "shop.pb cannot be read: No such file or directory" in told


def test_a_keys_columns_stand_behind_the_values(write: Write) -> None:
    pipeline = load(
        write,
        source__key={"schema": "customer string"},
        table__partition_by=["customer"],
        transforms=[{"rename": {"id": "order_id"}}],
    )
    assert pipeline.table_schema.record.names == ["id", "dt", "n", "amount", "customer"]
    assert pipeline.chain.output.names == ["order_id", "dt", "n", "amount", "customer"]
    assert pipeline.table_schema.columns.names[:5] == ["order_id", "dt", "n", "amount", "customer"]
    assert load(write, source__key={"schema": "customer string"}, table__partition_by=["customer"])
    assert key_converter_of(load(write)) is None
    assert format_problems(pipeline) == ()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (
            {"schema": "ID string"},
            "source.key.schema: together with table.schema, column ID: differs from id only in case",
        ),
        ({"schema": "id string"}, "source.key.schema: together with table.schema, column id: is declared twice"),
        ({"schema": "a strin"}, "source.key.schema: "),
        ({}, "source.key.schema: "),
        ({"schema": "a string", "format": "strng"}, "source.key.format: found 'strng'; allowed: json, "),
        ({"schema": "_kafka_a string"}, "source.key.schema: "),
    ],
)
def test_what_a_key_cannot_be(write: Write, key: dict[str, Any], told: str) -> None:
    assert told in problems(write, source__key=key)[0]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ({"schema": "a string, b string"}, "source.key.format string: format string: the schema must be one column"),
        ({"schema": "a array<int>", "format": "csv"}, "source.key.format csv: "),
        ({"schema": "a string", "format": "no_such.module:K"}, "importing no_such.module failed"),
    ],
)
def test_validate_tells_what_a_keys_format_cannot_give(write: Write, key: dict[str, Any], told: str) -> None:
    (found,) = format_problems(load(write, source__key=key), import_user_code=True)
    assert told in found


def test_rows_are_other_ones_when_the_key_is_read_otherwise(write: Write, tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text('{"type": "record", "name": "K", "fields": []}')
    avro = {"format": "avro", "schema": "k string", "avro": {"wire_format": "datum", "schema_files": ["a.avsc"]}}
    keys = [None, {"schema": "k string"}, {"schema": "k string", "format": "json"}, avro]
    assert len({load(write, source__key=key).rows_digest for key in keys}) == len(keys)
