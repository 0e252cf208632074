"""A table's columns as Dagster shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
from dagster import (
    TableColumn,
    TableColumnConstraints,
    TableSchema,
)

from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.model import read_text
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TIMESTAMP, TOPIC
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.schema.ddl import ddl_comments
from hudi_ingest.records.schema.descriptions import avro_descriptions


def pipeline_columns(
    pipeline: Pipeline, columns: pa.Schema, descriptions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the columns of the pipeline's table as Dagster metadata, with what the pipeline file says about them, or else
    `descriptions`, what the registry's schemas say."""
    return column_schema(columns, pipeline.table.partition_columns, _declared(pipeline) or descriptions)


def _declared(pipeline: Pipeline) -> dict[str, str]:
    """What DDL comments, or the docs of an Avro file, say about columns."""
    table = pipeline.table
    if table.schema_file is not None:
        return avro_descriptions(read_text(table.schema_file))
    return ddl_comments(table.schema_ or "") if table.declares_schema else {}


def column_schema(
    columns: pa.Schema, partition_by: Collection[str] = (), comments: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a table's columns as Dagster metadata."""
    table_columns = [
        TableColumn(
            column.name,
            ddl_type(column.type),
            description=(comments or {}).get(column.name) or _column_description(column.name, partition_by),
            constraints=TableColumnConstraints(nullable=column.nullable),
        )
        for column in columns
    ]
    return {"dagster/column_schema": TableSchema(table_columns)}


_KAFKA_COLUMNS = {
    TOPIC: "Kafka topic of the record",
    PARTITION: "Kafka partition of the record",
    OFFSET: "Offset of the record in its partition",
    TIMESTAMP: "When the record was produced or when the broker received it, as the topic is configured; null if it has none",
}


def _column_description(column: str, partition_by: Collection[str]) -> str | None:
    if column in partition_by:
        return "Partition column"
    return _KAFKA_COLUMNS.get(column)
