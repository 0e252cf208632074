"""Check one Avro datum at a time against the declared schema: slow, exact, and able to say what is wrong.

The writer's types that each column type accepts, by Avro's rules of schema resolution and no others:

| table | written as |
|---|---|
| boolean | boolean |
| int | int |
| long | int, long |
| float | int, long, float |
| double | int, long, float, double |
| string | string, enum, UTF-8 bytes, uuid on fixed |
| binary | bytes, fixed, string |
| decimal | decimal on bytes or fixed; another scale when no digit is lost |
| date | date |
| timestamp | timestamp-millis, timestamp-micros (without zone: local-timestamp-…) |
| array, map, struct | array, map, record |

A number with a logical type (time-millis, date, timestamp-nanos…) may be read as the plain number, a duration as its 12
bytes. null is accepted where the column is nullable. A field that the writer's schema lacks gets its default, or null; one
that the table lacks is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property, partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from hudi_ingest.records.avro_bytes import AvroBytes, EndOfBytes
from hudi_ingest.records.convert.avro.layout import Layout, whole_layout
from hudi_ingest.records.convert.converter import ABSENT, Mismatch, read_items, shortened
from hudi_ingest.records.schema.avro import Resolution
from hudi_ingest.records.schema.wire_type import WireType
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND

Reader = Callable[[Any], Any]
"""Value of the layout -> what `pyarrow.array` takes for the column. Raises Mismatch."""

INTEGERS: Mapping[pa.DataType, tuple[str, ...]] = {pa.int32(): ("int",), pa.int64(): ("int", "long")}
FLOATS: Mapping[pa.DataType, tuple[str, ...]] = {
    pa.float32(): ("int", "long", "float"),
    pa.float64(): ("int", "long", "float", "double"),
}
TIMESTAMPS: Mapping[pa.DataType, Mapping[str, int]] = {
    pa.timestamp("us", "UTC"): {"timestamp-millis": 1000, "timestamp-micros": 1},
    pa.timestamp("us"): {"local-timestamp-millis": 1000, "local-timestamp-micros": 1},
}
"""The logical types that each column type is read from, and their units in microseconds."""


class DatumReader:
    """Reads datums of one writer's schema to rows of `schema`. The first `header_bytes` of each value are skipped."""

    def __init__(self, writer: WireType, schema: pa.Schema, resolution: Resolution, header_bytes: int) -> None:
        self._writer = writer
        self._header_bytes = header_bytes
        self._read = _value_reader(writer, pa.struct(list(schema)), "", resolution)

    @cached_property
    def _layout(self) -> Layout:
        # Most readers never read anything.
        return Layout(whole_layout(self._writer, True))

    def parsed(self, values: pa.BinaryArray) -> Iterator[Any]:
        """Yield each datum as `read` takes it."""
        found, whole = self._layout.read(values, self._header_bytes)
        parsed = iter(found.to_pylist())
        for index, is_whole in enumerate(whole.tolist()):
            yield next(parsed) if is_whole else values[index].as_py()[self._header_bytes :]

    def read(self, parsed: Any) -> dict[str, Any]:
        """Return column name -> value as `pyarrow.array` takes it. Raises Mismatch, nothing else."""
        if isinstance(parsed, bytes):
            raise self._broken(parsed)
        row: dict[str, Any] = self._read(parsed)
        return row

    def _broken(self, datum: bytes) -> Mismatch:
        data = AvroBytes(datum)
        try:
            _pass_over(self._writer, data)
        except ValueError as error:
            reason = "it ends too early" if isinstance(error, EndOfBytes) else str(error)
            found = shortened(f"{len(datum)} bytes that are none: {reason}")
            return Mismatch("a record of its writer's schema", found)
        return Mismatch(f"the end after the record's {data.at} bytes", f"{len(datum) - data.at} more bytes")


def _field_reader(writer: WireType, field: pa.Field, path: str, resolution: Resolution) -> Reader:
    inner, nullable = writer.inner
    if inner.kind == "null":
        read: Reader = _refuse(in_words(field.type), "null")
    else:
        read = _value_reader(inner, field.type, path, resolution)
    if field.nullable:
        return lambda value: None if value is None else read(value)
    if not nullable:
        return read

    def read_required(value: Any) -> Any:
        if value is None:
            raise Mismatch(f"{in_words(field.type)}, not null", "null")
        return read(value)

    return read_required


def _refuse(expected: str, found: str) -> Reader:
    def read(value: Any) -> Any:
        raise Mismatch(expected, found)

    return read


def in_words(type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        return "a record"
    if pa.types.is_list(type_):
        return "an array"
    if pa.types.is_map(type_):
        return "a map"
    return str(type_)


def _value_reader(writer: WireType, type_: pa.DataType, path: str, resolution: Resolution) -> Reader:
    """Return the reader of non-null values."""
    kind, logical = writer.kind, writer.logical
    if pa.types.is_struct(type_) and kind == "record":
        return _struct_reader(writer, list(type_), path, resolution)
    if pa.types.is_list(type_) and kind == "array":
        return partial(read_items, read=_field_reader(writer.parts[0], type_.value_field, f"{path}[]", resolution))
    if pa.types.is_map(type_) and kind == "map":
        return _map_reader(_field_reader(writer.parts[0], type_.item_field, f"{path}[]", resolution))
    if pa.types.is_decimal128(type_) and logical == "decimal":
        return _decimal_reader(type_, writer.scale)
    if logical == "decimal":
        return _refuse(in_words(type_), str(writer))
    if pa.types.is_boolean(type_) and kind == "boolean":
        return bool
    if kind in INTEGERS.get(type_, ()):
        return _number_reader(kind)
    if kind in FLOATS.get(type_, ()):
        read_number = _number_reader(kind)
        return lambda value: float(read_number(value))
    if pa.types.is_date32(type_) and logical == "date" and kind == "int":
        return _within(FIRST_DAY, LAST_DAY, "date of the years 1 to 9999", "days since 1970")
    unit = TIMESTAMPS.get(type_, {}).get(str(logical))
    if unit and kind == "long":
        return _timestamp_reader(unit)
    if pa.types.is_string(type_):
        if kind == "enum":
            return _enum_reader(writer.names)
        if kind in ("string", "bytes"):
            return _read_text
        if kind == "fixed" and logical == "uuid" and writer.size == 16:
            return lambda value: str(UUID(bytes=value))
    if pa.types.is_binary(type_) and kind in ("bytes", "fixed", "string"):
        return lambda value: value
    return _refuse(in_words(type_), str(writer))


def _struct_reader(writer: WireType, fields: Sequence[pa.Field], path: str, resolution: Resolution) -> Reader:
    written = {name: (str(i), part) for i, (name, part) in enumerate(zip(writer.names, writer.parts, strict=True))}
    members: list[tuple[str, str, Reader]] = []
    missing: dict[str, Any] = {}
    absent: list[tuple[str, str, str]] = []
    for field in fields:
        inner = f"{path}.{field.name}".removeprefix(".")
        name_written = resolution.written_name(inner, writer.names)
        if name_written is not None:
            wire_name, part = written[name_written]
            members.append((field.name, wire_name, _field_reader(part, field, inner, resolution)))
        elif inner in resolution.unfit:
            absent.append((field.name, in_words(field.type), f"{ABSENT}, and {resolution.unfit[inner]}"))
        elif field.nullable or inner in resolution.defaults:
            missing[field.name] = resolution.defaults.get(inner)
        else:
            absent.append((field.name, f"{in_words(field.type)}, not null", f"{ABSENT} in the writer's schema"))

    def read(value: Any) -> dict[str, Any]:
        if absent:
            name, expected, found = absent[0]
            mismatch = Mismatch(expected, found)
            mismatch.under("." + name)
            raise mismatch
        row = dict(missing)
        name = ""
        try:
            for name, wire_name, read_member in members:
                row[name] = read_member(value[wire_name])
        except Mismatch as mismatch:
            mismatch.under("." + name)
            raise
        return row

    return read


def _map_reader(read_item: Reader) -> Reader:
    def read(value: Any) -> list[tuple[str, Any]]:
        entries: dict[str, Any] = {}
        for entry in value:
            key = _read_text(entry["0"])
            if key in entries:
                raise Mismatch("each key once", f"a key more than once: {shortened(key, 40)}")
            try:
                entries[key] = read_item(entry["1"])
            except Mismatch as mismatch:
                mismatch.under(f"[{shortened(repr(key), 40)}]")
                raise
        return list(entries.items())

    return read


def _decimal_reader(type_: pa.DataType, scale: int) -> Reader:
    shift = type_.scale - scale

    def read(value: bytes) -> Decimal:
        if not value:
            raise Mismatch(f"decimal({type_.precision},{type_.scale})", "no bytes, which are no number")
        number = int.from_bytes(value, "big", signed=True)
        if shift >= 0:
            number *= 10**shift
        else:
            number, lost = divmod(number, 10**-shift)
            if lost:
                raise Mismatch(
                    f"decimal({type_.precision},{type_.scale})", f"a decimal of scale {scale} with more digits"
                )
        if abs(number) >= 10**type_.precision:
            raise Mismatch(f"decimal({type_.precision},{type_.scale})", "a decimal of more digits")
        # From its parts: arithmetic would round to the context's 28 digits.
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -type_.scale))

    return read


def _number_reader(kind: str) -> Reader:
    if kind == "int":
        return _within(-(1 << 31), (1 << 31) - 1, "int (32 bit)", "")
    return lambda value: value


def _within(lowest: int, highest: int, expected: str, unit: str) -> Reader:
    def read(value: int) -> int:
        if lowest <= value <= highest:
            return value
        raise Mismatch(expected, f"{value} {unit}".strip())

    return read


def _timestamp_reader(unit: int) -> Reader:
    check = _within(FIRST_MICROSECOND, LAST_MICROSECOND, "timestamp of the years 1 to 9999", "microseconds since 1970")
    return lambda value: check(value * unit)


def _enum_reader(symbols: Sequence[str]) -> Reader:
    def read(value: int) -> str:
        if 0 <= value < len(symbols):
            return symbols[value]
        raise Mismatch(f"one of the enum's {len(symbols)} symbols", f"number {value}")

    return read


def _read_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Mismatch("string", f"bytes that are not UTF-8, at byte {error.start}") from None


_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def _pass_over(tree: WireType, data: AvroBytes) -> None:
    """Pass over a value. Raises ValueError where there is none."""
    kind = tree.kind
    if kind in ("int", "long", "enum"):
        data.long()
    elif kind in ("bytes", "string"):
        data.bytes()
    elif kind == "union":
        branch = data.long()
        if not 0 <= branch < len(tree.parts):
            raise ValueError(f"a union has no branch {branch}")
        _pass_over(tree.parts[branch], data)
    elif kind == "record":
        for part in tree.parts:
            _pass_over(part, data)
    elif kind in ("array", "map"):
        for _ in data.items():
            if kind == "map":
                data.bytes()
            _pass_over(tree.parts[0], data)
    else:
        data.take(_SIZES.get(kind, tree.size))
