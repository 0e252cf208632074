"""hudi-ingest's data path alone: one transaction by `run_transaction`, in a process that already has a Spark driver.

The time is that of the whole call: planning, begin, write, commit, consumer group, ledger. It excludes Dagster, and attaching
to an engine, which takes 0.2 s once per process.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.contenders import Assignment, Outcome
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.run import run_transaction


def run(spark: SparkSession, assignment: Assignment) -> Outcome:
    """Publish the whole topic in one transaction. Raises what run_transaction raises."""
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    # run_transaction takes this process's session, which is `spark`, and the home from the environment.
    began = time.time()
    run_transaction(pipeline)
    ended = time.time()
    return Outcome(began, ended, table_rows(pipeline) if assignment.reads_back else -1)


def table_rows(pipeline: Pipeline) -> int:
    """Count the rows of the table's live base files with hudi-rs and the files' footers, whatever the commit says."""
    return sum(file.rows for file in PipelineTable(pipeline).timeline.files())
