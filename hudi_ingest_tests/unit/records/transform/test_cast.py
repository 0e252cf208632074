"""K4: a cast keeps a value exactly, or rejects it."""

from __future__ import annotations

import datetime
import math
import pickle
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.schema.columns import TIMESTAMP
from hudi_ingest.records.transform import TransformProblems
from hudi_ingest.records.transform.casts import Cast, cast_of, scalar_of

pytestmark = pytest.mark.fast

INT, LONG, FLOAT, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
DECIMAL = pa.decimal128(10, 2)
BAD = object()
"""What an oracle says of a value that must be rejected."""


def batch(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=pa.schema([pa.field("v", kind)]))


def check(values: list[Any], found: pa.DataType, wanted: pa.DataType, oracle: Callable[[Any], object]) -> None:
    """Every value becomes what the oracle says, or is rejected when it says BAD."""
    given_batch = batch(values, found)
    cast = Cast({"v": wanted})
    done = cast.apply(given_batch)
    done.rows.validate(full=True)
    assert done.rows.schema == cast.output_schema(given_batch.schema)
    expected = [None if value is None else oracle(value) for value in given_batch["v"].to_pylist()]
    assert [fault.index for fault in done.rejected] == [i for i, each in enumerate(expected) if each is BAD]
    assert done.rows["v"].to_pylist() == [each for each in expected if each is not BAD]
    kept = [*range(len(values))] if done.kept is None else done.kept.to_pylist()
    assert kept == [i for i, each in enumerate(expected) if each is not BAD]
    assert (done.kept is None) == (not done.rejected)
    assert done.filtered == 0


def whole(bits: int) -> Callable[[Any], object]:
    def read(value: Any) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            return BAD
        if isinstance(value, str):
            sign = value[1:] if value[:1] in ("+", "-") else value
            if not (sign.isascii() and sign.isdigit()):
                return BAD
            number = int(value)
        elif value != int(value):
            return BAD
        else:
            number = int(value)
        return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else BAD

    return read


def decimal_of(precision: int, scale: int) -> Callable[[Any], object]:
    def read(value: Any) -> object:
        try:
            number = Decimal(repr(value) if isinstance(value, float) else value)
        except InvalidOperation:
            return BAD
        if isinstance(value, str) and not (value.isascii() and value.strip() == value and "_" not in value):
            return BAD
        if not number.is_finite():
            return BAD
        scaled = Fraction(number) * 10**scale
        return number if scaled.denominator == 1 and abs(scaled) < 10**precision else BAD

    return read


ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**33), 2**33) | st.sampled_from([2**53, 2**53 + 1, 2**24 + 1])
floats = st.floats() | st.integers(-(2**64), 2**64).map(float) | st.decimals(-1000, 1000, places=2).map(float)
numbers = st.from_regex(r"[+-]?[0-9]{0,12}(\.[0-9]{0,4})?([eE][+-]?[0-9]{1,3})?", fullmatch=True) | st.text(
    "0123456789.+-eE xXaN_\n", max_size=6
)


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=12)


@given(lists(longs))
def test_k4_longs(values: list[int]) -> None:
    check(values, LONG, INT, whole(32))
    check(values, LONG, DOUBLE, lambda value: float(value) if abs(value) <= 2**53 else BAD)
    check(values, LONG, FLOAT, lambda value: float(value) if abs(value) <= 2**24 else BAD)
    check(values, LONG, DECIMAL, decimal_of(10, 2))
    check(values, LONG, pa.decimal128(38, 19), decimal_of(38, 19))
    check(values, LONG, TEXT, str)
    check(values, LONG, pa.bool_(), lambda value: bool(value) if value in (0, 1) else BAD)


@given(lists(ints))
def test_k4_ints(values: list[int]) -> None:
    check(values, INT, LONG, int)
    check(values, INT, DOUBLE, float)
    check(values, INT, FLOAT, lambda value: float(value) if abs(value) <= 2**24 else BAD)


@given(lists(floats))
def test_k4_doubles(values: list[float]) -> None:
    check(values, DOUBLE, LONG, whole(64))
    check(values, DOUBLE, INT, whole(32))
    check(values, DOUBLE, DECIMAL, decimal_of(10, 2))
    texts = Cast({"v": TEXT}).apply(batch(values, DOUBLE)).rows["v"].to_pylist()
    back = [None if text is None else float(text) for text in texts]
    assert repr(back) == repr(values)


@given(lists(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**8), max_value=10**8)))
def test_k4_decimals(values: list[Decimal]) -> None:
    found = pa.decimal128(20, 4)
    check(values, found, DECIMAL, decimal_of(10, 2))
    check(values, found, pa.decimal128(38, 20), decimal_of(38, 20))
    check(values, found, INT, whole(32))
    check(values, found, LONG, whole(64))
    check(values, found, TEXT, lambda value: format(value, "f"))
    check(values, found, DOUBLE, lambda value: float(value) if Decimal(repr(float(value))) == value else BAD)


@given(lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(0, 38).map(lambda n: 10**n - 1)))
def test_k4_decimals_of_all_sizes_are_rescaled_without_wrapping(values: list[int | None]) -> None:
    for scale in (0, 20, 38):
        found = pa.decimal128(38, scale)
        decimals = [None if value is None else Decimal(f"{value}E-{scale}") for value in values]
        for wanted in (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(38, 19), pa.decimal128(9, 5)):
            check(decimals, found, wanted, decimal_of(wanted.precision, wanted.scale))
        check(decimals, found, LONG, whole(64))


@given(lists(st.decimals(allow_nan=False, allow_infinity=False, places=20, min_value=-1, max_value=1)))
def test_k4_decimals_of_many_digits_become_plain_text_and_no_rounded_double(values: list[Decimal]) -> None:
    found = pa.decimal128(38, 20)
    check(values, found, TEXT, lambda value: format(value, "f"))
    check(values, found, DOUBLE, lambda value: float(value) if Decimal(repr(float(value))) == value else BAD)


@given(lists(numbers))
def test_k4_texts_of_numbers(values: list[str]) -> None:
    check(values, TEXT, INT, whole(32))
    check(values, TEXT, LONG, whole(64))
    check(values, TEXT, DECIMAL, decimal_of(10, 2))
    check(values, TEXT, pa.decimal128(38, 38), decimal_of(38, 38))


@given(lists(st.from_regex(r"-?[0-9]{0,45}(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)))
def test_k4_texts_of_long_decimals(values: list[str]) -> None:
    for precision, scale in ((38, 0), (38, 20), (38, 38), (1, 0)):
        check(values, TEXT, pa.decimal128(precision, scale), decimal_of(precision, scale))


@given(lists(numbers | st.sampled_from(["1e400", "-1e400", "1e-400", "nan", "inf", "Infinity", "0x1p3", " 1", "1 "])))
def test_k4_texts_of_doubles(values: list[str]) -> None:
    def read(value: str) -> object:
        if set(value) - set("0123456789+-.eE"):
            return BAD
        try:
            number = float(value)
        except ValueError:
            return BAD
        return number if math.isfinite(number) else BAD

    check(values, TEXT, DOUBLE, read)


@given(lists(st.dates().map(str) | st.from_regex(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", fullmatch=True)))
def test_k4_dates(values: list[str]) -> None:
    def read(value: str) -> object:
        try:
            return datetime.datetime.strptime(value, "%Y-%m-%d").date() if len(value) == 10 else BAD
        except ValueError:
            return BAD

    check(values, TEXT, pa.date32(), read)


def test_k4_other_types() -> None:
    check(
        ["true", "FALSE", "1", "t", "", None],
        TEXT,
        pa.bool_(),
        lambda value: {"true": True, "FALSE": False}.get(value, BAD),
    )
    check([b"gr\xc3\xbcn", b"\xff", None], pa.binary(), TEXT, lambda value: BAD if value == b"\xff" else value.decode())
    check(["grün", None], TEXT, pa.binary(), lambda value: value.encode())
    check([True, False, None], pa.bool_(), INT, int)
    check([True, False, None], pa.bool_(), TEXT, lambda value: str(value).lower())
    check([datetime.date(2026, 1, 2), None], pa.date32(), TEXT, str)
    midnight = datetime.time(tzinfo=datetime.timezone.utc)
    check(
        [datetime.date.min, datetime.date.max],
        pa.date32(),
        TIMESTAMP,
        lambda value: datetime.datetime.combine(value, midnight),
    )
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc)
    check([moment, None], TIMESTAMP, TEXT, lambda _: "2026-01-02 03:04:05.000006Z")


def test_k4_one_bad_value_among_many_is_found() -> None:
    values = [str(number) for number in range(10_000)]
    values[7_321] = "x"
    done = Cast({"v": LONG}).apply(batch(values, TEXT))
    (rejected,) = done.rejected
    assert (rejected.index, rejected.field, rejected.found) == (7_321, "v", '"x"')
    assert rejected.expected == "a value that long holds exactly"
    assert done.rows.num_rows == 9_999


def test_k4_several_columns_name_the_first_bad_one_of_a_row() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["1", "x", "3"], "b": ["y", "z", "6"]})
    done = Cast({"b": INT, "a": INT}).apply(rows)
    assert [(fault.index, fault.field) for fault in done.rejected] == [(0, "b"), (1, "a")]
    assert done.rows.to_pylist() == [{"a": 3, "b": 6}]


SIMPLE = [INT, LONG, FLOAT, DOUBLE, TEXT, DECIMAL, pa.bool_(), pa.date32(), TIMESTAMP, pa.binary()]


@given(st.sampled_from(SIMPLE), st.sampled_from(SIMPLE), st.booleans())
def test_k4_what_is_allowed_gives_what_was_announced(found: pa.DataType, wanted: pa.DataType, nullable: bool) -> None:
    schema = pa.schema([pa.field("v", found, nullable)])
    cast = Cast({"v": wanted})
    if cast_of(found, wanted) is None:
        with pytest.raises(TransformProblems, match=r"v has type .*, which cannot be cast to"):
            cast.output_schema(schema)
        return
    assert cast.output_schema(schema) == pa.schema([pa.field("v", wanted, nullable)])
    empty = pa.RecordBatch.from_arrays([pa.array([], found)], schema=schema)
    assert cast.apply(empty).rows.schema == cast.output_schema(schema)
    assert pickle.loads(pickle.dumps(cast)) == cast


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", INT),
        (1.5, INT),
        (True, INT),
        (1, TEXT),
        ("yes", pa.bool_()),
        (float("nan"), DOUBLE),
        (0.001, DECIMAL),
        ("2026-13-01", pa.date32()),
        ("2026-01-01T00:00:00", TIMESTAMP),
        ("a", pa.list_(TEXT)),
    ],
)
def test_values_of_the_file_that_are_not_of_the_type(value: object, kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="not a value of type"):
        scalar_of(value, kind)


def test_values_of_the_file() -> None:
    assert scalar_of(1, DOUBLE).as_py() == 1.0
    assert scalar_of(0.1, DECIMAL).as_py() == Decimal("0.10")
    assert scalar_of(1e22, pa.decimal128(38, 0)).as_py() == Decimal(10**22)
    assert scalar_of(True, pa.bool_()).as_py() is True
    assert scalar_of("2026-01-31T00:00:00+02:00", TIMESTAMP).as_py().isoformat() == "2026-01-30T22:00:00+00:00"
