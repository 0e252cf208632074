"""The limit of Hudi's format: the same base files as hudi-ingest's, written by the limit's processes.

Split by table partition, with Hudi's columns and a marker each, by hudi-ingest's own write task. The difference to `limit` is
what the format needs; the difference to hudi-ingest is Spark, begin, the flush to disk and the commit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.contenders import Assignment, Outcome
from benchmarks.contenders.limit import tasks_of
from hudi_ingest.hudi.files.new_files import ROWS_PER_FILE, BaseFileLayout
from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.model.offsets import Slice
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.row_maker import RowMaker
from hudi_ingest.transaction.columns.decoding import converter_of
from hudi_ingest.transaction.plan.planning import plan_now
from hudi_ingest.transaction.write.task import WriteTask, outcomes

_INSTANT = "20260101000000000"
_TRANSACTION = "benchmark-limit"


def run(pool: ProcessPoolExecutor, assignment: Assignment) -> Outcome:
    """Write the whole topic to base files in the folder. Raises what reading and writing raise."""
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    table = pipeline.table
    slices = plan_now(pipeline).slices
    storage = storage_at(str(Path(assignment.folder) / "files"), table.storage_options)
    storage.make()
    # What an open transaction has, and its writers look for.
    storage.write(heartbeat_path(_INSTANT), b"")
    epoch = TableEpoch(storage).advance(1, _TRANSACTION)
    layout = BaseFileLayout(
        _INSTANT,
        epoch,
        table.partition_columns,
        ROWS_PER_FILE,
        table.target_file_bytes,
        table.compression,
        hive_style=table.hive_style,
    )
    columns = pipeline.table_schema.columns
    maker = RowMaker(converter_of(pipeline), pipeline.chain, columns, table.partition_columns, table.hive_style)
    write = WriteTask(storage, layout, maker, {slice_.source: 0 for slice_ in slices})
    tasks = tasks_of(pipeline, slices, assignment.record_bytes)
    began = time.time()
    rows = list(pool.map(partial(_write_ranges, write, pipeline.source), tasks))
    ended = time.time()
    return Outcome(began, ended, sum(rows))


def _write_ranges(write: WriteTask, source: KafkaSource, ranges: Sequence[Slice]) -> int:
    # Imported here because it loads compiled code, which only these processes need.
    from hudi_ingest.kafka.range_reader import read_ranges

    with closing(read_ranges(source, "benchmark-limit", ranges)) as records:
        reports = list(outcomes(write, records))
    rows = 0
    for report in reports:
        if isinstance(report, bytes):
            raise ValueError("a write task of the benchmark failed; its records or its table are wrong")
        rows += report.rows
    return rows
