"""Reads a Hudi table's rows as Python values, with hudi-rs and with Spark, without the columns that Hudi and hudi-ingest add."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTable

from hudi_ingest.home.folder import Home
from hudi_ingest.spark.session import current_session

Row = dict[str, Any]
ADDED = ("_hoodie_", "_kafka_")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def column_names(base_path: str) -> list[str]:
    """Return the table's columns that came from its source."""
    return _of_the_source(HudiTable(base_path).get_schema().names)


def read_with_hudi_rs(base_path: str) -> list[Row]:
    columns = HudiReadOptions().with_projection(column_names(base_path))
    rows: list[Row] = pa.Table.from_batches(HudiTable(base_path).read(columns)).to_pylist()
    return rows


def read_with_spark(base_path: str, home: Home) -> list[Row]:
    """Read with the home's engine."""
    frame = current_session(home).read.format("hudi").load(base_path)
    times = {name for name, kind in frame.dtypes if kind == "timestamp"}
    # As numbers, because PySpark makes local times of timestamps.
    columns = [f"unix_micros({name}) as {name}" if name in times else name for name in _of_the_source(frame.columns)]
    rows = []
    for row in frame.selectExpr(*columns).collect():
        values = row.asDict()
        for name in times & values.keys():
            if values[name] is not None:
                values[name] = _EPOCH + timedelta(microseconds=values[name])
        rows.append({name: bytes(value) if isinstance(value, bytearray) else value for name, value in values.items()})
    return rows


def _of_the_source(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(ADDED)]
