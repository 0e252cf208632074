"""CSV -> rows: what is accepted, that both paths agree, and that nothing crashes or shifts rows."""

from __future__ import annotations

import csv
import io
import pickle
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hudi_ingest.records.convert.csv import CsvConverter
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest_tests.support.outcomes import outcomes, rows_of

pytestmark = pytest.mark.fast
RELAXED = settings(suppress_health_check=list(HealthCheck))
UTC = timezone.utc

WIDE = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(7, 2)),
        pa.field("ratio", pa.float64()),
        pa.field("on", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("good", pa.bool_()),
        pa.field("raw", pa.binary()),
    ]
)
LINE = b'7,"a ""b"", c",1.50,-2.5e3,2026-11-21,2026-11-21T10:00:00.5Z,true,AAEC'
ROW = {
    "id": 7,
    "name": 'a "b", c',
    "price": Decimal("1.50"),
    "ratio": -2500.0,
    "on": date(2026, 11, 21),
    "at": datetime(2026, 11, 21, 10, 0, 0, 500000, tzinfo=UTC),
    "good": True,
    "raw": b"\0\1\2",
}


def both(schema: pa.Schema, messages: Sequence[bytes], **options: Any) -> list[tuple[str, Any]]:
    """The outcomes, after checking that both paths agree on them."""
    converter = converter_for("csv", schema, options)
    assert isinstance(converter, CsvConverter)
    exact = pickle.loads(pickle.dumps(converter))
    exact._fast = None
    found = outcomes(converter, schema, messages)
    assert found == outcomes(exact, schema, messages)
    return found


def one(kind: pa.DataType, text: str, nullable: bool = True, **options: Any) -> Any:
    schema = pa.schema([pa.field("a", kind, nullable), pa.field("z", pa.string())])
    found = rows_of(both(schema, [f"{text},x".encode()], **options))[0]
    return found["a"] if isinstance(found, dict) else found


def test_a_record_of_every_type() -> None:
    assert rows_of(both(WIDE, [LINE, LINE + b"\n", LINE + b"\r\n"])) == [ROW] * 3
    converter = CsvConverter(WIDE, converter_for("csv", WIDE)._options)  # type: ignore[attr-defined]
    proved = converter._fast(pa.array([LINE] * 3, pa.binary())).which
    assert proved is not None and proved.all()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.int32(), "2147483647", 2**31 - 1),
        (pa.int64(), '"-5"', -5),
        (pa.int64(), "", None),
        (pa.string(), "", None),
        (pa.string(), '""', ""),
        (pa.string(), '"line\nbreak"', "line\nbreak"),
        (pa.string(), " a ", " a "),
        (pa.string(), "a\ufeff", "a\ufeff"),
        (pa.int64(), "007", 7),
        (pa.int32(), "+5", 5),
        (pa.int64(), "-00000000000000000000000005", -5),
        (pa.float64(), "+.5e1", 5.0),
        (pa.float64(), "007", 7.0),
        (pa.float32(), "-5.", -5.0),
        (pa.decimal128(5, 2), "+05", Decimal("5.00")),
        (pa.timestamp("us"), "2026-01-02T03:04:05.123000000", datetime(2026, 1, 2, 3, 4, 5, 123000)),
        (pa.string(), "a\0b", "a\0b"),
        (pa.string(), "NaN", "NaN"),
        (pa.decimal128(5, 2), "+1e2", Decimal("100.00")),
        (pa.decimal128(5, 2), "1.500", Decimal("1.50")),
        (pa.timestamp("us"), "2026-01-02T03:04:05+01:00", datetime(2026, 1, 2, 2, 4, 5)),
        (pa.timestamp("us"), "9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),
        (pa.date32(), "0001-01-01", date(1, 1, 1)),
    ],
)
def test_good_texts(kind: pa.DataType, text: str, expected: Any) -> None:
    assert one(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "2147483648"),
        (pa.int64(), "9223372036854775808"),
        (pa.int64(), "1.0"),
        (pa.int64(), "5."),
        (pa.int64(), "0x1F"),
        (pa.int64(), "+"),
        (pa.int64(), "--5"),
        (pa.int64(), " 1"),
        (pa.int64(), "1_000"),
        (pa.int64(), '""'),
        (pa.int64(), "true"),
        (pa.float64(), "NaN"),
        (pa.float64(), "inf"),
        (pa.float64(), "1e999"),
        (pa.float64(), "1e99999999999999999999"),
        (pa.bool_(), "TRUE"),
        (pa.bool_(), "1"),
        (pa.decimal128(5, 2), "1.005"),
        (pa.decimal128(5, 2), "1000"),
        (pa.date32(), "2026-02-30"),
        (pa.date32(), "0000-12-31"),
        (pa.date32(), "10000-01-01"),
        (pa.timestamp("us"), "2026-01-02T24:00:00"),
        (pa.timestamp("us"), "2026-01-02T03:04:05.1234567"),
        (pa.timestamp("us"), "2026-01-02Z"),
        (pa.timestamp("us", "UTC"), "0000-12-31T23:59:59Z"),
        (pa.binary(), "AA"),
        (pa.binary(), "AAAA="),
        (pa.binary(), "AAAA=="),
        (pa.binary(), "AAAA==="),
        (pa.binary(), "AAAA===="),
    ],
)
def test_bad_texts_name_their_column(kind: pa.DataType, text: str) -> None:
    assert one(kind, text)[0] == "a"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", "an empty value"),
        ("\ufeffa,b", "a byte order mark before the CSV record"),
        ("a", "1 fields"),
        ("a,b,c", "3 fields"),
        ('"a', "a quote that is not closed, at character 0"),
        ('"a"b,c', '"b" at character 3'),
        ('a"b,c', r'"\"" at character 1'),
        ("a\nb,c", "a line break at character 1"),
        ("a,b\r", "a line break at character 3"),
        ("a,b\n\n", "a line break at character 3"),
    ],
)
def test_records_that_are_none(line: str, found: str) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    assert both(schema, [line.encode()])[0][1][2] == found


def test_bytes_that_are_not_utf8() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    assert both(schema, [b"a,\xff"])[0][1][2] == "bytes that are not UTF-8, at byte 2"


def test_null_is_a_value_only_where_nullable() -> None:
    assert one(pa.int64(), "", nullable=False) == ("a", "int (64 bit), not null", "null")
    assert one(pa.string(), r"\N", null=r"\N") is None
    assert one(pa.string(), r'"\N"', null=r"\N") == r"\N"
    assert one(pa.string(), "", null="NULL") == ""


def test_other_signs_and_columns() -> None:
    schema = pa.schema([("b", pa.int32()), ("a", pa.string())])
    lines = [rb"it\;s;skipped;5", rb"'q\'';'';6", b"\\\\;;7"]
    found = rows_of(both(schema, lines, delimiter=";", quote="'", escape="\\", columns=["a", "x", "b"]))
    assert found == [{"b": 5, "a": "it;s"}, {"b": 6, "a": "q'"}, {"b": 7, "a": "\\"}]
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    assert rows_of(both(schema, [b'"\t"b'], delimiter="\t", quote=None)) == [{"a": '"', "b": '"b'}]


def test_the_null_text_of_mysql_and_hive_begins_with_the_escape() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string()), pa.field("n", pa.int64())])
    lines = [
        rb"1,Ann,\N",
        rb"2,\N,5",
        rb"3,a\,b,7",
        rb"4,N,8",
        rb"5,back\\slash,\N",
        rb"6,\NN,1",
        rb'7,"\N",1',
        rb"8,\\N,1",
    ]
    names = ["Ann", None, "a,b", "N", "back\\slash", "NN", "N", "\\N"]
    numbers = [None, 5, 7, 8, None, 1, 1, 1]
    expected = [{"id": at + 1, "name": name, "n": numbers[at]} for at, name in enumerate(names)]
    mysql = {"escape": "\\", "null": r"\N"}
    assert rows_of(both(schema, lines, **mysql)) == expected
    converter = converter_for("csv", schema, mysql)
    assert isinstance(converter, CsvConverter)
    rows, proved = converter._fast(pa.array(lines, pa.binary()))
    assert rows.to_pylist() == [expected[at] for at in (0, 1, 3)]
    assert proved is not None and proved.tolist() == [True, True, False, True, *[False] * 4]
    assert rows_of(both(schema, [rb"1"], optional_fields=2, **mysql)) == [{"id": 1, "name": None, "n": None}]


def test_one_column_and_the_empty_value() -> None:
    schema = pa.schema([("a", pa.string())])
    assert rows_of(both(schema, [b"", b"x", b'""', b"\n"])) == [{"a": None}, {"a": "x"}, {"a": ""}, {"a": None}]


def test_d2_records_may_lack_columns_that_came_later() -> None:
    schema = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.int64(), False), pa.field("c", pa.string())])
    lines = [b"x,1", b"x,1,y", b"x,1,", b'"x,",1', b'"x,",1,"y"', b"x,1,y,z", b"x", b"", b"x,"]
    whole = {"a": "x", "b": 1, "c": "y"}
    refused = [("", "a CSV record of 2 to 3 fields", text) for text in ("4 fields", "1 fields", "an empty value")]
    expected = [{**whole, "c": None}, whole, {**whole, "c": None}, {"a": "x,", "b": 1, "c": None}, {**whole, "a": "x,"}]
    bad = ("b", "int (64 bit), not null", "null")
    assert rows_of(both(schema, lines, optional_fields=1)) == [*expected, *refused, bad]
    found = rows_of(
        both(schema, lines[:2], optional_fields=1, null="NULL", delimiter=";", columns=["a", "b", "x", "c"])
    )
    assert [each[2] for each in found] == ["1 fields"] * 2
    found = rows_of(
        both(
            schema,
            [b"x;1;", b"NULL;1;;NULL", b"x"],
            optional_fields=3,
            null="NULL",
            delimiter=";",
            columns=["a", "b", "x", "c"],
        )
    )
    assert found == [
        {**whole, "c": None},
        {"a": None, "b": 1, "c": None},
        ("b", "int (64 bit), not null", "no such field"),
    ]


def test_d2_records_of_both_lengths_are_read_as_a_batch() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.date32())])
    converter = converter_for("csv", schema, {"optional_fields": 2})
    assert isinstance(converter, CsvConverter)
    rows, proved = converter._fast(pa.array([b"x", b"x,1", b"x,1,2026-01-31", b'"x",1', b"x,1,,"], pa.binary()))
    assert proved is not None and proved.tolist() == [True, True, True, False, False]
    assert rows.to_pylist() == [
        {"a": "x", "b": None, "c": None},
        {"a": "x", "b": 1, "c": None},
        {"a": "x", "b": 1, "c": date(2026, 1, 31)},
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delimiter": ";;"}, "delimiter must be one ASCII character"),
        ({"delimiter": '"'}, "must differ"),
        ({"null": "a,b"}, "null must hold no delimiter"),
        ({"null": "\\,", "escape": "\\"}, "null must hold no delimiter"),
        ({"null": "\\", "escape": "\\"}, "no escape except before its first sign"),
        ({"null": r"N\N", "escape": "\\"}, "no escape except before its first sign"),
        ({"columns": ["id"]}, "no field of a record is named name"),
        ({"columns": [*WIDE.names, "id"]}, "columns named more than once: id"),
        ({"delimeter": ";"}, "did you mean delimiter"),
        ({"optional_fields": -1}, "optional_fields must be 0 or more"),
        ({"optional_fields": 8}, "optional_fields is 8, but a record has only 8 fields"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        converter_for("csv", WIDE, options)


def test_types_that_csv_cannot_give() -> None:
    with pytest.raises(ValueError, match="column a: list"):
        converter_for("csv", pa.schema([("a", pa.list_(pa.int32()))]))


def test_a_record_of_ten_megabytes() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    big = b"x" * 10_000_000
    quotes = b'"' * 1_000_000
    messages = [big + b",1", b'"' + big + b'",1', b'"' + quotes + b'",1', b'"' + quotes, big, b"a,b"]
    kinds = [kind for kind, _ in outcomes(converter_for("csv", schema), schema, messages)]
    assert kinds == ["row", "row", "row", "rejected", "rejected", "row"]


texts = st.text(st.sampled_from('",;\n\r\\ab é\0\ufeff'), max_size=6)


@RELAXED
@given(st.lists(st.lists(texts, min_size=2, max_size=2), min_size=1, max_size=8), st.booleans())
def test_what_pythons_writer_wrote_comes_back(records: list[list[str]], all_quoted: bool) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    messages = []
    for record in records:
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL, lineterminator="\r\n").writerow(
            record
        )
        messages.append(out.getvalue().encode())
    assume(not any(message.startswith("\ufeff".encode()) for message in messages))  # no field's, to a CSV record
    expected = [{"a": a, "b": b} for a, b in records]
    if not all_quoted:
        expected = [{name: text or None for name, text in each.items()} for each in expected]  # type: ignore[misc]
    assert rows_of(both(schema, messages)) == expected


@RELAXED
@given(
    st.lists(st.one_of(texts.map(str.encode), st.binary(max_size=8)), max_size=12),
    st.sampled_from([None, "\\"]),
    st.sampled_from(["", "a", r"\a"]),
    st.integers(0, 2),
)
def test_fragments_have_one_outcome(messages: list[bytes], escape: str | None, null: str, optional: int) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("c", pa.string())][: 2 + (optional > 0)])
    both(schema, messages, escape=escape, null=null, optional_fields=optional)


NEAR_MISS_TYPES = [
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 0),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.binary(),
]
number_like = st.text(st.sampled_from("0123456789+-.eExnafi "), max_size=7)
time_like = st.from_regex(r"[02][0-9]{3}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,7}0{0,3})?)?)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?", fullmatch=True)  # fmt: skip


@RELAXED
@given(
    st.lists(st.one_of(number_like, time_like, st.sampled_from(["true", "false", "", "AAE="])), min_size=1, max_size=4),
    st.sampled_from(NEAR_MISS_TYPES),
)
def test_both_paths_read_near_misses_alike(lines: list[str], kind: pa.DataType) -> None:
    both(pa.schema([pa.field("a", kind), pa.field("b", pa.string())]), [f"{line},x".encode() for line in lines])
