"""Records of Kafka Connect's JSON converter: what their schema says of a value, and records without one."""

from __future__ import annotations

import base64
import json
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.convert.connect.debezium import NamingFields, event_schema
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.connect.values import _of_variable_decimal, _one_by_one, decimals_of_base64
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.convert.values import RequiredFields
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.transform.casts import convert_exactly

pytestmark = pytest.mark.fast

ROW = parse_ddl(
    "id long not null, cents decimal(12,2), at timestamp, day date, name string, "
    "inner struct<cents: decimal(12,2), at: timestamp>, days array<date>, times map<string, timestamp>"
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def of(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, **({"name": name} if name else {}), **more}


def struct(**members: dict[str, Any]) -> dict[str, Any]:
    return of("struct", fields=[{**member, "field": name} for name, member in members.items()])


DECIMAL = of("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"})
MICROS = of("int64", "io.debezium.time.MicroTimestamp")
DAYS = of("int32", "io.debezium.time.Date")
SCHEMA = struct(
    id=of("int64"),
    cents=DECIMAL,
    at=MICROS,
    day=DAYS,
    name=of("string"),
    inner=struct(cents=DECIMAL, at=MICROS),
    days=of("array", items=DAYS),
    times=of("map", keys=of("string"), values=MICROS),
)
COMPACT = (",", ":")


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def framed(payload: Any, schema: Any = SCHEMA, separators: tuple[str, str] = COMPACT) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=separators).encode()


def decode(*values: bytes, schema: pa.Schema = ROW, must_be_framed: bool = True) -> Decoded:
    return ConnectJsonConverter(schema, must_be_framed).decode(pa.array(values, pa.binary()))


def test_a_keyed_table_takes_no_record_whose_schema_lacks_a_column() -> None:
    row = parse_ddl("id long, name string, inner struct<a: int, b: int>")
    whole = struct(id=of("int64"), name=of("string"), inner=struct(a=of("int32"), b=of("int32")))
    renamed = struct(id=of("int64"), title=of("string"), inner=struct(a=of("int32")))
    values = pa.array([framed({"id": 1, "name": "x"}, whole), framed({"id": 1, "title": "x"}, renamed)], pa.binary())

    def outcome(*optional: str) -> Decoded:
        required = RequiredFields(row, frozenset(optional))
        converter: ConnectJsonConverter = pickle.loads(pickle.dumps(ConnectJsonConverter(row, True, required)))
        return converter.decode(values)

    (refused,) = outcome().rejected
    assert (refused.index, refused.field) == (1, "name")
    assert "`source.optional_fields: [name, inner.b]`" in refused.expected
    assert refused.found == "no such field; not among the columns: title"
    assert [refused.field for refused in outcome("name").rejected] == ["inner.b"]
    assert rows_of(outcome("name", "inner.b"))[1] == {"id": 1, "name": None, "inner": None}


def rows_of(outcome: Decoded) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = outcome.rows.to_pylist()
    return rows


def one(kind: str, connect: dict[str, Any], value: Any) -> Any:
    """What a value of this Connect type is in a column of this type; the refusal if it is none."""
    outcome = decode(framed({"v": value}, struct(v=connect)), schema=parse_ddl(f"v {kind}"))
    return rows_of(outcome)[0]["v"] if not outcome.rejected else outcome.rejected[0]


AT = datetime(2026, 1, 31, 12, 34, 56, 123456, timezone.utc)
TICKS = (AT - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("kind", "connect", "value", "expected"),
    [
        ("decimal(12,2)", DECIMAL, unscaled(-5), Decimal("-0.05")),
        ("decimal(20,4)", DECIMAL, unscaled(10**15), Decimal("10000000000000.0000")),
        ("decimal(38,2)", DECIMAL, unscaled(10**38 - 1), Decimal("9" * 36 + ".99")),
        ("string", DECIMAL, unscaled(150), "1.50"),
        ("double", DECIMAL, unscaled(150), 1.5),
        ("decimal(12,2)", DECIMAL, 1.5, Decimal("1.50")),
        ("decimal(12,2)", of("string"), "1.50", Decimal("1.50")),
        ("decimal(12,2)", of("double"), 1.5, Decimal("1.50")),
        (
            "decimal(12,2)",
            of("struct", "io.debezium.data.VariableScaleDecimal"),
            {"scale": 1, "value": unscaled(15)},
            Decimal("1.50"),
        ),
        ("date", DAYS, 20484, date(2026, 1, 31)),
        ("date", of("int32", "org.apache.kafka.connect.data.Date"), -1, date(1969, 12, 31)),
        ("timestamp", MICROS, TICKS, AT),
        ("timestamp", of("int64", "io.debezium.time.NanoTimestamp"), TICKS * 1000, AT),
        ("timestamp", of("int64", "io.debezium.time.Timestamp"), TICKS // 1000, AT.replace(microsecond=123000)),
        ("timestamp", of("int64", "org.apache.kafka.connect.data.Timestamp"), -1, EPOCH - timedelta(milliseconds=1)),
        ("timestamp", of("string", "io.debezium.time.ZonedTimestamp"), "2026-01-31T14:34:56.123456+02:00", AT),
        ("long", MICROS, TICKS, TICKS),
        ("int", of("int16"), 7, 7),
        ("binary", of("bytes"), "AP8=", b"\x00\xff"),
        ("string", of("string", "io.debezium.data.Json"), '{"a": 1}', '{"a": 1}'),
        ("array<decimal(12,2)>", of("array", items=DECIMAL), [unscaled(1), None], [Decimal("0.01"), None]),
    ],
)
def test_a_value_is_what_its_schema_says(kind: str, connect: dict[str, Any], value: Any, expected: Any) -> None:
    assert one(kind, connect, value) == expected
    assert one(kind, connect, None) is None


@pytest.mark.parametrize(
    ("kind", "connect", "value"),
    [
        ("decimal(4,2)", DECIMAL, unscaled(10_000)),
        ("decimal(12,1)", DECIMAL, unscaled(15)),
        ("decimal(38,2)", DECIMAL, unscaled(10**38)),
        ("decimal(12,2)", DECIMAL, unscaled(2**200)),
        ("decimal(12,2)", DECIMAL, "Alg"),
        ("decimal(12,2)", DECIMAL, "A=gg"),
        ("decimal(12,2)", DECIMAL, ""),
        ("decimal(12,2)", DECIMAL, "A!=="),
        ("decimal(12,2)", DECIMAL, "Ä==="),
        ("date", DAYS, 2**31 - 1),
        ("date", DAYS, "2026-01-31"),
        ("timestamp", MICROS, 2**63 - 1),
        ("timestamp", of("int64", "io.debezium.time.Timestamp"), 2**62),
        ("timestamp", of("int64", "io.debezium.time.Timestamp"), -(2**63)),
        ("timestamp", of("int64", "io.debezium.time.NanoTimestamp"), 1),
        ("timestamp", of("int64"), TICKS),
        ("timestamp", MICROS, "2026-01-31"),
        ("array<decimal(12,2)>", of("array", items=DECIMAL), [unscaled(1), unscaled(2**100)]),
    ],
)
def test_a_value_that_is_not_what_its_schema_says_is_bad(kind: str, connect: dict[str, Any], value: Any) -> None:
    refusal = one(kind, connect, value)
    assert refusal.field.partition("[")[0] == "v"


def test_an_event_without_a_schema_shows_by_its_fields_that_the_source_has_lost_a_column() -> None:
    row = parse_ddl("id long, city string, note string")
    events = event_schema(row, NamingFields(("id",)))

    def outcome(*rows: Any, **required: Any) -> Decoded:
        needs = RequiredFields(row, within="after", of_payloads=True, **required)
        values = [json.dumps({"before": {"id": 1, "city": "x"}, "after": each, "op": "u"}).encode() for each in rows]
        return ConnectJsonConverter(events, False, needs).decode(pa.array(values, pa.binary()))

    whole, renamed = {"id": 1, "city": None, "note": "city"}, {"id": 2, "town": "Bern", "note": None}
    assert outcome(whole, None).rejected == (), "null is a value, and a delete has no row"
    found = outcome(whole, renamed, None, {"id": 3, "town": "Bonn"}).rejected
    assert [(each.index, each.field) for each in found] == [(1, "after.city"), (3, "after.city")]
    assert found[0].expected.startswith("it in the record, because a row without it would erase its value")
    assert "generated column of PostgreSQL" in found[0].expected
    assert found[0].found == "no such field; not among the columns: town"
    assert "`source.optional_fields: [city, note]`" in found[1].expected
    assert outcome(renamed, optional=frozenset(["city"])).rejected == ()
    assert outcome(renamed, recent=frozenset(["city"])).rejected == ()


def test_records_without_a_schema_are_plain_json_with_dates_as_days() -> None:
    at = b'{"id":1,"at":"2026-01-31T12:34:56.123456Z","day":20484,"cents":"1.50","days":[1]}'
    text = b'{"id":2,"day":"2026-01-31"}'
    number = b'{"id":3,"at":1769862896123456}'
    null = b'{"schema":null,"payload":{"id":4,"day":20484}}'
    outcome = decode(at, text, number, null, must_be_framed=False)
    assert [(row["id"], row["at"], row["day"], row["days"]) for row in rows_of(outcome)] == [
        (1, AT, date(2026, 1, 31), [date(1970, 1, 2)]),
        (2, None, date(2026, 1, 31), None),
        (4, None, date(2026, 1, 31), None),
    ]
    (refusal,) = outcome.rejected
    assert (refusal.index, refusal.field, refusal.found) == (2, "at", "1769862896123456")
    assert "has no unit: declare the column as long and use the transform `timestamp`" in refusal.expected


def test_the_schema_may_change_in_the_middle_and_be_written_in_any_way() -> None:
    wider = struct(id=of("int64"), cents=of("bytes", DECIMAL["name"], parameters={"scale": "1"}))
    values = [
        framed({"id": 1, "cents": unscaled(15)}),
        framed({"id": 2, "cents": unscaled(15)}, wider),
        framed({"id": 3, "cents": unscaled(15)}, separators=(", ", ": ")),
        b' {"payload" : {"id":4,"cents":"Dw=="} ,"more":[1,{"x":"}"}], "schema":' + json.dumps(wider).encode() + b"}\n",
        framed({"id": 5, "cents": unscaled(15)}),
    ]
    cents = [(row["id"], str(row["cents"])) for row in rows_of(decode(*values))]
    assert cents == [(1, "0.15"), (2, "1.50"), (3, "0.15"), (4, "1.50"), (5, "0.15")]


def test_what_is_no_record_of_connect_is_bad() -> None:
    values = [
        b"",
        b'{"id":1}',
        b"nonsense",
        b'{"schema":{"type":"struct"',
        b'{"schema":{},"payload":{"id":1}}',
        b'{"schema":7,"payload":{"id":1}}',
        b'{"schema":{"type":"struct","fields":[7]},"payload":{"id":1}}',
        framed(None),
        framed([1]),
        b'{"schema":' + json.dumps(SCHEMA).encode() + b',"payload":{"id":1},"payload":{"id":2}}',
        framed({"id": 1}),
    ]
    outcome = decode(*values)
    assert [row["id"] for row in rows_of(outcome)] == [1]
    assert [refusal.index for refusal in outcome.rejected] == [*range(10)]
    assert outcome.rejected[4].field == "schema"
    deep: Any = of("string")
    for _ in range(50):
        deep = of("array", items=deep)
    assert "nested deeper" in decode(framed({"id": 1}, struct(id=of("int64"), x=deep))).rejected[0].found
    assert decode(b"[" * 100_000).rejected


def test_many_schemas_in_a_batch() -> None:
    values = [framed({"id": number}, struct(id=of("int64"), **{f"x{number}": of("string")})) for number in range(100)]
    assert [row["id"] for row in rows_of(decode(*values))] == [*range(100)]


def test_it_is_pickled() -> None:
    converter = pickle.loads(pickle.dumps(ConnectJsonConverter(ROW, True)))
    assert rows_of(converter.decode(pa.array([framed({"id": 1})], pa.binary())))[0]["id"] == 1


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=20), st.integers(0, 38), st.integers(0, 3))
def test_decimals_of_base64_are_those_of_java(numbers: list[int | None], scale: int, skipped: int) -> None:
    texts = pa.array([None if number is None else unscaled(number) for number in numbers], pa.string()).slice(skipped)
    exact = [
        None if number is None else Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
        for number in numbers[skipped:]
    ]
    assert decimals_of_base64(texts, scale).to_pylist() == exact


VARIABLE = of(
    "struct",
    "io.debezium.data.VariableScaleDecimal",
    fields=[{**of("int32"), "field": "scale"}, {**of("bytes"), "field": "value"}],
)


def variable(scale: int, number: int) -> dict[str, Any]:
    return {"scale": scale, "value": unscaled(number)}


@pytest.mark.parametrize(
    ("scale", "number", "text"),
    [
        (2, 12345, "123.45"),
        (38, 1, f"0.{'0' * 37}1"),
        (39, 1, f"0.{'0' * 38}1"),
        (60, 1, f"0.{'0' * 59}1"),
        (0, 10**38, f"1{'0' * 38}"),
        (5, -(10**45), f"-1{'0' * 40}.00000"),
        (-3, 5, "5000"),
        (-3, 0, "0"),
        (20, 2 * 10**37, f"200000000000000000.{'0' * 20}"),
        (16_383, -1, f"-0.{'0' * 16_382}1"),
        pytest.param(0, 10**5000, "1" + "0" * 5000, id="5001 digits"),
    ],
)
def test_a_text_has_all_digits_of_a_number_that_no_decimal_holds(scale: int, number: int, text: str) -> None:
    assert one("string", VARIABLE, variable(scale, number)) == text
    assert one("array<string>", of("array", items=VARIABLE), [variable(scale, number), None]) == [text, None]
    fixed = of("bytes", DECIMAL["name"], parameters={"scale": str(scale)})
    assert one("string", fixed, unscaled(number)) == text


@pytest.mark.parametrize(
    ("scale", "number", "value"),
    [(-3, 5, "5000"), (50, 0, "0"), (40, 123 * 10**40, "123"), (39, 1234 * 10**37, "12.34"), (5, -(10**24), "-1E+19")],
)
def test_a_decimal_is_the_number_whatever_its_scale_was(scale: int, number: int, value: str) -> None:
    assert one("decimal(24,4)", VARIABLE, variable(scale, number)) == Decimal(value)
    assert one("double", VARIABLE, variable(scale, number)) == float(value)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("decimal(20,4)", variable(5, 1), "0.00001, with 1 digit before and 5 after the point"),
        ("decimal(20,4)", variable(60, 1), f"0.{'0' * 37}…, with 1 digit before and 60 after the point"),
        ("decimal(20,4)", variable(-20, 7), f"7{'0' * 20}, with 21 digits before and 0 after the point"),
        ("double", variable(0, 10**400), f"1{'0' * 38}…, with 401 digits before and 0 after the point"),
        ("string", variable(2**31 - 1, 1), 'scale 2147483647 and "AQ=="'),
        ("string", {"scale": 1, "value": "x"}, 'scale 1 and "x"'),
        ("string", {"scale": 1, "value": ""}, 'scale 1 and ""'),
    ],
)
def test_a_number_that_its_column_does_not_hold_is_shown_with_the_remedy(kind: str, value: Any, found: str) -> None:
    refusal = one(kind, VARIABLE, value)
    assert (refusal.field, refusal.found) == ("v", found)
    remedy = "for other numbers set Debezium's decimal.handling.mode to string, and declare the column as string"
    assert refusal.expected == f"a {kind} as a scale and base64; {remedy}"


def test_a_refused_number_does_not_change_the_others_of_another_scale() -> None:
    numbers = [variable(1, 15), variable(2, 150), variable(0, 2**60 + 1), None, variable(1, -5)]
    outcome = decode(*(framed({"v": each}, struct(v=VARIABLE)) for each in numbers), schema=parse_ddl("v double"))
    assert [row["v"] for row in rows_of(outcome)] == [1.5, 1.5, None, -0.5]
    assert [bad.index for bad in outcome.rejected] == [2]


@given(
    st.lists(
        st.none() | st.tuples(st.integers(-5, 45), st.integers(-(10**40), 10**40) | st.integers(-99, 99)), max_size=8
    ),
    st.sampled_from([pa.string(), pa.decimal128(20, 4), pa.decimal128(38, 0), pa.float64(), pa.float32()]),
    st.booleans(),
)
def test_numbers_are_the_same_whether_columns_or_single_ones_are_converted(
    drawn: list[tuple[int, int] | None], kind: pa.DataType, in_avro: bool
) -> None:
    raw = pa.binary() if in_avro else pa.string()
    texts = [each and unscaled(each[1]) for each in drawn]
    contents = [base64.b64decode(text) if in_avro and text is not None else text for text in texts]
    scales = [each[0] if each else 0 for each in drawn]
    wire = pa.struct([pa.field("scale", pa.int32(), False), pa.field("value", raw, False)])
    structs = [
        None if content is None else {"scale": scale, "value": content}
        for scale, content in zip(scales, contents, strict=True)
    ]
    array, bad = convert_exactly(pa.array(structs, wire), partial(_of_variable_decimal, kind), kind)
    found = array.to_pylist()
    for place, (scale, content) in enumerate(zip(scales, contents, strict=True)):
        alone, refused = convert_exactly(pa.array([content], raw), partial(_one_by_one, kind, [scale]), kind)
        assert (found[place], place in bad) == (alone[0].as_py(), bool(refused))
    if pa.types.is_string(kind):
        exact = [None if each is None else Decimal(each[1]).scaleb(-each[0], Context(prec=200)) for each in drawn]
        assert [None if text is None else Decimal(text) for text in found] == exact


@given(st.text("AZaz09+/=-_ é", max_size=9) | st.binary(max_size=18).map(lambda raw: base64.b64encode(raw).decode()))
def test_a_text_is_base64_of_a_number_by_columns_and_alone(text: str) -> None:
    single = convert_exactly(pa.array([text]), partial(_one_by_one, pa.string(), [3]), pa.string())
    try:
        columns = decimals_of_base64(pa.array([text]), 3).to_pylist()
    except pa.ArrowInvalid:
        assert single[1] or len(base64.b64decode(text)) >= 16
        return
    assert not single[1]
    assert [Decimal(single[0][0].as_py())] == columns


times = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), timezones=st.just(timezone.utc))
days = st.dates()
rows = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "cents": st.none() | st.integers(-(10**12) + 1, 10**12 - 1).map(lambda number: Decimal(number).scaleb(-2)),
        "at": st.none() | times,
        "day": st.none() | days,
        "name": st.none() | st.text(max_size=9),
        "inner": st.none()
        | st.fixed_dictionaries({"cents": st.none() | st.just(Decimal("0.07")), "at": st.none() | times}),
        "days": st.none() | st.lists(st.none() | days, max_size=3),
        "times": st.none()
        | st.dictionaries(st.sampled_from("abc"), times, max_size=2).map(lambda pairs: [*pairs.items()]),
    }
)


def written(value: Any) -> Any:
    """As Connect's JSON converter writes it."""
    if isinstance(value, Decimal):
        return unscaled(int(value.scaleb(2)))
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    if isinstance(value, dict):
        return {name: written(member) for name, member in value.items()}
    if isinstance(value, list):
        pairs = value and isinstance(value[0], tuple)
        return {key: written(item) for key, item in value} if pairs else [written(item) for item in value]
    return value


@given(st.lists(st.tuples(rows, st.booleans(), st.booleans()), max_size=6))
def test_rows_come_back_whatever_is_between_them(drawn: list[tuple[dict[str, Any], bool, bool]]) -> None:
    values, expected, bad = [], [], []
    for place, (row, spaced, broken) in enumerate(drawn):
        payload = written(row)
        if payload["times"] == []:
            payload["times"] = {}
        if broken:
            payload["day"] = "no day"
            bad.append(place)
        else:
            expected.append(row)
        values.append(framed(payload, separators=(", ", ": ") if spaced else COMPACT))
    outcome = decode(*values)
    assert rows_of(outcome) == expected
    assert [refusal.index for refusal in outcome.rejected] == bad


@pytest.mark.parametrize("with_schema", [True, False])
def test_floats_that_are_no_numbers_are_texts_of_the_converter(with_schema: bool) -> None:
    columns = parse_ddl("x double, y float, more struct<z: array<double>>, name string")
    schema = struct(x=of("double"), y=of("float"), more=struct(z=of("array", items=of("double"))), name=of("string"))
    records = [
        {"x": "NaN", "y": 0.5, "more": {"z": [1.5, "Infinity", None]}, "name": "NaN"},
        {"x": "-Infinity", "y": "NaN", "more": None, "name": None},
        *({"x": text} for text in ("nan", "1.5", "+Infinity", "Inf", "")),
    ]
    values = [framed(record, schema) if with_schema else json.dumps(record).encode() for record in records]
    outcome = decode(*values, schema=columns, must_be_framed=with_schema)
    assert str(rows_of(outcome)) == str(
        [
            {"x": float("nan"), "y": 0.5, "more": {"z": [1.5, float("inf"), None]}, "name": "NaN"},
            {"x": float("-inf"), "y": float("nan"), "more": None, "name": None},
        ]
    )
    assert [refusal.index for refusal in outcome.rejected] == [2, 3, 4, 5, 6]
    assert (
        pickle.loads(pickle.dumps(ConnectJsonConverter(columns, with_schema)))
        .decode(pa.array(values, pa.binary()))
        .rows.num_rows
        == 2
    )


@pytest.mark.parametrize("first", ["day: date, f8: double", "f8: double, day: date"])
@pytest.mark.parametrize("day", [20484, "2026-01-31Z"])
def test_the_field_that_is_wrong_in_either_reading_is_blamed(first: str, day: Any) -> None:
    columns = parse_ddl(f"after struct<{first}>")
    payload = json.dumps({"after": {"day": day, "f8": "x"}}).encode()
    (refusal,) = decode(payload, schema=columns, must_be_framed=False).rejected
    assert (refusal.field, refusal.expected, refusal.found) == ("after.f8", "float (64 bit)", '"x"')


def test_a_record_that_neither_reading_takes_names_the_field_that_stops_the_further_one() -> None:
    columns = parse_ddl("cents decimal(12,2), n int")
    schema = struct(cents=DECIMAL, n=of("int32"))
    for cents in (1.25, unscaled(125)):
        (refusal,) = decode(framed({"cents": cents, "n": "x"}, schema), schema=columns).rejected
        assert (refusal.field, refusal.found) == ("n", '"x"')
    (refusal,) = decode(framed({"cents": "?", "n": 1}, schema), schema=columns).rejected
    assert (refusal.field, refusal.expected) == ("cents", "a decimal(12,2) as base64 of an unscaled number")
    (refusal,) = decode(framed({"cents": 1.255, "n": 1}, schema), schema=columns).rejected
    assert (refusal.field, refusal.expected, refusal.found) == ("cents", "decimal(12,2)", "1.255")


INFINITY, TOO_MANY = 9223372036825200000, 3000000000


@pytest.mark.parametrize("within", ["", "after", "s.t"])
@pytest.mark.parametrize(
    ("bad", "field", "found"),
    [
        ({"valid_to": INFINITY}, "valid_to", str(INFINITY)),
        ({"n": TOO_MANY}, "n", str(TOO_MANY)),
        ({"q": variable(60, 1)}, "q", f"0.{'0' * 37}…, with 1 digit before and 60 after the point"),
        ({"day": 2**31 - 1}, "day", str(2**31 - 1)),
        ({"n": "x"}, "n", '"x"'),
        ({"price": unscaled(10**14)}, "price", "1000000000000.00, with 13 digits before and 2 after the point"),
        ({"price": 1.234}, "price", "1.234"),
        ({"price": "?"}, "price", '"?"'),
        ({"prices": [unscaled(7), "?"]}, "prices", "an array"),
    ],
)
@pytest.mark.parametrize("numeric", [False, True])
def test_a_decimal_that_is_right_is_never_blamed(
    within: str, bad: dict[str, Any], field: str, found: str, numeric: bool
) -> None:
    """Whether decimals are base64 or, with `decimal.format=NUMERIC`, numbers; wherever the row is."""
    row = "valid_to: timestamp, n: int, q: decimal(20,4), price: decimal(12,2), prices: array<decimal(12,2)>, day: date"
    schema = struct(
        valid_to=MICROS, n=of("int32"), q=VARIABLE, price=DECIMAL, prices=of("array", items=DECIMAL), day=DAYS
    )
    cents = 1.23 if numeric else unscaled(123)
    payload: Any = {"valid_to": 1, "n": 1, "q": variable(1, 5), "price": cents, "prices": [cents], "day": 1, **bad}
    types = f"struct<{row}>"
    for name in reversed(within.split(".") if within else []):
        payload, schema, types = {name: payload}, struct(**{name: schema}), f"struct<{name}: {types}>"
    ddl = types.removeprefix("struct<").removesuffix(">")
    (refusal,) = decode(framed(payload, schema), schema=parse_ddl(ddl)).rejected
    assert refusal.field.partition("[")[0] == f"{within}.{field}".lstrip(".")
    if not (numeric and field.startswith("price")) or found == "1.234":
        assert refusal.found == found
    if field == "valid_to":
        assert "PostgreSQL's infinity is none: declare the column as long" in refusal.expected


def test_a_text_that_is_no_decimal_is_bad_whatever_other_decimals_are() -> None:
    schema = struct(s=DECIMAL, p=DECIMAL)
    columns = parse_ddl("s string, p decimal(12,2)")
    for other in (None, 1.5, unscaled(150)):
        (refusal,) = decode(framed({"s": "?", "p": other}, schema), schema=columns).rejected
        assert (refusal.field, refusal.found) == ("s", '"?"')
