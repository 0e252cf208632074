"""hudi-rs, the `hudi` package for Python."""

from __future__ import annotations

import pyarrow as pa
from hudi import HudiTable


def hudi(path: str) -> pa.Table:
    return pa.Table.from_batches(HudiTable(path).read())
