"""A table as hudi-ingest and Spark see it: `python -m hudi_ingest_tests.chaos.seen PIPELINE_FILE ROWS_FILE`.

Prints the files that hudi-ingest lists, as JSON, and writes the rows that Spark reads to a Parquet file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.chaos.oracle import COMPARED

_TIME = "_kafka_timestamp"


def main() -> None:
    pipeline = load_pipeline(Path(sys.argv[1]))
    table = pipeline.table
    spark = current_session(Home.from_environment())
    # It gives the driver the settings of the table's store.
    HudiWriter(spark, pipeline)
    frame = spark.read.format("hudi").load(table.base_path)
    more = [name for name in frame.columns if name == "note"]
    columns = [f"unix_micros({name}) AS {name}" if name == _TIME else name for name in (*COMPARED, *more)]
    frame = frame.selectExpr(*columns)
    rows = pa.Table.from_pylist([row.asDict() for row in frame.collect()])
    times = pc.cast(rows[_TIME], pa.timestamp("us", "UTC"))
    pq.write_table(rows.set_column(rows.column_names.index(_TIME), _TIME, times), sys.argv[2])
    files = Timeline(table.base_path, table.storage_options).files()
    sys.stdout.write(json.dumps([file.path for file in files]))


if __name__ == "__main__":
    main()
