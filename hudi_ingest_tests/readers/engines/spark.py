"""Spark: Hudi tables by Hudi's bundle, Iceberg tables by Iceberg's runtime, in a session of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import timezone
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from hudi_ingest_tests.readers.rows import Map, lines


def hudi(path: str, session: SparkSession, query: str = "snapshot") -> Sequence[Mapping[str, Any]]:
    """Return the rows of a table; `query`: `snapshot` or `read_optimized`."""
    return _rows(session, "hudi", path, **{"hoodie.datasource.query.type": query})


def _rows(session: SparkSession, form: str, path: str, **options: str) -> Sequence[Mapping[str, Any]]:
    frame = session.read.format(form).options(**options).load(path)
    return [_value(row, frame.schema) for row in frame.collect()]


def _value(value: Any, kind: DataType) -> Any:
    """Return structs and maps as such, and the times that PySpark makes local ones of."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: _value(value[field.name], field.dataType) for field in kind.fields}
    if isinstance(kind, ArrayType):
        return [_value(each, kind.elementType) for each in value]
    if isinstance(kind, MapType):
        return Map({_value(key, kind.keyType): _value(each, kind.valueType) for key, each in value.items()})
    return value.astimezone(timezone.utc) if isinstance(kind, TimestampType) else value


def _main(jar: str, metadata: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    sys.stdout.writelines(f"{line}\n" for line in lines(_rows(session, "iceberg", metadata)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
