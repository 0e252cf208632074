"""pyiceberg, Iceberg's library for Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.table import StaticTable


def iceberg(metadata: str) -> Sequence[Mapping[str, Any]]:
    rows: list[dict[str, Any]] = StaticTable.from_metadata(metadata).scan().to_arrow().to_pylist()
    return rows
