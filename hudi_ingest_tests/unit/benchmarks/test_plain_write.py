from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.contenders.plain_write import PlainWrite, write_plainly
from benchmarks.loads import parse_load
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.schema.ddl import parse_ddl

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def batch(values: pa.BinaryArray, first: int) -> pa.RecordBatch:
    """As Spark hands a Kafka partition's records over."""
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.repeat("orders", count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([AT] * count, pa.timestamp("us", "UTC")),
            "value": values,
        }
    )


def test_the_limit_writes_every_record_with_its_kafka_columns_into_one_file(tmp_path: Path) -> None:
    shape = parse_load("orders-1k").shape
    write = PlainWrite(str(tmp_path), converter_for("json", parse_ddl(shape.ddl)), "zstd")
    batches = [batch(shape.values(0, 300), 0), batch(shape.values(0, 0), 300), batch(shape.values(300, 200), 300)]
    (told,) = write_plainly(write, iter(batches))
    (file,) = tmp_path.iterdir()
    rows = pq.read_table(file)
    assert told["rows"].to_pylist() == [500] == [rows.num_rows]
    assert rows["_kafka_offset"].to_pylist() == list(range(500))
    assert {"id", "dt", "_kafka_topic", "_kafka_partition", "_kafka_timestamp"} < set(rows.schema.names)
    assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"


def test_a_task_without_records_writes_no_file(tmp_path: Path) -> None:
    write = PlainWrite(str(tmp_path), converter_for("json", parse_ddl("id string")), "zstd")
    assert list(write_plainly(write, iter(()))) == []
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_is_no_row_stops_the_benchmark(tmp_path: Path) -> None:
    write = PlainWrite(str(tmp_path), converter_for("json", parse_ddl("id string")), "zstd")
    with pytest.raises(ValueError, match="was rejected"):
        list(write_plainly(write, iter([batch(pa.array([b"[1]"]), 0)])))
