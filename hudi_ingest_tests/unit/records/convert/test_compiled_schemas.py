"""A registry's Protobuf schemas as descriptor sets, whether they and what they refer to are texts or serialized."""

from __future__ import annotations

from base64 import b64encode

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from hudi_ingest.records.convert.protobuf.converter import first_message
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos, compiled
from hudi_ingest.records.schema.registered import RegisteredSchema

MONEY = """syntax = "proto3"; package shop;
import "google/type/date.proto";
message Money { int64 cents = 1; google.type.Date on = 2; }"""
LINE = """syntax = "proto3"; package shop;
import "money.proto";
message Line { Money price = 1; }"""
ORDER = """syntax = "proto3"; package shop;
import public "shop/line.proto";
import 'money.proto';
import "google/protobuf/timestamp.proto";
import "confluent/type/decimal.proto";
message Order { Line line = 1; Money sum = 2; google.protobuf.Timestamp at = 3; confluent.type.Decimal exact = 4; }"""
NAMES = ("money.proto", "shop/line.proto")


def serialized() -> dict[str, str]:
    """What confluent-kafka registers of each file."""
    found = compiled(RegisteredSchema(ORDER, (MONEY, LINE), NAMES))
    files = {file.name: file for file in FileDescriptorSet.FromString(found).file}
    # The last one is the schema itself.
    assert [*files][-1] == [*files.values()][-1].name
    own = [*files][-1]
    return {
        ("order" if name == own else name): b64encode(file.SerializeToString()).decode() for name, file in files.items()
    }


@pytest.mark.parametrize("schema", ["text", "serialized"])
@pytest.mark.parametrize("money", ["text", "serialized"])
@pytest.mark.parametrize("line", ["text", "serialized"])
def test_texts_and_serialized_files_go_together(schema: str, money: str, line: str) -> None:
    known = serialized()
    registered = RegisteredSchema(
        ORDER if schema == "text" else known["order"],
        (MONEY if money == "text" else known["money.proto"], LINE if line == "text" else known["shop/line.proto"]),
        NAMES,
    )
    found = compiled(registered)
    assert first_message(found) == "shop.Order"
    order = ProtobufSchema(found).message("shop.Order")
    assert order.fields_by_name["sum"].message_type.fields_by_name["on"].message_type.full_name == "google.type.Date"
    assert order.fields_by_name["exact"].message_type.full_name == "confluent.type.Decimal"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('syntax = "proto3"; message A {', "protoc refuses"),
        ('syntax = "proto3"; import "gone.proto"; message A {}', "gone.proto"),
        ("AAAA", "not a serialized FileDescriptorProto"),
        ("A", "padding|base64|characters"),
    ],
)
def test_what_is_no_schema_is_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ProtobufSchema(compiled(RegisteredSchema(text)))


def test_a_set_brings_its_known_imports_itself() -> None:
    found = compile_protos("a.proto", {"a.proto": 'syntax = "proto3"; message A {}'})
    assert first_message(found) == "A"
