"""Read a block of Protobuf records with ptars, a Rust decoder from the wire to Arrow, where its result is proved right.

Why an accepted row is the record's: ptars writes the row back as a message, and the row is accepted only if that message
equals the record, byte for byte. So the record is an encoding of the row, and Protobuf decodes it to that row, whatever
ptars may do with encodings that it does not write: unknown fields, repeated or out-of-order fields, varints longer than
needed, truncated and hostile bytes. Those records go to google.protobuf. This relies on three things, which the tests
compare with google.protobuf: ptars writes each type as Protobuf does; text is UTF-8 (verified here); and Protobuf can
represent every row that ptars may read. The last is not so for a map with a repeated key or for two members of a oneof,
so messages with maps or oneofs are not read here.

ptars gets the messages under other names, because it converts Protobuf's well-known types in its own way, and fails on
timestamps outside Arrow's range.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from ptars import HandlerPool

from hudi_ingest.records.convert.fast_path import (
    Doubt,
    Finish,
    Proved,
    list_column,
    of_field,
    struct_column,
    struct_member,
    within,
)
from hudi_ingest.records.convert.protobuf.schema import TIMESTAMP_MESSAGE, WRAPPERS, is_map, is_proto3
from hudi_ingest.records.times import FIRST_SECOND, LAST_SECOND

MAX_FIELD_NUMBER = 4096
"""ptars keeps a table as long as the highest field number, which can be up to 536,870,911."""
MAX_DEPTH = 32

_PREFIX = "read_by_ptars"


def fast_path(message: Descriptor, schema: pa.Schema, truncate_nanoseconds: bool) -> FastPath | None:
    """Create the fast path; None when only the exact path can read messages of this type to columns of this schema."""
    if not _has_fields(message, pa.struct(list(schema))) or not _is_plain(message, ()):
        return None
    return FastPath(message, schema, truncate_nanoseconds)


def _has_fields(message: Descriptor | None, column: pa.DataType) -> bool:
    """Whether there is a field for each of the column's, at any depth."""
    kind = column.value_type if pa.types.is_list(column) else column
    if message is None or not pa.types.is_struct(kind):
        return True
    fields = message.fields_by_name
    return all(part.name in fields and _has_fields(fields[part.name].message_type, part.type) for part in kind)


def _is_plain(message: Descriptor, enclosing: tuple[str, ...]) -> bool:
    if message.full_name in enclosing or len(enclosing) >= MAX_DEPTH or not message.fields:
        return False
    if any(len(oneof.fields) > 1 for oneof in message.oneofs):  # an `optional` field is a oneof of itself
        return False
    below = (*enclosing, message.full_name)
    return is_proto3(message.file) and all(
        field.number <= MAX_FIELD_NUMBER
        and not is_map(field)
        and (field.message_type is None or _is_plain(field.message_type, below))
        for field in message.fields
    )


class FastPath:
    """Reads messages of one type to rows of `schema`."""

    def __init__(self, message: Descriptor, schema: pa.Schema, truncate_nanoseconds: bool) -> None:
        self._schema = schema
        renamed = _renamed(message.file).FindMessageTypeByName(f"{_PREFIX}.{message.full_name}")
        self._handler = HandlerPool([renamed.file]).get_for_message(renamed)
        self._finish = [
            of_field(column, _finish_type(message.fields_by_name[column.name], column.type, truncate_nanoseconds))
            for column in schema
        ]

    def read(self, values: pa.BinaryArray) -> Proved:
        """Return the proved rows, and which values they are. Raises as `fast_path.Fast` does."""
        rows, proved = self._same_messages(values)
        rows.validate(full=True)  # ptars does not verify that text is UTF-8
        columns = [finish(rows[column.name]) for finish, column in zip(self._finish, self._schema, strict=True)]
        return Proved(pa.RecordBatch.from_arrays(columns, schema=self._schema), proved)

    def _same_messages(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """Return the rows that ptars writes back as the same messages, and which values they are."""
        try:
            rows = self._handler.array_to_record_batch(values)
            if rows.num_rows != len(values):
                raise Doubt("not one row per record")
            same = pc.equal(self._handler.record_batch_to_array(rows), values)
        except BaseException as error:
            # A failed assertion in Rust; the process and ptars survive it.
            if type(error).__name__ == "PanicException":
                raise Doubt("ptars failed") from error
            raise
        proved: npt.NDArray[np.bool_] = same.to_numpy(zero_copy_only=False)
        return (rows if proved.all() else rows.filter(same)), proved


def _files(file: FileDescriptor, seen: set[str]) -> Iterator[FileDescriptor]:
    if file.name not in seen:
        seen.add(file.name)
        for imported in file.dependencies:
            yield from _files(imported, seen)
        yield file


def _renamed(file: FileDescriptor) -> DescriptorPool:
    pool = DescriptorPool()
    for original in _files(file, set()):
        copy = FileDescriptorProto()
        original.CopyToProto(copy)
        copy.package = f"{_PREFIX}.{copy.package}".rstrip(".")
        del copy.extension[:], copy.service[:]
        for message in copy.message_type:
            _rename(message)
        pool.Add(copy)
    return pool


def _rename(message: DescriptorProto) -> None:
    del message.extension[:]
    fields = sorted(message.field, key=lambda field: int(field.number))  # the order in which serializers write them
    for field in fields:
        if field.type_name:
            field.type_name = f".{_PREFIX}{field.type_name}"
    del message.field[:]
    message.field.extend(fields)
    for nested in message.nested_type:
        _rename(nested)


def _finish_type(field: FieldDescriptor, type_: pa.DataType, truncate: bool) -> Finish:
    if field.is_repeated:
        return list_column(type_, _finish_value(field, type_.value_type, truncate))
    return _finish_value(field, type_, truncate)


def _finish_value(field: FieldDescriptor, type_: pa.DataType, truncate: bool) -> Finish:
    message = field.message_type
    if message is None:
        if field.enum_type is not None and pa.types.is_string(type_):
            return _finish_enum(field)
        return lambda column: column if column.type == type_ else column.cast(type_)
    if pa.types.is_struct(type_):
        members = [
            struct_member(
                part.name, part.nullable, _finish_type(message.fields_by_name[part.name], part.type, truncate)
            )
            for part in type_
        ]
        return struct_column([*type_], members)
    if message.full_name in WRAPPERS:
        finish = _finish_value(message.fields_by_name["value"], type_, truncate)
        return lambda column: finish(pc.struct_field(column, [0]))
    assert message.full_name == TIMESTAMP_MESSAGE  # the exact path refuses all other pairs, and is created first
    return _finish_timestamp(type_, truncate)


def _finish_enum(field: FieldDescriptor) -> Finish:
    values = field.enum_type.values_by_number
    numbers = pa.array([*values], pa.int32())
    names = pa.array([value.name for value in values.values()], pa.string())

    def finish(column: pa.Array) -> pa.Array:
        named = names.take(pc.index_in(column, value_set=numbers))
        if named.null_count != column.null_count:
            raise Doubt("a number that the enum has no name for")
        return named

    return finish


def _finish_timestamp(type_: pa.DataType, truncate: bool) -> Finish:
    def finish(times: pa.Array) -> pa.Array:
        seconds = within(pc.struct_field(times, "seconds"), FIRST_SECOND, LAST_SECOND)
        nanoseconds = within(pc.struct_field(times, "nanos"), 0, 999_999_999)
        micros = pc.divide(nanoseconds, 1000)
        if not truncate and pc.all(pc.equal(pc.multiply(micros, 1000), nanoseconds)).as_py() is False:
            raise Doubt("a time finer than a microsecond")
        return pc.add(pc.multiply(seconds, 1_000_000), micros.cast(pa.int64())).cast(type_)

    return finish
