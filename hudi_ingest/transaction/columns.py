"""What a transaction reads and writes as columns: where they come from, and what they make of the table.

Asked once, at the transaction's begin, or by who wants to see what it would find. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.exceptions.problems import ProblemsFromTop
from hudi_ingest.hudi.options import ESCAPED_FOLDERS_PROPERTY, record_key_of
from hudi_ingest.hudi.timeline import RECORD_PROPERTY, Timeline
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline, dotted
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.schema.columns import SchemaProblem, ddl, parse_spark_json, spark_json, table_schema
from hudi_ingest.records.schema.evolution import Evolution, evolve, joined, loosened
from hudi_ingest.records.schema.inference import infer
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind
from hudi_ingest.records.transform.chain import Chain
from hudi_ingest.transaction.registered_columns import message_of, version_columns
from hudi_ingest.transaction.topic_sample import first_values

SAMPLE_RECORDS = 10_000
"""How many records the columns are inferred from."""
_KINDS: Mapping[str, SchemaKind] = {"avro": "AVRO", "json_schema": "JSON", "protobuf": "PROTOBUF"}
"""By format: what a registry calls its schemas."""


def source_text(pipeline: Pipeline) -> str:
    """Where the columns of the pipeline's records are from, in words."""
    table, registry = pipeline.table, pipeline.source.schema_registry
    if table.schema_file is not None:
        return f"declared in {table.schema_file}"
    if table.declares_schema:
        return "declared in table.schema"
    if registry is None or table.schema_ is not None:
        return f"inferred from the first {SAMPLE_RECORDS:,} records when the table is made"
    return f"of the latest version of {', '.join(_subjects(pipeline))} in the schema registry"


def resolve_schema(pipeline: Pipeline, timeline: Timeline) -> TransactionSchema:
    """The columns of the pipeline's next transaction.

    Raises SchemaRefused when they cannot be a table's, or the table that is there cannot take them over; SchemaMissing,
    RegistryUnreachable, RegistryRefused, KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable.
    """
    exists = timeline.exists()
    properties = timeline.properties() if exists else {}
    kept = properties.get(RECORD_PROPERTY, "")
    found = _found(pipeline, _parsed(kept) if kept else None)
    try:
        chain = pipeline.with_record(found.record).chain
    except ProblemsFromTop as error:
        lines = "\n".join(f"  - {dotted(place)}: {text}" for place, text in error.problems)
        raise SchemaRefused(
            f"pipeline {pipeline.name} does not fit the columns of its records, which are {found.origin}:\n{lines}\nThe "
            f"columns are: {ddl(found.record)}. Correct the pipeline file, or declare table.schema."
        ) from None
    # A table without any instant was left by a begin that died; nobody has written to it.
    there = timeline.schema() if exists and not timeline.is_empty() else None
    if there is None:
        columns, changes = _first_columns(pipeline, chain.output), tuple[str, ...]()
    else:
        evolution = _evolution(pipeline, there, chain, found.origin)
        columns, changes = evolution.schema, evolution.changes
    return TransactionSchema(
        origin=found.origin,
        record=spark_json(found.record),
        columns=spark_json(columns),
        declared=pipeline.table.declares_schema,
        avro=tuple((each.text, *each.references) for each in found.avro),
        schema_ids=found.schema_ids,
        changes=changes,
        warnings=found.warnings,
        record_key=record_key_of(properties),
        escaped_folders=not exists or properties.get(ESCAPED_FOLDERS_PROPERTY, "false") == "true",
    )


def _first_columns(pipeline: Pipeline, output: pa.Schema) -> pa.Schema:
    """The columns that a table is made with. Where nobody has declared them, all may be null: required fields come and go."""
    table = pipeline.table
    return table_schema(output if table.declares_schema else loosened(output), table.kafka_columns).columns


def _evolution(pipeline: Pipeline, there: pa.Schema, chain: Chain, origin: str) -> Evolution:
    """What becomes of the columns of the table that is there. Raises SchemaRefused."""
    table = pipeline.table
    records = table_schema(chain.output, table.kafka_columns).columns
    if table.take_over is not None and not _kafka_names(there):
        # The rows that another system wrote have none, nor will those that it writes when it comes back.
        records = pa.schema([each.with_nullable(True) if is_kafka(each.name) else each for each in records])
    else:
        _require_kafka_columns(pipeline, there, records)
        # Older versions made them NOT NULL; of a table that is so a record without a time is a bad one.
        of_time = {KAFKA_FIELDS["timestamp"].name, *chain.times_of_kafka}
        records = pa.schema([_required_as(there, each) if each.name in of_time else each for each in records])
    evolution = evolve(there, records, partition_by=table.partition_columns, loose=not table.declares_schema)
    if evolution.refusals:
        raise SchemaRefused(
            f"the table at {table.base_path} cannot take over the columns of pipeline {pipeline.name}, which are {origin}:\n"
            + "\n".join(f"  - {each}" for each in evolution.refusals)
            + "\nNothing was written. A table takes over columns that may be null, and wider numbers."
        )
    return evolution


@dataclass(frozen=True, slots=True)
class _Found:
    record: pa.Schema
    origin: str
    avro: tuple[RegisteredSchema, ...] = ()
    schema_ids: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()


def _found(pipeline: Pipeline, kept: pa.Schema | None) -> _Found:
    """`kept`: what the pipeline's last transaction decoded records to, where nobody has declared it."""
    if pipeline.table.declares_schema:
        return _Found(pipeline.table.record, source_text(pipeline))
    if pipeline.table.schema_ is None:
        return _registered(pipeline, kept)
    if kept is not None:
        return _Found(kept, "inferred when the table was made")
    return _inferred(pipeline)


def _subjects(pipeline: Pipeline) -> list[str]:
    registry = pipeline.source.schema_registry
    assert registry is not None, "checked with the pipeline file"
    return [*dict.fromkeys(registry.subject_of(topic) for topic in pipeline.source.topics)]


def _registered(pipeline: Pipeline, kept: pa.Schema | None) -> _Found:
    registry = pipeline.source.schema_registry
    assert registry is not None, "checked with the pipeline file"
    # Imported here, because its libraries are an extra.
    from hudi_ingest.kafka.registry import RegistryClient

    kind, subjects = _KINDS[pipeline.source.format], _subjects(pipeline)
    client = RegistryClient(registry, kind)
    versions = [client.versions(each) or (client.latest(each),) for each in subjects]
    latest = [each[-1] for each in versions]
    origin = ", ".join(f"version {each.version} of {each.subject} (schema id {each.schema_id})" for each in latest)
    message = None
    if kind == "PROTOBUF":
        message = message_of(registry, pipeline.source.protobuf.message, latest, subjects, "source")
    together = joined([version_columns(registry, each, kind, message) for each in latest])
    if together.refusals:
        raise SchemaRefused(
            f"pipeline {pipeline.name}: one table cannot have the columns of {origin}:\n"
            + "\n".join(f"  - {each}" for each in together.refusals)
        )
    record = together.schema
    if kind != "AVRO":
        # Records of other versions may lack what the newest requires; Avro's have defaults for that.
        record = loosened(record)
    if kept is not None:
        # What the newest version has no more is still read from records of older ones. Where the two do not go together the
        # newest wins here, and the table has the last word.
        record = joined([record, kept]).schema
    ids = tuple(sorted({each.schema_id for found in versions for each in found}))
    return _Found(record, origin, tuple(each.schema for each in latest) if kind == "AVRO" else (), ids)


def _inferred(pipeline: Pipeline) -> _Found:
    sample = first_values(pipeline, SAMPLE_RECORDS)
    found = infer(sample)
    if found.problems:
        problems = "\n".join(f"  - {each}" for each in found.problems)
        seen = f"\nWhat was found: {ddl(found.schema)}" if len(found.schema) else ""
        raise SchemaRefused(
            f"pipeline {pipeline.name}: no columns can be inferred from the first {len(sample):,} records of "
            f"{', '.join(pipeline.source.topics)}:\n{problems}\nWrite the columns as table.schema, in Spark DDL.{seen}"
        )
    return _Found(found.schema, f"inferred from the first {len(sample):,} records", warnings=tuple(found.warnings))


def _require_kafka_columns(pipeline: Pipeline, there: pa.Schema, wanted: pa.Schema) -> None:
    found, expected = _kafka_names(there), _kafka_names(wanted)
    if set(found) != set(expected):
        raise SchemaRefused(
            f"the table at {pipeline.table.base_path} has the columns {', '.join(found) or 'none'}, pipeline {pipeline.name} would give "
            f"every row {', '.join(expected)}. Make table.kafka_columns as it was, or choose another table.base_path."
        )


def _required_as(there: pa.Schema, column: pa.Field) -> pa.Field:
    return column.with_nullable(there.field(column.name).nullable) if column.name in there.names else column


def _kafka_names(columns: pa.Schema) -> list[str]:
    return [name for name in columns.names if is_kafka(name)]


def _parsed(kept: str) -> pa.Schema:
    try:
        return parse_spark_json(kept)
    except SchemaProblem as problem:
        raise SchemaRefused(
            f"property {RECORD_PROPERTY} in the table's hoodie.properties {problem}. Upgrade hudi-ingest if a newer version "
            "wrote it, or remove the property: the columns are then found anew."
        ) from None
