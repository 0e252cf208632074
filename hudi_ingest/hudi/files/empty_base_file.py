"""Base files without rows: the first file of each file group of a keyed table, whose rows are in log files.

Without them, readers that begin with base files (hudi-rs, read-optimized queries) would not see the file group at all.
"""

from __future__ import annotations

import pyarrow as pa

from hudi_ingest.hudi.files.base_file import META_COLUMNS, parquet_writer
from hudi_ingest.hudi.storage.paths import marker_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.report import BaseFile


def write_empty_base_file(
    storage: TableStorage, instant: str, partition_path: str, file_id: str, columns: pa.Schema, compression: str
) -> BaseFile:
    """Write the file group's first base file, as part of the instant. Writing it twice does no harm. Raises OSError."""
    name = f"{file_id}_0-0-0_{instant}.parquet"
    path = f"{partition_path}/{name}" if partition_path else name
    schema = pa.schema([*(pa.field(meta, pa.string()) for meta in META_COLUMNS), *columns])
    buffer = pa.BufferOutputStream()
    with parquet_writer(buffer, schema, schema.empty_table(), compression):
        pass
    content = buffer.getvalue().to_pybytes()
    # The marker comes first: at commit and rollback Hudi only cleans up files that have one.
    storage.write(marker_path(instant, path), b"")
    storage.write_whole(path, content)
    return BaseFile(partition_path, file_id, path, 0, len(content), 0, 0)
