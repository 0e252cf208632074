"""Protobuf -> rows: what becomes of each type, that both paths agree, and that nothing crashes or shifts rows."""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest.records.convert.converter import Converter, NamesFields
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.convert.protobuf.converter import RegisteredMessages, first_message, require_columns
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos, record_schema
from hudi_ingest_tests.support.outcomes import comparable, outcomes, rows_of

pytestmark = pytest.mark.fast
RELAXED = settings(suppress_health_check=list(HealthCheck))

PROTOS = {
    "shop.proto": """
        syntax = "proto3";
        package shop;
        import "parts/point.proto";
        import "google/protobuf/timestamp.proto";
        import "google/protobuf/duration.proto";
        import "google/protobuf/wrappers.proto";
        import "google/protobuf/struct.proto";
        enum State { UNKNOWN = 0; NEW = 1; DONE = -2; }
        message Flat {
          int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
          fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10; float fl = 11; double db = 12;
          bool ok = 13; string text = 14; bytes raw = 15; State state = 16;
          optional int32 maybe = 17; optional string maybe_text = 18;
          parts.Point point = 22; repeated int32 numbers = 23; repeated string words = 24; repeated parts.Point points = 25;
          google.protobuf.Timestamp at = 26; google.protobuf.Int64Value wrapped = 27;
          google.protobuf.StringValue wrapped_text = 28; google.protobuf.Duration lasted = 29; repeated State states = 30;
          repeated double doubles = 31;
        }
        message Choice { oneof choice { int64 number = 19; string word = 20; parts.Point where = 21; } }
        message Mapped { map<string, int32> counts = 1; map<int64, parts.Point> by_id = 2; google.protobuf.Struct any = 3; }
        message Tree { string name = 1; Tree left = 2; }
        message Outer { message Inner { string a = 1; } Inner inner = 1; }
        message Last { int32 n = 536870911; }
    """,
    "parts/point.proto": """
        syntax = "proto3";
        package parts;
        message Point { double x = 1; optional int32 y = 2; }
    """,
    "old.proto": """
        syntax = "proto2";
        package old;
        enum Kind { A = 1; B = 2; }
        message Old {
          required string id = 1; optional int32 n = 2 [default = 5]; repeated string words = 3; optional Kind kind = 4;
          optional group Part = 6 { optional string s = 7; }
        }
    """,
}
SHOP = compile_protos("shop.proto", PROTOS)
OLD = compile_protos("old.proto", PROTOS)
TYPES = ProtobufSchema(SHOP)
FLAT_SCHEMA = record_schema(TYPES.message("shop.Flat"))


def message_class(name: str) -> Any:
    return GetMessageClass((TYPES if name.startswith("shop.") else ProtobufSchema(OLD)).message(name))


Flat, Mapped, Tree = (message_class(f"shop.{name}") for name in ("Flat", "Mapped", "Tree"))
Old = message_class("old.Old")


def reader(name: str, schema: pa.Schema, **options: Any) -> Converter:
    found = SHOP if name.startswith("shop.") else OLD
    return converter_for("protobuf", schema, {"descriptor_set": found, "message": name, **options})


def both(name: str, schema: pa.Schema, messages: Sequence[bytes], **options: Any) -> list[tuple[str, Any]]:
    """The outcomes, after checking that both paths agree on them."""
    converter: Any = reader(name, schema, **options)
    exact = pickle.loads(pickle.dumps(converter))
    exact._reader._fast = None
    found = outcomes(converter, schema, messages)
    assert comparable(found) == comparable(outcomes(exact, schema, messages))
    return found


def one(column: pa.Field, message: Message, **options: Any) -> Any:
    """The value or the rejection of one column."""
    found = rows_of(both(message.DESCRIPTOR.full_name, pa.schema([column]), [message.SerializeToString()], **options))[
        0
    ]
    return found[column.name] if isinstance(found, dict) else found


def test_the_columns_of_a_message() -> None:
    found = {field.name: (field.type, field.nullable) for field in FLAT_SCHEMA}
    point = pa.struct([pa.field("x", pa.float64(), False), pa.field("y", pa.int32())])
    assert found["i32"] == (pa.int32(), False)
    assert found["u32"] == (pa.int64(), False)
    assert found["u64"] == found["f64"] == (pa.decimal128(20, 0), False)
    assert found["fl"] == (pa.float32(), False)
    assert found["raw"] == (pa.binary(), False)
    assert found["state"] == (pa.string(), False)
    assert found["maybe"] == (pa.int32(), True)
    assert found["point"] == (point, True)
    assert found["points"] == (pa.list_(pa.field("element", point, False)), False)
    assert found["at"] == (pa.timestamp("us", "UTC"), True)
    assert found["wrapped"] == (pa.int64(), True)
    mapped = record_schema(TYPES.message("shop.Mapped"))
    assert mapped.field("by_id").type == pa.map_(pa.string(), pa.field("value", point, False))
    assert mapped.field("any").type == pa.string()
    with pytest.raises(ValueError, match=r"column left: shop\.Tree contains itself"):
        record_schema(TYPES.message("shop.Tree"))
    empty = 'syntax = "proto3"; message E {} message M { E a = 1; int32 b = 2; repeated E c = 3; M d = 4; }'
    with pytest.raises(
        ValueError, match=r"column a: E has no fields.*; column c\.element: E has no fields.*; column d: M contains"
    ):
        record_schema(ProtobufSchema(compile_protos("e.proto", {"e.proto": empty})).message("M"))
    doubling = "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }} " for n in range(20))
    text = f'syntax = "proto3"; {doubling} message M20 {{ int32 a = 1; }}'
    with pytest.raises(ValueError, match="more than 10000 columns"):
        record_schema(ProtobufSchema(compile_protos("m.proto", {"m.proto": text})).message("M0"))


def test_an_empty_value_is_a_message_of_defaults() -> None:
    row = rows_of(both("shop.Flat", FLAT_SCHEMA, [b""]))[0]
    assert (row["i32"], row["text"], row["state"], row["numbers"], row["u64"]) == (0, "", "UNKNOWN", [], Decimal(0))
    assert [row[name] for name in ("maybe", "maybe_text", "point", "at", "wrapped")] == [None] * 5


def test_presence_tells_defaults_from_nothing() -> None:
    message = Flat(maybe=0, maybe_text="", wrapped={}, point={}, at={})
    row = rows_of(both("shop.Flat", FLAT_SCHEMA, [message.SerializeToString()]))[0]
    assert (row["maybe"], row["maybe_text"], row["wrapped"]) == (0, "", 0)
    assert row["point"] == {"x": 0.0, "y": None}
    assert row["at"] == datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert one(pa.field("maybe", pa.int32(), False), Flat()) == ("maybe", "int, not null", "no such field")


def test_numbers_that_do_not_fit_are_refused() -> None:
    assert one(pa.field("u64", pa.int64(), False), Flat(u64=2**63 - 1)) == 2**63 - 1
    assert one(pa.field("u64", pa.int64(), False), Flat(u64=2**63)) == ("u64", "int (64 bit)", str(2**63))
    assert one(pa.field("u64", pa.decimal128(20, 0), False), Flat(u64=2**64 - 1)) == Decimal(2**64 - 1)
    assert one(pa.field("u32", pa.int32(), False), Flat(u32=2**31)) == ("u32", "int (32 bit)", str(2**31))
    assert one(pa.field("i64", pa.decimal128(5, 2)), Flat(i64=-999)) == Decimal("-999.00")
    assert one(pa.field("i64", pa.decimal128(5, 2)), Flat(i64=1000)) == ("i64", "decimal(5,2)", "1000")
    assert one(pa.field("i32", pa.int64()), Flat(i32=-1)) == -1
    assert one(pa.field("fl", pa.float64()), Flat(fl=0.1)) == struct.unpack("f", struct.pack("f", 0.1))[0]
    assert math.isnan(one(pa.field("db", pa.float64()), Flat(db=math.nan)))
    assert one(pa.field("db", pa.float64()), Flat(db=-math.inf)) == -math.inf


def test_enums() -> None:
    assert one(pa.field("state", pa.string()), Flat(state=-2)) == "DONE"
    assert one(pa.field("state", pa.string()), Flat(state=9)) == ("state", "a value of enum shop.State", "9")
    assert one(pa.field("state", pa.int32()), Flat(state=9)) == 9
    states = pa.field("states", pa.list_(pa.field("element", pa.string(), False)))
    assert one(states, Flat(states=[0, 1])) == ["UNKNOWN", "NEW"]
    assert one(states, Flat(states=[0, 7])) == ("states[1]", "a value of enum shop.State", "7")


def test_timestamps() -> None:
    at = pa.field("at", pa.timestamp("us", "UTC"))
    assert one(at, Flat(at={"seconds": -1, "nanos": 1000})) == datetime(
        1969, 12, 31, 23, 59, 59, 1, tzinfo=timezone.utc
    )
    assert one(at, Flat(at={"seconds": 253402300799, "nanos": 999999000})).year == 9999
    assert one(at, Flat(at={"seconds": -62135596800})).year == 1
    for seconds, nanos in ((253402300800, 0), (-62135596801, 0), (2**63 - 1, 0), (0, -1), (0, 10**9)):
        assert one(at, Flat(at={"seconds": seconds, "nanos": nanos}))[0] == "at"
    assert one(at, Flat(at={"nanos": 1001})) == (
        "at",
        "timestamp in whole microseconds",
        "1001 ns; see truncate_nanoseconds",
    )
    assert one(at, Flat(at={"nanos": 1999}), truncate_nanoseconds=True).microsecond == 1
    raw = pa.field("at", pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]))
    assert one(raw, Flat(at={"nanos": 1001})) == {"seconds": 0, "nanos": 1001}


def test_maps_and_json_values() -> None:
    schema = record_schema(TYPES.message("shop.Mapped"))
    message = Mapped(counts={"b": 1, "a": 2}, by_id={7: {"x": 1.5}}, any={"b": [1, None, "é"], "a": {"c": True}})
    row = rows_of(both("shop.Mapped", schema, [message.SerializeToString()]))[0]
    assert row["counts"] == [("a", 2), ("b", 1)]
    assert row["by_id"] == [("7", {"x": 1.5, "y": None})]
    assert row["any"] == '{"a":{"c":true},"b":[1.0,null,"é"]}'
    twice = b"\x0a\x05\x0a\x01a\x10\x01\x0a\x05\x0a\x01a\x10\x02"  # the key "a" two times
    assert rows_of(both("shop.Mapped", schema, [twice]))[0]["counts"] == [("a", 2)]
    infinite = Mapped(any={})
    infinite.any.fields["a"].number_value = math.inf
    assert rows_of(both("shop.Mapped", schema, [infinite.SerializeToString()]))[0][0] == "any"


def test_of_a_oneof_the_last_member_counts() -> None:
    schema = record_schema(TYPES.message("shop.Choice"))
    point = b"\xaa\x01\x00"
    found = rows_of(both("shop.Choice", schema, [b"", b"\x98\x01\x00", b"\x98\x01\x01\xa2\x01\x01a", point]))
    none = {"number": None, "word": None, "where": None}
    assert found == [none, {**none, "number": 0}, {**none, "word": "a"}, {**none, "where": {"x": 0.0, "y": None}}]


def test_recursive_messages_are_read_to_the_declared_depth_and_refused_beyond_a_hundred() -> None:
    schema = pa.schema([("name", pa.string()), ("left", pa.struct([("name", pa.string())]))])
    deep = tree = b"\x0a\x01x"
    for depth in range(10_000):
        tree = b"\x12" + varint(len(tree)) + tree
        if depth < 90:
            deep = tree
    found = rows_of(both("shop.Tree", schema, [deep, tree, b"\x0b" * 10_000 + b"\x0c" * 10_000]))
    assert found[0] == {"name": "", "left": {"name": ""}}
    assert found[1][1] == "a Protobuf message shop.Tree"
    assert found[2][1] == "a Protobuf message shop.Tree"


def test_a_column_within_a_message_that_the_message_lacks_is_null() -> None:
    column = pa.field("points", pa.list_(pa.struct([("y", pa.int32()), ("z", pa.float64())])))
    assert one(column, Flat(points=[{"y": 1}])) == [{"y": 1, "z": None}]
    column = pa.field("point", pa.struct([("x", pa.float64()), ("z", pa.float64())]))
    assert one(column, Flat(point={"x": 0.5})) == {"x": 0.5, "z": None}


def test_proto2() -> None:
    schema = record_schema(ProtobufSchema(OLD).message("old.Old"))
    messages = [
        Old(id="a").SerializeToString(),
        Old(id="a", n=0, words=["b"], kind=2, part={"s": "c"}).SerializeToString(),
        b"",
        b"\x0a\x01\xff",
        b"\x0a\x01a\x1a\x01\xff",
        b"\x0a\x01a\x20\x09",
    ]
    found = rows_of(both("old.Old", schema, messages))
    assert found[0] == {"id": "a", "n": None, "words": [], "kind": None, "part": None}
    assert found[1] == {"id": "a", "n": 0, "words": ["b"], "kind": "B", "part": {"s": "c"}}
    assert found[2] == ("", "all required fields of the message", "none of these: id")
    assert found[3][0] == "id" and found[4][0] == "words[0]"
    assert found[5]["kind"] is None  # a closed enum: the number is an unknown field


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


HOSTILE = [
    b"\x72\x05ab",  # text of five bytes, cut
    b"\x72\x01\xff",  # text that is not UTF-8
    b"\x72" + b"\xff" * 9 + b"\x01" + b"a" * 20,  # text of 2^64 - 1 bytes
    b"\xfa\x3f" + b"\xff" * 9 + b"\x01" + b"a" * 20,  # the same, of an unknown field
    b"\x08" + b"\xff" * 10 + b"\x01",  # a number of eleven bytes
    b"\x08\x81\x80\x00",  # a longer number than needed
    b"\x08\x01\x08\x02",  # a field twice
    b"\x10\x05\x08\x01",  # out of order
    b"\x0d\x01\x00\x00\x00",  # another wire type
    b"\xb2\x01\x02\x10\x01\xb2\x01\x09\x09" + bytes(8),  # a message in two parts
    b"\xb8\x01\x01\xba\x01\x02\x02\x03",  # a list that is packed and not
    b"\xf8\x07\x01",  # an unknown field
    b"\x0b\x0c",  # a group
    b"\x00\x01",  # field number 0
    b"\x68\x02",  # true as 2
    b'{"id":"o-1"}',
    b"\0\0\0\0\1\0\x08\x01",
]


def test_hostile_bytes_have_one_outcome() -> None:
    found = both("shop.Flat", FLAT_SCHEMA, [b"", *HOSTILE, Flat(i32=1).SerializeToString()])
    kinds = "".join(kind[1] for kind, _ in found)
    assert len(kinds) == len(HOSTILE) + 2
    row = rows_of(found)[7]
    assert row["i32"] == 2


def test_a_record_of_ten_megabytes() -> None:
    big = Flat(text="x" * 10_000_000, numbers=range(100_000)).SerializeToString()
    kinds = [kind for kind, _ in both("shop.Flat", FLAT_SCHEMA, [big, big[:-1], b""])]
    assert kinds == ["row", "rejected", "row"]


def test_canonical_records_take_the_fast_path_and_others_do_not_take_it_from_them() -> None:
    converter: Any = reader("shop.Flat", FLAT_SCHEMA)
    good = [full(number).SerializeToString() for number in range(300)]
    rows, proved = converter._reader._fast.read(pa.array(good, pa.binary()))
    assert proved.all() and rows.num_rows == 300
    rows, proved = converter._reader._fast.read(pa.array([*good, b"\xf8\x07\x01"], pa.binary()))
    assert proved.tolist() == [True] * 300 + [False]
    large: Any = reader("shop.Last", pa.schema([("n", pa.int32())]))
    assert large._reader._fast is None


def full(number: int) -> Any:
    return Flat(
        i32=-number, i64=number, u32=number, u64=2**64 - 1 - number, s32=-number, s64=-number, f32=number, f64=number,
        sf32=-number, sf64=-number, fl=number / 2, db=number / 3, ok=bool(number % 2), text=f"é{number}", raw=b"\xff",
        state=number % 2, maybe=number, point={"x": number}, numbers=[number, 0, -1], words=["a", ""],
        points=[{"x": 1.0}, {"y": number}], at={"seconds": number}, wrapped={"value": number}, states=[0, 1],
        lasted={"seconds": number}, doubles=[0.0, -0.0],
    )  # fmt: skip


def test_bad_records_in_a_large_batch_are_found_where_they_are() -> None:
    messages = [full(number).SerializeToString() for number in range(3000)]
    for bad in (0, 17, 1500, 2999):
        messages[bad] = b"\x72\x05ab"
    decoded = reader("shop.Flat", FLAT_SCHEMA).decode(pa.array(messages, pa.binary()))
    assert [fault.index for fault in decoded.rejected] == [0, 17, 1500, 2999]
    assert decoded.kept is not None
    assert decoded.rows["i64"].to_pylist() == decoded.kept.to_pylist()


small = st.integers(-3, 3)
points: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, x=st.floats(), y=st.none() | st.integers(-(2**31), 2**31 - 1)
)
flats: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    i32=st.integers(-(2**31), 2**31 - 1), i64=st.integers(-(2**63), 2**63 - 1), u32=st.integers(0, 2**32 - 1),
    u64=st.integers(0, 2**64 - 1), s32=st.integers(-(2**31), 2**31 - 1), s64=st.integers(-(2**63), 2**63 - 1),
    f32=st.integers(0, 2**32 - 1), f64=st.integers(0, 2**64 - 1), sf32=st.integers(-(2**31), 2**31 - 1),
    sf64=st.integers(-(2**63), 2**63 - 1), fl=st.floats(width=32), db=st.floats(), ok=st.booleans(), text=st.text(),
    raw=st.binary(), state=small, maybe=st.none() | small, maybe_text=st.none() | st.text(max_size=2),
    point=st.none() | points, numbers=st.lists(small), words=st.lists(st.text(max_size=2)), points=st.lists(points),
    at=st.none() | st.builds(dict, seconds=st.integers(-(2**40), 2**40), nanos=st.integers(-1, 10**9)),
    wrapped=st.none() | st.builds(dict, value=small), states=st.lists(small), doubles=st.lists(st.floats()),
)  # fmt: skip


@RELAXED
@given(st.lists(flats, min_size=1, max_size=5), st.booleans())
def test_what_google_protobuf_wrote_is_read_alike_by_both_paths(messages: list[dict[str, Any]], truncate: bool) -> None:
    records = [Flat(**{name: value for name, value in message.items() if value is not None}) for message in messages]
    both("shop.Flat", FLAT_SCHEMA, [record.SerializeToString() for record in records], truncate_nanoseconds=truncate)


@RELAXED
@given(st.lists(flats, min_size=1, max_size=3), st.randoms(use_true_random=False), st.binary(max_size=4))
def test_corrupted_records_have_one_outcome(messages: list[dict[str, Any]], chance: Any, noise: bytes) -> None:
    broken = []
    for message in messages:
        record = Flat(**{name: value for name, value in message.items() if value is not None}).SerializeToString()
        start, end = sorted(chance.randrange(len(record) + 1) for _ in range(2))
        broken.append(record[:start] + noise + record[chance.choice((start, end)) :])
    both("shop.Flat", FLAT_SCHEMA, broken)


def test_the_wire_format_says_schema_and_message() -> None:
    newer = compile_protos("order.proto", {"order.proto": ORDER.replace("}", " string note = 2; }", 1)})
    older = compile_protos("order.proto", {"order.proto": ORDER})
    schema = pa.schema([("id", pa.string()), ("note", pa.string())])
    broken = compile_protos("order.proto", {"order.proto": ORDER.replace("string id", "double id")})
    registered = RegisteredMessages(Descriptors({7: older, 8: newer, 5: broken, 6: b"\xff"}), "shop.Order")
    converter = pickle.loads(pickle.dumps(converter_for("protobuf", schema, {"registered": registered})))
    messages = [
        head(8) + b"\0\x0a\x01a\x12\x01n",
        head(7) + b"\0\x0a\x01b",
        head(8) + b"\x02\x00\x0a\x01c",
        head(9) + b"\0",
        b"\x0a\x01a",
        head(7) + b"\x02\x02",
        head(7) + b"\x02\x10",
        head(7),
        head(8) + b"\0\x0a\x05a",
        head(7) + b"\0\x0a\x01d\x12\x01n",
        head(5) + b"\0",
        head(6) + b"\0",
    ]
    found = rows_of(outcomes(converter, schema, messages))
    assert found[0] == {"id": "a", "note": "n"}
    assert found[1] == {"id": "b", "note": None}
    assert found[2] == {"id": "c", "note": ""}
    assert found[3][1:] == (
        "the id of a Protobuf schema in the schema registry",
        "schema id 9, which it does not have",
    )
    assert found[4][2] == "first byte 0x0a; the producer may write no schema id, or write it into headers"
    assert found[5] == ("", "a message shop.Order", "shop.Other")
    assert found[6][2] == "message indexes [8], which are no message of the schema"
    assert found[7][2] == "the end of the value"
    assert found[8][1] == "a Protobuf message shop.Order"
    assert found[9] == {"id": "d", "note": None}
    unreadable = "a schema that records can be read with"
    assert found[10] == (
        "",
        unreadable,
        "column id: a Protobuf double cannot become string; declare it as double",
    )
    assert found[11][1] == unreadable and found[11][2].startswith("not a descriptor set")
    require_columns(schema, "shop.Order", [newer, b"\xff"])
    with pytest.raises(ValueError, match="no field for the column note in any of"):
        require_columns(schema, "shop.Order", [older])
    with pytest.raises(ValueError, match="cannot become string"):
        require_columns(schema, "shop.Order", [broken, newer])
    other = compile_protos("other.proto", {"other.proto": 'syntax = "proto3"; message Other { string x = 1; }'})
    require_columns(schema, "shop.Order", [other, newer])
    with pytest.raises(ValueError, match=r"shop\.Order.* is not in the descriptor set"):
        require_columns(schema, "shop.Order", [other])
    require_columns(schema, "shop.Order", [])
    assert first_message(newer) == "shop.Order"


def test_the_fields_of_messages_are_those_of_their_schemas() -> None:
    newer = compile_protos("order.proto", {"order.proto": ORDER.replace("}", " Order inner = 2; }", 1)})
    schema = pa.schema([("id", pa.string())])
    bare = converter_for("protobuf", schema, {"descriptor_set": newer, "message": "shop.Order"})
    older = compile_protos("order.proto", {"order.proto": ORDER})
    registered = RegisteredMessages(Descriptors({7: older, 8: newer}), "shop.Order")
    framed = converter_for("protobuf", schema, {"registered": registered})
    assert isinstance(bare, NamesFields) and isinstance(framed, NamesFields)
    values = pa.array([b"\x0a\x01a"], pa.binary())
    assert bare.fields(values) == bare.fields(values, "inner") == {"id", "inner"}
    assert bare.fields(values, "id") == bare.fields(values, "none") == set()
    assert framed.fields(pa.array([head(7) + b"\0", b"x"], pa.binary())) == {"id"}
    assert framed.fields(pa.array([head(7) + b"\0", head(8) + b"\0"], pa.binary())) == {"id", "inner"}


@dataclass(frozen=True)
class Descriptors:
    """A registry of compiled schemas."""

    sets: Mapping[int, bytes]

    def descriptor_set(self, schema_id: int) -> bytes | None:
        return self.sets.get(schema_id)


def head(schema_id: int) -> bytes:
    return struct.pack(">BI", 0, schema_id)


ORDER = 'syntax = "proto3"; package shop; message Order { string id = 1; } message Other { string x = 1; }'


@pytest.mark.parametrize(
    ("schema", "options", "problem"),
    [
        (FLAT_SCHEMA, {}, "option message: Field required; option descriptor_set: Field required"),
        (FLAT_SCHEMA, {"descriptor_set": SHOP}, "option message: Field required"),
        (FLAT_SCHEMA, {"descriptor_set": SHOP, "message": "shop.Flt"}, "did you mean shop.Flat"),
        (FLAT_SCHEMA, {"descriptor_set": b"\xff", "message": "a"}, "not a descriptor set"),
        (FLAT_SCHEMA, {"descriptor_set": b"", "message": "a"}, "without a file"),
        (
            pa.schema([("txt", pa.string())]),
            {"descriptor_set": SHOP, "message": "shop.Flat"},
            "no field for the column txt; did you mean text",
        ),
        (
            pa.schema([("text", pa.int32())]),
            {"descriptor_set": SHOP, "message": "shop.Flat"},
            "a Protobuf string cannot become int; declare it as string",
        ),
        (
            pa.schema([("points", pa.list_(pa.struct([("x", pa.float32())])))]),
            {"descriptor_set": SHOP, "message": "shop.Flat"},
            r"column points\[\]\.x: a Protobuf double cannot become float; declare it as double",
        ),
    ],
)
def test_what_cannot_be_is_said_before_any_record(schema: pa.Schema, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        converter_for("protobuf", schema, options)


def test_protoc_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"protoc refuses a\.proto: .*b\.proto"):
        compile_protos("a.proto", {"a.proto": 'syntax = "proto3"; import "b.proto";'})
    with pytest.raises(ValueError, match="leads out of"):
        compile_protos("a.proto", {"../a.proto": ""})


def test_of_an_enums_aliases_the_first_is_its_name_whatever_stands_beside_it() -> None:
    text = """syntax = "proto3"; enum State { option allow_alias = true; UNKNOWN = 0; STARTED = 1; RUNNING = 1; OLD = 1; }
    message M { State state = 1; repeated State states = 2; map<string, State> by_name = 3; }"""
    message = ProtobufSchema(compile_protos("m.proto", {"m.proto": text})).message("M")
    datum = b"\x08\x01\x12\x02\x01\x00\x1a\x05\x0a\x01a\x10\x01"
    expected = json_format.MessageToDict(GetMessageClass(message).FromString(datum), preserving_proto_field_name=True)
    options = {"descriptor_set": compile_protos("m.proto", {"m.proto": text}), "message": "M"}
    for schema in (record_schema(message), pa.schema([("state", pa.string())])):
        converter = converter_for("protobuf", schema, options)
        for batch in ([datum], [datum] * 300, [datum, b"\xff", datum]):
            for row in converter.decode(pa.array(batch, pa.binary())).rows.to_pylist():
                row = {**row, **({"by_name": dict(row["by_name"])} if "by_name" in row else {})}
                assert row == {name: expected[name] for name in schema.names}
