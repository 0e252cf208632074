"""Check that a table belongs to the pipeline and still has the folder layout it was created with."""

from __future__ import annotations

from collections.abc import Mapping

from hudi_ingest.exceptions import (
    TableMismatch,
)
from hudi_ingest.hudi.options import (
    HIVE_STYLE_PROPERTY,
)
from hudi_ingest.hudi.timeline import PIPELINE_PROPERTY
from hudi_ingest.pipeline.pipeline import Pipeline


def require_own_table(pipeline: Pipeline, properties: dict[str, str]) -> None:
    """Raises TableMismatch unless the table at the path is this pipeline's, with its partition columns and folder names."""
    path = pipeline.table.base_path
    owner = properties.get(PIPELINE_PROPERTY)
    if owner != pipeline.name:
        whose = f"pipeline {owner}" if owner else "another writer"
        raise TableMismatch(
            f"the table at {path} belongs to {whose}, not to pipeline {pipeline.name}. Choose another table.base_path, or "
            f"{f'name this pipeline {owner}' if owner else 'move that table away'}."
        )
    require_same_folders(pipeline, properties)


def require_same_folders(pipeline: Pipeline, properties: Mapping[str, str]) -> None:
    """Raises TableMismatch unless the table at the path has the pipeline's partition columns and folder names."""
    path = pipeline.table.base_path
    columns = ",".join(pipeline.table.partition_columns)
    partitioned_by = properties.get("hoodie.table.partition.fields", "")
    if partitioned_by != columns:
        raise TableMismatch(
            f"the table at {path} is partitioned by ({partitioned_by or 'nothing'}), pipeline {pipeline.name} says "
            f"({columns or 'nothing'}). Change table.partition_by to match the table, or choose another table.base_path."
        )
    hive_style = properties.get(HIVE_STYLE_PROPERTY, "false") == "true"
    if columns and hive_style != pipeline.table.hive_style:
        raise TableMismatch(
            f"the table at {path} names its folders {'column=value' if hive_style else 'by values alone'}, and a table's folders "
            f"are never renamed. Set table.hive_style to {str(hive_style).lower()} in the file of pipeline "
            f"{pipeline.name}, or choose another table.base_path."
        )
