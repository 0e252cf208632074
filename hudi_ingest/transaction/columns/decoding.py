"""Builds what turns a pipeline's records into rows, after reading and fetching all it needs: schema files, descriptors, the
registry's schemas."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path  # files: schema files
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hudi_ingest.exceptions import ConfigError, SchemaOutdated
from hudi_ingest.exceptions.problems import quoted, unexpected
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.record import DeclaredFormat, needs_registry
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.records.changes import KeyedRows
from hudi_ingest.records.convert.connect.columns import NewerColumnsGuard
from hudi_ingest.records.convert.connect.debezium import (
    EVENT_FIELDS,
    KEY_CHANGE_FIELDS,
    SOURCE_TABLE_FIELDS,
    TRUNCATES_FAIL,
    AvailableValues,
    DebeziumConverter,
    KeyChanges,
    NamingFields,
    SourceTable,
    event_schema,
)
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Converter
from hudi_ingest.records.convert.formats import converter_for, is_built_in
from hudi_ingest.records.convert.values import RequiredFields
from hudi_ingest.records.convert.wire_format import SchemaLookup
from hudi_ingest.records.kafka_columns import OFFSET
from hudi_ingest.records.kafka_keys import KafkaKeys, KeyGuard
from hudi_ingest.records.routing import RecordType
from hudi_ingest.records.row_maker import RowMaker
from hudi_ingest.records.schema.columns import parse_spark_json
from hudi_ingest.records.schema.evolution import additions
from hudi_ingest.records.schema.registered import KINDS, RegisteredSchema, SchemaKind
from hudi_ingest.transaction.columns.registered_columns import (
    columns_of,
    has_message,
    message_of,
    through_readable,
    unreadable,
)

if TYPE_CHECKING:
    from hudi_ingest.kafka.registry import KnownSchemas, RegistryClient, SubjectVersion
    from hudi_ingest.records.convert.avro.converter import Writers
    from hudi_ingest.records.schema.avro import Resolution

_logger = logging.getLogger(__name__)
# The libraries of avro, protobuf and the registry are extras, so what imports them is imported in functions.


def row_maker_of(
    pipeline: Pipeline, schema: TransactionSchema, began_at: datetime, kafka_partitions: int = 1
) -> RowMaker:
    """The row maker of a transaction that began then and has these columns. `kafka_partitions`: how many the topics have. Raises what
    `converter_of` raises."""
    pipeline = pipeline.with_record(parse_spark_json(schema.record), schema.record_key)
    registry = pipeline.source.schema_registry
    values = _values(pipeline, schema)
    table, source = pipeline.table, pipeline.source
    deletes = table.is_keyed and (table.delete_field is not None or source.envelope == "debezium")
    nullable = pa.schema([column.with_nullable(True) for column in values.schema])
    return RowMaker(
        converter=_converter_of_values(pipeline, values, kafka_partitions),
        lenient_converter=_converter_of_values(pipeline, replace(values, schema=nullable, required=None, guard=None))
        if deletes and is_built_in(source.format)
        else None,
        chain=pipeline.chain.at(began_at),
        columns=parse_spark_json(schema.columns),
        partition_by=pipeline.table.partition_columns,
        hive_style=pipeline.table.hive_style,
        escaped_folders=schema.escaped_folders,
        record_key=schema.record_key,
        keyed=keyed_rows_of(pipeline),
        on_tombstone=pipeline.on_tombstone,
        key_converter=key_converter_of(pipeline),
        key_columns=pipeline.source.key.columns if pipeline.source.key else None,
        routing=pipeline.routing,
        route_converter=route_converter_of(pipeline),
        key_changes=KeyChanges(_converter(pipeline, replace(values, schema=KEY_CHANGE_FIELDS, required=None)))
        if source.envelope == "debezium" and pipeline.fills_values
        else None,
        record_type=_record_type(pipeline),
        schema_headers=registry is not None and registry.schema_ids == "headers",
        own_columns=tuple(pipeline.table.record.names),
        applies_truncates=applies_truncates(pipeline, kafka_partitions),
        key_guard=_key_guard(pipeline),
    )


def kafka_keys_of(pipeline: Pipeline) -> KafkaKeys:
    """Return what names the fields of the records' own keys, which may be written in another way than their values."""
    registry, source = pipeline.source.schema_registry, pipeline.source
    if registry is None:
        return KafkaKeys()
    from hudi_ingest.kafka.registry import KnownSchemas

    # Most connectors write keys as they write values.
    kinds = sorted(KINDS.values(), key=lambda kind: kind != KINDS.get(source.format))
    return KafkaKeys({kind: KnownSchemas(registry, {}, kind) for kind in kinds})


def _key_guard(pipeline: Pipeline) -> KeyGuard | None:
    """Return the guard of the table's key; None if it is not that of the records."""
    table = pipeline.table
    if not table.finds_key:
        return None
    own = pipeline.chain.sources(table.key_columns)
    return KeyGuard(pipeline.name, table.base_path, tuple(sorted(own)), kafka_keys_of(pipeline))


def route_converter_of(pipeline: Pipeline) -> Converter | None:
    """Return the converter of the field by which records are routed; None if they are not."""
    if pipeline.routing is None:
        return None
    return _converter(pipeline, replace(_values(pipeline), schema=pipeline.routing.columns, required=None))


def _record_type(pipeline: Pipeline) -> RecordType | None:
    """Return the type of the records to decode, by the registry; None if all are to be decoded."""
    registry = pipeline.source.schema_registry
    if registry is None or registry.record is None or registry.other_records != "filter":
        return None
    if not needs_registry(pipeline.source):
        return None
    from hudi_ingest.kafka.registry import KnownSchemas

    kind = KINDS[pipeline.source.format]
    # Not guarded: a new schema of another type is none of this transaction's business.
    return RecordType(registry.record, KnownSchemas(registry, {}, kind), kind)


def keyed_rows_of(pipeline: Pipeline) -> KeyedRows | None:
    """How the rows of the pipeline's table are told apart; None with mode append."""
    table = pipeline.table
    return KeyedRows(table.key_columns, table.ordering or OFFSET, table.delete_field) if table.is_keyed else None


def converter_of(pipeline: Pipeline, schema: TransactionSchema | None = None) -> Converter:
    """The converter from the pipeline's values to rows of its record schema. Picklable. `schema`: the columns a transaction
    resolved, if they are not declared.

    Raises ConfigError if the format cannot provide a column or a file cannot be read, RegistryUnreachable,
    RegistryRefused, SchemaMissing. Its `decode` also raises SchemaOutdated.
    """
    return _converter_of_values(pipeline, _values(pipeline, schema))


def _converter_of_values(pipeline: Pipeline, values: _RecordPart, kafka_partitions: int = 1) -> Converter:
    if pipeline.source.envelope == "debezium":
        converter = _changes(pipeline, values, kafka_partitions)
    else:
        converter = _converter(pipeline, values)
    placeholder = pipeline.unavailable_value
    return converter if placeholder is None else AvailableValues(converter, placeholder, pipeline.fills_values)


def key_converter_of(pipeline: Pipeline) -> Converter | None:
    """Like `converter_of`, from the pipeline's keys to rows of `source.key.schema`; None if keys are not read."""
    keys = _keys(pipeline)
    return None if keys is None else _converter(pipeline, keys)


def format_problems(pipeline: Pipeline, *, import_user_code: bool = False) -> tuple[str, ...]:
    """Return what is wrong with the pipeline's formats, their files and their columns. Asks no registry, so formats that need
    one are not checked against its schemas. Converters of other packages are only checked with `import_user_code`."""
    problems: list[str] = []
    values = _values(pipeline) if pipeline.table.declares_schema else None
    for part in (values, _keys(pipeline)):
        if part is None or needs_registry(part.declared):
            continue
        if import_user_code or is_built_in(part.declared.format):
            try:
                if part is values and pipeline.source.envelope == "debezium":
                    _changes(pipeline, part)
                else:
                    _converter(pipeline, part)
            except ConfigError as error:
                problems += error.problems
            except Exception as error:
                # Of a schema library, on a file that is not as it expects: the other pipelines are loaded all the same.
                _logger.error("The formats of pipeline %s cannot be checked", pipeline.name, exc_info=error)
                problems.append(f"{part.place}: {quoted(str(error))}: {unexpected(error)}")
    return tuple(problems)


@dataclass(frozen=True, slots=True)
class _RecordPart:
    """The values or the keys of records."""

    place: str
    declared: DeclaredFormat
    schema: pa.Schema
    schema_file: Path | None
    subjects: Sequence[str]
    """Subjects that are looked up in advance."""
    registry: SchemaRegistry | None
    found: TransactionSchema | None = None
    """The schema that a transaction resolved, if `schema` is not declared."""
    envelope: str = "none"
    required: RequiredFields | None = None
    """The columns that the records' schemas have to have, for a keyed table."""
    guard: NewerColumnsGuard | None = None
    """If the columns are inferred: what judges the schemas in the records."""
    source_table: tuple[str, ...] = ()
    """The source table of TransactionSchema."""
    listed: dict[str, tuple[SubjectVersion, ...]] = field(default_factory=dict)
    """The registry's lists, by subject; for all converters of this part."""


def _values(pipeline: Pipeline, schema: TransactionSchema | None = None) -> _RecordPart:
    source, table = pipeline.source, pipeline.table
    registry = source.schema_registry
    subjects = [registry.subject_of(topic) for topic in source.topics] if registry else []
    resolved = None if schema is None or schema.declared else schema
    of_events = source.envelope == "debezium"
    return _RecordPart(
        "source",
        source,
        table.record,
        table.schema_file,
        [*dict.fromkeys(subjects)],
        registry,
        resolved,
        source.envelope,
        RequiredFields(
            table.record,
            frozenset(source.optional_fields),
            "after" if of_events else "",
            recent=frozenset(resolved.recent.paths if resolved and resolved.recent else ()),
            # Declared columns may be ahead of the source; inferred ones were in its records.
            of_payloads=resolved is not None and of_events,
            topic=pipeline.own_topic,
        )
        if table.is_keyed and (source.envelope != "none" or source.format in KINDS)
        else None,
        NewerColumnsGuard(table.record, of_events, table.on_schema_change != "ignore") if resolved else None,
        schema.source_table or () if schema is not None else (),
    )


def _keys(pipeline: Pipeline) -> _RecordPart | None:
    key, registry = pipeline.source.key, pipeline.source.schema_registry
    if key is None:
        return None
    key_subjects = [registry.key_subject_of(topic) for topic in pipeline.source.topics] if registry else []
    subjects = [subject for subject in dict.fromkeys(key_subjects) if subject is not None]
    # Connect's converters write keys and values alike, but with settings of their own: a key may have a schema or not.
    envelope = "none" if pipeline.source.envelope == "none" else "debezium"
    return _RecordPart("source.key", key, key.columns, None, subjects, registry, envelope=envelope)


def _changes(pipeline: Pipeline, values: _RecordPart, kafka_partitions: int = 1) -> Converter:
    """The converter of Debezium's events to the rows that they write and delete."""
    table, chain = pipeline.table, pipeline.chain
    row = values.schema
    ordering = [table.ordering] if table.ordering is not None else []
    in_key = chain.sources(table.key_columns)
    naming = chain.sources([*table.key_columns, *table.partition_columns, *ordering] if table.is_keyed else [])
    names = tuple(name for name in row.names if name in naming)
    # A table that its key alone names needs no whole rows: of the tables of one file, some may send them and others only their keys.
    whole = pipeline.source.before_image == "row" and not in_key.issuperset(names)
    fields = NamingFields(names, whole)
    columns = pipeline.source.event_columns
    own = values.source_table if has_one_source(pipeline) else ()
    of_tables = SOURCE_TABLE_FIELDS if own else ()
    events = _converter(pipeline, replace(values, schema=event_schema(row, fields, [*columns.values(), *of_tables])))
    refused = _refused_truncates(pipeline, kafka_partitions)
    source_table = SourceTable(*own) if own else None
    return DebeziumConverter(events, row, fields, columns, not table.is_keyed, refused, source_table)


def has_one_source(pipeline: Pipeline) -> bool:
    """Whether all changes have to be of one table of the source: rows of two with the same key would overwrite each other. A column that
    says which table a row is from shows that several are meant."""
    source = pipeline.source
    return (
        source.envelope == "debezium"
        and pipeline.table.is_keyed
        and pipeline.routing is None
        and len(source.topics) == 1
        and "source.table" not in source.event_columns.values()
    )


def source_table_of(pipeline: Pipeline, values: Sequence[bytes]) -> tuple[str, ...] | None:
    """Return the owner and the name of the source's table that the first of these events is of which says so; () if none does, and None
    if none is an event. Raises what `converter_of` raises."""
    source = pipeline.source
    part = _RecordPart("source", source, _SOURCE_FIELDS, None, (), source.schema_registry, envelope=source.envelope)
    events = _converter(pipeline, part).decode(pa.array(values, pa.binary())).rows
    found = (SourceTable.of(events, index) for index in range(events.num_rows) if events["op"][index].is_valid)
    tables = [*found]
    if not tables:
        return None
    return next(((table.owner, table.name) for table in tables if table is not None), ())


_SOURCE_FIELDS = pa.schema(
    [
        pa.field("op", pa.string()),
        pa.field("source", pa.struct({path.partition(".")[2]: EVENT_FIELDS[path] for path in SOURCE_TABLE_FIELDS})),
    ]
)


def applies_truncates(pipeline: Pipeline, kafka_partitions: int = 1) -> bool:
    """Whether truncates delete rows, if the topics have so many Kafka partitions."""
    is_asked = pipeline.source.envelope == "debezium" and pipeline.source.on_truncate == "apply"
    return is_asked and not _refused_truncates(pipeline, kafka_partitions)


def _refused_truncates(pipeline: Pipeline, kafka_partitions: int) -> str:
    """Return why truncates are bad records; "" if they are applied or skipped. A truncate deletes what was written before it, and only
    the offsets of one Kafka partition say what that was."""
    table, on_truncate = pipeline.table, pipeline.source.on_truncate
    if on_truncate != "apply":
        return TRUNCATES_FAIL if on_truncate == "fail" else ""
    if not table.is_keyed:
        return "rows can only be deleted with `table.mode: upsert`"
    if table.ordering is not None:
        return "`table.ordering` does not say which rows it deletes"
    if kafka_partitions > 1:
        return f"the table is written from {kafka_partitions} Kafka partitions, so nothing says which rows it deletes (with one, offsets do)"
    return ""


def _converter(pipeline: Pipeline, part: _RecordPart) -> Converter:
    try:
        # Keys of Connect may have a schema although values have none, and one that is no object is the one column.
        alone = (
            part.place == "source.key" and len(part.schema) == 1 and part.schema.names[0] not in ("schema", "payload")
        )
        if (part.envelope != "none" or alone) and part.declared.format == "json":
            return ConnectJsonConverter(part.schema, part.envelope == "connect", part.required, part.guard)
        if part.declared.format == "avro" and (part.envelope != "none" or part.place == "source"):
            from hudi_ingest.records.convert.connect.avro import ConnectAvroConverter
            from hudi_ingest.records.schema.avro import Resolution

            resolution = _resolution(part)
            if part.schema_file is not None and part.envelope == "debezium":
                # The file declares the row, while a registered schema declares the event. No default stands in for what names a row.
                resolution = resolution.under("after").or_else(Resolution(aliases=resolution.aliases).under("before"))
            writers, required = _writers(part)
            return ConnectAvroConverter(part.schema, writers, resolution, required, part.found is None)
        protobuf = part.declared.protobuf
        if part.declared.format == "protobuf" and protobuf.descriptor_file is not None:
            from hudi_ingest.records.convert.protobuf.converter import ProtobufConverter, ProtobufOptions

            assert protobuf.message is not None, "checked with the pipeline file"
            options = ProtobufOptions(
                protobuf.message, protobuf.descriptor_file.read_bytes(), protobuf.truncate_nanoseconds
            )
            return ProtobufConverter(part.schema, options, part.required)
        return converter_for(part.declared.format, part.schema, _options(part))
    except ValueError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename} cannot be read: {error.strerror or error}"
    raise ConfigError(f"pipeline {pipeline.name}", [f"{part.place}.format {part.declared.format}: {problem}"])


def _options(part: _RecordPart) -> Mapping[str, Any]:
    declared = part.declared
    if declared.format == "csv":
        return vars(declared.csv.options())
    if declared.format == "avro":
        from hudi_ingest.records.convert.avro.converter import AvroValuesOf

        return {"values": AvroValuesOf(_writers(part)[0], _resolution(part))}
    if declared.format == "json_schema":
        from hudi_ingest.records.convert.json.framed import RegisteredSchemas

        return {"registered": RegisteredSchemas(*_known(part, "JSON"))}
    return {"registered": _registered_messages(part)} if declared.format == "protobuf" else {}


def _resolution(part: _RecordPart) -> Resolution:
    from hudi_ingest.records.convert.connect.avro import with_meant_defaults
    from hudi_ingest.records.schema.avro import Resolution, resolution_of

    if part.schema_file is not None:
        resolution = resolution_of(RegisteredSchema(_text(part.schema_file)))
        for path, default in resolution.unfit.items():
            raise ValueError(f"{part.schema_file}: field {path} has the {default}; correct the default or the type")
        return resolution
    resolution = Resolution()
    for text, *references in part.found.avro if part.found else ():
        schema = RegisteredSchema(text, tuple(references))
        resolution = resolution.or_else(with_meant_defaults(resolution_of(schema), schema, part.schema))
    return resolution


def _writers(part: _RecordPart) -> tuple[Writers, RequiredFields | None]:
    from hudi_ingest.records.convert.avro.converter import ConfluentWireFormat, OneSchema, SingleObjectEncoding

    avro = part.declared.avro
    if avro.wire_format == "confluent":
        schemas, required = _known(part, "AVRO")
        return ConfluentWireFormat(schemas), required
    files = [RegisteredSchema(_text(path)) for path in avro.schema_files]
    if avro.wire_format == "datum":
        return OneSchema(files[0]), part.required
    # Nothing shows which of several files is the older one, and an older one may lack columns.
    return SingleObjectEncoding.of(*(file.text for file in files)), part.required if len(files) == 1 else None


def _known(part: _RecordPart, kind: SchemaKind) -> tuple[SchemaLookup, RequiredFields | None]:
    from hudi_ingest.kafka.registry import KnownSchemas, RegistryClient

    assert part.registry is not None, "checked with the pipeline file"
    client = RegistryClient(part.registry, kind)
    versions = _versions(part, client)
    schemas = {version.schema_id: version.schema for of_subject in versions for version in of_subject}
    return _guarded(part, KnownSchemas(part.registry, schemas, kind)), _required(part, versions)


def _versions(part: _RecordPart, client: RegistryClient) -> list[tuple[SubjectVersion, ...]]:
    for subject in part.subjects:
        if subject not in part.listed:
            part.listed[subject] = client.versions(subject)
    return [part.listed[subject] for subject in part.subjects]


def _required(part: _RecordPart, versions: Sequence[Sequence[SubjectVersion]]) -> RequiredFields | None:
    """The columns that a record's schema has to have if one before it had them; None if the transaction has judged that already,
    for columns that are not declared."""
    if part.required is None or part.found is not None:
        return None
    schemas = tuple(tuple(version.schema for version in of_subject) for of_subject in versions)
    return replace(part.required, versions=schemas)


def _guarded(part: _RecordPart, known: KnownSchemas, message: str | None = None) -> SchemaLookup:
    # Changes of keys are looked for in records whose rows were made, so their schemas are judged.
    if part.found is None or part.schema is KEY_CHANGE_FIELDS:
        return known
    resolved = frozenset(part.found.schema_ids)
    of_events = part.envelope == "debezium"
    record = pa.schema(list(part.schema.field("after").type)) if of_events else part.schema
    schemas = frozenset(schema for schema_id, schema in known.known.items() if schema_id in resolved)
    subjects = ", ".join(part.subjects)
    return NewerSchemaGuard(known, resolved, record, subjects, known.kind, message, of_events, schemas)


def _registered_messages(part: _RecordPart) -> Any:
    from hudi_ingest.kafka.registry import KnownSchemas, RegistryClient
    from hudi_ingest.records.convert.protobuf.converter import RegisteredMessages, require_columns
    from hudi_ingest.records.convert.protobuf.schema import CompiledSchemas, compiled

    declared, registry = part.declared.protobuf, part.registry
    assert registry is not None, "checked with the pipeline file"
    client = RegistryClient(registry, "PROTOBUF")
    versions = _versions(part, client)
    schemas = {version.schema_id: version.schema for of_subject in versions for version in of_subject}
    known = KnownSchemas(registry, schemas, "PROTOBUF")
    if part.found is not None:
        # The columns come from the message type that was first at that time.
        ids = frozenset(part.found.schema_ids)
        versions = [tuple(each for each in of_subject if each.schema_id in ids) for of_subject in versions]
    message = declared.message
    if message is None:
        newest = [through_readable(of_subject, "PROTOBUF")[-1] for of_subject in versions if of_subject]
        message = message_of(registry, newest, part.subjects, part.place)
    if part.found is None:
        newest_first = (version.schema for of_subject in versions for version in reversed(of_subject))
        # Records of the others are bad, but not those that are written with these.
        readable = (schema for schema in newest_first if not unreadable(schema, "PROTOBUF"))
        require_columns(part.schema, message, map(compiled, readable))
    lookup = CompiledSchemas(_guarded(part, known, message))
    return RegisteredMessages(lookup, message, declared.truncate_nanoseconds, _required(part, versions))


@dataclass(frozen=True)
class NewerSchemaGuard:
    """The schemas of a transaction whose columns come from the registry. A schema registered since then that adds columns
    ends the transaction, because its records would lose the added fields. Picklable."""

    schemas: SchemaLookup
    resolved: frozenset[int]
    """The schema ids from which the transaction's columns were resolved."""
    record: pa.Schema
    subjects: str
    kind: SchemaKind = "AVRO"
    message: str | None = None
    """The Protobuf message type that is read. Records of other types are bad whatever their schemas contain."""
    of_events: bool = False
    """Whether `record` is `after` of Debezium's events."""
    resolved_schemas: frozenset[RegisteredSchema] = frozenset()
    """The schemas of `resolved`, which records may also name by GUID."""

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Raises SchemaOutdated, and what the registry's client raises."""
        schema = self.schemas.schema(schema_id)
        if schema is None or schema_id in self.resolved or schema in self.resolved_schemas:
            return schema
        try:
            if self.message is not None and not has_message(schema, self.message):
                return schema
            added = additions(self.record, columns_of(schema, self.kind, self.message, self.of_events, self.record))
        except ValueError as problem:
            if unreadable(schema, self.kind):
                return schema  # The converter says why its records are bad.
            added = (f"a table cannot have its columns: {problem}",)
        if added:
            raise SchemaOutdated(schema_id=schema_id, subjects=self.subjects, changes=added)
        return schema


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
