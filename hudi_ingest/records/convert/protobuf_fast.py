"""A block of Protobuf records by ptars, a Rust decoder from the wire to Arrow, where its result is proved right.

Why an accepted row is the record's: ptars writes the row that it read as a message again, and a row is accepted only
when that message is the record, byte for byte. So the record is an encoding of the row, and Protobuf decodes it to
that row, whatever ptars may do with encodings that it does not write: unknown fields, fields given twice or out of
order, longer varints than needed, truncated and hostile bytes. Those records go to google.protobuf. Three things are
left to rely on, and the tests compare them with google.protobuf: that ptars writes each type as Protobuf does, that
text is UTF-8 (which is verified here), and that every row which ptars may read is one that Protobuf has: not so a map with
a key given twice, and two members of a oneof, so messages with maps or oneofs do not come here.

Messages are given to ptars under other names, because it makes values of its own from Protobuf's well-known types, and
fails on timestamps outside of Arrow's range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from ptars import HandlerPool

from hudi_ingest.records.convert.protobuf_schema import TIMESTAMP_MESSAGE, WRAPPERS, is_map, is_proto3
from hudi_ingest.records.times import FIRST_SECOND, LAST_SECOND

MAX_FIELD_NUMBER = 4096
"""ptars keeps a table as long as the highest field number, which may be 536,870,911."""
MAX_DEPTH = 32

_PREFIX = "read_by_ptars"

Finish = Callable[[pa.Array], pa.Array]
"""Column as ptars reads it -> column of the declared type. Raises _Doubt, or ArrowInvalid when a value does not fit."""


class _Doubt(Exception):
    """The fast path cannot prove that its result is the exact one, or it is sure that a record is wrong."""


def fast_path(message: Descriptor, schema: pa.Schema, truncate_nanoseconds: bool) -> FastPath | None:
    """None when messages of this type, or columns of this schema, are for the exact path only."""
    absent = any(name not in message.fields_by_name for name in schema.names)
    return None if absent or not _is_plain(message, ()) else FastPath(message, schema, truncate_nanoseconds)


def _is_plain(message: Descriptor, enclosing: tuple[str, ...]) -> bool:
    if message.full_name in enclosing or len(enclosing) >= MAX_DEPTH or not message.fields:
        return False
    if any(len(oneof.fields) > 1 for oneof in message.oneofs):  # an `optional` field is a oneof of itself
        return False
    below = (*enclosing, message.full_name)
    return is_proto3(message.file) and all(
        each.number <= MAX_FIELD_NUMBER
        and not is_map(each)
        and (each.message_type is None or _is_plain(each.message_type, below))
        for each in message.fields
    )


class FastPath:
    """Reads messages of one type to rows of `schema`."""

    def __init__(self, message: Descriptor, schema: pa.Schema, truncate_nanoseconds: bool) -> None:
        self._schema = schema
        renamed = _renamed(message.file).FindMessageTypeByName(f"{_PREFIX}.{message.full_name}")
        self._handler = HandlerPool([renamed.file]).get_for_message(renamed)
        self._finish = [_finish_field(message.fields_by_name[each.name], each, truncate_nanoseconds) for each in schema]

    def rows(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]] | None:
        """The rows that are proved, and which values they are; None when in doubt about the whole block."""
        try:
            return self._rows(values)
        except (_Doubt, ValueError, pa.ArrowNotImplementedError, pa.ArrowCapacityError):
            return None  # ArrowInvalid is a ValueError
        except BaseException as error:
            # What a failed check in Rust becomes; the process and ptars go on after it.
            if type(error).__name__ == "PanicException":
                return None
            raise

    def _rows(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        found = self._handler.array_to_record_batch(values)
        if found.num_rows != len(values):
            raise _Doubt
        proved = pc.equal(self._handler.record_batch_to_array(found), values)
        mask: npt.NDArray[np.bool_] = proved.to_numpy(zero_copy_only=False)
        if not mask.all():
            found = found.filter(proved)
        found.validate(full=True)  # ptars does not verify that text is UTF-8
        columns = [finish(found[field.name]) for finish, field in zip(self._finish, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), mask


def _files(file: FileDescriptor, seen: set[str]) -> Iterator[FileDescriptor]:
    if file.name not in seen:
        seen.add(file.name)
        for each in file.dependencies:
            yield from _files(each, seen)
        yield file


def _renamed(file: FileDescriptor) -> DescriptorPool:
    pool = DescriptorPool()
    for each in _files(file, set()):
        copy = FileDescriptorProto()
        each.CopyToProto(copy)
        copy.package = f"{_PREFIX}.{copy.package}".rstrip(".")
        del copy.extension[:], copy.service[:]
        for message in copy.message_type:
            _rename(message)
        pool.Add(copy)
    return pool


def _rename(message: DescriptorProto) -> None:
    del message.extension[:]
    fields = sorted(message.field, key=lambda each: int(each.number))  # the order in which serializers write them
    for field in fields:
        if field.type_name:
            field.type_name = f".{_PREFIX}{field.type_name}"
    del message.field[:]
    message.field.extend(fields)
    for each in message.nested_type:
        _rename(each)


def _finish_field(field: FieldDescriptor, column: pa.Field, truncate: bool) -> Finish:
    finish = _finish_type(field, column.type, truncate)
    return finish if column.nullable else lambda found: finish(_without_nulls(found))


def _without_nulls(found: pa.Array) -> pa.Array:
    if found.null_count:
        raise _Doubt
    return found


def _finish_type(field: FieldDescriptor, type_: pa.DataType, truncate: bool) -> Finish:
    if field.is_repeated:
        return _finish_list(_finish_value(field, type_.value_type, truncate), type_)
    return _finish_value(field, type_, truncate)


def _finish_value(field: FieldDescriptor, type_: pa.DataType, truncate: bool) -> Finish:
    message = field.message_type
    if message is None:
        if field.enum_type is not None and pa.types.is_string(type_):
            return _finish_enum(field)
        return lambda found: found if found.type == type_ else found.cast(type_)
    if pa.types.is_struct(type_):
        return _finish_struct(message, type_, truncate)
    if message.full_name in WRAPPERS:
        finish = _finish_value(message.fields_by_name["value"], type_, truncate)
        return lambda found: finish(pc.struct_field(found, [0]))
    assert message.full_name == TIMESTAMP_MESSAGE  # the exact path refuses all other pairs, and is made first
    return _finish_timestamp(type_, truncate)


def _finish_enum(field: FieldDescriptor) -> Finish:
    values = field.enum_type.values_by_number
    numbers = pa.array([*values], pa.int32())
    names = pa.array([each.name for each in values.values()], pa.string())

    def finish(found: pa.Array) -> pa.Array:
        named = names.take(pc.index_in(found, value_set=numbers))
        if named.null_count != found.null_count:
            raise _Doubt
        return named

    return finish


def _finish_timestamp(type_: pa.DataType, truncate: bool) -> Finish:
    def finish(found: pa.Array) -> pa.Array:
        seconds, nanoseconds = pc.struct_field(found, "seconds"), pc.struct_field(found, "nanos")
        _refuse_outside(seconds, FIRST_SECOND, LAST_SECOND)
        _refuse_outside(nanoseconds, 0, 999_999_999)
        micros = pc.divide(nanoseconds, 1000)
        if not truncate and pc.all(pc.equal(pc.multiply(micros, 1000), nanoseconds)).as_py() is False:
            raise _Doubt
        return pc.add(pc.multiply(seconds, 1_000_000), micros.cast(pa.int64())).cast(type_)

    return finish


def _refuse_outside(numbers: pa.Array, lowest: int, highest: int) -> None:
    found = pc.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and (least < lowest or most > highest):
        raise _Doubt


def _finish_list(finish: Finish, type_: pa.DataType) -> Finish:
    def finish_list(found: pa.Array) -> pa.Array:
        items = finish(found.values)
        return pa.Array.from_buffers(
            type_, len(found), found.buffers()[:2], found.null_count, found.offset, children=[items]
        )

    return finish_list


def _finish_struct(message: Descriptor, type_: pa.DataType, truncate: bool) -> Finish:
    members = [
        (each.name, each.nullable, _finish_type(message.fields_by_name[each.name], each.type, truncate))
        for each in type_
    ]

    def finish(found: pa.Array) -> pa.Array:
        validity = found.is_valid()
        children = []
        for name, nullable, finish_member in members:
            child = found.field(name)
            # What stands below a null struct says nothing; only where the struct is present a null was given.
            if not nullable and child.null_count and pc.any(pc.and_(validity, pc.is_null(child))).as_py():
                raise _Doubt
            children.append(finish_member(child))
        return pa.StructArray.from_arrays(children, fields=[*type_], mask=pc.invert(validity))

    return finish
