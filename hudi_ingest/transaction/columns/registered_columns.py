"""The columns of a registry's schemas of any kind, the changes of them that no table can follow, and the message type of Protobuf schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from hudi_ingest.exceptions import SchemaMissing, SchemaRefused
from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.records.convert.connect.columns import (
    Misread,
    avro_event_columns,
    changed_meanings,
    meant_columns,
    row_type,
)
from hudi_ingest.records.convert.connect.debezium import control_kind
from hudi_ingest.records.convert.values import optional_fields_text
from hudi_ingest.records.schema import json_schema
from hudi_ingest.records.schema.avro import parse_connect_avro, parse_writer
from hudi_ingest.records.schema.avro import record_schema as avro_record_schema
from hudi_ingest.records.schema.columns import column_problems
from hudi_ingest.records.schema.evolution import absent
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind
from hudi_ingest.records.schema.wire_type import WireType

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
    # Imported where it is needed: protobuf is an extra.
    if kind == "AVRO":
        columns = avro_record_schema(schema)
        if of_events:
            return avro_event_columns(schema, columns, kept)
        return meant_columns(columns, parse_connect_avro(schema), kept)
    if kind == "JSON":
        columns, connect = json_schema.record_schema(schema), json_schema.parse_connect_json_schema(schema.text)
        return columns if connect is None else meant_columns(columns, connect, kept)
    assert message is not None, "chosen by message_of"
    from hudi_ingest.records.convert.protobuf import schema as protobuf_schema
    from hudi_ingest.records.convert.protobuf.schema import compiled

    columns = protobuf_schema.record_schema(protobuf_schema.ProtobufSchema(compiled(schema)).message(message))
    if problems := column_problems(columns):
        raise SchemaProblem(problems)
    return columns


def unreadable(schema: RegisteredSchema, kind: SchemaKind) -> str:
    """Why no record of this schema can be read, whatever the columns are; "" if records can be."""
    try:
        if kind == "AVRO":
            parse_writer(schema)
        elif kind == "JSON":
            json.loads(schema.text)
            json_schema.parse_connect_json_schema(schema.text)
        else:
            from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compiled

            ProtobufSchema(compiled(schema))
    except (ValueError, RecursionError) as problem:
        return " ".join(str(problem).split())
    return ""


def through_readable(versions: Sequence[SubjectVersion], kind: SchemaKind) -> tuple[SubjectVersion, ...]:
    """A subject's versions, ascending, without the newest ones of which no record can be read; all if there are no others. Whoever
    registers such a version stops its own records, not those of the versions before it."""
    ends = range(len(versions), 0, -1)
    end = next((end for end in ends if not unreadable(versions[end - 1].schema, kind)), len(versions))
    return tuple(versions[:end])


def _meanings(schema: RegisteredSchema, kind: SchemaKind) -> WireType | None:
    """What Kafka Connect's values of this schema mean; None if it is no schema."""
    try:
        return (
            parse_connect_avro(schema)
            if kind == "AVRO"
            else json_schema.parse_connect_json_schema(schema.text) or WireType("any")
        )
    except ValueError:
        return None


def is_control(schema: RegisteredSchema) -> bool:
    """Whether a schema is that of records of Debezium's connector itself, such as heartbeats, in Avro."""
    meanings = _meanings(schema, "AVRO")
    return meanings is not None and bool(control_kind(meanings.members))


def changed_meanings_of(
    known: pa.Schema, versions: Iterable[RegisteredSchema], kind: SchemaKind, of_events: bool = False
) -> tuple[Misread, ...]:
    """`changed_meanings` of the columns `known` from a subject's versions, if Kafka Connect registered them, to their last."""
    if kind == "PROTOBUF":
        return ()
    types = [found for each in versions if (found := _meanings(each, kind)) is not None]
    *before, newest = (row_type(each, of_events) for each in types)
    return changed_meanings(known, newest, before, has_units=kind == "AVRO")


def require_none_dropped(pipeline: Pipeline, stored: pa.Schema, record: pa.Schema, origin: str) -> None:
    """Raises SchemaRefused if the latest versions lack a field: rows without it would erase its values in a keyed table."""
    optional = pipeline.source.optional_fields
    dropped = [path for path in absent(stored, record) if path not in optional]
    if dropped:
        new = absent(record, stored)
        raise SchemaRefused(
            f"pipeline {pipeline.name}: {origin}, has no longer the fields {', '.join(dropped)}"
            + (f"; new in it: {', '.join(new)}" if new else "")
            + f". Rows of its records would erase their values in the table at {pipeline.table.base_path}. Nothing was written. Bring "
            f"them back in a new version, or make them `optional_fields` in the pipeline file, as "
            f"{optional_fields_text([*optional, *dropped], pipeline.own_topic)}: they are null then."
        )


def require_same_meanings(
    pipeline: Pipeline, stored: pa.Schema, subjects: Sequence[Sequence[RegisteredSchema]], kind: SchemaKind, origin: str
) -> None:
    """Raises SchemaRefused if the latest version of a subject has numbers of another unit or meaning than those of the table."""
    of_events = pipeline.source.envelope == "debezium"
    changed = [other for each in subjects for other in changed_meanings_of(stored, each, kind, of_events)]
    if changed:
        raise SchemaRefused(
            f"pipeline {pipeline.name}: the table at {pipeline.table.base_path} cannot go on with {origin}:\n"
            + "\n".join(f"  - {other}" for other in changed)
            + "\nNothing was written. Give the changed column another name in the source, or begin a new table, or declare table.schema to "
            "have the values as they come."
        )


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


def message_of(config: SchemaRegistry, newest: Sequence[SubjectVersion], subjects: Sequence[str], place: str) -> str:
    """The full name of the records' message type, if the pipeline file does not say it: the first in the subjects' newest schemas, which
    serializers write by default. `place`: the key above `protobuf` in the pipeline file. Raises SchemaMissing if they name none."""
    # Imported here, because only pipelines of this format need the libraries.
    from hudi_ingest.records.convert.protobuf.converter import first_message
    from hudi_ingest.records.convert.protobuf.schema import compiled

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
