"""Protobuf schemas: `.proto` texts and descriptor sets in, message descriptors and the columns of a table out. No records here.

A schema is a serialized `FileDescriptorSet`: what `protoc --include_imports --descriptor_set_out` writes, what `compile_protos`
makes of `.proto` texts with protoc itself from the package grpcio-tools, and what `descriptor_set` builds from the files that a
schema registry returns as `format=serialized`. Each file follows its imports; the last is the schema itself.

A registry keeps a schema as the text of a `.proto` file or, as some producers (confluent-kafka's) register it, as a serialized
FileDescriptorProto in base64. The same goes for the schemas that it references. Both are compiled when a record needs them, once
per process and text.
"""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from itertools import count
from pathlib import Path

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.records.convert.wire_format import SchemaLookup
from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import Problems, WireType, columns

TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{scalar}Value"
    for scalar in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages with a single field `value`, which represent a nullable scalar."""
JSON_MESSAGES = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
"""Messages that represent a JSON value."""

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
"""Import path -> the module with the descriptor, for files that producers import without supplying them: Protobuf's own, and
those built into Confluent's registry."""
_IMPORT = re.compile(r"""^\s*import\s+(?:public\s+|weak\s+)?["']([^"']+)["']""", re.MULTILINE)


class ProtobufSchema:
    """The message types of one descriptor set. Raises ValueError when the set is incomplete."""

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
                    f"the descriptor set is incomplete: {file.name} needs what is not in it ({error}); make it with protoc "
                    "--include_imports"
                ) from None
        self._files = tuple(file_set.file)

    def message(self, name: str) -> Descriptor:
        """Return the message type with this full name, like `shop.Order`. Raises ValueError when there is none."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = [name for file in self._files for name in _names(file)]
            shown = ", ".join(known[:20]) + (" and more" if len(known) > 20 else "")
            raise ValueError(
                f"message {quoted(name)} is not in the descriptor set; it has {shown or 'none'}{suggestion(name, known)}"
            ) from None

    def has(self, name: str) -> bool:
        """Return whether the set has a message type of this full name."""
        try:
            self._pool.FindMessageTypeByName(name)
        except KeyError:
            return False
        return True

    def message_at(self, path: tuple[int, ...]) -> Descriptor | None:
        """Return the message type that the message indexes of Confluent's wire format point to; None when there is none."""
        types = [*self._pool.FindFileByName(self._files[-1].name).message_types_by_name.values()]
        message_type: Descriptor | None = None
        for index in path:
            if index >= len(types):
                return None
            message_type = types[index]
            types = message_type.nested_types
        return message_type


def known_imports(texts: Iterable[str], files: Iterable[bytes]) -> list[bytes]:
    """Return the serialized descriptors of the known files that the `.proto` texts and serialized descriptors import, each
    after its own imports. Raises ValueError when `files` has something that is not a descriptor."""
    paths = [path for text in texts for path in _IMPORT.findall(text)]
    paths += [path for file in descriptor_files(files) for path in file.dependency]
    included: set[str] = set()
    return [file for path in paths for file in _known(path, included)]


def _with_known(files: Iterable[FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """Yield the files, preceded by the known files that they import but that are not among them."""
    files = list(files)
    included = {file.name for file in files}
    for path in [path for file in files for path in file.dependency]:
        yield from map(FileDescriptorProto.FromString, _known(path, included))
    yield from files


def _known(path: str, included: set[str]) -> Iterator[bytes]:
    if path in _KNOWN_FILES and path not in included:
        yield from _serialized(import_module(_KNOWN_FILES[path]).DESCRIPTOR, included)


def _serialized(file: FileDescriptor, included: set[str]) -> Iterator[bytes]:
    if file.name not in included:
        included.add(file.name)
        for dependency in file.dependencies:
            yield from _serialized(dependency, included)
        yield file.serialized_pb


def _names(file: FileDescriptorProto) -> Iterator[str]:
    waiting = [(f"{file.package}." if file.package else "", message) for message in reversed(file.message_type)]
    while waiting:
        prefix, message = waiting.pop()
        if not message.options.map_entry:
            yield prefix + message.name
            waiting += [(f"{prefix}{message.name}.", nested) for nested in reversed(message.nested_type)]


def descriptor_set(files: Iterable[bytes]) -> bytes:
    """Combine serialized `FileDescriptorProto`s, imports first and the schema last, into one descriptor set.

    Raises ValueError when one is not a file descriptor.
    """
    file_set = FileDescriptorSet(file=descriptor_files(files))
    serialized: bytes = file_set.SerializeToString()
    return serialized


def with_files(descriptor_set: bytes, files: Iterable[bytes]) -> bytes:
    """Append the serialized files that the set does not have yet. Raises ValueError."""
    file_set = FileDescriptorSet.FromString(descriptor_set)
    included = {file.name for file in file_set.file}
    file_set.file.extend(file for file in descriptor_files(files) if file.name not in included)
    serialized: bytes = file_set.SerializeToString()
    return serialized


def descriptor_files(files: Iterable[bytes]) -> list[FileDescriptorProto]:
    """Parse serialized `FileDescriptorProto`s. Raises ValueError when one is not a file descriptor."""
    protos = []
    for number, file in enumerate(files, 1):
        try:
            protos.append(FileDescriptorProto.FromString(file))
        except DecodeError:
            raise ValueError(f"file {number} is not a serialized FileDescriptorProto") from None
    return protos


def record_schema(message: Descriptor) -> pa.Schema:
    """Return the columns of a message type, ordered by field number.

    A field that distinguishes absent from default (message, oneof, `optional`, proto2) is nullable, others are not. Raises
    ValueError for what no table can hold, each by its column: recursion, structs without columns, and more than MAX_FIELDS columns.
    """
    tree = _Parser(None).message(message, (), None)
    problems: Problems = [("", tree.problem)] if tree.problem else []
    found = pa.schema(columns(tree, problems))
    if problems:
        texts = [f"{f'column {path}' if path else f'message {tree.name}'}: {why}" for path, why in problems[:10]]
        raise ValueError("; ".join(texts))
    return found


def shape_of(message: Descriptor, column: pa.StructType) -> pa.DataType:
    """Return the shape of messages that `column` takes; a message may contain itself, a column may not."""
    return _Parser(column).message(message, (), column).shape


class _Parser:
    """Parses message types into trees: whole ones, or only so deep as a `column` is nested."""

    def __init__(self, column: pa.DataType | None) -> None:
        self._is_whole = column is None
        self._numbers = count(1)

    def message(self, message: Descriptor, enclosing: tuple[str, ...], column: pa.DataType | None) -> WireType:
        name, problem = message.full_name, ""
        if self._is_whole and name in enclosing:
            problem = (
                f"{name} contains itself, which columns cannot; declare the columns you need, to the depth you need"
            )
        elif self._is_whole and not message.fields:
            problem = f"{name} has no fields, but a struct needs one; declare the other columns"
        elif self._is_whole and len(enclosing) >= MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} deep; declare the columns you need"
        if problem:
            return WireType("refused", name=name, problem=problem)
        taken = {} if column is None else {field.name: field.type for field in column}
        ordered = sorted(message.fields, key=lambda field: int(field.number))
        parts = tuple(self._field(field, (*enclosing, name), taken.get(field.name)) for field in ordered)
        return WireType("record", name=name, names=tuple(field.name for field in ordered), parts=parts)

    def _field(self, field: FieldDescriptor, enclosing: tuple[str, ...], column: pa.DataType | None) -> WireType:
        # Messages that contain the next one twice, and so on, take few lines but have any number of columns.
        if next(self._numbers) > MAX_FIELDS:
            raise ValueError(f"more than {MAX_FIELDS} columns, nested ones counted; declare the columns you need")
        if is_map(field):
            content = column.item_type if column is not None and pa.types.is_map(column) else None
            value = field.message_type.fields_by_name["value"]
            return WireType("map", parts=(self._value(value, enclosing, content),))
        if field.is_repeated:
            content = column.value_type if column is not None and pa.types.is_list(column) else None
            return WireType("array", parts=(self._value(field, enclosing, content),))
        return replace(self._value(field, enclosing, column), nullable=field.has_presence)

    def _value(self, field: FieldDescriptor, enclosing: tuple[str, ...], column: pa.DataType | None) -> WireType:
        message = field.message_type
        if message is None:
            return WireType("bytes" if field.type == FieldDescriptor.TYPE_BYTES else _KINDS[field.cpp_type])
        if message.full_name in _MESSAGES:
            return WireType(_MESSAGES[message.full_name])
        if message.full_name in WRAPPERS:
            return self._value(message.fields_by_name["value"], enclosing, None)
        if self._is_whole or (column is not None and pa.types.is_struct(column)):
            return self.message(message, enclosing, column)
        return WireType("message")


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_proto3(file: FileDescriptor) -> bool:
    copy = FileDescriptorProto()
    file.CopyToProto(copy)
    return bool(copy.syntax == "proto3")


_KINDS: Mapping[int, str] = {
    FieldDescriptor.CPPTYPE_INT32: "int32",
    FieldDescriptor.CPPTYPE_INT64: "int64",
    FieldDescriptor.CPPTYPE_UINT32: "uint32",
    FieldDescriptor.CPPTYPE_UINT64: "uint64",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_ENUM: "enum",
}
_MESSAGES: Mapping[str, str] = {TIMESTAMP_MESSAGE: "date-time", **dict.fromkeys(JSON_MESSAGES, "string")}
"""Kinds of messages that are a value."""


SECONDS = 60
"""Limit of processor time, which unlike wall-clock time does not depend on how busy the machine is."""
_PROGRAM = """
import resource, sys
from grpc_tools import protoc
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds} + 1))
sys.exit(protoc.main(["protoc", *sys.argv[1:]]))
"""
_OF_THE_NAME = {errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}


def compile_protos(names: str | Sequence[str], texts: Mapping[str, str], imported: bytes = b"") -> bytes:
    """Return the descriptor set of the files `names` and all their imports; `texts`: import path -> text, `names` included.

    `imported`: a descriptor set of imported files that have no text here. Protobuf's own files (google/protobuf/...) need
    not be given. Each file follows its imports. Raises ValueError with protoc's message.
    """
    targets = [names] if isinstance(names, str) else [*names]
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-protoc-") as folder:
        # Resolved, like the paths that are compared with it.
        root, out = Path(folder, "protos").resolve(), Path(folder, "descriptors")
        root.mkdir()
        for path, text in texts.items():
            file = (root / path).resolve()
            if not file.is_relative_to(root) or file == root:
                raise ValueError(
                    f"{path!r} is not an import path of a .proto file: it leads out of the schema's folder"
                )
            _write(file, path, text)
        own = files("grpc_tools") / "_proto"
        paths = [f"--proto_path={root}", f"--proto_path={own}"]
        if imported:
            # protoc searches it for imports that the folders do not have.
            imported_set = Path(folder, "imported")
            imported_set.write_bytes(imported)
            paths.append(f"--descriptor_set_in={imported_set}")
        # In a process of its own: here it would write its messages to this process's standard error.
        command = [
            sys.executable,
            "-c",
            _PROGRAM.format(seconds=SECONDS),
            *paths,
            "--include_imports",
            f"--descriptor_set_out={out}",
        ]
        result = subprocess.run(
            [*command, *(str(root / name) for name in targets)],
            capture_output=True,
            text=True,
            check=False,
        )
        if -result.returncode in (signal.SIGXCPU, signal.SIGKILL):
            raise ValueError(f"protoc needs more than {SECONDS} s of processor time for {targets[-1]}")
        if result.returncode:
            complaint = " ".join(result.stderr.replace(f"{root}/", "").replace(f"{_OWN_NAME}:", "").split())
            refused = "the schema" if targets[-1] == _OWN_NAME else targets[-1]
            raise ValueError(f"protoc refuses {refused}: {complaint or f'exit code {result.returncode}'}")
        return out.read_bytes()


def _write(file: Path, path: str, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno not in _OF_THE_NAME:
            raise
        shown = path if len(path) <= 80 else f"{path[:79]}…"
        raise ValueError(f"{shown!r} cannot be an import path of a .proto file: {error.strerror}") from None


_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
"""The text of a `.proto` file always has other characters."""
_OWN_NAME = "hudi_ingest_registered_schema.proto"


@dataclass(frozen=True)
class CompiledSchemas:
    """Protobuf schemas by id. Picklable, like the lookup."""

    schemas: SchemaLookup

    def descriptor_set(self, schema_id: int) -> bytes | None:
        """Return the schema as a serialized FileDescriptorSet; None when the registry has no such Protobuf schema. Raises
        ValueError, which says why a schema cannot be compiled, and what the lookup raises."""
        schema = self.schemas.schema(schema_id)
        return None if schema is None else compiled(schema)


@lru_cache(maxsize=256)
def compiled(schema: RegisteredSchema) -> bytes:
    """Return the serialized FileDescriptorSet of a schema and all its imports, the schema last. Raises ValueError."""
    texts: dict[str, str] = {}
    serialized: list[bytes] = []
    for name, text in zip(schema.names, schema.references, strict=True):
        file = _file_in_base64(text)
        if file is None:
            texts[name] = text
        else:
            serialized.append(file)
    own = _file_in_base64(schema.text)
    if own is None:
        texts[_OWN_NAME] = schema.text
    descriptors = b""
    if texts:
        known = known_imports(texts.values(), serialized)
        descriptors = compile_protos([*texts], texts, descriptor_set([*known, *serialized]))
    # A serialized file may import one that is text, or no text may import it, so it is added last.
    return descriptors if own is None else with_files(descriptors, [*serialized, own])


def _file_in_base64(text: str) -> bytes | None:
    return b64decode(text) if _BASE64.fullmatch(text) else None
