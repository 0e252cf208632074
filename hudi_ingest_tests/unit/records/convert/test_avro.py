"""Avro values -> rows: what fastavro says, by both paths; and what is rejected."""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import RegistryUnreachable
from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.convert.avro.converter import (
    AvroConverter,
    AvroValuesOf,
    ConfluentWireFormat,
    OneSchema,
    SingleObjectEncoding,
)
from hudi_ingest.records.convert.avro.fast import BatchReader
from hudi_ingest.records.convert.converter import Decoded, Rejected
from hudi_ingest.records.convert.fast_path import Doubt
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.routing import RecordType
from hudi_ingest.records.schema.avro import Resolution, parse_writer, record_schema, resolution_of
from hudi_ingest.records.schema.evolution import evolve
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest_tests.support.outcomes import outcomes, rows_of
from hudi_ingest_tests.unit.records.convert.test_json_kernel import guarded

UTC = timezone.utc


def record(*fields: Mapping[str, Any], name: str = "row") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def encoded(text: str, value: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(json.loads(text)), value)
    return target.getvalue()


def decoded(text: str, datums: list[bytes], table: pa.Schema | None = None, **more: Any) -> Decoded:
    schema = table or record_schema(RegisteredSchema(text))
    return AvroConverter(schema, OneSchema(RegisteredSchema(text)), **more).decode(pa.array(datums, pa.binary()))


def one(kind: Any, value: Any, column: pa.DataType, *, nullable: bool = True) -> Decoded:
    """The outcome of one field of an Avro type for a column of a type, by both paths."""
    text = record({"name": "a", "type": kind})
    table = pa.schema([pa.field("a", column, nullable)])
    datum = encoded(text, {"a": value})
    found = decoded(text, [datum], table)
    many = decoded(text, [datum] * 300, table)  # too many for the exact path, if the batch path can read it
    assert many.rows.num_rows == 300 * found.rows.num_rows
    assert many.rows.slice(0, 1).equals(found.rows.slice(0, 1))
    return found


def value_of(found: Decoded) -> Any:
    assert not found.rejected and found.kept is None
    return found.rows["a"][0].as_py()


def reason(found: Decoded) -> tuple[str, str, str]:
    assert not found.rows.num_rows
    (each,) = found.rejected
    return each.field, each.expected, each.found


# ---- Types


@pytest.mark.parametrize(
    ("kind", "value", "column", "expected"),
    [
        ("boolean", True, pa.bool_(), True),
        ("int", -(2**31), pa.int32(), -(2**31)),
        ("int", 5, pa.int64(), 5),
        ("int", 5, pa.float32(), 5.0),
        ("int", 5, pa.float64(), 5.0),
        ("long", 2**63 - 1, pa.int64(), 2**63 - 1),
        ("long", 3, pa.float32(), 3.0),
        ("long", 2**53 + 1, pa.float64(), float(2**53 + 1)),
        ("float", 1.5, pa.float32(), 1.5),
        ("float", 1.5, pa.float64(), 1.5),
        ("double", float("inf"), pa.float64(), float("inf")),
        ("string", "grün", pa.string(), "grün"),
        ("string", "grün", pa.binary(), "grün".encode()),
        ("bytes", b"\xff", pa.binary(), b"\xff"),
        ("bytes", "grün".encode(), pa.string(), "grün"),
        ({"type": "fixed", "name": "f", "size": 2}, b"\x00\xff", pa.binary(), b"\x00\xff"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 31), pa.date32(), date(2026, 1, 31)),
        ({"type": "int", "logicalType": "date"}, date(1970, 1, 2), pa.int32(), 1),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 1, 1, microsecond=123000, tzinfo=UTC),
            pa.timestamp("us", "UTC"),
            datetime(2026, 1, 1, microsecond=123000, tzinfo=UTC),
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(1, 1, 1, tzinfo=UTC),
            pa.timestamp("us", "UTC"),
            datetime(1, 1, 1, tzinfo=UTC),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            datetime(2026, 1, 1, 5),
            pa.timestamp("us"),
            datetime(2026, 1, 1, 5),
        ),
        ({"type": "int", "logicalType": "time-millis"}, 77, pa.int32(), 77),
        ({"type": "long", "logicalType": "time-micros"}, 77, pa.int64(), 77),
        (
            {"type": "string", "logicalType": "uuid"},
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            pa.string(),
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        ),
        (
            {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
            bytes.fromhex("6ba7b8109dad11d180b400c04fd430c8"),
            pa.string(),
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        ),
        ({"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}, bytes(12), pa.binary(), bytes(12)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            Decimal("-123.45"),
            pa.decimal128(7, 3),
            Decimal("-123.450"),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            Decimal("-123.40"),
            pa.decimal128(5, 1),
            Decimal("-123.4"),
        ),
        (
            {"type": "fixed", "name": "d", "size": 17, "logicalType": "decimal", "precision": 38, "scale": 0},
            Decimal(10**38 - 1),
            pa.decimal128(38, 0),
            Decimal(10**38 - 1),
        ),
        (["null", "string"], None, pa.string(), None),
        (["string", "null"], "a", pa.string(), "a"),
        (["long", "null"], None, pa.int64(), None),
        (["string"], "a", pa.string(), "a"),
        ("null", None, pa.string(), None),
        ({"type": "array", "items": ["null", "int"]}, [1, None], pa.list_(pa.int64()), [1, None]),
        (
            {"type": "map", "values": ["int", "null"]},
            {"b": 1, "a": None},
            pa.map_(pa.string(), pa.int32()),
            [("b", 1), ("a", None)],
        ),
        (["null", {"type": "map", "values": "int"}], None, pa.map_(pa.string(), pa.int32()), None),
        (["null", {"type": "array", "items": "int"}], None, pa.list_(pa.int32()), None),
    ],
)
def test_a_written_type_is_read_as_the_column(kind: Any, value: Any, column: pa.DataType, expected: Any) -> None:
    assert value_of(one(kind, value, column)) == expected


@pytest.mark.parametrize(
    ("kind", "value", "column", "found"),
    [
        ("long", 1, pa.int32(), "long"),
        ("double", 1.0, pa.float32(), "double"),
        ("double", 1.0, pa.int64(), "double"),
        ("string", "1", pa.int64(), "string"),
        ("long", 1, pa.timestamp("us", "UTC"), "long"),
        ("bytes", b"\xff\xff", pa.string(), "bytes that are not UTF-8, at byte 0"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            2**62,
            pa.timestamp("us", "UTC"),
            f"{2**62 * 1000} microseconds since 1970",
        ),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, pa.date32(), f"{2**31 - 1} days since 1970"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            Decimal("1.25"),
            pa.decimal128(5, 1),
            "a decimal of scale 2 with more digits",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            Decimal("123.25"),
            pa.decimal128(4, 2),
            "a decimal of more digits",
        ),
        (["int", "string"], "a", pa.string(), "a union of [int, string]"),
        ({"type": "array", "items": "string"}, ["a"], pa.list_(pa.int32()), "string"),
    ],
)
def test_what_avro_would_not_resolve_is_rejected(kind: Any, value: Any, column: pa.DataType, found: str) -> None:
    place, _, seen = reason(one(kind, value, column))
    assert place == ("a[0]" if isinstance(kind, dict) and kind["type"] == "array" else "a")
    assert seen == found


def test_a_column_of_fewer_digits_takes_the_decimals_that_fit() -> None:
    """So a table keeps its column when the source's gets more digits, which it cannot adopt."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    column = pa.decimal128(10, 2)
    (refusal,) = evolve(pa.schema([("a", column)]), pa.schema([("a", pa.decimal128(12, 2))])).refusals
    assert refusal.choices[0] == "write decimal(10,2)"
    assert one(kind, Decimal("99999999.99"), column).rows["a"].to_pylist() == [Decimal("99999999.99")]
    assert reason(one(kind, Decimal("100000000.00"), column)) == ("a", "decimal(10,2)", "a decimal of more digits")


def test_null_where_none_may_be() -> None:
    assert reason(one(["null", "int"], None, pa.int32(), nullable=False)) == ("a", "int32, not null", "null")


def test_fields_that_the_writer_does_not_have() -> None:
    text = record({"name": "extra", "type": {"type": "map", "values": "double"}}, {"name": "a", "type": "int"})
    datum = encoded(text, {"extra": {"x": 1.0}, "a": 1})
    table = pa.schema([pa.field("a", pa.int32(), False), pa.field("b", pa.string()), pa.field("c", pa.int64(), False)])
    found = decoded(text, [datum], table, resolution=Resolution({"c": 7}))
    assert found.rows.to_pylist() == [{"a": 1, "b": None, "c": 7}]
    assert reason(decoded(text, [datum], table)) == ("c", "int64, not null", "no such field in the writer's schema")


def test_defaults_of_a_declared_schema() -> None:
    inner = {
        "type": "record",
        "name": "inner",
        "fields": [{"name": "n", "type": "int", "default": 3}, {"name": "m", "type": "string", "default": "own"}],
    }
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    text = record(
        {"name": "s", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "price", "type": price, "default": "\u0001\u0000"},
        {"name": "lines", "type": {"type": "array", "items": inner}, "default": [{"n": 4}]},
    )
    assert resolution_of(RegisteredSchema(text)).defaults == {
        "s": None,
        "raw": b"\xff",
        "price": Decimal("2.56"),
        "lines": [{"n": 4, "m": "own"}],
        "lines[].n": 3,
        "lines[].m": "own",
    }


DAY, MILLIS = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ({"type": "array", "items": "string"}, None),
        ({"type": "map", "values": "int"}, []),
        ({"type": "record", "name": "inner", "fields": [{"name": "n", "type": "int"}]}, {}),
        ("string", None),
        ("int", "0"),
        ("int", 1 << 31),
        ("long", 1 << 63),
        ("double", 10**400),
        ("boolean", "false"),
        ("bytes", 5),
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "two", "size": 2}, "abc"),
        ({"type": "enum", "name": "colour", "symbols": ["RED"]}, "BLUE"),
        (["null", "string"], 7),
        (DAY, (1 << 31) - 1),
        (MILLIS, (1 << 63) - 1),
        (MILLIS, "now"),
        (CENTS, "\u0001\u0000\u0000"),
    ],
)
def test_a_default_that_does_not_fit_spoils_only_records_that_need_it(kind: Any, default: Any) -> None:
    a = {"name": "a", "type": "int"}
    reader = RegisteredSchema(record(a, {"name": "b", "type": kind, "default": default}))
    schema, resolution = record_schema(reader), resolution_of(reader)
    assert resolution.unfit.keys() == {"b"}
    lacking = record(a)
    for count in (1, 300):
        found = decoded(lacking, [encoded(lacking, {"a": 1})] * count, schema, resolution=resolution)
        assert {fault.index for fault in found.rejected if fault.field == "b"} == {*range(count)}
        assert found.rejected[0].found.startswith("no such field, and default ")


def test_a_default_of_any_branch_of_a_union_fits() -> None:
    text = record({"name": "b", "type": ["string", "null"], "default": None})
    assert resolution_of(RegisteredSchema(text)) == Resolution({"b": None})


def test_aliases_are_followed() -> None:
    old_line = {"type": "record", "name": "Line", "fields": [{"name": "cents", "type": "long"}]}
    new_line = {
        "type": "record",
        "name": "Item",
        "aliases": ["Line"],
        "fields": [{"name": "price", "type": "long", "default": 0, "aliases": ["amount", "cents"]}],
    }
    old_state = {"type": "enum", "name": "State", "symbols": ["NEW"]}
    new_state = {"type": "enum", "name": "Phase", "aliases": ["State"], "symbols": ["NEW"]}
    old = record(
        {"name": "cust", "type": "string"},
        {"name": "lines", "type": {"type": "array", "items": old_line}},
        {"name": "state", "type": old_state},
    )
    new = record(
        {"name": "customer", "type": "string", "aliases": ["cust"]},
        {"name": "items", "type": {"type": "array", "items": new_line}, "default": [], "aliases": ["lines"]},
        {"name": "phase", "type": ["null", new_state], "default": None, "aliases": ["state"]},
        name="renamed",
    )
    datum = encoded(old, {"cust": "Ann", "lines": [{"cents": 150}], "state": "NEW"})
    reader = RegisteredSchema(new)
    for count in (1, 300):
        found = decoded(old, [datum] * count, record_schema(reader), resolution=resolution_of(reader))
        assert found.rows.to_pylist() == [{"customer": "Ann", "items": [{"price": 150}], "phase": "NEW"}] * count


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ({"type": "bytes", "precision": 64, "scale": 127}, "scale 127 of precision 64"),
        ({"type": "bytes", "precision": 4, "scale": -2}, "scale -2 of precision 4"),
        ({"type": "bytes", "precision": 4, "scale": "2"}, "scale 2 of precision 4"),
        ({"type": "bytes", "scale": 2}, "precision None"),
        ({"type": "fixed", "name": "two", "size": 2, "precision": 6}, "precision 6 in 2 bytes"),
    ],
)
def test_a_decimal_that_avro_calls_invalid_is_bytes(kind: Mapping[str, Any], problem: str) -> None:
    fields = {"name": "a", "type": "int"}, {"name": "b", "type": {**kind, "logicalType": "decimal"}}
    text, datum = record(*fields), b"\x02\x04ab" if kind["type"] == "bytes" else b"\x02ab"
    assert decoded(text, [datum]).rows.to_pylist() == [{"a": 1, "b": b"ab"}]
    assert decoded(text, [datum], pa.schema([("a", pa.int32())])).rows.to_pylist() == [{"a": 1}]
    place, _, seen = reason(decoded(text, [datum], pa.schema([("b", pa.decimal128(38, 2))])))
    assert place == "b" and seen == f"{kind['type']} (decimal, ignored for its {problem}); declare binary"


# ---- Both paths are fastavro's


@dataclass(frozen=True)
class Case:
    text: str
    values: list[dict[str, Any]]


_SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=100)),
    ("bytes", st.binary(max_size=100)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(UTC))),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda number: Decimal(number).scaleb(-4)),
    ),
]


@st.composite
def _type(draw: st.DrawFn, names: list[int], depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    choice = draw(st.integers(0, 5 if depth else 1))
    if choice == 0:
        names.append(0)
        size = draw(st.integers(1, 5))
        return {"type": "fixed", "name": f"t{len(names)}", "size": size}, st.binary(min_size=size, max_size=size)
    if choice == 1:
        scalar: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(_SCALARS))
        return scalar
    if choice == 2:
        names.append(0)
        symbols = ["A", "B", "C"]
        return {"type": "enum", "name": f"t{len(names)}", "symbols": symbols}, st.sampled_from(symbols)
    if choice == 3:
        item, values = draw(_nullable(names, depth - 1))
        return {"type": "array", "items": item}, st.lists(values, max_size=4)
    if choice == 4:
        item, values = draw(_nullable(names, depth - 1))
        return {"type": "map", "values": item}, st.dictionaries(st.text(max_size=5), values, max_size=4)
    inner: tuple[Any, st.SearchStrategy[Any]] = draw(_record(names, depth - 1))
    return inner


@st.composite
def _nullable(draw: st.DrawFn, names: list[int], depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    kind, values = draw(_type(names, depth))
    union = draw(st.sampled_from((None, ["null", kind], [kind, "null"])))
    return (kind, values) if union is None else (union, st.none() | values)


@st.composite
def _record(draw: st.DrawFn, names: list[int], depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    names.append(0)
    name = f"t{len(names)}"
    members = draw(st.lists(_nullable(names, depth), min_size=1, max_size=4))
    fields = [{"name": f"c{i}", "type": kind} for i, (kind, _) in enumerate(members)]
    values = st.fixed_dictionaries({f"c{i}": values for i, (_, values) in enumerate(members)})
    return {"type": "record", "name": name, "fields": fields}, values


@st.composite
def cases(draw: st.DrawFn) -> Case:
    schema, values = draw(_record([], 2))
    return Case(json.dumps(schema), draw(st.lists(values, min_size=1, max_size=5)))


def plain(value: Any) -> Any:
    """What pyarrow gives and what fastavro gives, spelled alike."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {key: plain(each) for key, each in value}
        return [plain(each) for each in value] or {}  # an empty map is an empty list of pairs
    return repr(value) if isinstance(value, float) else value  # 0.0 is not -0.0


def fastavro_reads(text: str, datum: bytes) -> dict[str, Any] | None:
    """None when it does not read it as one record."""
    source = io.BytesIO(datum)
    try:
        found = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(text)), None)
    except (EOFError, IndexError, ValueError, OverflowError):
        return None
    return found if source.tell() == len(datum) else None


@given(cases())
def test_the_batch_path_reads_what_was_written(case: Case) -> None:
    schema = RegisteredSchema(case.text)
    reader = BatchReader(parse_writer(schema), record_schema(schema), Resolution())
    datums = [encoded(case.text, value) for value in case.values]
    rows = reader.read(pa.array(datums, pa.binary())).rows
    rows.validate(full=True)
    assert rows.schema.equals(record_schema(schema))
    assert [plain(row) for row in rows.to_pylist()] == [plain(value) for value in case.values]


def changed_bytes(good: bytes, random: Any) -> bytes:
    changed = bytearray(good)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(changed) + 1)
        change = random.choice(("set", "drop", "add", "cut"))
        if change == "set" and at < len(changed):
            changed[at] = random.choice((random.randrange(256), 0x80, 0xFF, 0x01))
        elif change == "drop":
            del changed[at : at + 1]
        elif change == "add":
            changed.insert(at, random.randrange(256))
        elif change == "cut":
            del changed[at:]
    return bytes(changed)


@given(cases(), st.randoms(use_true_random=False))
def test_a_changed_datum_is_a_row_only_as_fastavro_reads_it(case: Case, random: Any) -> None:
    good = [encoded(case.text, value) for value in case.values]
    bad = changed_bytes(random.choice(good), random)
    alone, among = decoded(case.text, [bad]), decoded(case.text, [*good, bad, *good])
    assert len(among.rejected) == len(alone.rejected) <= 1
    assert [plain(row) for row in among.rows.to_pylist()] == [
        plain(value) for value in (*case.values, *alone.rows.to_pylist(), *case.values)
    ]
    alone.rows.validate(full=True)
    expected = fastavro_reads(case.text, bad)
    if alone.rows.num_rows:
        assert [plain(row) for row in alone.rows.to_pylist()] == [plain(expected)]
    elif expected is not None:
        # Stricter than fastavro only where it reads what nobody writes.
        assert encoded(case.text, expected) != bad


@pytest.mark.skipif(sys.platform != "linux", reason="guards its memory by Linux's means")
@given(cases(), st.randoms(use_true_random=False))
def test_no_byte_behind_the_values_is_read(case: Case, random: Any) -> None:
    schema = RegisteredSchema(case.text)
    reader = BatchReader(parse_writer(schema), record_schema(schema), Resolution())
    good = [encoded(case.text, value) for value in case.values]
    cut = [datum[: random.randrange(len(datum) + 1)] for datum in good]
    for datums in (good, cut, [changed_bytes(datum, random) for datum in good]):
        with suppress(Doubt, ValueError):
            reader.read(guarded(datums)).rows.validate(full=True)


@given(st.binary(max_size=60))
def test_bytes_of_anything_are_rows_or_rejected(content: bytes) -> None:
    text = record(
        {"name": "s", "type": "string"},
        {"name": "l", "type": {"type": "array", "items": {"type": "map", "values": "bytes"}}},
    )
    found = decoded(text, [content] * 3)
    assert found.rows.num_rows + len(found.rejected) == 3


# ---- Bad content


ORDER = record({"name": "id", "type": "string"}, {"name": "n", "type": ["null", "int"]})


@pytest.mark.parametrize(
    "datum",
    [
        b"",
        b"\x04a",  # one byte of a string of two
        b"\x01a\x00",  # a length of -1
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fa",  # a length of 2^61
        b"\x02\xff\x00",  # no UTF-8
        b"\x02a\x04\x02",  # branch 2 of 2
        b"\x02a\x01\x02",  # branch -1
        b"\x02a\x03\x02",
        b"\x02a\x02\x80\x80\x80\x80\x20",  # 2^32
        b"\x02a\x00\x00",  # a byte too many
        b"\xf3/hudi-ingest/",
    ],
)
def test_a_broken_datum_is_rejected_and_its_neighbours_are_rows(datum: bytes) -> None:
    good = encoded(ORDER, {"id": "a", "n": 1})
    found = decoded(ORDER, [good] * 100 + [datum] + [good] * 100)
    assert [fault.index for fault in found.rejected] == [100]
    assert found.kept is not None and found.kept.to_pylist() == [*range(100), *range(101, 201)]
    assert found.rows.num_rows == 200 and set(found.rows["id"].to_pylist()) == {"a"}
    assert all(len(fault.found) <= 80 for fault in found.rejected)


def test_a_branch_that_a_union_does_not_have_is_told() -> None:
    (bad,) = decoded(ORDER, [b"\x02a\x04\x02"]).rejected
    assert bad.found == "4 bytes that are none: a union has no branch 2"


def test_p1_no_bytes_are_no_decimal() -> None:
    text = record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}})
    schema = pa.schema([pa.field("a", pa.decimal128(5, 2))])
    values = pa.array([b"\x02\x7d", b"\x00", b"\x02\x00"], pa.binary())
    found = AvroConverter(schema, OneSchema(RegisteredSchema(text))).decode(values)
    assert found.rejected == (Rejected(1, "a", "decimal(5,2)", "no bytes, which are no number"),)
    assert found.rows["a"].to_pylist() == [Decimal("1.25"), Decimal("0.00")]


@pytest.mark.parametrize("number", [b"\x04", b"\x01", b"\x80\x02", b"\xfe\xff\xff\xff\x0f"])
def test_a_number_that_no_symbol_of_an_enum_has_is_rejected(number: bytes) -> None:
    text = record({"name": "e", "type": {"type": "enum", "name": "s", "symbols": ["A", "B"]}})
    found = decoded(text, [b"\x00", number, b"\x02"])
    assert [fault.index for fault in found.rejected] == [1]
    assert found.rows["e"].to_pylist() == ["A", "B"]


def test_ends_that_are_wrong_and_fit_together_are_seen() -> None:
    text = record({"name": "b", "type": "bytes"})
    found = decoded(text, [b"\x04a", b"a\x02a"])  # together they are two datums
    assert [fault.index for fault in found.rejected] == [0, 1]


def test_bytes_left_over_at_the_end_of_a_batch_are_seen() -> None:
    good = encoded(ORDER, {"id": "a", "n": 1})
    for count in (0, 1, 300):
        found = decoded(ORDER, [good] * count + [good + b"\0"])
        assert [fault.index for fault in found.rejected] == [count]
        assert found.rows.num_rows == count


def test_a_producer_whose_every_record_is_in_doubt() -> None:
    text = record({"name": "l", "type": {"type": "array", "items": "int"}})
    found = decoded(text, [b"\x03\x04\x02\x04\x00"] * 10_000)
    assert found.kept is None and not found.rejected
    assert found.rows.to_pylist() == [{"l": [1, 2]}] * 10_000


def test_longer_forms_of_a_datum_are_read() -> None:
    text = record({"name": "l", "type": {"type": "array", "items": "int"}})
    padded, blocks, sized = b"\x82\x00\x06\x00", b"\x02\x02\x02\x04\x00", b"\x03\x04\x02\x04\x00"
    found = decoded(text, [padded, blocks, sized])
    assert [row["l"] for row in found.rows.to_pylist()] == [[3], [1, 2], [1, 2]]


def test_a_key_given_twice_is_rejected() -> None:
    text = record({"name": "m", "type": {"type": "map", "values": "int"}})
    found = decoded(text, [b"\x04\x02k\x02\x02k\x04\x00"])
    assert reason(found) == ("m", "each key once", "a key more than once: k")


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "nothing"}]}',
        '{"type": "record"}',
        "[]",
        "no JSON",
        '["string", "int"]',
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "fixed", "name": "f", "size": -1}}]}',
    ],
)
def test_records_of_a_schema_that_cannot_be_used_are_rejected(schema: str) -> None:
    found = decoded(schema, [b"\x00", b"\x02"], pa.schema([("a", pa.string())]))
    assert [fault.index for fault in found.rejected] == [0, 1]
    assert found.rows.num_rows == 0 and found.rows.schema.names == ["a"]


def test_no_values() -> None:
    assert decoded(ORDER, []) == Decoded(decoded(ORDER, []).rows, None, ())


# ---- Which schema a record was written with


@dataclass(frozen=True)
class Registered:
    schemas: Mapping[int, RegisteredSchema] = field(default_factory=dict)

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return self.schemas.get(schema_id)


class Down:
    def schema(self, schema_id: int) -> RegisteredSchema | None:
        raise RegistryUnreachable("no answer")


WIDER = record({"name": "n", "type": "int"}, {"name": "more", "type": "double"}, {"name": "id", "type": "string"})
COLUMNS = pa.schema([pa.field("id", pa.string(), False), pa.field("n", pa.int64())])
FIRST, SECOND = b"\0\0\0\0\x01", b"\0\0\0\0\x02"


def confluent() -> AvroConverter:
    schemas = {1: RegisteredSchema(ORDER), 2: RegisteredSchema(WIDER)}
    return AvroConverter(COLUMNS, ConfluentWireFormat(Registered(schemas)))


def test_records_of_several_schemas_keep_their_order() -> None:
    values = [
        FIRST + encoded(ORDER, {"id": f"{i}", "n": i})
        if i % 3
        else SECOND + encoded(WIDER, {"id": f"{i}", "n": i, "more": 0.5})
        for i in range(500)
    ]
    values[7] = FIRST + b"\x08a"
    found = pickle.loads(pickle.dumps(confluent())).decode(pa.array(values, pa.binary()))
    assert found.rows.to_pylist() == [{"id": f"{i}", "n": i} for i in range(500) if i != 7]
    assert [fault.index for fault in found.rejected] == [7]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"", "an empty value"),
        (b"\0\0\0\1", "4 bytes"),
        (b"\0\0\0\0\0\0\0\0\x03rest", "schema id 0, as ids of 8 bytes begin"),
        (b"\0\0\0\0\x03rest", "schema id 3, which it does not have"),
        (b"\x01" + bytes(16), "first byte 0x01, of a schema GUID; make the producer write schema ids"),
        (b'{"a": 1}', "first byte 0x7b; the producer may write no schema id, or write it into headers"),
    ],
)
def test_a_value_that_names_no_schema_is_rejected(value: bytes, found: str) -> None:
    outcome = confluent().decode(pa.array([FIRST + encoded(ORDER, {"id": "a", "n": None}), value], pa.binary()))
    assert [(fault.index, fault.field, fault.found) for fault in outcome.rejected] == [(1, "", found)]
    assert outcome.rows.num_rows == 1


def test_a_registry_that_does_not_answer_is_no_bad_record() -> None:
    converter = AvroConverter(COLUMNS, ConfluentWireFormat(Down()))
    with pytest.raises(RegistryUnreachable):
        converter.decode(pa.array([FIRST], pa.binary()))


def test_single_object_encoding() -> None:
    # The fingerprint of "int" in the Avro specification's own order.
    assert SingleObjectEncoding.of('"int"').schemas.keys() == {bytes.fromhex("8f5c393f1ad57572")}
    encoding = SingleObjectEncoding.of(ORDER, WIDER)
    (fingerprint, *_) = (key for key, each in encoding.schemas.items() if each.text == ORDER)
    datum = encoded(ORDER, {"id": "a", "n": 1})
    found = AvroConverter(COLUMNS, encoding).decode(
        pa.array([b"\xc3\x01" + fingerprint + datum, b"\xc3\x01" + bytes(8) + datum, datum, b""], pa.binary())
    )
    assert found.rows.to_pylist() == [{"id": "a", "n": 1}]
    assert [fault.found for fault in found.rejected] == [
        "fingerprint 0000000000000000 of another schema",
        "a value that begins with 02 61",
        "an empty value",
    ]


def test_names_of_other_schemas_are_resolved() -> None:
    money = '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
    line = '{"type": "record", "name": "shop.Line", "fields": [{"name": "price", "type": "shop.Money"}]}'
    text = '{"type": "record", "name": "shop.Order", "fields": [{"name": "a", "type": "Line"}, {"name": "b", "type": "Money"}]}'
    schema = RegisteredSchema(text, (money, line))
    cents = pa.struct([pa.field("cents", pa.int64(), False)])
    assert record_schema(schema) == pa.schema(
        [
            pa.field("a", pa.struct([pa.field("price", cents, False)]), False),
            pa.field("b", cents, False),
        ]
    )
    found = AvroConverter(record_schema(schema), OneSchema(schema)).decode(pa.array([b"\x02\x04"], pa.binary()))
    assert found.rows.to_pylist() == [{"a": {"price": {"cents": 1}}, "b": {"cents": 2}}]


def test_the_converter_of_the_format() -> None:
    values = AvroValuesOf(OneSchema(RegisteredSchema(WIDER)), Resolution({"n": 5}))
    options = {"values": pickle.loads(pickle.dumps(values))}
    converter = converter_for("avro", pa.schema([("id", pa.string()), ("n", pa.int64())]), options)
    assert (
        converter.decode(pa.array([encoded(WIDER, {"id": "a", "n": 1, "more": 0.5})], pa.binary())).rows.num_rows == 1
    )
    with pytest.raises(ValueError, match="avro"):
        converter_for("avro", pa.schema([("id", pa.string())]))


BEYOND = [b"\xff" * 13 + b"\x01", b"\x80" * 200 + b"\x02", b"\x80" * 10 + b"\x02", b"\xff" * 9 + b"\x02"]
TWO = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("long", b"", b""),
        (TWO, b"\x02", b"\x00"),
        (TWO, b"", b"\x02\x00"),
        (TWO, b"\x01", b"\x02\x00"),
        (TWO, b"\x02\x02", b""),
        ({"type": "map", "values": "long"}, b"\x02", b"a\x02\x00"),
        ({"type": "map", "values": "long"}, b"\x02\x02a", b"\x00"),
        ("string", b"", b"a"),
        ("bytes", b"", b"a"),
        (["null", "long"], b"", b"\x02"),
        (["null", "long"], b"\x02", b""),
        (["int", "string", "long"], b"\x04", b""),
        ({"type": "enum", "name": "colour", "symbols": ["A", "B"]}, b"", b""),
    ],
)
def test_numbers_beyond_64_bits_are_corrupt(kind: Any, before: bytes, after: bytes) -> None:
    text = record({"name": "a", "type": kind}, {"name": "n", "type": "int"})
    for number in BEYOND:
        for table in (pa.schema([("n", pa.int32())]), pa.schema([("a", pa.string()), ("n", pa.int32())])):
            assert "bytes that are none: " in reason(decoded(text, [before + number + after + b"\x02"], table))[2]


def test_many_high_bytes_are_no_long_number() -> None:
    text = record({"name": "a", "type": {"type": "map", "values": ["null", "string"]}}, {"name": "n", "type": "long"})
    rows = [{"a": {"\u00e4" * 20: "\u4e2d" * 20, "": None}, "n": -(1 << 63)}]
    padded = encoded(text, rows[0])[:-10] + b"\x84" + b"\x80" * 8 + b"\x00"  # 2, in ten bytes
    found = decoded(text, [encoded(text, rows[0]), padded])
    assert [dict(row["a"]) for row in found.rows.to_pylist()] == [rows[0]["a"]] * 2
    assert found.rows["n"].to_pylist() == [-(1 << 63), 2]


UNION = RegisteredSchema(
    '["shop.Opened", "shop.Closed"]',
    (
        '{"type": "record", "name": "shop.Opened", "fields": [{"name": "id", "type": "string"}, {"name": "max", "type": "int"}]}',
        '{"type": "record", "name": "shop.Closed", "fields": [{"name": "id", "type": "string"}, {"name": "city", "type": "string"}]}',
    ),
)


def test_a_union_of_records_fills_the_columns_that_each_has() -> None:
    columns = pa.schema([pa.field("id", pa.string(), False), ("max", pa.int32()), ("city", pa.string())])
    converter = AvroConverter(columns, ConfluentWireFormat(Registered({7: UNION})))
    start = b"\0\0\0\0\x07"
    opened, closed = start + b"\0\x02a\x0e", start + b"\x02\x02b\x08Bonn"
    bad = [start, start + b"\x04", start + b"\x01", start + b"\x02\x02b", start + b"\x80\0\x02a\x0e"]
    for good in (1, 200):
        found = outcomes(converter, columns, [bad[0], *[opened, closed] * good, *bad])
        rows = [{"id": "a", "max": 7, "city": None}, {"id": "b", "max": None, "city": "Bonn"}]
        assert [kind for kind, _ in found] == ["rejected", *["row"] * 2 * good, *["rejected"] * len(bad)]
        assert rows_of(found)[1:3] == rows
    filtered = RecordType("shop.Closed", Registered({7: UNION}), "AVRO")
    others = filtered.others(pa.array([opened, None, closed, *bad], pa.binary()))
    assert others.tolist() == [True, *[False] * (2 + len(bad))]
    with pytest.raises(SchemaProblem, match=r"the schema is a union of \[shop.Opened, shop.Closed\], not a record"):
        record_schema(UNION)
