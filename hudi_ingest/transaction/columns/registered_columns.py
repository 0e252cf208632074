"""The columns of a registry's schemas of any kind, and the message type of Protobuf schemas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from hudi_ingest.exceptions import SchemaMissing
from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.records.convert.connect.columns import (
    Misread,
    avro_event_columns,
    changed_meanings,
    meant_columns,
    row_type,
)
from hudi_ingest.records.convert.connect.schema import ConnectType, parse_avro_schema, parse_json_schema
from hudi_ingest.records.schema import json_schema
from hudi_ingest.records.schema.columns import column_problems
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind

if TYPE_CHECKING:
    from hudi_ingest.kafka.registry import SubjectVersion


def columns_of(
    schema: RegisteredSchema,
    kind: SchemaKind,
    message: str | None,
    of_events: bool = False,
    kept: pa.Schema | None = None,
) -> pa.Schema:
    """The columns of the schema's records; for Protobuf, of the message type with this full name. `of_events`: of `after` of
    Debezium's events, in Avro. `kept`: those of the last transaction; see `meant_columns`. Raises ValueError if a table cannot have
    them."""
    # Imported where they are needed: avro and protobuf are extras that JSON schemas do not need.
    if kind == "AVRO":
        from hudi_ingest.records.schema import avro as avro_schema

        columns = avro_schema.record_schema(schema)
        if of_events:
            return avro_event_columns(schema, columns, kept)
        return meant_columns(columns, parse_avro_schema(schema), kept)
    if kind == "JSON":
        columns, connect = json_schema.record_schema(schema), parse_json_schema(schema.text)
        return columns if connect is None else meant_columns(columns, connect, kept)
    assert message is not None, "chosen by message_of"
    from hudi_ingest.records.convert.protobuf import schema as protobuf_schema
    from hudi_ingest.records.convert.protobuf.schema import compiled

    columns = protobuf_schema.record_schema(protobuf_schema.ProtobufSchema(compiled(schema)).message(message))
    if problems := column_problems(columns):
        raise SchemaProblem(problems)
    return columns


def changed_meanings_of(
    known: pa.Schema, versions: Iterable[RegisteredSchema], kind: SchemaKind, of_events: bool = False
) -> tuple[Misread, ...]:
    """`changed_meanings` of the columns `known` from a subject's versions, if Kafka Connect registered them, to their last."""
    if kind == "PROTOBUF":
        return ()
    types = [parse_avro_schema(each) if kind == "AVRO" else parse_json_schema(each.text) for each in versions]
    *before, newest = (row_type(each or ConnectType("any"), of_events) for each in types)
    return changed_meanings(known, newest, before, has_units=kind == "AVRO")


def version_columns(
    config: SchemaRegistry,
    version: SubjectVersion,
    kind: SchemaKind,
    message: str | None = None,
    of_events: bool = False,
    kept: pa.Schema | None = None,
) -> pa.Schema:
    """The columns of records of this version. `kept`: those of the last transaction. Raises SchemaMissing if a table cannot have them."""
    try:
        return columns_of(version.schema, kind, message, of_events, kept)
    except ValueError as problem:
        raise SchemaMissing(
            f"Schema registry {config.url}: a table cannot have the columns of version {version.version} of {version.subject}: "
            f"{problem}; declare table.schema with the columns to take.",
            url=config.url,
            subject=version.subject,
            schema_id=version.schema_id,
        ) from None


def has_message(schema: RegisteredSchema, message: str) -> bool:
    """Whether a Protobuf schema has a message type with this full name. Raises ValueError if it cannot be compiled."""
    from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compiled

    return ProtobufSchema(compiled(schema)).has(message)


def message_of(
    config: SchemaRegistry, declared: str | None, newest: Sequence[SubjectVersion], subjects: Sequence[str], place: str
) -> str:
    """The full name of the records' message type: the declared one, or the first in the subjects' newest schemas, which
    serializers write by default. `place`: the key above `protobuf` in the pipeline file. Raises SchemaMissing if neither
    names one."""
    # Imported here, because only pipelines of this format need the libraries.
    from hudi_ingest.records.convert.protobuf.converter import first_message
    from hudi_ingest.records.convert.protobuf.schema import compiled

    if declared is not None:
        return declared
    prefix = f"Schema registry {config.url}: {place}.protobuf.message is not set, and"
    names: set[str | None] = set()
    for version in newest:
        try:
            names.add(first_message(compiled(version.schema)))
        except ValueError as problem:
            raise SchemaMissing(
                f"{prefix} version {version.version} of {version.subject} cannot be compiled: {problem}; give the full name of the "
                "message type, and declare table.schema.",
                url=config.url,
                subject=version.subject,
                schema_id=version.schema_id,
            ) from None
    message = next(iter(names)) if len(names) == 1 else None
    if message is not None:
        return message
    first_messages = ", ".join(sorted(name or "no message" for name in names)) or "no Protobuf schema"
    raise SchemaMissing(
        f"{prefix} the newest schemas of {', '.join(subjects) or 'the keys'} begin with {first_messages}; give the full name of the "
        "message type, or register the schema.",
        url=config.url,
    )
