"""The meaning of Kafka Connect's values: how a declared column is read from a record, and how it becomes its type. Pure.

| column | Connect's type | |
|---|---|---|
| decimal, string, double, float | Decimal, VariableScaleDecimal | base64 of the unscaled number; a text has all its digits |
| date | Date, io.debezium.time.Date | days since 1970 |
| date | io.debezium.time.IsoDate | text, `2026-01-31Z` |
| timestamp | Timestamp, io.debezium.time.Timestamp, MicroTimestamp, NanoTimestamp | a number since 1970; no part of a microsecond is dropped |
| any | any other | as in plain records |

A record without a schema does not say what its numbers mean: dates are days since 1970, as Connect has no other, and all else
is as in plain records.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.records.convert.converter import Converter, Decoded, Rejected, shortened
from hudi_ingest.records.convert.values import value_bytes, without_faults
from hudi_ingest.records.schema.columns import TIMESTAMP, ddl_type
from hudi_ingest.records.schema.wire_type import (
    DAYS,
    DECIMAL,
    EPOCHS,
    ISO_DATE,
    ISO_TIMESTAMP,
    VARIABLE_SCALE_DECIMAL,
    ZONED_TIMESTAMP,
    WireType,
)
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND
from hudi_ingest.records.transform.casts import Convert, cast_of, convert_exactly, refuse, shown, within_time
from hudi_ingest.records.transform.timestamps import iso8601_times

_MOST_DECIMAL_BYTES = 16
_MOST_DIGITS = 38
_SCALES = range(-1_000, 16_384)
"""PostgreSQL's `numeric` has up to 16,383 digits after the point, Oracle's up to 84 zeros before it. More would only fill memory."""
_MOST_NUMBER_BYTES = 65_536
"""PostgreSQL's longest `numeric` has 147,455 digits, in 61,231 bytes."""
_EXACT = Context(prec=200_000, traps=[InvalidOperation, Inexact])
_LONGER_NUMBERS = "; for other numbers set Debezium's decimal.handling.mode to string, and declare the column as string"
_INFINITIES = {
    # Microseconds, milliseconds, days, text of `timestamptz`, and texts of `time.precision.mode=isostring`. Debezium's days of both
    # have wrapped around.
    **dict.fromkeys(("9223372036825200000", "9223372036825200", "-2147472692", '"infinity"'), "infinity"),
    **dict.fromkeys(('"+294247-01-10T04:00:25.2Z"', '"-5877611-06-21Z"'), "infinity"),
    **dict.fromkeys(("-9223372036832400000", "-9223372036832400", "-2147472691", '"-infinity"'), "-infinity"),
    **dict.fromkeys(('"-290308-12-21T19:59:27.6Z"', '"-5877611-06-22Z"'), "-infinity"),
}
"""How Debezium shows PostgreSQL's infinite times and dates, as they are found, and their names there."""
_INFINITE_NANOSECONDS = {"-29575808000": "infinity", "22375808000": "-infinity"}
"""The same in nanoseconds, which wrap around to times near 1970: 23:59:30.424192 and 00:00:22.375808."""
_BASE64_NOT_HEX = (
    "binary as base64 text; digits and a to f alone may as well be hex: set Debezium's binary.handling.mode to bytes, or declare "
    "the column as string"
)
_DECIMAL_LIKE = (pa.string(), pa.float32(), pa.float64())


@dataclass(frozen=True, slots=True)
class Reading:
    """How a value is read, and what is done to it."""

    wire: pa.DataType
    """The type that it is read as."""
    convert: Convert | None = None
    """Converts that type to the declared one; None if there is nothing to do, or it is done to `members`."""
    expected: str = ""
    """The values that `convert` expects, in words; they begin with "a "."""
    found: Callable[[pa.Scalar], str] = shown
    """How a value that cannot be converted is shown."""
    members: tuple[Reading, ...] = ()
    """The readings of a struct's members, if any of them is converted."""

    @property
    def is_plain(self) -> bool:
        return self.convert is None and not self.members


def avro_reading_of(target: pa.DataType, connect: WireType | None) -> Reading:
    """Like `reading_of`, for values in Avro, where numbers of Connect's own types have Avro's logical types."""
    if pa.types.is_struct(target):
        return _struct_of(target, [avro_reading_of(field.type, _member(connect, field.name)) for field in target])
    if pa.types.is_list(target) or pa.types.is_map(target):
        return _container_of(target, avro_reading_of(_content(target).type, connect.items if connect else None))
    if connect is None:
        return Reading(target)
    if target == TIMESTAMP and connect.meaning in (ZONED_TIMESTAMP, ISO_TIMESTAMP):
        return Reading(pa.string(), iso8601_times, "a time in ISO 8601, to the microsecond")
    return reading_of(target, connect, binary=True)


def reading_of(target: pa.DataType, connect: WireType | None, plain: bool = False, binary: bool = False) -> Reading:
    """How values of this Connect type, None if it is not known, become `target`. With `plain` decimals are numbers in spite of
    their type, as `decimal.format` can make them, and dates of no type are text. `binary`: whether bytes are bytes, not base64."""
    if pa.types.is_struct(target):
        return _struct_of(target, [reading_of(field.type, _member(connect, field.name), plain) for field in target])
    if pa.types.is_list(target) or pa.types.is_map(target):
        return _container_of(target, reading_of(_content(target).type, connect.items if connect else None, plain))
    if target == pa.date32() and (not plain if connect is None else connect.meaning in DAYS):
        return Reading(pa.int32(), _date_of_days, "a date as days since 1970, in the years 1 to 9999")
    if target == pa.date32() and (connect is None or connect.meaning == ISO_DATE):
        return Reading(pa.string(), _date_of_iso, "a date in ISO 8601, like 2026-01-31 or 2026-01-31Z")
    if connect is None or (plain and connect.meaning == DECIMAL and not pa.types.is_string(target)):
        return Reading(target)
    if pa.types.is_binary(target) and connect.kind == "string" and not binary:
        return Reading(pa.string(), _bytes_of_base64, _BASE64_NOT_HEX)
    if target == TIMESTAMP and connect.meaning in EPOCHS:
        unit = EPOCHS[connect.meaning]
        expected = f"a time in {unit} since 1970, in the years 1 to 9999 and of whole microseconds"
        return Reading(pa.int64(), partial(_time_of, unit), expected)
    if (pa.types.is_decimal(target) or target in _DECIMAL_LIKE) and connect.meaning == DECIMAL:
        convert = partial(_of_unscaled, target, connect.scale)
        expected = f"a {ddl_type(target)} as base64 of an unscaled number"
        return Reading(pa.string(), convert, expected, partial(_shown_number, connect.scale))
    if (pa.types.is_decimal(target) or target in _DECIMAL_LIKE) and connect.meaning == VARIABLE_SCALE_DECIMAL:
        unscaled = pa.field("value", pa.binary() if binary else pa.string(), False)
        wire = pa.struct([pa.field("scale", pa.int32(), False), unscaled])
        expected = f"a {ddl_type(target)} as a scale and base64{_LONGER_NUMBERS}"
        return Reading(wire, partial(_of_variable_decimal, target), expected, partial(_shown_number, None))
    return Reading(target)


def converted(
    column: pa.Array, reading: Reading, target: pa.DataType, path: str, faults: dict[int, Rejected]
) -> pa.Array:
    """Convert a column; what cannot be is null, and its first fault is in `faults`, by its place."""
    if reading.is_plain:
        return column
    if reading.convert is not None:
        array, bad = convert_exactly(column, reading.convert, target)
        for index in bad:
            fault = Rejected(index, path, reading.expected, reading.found(column[index]))
            faults.setdefault(index, _with_infinity(fault))
        return array
    members = [
        converted(pc.struct_field(column, [place]), member, field.type, f"{path}.{field.name}", faults)
        for place, (member, field) in enumerate(zip(reading.members, target, strict=True))
    ]
    return _struct(members, target, column)


def wire_schema(schema: pa.Schema, readings: Sequence[Reading]) -> pa.Schema:
    """The columns as they are read."""
    return pa.schema([field.with_type(reading.wire) for field, reading in zip(schema, readings, strict=True)])


def decoded_rows(
    converter: Converter, values: pa.BinaryArray, schema: pa.Schema, readings: Sequence[Reading]
) -> Decoded:
    """Decode values with a converter to `wire_schema`, and convert the rows to `schema`."""
    read = converter.decode(values)
    if read.rejected:
        read = replace(read, rejected=tuple(map(_with_infinity, read.rejected)))
    if all(reading.is_plain for reading in readings):
        return read
    faults: dict[int, Rejected] = {}
    columns = [
        converted(column, reading, field.type, field.name, faults)
        for column, reading, field in zip(read.rows.columns, readings, schema, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return without_faults(read, rows, len(values), faults)


def _with_infinity(fault: Rejected) -> Rejected:
    """Say of PostgreSQL's infinite times and dates that they are that."""
    of_time = fault.expected.startswith(("timestamp ", "date ", "a time ", "a date "))
    names = {**_INFINITIES, **_INFINITE_NANOSECONDS} if "in nanoseconds" in fault.expected else _INFINITIES
    name = names.get(fault.found) if of_time else None
    if name is None:
        return fault
    keeper = "string" if fault.found.startswith('"') else "long"
    remedy = f"PostgreSQL's {name} is none: declare the column as {keeper}, or store null instead of it"
    return replace(fault, expected=f"{fault.expected}; {remedy}")


def _struct_of(target: pa.StructType, members: Sequence[Reading]) -> Reading:
    if all(member.is_plain for member in members):
        return Reading(target)
    fields = [field.with_type(member.wire) for field, member in zip(target, members, strict=True)]
    return Reading(pa.struct(fields), members=tuple(members))


def _container_of(target: pa.DataType, items: Reading) -> Reading:
    if items.is_plain:
        return Reading(target)
    inner = _content(target).with_type(items.wire)
    wire = pa.list_(inner) if pa.types.is_list(target) else pa.map_(target.key_type, inner)
    return Reading(wire, partial(_with_items, target, items), f"{ddl_type(target)} of Kafka Connect")


def _content(target: pa.DataType) -> pa.Field:
    return target.value_field if pa.types.is_list(target) else target.item_field


def _member(connect: WireType | None, name: str) -> WireType | None:
    return connect.members.get(name) if connect is not None else None


def _with_items(target: pa.DataType, reading: Reading, column: pa.Array) -> pa.Array:
    if not len(column):
        return pa.array([], target)
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    # Not the items of rows beside a slice: their faults are not of these rows.
    own = slice(int(offsets[0]), int(offsets[-1]))
    if pa.types.is_list(target):
        content = _all_converted(column.values[own], reading, target.value_type)
    else:
        entry = [pa.field("key", target.key_type, False), target.item_field]
        values = _all_converted(column.items[own], reading, target.item_type)
        content = pa.StructArray.from_arrays([column.keys[own], values], fields=entry)
    valid = column.is_valid().buffers()[1] if column.null_count else None
    moved = pa.py_buffer(offsets - offsets[0])
    return pa.Array.from_buffers(target, len(column), [valid, moved], children=[content])


def _all_converted(column: pa.Array, reading: Reading, target: pa.DataType) -> pa.Array:
    """Raises ArrowInvalid when one of the values cannot be converted."""
    faults: dict[int, Rejected] = {}
    array = converted(column, reading, target, "", faults)
    if faults:
        raise pa.ArrowInvalid("an item cannot be converted")
    return array


def _struct(members: Sequence[pa.Array], target: pa.StructType, like: pa.Array) -> pa.StructArray:
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays([*members], fields=[*target], mask=mask)


def _bytes_of_base64(texts: pa.Array) -> pa.Array:
    refuse(pc.match_substring_regex(texts, r"\A[0-9a-f]+\z"))
    try:
        found = [text if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from None
    return pa.array(found, pa.binary())


def _date_of_days(days: pa.Array) -> pa.Array:
    refuse(pc.or_(pc.less(days, FIRST_DAY), pc.greater(days, LAST_DAY)))
    return days.cast(pa.date32())


def _date_of_iso(texts: pa.Array) -> pa.Array:
    """`time.precision.mode=isostring` ends dates with Z."""
    return _date_of_days(pc.replace_substring_regex(texts, "Z$", "").cast(pa.date32()).cast(pa.int32()))


def _time_of(unit: str, numbers: pa.Array) -> pa.Array:
    if unit == "nanoseconds":
        refuse(pc.is_in(numbers, pa.array(map(int, _INFINITE_NANOSECONDS), pa.int64())))
        whole = pc.divide(numbers, 1000)
        refuse(pc.not_equal(pc.multiply(whole, 1000), numbers))
        return within_time(whole.cast(TIMESTAMP))
    if unit == "milliseconds":
        refuse(pc.or_(pc.less(numbers, FIRST_MICROSECOND // 1000), pc.greater(numbers, LAST_MICROSECOND // 1000)))
        numbers = pc.multiply(numbers, 1000)
    return within_time(numbers.cast(TIMESTAMP))


def _of_unscaled(target: pa.DataType, scale: int, unscaled: pa.Array) -> pa.Array:
    """`unscaled`: big-endian numbers, as bytes or as their base64."""
    try:
        return _by_columns(target, scale, unscaled)
    except pa.ArrowInvalid:
        return _one_by_one(target, [scale] * len(unscaled), unscaled)


def _of_variable_decimal(target: pa.DataType, structs: pa.Array) -> pa.Array:
    scales, unscaled = pc.struct_field(structs, [0]), pc.struct_field(structs, [1])
    arrays = pa.nulls(len(structs), target)
    try:
        for scale in pc.unique(scales.drop_null()).to_pylist():
            chosen = pc.fill_null(pc.equal(scales, scale), False)
            arrays = pc.replace_with_mask(arrays, chosen, _by_columns(target, scale, unscaled.filter(chosen)))
        return arrays
    except pa.ArrowInvalid:
        return _one_by_one(target, scales.to_pylist(), unscaled)


def _by_columns(target: pa.DataType, scale: int, unscaled: pa.Array) -> pa.Array:
    """Numbers of at most 38 digits and places. Raises ArrowInvalid when one is longer, is none, or does not fit."""
    if not 0 <= scale <= _MOST_DIGITS:
        raise pa.ArrowInvalid(f"no decimal has scale {scale}")
    of_bytes = pa.types.is_binary(unscaled.type)
    decimals = decimals_of_bytes(unscaled, scale) if of_bytes else decimals_of_base64(unscaled, scale)
    convert = cast_of(decimals.type, target)
    assert convert is not None, "only called for types that decimals can become"
    return convert(decimals)


def _one_by_one(target: pa.DataType, scales: Iterable[int], unscaled: pa.Array) -> pa.Array:
    """Convert numbers of any length, as `_by_columns` does those where that is possible. Raises Refused."""
    values: list[Any] = []
    wrong: list[bool] = []
    for scale, digits in zip(scales, unscaled.to_pylist(), strict=True):
        value = None
        try:
            value = None if digits is None else _value_of(target, _number_of(scale, digits))
        except (ArithmeticError, ValueError):
            wrong.append(True)
        else:
            wrong.append(False)
        values.append(value)
    refuse(pa.array(wrong, pa.bool_()))
    return pa.array(values, target)


def _number_of(scale: int, unscaled: str | bytes) -> Decimal:
    """Raises ValueError when it is no number, or one that would take a while to write out."""
    if isinstance(unscaled, str):
        # Python alone would also take padding that nothing needs.
        content = base64.b64decode(unscaled, validate=True) if len(unscaled) % 4 == 0 else b""
    else:
        content = unscaled
    if not content or len(content) > _MOST_NUMBER_BYTES or scale not in _SCALES:
        raise ValueError("no number of a database")
    return Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-scale, _EXACT)


def _value_of(target: pa.DataType, number: Decimal) -> Any:
    """Raises ArithmeticError or ValueError when the type does not hold this number exactly."""
    if pa.types.is_decimal(target):
        context = Context(prec=target.precision, traps=[InvalidOperation, Inexact])
        return number.quantize(Decimal((0, (1,), -target.scale)), context=context)
    text = format(number, "f")
    if pa.types.is_string(target):
        return text
    value = pa.scalar(text).cast(target)
    if Decimal(value.cast(pa.string()).as_py()) != number:
        raise ValueError("it would be rounded")
    return value.as_py()


def _shown_number(scale: int | None, value: pa.Scalar) -> str:
    """`scale`: of all values; None if each has its own."""
    digits = value.as_py()
    try:
        number = _number_of(digits["scale"], digits["value"]) if scale is None else _number_of(scale, digits)
    except (ValueError, TypeError):
        return f"scale {digits['scale']} and {shown(value['value'])}" if scale is None and digits else shown(value)
    _, figures, exponent = number.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    before, after = max(len(figures) + exponent, 1), max(-exponent, 0)
    return f"{shortened(format(number, 'f'), 40)}, with {counted(before, 'digit')} before and {after} after the point"


def decimals_of_base64(texts: pa.Array, scale: int) -> pa.Array:
    """Return decimal128(38, scale) of base64 texts of big-endian two's complement numbers. Raises ArrowInvalid when one is
    anything else."""
    filled = pc.fill_null(texts, "AA==") if texts.null_count else texts
    offsets = np.frombuffer(filled.buffers()[1], np.int32, len(filled) + 1, 4 * filled.offset)
    data = filled.buffers()[2]
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    if len(lengths) and ((lengths % 4).any() or not lengths.all()):
        raise pa.ArrowInvalid("a text is not base64 of a number")
    codes = _CODES[text]
    padded = text == _PADDING
    ends = offsets[1:] - offsets[0]
    last, before_last = padded[ends - 1], padded[ends - 2]
    sizes = lengths // 4 * 3 - last - (last & before_last)
    if (codes > 63).any() or padded.sum() != last.sum() + (last & before_last).sum():
        raise pa.ArrowInvalid("a text is not base64")
    return _decimals(_bytes_of(codes), (ends - lengths) // 4 * 3, sizes, scale, texts)


def decimals_of_bytes(numbers: pa.Array, scale: int) -> pa.Array:
    """Return decimal128(38, scale) of big-endian two's complement numbers. Raises ArrowInvalid when one is empty or too large."""
    filled = pc.fill_null(numbers, b"\0") if numbers.null_count else numbers
    data, starts = value_bytes(filled)
    return _decimals(data, starts[:-1], np.diff(starts), scale, numbers)


def _bytes_of(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The bytes that groups of four base64 characters stand for."""
    first, second, third, fourth = codes.reshape(-1, 4).T
    return np.stack([first << 2 | second >> 4, second << 4 | third >> 2, third << 6 | fourth], axis=1).reshape(-1)


def _decimals(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.integer[Any]],
    sizes: npt.NDArray[np.integer[Any]],
    scale: int,
    like: pa.Array,
) -> pa.Array:
    """Decimals of numbers that begin at `starts`, most significant byte first; null where `like` is."""
    numbers = np.empty((len(starts), _MOST_DECIMAL_BYTES), np.uint8)
    if len(starts):
        if sizes.max() > _MOST_DECIMAL_BYTES or sizes.min() < 1:
            raise pa.ArrowInvalid("a number has no digits, or more than 38")
        numbers[:] = np.where(data[starts] > 127, 255, 0).astype(np.uint8)[:, None]
        for place in range(int(sizes.max())):
            chosen = sizes > place
            numbers[chosen, place] = data[(starts + sizes - 1 - place)[chosen]]
    buffers = [None, pa.py_buffer(numbers.tobytes())]
    decimals = pa.Array.from_buffers(pa.decimal128(_MOST_DIGITS, scale), len(starts), buffers)
    decimals.validate(full=True)
    return pc.if_else(like.is_valid(), decimals, None) if like.null_count else decimals


_PADDING = ord("=")
_CODES = np.full(256, 255, np.uint8)
_CODES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
_CODES[_PADDING] = 0
