"""Daft, which reads Hudi tables by a reader of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import daft

from hudi_ingest_tests.readers.rows import lines


def hudi(path: str) -> Sequence[Mapping[str, Any]]:
    rows: list[dict[str, Any]] = daft.read_hudi(path).to_arrow().to_pylist()
    return rows


def iceberg(metadata: str) -> Sequence[Mapping[str, Any]]:
    from pyiceberg.table import StaticTable

    rows: list[dict[str, Any]] = daft.read_iceberg(StaticTable.from_metadata(metadata)).to_arrow().to_pylist()
    return rows


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines({"hudi": hudi, "iceberg": iceberg}[sys.argv[1]](sys.argv[2])))
