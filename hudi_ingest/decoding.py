"""A pipeline's converter, with all that it needs read and fetched: schema files, descriptors, the registry's schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from hudi_ingest.avro_schema import RegisteredSchema, WriterSchemaProblem, field_defaults, record_schema
from hudi_ingest.config import KafkaSource, Pipeline
from hudi_ingest.convert import Converter, converter_for
from hudi_ingest.convert.avro import (
    AvroValuesOf,
    ConfluentWireFormat,
    OneSchema,
    SchemaLookup,
    SingleObjectEncoding,
    Writers,
)
from hudi_ingest.evolution import additions
from hudi_ingest.exceptions import SchemaOutdated
from hudi_ingest.model import TransactionSchema
from hudi_ingest.registry import KnownSchemas, RegistryClient, known_schemas
from hudi_ingest.schema import SchemaProblem, parse_spark_json


def converter_of(pipeline: Pipeline, schema: TransactionSchema) -> Converter:
    """The converter of the pipeline's values to rows of the transaction's record schema. Picklable.

    Raises ValueError when the format cannot give a column, OSError for a file that cannot be read, RegistryUnreachable,
    RegistryRefused. Its `decode` raises SchemaOutdated too.
    """
    return converter_for(pipeline.source.format, parse_spark_json(schema.record), _options(pipeline, schema))


def _options(pipeline: Pipeline, schema: TransactionSchema) -> dict[str, Any]:
    source = pipeline.source
    if source.format == "csv":
        return vars(source.csv.options())
    if source.format == "protobuf" and source.protobuf is not None:
        return {
            "descriptor_set": source.protobuf.descriptor_file.read_bytes(),
            "message": source.protobuf.message,
            "truncate_nanoseconds": source.protobuf.truncate_nanoseconds,
        }
    if source.format == "avro":
        return {"values": AvroValuesOf(_writers(source, schema), _defaults(pipeline, schema))}
    return {}


def _defaults(pipeline: Pipeline, schema: TransactionSchema) -> Mapping[str, Any]:
    schema_file = pipeline.table.schema_file
    if schema_file is not None:
        return field_defaults(RegisteredSchema(_text(schema_file)))
    found: dict[str, Any] = {}
    for text, *references in schema.avro:
        found = {**field_defaults(RegisteredSchema(text, tuple(references))), **found}
    return found


def _writers(source: KafkaSource, schema: TransactionSchema) -> Writers:
    files = [RegisteredSchema(_text(each)) for each in source.avro.schema_files]
    if source.avro.wire_format == "datum":
        return OneSchema(files[0])
    if source.avro.wire_format == "single_object":
        return SingleObjectEncoding.of(*(each.text for each in files))
    registry = source.schema_registry
    assert registry is not None, "checked with the pipeline file"
    subjects = [registry.subject_of(topic) for topic in source.topics]
    known: SchemaLookup = KnownSchemas(registry, known_schemas(RegistryClient(registry), subjects))
    if not schema.declared:
        known = NoneNewer(known, frozenset(schema.schema_ids), parse_spark_json(schema.record), ", ".join(subjects))
    return ConfluentWireFormat(known)


@dataclass(frozen=True)
class NoneNewer:
    """The schemas of a transaction whose columns are the registry's: one that was registered since, and has more than
    those columns, ends the transaction, because its records would lose what the columns do not have. Picklable."""

    schemas: SchemaLookup
    resolved: frozenset[int]
    """The ids that the transaction's columns were found with."""
    record: pa.Schema
    subjects: str

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Raises SchemaOutdated, and what the registry's client raises."""
        found = self.schemas.schema(schema_id)
        if found is None or schema_id in self.resolved:
            return found
        try:
            more = additions(self.record, record_schema(found))
        except (SchemaProblem, WriterSchemaProblem) as problem:
            more = (f"a table cannot have its columns: {problem}",)
        if more:
            raise SchemaOutdated(
                f"a record was written with schema id {schema_id}, which the registry had not under {self.subjects} when the "
                f"transaction began, and its columns are not all there: {'; '.join(more)}. Nothing is visible; the next "
                "transaction takes the new schema and reads the same offsets. If it says the same, the id is of another "
                "subject: correct `subject` of source.schema_registry, or declare table.schema."
            )
        return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
