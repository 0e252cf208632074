"""Protobuf schemas: descriptor sets in, message descriptors and the columns of a table out. No records here.

A schema is a serialized `FileDescriptorSet`: what `protoc --include_imports --descriptor_set_out` writes, what
`hudi_ingest.records.convert.protoc` makes of `.proto` texts, and what `descriptor_set` makes of the files that a schema registry gives as
`format=serialized`. Files come after the ones that they import; the last is the schema itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import count

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS, TIMESTAMP

TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages of one field `value`, which stand for a scalar that may be null."""
JSON_MESSAGES = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
"""Messages that stand for a JSON value."""

_KNOWN_FILES: Mapping[str, str] = {
    **{
        f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
        for name in (
            "any",
            "api",
            "descriptor",
            "duration",
            "empty",
            "field_mask",
            "source_context",
            "struct",
            "timestamp",
            "type",
            "wrappers",
        )
    },
    **{
        f"google/type/{name}.proto": f"google.type.{name}_pb2"
        for name in (
            "calendar_period",
            "color",
            "date",
            "datetime",
            "dayofweek",
            "expr",
            "fraction",
            "latlng",
            "money",
            "month",
            "postal_address",
            "quaternion",
            "timeofday",
        )
    },
    **{
        f"confluent/{name}.proto": f"confluent_kafka.schema_registry.confluent.{name.replace('/', '.')}_pb2"
        for name in ("meta", "type/decimal", "type/variant")
    },
}
"""Import path -> the module with the descriptor, of the files that producers import without bringing them: Protobuf's own, and
those that Confluent's registry has built in."""
_IMPORT = re.compile(r"""^\s*import\s+(?:public\s+|weak\s+)?["']([^"']+)["']""", re.MULTILINE)


class ProtobufSchema:
    """The message types of one descriptor set. Raises ValueError when the set is not whole."""

    def __init__(self, descriptor_set: bytes) -> None:
        try:
            file_set = FileDescriptorSet.FromString(descriptor_set)
        except DecodeError:
            raise ValueError(
                "not a descriptor set; make it with protoc --include_imports --descriptor_set_out"
            ) from None
        if not file_set.file:
            raise ValueError("a descriptor set without a file; give protoc the .proto file of the message")
        self._pool = DescriptorPool()
        for file in _with_known(file_set.file):
            try:
                self._pool.Add(file)
                self._pool.FindFileByName(file.name)
            except (KeyError, TypeError) as error:
                raise ValueError(
                    f"the descriptor set is not whole: {file.name} needs what is not in it ({error}); make it with protoc "
                    "--include_imports"
                ) from None
        self._files = tuple(file_set.file)

    def message(self, name: str) -> Descriptor:
        """The message type of a full name, like `shop.Order`. Raises ValueError."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = [name for file in self._files for name in _names(file)]
            shown = ", ".join(known[:20]) + (" and more" if len(known) > 20 else "")
            raise ValueError(
                f"message {quoted(name)} is not in the descriptor set; it has {shown or 'none'}{suggestion(name, known)}"
            ) from None

    def has(self, name: str) -> bool:
        """Whether it has a message type of this full name."""
        try:
            self._pool.FindMessageTypeByName(name)
        except KeyError:
            return False
        return True

    def message_at(self, path: tuple[int, ...]) -> Descriptor | None:
        """The message type that the message indexes of Confluent's wire format point to; None when there is none."""
        types = [*self._pool.FindFileByName(self._files[-1].name).message_types_by_name.values()]
        message_type: Descriptor | None = None
        for index in path:
            if index >= len(types):
                return None
            message_type = types[index]
            types = message_type.nested_types
        return message_type


def known_imports(texts: Iterable[str], files: Iterable[bytes]) -> list[bytes]:
    """The serialized descriptors of known files that texts of `.proto` files and serialized descriptors import, after those
    that they import themselves. Raises ValueError when a descriptor is not one."""
    paths = [path for text in texts for path in _IMPORT.findall(text)]
    paths += [path for file in descriptor_files(files) for path in file.dependency]
    there: set[str] = set()
    return [file for path in paths for file in _known(path, there)]


def _with_known(files: Iterable[FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """The files, and before them those known ones which they import and do not bring."""
    files = list(files)
    there = {file.name for file in files}
    for path in [path for file in files for path in file.dependency]:
        yield from map(FileDescriptorProto.FromString, _known(path, there))
    yield from files


def _known(path: str, there: set[str]) -> Iterator[bytes]:
    if path in _KNOWN_FILES and path not in there:
        yield from _serialized(import_module(_KNOWN_FILES[path]).DESCRIPTOR, there)


def _serialized(file: FileDescriptor, there: set[str]) -> Iterator[bytes]:
    if file.name not in there:
        there.add(file.name)
        for dependency in file.dependencies:
            yield from _serialized(dependency, there)
        yield file.serialized_pb


def _names(file: FileDescriptorProto) -> Iterator[str]:
    waiting = [(f"{file.package}." if file.package else "", message) for message in reversed(file.message_type)]
    while waiting:
        prefix, message = waiting.pop()
        if not message.options.map_entry:
            yield prefix + message.name
            waiting += [(f"{prefix}{message.name}.", nested) for nested in reversed(message.nested_type)]


def descriptor_set(files: Iterable[bytes]) -> bytes:
    """Serialized `FileDescriptorProto`s, imported ones first and the schema last, as one descriptor set.

    Raises ValueError when one is not a file descriptor.
    """
    file_set = FileDescriptorSet(file=descriptor_files(files))
    serialized: bytes = file_set.SerializeToString()
    return serialized


def with_files(descriptor_set: bytes, files: Iterable[bytes]) -> bytes:
    """The set with the serialized files behind its own, but for those that it has. Raises ValueError."""
    file_set = FileDescriptorSet.FromString(descriptor_set)
    there = {file.name for file in file_set.file}
    file_set.file.extend(file for file in descriptor_files(files) if file.name not in there)
    serialized: bytes = file_set.SerializeToString()
    return serialized


def descriptor_files(files: Iterable[bytes]) -> list[FileDescriptorProto]:
    """Serialized `FileDescriptorProto`s, read. Raises ValueError when one is not a file descriptor."""
    protos = []
    for number, file in enumerate(files, 1):
        try:
            protos.append(FileDescriptorProto.FromString(file))
        except DecodeError:
            raise ValueError(f"file {number} is not a serialized FileDescriptorProto") from None
    return protos


def record_schema(message: Descriptor) -> pa.Schema:
    """The columns that a message type has by itself, in the order of its field numbers.

    A field that tells absent from default (message, oneof, `optional`, proto2) is nullable, others are not. Raises
    ValueError for what no table can hold: recursion, structs without columns, and more than MAX_FIELDS columns.
    """
    return pa.schema(_fields(message, (), "", count(1)))


def _fields(message: Descriptor, enclosing: tuple[str, ...], path: str, numbers: Iterator[int]) -> list[pa.Field]:
    where = f"column {path}" if path else f"message {message.full_name}"
    if message.full_name in enclosing:
        raise ValueError(
            f"{where}: {message.full_name} holds itself, and columns cannot; declare the columns that are wanted, to the depth "
            "that is wanted"
        )
    if not message.fields:
        raise ValueError(
            f"{where}: {message.full_name} has no fields, and a struct needs one; declare the other columns"
        )
    if len(enclosing) >= MAX_DEPTH:
        raise ValueError(f"{where}: nested more than {MAX_DEPTH} deep; declare the columns that are wanted")
    below = (*enclosing, message.full_name)
    return [_field(field, below, f"{path}.{field.name}".removeprefix("."), numbers) for field in sorted_fields(message)]


def sorted_fields(message: Descriptor) -> list[FieldDescriptor]:
    return sorted(message.fields, key=lambda field: int(field.number))


def _field(field: FieldDescriptor, enclosing: tuple[str, ...], path: str, numbers: Iterator[int]) -> pa.Field:
    # Messages that hold each other twice, and so on, are few lines and any number of columns.
    if next(numbers) > MAX_FIELDS:
        raise ValueError(f"more than {MAX_FIELDS} columns, nested ones counted; declare the columns that are wanted")
    if is_map(field):
        value = _type(field.message_type.fields_by_name["value"], enclosing, path, numbers)
        return pa.field(field.name, pa.map_(pa.string(), pa.field("value", value, False)), False)
    if field.is_repeated:
        element = pa.field("element", _type(field, enclosing, f"{path}[]", numbers), False)
        return pa.field(field.name, pa.list_(element), False)
    return pa.field(field.name, _type(field, enclosing, path, numbers), field.has_presence)


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_proto3(file: FileDescriptor) -> bool:
    copy = FileDescriptorProto()
    file.CopyToProto(copy)
    return bool(copy.syntax == "proto3")


def _type(field: FieldDescriptor, enclosing: tuple[str, ...], path: str, numbers: Iterator[int]) -> pa.DataType:
    message = field.message_type
    if message is None:
        return _SCALARS[field.cpp_type] if field.type != FieldDescriptor.TYPE_BYTES else pa.binary()
    if message.full_name == TIMESTAMP_MESSAGE:
        return TIMESTAMP
    if message.full_name in WRAPPERS:
        return _type(message.fields_by_name["value"], enclosing, path, numbers)
    if message.full_name in JSON_MESSAGES:
        return pa.string()
    return pa.struct(_fields(message, enclosing, path, numbers))


_SCALARS: Mapping[int, pa.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
