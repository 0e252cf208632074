"""Protobuf records -> rows: batches by ptars where its result is proved right, the rest by google.protobuf.

`protobuf.exact` defines what is accepted. Values are bare messages that share one schema, or begin with Confluent's wire
format, which names each record's schema and message type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from hudi_ingest.exceptions.problems import suggestion
from hudi_ingest.records.convert.converter import Decoded, Mismatch, Options, shortened
from hudi_ingest.records.convert.fast_path import decode_in_pieces
from hudi_ingest.records.convert.protobuf.exact import MessageReader
from hudi_ingest.records.convert.protobuf.fast import fast_path
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compiled, shape_of
from hudi_ingest.records.convert.values import (
    Refusal,
    RequiredFields,
    after_refusal,
    one_option,
    read_options,
    regrouped,
    require_values,
)
from hudi_ingest.records.convert.wire_format import (
    select_known,
    split_message_indexes,
    split_schema_ids,
    unusable_schema,
)
from hudi_ingest.records.schema.registered import RegisteredSchema, UnusableSchema
from hudi_ingest.records.schema.wire_type import UNKNOWN


@dataclass(frozen=True)
class ProtobufOptions:
    """Options for bare messages of one type."""

    message: str
    """Full name of the message type, like `shop.Order`."""
    descriptor_set: bytes
    """A serialized FileDescriptorSet; see `protobuf.schema`."""
    truncate_nanoseconds: bool = False
    """Truncate timestamps to whole microseconds instead of refusing finer ones."""


class DescriptorLookup(Protocol):
    """A registry's Protobuf schemas by id. Picklable."""

    def descriptor_set(self, schema_id: int) -> bytes | None:
        """Return a serialized FileDescriptorSet whose last file is the schema; None when the registry has no such schema.
        Raises ValueError when the schema cannot be used, and when the registry does not answer."""


@dataclass(frozen=True)
class RegisteredMessages:
    """A pipeline's settings for Protobuf values in Confluent's wire format. Picklable."""

    schemas: DescriptorLookup
    message: str
    """Full name of the message type; records of other types are refused."""
    truncate_nanoseconds: bool = False
    required: RequiredFields | None = None
    """A record is bad whose schema lacks one of these columns."""


def protobuf_converter(schema: pa.Schema, options: Options) -> ProtobufConverter | RegisteredProtobufConverter:
    """Create the converter. Options are those of ProtobufOptions for bare messages, or `registered`, a RegisteredMessages,
    alone.

    Raises ValueError when an option is wrong, or a column does not fit a field of the messages.
    """
    if "registered" in options:
        return RegisteredProtobufConverter(schema, one_option("protobuf", options, "registered"))
    return ProtobufConverter(schema, read_options(ProtobufOptions, "protobuf", options))


def first_message(descriptor_set: bytes) -> str | None:
    """Return the full name of a schema's first message type, which serializers write by default; None when it has none.
    Raises ValueError when the set is incomplete."""
    first = ProtobufSchema(descriptor_set).message_at((0,))
    return None if first is None else str(first.full_name)


def require_columns(schema: pa.Schema, message: str, descriptor_sets: Iterable[bytes]) -> None:
    """Raise ValueError when a column does not fit its field in the first (newest) schema that has the message type, or when none of the
    schemas has a field for it. Reads older schemas only as far as needed; without any, nothing is known that could be wrong."""
    missing, known = set(schema.names), set[str]()
    newest: ProtobufSchema | None = None
    for types in map(ProtobufSchema, descriptor_sets):
        newest = newest or types
        if not types.has(message):
            continue
        message_type = types.message(message)
        if not known:
            MessageReader(message_type, schema, False)
        names = {field.name for field in message_type.fields}
        known |= names
        missing -= names
        if not missing:
            return
    if newest is not None:
        if not known:
            newest.message(message)
        columns = ", ".join(f"{name}{suggestion(name, sorted(known))}" for name in sorted(missing))
        raise ValueError(f"message {message} has no field for the column {columns} in any of the topics' schemas")


class ProtobufConverter:
    """Decodes bare messages of one type. `required`: as in RegisteredMessages."""

    def __init__(self, schema: pa.Schema, options: ProtobufOptions, required: RequiredFields | None = None) -> None:
        self._schema, self._options, self._required = schema, options, required
        message = ProtobufSchema(options.descriptor_set).message(options.message)
        known = [field.name for field in message.fields]
        missing = [f"{name}{suggestion(name, known)}" for name in schema.names if name not in known]
        if missing:
            raise ValueError(f"message {message.full_name} has no field for the column {', '.join(missing)}")
        refusal = required.refusal_of(shape_of(message, required.record)) if required is not None else None
        self._reader = _Reader(message, schema, options.truncate_nanoseconds, refusal)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ProtobufConverter, (self._schema, self._options, self._required))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        return self._reader.decode(values)

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return _field_names(self._reader.message, within)


class RegisteredProtobufConverter:
    """Decodes messages in Confluent's wire format. A column that a record's schema lacks is null, unless it is required.

    `decode` raises what `DescriptorLookup` raises when the registry is unavailable.
    """

    def __init__(self, schema: pa.Schema, registered: RegisteredMessages) -> None:
        self._schema, self._registered = schema, registered
        self._types: dict[int, _SchemaTypes | Mismatch] = {}
        """Message types by schema id. Only ids that the registry has are kept: there may be as many others as records. An
        id's meaning never changes, so this is not state that a record's outcome could depend on."""

    def __reduce__(self) -> tuple[type[RegisteredProtobufConverter], tuple[pa.Schema, RegisteredMessages]]:
        return (RegisteredProtobufConverter, (self._schema, self._registered))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        framed = split_schema_ids(values)
        by_id = {schema_id: self._schema_types(schema_id) for schema_id in np.unique(framed.schema_ids).tolist()}
        usable = {schema_id: types for schema_id, types in by_id.items() if isinstance(types, _SchemaTypes)}
        refused = {schema_id: types for schema_id, types in by_id.items() if isinstance(types, Mismatch)}
        known = select_known(framed, usable, "Protobuf", refused)
        faults = [*framed.rejected, *known.rejected]
        groups = []
        for schema_id, types in usable.items():
            of_schema = known.of_schema(schema_id)
            messages, bad = split_message_indexes(of_schema.payloads)
            faults += [replace(rejected, index=of_schema.place(rejected.index)) for rejected in bad]
            for group in messages:
                places = of_schema.places(group.indexes)
                reader = types.reader(group.path)
                if isinstance(reader, Mismatch):
                    faults += map(reader.rejected, places.tolist())
                else:
                    groups.append((places, reader.decode(group.payloads)))
        return regrouped(self._schema, len(values), groups, faults)

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        types = map(self._schema_types, np.unique(split_schema_ids(values).schema_ids).tolist())
        return frozenset().union(*(each.fields(within) for each in types if isinstance(each, _SchemaTypes)))

    def _schema_types(self, schema_id: int) -> _SchemaTypes | Mismatch | None:
        if schema_id not in self._types:
            try:
                descriptor_set = self._registered.schemas.descriptor_set(schema_id)
                if descriptor_set is None:
                    return None
                self._types[schema_id] = _SchemaTypes(descriptor_set, self._schema, self._registered)
            except UnusableSchema as problem:
                return unusable_schema(problem)
            except ValueError as error:
                self._types[schema_id] = unusable_schema(error)
        return self._types[schema_id]


class _SchemaTypes:
    """The message types of one schema, by message indexes. Raises ValueError when the set is incomplete."""

    def __init__(self, descriptor_set: bytes, schema: pa.Schema, registered: RegisteredMessages) -> None:
        self._descriptor_set = descriptor_set
        self._types = ProtobufSchema(descriptor_set)
        self._schema, self._registered = schema, registered
        self._reader: _Reader | Mismatch | None = None

    def reader(self, path: tuple[int, ...]) -> _Reader | Mismatch:
        """Return the reader of a path of message indexes, or why none of its records can be read."""
        expected_name = self._registered.message
        message = self._types.message_at(path)
        if message is None:
            name = f"message indexes {[*path]}, which are no message of the schema"
            return Mismatch(shortened(f"a message {expected_name}"), shortened(name))
        if message.full_name != expected_name:
            return Mismatch(shortened(f"a message {expected_name}"), shortened(message.full_name))
        if self._reader is None:
            try:
                refusal = self._refusal_of(message)
                self._reader = _Reader(message, self._schema, self._registered.truncate_nanoseconds, refusal)
            except ValueError as error:
                self._reader = unusable_schema(error)
        return self._reader

    def _refusal_of(self, message: Descriptor) -> Refusal | None:
        required = self._registered.required
        if required is None:
            return None

        def shape(version: RegisteredSchema) -> pa.DataType:
            descriptors = _compiled(version)
            types = ProtobufSchema(descriptors) if descriptors is not None else None
            if types is None or not types.has(message.full_name):
                return UNKNOWN
            return shape_of(types.message(message.full_name), required.record)

        def is_written(version: RegisteredSchema) -> bool:
            return _compiled(version) == self._descriptor_set

        return required.refusal_of(shape_of(message, required.record), is_written, shape)

    def fields(self, within: str) -> frozenset[str]:
        name = self._registered.message
        return _field_names(self._types.message(name), within) if self._types.has(name) else frozenset()


def _field_names(message: Descriptor, within: str) -> frozenset[str]:
    """The names of a message's fields, or of those of the message that is its field `within`."""
    if within:
        field = message.fields_by_name.get(within)
        message = field and field.message_type
    return frozenset(field.name for field in message.fields) if message else frozenset()


def _compiled(schema: RegisteredSchema) -> bytes | None:
    """None if no record can be read with it."""
    try:
        return compiled(schema)
    except ValueError:
        return None


class _Reader:
    """Reads bare messages of one type. `refusal`: why those that write a row are bad."""

    def __init__(
        self, message: Descriptor, schema: pa.Schema, truncate_nanoseconds: bool, refusal: Refusal | None = None
    ) -> None:
        self._schema, self.message, self._refusal = schema, message, refusal
        self._exact = MessageReader(message, schema, truncate_nanoseconds)
        self._fast = fast_path(message, schema, truncate_nanoseconds)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        fast = self._fast.read if self._fast else None
        read = decode_in_pieces(self._schema, values, fast, self._exact.read)
        return after_refusal(read, self._refusal, len(values))
