"""JSON -> rows: what is accepted, that both paths agree, and that nothing a topic may hold crashes or shifts rows."""

from __future__ import annotations

import base64
import importlib
import json
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest.records.convert import fast_path
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.convert.json import exact as json_exact
from hudi_ingest.records.convert.json.converter import JsonConverter
from hudi_ingest_tests.support.outcomes import outcome, rows_of

UTC = timezone.utc
RELAXED = settings(suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", autouse=True)
def _few_records_take_the_fast_path_too() -> None:
    importlib.import_module("hudi_ingest.records.convert.json.kernel.records")


def exact_only(schema: pa.Schema) -> JsonConverter:
    converter = JsonConverter(schema)
    converter._fast = None
    return converter


def values_of(messages: Sequence[bytes | str]) -> pa.BinaryArray:
    return pa.array([m.encode() if isinstance(m, str) else m for m in messages], pa.binary())


def assert_every_way_agrees(schema: pa.Schema, messages: Sequence[bytes | str]) -> list[tuple[str, Any]]:
    """A batch, each message alone, and the exact path give the same rows and the same rejections."""
    values = values_of(messages)
    converter, exact = JsonConverter(schema), exact_only(schema)
    whole = outcome(converter.decode(values), len(values), schema)
    assert whole == outcome(exact.decode(values), len(values), schema)
    alone = [outcome(converter.decode(values.slice(i, 1)), 1, schema)[0] for i in range(len(values))]
    assert whole == alone
    return whole


def decode_one(type_: pa.DataType, text: str, nullable: bool = True) -> tuple[str, Any]:
    """The value or the rejection of one column `a` given as JSON text, after both paths agreed on it."""
    schema = pa.schema([pa.field("a", type_, nullable)])
    kind, found = assert_every_way_agrees(schema, [f'{{"a":{text}}}'])[0]
    return (kind, found.column(0)[0]) if kind == "row" else (kind, found)


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


D52 = pa.decimal128(5, 2)
TS, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")
POINT = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.float64())])
BYTES = pa.map_(pa.string(), pa.field("value", pa.int8(), False))

GOOD: list[tuple[pa.DataType, str, Any]] = [
    (pa.bool_(), "true", True),
    (pa.bool_(), "false", False),
    (pa.int8(), "-128", -128),
    (pa.int16(), "32767", 32767),
    (pa.int32(), "-0", 0),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.int64(), "-9223372036854775808", -(2**63)),
    (pa.float64(), "1", 1.0),
    (pa.float64(), "-1.5E+2", -150.0),
    (pa.float64(), "1.7976931348623157e308", 1.7976931348623157e308),
    (pa.float64(), "1e-400", 0.0),
    (pa.float64(), "0e999999999999", 0.0),
    (pa.float64(), "123456789012345678901234567890", 123456789012345678901234567890.0),
    (pa.float32(), "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
    (pa.float32(), "16777217.00000000001", 16777218.0),
    (pa.float32(), "3.4028234663852886e38", 3.4028234663852886e38),
    (pa.float32(), "1e-60", 0.0),
    (pa.string(), '""', ""),
    (pa.string(), '"a\\u0000b\\ud83d\\ude00\\/é"', "a\0b😀/é"),
    (pa.string(), '"NaN"', "NaN"),
    (D52, "1", Decimal("1.00")),
    (D52, "-123.45", Decimal("-123.45")),
    (D52, '"123.45"', Decimal("123.45")),
    (D52, '"+000123.4500"', Decimal("123.45")),
    (D52, "1.5e2", Decimal("150.00")),
    (D52, "1000e-5", Decimal("0.01")),
    (D52, "100000000000e-12", Decimal("0.10")),
    (D52, '".5"', Decimal("0.50")),
    (D52, '"5."', Decimal("5.00")),
    (D52, "-0", Decimal("0.00")),
    (D52, "0e400", Decimal("0.00")),
    (D52, '"0e99999999999"', Decimal("0.00")),
    (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
    (pa.decimal128(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
    (pa.date32(), '"2026-11-21"', date(2026, 11, 21)),
    (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
    (pa.date32(), '"0001-01-01"', date(1, 1, 1)),
    (pa.date32(), '"9999-12-31"', date(9999, 12, 31)),
    (TS, '"2026-01-02T03:04:05.123456Z"', at(2026, 1, 2, 3, 4, 5, 123456)),
    (TS, '"2026-01-02 03:04:05"', at(2026, 1, 2, 3, 4, 5)),
    (TS, '"2026-01-02T03:04:05.1234560Z"', at(2026, 1, 2, 3, 4, 5, 123456)),
    (TS, '"2026-01-02T03:04:05.500000000"', at(2026, 1, 2, 3, 4, 5, 500000)),
    (TS, '"2026-01-02T03:04:05.0000000000+01:00"', at(2026, 1, 2, 2, 4, 5)),
    (TS, '"2026-01-02"', at(2026, 1, 2)),
    (TS, '"2026-01-02T03"', at(2026, 1, 2, 3)),
    (TS, '"2026-01-02T03:04+01:30"', at(2026, 1, 2, 1, 34)),
    (TS, '"2026-01-02T03:04:05.5-0130"', at(2026, 1, 2, 4, 34, 5, 500000)),
    (TS, '"2026-01-02T03:04:05+05"', at(2026, 1, 1, 22, 4, 5)),
    (TS, '"0000-12-31T23:00:00-02:00"', at(1, 1, 1, 1)),
    (TS, '"9999-12-31T23:59:59.999999"', at(9999, 12, 31, 23, 59, 59, 999999)),
    (NTZ, '"2026-01-02T03:04:05"', datetime(2026, 1, 2, 3, 4, 5)),
    (NTZ, '"2026-01-02T03:04:05+01:00"', datetime(2026, 1, 2, 2, 4, 5)),
    (pa.binary(), '"AP8="', b"\0\xff"),
    (pa.binary(), '""', b""),
    (POINT, '{"x":1}', {"x": 1, "y": None}),
    (POINT, '{"y":2,"x":1,"z":[{"x":3}]}', {"x": 1, "y": 2.0}),
    (pa.list_(pa.int8()), "[1,null]", [1, None]),
    (pa.list_(pa.field("element", POINT, False)), '[{"x":1}]', [{"x": 1, "y": None}]),
    (pa.list_(pa.list_(pa.date32())), '[[],null,["2026-01-01",null]]', [[], None, [date(2026, 1, 1), None]]),
    (BYTES, '{"k":1,"":2}', [("k", 1), ("", 2)]),
    (BYTES, "{}", []),
]

BAD: list[tuple[pa.DataType, str, str]] = [
    (pa.bool_(), "1", "a"),
    (pa.bool_(), '"true"', "a"),
    (pa.int8(), "128", "a"),
    (pa.int32(), "1.0", "a"),
    (pa.int32(), "1e2", "a"),
    (pa.int32(), '"1"', "a"),
    (pa.int32(), "true", "a"),
    (pa.int64(), "9223372036854775808", "a"),
    (pa.int64(), "1" * 5000, "a"),
    (pa.int64(), "NaN", "a"),
    (pa.float64(), "1e309", "a"),
    (pa.float64(), "1" * 5000, "a"),
    (pa.float64(), "NaN", "a"),
    (pa.float64(), "-Infinity", "a"),
    (pa.float64(), "Inf", "a"),
    (pa.float64(), '"1.5"', "a"),
    (pa.float32(), "1e39", "a"),
    (pa.float32(), "3.4028235677973367e38", "a"),
    (pa.string(), "1", "a"),
    (pa.string(), '"\\ud800"', "a"),
    (pa.string(), '"\\udc00\\ud800"', "a"),
    (D52, "1.005", "a"),
    (D52, "1000", "a"),
    (D52, "12345", "a"),
    (D52, '"1,5"', "a"),
    (D52, '" 1"', "a"),
    (D52, '""', "a"),
    (D52, '"."', "a"),
    (D52, '"NaN"', "a"),
    (D52, "NaN", "a"),
    (D52, '"1_0"', "a"),
    (D52, '"١"', "a"),
    (D52, "1e99999999999999999999", "a"),
    (D52, "1e-99999999999999999999", "a"),
    # The parser takes these to be 0.
    (pa.decimal128(38, 0), "1e-39", "a"),
    (pa.decimal128(38, 0), '"-1E-039"', "a"),
    (D52, "1e-77", "a"),
    (pa.decimal128(38, 38), "1e-77", "a"),
    (pa.date32(), '"2026-02-29"', "a"),
    (pa.date32(), '"2026-1-2"', "a"),
    (pa.date32(), '"0000-01-01"', "a"),
    (pa.date32(), '"2026-01-01T00:00:00"', "a"),
    (pa.date32(), "20000", "a"),
    (TS, "1700000000", "a"),
    (TS, '"2026-01-02T03:04:05.1234567"', "a"),
    (TS, '"2026-01-02T03:04:05.0000001"', "a"),
    (TS, '"2026-01-02T24:00:00"', "a"),
    (TS, '"2026-01-02T03:04:60"', "a"),
    (TS, '"2026-01-02T03:04:05+24:00"', "a"),
    (TS, '"2026-01-02t03:04:05z"', "a"),
    (TS, '"2026-01-02Z"', "a"),
    (TS, '"0000-12-31"', "a"),
    (TS, '"9999-12-31T23:59:59-01:00"', "a"),
    (NTZ, '"0001-01-01T00:00:00+01:00"', "a"),
    (NTZ, '""', "a"),
    (pa.binary(), '"AP8"', "a"),
    (pa.binary(), '"AAAA="', "a"),
    (pa.binary(), '"AAAA=="', "a"),
    (pa.binary(), '"AAAA==="', "a"),
    (pa.binary(), '"AAAA===="', "a"),
    (pa.binary(), '"A P8="', "a"),
    (pa.binary(), '"é==="', "a"),
    (pa.binary(), "1", "a"),
    (POINT, "{}", "a.x"),
    (POINT, '{"x":null}', "a.x"),
    (POINT, '{"x":1,"x":1}', "a.x"),
    (POINT, '{"x":1,"y":1e999}', "a.y"),
    (POINT, "[1]", "a"),
    (pa.list_(pa.int8()), "{}", "a"),
    (pa.list_(pa.field("element", pa.int8(), False)), "[1,2,null]", "a[2]"),
    (pa.list_(POINT), '[{"x":1},null,{"x":"12x"}]', "a[2].x"),
    (BYTES, '{"k":null}', 'a["k"]'),
    (BYTES, '{"k":1,"k":2}', "a"),
    (BYTES, '{"\\ud800":1}', 'a["\\ud800"]'),
    (BYTES, "[]", "a"),
    (pa.map_(pa.string(), pa.list_(POINT)), '{"k.1":[{"x":1},{"x":"q"}]}', 'a["k.1"][1].x'),
]


@pytest.mark.parametrize(("type_", "text", "expected"), GOOD, ids=lambda each: str(each)[:60])
def test_good_values(type_: pa.DataType, text: str, expected: Any) -> None:
    kind, found = decode_one(type_, text)
    assert (kind, found) == ("row", pa.scalar(expected, type_))


@pytest.mark.parametrize(("type_", "text", "field"), BAD, ids=lambda each: str(each)[:60])
def test_bad_values_name_their_field(type_: pa.DataType, text: str, field: str) -> None:
    kind, found = decode_one(type_, text)
    assert (kind, found[0]) == ("rejected", field)


@pytest.mark.parametrize("type_", sorted({str(t): t for t, _, _ in GOOD}.items()), ids=lambda each: each[0])
def test_null_is_a_value_only_where_nullable(type_: tuple[str, pa.DataType]) -> None:
    assert decode_one(type_[1], "null") == ("row", pa.scalar(None, type_[1]))
    kind, found = decode_one(type_[1], "null", nullable=False)
    assert (kind, found[0], found[2]) == ("rejected", "a", "null")
    assert found[1].endswith(", not null")


@pytest.mark.parametrize(
    ("kind", "text", "expected", "found"),
    [
        (
            TS,
            '"2026-01-02T03:04:05.1234567"',
            "timestamp as ISO 8601, to the microsecond",
            '"2026-01-02T03:04:05.1234567"',
        ),
        (pa.int64(), "1.0", "int (64 bit)", "1.0"),
        (pa.float64(), '"\x9b2J\u202e\x7f"', "float (64 bit)", r'"\u009b2J\u202e\u007f"'),
        (pa.int32(), '"a\U000e0041\ufeff"', "int (32 bit)", r'"a\U000e0041\ufeff"'),
    ],
)
def test_reasons_are_true_and_safe_to_print(kind: pa.DataType, text: str, expected: str, found: str) -> None:
    assert decode_one(kind, text) == ("rejected", ("a", expected, found))


def test_what_no_column_takes_may_be_no_json_of_the_standard() -> None:
    """As docs/formats.md says: only declared fields are judged."""
    schema = pa.schema([pa.field("a", pa.float64())])
    ignored = '{"a":1,"b":NaN,"c":{"d":1,"d":2},"b":-Infinity}'
    found = assert_every_way_agrees(schema, [ignored, '{"a":NaN}', '{"a":1,"a":1}', '{"a":1e-400}', '{"a":1e400}'])
    assert [kind for kind, _ in found] == ["row", "rejected", "rejected", "row", "rejected"]
    assert found[3][1]["a"].to_pylist() == [0.0], "the nearest float"


def test_rejections_read_well() -> None:
    schema = pa.schema(
        [pa.field("id", pa.string(), False), pa.field("customer", pa.struct([("addresses", pa.list_(POINT))]))]
    )
    messages: list[bytes | str] = [
        '{"id":"1"}',
        '{"id":"2","customer":{"addresses":[{"x":1},{"x":1},{"x":"12x"}]}}',
        "{}",
        "",
        " \n",
        "[1]",
        b'{"id":"\xff"}',
        '{"id":"1"',
        "\ufeff{}",
        '{"id":"%s"' % ("x" * 1000),
        json.dumps({"id": "3", "customer": "x" * 1000}),
    ]
    found = assert_every_way_agrees(schema, messages)
    assert [each[1] for each in found[1:9]] == [
        ("customer.addresses[2].x", "int (32 bit)", '"12x"'),
        ("id", "string, not null", "no such field"),
        ("", "a JSON object", "an empty value"),
        ("", "a JSON object", "only white space"),
        ("", "a JSON object", "an array"),
        ("", "a JSON object", "bytes that are not UTF-8, at byte 7"),
        ("", "a JSON object", "no JSON: Expecting ',' delimiter, at character 9"),
        ("", "a JSON object", "a byte order mark before the JSON text"),
    ]
    assert found[10][1] == ("customer", "an object", '"' + "x" * 78 + "…")


EVENT = {"before": None, "after": {"id": "1"}, "op": "c", "source": {"db": "shop"}}


@pytest.mark.parametrize(
    ("record", "envelope"),
    [
        (EVENT, "debezium"),
        ({"schema": {}, "payload": EVENT}, "debezium"),
        ({"schema": {}, "payload": {"id": "1"}}, "connect"),
        ({"payload": '{"id": "1"}', "schema": None}, "connect"),
    ],
)
@pytest.mark.parametrize("nullable", [True, False])
def test_a_record_in_an_envelope_is_bad_and_not_nulls_beside_plain_ones(
    record: dict[str, Any], envelope: str, nullable: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable), pa.field("n", pa.int64())])
    found = assert_every_way_agrees(schema, ['{"id": "a"}', json.dumps(record), '{"id": "b", "other": 1}'])
    assert [kind for kind, _ in found] == ["row", "rejected", "row"]
    field, expected, _ = found[1][1]
    assert field == "" and f"need `source.envelope: {envelope}`" in expected


def test_fields_that_are_named_like_an_envelopes_are_read() -> None:
    records = [{"schema": "a", "payload": None}, {"payload": "b"}, {"x": 1}, {"schema": "c", "payload": 1, "x": 1}]
    schema = pa.schema([("schema", pa.string()), ("id", pa.string())])
    found = rows_of(assert_every_way_agrees(schema, [json.dumps(record) for record in records]))
    assert [row["schema"] for row in found] == ["a", None, None, "c"]


WIDE = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("ratio", pa.float32()),
        pa.field("on", pa.date32()),
        pa.field("at", TS),
        pa.field("raw", pa.binary()),
        pa.field("point", POINT, metadata={"doc": "d"}),
        pa.field("points", pa.list_(pa.field("element", POINT, False)), False),
    ],
    metadata={"owner": "me"},
)


def wide(number: int) -> str:
    full = {
        "id": number,
        "name": f"n{number}",
        "price": f"{number}.25",
        "ratio": number / 2,
        "on": "2026-11-21",
        "at": "2026-11-21T10:00:00Z",
        "raw": "AAEC",
        "point": {"x": number},
        "points": [{"x": 1, "y": 2.5}] * (number % 3),
        "more": {"id": None, "points": [1]},
    }
    return json.dumps(full) if number % 5 else json.dumps({"points": [], "point": None, "id": number})


def test_good_batches_take_the_fast_path() -> None:
    values = values_of([wide(n) for n in range(500)])
    converter = JsonConverter(WIDE)
    assert converter._fast is not None
    assert converter._fast.read(values).rows == exact_only(WIDE).decode(values).rows
    assert converter.decode(values).kept is None
    assert outcome(converter.decode(values), 500, WIDE)


@pytest.mark.parametrize("around", ["%s\n", "\r\n %s \t", "\n\n%s\n\n"])
def test_white_space_around_and_inside_records_stays_on_the_fast_path(around: str) -> None:
    messages = [around % json.dumps(json.loads(wide(n)), indent=2) for n in range(20)]
    fast = JsonConverter(WIDE)._fast
    assert fast is not None
    assert fast.read(values_of(messages)).rows == exact_only(WIDE).decode(values_of([wide(n) for n in range(20)])).rows


def test_bad_records_in_a_large_batch_are_found_where_they_are() -> None:
    messages = [wide(n) for n in range(5000)]
    for bad in (0, 17, 2500, 2501, 4999):
        messages[bad] = '{"id":"x"}'
    decoded = JsonConverter(WIDE).decode(values_of(messages))
    assert [each.index for each in decoded.rejected] == [0, 17, 2500, 2501, 4999]
    assert decoded.rejected[0] == Rejected(0, "id", "int (64 bit)", '"x"')
    assert decoded.kept is not None
    assert decoded.rows["id"].to_pylist() == decoded.kept.to_pylist()


def test_slices_and_empty_batches() -> None:
    values = values_of([wide(n) for n in range(10)])
    assert JsonConverter(WIDE).decode(values.slice(3, 4)).rows["id"].to_pylist() == [3, 4, 5, 6]
    assert outcome(JsonConverter(WIDE).decode(values.slice(0, 0)), 0, WIDE) == []


def test_what_the_caller_gets_wrong_raises() -> None:
    with pytest.raises(ValueError, match="tombstones"):
        JsonConverter(WIDE).decode(pa.array([b"{}", None], pa.binary()))
    with pytest.raises(TypeError, match="binary"):
        JsonConverter(WIDE).decode(pa.array(["{}"]))
    with pytest.raises(ValueError, match=r"format 'jsonn' is not known; known are: json, .*; did you mean json?"):
        converter_for("jsonn", WIDE)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("a", pa.struct([("m", pa.map_(pa.int32(), pa.string()))]))]), r"field a\.m: the keys"),
        (pa.schema([("a", pa.list_(pa.uint8()))]), r"field a\[\]: uint8 cannot"),
        (pa.schema([("a", pa.timestamp("ns"))]), "field a: timestamp"),
        (pa.schema([("a", pa.timestamp("us", "Europe/Berlin"))]), "field a: timestamp"),
        (pa.schema([("a", pa.decimal128(5, -2))]), "field a: decimal"),
        (pa.schema([("a", pa.null())]), "field a: null"),
        (pa.schema([("a", pa.struct([]))]), "field a: at least one"),
        (pa.schema([]), "the schema: at least one"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "the schema: declared more than once: a"),
    ],
)
def test_schemas_that_json_cannot_give_are_refused(schema: pa.Schema, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        converter_for("json", schema)


def test_converters_travel_to_workers() -> None:
    values = values_of([wide(1)])
    again = pickle.loads(pickle.dumps(converter_for("json", WIDE)))
    assert again.decode(values) == JsonConverter(WIDE).decode(values)
    code = "import sys, hudi_ingest.records.convert.json.converter; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


SMALL = pa.schema([pa.field("a", pa.int64()), pa.field("f", pa.float64()), pa.field("s", pa.string())])
POISON: list[bytes] = [
    b"",
    b" ",
    b"\n",
    b"null",
    b" null ",
    b'{"a":1} null',
    b'{"a":1} null {"a":2}',
    b"{}null{}",
    b'{"z":1}null{"z":1}',
    b'{"z":{"z":1}} null\n{}',
    b"NaN",
    b"{",
    b"}",
    b"{}{}",
    b"{}\n{}",
    b'{"a":1}{"a":2}',
    b'{"a":1}\n\n',
    b'{"a"',
    b":2}",
    b'{"a":',
    b'{"a":1}}',
    b'{"s":"}',
    b'{"}',
    b'{"s":"x\ny"}',
    b"{}\0",
    b"{}\0{}",
    b'{"s":"\0"}',
    b"\0",
    b'{"a":1,"b":"\0"}',
    b"\xef\xbb\xbf{}",
    b"{}\xef\xbb\xbf",
    b'{"s":"\xff"}',
    b'{"b":"\xc0\x80"}',
    b'{"s":"\xed\xa0\x80"}',
    '{"s":"é"}'.encode("utf-16"),
    '{"s":"é"}'.encode("utf-8-sig"),
    b'{"a":1,"a":2}',
    b'{"a":null,"a":1}',
    b'{"\\u0061":1,"a":1}',
    b'{"\\u0061":1}',
    b'{"b":1,"b":2}',
    b'{"b":NaN}',
    b'{"b":-NaN}',
    b'{"b":[Inf,-Inf,Infinity,-Infinity,{"c":NaN}],"a":3}',
    b'{"b":Infinit}',
    b'{"b":Inf1}',
    b'{"b":--Inf}',
    b'{"b":NaNNaN}',
    b'{"b":nan}',
    b'{"b":"NaN Inf"}',
    b'{"f":NaN}',
    b'{"f":Inf}',
    b'{"b":"\\ud800"}',
    b'{"\\ud800":1}',
    b'{"b":%s}' % (b"9" * 100_000),
    b'{"a":%s}' % (b"9" * 100_000),
    b'{"f":1%s.5}' % (b"0" * 100_000),
    b'{"b":1e99999999999999}',
    b'{"b":01}',
    b'{"b":+1}',
    b'{"b":.5}',
    b'{"b":1.}',
    b'{"b":tru}',
    b'{"b":1,}',
    b'{"b":[1,]}',
    b"{'b':1}",
    b'{"b":1}//c',
    b'{"b":/*c*/1}',
    b'{"b":\x0b1}',
    b'{"b":\xc2\xa01}',
    b'{"b":%s}' % (b"[" * 10_000 + b"]" * 10_000),
    b'{"b":%s1%s}' % (b'{"b":' * 10_000, b"}" * 10_000),
    b'{"a":%s1%s}' % (b'{"a":' * 10_000, b"}" * 10_000),
    b'{"b":%s1%s}' % (b'[{"b":' * 10_000, b"}]" * 10_000),
    b'{"b":%s%s}' % (b"[" * 10_000, b"]" * 9_999),
    b'{"b":%s' % (b"[" * 10_000),
    b'{"b":%s NaN, "\\ud800", 1 %s, "a":5}' % (b"[" * 10_000, b"]" * 10_000),
    b"[" * 10_000,
    b'{"b":{}%s' % (b"}" * 10_000),
    b'{"s":"%s"}' % (b"x" * 1_000_000),
    b'{"b":"%s"}' % (b"\\u0041" * 200_000),
    b'{"a":1,"f":2,"s":"fine"}',
]


def test_poison_has_the_same_outcome_alone_in_a_batch_and_on_the_exact_path() -> None:
    found = assert_every_way_agrees(SMALL, POISON)
    by_message = dict(zip(POISON, found, strict=True))
    for good in (b'{"b":-NaN}', b'{"b":1,"b":2}', b'{"b":%s}' % (b"[" * 10_000 + b"]" * 10_000), b'{"a":1}\n\n'):
        assert by_message[good][0] == "row"
    for bad in (b"null", b"{}{}", b"{}null{}", b"{}\0", b'{"a":1,"a":2}', b'{"b":%s}' % (b"[" * 10_000 + b"]" * 9_999)):
        assert by_message.get(bad, ("rejected",))[0] == "rejected"


@pytest.mark.parametrize("seed", range(6))
def test_poison_among_others_never_shifts_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "EXACT_ROWS", 3)  # pieces of one record and more are all tried on the fast path
    chance = random.Random(seed)
    short = [each for each in POISON if len(each) < 1000]
    messages = [chance.choice(short) if chance.random() < 0.1 else b'{"a":%d,"s":"x"}' % n for n in range(200)]
    assert_every_way_agrees(SMALL, messages)


FRAGMENTS = [
    b"{}",
    b'{"a":1}',
    b'{"',
    b'"}',
    b"}",
    b"{",
    b'"',
    b"\n",
    b"null",
    b"[",
    b"]",
    b",",
    b'"a":',
    b"1",
    b"\0",
    b"NaN",
]


@RELAXED
@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=6).map(b"".join), min_size=1, max_size=6))
def test_fragments_of_json_never_conspire(messages: list[bytes]) -> None:
    assert_every_way_agrees(SMALL, messages)


@RELAXED
@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=6).map(lambda f: b"{" + b"".join(f) + b"}"), min_size=1))
def test_framed_fragments_never_conspire(messages: list[bytes]) -> None:
    assert_every_way_agrees(SMALL, messages)


# Random schemas with random records, written by the standard encoder.


def scalars() -> st.SearchStrategy[pa.DataType]:
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    plain = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()]
    return st.sampled_from([*plain, pa.date32(), TS, NTZ, pa.binary()]) | decimals


def names() -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8"), max_size=5)


def fields_of(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.tuples(names(), types, st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda each: each[0]).map(
        lambda found: [pa.field(name, type_, nullable) for name, type_, nullable in found]
    )


def types(maps: bool) -> st.SearchStrategy[pa.DataType]:
    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        item = st.tuples(inner, st.booleans())
        found = fields_of(inner).map(pa.struct) | item.map(lambda it: pa.list_(pa.field("element", it[0], it[1])))
        if maps:
            found |= item.map(lambda it: pa.map_(pa.string(), pa.field("value", it[0], it[1])))
        return found

    return st.recursive(scalars(), nested, max_leaves=5)


def schemas(maps: bool = False) -> st.SearchStrategy[pa.Schema]:
    return fields_of(types(maps)).map(pa.schema)


Sample = tuple[Any, Any]
"""A value as Arrow gives it back, and as `json.dumps` takes it."""


def samples(type_: pa.DataType) -> st.SearchStrategy[Sample]:
    if pa.types.is_boolean(type_):
        return st.booleans().map(lambda v: (v, v))
    if pa.types.is_integer(type_):
        half = 1 << (type_.bit_width - 1)
        return st.integers(-half, half - 1).map(lambda v: (v, v))
    if pa.types.is_floating(type_):
        return st.floats(allow_nan=False, allow_infinity=False, width=type_.bit_width).map(lambda v: (v, v))
    if pa.types.is_string(type_):
        return st.text(st.characters(codec="utf-8"), max_size=8).map(lambda v: (v, v))
    if pa.types.is_decimal(type_):
        most = 10**type_.precision - 1
        scaled = st.integers(-most, most).map(lambda v: Decimal(f"{v}E-{type_.scale}"))
        return scaled.flatmap(lambda v: st.sampled_from([str(v), format(v, "f")]).map(lambda text: (v, text)))
    if pa.types.is_date32(type_):
        return st.dates().map(lambda v: (v, v.isoformat()))
    if pa.types.is_timestamp(type_):
        zone = UTC if type_.tz else None
        return st.datetimes().map(lambda v: (v.replace(tzinfo=zone), v.isoformat()))
    if pa.types.is_binary(type_):
        return st.binary(max_size=8).map(lambda v: (v, base64.b64encode(v).decode()))
    if pa.types.is_map(type_):
        entries = st.dictionaries(names(), field_samples(type_.item_field), max_size=3)
        return entries.map(lambda v: ([(k, it[0]) for k, it in v.items()], {k: it[1] for k, it in v.items()}))
    if pa.types.is_list(type_):
        return st.lists(field_samples(type_.value_field), max_size=3).map(
            lambda v: ([it[0] for it in v], [it[1] for it in v])
        )
    return objects([type_.field(i) for i in range(type_.num_fields)])


def field_samples(field: pa.Field) -> st.SearchStrategy[Sample]:
    found = samples(field.type)
    return st.just((None, None)) | found if field.nullable else found


def objects(fields: Sequence[pa.Field]) -> st.SearchStrategy[Sample]:
    members = st.fixed_dictionaries({field.name: field_samples(field) for field in fields})

    def split(found: tuple[dict[str, Sample], bool, Any]) -> Sample:
        row, absent, extra = found
        given = {name: it[1] for name, it in row.items() if it[1] is not None or not absent}
        given.update({name: value for name, value in extra.items() if name not in row})
        return {name: it[0] for name, it in row.items()}, given

    extra = st.dictionaries(names(), st.none() | st.integers() | st.lists(st.booleans(), max_size=2), max_size=2)
    return st.tuples(members, st.booleans(), extra).map(split)


def written(indent: bool, ascii_only: bool, tight: bool) -> Callable[[Any], str]:
    return lambda value: json.dumps(
        value,
        indent=1 if indent else None,
        ensure_ascii=ascii_only,
        separators=(",", ":") if tight else None,
    )


@RELAXED
@given(st.data(), st.booleans(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_random_records_come_back_as_they_were_put_in(data: st.DataObject, maps: bool, form: Any) -> None:
    schema = data.draw(schemas(maps))
    records = data.draw(st.lists(objects(list(schema)), min_size=1, max_size=6))
    values = values_of([written(*form)(record) for _, record in records])
    decoded = JsonConverter(schema).decode(values)
    assert decoded.rejected == ()
    outcome(decoded, len(values), schema)
    columns = [pa.array([row[field.name] for row, _ in records], field.type) for field in schema]
    assert decoded.rows == pa.RecordBatch.from_arrays(columns, schema=schema)
    assert decoded.rows == exact_only(schema).decode(values).rows


def corrupted(messages: list[bytes], chance: random.Random) -> list[bytes]:
    found = list(messages)
    for _ in range(chance.randrange(1, 4)):
        i = chance.randrange(len(found))
        message = found[i]
        place = chance.randrange(len(message) + 1)
        match chance.randrange(8):
            case 0:
                found[i] = message[:place] + bytes([chance.randrange(256)]) + message[place + 1 :]
            case 1:
                found[i] = message[:place] + message[place + 1 :]
            case 2:
                found[i] = message + chance.choice([b"", b"\n", b" "]) + chance.choice(found)
            case 3:
                found[i : i + 1] = [message[:place], message[place:]]
            case 4:
                found[i] = message[:place] + chance.choice(FRAGMENTS) + message[place:]
            case 5:
                other = chance.choice(found)
                found[i] = message[:place] + other[chance.randrange(len(other) + 1) :]
            case 6:
                found[i] = message.replace(b":", chance.choice([b":-", b":1e400,", b":NaN,", b":[", b': "'])[:9], 1)
            case _:
                found[i] = message[:-1] + b"," + message.lstrip()[1:]  # every key a second time
    return found


@RELAXED
@given(st.data(), st.integers(0, 2**32))
def test_random_corruption_never_raises_and_never_shifts(data: st.DataObject, seed: int) -> None:
    schema = data.draw(schemas())
    records = data.draw(st.lists(objects(list(schema)), min_size=1, max_size=5))
    chance = random.Random(seed)
    form = written(chance.random() < 0.3, chance.random() < 0.5, chance.random() < 0.5)
    assert_every_way_agrees(schema, corrupted([form(record).encode() for _, record in records], chance))


@RELAXED
@given(st.data())
def test_records_of_another_schema_have_one_outcome(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    other = pa.schema([pa.field(field.name, data.draw(types(False)), field.nullable) for field in schema])
    records = data.draw(st.lists(objects(list(other)), min_size=1, max_size=3))
    assert_every_way_agrees(schema, [json.dumps(record) for _, record in records])


def texts(pieces: Sequence[str], chance: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 6)))


def mutated(text: str, chance: random.Random, letters: str) -> str:
    for _ in range(chance.randrange(0, 3)):
        place = chance.randrange(len(text) + 1)
        keep = place + chance.randrange(2)
        text = text[:place] + chance.choice(["", chance.choice(letters)]) + text[keep:]
    return text


def text_cases(kind: str, chance: random.Random) -> list[str]:
    """JSON values near to what each textual type accepts."""
    quoted: Iterator[str]
    if kind == "decimal":
        bare = list(texts(["0", "1", "00", "99", ".", "-", "+", "e", "E", "e-", "5", "e2"], chance, 800))
        quoted = (json.dumps(each) for each in bare)
        return [*bare, *quoted]
    if kind == "float":
        numbers = []
        for _ in range(400):
            middle = struct.unpack("<f", struct.pack("<I", chance.randrange(0x7F800000)))[0]
            above = struct.unpack("<f", struct.pack("<I", min(0x7F7FFFFF, chance.randrange(0x7F800000))))[0]
            half = Decimal(middle) + (Decimal(above) - Decimal(middle)) / 2
            numbers += [repr(middle), str(half), f"{half:.25e}", f"{Decimal(middle):.7e}"]
        return numbers + [f"{chance.uniform(1, 10)!r}e{chance.randrange(-330, 312)}" for _ in range(400)]
    start = datetime(1, 1, 1)
    span = datetime(9999, 12, 31) - start
    cases = []
    for _ in range(800):
        moment = start + timedelta(seconds=chance.randrange(int(span.total_seconds())))
        text = moment.isoformat(chance.choice("T "))[: chance.choice([10, 13, 16, 19, 19])]
        if len(text) == 19:
            text += chance.choice(["", "." + "123456789"[: chance.randrange(8)] + "0" * chance.randrange(4)])
        text += chance.choice(["", "", "Z", "+01:00", "-2359", "+05", "-00:00", "+1", " +01:00"])
        cases.append(json.dumps(mutated(text, chance, "0123456789-:+ TZtz.,")))
    return cases


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("decimal", pa.decimal128(5, 2)),
        ("decimal", pa.decimal128(38, 3)),
        ("decimal", pa.decimal128(3, 3)),
        ("float", pa.float32()),
        ("float", pa.float64()),
        ("moment", TS),
        ("moment", NTZ),
        ("moment", pa.date32()),
    ],
    ids=str,
)
def test_both_paths_read_near_misses_alike(kind: str, type_: pa.DataType) -> None:
    schema = pa.schema([pa.field("a", type_)])
    converter, exact = JsonConverter(schema), exact_only(schema)
    for text in text_cases(kind, random.Random(7)):
        values = values_of([f'{{"a":{text}}}'])
        fast, slow = (outcome(each.decode(values), 1, schema) for each in (converter, exact))
        assert fast == slow, text


def test_the_parser_without_recursion_agrees_with_the_standard_one() -> None:
    chance = random.Random(3)
    whole = json.dumps({"a": [1, 2.5, "x\u00e9\n", None, True, {}, [], {"b": [[], [{}]]}], "c": {"d": -1e5}})
    for _ in range(3000):
        text = mutated(whole, chance, '{}[]",:0 1eNaI\\').replace("Inf", "")
        results: list[Any] = []
        for parse in (json_exact._DECODER.decode, json_exact._parse_without_recursion):
            try:
                results.append(parse(text))
            except json.JSONDecodeError:
                results.append(None)
        assert results[0] == results[1], text
