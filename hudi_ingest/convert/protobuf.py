"""Protobuf records -> rows: batches by ptars where its result is proved right, the rest by google.protobuf.

`protobuf_exact` says what is accepted. Messages stand alone, with one schema for all; or behind Confluent's wire
format, which says for each record its schema and its message type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from hudi_ingest.config_model import suggestion
from hudi_ingest.convert import Decoded, Options, Rejected
from hudi_ingest.convert.json_exact import shortened
from hudi_ingest.convert.options import read_options
from hudi_ingest.convert.pieces import decode_exactly, decode_in_pieces
from hudi_ingest.convert.protobuf_exact import MessageReader
from hudi_ingest.convert.protobuf_fast import fast_path
from hudi_ingest.convert.protobuf_schema import ProtobufSchema
from hudi_ingest.convert.values import Indexes, regrouped, require_values
from hudi_ingest.convert.wire_format import select_known, split_message_indexes, split_schema_ids


@dataclass(frozen=True)
class ProtobufOptions:
    """Where the message type comes from: `descriptor_set` and `message`, or `schemas` and the records themselves."""

    message: str | None = None
    """Full name of the message type, like `shop.Order`; records of other types are refused. With `schemas` it may be left
    out when all of them begin with the same one."""
    descriptor_set: bytes | None = None
    """A serialized FileDescriptorSet; see `protobuf_schema`. Records are plain messages."""
    schemas: Mapping[int, bytes] = field(default_factory=dict)
    """Schema id -> serialized FileDescriptorSet, its last file the schema. Records have Confluent's wire format."""
    truncate_nanoseconds: bool = False
    """Cut timestamps to whole microseconds, instead of refusing those that are finer."""

    def __post_init__(self) -> None:
        if (self.descriptor_set is None) == (not self.schemas):
            raise ValueError("give either descriptor_set, for plain messages, or schemas, for Confluent's wire format")
        if self.descriptor_set is not None and self.message is None:
            raise ValueError("message is missing; give the full name of the message type, like shop.Order")


def protobuf_converter(schema: pa.Schema, options: Options) -> ProtobufConverter | RegisteredProtobufConverter:
    """Raises ValueError when an option is wrong, or a column fits no field of the messages."""
    chosen = read_options(ProtobufOptions, "protobuf", options)
    return RegisteredProtobufConverter(schema, chosen) if chosen.schemas else ProtobufConverter(schema, chosen)


class ProtobufConverter:
    """Plain messages of one type."""

    def __init__(self, schema: pa.Schema, options: ProtobufOptions) -> None:
        assert options.descriptor_set is not None and options.message is not None
        self._schema, self._options = schema, options
        message = ProtobufSchema(options.descriptor_set).message(options.message)
        known = [each.name for each in message.fields]
        missing = [f"{each}{suggestion(each, known)}" for each in schema.names if each not in known]
        if missing:
            raise ValueError(f"message {message.full_name} has no field for the column {', '.join(missing)}")
        self._reader = _Reader(message, schema, options.truncate_nanoseconds)

    def __reduce__(self) -> tuple[type[ProtobufConverter], tuple[pa.Schema, ProtobufOptions]]:
        return (ProtobufConverter, (self._schema, self._options))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        return self._reader.decode(values)


class RegisteredProtobufConverter:
    """Messages behind Confluent's wire format. A column that some of the schemas lack is null in their records."""

    def __init__(self, schema: pa.Schema, options: ProtobufOptions) -> None:
        self._schema, self._options = schema, options
        self._schemas = {id_: ProtobufSchema(each) for id_, each in sorted(options.schemas.items())}
        self._message = options.message or _common_first_message(self._schemas)
        messages = {id_: each.message(self._message) for id_, each in self._schemas.items()}
        for name in schema.names:
            if not any(name in each.fields_by_name for each in messages.values()):
                known = {field.name for each in messages.values() for field in each.fields}
                raise ValueError(
                    f"message {self._message} has no field for the column {name} in any of the topic's schemas"
                    f"{suggestion(name, sorted(known))}"
                )
        self._readers = {id_: _Reader(each, schema, options.truncate_nanoseconds) for id_, each in messages.items()}

    def __reduce__(self) -> tuple[type[RegisteredProtobufConverter], tuple[pa.Schema, ProtobufOptions]]:
        return (RegisteredProtobufConverter, (self._schema, self._options))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        framed = split_schema_ids(values)
        known = select_known(framed, self._readers.keys())
        faults = [*framed.rejected, *known.rejected]
        groups = []
        for schema_id in np.unique(known.schema_ids).tolist():
            of_schema = known.of_schema(schema_id)
            types, bad = split_message_indexes(of_schema.payloads)
            faults += [replace(each, index=of_schema.place(each.index)) for each in bad]
            for each in types:
                found = self._schemas[schema_id].message_at(each.path)
                if found is not None and found.full_name == self._message:
                    part = self._readers[schema_id].decode(each.payloads)
                    groups.append((of_schema.places(each.indexes), part))
                else:
                    faults += self._other_type(of_schema.places(each.indexes), each.path, found)
        return regrouped(self._schema, len(values), groups, faults)

    def _other_type(self, places: Indexes, path: tuple[int, ...], found: Descriptor | None) -> list[Rejected]:
        name = f"message indexes {[*path]}, which are no message of the schema" if found is None else found.full_name
        return [Rejected(int(each), "", shortened(f"a message {self._message}"), shortened(name)) for each in places]


class _Reader:
    """Reads messages of one type, which stand alone."""

    def __init__(self, message: Descriptor, schema: pa.Schema, truncate_nanoseconds: bool) -> None:
        self._schema = schema
        self._exact = MessageReader(message, schema, truncate_nanoseconds)
        self._fast = fast_path(message, schema, truncate_nanoseconds)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        if self._fast is None:
            return decode_exactly(values, self._exact.read)
        return decode_in_pieces(self._schema, values, self._fast.rows, self._exact.read)


def _common_first_message(schemas: Mapping[int, ProtobufSchema]) -> str:
    """The first message type, which serializers write by default. Raises ValueError when the schemas differ in it."""
    first = {id_: each.message_at((0,)) for id_, each in schemas.items()}
    names = sorted({each.full_name for each in first.values() if each is not None})
    if len(names) != 1:
        found = ", ".join(names) or "no message at all"
        raise ValueError(f"message is missing, and the topic's schemas begin with {found}; give the one to read")
    return str(names[0])
