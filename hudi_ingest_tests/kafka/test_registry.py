"""The schema registry's client and the Avro converter, against a real registry and confluent-kafka's own serializer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import SecretStr

from hudi_ingest.config_registry import SchemaRegistry
from hudi_ingest.convert.avro import AvroConverter, ConfluentWireFormat
from hudi_ingest.embedded.processes import LOOPBACK, free_port
from hudi_ingest.exceptions import RegistryRefused, RegistryUnreachable, SchemaMissing
from hudi_ingest.registry import KnownSchemas, RegistryClient, known_schemas, topic_schema
from hudi_ingest_tests.support.registry import Registry, basic, door, running_registry

pytestmark = pytest.mark.kafka

ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "string"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}%s]}"""
FIRST, SECOND = ORDER % "", ORDER % ', {"name": "note", "type": ["null", "string"], "default": null}'


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def config(url: str, **more: Any) -> SchemaRegistry:
    return SchemaRegistry(url=url, **more)


def serialized(registry: Registry, topic: str, text: str, value: Mapping[str, Any], **settings: Any) -> bytes:
    with SchemaRegistryClient({"url": registry.url}) as client:
        serialize = AvroSerializer(client, text, conf=settings)
        content = serialize(dict(value), SerializationContext(topic, MessageField.VALUE))
    assert isinstance(content, bytes)
    return content


def order(identifier: str) -> dict[str, Any]:
    return {"id": identifier, "price": Decimal("12.50"), "at": 1_767_225_600_000}


def values(*content: bytes) -> pa.BinaryArray:
    return pa.array(content, pa.binary())


def test_two_versions_are_read_into_the_latest(registry: Registry, topic: str) -> None:
    first = serialized(registry, topic, FIRST, order("a"))
    second = serialized(registry, topic, SECOND, {**order("b"), "price": Decimal("-1.05"), "note": "n"})
    settings = config(registry.url)
    client = RegistryClient(settings)
    columns = topic_schema(client, settings, topic)
    assert columns == pa.schema(
        [
            pa.field("id", pa.string(), False),
            pa.field("price", pa.decimal128(9, 2), False),
            pa.field("at", pa.timestamp("us", "UTC"), False),
            pa.field("note", pa.string()),
        ]
    )
    assert topic_schema(client, settings, topic, version=1).names == ["id", "price", "at"]
    schemas = known_schemas(client, [settings.subject_of(topic)])
    assert len(schemas) == 2

    converter = AvroConverter(columns, ConfluentWireFormat(KnownSchemas(settings, schemas)))
    found = converter.decode(values(second, first, second))
    assert not found.rejected
    assert found.rows["id"].to_pylist() == ["b", "a", "b"]
    assert found.rows["note"].to_pylist() == ["n", None, "n"]
    assert found.rows["price"].to_pylist() == [Decimal("-1.05"), Decimal("12.50"), Decimal("-1.05")]


@pytest.mark.parametrize(
    ("subject", "strategy"),
    [("record", record_subject_name_strategy), ("topic_record", topic_record_subject_name_strategy)],
)
def test_subjects_that_are_named_by_the_record(registry: Registry, topic: str, subject: Any, strategy: Any) -> None:
    text = f'{{"type": "record", "name": "shop.R{uuid.uuid4().hex}", "fields": [{{"name": "n", "type": "int"}}]}}'
    name = text.split('"')[7]
    value = serialized(registry, topic, text, {"n": 7}, **{"subject.name.strategy": strategy})
    settings = config(registry.url, subject=subject, record=name)
    columns = topic_schema(RegistryClient(settings), settings, topic)
    # Nothing was fetched before: the converter asks by itself.
    found = AvroConverter(columns, ConfluentWireFormat(KnownSchemas(settings))).decode(values(value))
    assert found.rows.to_pylist() == [{"n": 7}]


def test_schemas_that_refer_to_others(registry: Registry, topic: str) -> None:
    money = '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
    line = '{"type": "record", "name": "shop.Line", "fields": [{"name": "price", "type": "shop.Money"}]}'
    text = """{"type": "record", "name": "shop.Bill", "fields": [
        {"name": "lines", "type": {"type": "array", "items": "shop.Line"}}, {"name": "sum", "type": "shop.Money"}]}"""
    subjects = f"{topic}-money", f"{topic}-line", f"{topic}-value"
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.register_schema(subjects[0], Schema(money, "AVRO"))
        to_money = SchemaReference("shop.Money", subjects[0], 1)
        client.register_schema(subjects[1], Schema(line, "AVRO", [to_money]))
        to_line = SchemaReference("shop.Line", subjects[1], 1)
        schema = Schema(text, "AVRO", [to_line, to_money])
        client.register_schema(subjects[2], schema)
        serialize = AvroSerializer(client, schema, conf={"auto.register.schemas": False})
        bill = {"lines": [{"price": {"cents": 5}}], "sum": {"cents": 5}}
        value = serialize(bill, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(value, bytes)
    settings = config(registry.url)
    columns = topic_schema(RegistryClient(settings), settings, topic)
    found = AvroConverter(columns, ConfluentWireFormat(KnownSchemas(settings))).decode(values(value))
    assert found.rows.to_pylist() == [bill]


def test_an_id_that_the_registry_does_not_have(registry: Registry) -> None:
    columns = pa.schema([("id", pa.string())])
    converter = AvroConverter(columns, ConfluentWireFormat(KnownSchemas(config(registry.url))))
    (rejected,) = converter.decode(values(b"\0\x7f\xff\xff\xffabc")).rejected
    assert rejected.found == f"schema id {0x7FFFFFFF}, which it does not have"


def test_a_subject_that_is_not_there(registry: Registry, topic: str) -> None:
    settings = config(registry.url)
    client = RegistryClient(settings)
    with pytest.raises(SchemaMissing, match=f"{topic}-value"):
        topic_schema(client, settings, topic)
    assert known_schemas(client, [f"{topic}-value"]) == {}


def test_a_registry_that_is_down() -> None:
    settings = config(f"http://{LOOPBACK}:{free_port()}", timeout_seconds=5)
    with pytest.raises(RegistryUnreachable, match=r"url of source\.schema_registry"):
        RegistryClient(settings).latest("orders-value")
    converter = AvroConverter(pa.schema([("id", pa.string())]), ConfluentWireFormat(KnownSchemas(settings)))
    with pytest.raises(RegistryUnreachable):
        converter.decode(values(b"\0\0\0\0\x01abc"))


def test_an_address_where_something_else_answers(registry: Registry) -> None:
    with pytest.raises((RegistryUnreachable, SchemaMissing), match=r"source\.schema_registry"):
        RegistryClient(config(f"http://{LOOPBACK}:{registry.port}/nothing")).latest("orders-value")


def test_basic_authentication_and_a_token(registry: Registry, topic: str) -> None:
    value = serialized(
        registry, topic, '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}', {"n": 1}
    )
    password = "Zebra:9 hunter2"
    columns = pa.schema([("n", pa.int32())])
    with door(registry, basic("ingest", password)) as url:
        right = config(url, username="ingest", password=SecretStr(password))
        found = AvroConverter(columns, ConfluentWireFormat(KnownSchemas(right))).decode(values(value))
        assert found.rows.to_pylist() == [{"n": 1}]
        for wrong in (config(url), config(url, username="ingest", password=SecretStr("other"))):
            with pytest.raises(RegistryRefused, match="refused the login") as problem:
                RegistryClient(wrong).latest(f"{topic}-value")
            assert "other" not in str(problem.value)
    with door(registry, "Bearer hunter3") as url:
        assert RegistryClient(config(url, token=SecretStr("hunter3"))).latest(f"{topic}-value").version == 1
