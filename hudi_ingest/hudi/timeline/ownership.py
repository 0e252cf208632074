"""Check that a table belongs to the pipeline and still has the folder layout it was created with."""

from __future__ import annotations

from collections.abc import Mapping

from hudi_ingest.exceptions import (
    TableMismatch,
)
from hudi_ingest.hudi.options import (
    BUCKETS_PROPERTY,
    CDC_PROPERTY,
    HIVE_STYLE_PROPERTY,
    ORDERING_PROPERTY,
    RECORD_KEY_PROPERTY,
    TYPE_PROPERTY,
)
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY
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
    require_same_keys(pipeline, properties)


def require_same_keys(pipeline: Pipeline, properties: Mapping[str, str]) -> None:
    """Raises TableMismatch unless the table at the path has the pipeline's mode and, if keyed, its key, ordering and buckets."""
    table = pipeline.table
    is_keyed = properties.get(TYPE_PROPERTY) == "MERGE_ON_READ"
    if is_keyed != table.is_keyed:
        made_with, mode = ("upsert", "append") if is_keyed else ("append", "upsert")
        raise TableMismatch(
            f"the table at {table.base_path} was created with `mode: {made_with}`, and pipeline {pipeline.name} says {mode}: "
            "its file groups cannot be converted. Restore table.mode, or choose another table.base_path and read the topic "
            "again from its start."
        )
    if not is_keyed:
        return
    settings = {
        "key": (properties.get(RECORD_KEY_PROPERTY, ""), ",".join(table.key)),
        "ordering": (properties.get(ORDERING_PROPERTY, ""), ",".join(table.ordering_fields)),
        "buckets": (properties.get(BUCKETS_PROPERTY, ""), str(table.buckets)),
        "cdc": (properties.get(CDC_PROPERTY, "false"), str(table.cdc).lower()),
    }
    for name, (created_with, wanted) in settings.items():
        if created_with != wanted:
            raise TableMismatch(
                f"the table at {table.base_path} was created with table.{name} {created_with or 'unset'}, and pipeline "
                f"{pipeline.name} says {wanted}: its files and commits were written with the old value. Restore "
                f"table.{name}, or choose another table.base_path and read the topic again from its start."
            )


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
