"""The limits' work: decode records in Arrow, and write them to one plain parquet file.

A separate module, so that a process loads no more for it than for hudi-ingest's own write task.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from hudi_ingest.hudi.files.base_file import parquet_writer
from hudi_ingest.records.convert.converter import Converter

KAFKA = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class PlainWrite:
    """The settings of a task. Picklable."""

    folder: str
    converter: Converter
    compression: str


def write_plainly(write: PlainWrite, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all batches of a Spark Python worker into one file. Raises what `write_file` raises."""
    count = write_file(write, batches)
    if count:
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})


def write_file(write: PlainWrite, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all records into one file, encoded as hudi-ingest encodes base files, and return their number. No records, no file.

    The batches have the columns `value` and KAFKA. Raises ValueError for a value that is not a row.
    """
    writer: pq.ParquetWriter | None = None
    stream: pa.OSFile | None = None
    count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        decoded = write.converter.decode(batch["value"])
        if decoded.rejected:
            raise ValueError(f"one of the benchmark's own records was rejected: {decoded.rejected[0]}")
        rows = pa.table(
            [*decoded.rows.columns, *(batch[name] for name in KAFKA)],
            names=[*decoded.rows.schema.names, *(f"_kafka_{name}" for name in KAFKA)],
        )
        if writer is None:
            stream = pa.OSFile(f"{write.folder}/{uuid.uuid4().hex}.parquet", "wb")
            writer = parquet_writer(stream, rows.schema, rows, write.compression)
        writer.write_table(rows)
        count += rows.num_rows
    if writer is not None and stream is not None:
        writer.close()
        stream.close()
    return count
