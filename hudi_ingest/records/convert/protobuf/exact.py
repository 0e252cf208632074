"""Read Protobuf records with google.protobuf itself: every legal encoding, and an explanation of what is wrong.

How a field becomes a column:

| Protobuf | fits columns of type |
|---|---|
| int32 … sfixed64, uint32, fixed32, uint64, fixed64 | int, bigint, decimal(p,s); a number that does not fit is refused |
| float, double | float (from float only), double; NaN and infinities are kept |
| bool | boolean |
| string | string |
| bytes | binary |
| enum | string, the value's name (a number without a name is refused); int and bigint, its number |
| message | struct of any of its fields |
| google.protobuf.Timestamp | timestamp, in whole microseconds; or a struct, as it is |
| google.protobuf.Int32Value and its like | what the scalar fits |
| google.protobuf.Struct, Value, ListValue | string, as JSON text with sorted keys |
| repeated | array |
| map | map, its keys as text: 7 is "7", true is "true" |

An absent field is null if Protobuf distinguishes absent from default (message, oneof, `optional`, all of proto2), and its
default otherwise. Undeclared fields are ignored. Messages may nest 100 deep, as in every Protobuf library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.records.convert.converter import ABSENT, Mismatch, Rejected, read_items, shortened
from hudi_ingest.records.convert.protobuf.schema import JSON_MESSAGES, TIMESTAMP_MESSAGE, WRAPPERS, is_map, is_proto3
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.times import FIRST_SECOND, LAST_SECOND

CHUNK_ROWS = 256
"""Messages parsed at once: few enough to stay in the processor's cache."""

Reader = Callable[[Any], Any]
"""A field's Python value -> what `pyarrow.array` takes for the column. Raises Mismatch."""
FieldReader = Callable[[Message], Any]
"""A message -> the value of one of its fields. Raises Mismatch."""

_INTEGERS = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_INTEGER_RANGES: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


class MessageReader:
    """Reads messages of one type to columns of `schema`.

    A column that the message type lacks is null in every row; if it is NOT NULL, every record is refused. Raises
    ValueError at construction when a field does not fit its column.
    """

    def __init__(self, message: Descriptor, schema: pa.Schema, truncate_nanoseconds: bool) -> None:
        self._schema = schema
        self._parse = GetMessageClass(message).FromString
        self._name = message.full_name
        self._needs_fields = _has_required(message)
        self._columns = _field_readers(message, list(schema), "", _Timestamps(truncate_nanoseconds))

    def read(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, list[Rejected]]:
        """Return the rows of the good records in order, and the bad ones by their index in `values`."""
        columns: list[list[Any]] = [[] for _ in self._columns]
        rejected: list[Rejected] = []
        for start in range(0, len(values), CHUNK_ROWS):
            chunk = values.slice(start, CHUNK_ROWS).to_pylist()
            try:
                by_column = self._read(chunk)
            except Mismatch:
                # One by one: a record's outcome does not depend on its neighbours.
                by_column = [[] for _ in self._columns]
                for index, value in enumerate(chunk, start):
                    try:
                        row = self._read([value])
                    except Mismatch as mismatch:
                        rejected.append(mismatch.rejected(index))
                    else:
                        for column, cells in zip(by_column, row, strict=True):
                            column += cells
            for column, cells in zip(columns, by_column, strict=True):
                column += cells
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), rejected

    def _read(self, values: Sequence[bytes]) -> list[list[Any]]:
        try:
            messages = [*map(self._parse, values)]
        except DecodeError:
            found = f"{len(values[0])} bytes that are no such message"
            raise Mismatch(f"a Protobuf message {shortened(self._name, 60)}", found) from None
        if self._needs_fields:
            for message in messages:
                if not message.IsInitialized():
                    missing = shortened(", ".join(message.FindInitializationErrors()))
                    raise Mismatch("all required fields of the message", f"none of these: {missing}"[:80])
        return [[*map(read, messages)] for read in self._columns]


def _has_required(message: Descriptor) -> bool:
    seen: set[str] = set()
    waiting = [message]
    while waiting:
        message_type = waiting.pop()
        if message_type.full_name not in seen:
            seen.add(message_type.full_name)
            if any(field.is_required for field in message_type.fields):
                return True
            waiting += [field.message_type for field in message_type.fields if field.message_type is not None]
    return False


def _field_readers(
    message: Descriptor, fields: Sequence[pa.Field], path: str, timestamps: _Timestamps
) -> list[FieldReader]:
    return [_field_reader(message, field, f"{path}.{field.name}".removeprefix("."), timestamps) for field in fields]


def _field_reader(message: Descriptor, column: pa.Field, path: str, timestamps: _Timestamps) -> FieldReader:
    name = column.name
    field = message.fields_by_name.get(name)
    if field is None:
        return _absent(column)
    get: FieldReader = attrgetter(name)
    read = _column_reader(field, column.type, path, timestamps)
    if not field.has_presence:
        return get if read is None else _named(name, lambda record: read(get(record)))
    if column.nullable:
        return _named(name, lambda record: _converted(read, get(record)) if record.HasField(name) else None)

    def required(record: Message) -> Any:
        if not record.HasField(name):
            raise Mismatch(f"{_words(column.type)}, not null", ABSENT)
        return _converted(read, get(record))

    return _named(name, required)


def _converted(read: Reader | None, value: Any) -> Any:
    return value if read is None else read(value)


def _absent(column: pa.Field) -> FieldReader:
    if column.nullable:
        return lambda _: None

    def refuse(_: Message) -> Any:
        raise Mismatch(f"{_words(column.type)}, not null", ABSENT)

    return _named(column.name, refuse)


def _named(name: str, read: FieldReader) -> FieldReader:
    def named(message: Message) -> Any:
        try:
            return read(message)
        except Mismatch as mismatch:
            mismatch.under("." + name)
            raise

    return named


def _column_reader(field: FieldDescriptor, type_: pa.DataType, path: str, timestamps: _Timestamps) -> Reader | None:
    """The reader of a present field; None when its Python value is already the column's. Raises ValueError."""
    if is_map(field):
        if not pa.types.is_map(type_) or not pa.types.is_string(type_.key_type):
            raise _misfit(field, type_, path, "map<string,…>")
        value = field.message_type.fields_by_name["value"]
        return _map_reader(_value_reader(value, type_.item_type, f"{path}.value", timestamps))
    if field.is_repeated:
        if not pa.types.is_list(type_):
            raise _misfit(field, type_, path, "array<…>")
        return _list_reader(_value_reader(field, type_.value_type, f"{path}[]", timestamps))
    return _value_reader(field, type_, path, timestamps)


def _list_reader(read: Reader | None) -> Reader:
    return list if read is None else partial(read_items, read=read)


def _map_reader(read: Reader | None) -> Reader:
    def read_map(entries: Any) -> list[tuple[str, Any]]:
        pairs = []
        text = ""
        try:
            for key, value in sorted(entries.items()):  # Protobuf's maps have no order; a row has one
                text = _key_text(key)
                pairs.append((text, _converted(read, value)))
        except Mismatch as mismatch:
            mismatch.under("[" + shortened(json.dumps(text[:40], ensure_ascii=False), 40) + "]")
            raise
        return pairs

    return read_map


def _key_text(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, bytes):
        raise Mismatch("a key in UTF-8", "bytes that are not UTF-8")
    return str(key)


def _value_reader(field: FieldDescriptor, type_: pa.DataType, path: str, timestamps: _Timestamps) -> Reader | None:
    message = field.message_type
    if message is None:
        return _scalar_reader(field, type_, path)
    if pa.types.is_struct(type_):
        missing = [part.name for part in type_ if part.name not in message.fields_by_name and not part.nullable]
        if missing:
            raise ValueError(f"column {path}: {message.full_name} has no {', '.join(missing)}, which is NOT NULL")
        return _struct_reader(message, [*type_], path, timestamps)
    if message.full_name == TIMESTAMP_MESSAGE and pa.types.is_timestamp(type_) and type_.unit == "us":
        return timestamps.microseconds
    if message.full_name in WRAPPERS:
        read = _scalar_reader(message.fields_by_name["value"], type_, path)
        return lambda wrapper: _converted(read, wrapper.value)
    if message.full_name in JSON_MESSAGES and pa.types.is_string(type_):
        return _json_text
    raise _misfit(field, type_, path, "string" if message.full_name in JSON_MESSAGES else "struct<…>")


def _struct_reader(message: Descriptor, columns: Sequence[pa.Field], path: str, timestamps: _Timestamps) -> Reader:
    members = [
        (column.name, read)
        for column, read in zip(columns, _field_readers(message, columns, path, timestamps), strict=True)
    ]
    return lambda value: {name: read(value) for name, read in members}


def _scalar_reader(field: FieldDescriptor, type_: pa.DataType, path: str) -> Reader | None:
    kind = field.cpp_type
    if kind in _INTEGERS:
        reader = _integer_reader(kind, type_)
        if reader is not None:
            return reader[0]
    elif field.type == FieldDescriptor.TYPE_BYTES:
        if pa.types.is_binary(type_):
            return None
    elif kind == FieldDescriptor.CPPTYPE_STRING:
        if pa.types.is_string(type_):
            # Proto3 verifies text while parsing a message; in other syntaxes invalid text is returned as bytes.
            return None if is_proto3(field.file) else _text
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        if pa.types.is_boolean(type_):
            return None
    elif kind == FieldDescriptor.CPPTYPE_DOUBLE:
        if pa.types.is_float64(type_):
            return None
    elif kind == FieldDescriptor.CPPTYPE_FLOAT:
        if pa.types.is_float64(type_) or pa.types.is_float32(type_):
            return None
    elif kind == FieldDescriptor.CPPTYPE_ENUM:
        if pa.types.is_string(type_):
            return _enum_reader(field)
        if pa.types.is_integer(type_):
            reader = _integer_reader(kind, type_)
            return None if reader is None else reader[0]
    raise _misfit(field, type_, path, _FITTING[kind] if field.type != FieldDescriptor.TYPE_BYTES else "binary")


_FITTING: Mapping[int, str] = {
    **dict.fromkeys(_INTEGERS, "int, bigint or decimal(p,s)"),
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_FLOAT: "float or double",
    FieldDescriptor.CPPTYPE_ENUM: "string, int or bigint",
}


def _misfit(field: FieldDescriptor, type_: pa.DataType, path: str, fitting: str) -> ValueError:
    kind = field.message_type or field.enum_type
    name = kind.full_name if kind is not None else FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    name = "map" if is_map(field) else f"repeated {name}" if field.is_repeated else name
    return ValueError(f"column {path}: a Protobuf {name} cannot become {ddl_type(type_)}; declare it as {fitting}")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise Mismatch("string in UTF-8", "bytes that are not UTF-8")
    return str(value)


def _integer_reader(kind: int, type_: pa.DataType) -> tuple[Reader | None] | None:
    """Return a tuple with the reader of an integer, which is None if all values fit; None if the type holds no integers."""
    lowest, highest = _INTEGER_RANGES[kind]
    if pa.types.is_signed_integer(type_):
        least, most = -(1 << (type_.bit_width - 1)), (1 << (type_.bit_width - 1)) - 1
        if least <= lowest and highest <= most:
            return (None,)
        return (_range_reader(least, most, f"int ({type_.bit_width} bit)"),)
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        most = 10 ** (type_.precision - type_.scale) - 1
        check = _range_reader(-most, most, f"decimal({type_.precision},{type_.scale})")
        return (lambda value: Decimal(check(value)),)
    return None


def _range_reader(least: int, most: int, expected: str) -> Reader:
    def read(value: Any) -> Any:
        if least <= value <= most:
            return value
        raise Mismatch(expected, str(value))

    return read


def _enum_reader(field: FieldDescriptor) -> Reader:
    names: dict[int, str] = {}
    for value in field.enum_type.values:
        names.setdefault(value.number, value.name)  # of aliases the first, as in all of Protobuf
    expected = shortened(f"a value of enum {field.enum_type.full_name}")

    def read(number: Any) -> str:
        name = names.get(number)
        if name is None:
            raise Mismatch(expected, str(number))
        return name

    return read


class _Timestamps:
    """Reads google.protobuf.Timestamp: years 0001 to 9999, nanoseconds 0 to 999,999,999 as its definition says."""

    def __init__(self, truncate_nanoseconds: bool) -> None:
        self._truncate = truncate_nanoseconds

    def microseconds(self, value: Any) -> int:
        """Return microseconds since 1970 in UTC. Raises Mismatch."""
        seconds, nanoseconds = value.seconds, value.nanos
        if not (FIRST_SECOND <= seconds <= LAST_SECOND and 0 <= nanoseconds < 1_000_000_000):
            raise Mismatch("timestamp of the years 0001 to 9999", f"{seconds} s and {nanoseconds} ns since 1970")
        if nanoseconds % 1000 and not self._truncate:
            raise Mismatch("timestamp in whole microseconds", f"{nanoseconds} ns; see truncate_nanoseconds")
        return int(seconds * 1_000_000 + nanoseconds // 1000)


def _json_text(value: Any) -> str:
    try:
        members = json_format.MessageToDict(value)
        return str(json.dumps(members, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    except (ValueError, json_format.Error) as error:
        raise Mismatch("a JSON value", shortened(str(error))) from None


def _words(type_: pa.DataType) -> str:
    return shortened(ddl_type(type_), 60)
