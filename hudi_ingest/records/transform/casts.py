"""Column conversions that keep each value exactly or refuse it: nothing wraps around, is truncated or rounded.

A conversion is a function of whole columns that raises when any value cannot be converted. It names those values itself,
or they are found by bisection with the same function, so a value's outcome depends on nothing but the value.
The transform `cast` converts fields to other types this way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Rejected, shortened
from hudi_ingest.records.schema.columns import TIMESTAMP, ddl_type
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND
from hudi_ingest.records.transform import Origins, Problem, Transformed, missing_fields, require, unchanged

Convert = Callable[[pa.Array], pa.Array]
"""Column -> column of another type, null for null. Raises ArrowInvalid when any value cannot be kept exactly."""


class Refused(pa.ArrowInvalid):  # type: ignore[misc]
    """Raised by a conversion that knows which values it refuses."""

    def __init__(self, wrong: pa.Array) -> None:
        super().__init__("values cannot be converted")
        self.wrong = wrong


@dataclass(frozen=True)
class Conversion:
    """The conversion of one column."""

    field: pa.Field
    """The converted column's field."""
    convert: Convert
    expected: str
    """The expectation as text, for rejected rows."""


def convert_columns(batch: pa.RecordBatch, conversions: Mapping[str, Conversion]) -> Transformed:
    """Convert these columns of the batch, and reject the rows with a value that cannot be converted."""
    rejected: dict[int, Rejected] = {}
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        conversion = conversions.get(name)
        if conversion is None:
            columns.append(column)
            continue
        converted, bad = convert_exactly(column, conversion.convert, conversion.field.type)
        columns.append(converted)
        for index in bad:
            rejected.setdefault(index, Rejected(index, name, conversion.expected, shown(column[index])))
    fields = [conversions[field.name].field if field.name in conversions else field for field in batch.schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return without_rejected(rows, rejected)


def without_rejected(rows: pa.RecordBatch, rejected: Mapping[int, Rejected]) -> Transformed:
    """Remove the rejected rows from `rows`, which has a row for each of the input's."""
    if not rejected:
        return Transformed(rows, None)
    places = pa.array([index for index in range(rows.num_rows) if index not in rejected], pa.int64())
    return Transformed(rows.take(places), places, tuple(rejected[index] for index in sorted(rejected)))


def convert_exactly(column: pa.Array, convert: Convert, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return the converted column, null for bad values, and the ascending indexes of the bad values."""
    bad: list[int] = []
    pieces = _pieces(column, convert, kind, 0, bad)
    return (pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)), sorted(bad)


def _pieces(column: pa.Array, convert: Convert, kind: pa.DataType, start: int, bad: list[int]) -> list[pa.Array]:
    try:
        return [convert(column)]
    except Refused as refused:
        # Null passes every check, so each round has fewer bad values.
        wrong = pc.fill_null(refused.wrong, False)
        bad += [start + index for index in pc.indices_nonzero(wrong).to_pylist()]
        return _pieces(pc.if_else(wrong, pa.scalar(None, column.type), column), convert, kind, start, bad)
    except pa.ArrowInvalid:
        if len(column) == 1:
            bad.append(start)
            return [pa.nulls(1, kind)]
    half = len(column) // 2
    converted = _pieces(column.slice(0, half), convert, kind, start, bad)
    return converted + _pieces(column.slice(half), convert, kind, start + half, bad)


def shown(value: pa.Scalar) -> str:
    """Format a value for a message: at most 80 characters."""
    if not value.is_valid:
        return "null"
    if pa.types.is_string(value.type):
        return shortened(json.dumps(value.as_py()[:81], ensure_ascii=False))
    if pa.types.is_binary(value.type):
        return f"{len(value.as_py())} bytes"
    if pa.types.is_nested(value.type):
        return "an object" if pa.types.is_struct(value.type) else "an array"
    return shortened(str(value.cast(pa.string()).as_py()))


def refuse(wrong: pa.Array) -> None:
    """Raise Refused when any flag is true; null counts as false. There is one flag per value of the converted column."""
    if pc.any(wrong).as_py():
        raise Refused(wrong)


def within_time(timestamps: pa.Array) -> pa.Array:
    """Check that all times are in the years 0001 to 9999, which every reader can show. Raises ArrowInvalid."""
    ticks = timestamps.cast(pa.int64())
    refuse(pc.or_(pc.less(ticks, FIRST_MICROSECOND), pc.greater(ticks, LAST_MICROSECOND)))
    return timestamps


# ---- Casts between types


def cast_of(kind: pa.DataType, target: pa.DataType) -> Convert | None:
    """Return the exact conversion from one type to another; None when there is none."""
    if kind == target:
        return _same
    if pa.types.is_decimal(kind) or pa.types.is_decimal(target):
        return _decimal_cast(kind, target)
    cast = _CASTS.get((kind, target))
    return None if cast is None else partial(cast, target)


def castable_to(kind: pa.DataType) -> tuple[str, ...]:
    """Return the types that `cast_of` can convert a type to, as Spark DDL."""
    simple = [ddl_type(target) for start, target in _CASTS if start == kind]
    if pa.types.is_decimal(kind):
        simple = [ddl_type(target) for target in _TO_DECIMAL]
    return (*simple, "decimal(p,s)") if kind in _TO_DECIMAL or pa.types.is_decimal(kind) else tuple(simple)


def scalar_of(value: object, kind: pa.DataType) -> pa.Scalar:
    """Convert a value from a pipeline file to the type. Raises ValueError when it is not exactly a value of the type."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float) and not isinstance(value, bool):
        text = format(Decimal(repr(value)), "f")
    fits = {
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
        "binary": isinstance(value, str),
        "date": isinstance(value, str),
        "timestamp": isinstance(value, str),
    }.get(ddl_type(kind), not isinstance(value, bool))
    try:
        if not fits:
            raise ValueError
        if kind == TIMESTAMP:
            # Requires an offset, so that no zone has to be guessed.
            return within_time(pa.array([text]).cast(TIMESTAMP))[0]
        convert = cast_of(pa.string(), kind)
        if convert is None:
            raise ValueError
        return convert(pa.array([text], pa.string()))[0]
    except (ValueError, OverflowError):
        example = " like 2026-01-31T00:00:00Z" if kind == TIMESTAMP else ""
        raise ValueError(f"not a value of type {ddl_type(kind)}{example}") from None


def _same(column: pa.Array) -> pa.Array:
    return column


def _checked(target: pa.DataType, column: pa.Array) -> pa.Array:
    # Arrow refuses overflow, fractions, NaN, whole numbers that a float would round, and bytes that are not UTF-8.
    return column.cast(target)


def _integer_of_text(target: pa.DataType, column: pa.Array) -> pa.Array:
    # Arrow alone would also read 0x1F, and would not read +5.
    refuse(pc.invert(pc.match_substring_regex(column, r"^[+-]?[0-9]{1,40}\z")))
    return pc.utf8_ltrim(column, "+").cast(target)


def _float_of_text(target: pa.DataType, column: pa.Array) -> pa.Array:
    refuse(pc.invert(pc.match_substring_regex(column, rf"^(?:{_NUMBER})\z")))
    numbers = column.cast(target)
    refuse(pc.invert(pc.is_finite(numbers)))
    return numbers


def _boolean_of_text(target: pa.DataType, column: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(column)
    truth = pc.equal(lower, "true")
    refuse(pc.invert(pc.or_(truth, pc.equal(lower, "false"))))
    return truth


def _boolean_of_number(target: pa.DataType, column: pa.Array) -> pa.Array:
    refuse(pc.or_(pc.less(column, 0), pc.greater(column, 1)))
    return column.cast(target)


def _date_of_text(target: pa.DataType, column: pa.Array) -> pa.Array:
    dates = column.cast(target)
    days = dates.cast(pa.int32())
    refuse(pc.or_(pc.less(days, FIRST_DAY), pc.greater(days, LAST_DAY)))
    return dates


_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_DECIMAL_TEXT = re.compile(_NUMBER)
_INTEGERS = (pa.int32(), pa.int64())
_FLOATS = (pa.float32(), pa.float64())
_STRING = pa.string()

_CASTS: Mapping[tuple[pa.DataType, pa.DataType], Callable[[pa.DataType, pa.Array], pa.Array]] = {
    (pa.int32(), pa.int64()): _checked,
    (pa.int64(), pa.int32()): _checked,
    (pa.float32(), pa.float64()): _checked,
    **{(number, _FLOATS[i]): _checked for number in _INTEGERS for i in (0, 1)},
    **{(number, _INTEGERS[i]): _checked for number in _FLOATS for i in (0, 1)},
    **{(number, pa.bool_()): _boolean_of_number for number in _INTEGERS},
    **{(pa.bool_(), number): _checked for number in _INTEGERS},
    **{(kind, _STRING): _checked for kind in (*_INTEGERS, *_FLOATS, pa.bool_(), pa.date32(), TIMESTAMP, pa.binary())},
    **{(_STRING, number): _integer_of_text for number in _INTEGERS},
    **{(_STRING, number): _float_of_text for number in _FLOATS},
    (_STRING, pa.bool_()): _boolean_of_text,
    (_STRING, pa.date32()): _date_of_text,
    (_STRING, pa.binary()): _checked,
    (pa.date32(), TIMESTAMP): _checked,
}
_TO_DECIMAL = (*_INTEGERS, *_FLOATS, _STRING)


def _decimal_cast(kind: pa.DataType, target: pa.DataType) -> Convert | None:
    if pa.types.is_decimal(kind) and pa.types.is_decimal(target):
        return partial(_rescaled, target)
    if pa.types.is_decimal(kind) and target in _INTEGERS:
        return partial(_checked, target)
    if pa.types.is_decimal(kind) and target == _STRING:
        return _text_of_decimal
    if pa.types.is_decimal(kind) and target in _FLOATS:
        return partial(_float_of_decimal, target)
    if kind in _TO_DECIMAL:
        # A float's text is the shortest that identifies it, so 19.99 is 19.99 and not the nearest binary number.
        return partial(_decimal_of_text, target)
    return None


def _rescaled(target: pa.DataType, column: pa.Array) -> pa.Array:
    # Arrow's check for overflow misses products that wrap; in 256 bits 38 digits and 38 zeros do not.
    return column.cast(pa.decimal256(76, target.scale)).cast(target)


def _decimal_of_text(target: pa.DataType, column: pa.Array) -> pa.Array:
    text = column.cast(_STRING)
    # Arrow turns 39 digits, and some exponents, into other numbers, so it is used only where that cannot happen.
    plain = pc.match_substring_regex(text, r"^[+-]?[0-9]{1,19}(?:\.[0-9]{1,15})?\z")
    if pc.all(plain, min_count=0).as_py():
        return _rescaled(target, text.cast(pa.decimal256(76, target.scale)))
    special = pc.fill_null(pc.invert(plain), False)
    decimals = _rescaled(target, pc.if_else(plain, text, None).cast(pa.decimal256(76, target.scale)))
    exact = [_exact_decimal(special_text, target) for special_text in text.filter(special).to_pylist()]
    return pc.replace_with_mask(decimals, special, pa.array(exact, target))


def _exact_decimal(text: str, target: pa.DataType) -> Decimal:
    if not _DECIMAL_TEXT.fullmatch(text):
        raise pa.ArrowInvalid("not a number")
    # Too many digits, and digits that would be rounded away, raise; trailing zeros may be dropped.
    context = Context(prec=target.precision, traps=[InvalidOperation, Inexact])
    try:
        return Decimal(text).quantize(Decimal((0, (1,), -target.scale)), context=context)
    except ArithmeticError:
        raise pa.ArrowInvalid("not a decimal of this precision and scale") from None


def _text_of_decimal(column: pa.Array) -> pa.Array:
    text = column.cast(_STRING)
    scientific = pc.match_substring(text, "E")
    if not pc.any(scientific).as_py():
        return text
    plain = [format(value, "f") for value in column.filter(scientific).to_pylist()]
    return pc.replace_with_mask(text, pc.fill_null(scientific, False), pa.array(plain, _STRING))


def _float_of_decimal(target: pa.DataType, column: pa.Array) -> pa.Array:
    # Exact when the float's shortest text is the same number, as JSON and Spark print it.
    floats = column.cast(_STRING).cast(target)
    back = _decimal_of_text(column.type, floats)
    refuse(pc.not_equal(back, column))
    return floats


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts fields to other types. A value that the new type cannot hold exactly is rejected."""

    types: Mapping[str, pa.DataType]

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([((name,), name) for name in self.types], incoming)])
        problems = []
        for name, target in self.types.items():
            kind = incoming.field(name).type
            if cast_of(kind, target) is None:
                problems.append(Problem((name,), _no_way(name, kind, target)))
        require(problems)
        return pa.schema([_cast_field(field, self.types) for field in incoming])

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        conversions = {}
        for name, target in self.types.items():
            field = batch.schema.field(name)
            convert = cast_of(field.type, target)
            assert convert is not None, "output_schema accepts no other type"
            expected = f"a value that {ddl_type(target)} holds exactly"
            conversions[name] = Conversion(_cast_field(field, self.types), convert, expected)
        return convert_columns(batch, conversions)


def _cast_field(field: pa.Field, types: Mapping[str, pa.DataType]) -> pa.Field:
    return field.with_type(types.get(field.name, field.type))


def _no_way(name: str, kind: pa.DataType, target: pa.DataType) -> str:
    text = f"{name} has type {ddl_type(kind)}, which cannot be cast to {ddl_type(target)}"
    if {kind, target} == {pa.float64(), pa.float32()}:
        return f"{text}: it would round; keep double"
    if pa.types.is_timestamp(target):
        return f"{text}; use the transform `timestamp`, which says the format and the zone"
    if pa.types.is_struct(kind):
        return f"{text}; flatten it first, then cast its parts"
    allowed = ", ".join(castable_to(kind))
    return f"{text}; allowed: {allowed}" if allowed else f"{text}, nor to anything else"
