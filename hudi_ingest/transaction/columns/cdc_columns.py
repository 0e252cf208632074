"""Keeps columns out of tables with `table.cdc` whose values Hudi's CDC queries do not show."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.pipeline.pipeline import Pipeline


def require_cdc_values(pipeline: Pipeline, existing: pa.Schema | None, columns: pa.Schema) -> None:
    """Raises SchemaRefused if `table.cdc` is set and CDC queries would not show the values of a column that the table is created with,
    or that it gets. Decimals that it has stay: neither they nor `cdc` can change."""
    if not pipeline.table.cdc:
        return
    known = set(_decimals(existing, "")) if existing is not None else set[str]()
    lost = [path for path in _decimals(columns, "") if path not in known]
    if not lost:
        return
    cast = "Make them strings or doubles with the transform `cast`, or leave"
    refused, remedy = (
        (f"cannot have `cdc` with {', '.join(lost)}", f"Nothing was created. {cast} out table.cdc.")
        if existing is None
        else (
            f"has `cdc` and cannot get {', '.join(lost)}",
            f"Nothing was written. {cast} new fields out with `table.on_schema_change: ignore`.",
        )
    )
    raise SchemaRefused(
        f"the table at {pipeline.table.base_path} of pipeline {pipeline.name} {refused}: Hudi's CDC query has no values of decimals, "
        f'it shows {{"zero":false}} instead. {remedy}'
    )


def _decimals(fields: pa.Schema | pa.StructType, parent: str) -> Iterator[str]:
    for field in fields:
        yield from _decimals_in(field.type, f"{parent}{field.name}")


def _decimals_in(kind: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _decimals(kind, f"{path}.")
    elif pa.types.is_list(kind):
        yield from _decimals_in(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from _decimals_in(kind.item_type, f"{path}.value")
    elif pa.types.is_decimal(kind):
        yield path
