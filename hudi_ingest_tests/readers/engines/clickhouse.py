"""ClickHouse, as chdb: `hudi()`, which knows S3 only, takes the newest file of each name, and reads no timeline; and Iceberg tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import chdb

from hudi_ingest_tests.readers.rows import lines

_BINARY = {"raw"}
"""Columns of bytes; ClickHouse has one type for these and for texts."""


def hudi(url: str, access_key: str, secret_key: str) -> Sequence[Mapping[str, Any]]:
    return _rows(f"select * from hudi('{url}', '{access_key}', '{secret_key}')")


def iceberg(metadata: str) -> Sequence[Mapping[str, Any]]:
    # It reads local files below the working directory only.
    os.chdir("/")
    location, _, file = metadata.removeprefix("file://").rpartition("/metadata/")
    return _rows(f"select * from icebergLocal('{location}', settings iceberg_metadata_file_path = 'metadata/{file}')")


def _rows(statement: str) -> Sequence[Mapping[str, Any]]:
    table = chdb.query(f"{statement} settings output_format_arrow_string_as_string = 0", "ArrowTable")
    return [
        {name: value if name in _BINARY else _texts(value) for name, value in row.items()} for row in table.to_pylist()
    ]


def _texts(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {name: _texts(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_texts(each) for each in value)
    return value


if __name__ == "__main__":
    read: Callable[..., Sequence[Mapping[str, Any]]] = iceberg if sys.argv[1] == "iceberg" else hudi
    sys.stdout.writelines(f"{line}\n" for line in lines(read(*sys.argv[2:])))
