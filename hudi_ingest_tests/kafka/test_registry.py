"""The schema registry's client and the converters behind it, against a real registry and confluent-kafka's serializers."""

from __future__ import annotations

import json
import uuid
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
from confluent_kafka.serialization import MessageField
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.exceptions import ConfigError, RegistryRefused, RegistryUnreachable, SchemaMissing
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.kafka.registry import KnownSchemas, RegistryClient
from hudi_ingest.local.processes import LOOPBACK, free_port
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.records.convert.avro.converter import AvroConverter, ConfluentWireFormat
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos
from hudi_ingest.records.schema.columns import ddl, parse_spark_json
from hudi_ingest.transaction.columns.decoding import converter_of, key_converter_of
from hudi_ingest.transaction.columns.registered_columns import version_columns
from hudi_ingest.transaction.columns.schema_change import resolve_schema
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.registry import Registry, basic, door
from hudi_ingest_tests.support.serializers import avro_bytes, json_bytes, protobuf_bytes
from hudi_ingest_tests.unit.records.convert import test_recorded_avro

pytestmark = pytest.mark.kafka

ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "string"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}%s]}"""
FIRST, SECOND = ORDER % "", ORDER % ', {"name": "note", "type": ["null", "string"], "default": null}'


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def config(url: str, **more: Any) -> SchemaRegistry:
    return SchemaRegistry(url=url, **more)


def order(identifier: str) -> dict[str, Any]:
    return {"id": identifier, "price": Decimal("12.50"), "at": 1_767_225_600_000}


def values(*content: bytes) -> pa.BinaryArray:
    return pa.array(content, pa.binary())


def latest_columns(settings: SchemaRegistry, topic: str) -> pa.Schema:
    return version_columns(settings, RegistryClient(settings).latest(settings.subject_of(topic)), "AVRO")


def test_two_versions_are_read_into_the_latest(registry: Registry, topic: str) -> None:
    first = avro_bytes(registry, topic, FIRST, order("a"))
    second = avro_bytes(registry, topic, SECOND, {**order("b"), "price": Decimal("-1.05"), "note": "n"})
    settings = config(registry.url)
    client = RegistryClient(settings)
    columns = latest_columns(settings, topic)
    assert columns == pa.schema(
        [
            pa.field("id", pa.string(), False),
            pa.field("price", pa.decimal128(9, 2), False),
            pa.field("at", pa.timestamp("us", "UTC"), False),
            pa.field("note", pa.string()),
        ]
    )
    assert version_columns(settings, client.version(f"{topic}-value", 1), "AVRO").names == ["id", "price", "at"]
    schemas = {version.schema_id: version.schema for version in client.versions(settings.subject_of(topic))}
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
    value = avro_bytes(registry, topic, text, {"n": 7}, **{"subject.name.strategy": strategy})
    settings = config(registry.url, subject=subject, record=name)
    columns = latest_columns(settings, topic)
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
    bill = {"lines": [{"price": {"cents": 5}}], "sum": {"cents": 5}}
    registered: dict[str, Any] = {"auto.register.schemas": False}
    value = avro_bytes(registry, topic, schema, bill, **registered)
    settings = config(registry.url)
    columns = latest_columns(settings, topic)
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
    with pytest.raises(SchemaMissing, match=f"{topic}-value") as raised:
        client.latest(f"{topic}-value")
    assert (raised.value.url, raised.value.subject, raised.value.status) == (registry.url, f"{topic}-value", 404)
    assert client.versions(f"{topic}-value") == ()


def test_a_registry_that_is_down() -> None:
    settings = config(f"http://{LOOPBACK}:{free_port()}", timeout_seconds=60)
    with pytest.raises(RegistryUnreachable, match=r"url of source\.schema_registry"):
        RegistryClient(settings).latest("orders-value")
    converter = AvroConverter(pa.schema([("id", pa.string())]), ConfluentWireFormat(KnownSchemas(settings)))
    with pytest.raises(RegistryUnreachable):
        converter.decode(values(b"\0\0\0\0\x01abc"))


def test_an_address_where_something_else_answers(registry: Registry) -> None:
    with pytest.raises((RegistryUnreachable, SchemaMissing), match=r"source\.schema_registry"):
        RegistryClient(config(f"http://{LOOPBACK}:{registry.port}/nothing")).latest("orders-value")


def test_basic_authentication_and_a_token(registry: Registry, topic: str) -> None:
    value = avro_bytes(
        registry, topic, '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}', {"n": 1}
    )
    password = "Zebra:9 hunter2"
    columns = pa.schema([("n", pa.int32())])
    with door(registry, basic("ingest", password)) as url:
        right = config(url, username="ingest", password=password)
        found = AvroConverter(columns, ConfluentWireFormat(KnownSchemas(right))).decode(values(value))
        assert found.rows.to_pylist() == [{"n": 1}]
        for wrong in (config(url), config(url, username="ingest", password="other")):
            with pytest.raises(RegistryRefused, match="refused the login") as problem:
                RegistryClient(wrong).latest(f"{topic}-value")
            assert "other" not in str(problem.value)
            assert problem.value.status == 401
    with door(registry, "Bearer hunter3") as url:
        assert RegistryClient(config(url, token="hunter3")).latest(f"{topic}-value").version == 1


JSON_ORDER = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
    "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}"""
PROTOS = {
    "money.proto": """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
        message Money { int64 cents = 1; google.protobuf.Timestamp at = 2; }""",
    "shop/line.proto": """syntax = "proto3"; package shop; import "money.proto";
        message Line { string sku = 1; Money price = 2; }""",
    "order.proto": """syntax = "proto3"; package shop; import "shop/line.proto"; import "money.proto";
        message First { string x = 1; }
        message Order { message Part { int32 n = 1; } string id = 1; repeated Line lines = 2; Money sum = 3; }""",
}
ORDER_COLUMNS = "id string, lines array<struct<sku:string,price:struct<cents:long>>>, sum struct<cents:long>"
ORDER_ROW = {"id": "o", "lines": [{"sku": "k", "price": {"cents": 5}}], "sum": {"cents": 5}}


def pipeline(url: str, topic: str, format: str, schema: str | None, **source: Any) -> Pipeline:
    registry = source.pop("schema_registry", {})
    return Pipeline.model_validate(
        document(
            source__topics=[topic],
            source__format=format,
            source__schema_registry={"url": url, "timeout_seconds": 60, **registry},
            table__schema=schema,
            **{f"source__{key}": each for key, each in source.items()},
        )
    )


def shop_order(descriptors: bytes | None = None) -> Message:
    compiled = descriptors or compile_protos("order.proto", PROTOS)
    made: Message = GetMessageClass(ProtobufSchema(compiled).message("shop.Order"))(**ORDER_ROW)
    return made


def test_what_json_schemas_serializer_writes(registry: Registry, topic: str) -> None:
    value = json_bytes(registry, topic, JSON_ORDER, {"id": "a", "n": 1})
    assert value[:1] == b"\0"
    made = converter_of(pipeline(registry.url, topic, "json_schema", "id string, n long"))
    avro = avro_bytes(registry, f"{topic}-avro", FIRST, order("a"))
    found = made.decode(values(value, b"\0\x7f\xff\xff\xff{}", avro, value[:5] + b'{"n": "x"}', value[:5]))
    assert found.rows.to_pylist() == [{"id": "a", "n": 1}]
    assert [(each.index, each.field, each.found) for each in found.rejected] == [
        (1, "", f"schema id {0x7FFFFFFF}, which it does not have"),
        (2, "", f"schema id {int.from_bytes(avro[1:5], 'big')}, which it does not have"),
        (3, "n", '"x"'),
        (4, "", "an empty value"),
    ]


def test_json_schemas_under_another_subject_are_asked_for(registry: Registry, topic: str) -> None:
    by_record = {"subject.name.strategy": record_subject_name_strategy}
    value = json_bytes(registry, topic, JSON_ORDER.replace("Order", f"O{topic}"), {"id": "a"}, **by_record)
    for settings in ({}, {"subject": "record", "record": f"O{topic}"}, {"subject": "topic_record", "record": "none"}):
        made = converter_of(pipeline(registry.url, topic, "json_schema", "id string", schema_registry=settings))
        assert made.decode(values(value)).rows.to_pylist() == [{"id": "a"}]


def test_what_protobufs_serializer_writes_with_imports(registry: Registry, topic: str) -> None:
    value = protobuf_bytes(registry, topic, shop_order())
    assert value[5:7] == b"\x02\x02", "a list of one message index, 1"
    wanted = pipeline(registry.url, topic, "protobuf", ORDER_COLUMNS, protobuf={"message": "shop.Order"})
    found = converter_of(wanted).decode(values(value, b"\0\x7f\xff\xff\xff\0", value[:5] + b"\0\x0a\x01x", value[:-1]))
    assert found.rows.to_pylist() == [ORDER_ROW]
    assert [(each.index, each.found) for each in found.rejected] == [
        (1, f"schema id {0x7FFFFFFF}, which it does not have"),
        (2, "shop.First"),
        (3, f"{len(value) - 8} bytes that are no such message"),
    ]
    nested = GetMessageClass(ProtobufSchema(compile_protos("order.proto", PROTOS)).message("shop.Order.Part"))(n=7)
    inner = protobuf_bytes(registry, topic, nested)
    assert inner[5:8] == b"\x04\x02\x00", "a list of two message indexes, 1 and 0"
    part = pipeline(registry.url, topic, "protobuf", "n int", protobuf={"message": "shop.Order.Part"})
    assert converter_of(part).decode(values(inner)).rows.to_pylist() == [{"n": 7}]


def register_texts(registry: Registry, topic: str) -> int:
    """PROTOS, the others by reference; the id of order.proto."""
    subjects = {name: f"{topic}-{name}" for name in PROTOS} | {"order.proto": f"{topic}-value"}
    with SchemaRegistryClient({"url": registry.url}) as client:
        for name, text in PROTOS.items():
            imports = [each for each in PROTOS if f'import "{each}"' in text]
            references = [SchemaReference(each, subjects[each], 1) for each in imports]
            schema_id = client.register_schema(subjects[name], Schema(text, "PROTOBUF", references))
    return int(schema_id)


def test_protobuf_schemas_that_are_texts_and_refer_to_texts(registry: Registry, topic: str) -> None:
    value = b"\0" + register_texts(registry, topic).to_bytes(4, "big") + b"\x02\x02" + shop_order().SerializeToString()
    wanted = pipeline(registry.url, topic, "protobuf", ORDER_COLUMNS, protobuf={"message": "shop.Order"})
    assert converter_of(wanted).decode(values(value)).rows.to_pylist() == [ORDER_ROW]
    misfits = pipeline(registry.url, topic, "protobuf", "id int", protobuf={"message": "shop.Order"})
    with pytest.raises(ConfigError, match="column id: a Protobuf string cannot become int"):
        converter_of(misfits)


def test_versions_of_a_protobuf_schema_and_the_message_that_is_not_named(registry: Registry, topic: str) -> None:
    text = 'syntax = "proto3"; package shop; message Item { string id = 1;%s }'
    content = []
    for more in ("", " optional int64 n = 2;"):
        compiled = compile_protos("item.proto", {"item.proto": text % more})
        message = GetMessageClass(ProtobufSchema(compiled).message("shop.Item"))(id="a", **({"n": 1} if more else {}))
        content.append(protobuf_bytes(registry, topic, message))
    made = converter_of(pipeline(registry.url, topic, "protobuf", "id string, n long"))
    assert made.decode(values(*content)).rows.to_pylist() == [{"id": "a", "n": None}, {"id": "a", "n": 1}]
    with pytest.raises(ConfigError, match="no field for the column m in any"):
        converter_of(pipeline(registry.url, topic, "protobuf", "m long"))
    with pytest.raises(SchemaMissing, match=r"source\.protobuf\.message is not set"):
        converter_of(pipeline(registry.url, f"{topic}-none", "protobuf", "id string"))


def found_columns(url: str, topic: str, format: str, **source: Any) -> str:
    """The columns that a transaction would find where nobody has declared them."""
    wanted = pipeline(url, topic, format, None, **source)
    return ddl(parse_spark_json(resolve_schema(wanted, Timeline(wanted.table.base_path)).record))


def test_d2_columns_of_a_protobuf_schema_that_is_a_text_and_refers_to_texts(registry: Registry, topic: str) -> None:
    register_texts(registry, topic)
    price = "struct<sku:string,price:struct<cents:long,at:timestamp>>"
    assert found_columns(registry.url, topic, "protobuf", protobuf={"message": "shop.Order"}) == (
        f"id string, lines array<{price}>, sum struct<cents:long,at:timestamp>"
    )
    assert found_columns(registry.url, topic, "protobuf") == "x string", "the first type of the schema"
    with pytest.raises(
        SchemaMissing, match=r"'shop\.Ordr' is not in .*; did you mean shop\.Order\?; declare table\.schema"
    ):
        found_columns(registry.url, topic, "protobuf", protobuf={"message": "shop.Ordr"})


@pytest.mark.tier(1)
def test_d2_columns_of_a_json_schema(registry: Registry, topic: str) -> None:
    json_bytes(registry, topic, JSON_ORDER, {"id": "a", "n": 1})
    assert found_columns(registry.url, topic, "json_schema") == "id string, n long"


@pytest.mark.parametrize("format", ["json_schema", "protobuf", "avro"])
def test_d2_a_subject_that_is_not_there_has_no_columns(format: str, registry: Registry, topic: str) -> None:
    with pytest.raises(SchemaMissing, match=f"has no subject {topic}-value"):
        found_columns(registry.url, topic, format)


def test_keys_have_a_subject_of_their_own(registry: Registry, topic: str) -> None:
    text = '{"type": "record", "name": "Key", "fields": [{"name": "customer", "type": "long"}]}'
    key = avro_bytes(registry, topic, text, {"customer": 7}, field=MessageField.KEY)
    wanted = pipeline(registry.url, topic, "json", "id string", key={"format": "avro", "schema": "customer long"})
    made = key_converter_of(wanted)
    assert made is not None
    assert made.decode(values(key)).rows.to_pylist() == [{"customer": 7}]
    assert [each.subject for each in RegistryClient(config(registry.url)).versions(f"{topic}-key")] == [f"{topic}-key"]


@pytest.mark.parametrize("format", ["json_schema", "protobuf"])
def test_a_registry_that_is_down_makes_no_bad_record(format: str, registry: Registry, topic: str) -> None:
    down = pipeline(f"http://{LOOPBACK}:{free_port()}", topic, format, "id string", protobuf={"message": "shop.Order"})
    with pytest.raises(RegistryUnreachable, match=r"url of source\.schema_registry"):
        converter_of(down)
    with door(registry, None, closed="/schemas/ids/") as url:
        made = converter_of(pipeline(url, topic, format, "id string", protobuf={"message": "shop.Order"}))
        with pytest.raises(RegistryUnreachable, match="HTTP 503") as raised:
            made.decode(values(b"\0\0\0\0\x01abc"))
        assert (raised.value.url, raised.value.schema_id, raised.value.status) == (url, 1, 503)


def test_a_login_opens_json_and_protobuf_schemas(registry: Registry, topic: str) -> None:
    in_json = json_bytes(registry, topic, JSON_ORDER, {"id": "o"})
    in_protobuf = protobuf_bytes(registry, f"{topic}p", shop_order())
    with door(registry, basic("ingest", "hunter2")) as url:
        right = {"username": "ingest", "password": "hunter2"}
        made = converter_of(pipeline(url, topic, "json_schema", "id string", schema_registry=right))
        assert made.decode(values(in_json)).rows.to_pylist() == [{"id": "o"}]
        with pytest.raises(RegistryRefused):
            converter_of(pipeline(url, topic, "json_schema", "id string"))
    with door(registry, "Bearer hunter3") as url:
        token, message = {"token": "hunter3"}, {"message": "shop.Order"}
        wanted = pipeline(url, f"{topic}p", "protobuf", "id string", schema_registry=token, protobuf=message)
        assert converter_of(wanted).decode(values(in_protobuf)).rows.to_pylist() == [{"id": "o"}]


def test_records_of_the_connector_itself_give_a_table_no_columns(registry: Registry, topic: str) -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    fields = [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}]
    event = json.dumps({"type": "record", "name": "Envelope", "fields": fields})
    recorded = (test_recorded_avro.FOLDER / "control_records_avro.json").read_text(encoding="utf-8")
    schemas = [json.dumps(each["schema"]) for each in json.loads(recorded)]
    mirror = Pipeline.model_validate(
        document(
            source__topics=[topic],
            source__format="avro",
            source__envelope="debezium",
            source__schema_registry={"url": registry.url, "timeout_seconds": 60},
            table__schema=None,
            table__mode="append",
        )
    )
    timeline = Timeline(mirror.table.base_path)
    with SchemaRegistryClient({"url": registry.url}) as client:
        for schema in (event, *schemas):
            client.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
            assert ddl(parse_spark_json(resolve_schema(mirror, timeline).record)) == "id long NOT NULL"
