"""Polars: Hudi tables through hudi-rs and Arrow, Iceberg tables by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import polars

from hudi_ingest_tests.readers.engines import hudi_rs


def hudi(path: str) -> Sequence[Mapping[str, Any]]:
    return _rows(polars.from_arrow(hudi_rs.hudi(path)))


def iceberg(metadata: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows by polars' own reader of Parquet files; pyiceberg finds the files."""
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
    return _rows(polars.scan_iceberg(metadata, reader_override="native").collect())


def _rows(frame: Any) -> Sequence[Mapping[str, Any]]:
    rows: list[dict[str, Any]] = frame.to_arrow().to_pylist()
    return rows
