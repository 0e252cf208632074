"""What turns a pipeline's records into rows, with all that it needs read and fetched: schema files, descriptors, the
registry's schemas."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from hudi_ingest.avro_schema import RegisteredSchema, field_defaults
from hudi_ingest.config import KafkaSource, Pipeline
from hudi_ingest.convert import Converter, converter_for
from hudi_ingest.convert.avro import AvroValuesOf, ConfluentWireFormat, OneSchema, SingleObjectEncoding, Writers
from hudi_ingest.record_rows import RowMaker
from hudi_ingest.registry import KnownSchemas, RegistryClient, known_schemas
from hudi_ingest.schema import TableSchema


def row_maker_of(pipeline: Pipeline, schema: TableSchema, began_at: datetime) -> RowMaker:
    """What makes rows of a transaction that began then, for a table of this schema. Raises what `converter_of` raises."""
    return RowMaker(
        converter=converter_of(pipeline),
        chain=pipeline.chain.at(began_at),
        columns=schema.columns,
        partition_by=pipeline.table.partition_columns,
        hive_style=pipeline.table.hive_style,
        on_tombstone=pipeline.on_tombstone,
    )


def converter_of(pipeline: Pipeline) -> Converter:
    """The converter of the pipeline's values to rows of its record schema. Picklable.

    Raises ValueError when the format cannot give a column, OSError for a file that cannot be read, RegistryUnreachable,
    RegistryRefused.
    """
    return converter_for(pipeline.source.format, pipeline.table.record, _options(pipeline))


def _options(pipeline: Pipeline) -> dict[str, Any]:
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
        schema_file = pipeline.table.schema_file
        return {
            "values": AvroValuesOf(_writers(source), field_defaults(schema_file.read_text()) if schema_file else {})
        }
    return {}


def _writers(source: KafkaSource) -> Writers:
    files = [RegisteredSchema(_text(each)) for each in source.avro.schema_files]
    if source.avro.wire_format == "datum":
        return OneSchema(files[0])
    if source.avro.wire_format == "single_object":
        return SingleObjectEncoding.of(*(each.text for each in files))
    registry = source.schema_registry
    assert registry is not None, "checked with the pipeline file"
    subjects = [registry.subject_of(topic) for topic in source.topics]
    return ConfluentWireFormat(KnownSchemas(registry, known_schemas(RegistryClient(registry), subjects)))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
