"""DuckDB: Hudi tables through hudi-rs and Arrow, Iceberg tables by its extension, and Parquet files by their names alone.

DuckDB downloads its extensions, and PyPI has them for some versions only, so Iceberg needs another DuckDB than transforms do.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from hudi_ingest_tests.readers.rows import lines


def hudi(path: str) -> Sequence[Mapping[str, Any]]:
    from hudi_ingest_tests.readers.engines import hudi_rs

    with duckdb.connect() as connection:
        return _rows(connection.from_arrow(hudi_rs.hudi(path)))


def parquet_files(path: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of all Parquet files below a table's folders, as people who know no timeline read them."""
    with duckdb.connect() as connection:
        return _rows(connection.read_parquet(f"{path}/dt=*/**/*.parquet", union_by_name=True, hive_partitioning=False))


def iceberg(metadata: str) -> Sequence[Mapping[str, Any]]:
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for name in ("avro", "iceberg"):
            package = importlib.import_module(f"duckdb_extension_{name}")
            (file,) = Path(str(package.__file__)).parent.rglob(f"{name}.duckdb_extension")
            connection.load_extension(str(file))
        return _rows(connection.sql("select * from iceberg_scan(?)", params=[metadata]))


def _rows(relation: Any) -> Sequence[Mapping[str, Any]]:
    rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()
    return rows


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(iceberg(sys.argv[1])))
