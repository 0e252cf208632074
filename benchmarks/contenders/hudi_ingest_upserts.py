"""hudi-ingest's data path into a keyed table: one transaction by `run_transaction`, as in hudi_ingest_api.py."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.contenders import Assignment, Outcome, Task
from benchmarks.contenders.table_reads import read_totals
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.run import run_transaction


def run(spark: SparkSession, assignment: Assignment) -> Outcome:
    """Publish what the topic has since the last time in one transaction, compact, or read. Raises what these raise."""
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    if assignment.task is Task.READ:
        return read_totals(spark, pipeline.table.base_path)
    if assignment.task is Task.COMPACT:
        return _compact(spark, pipeline)
    began = time.time()
    receipt = run_transaction(pipeline)
    return Outcome(began, time.time(), receipt.rows)


def _compact(spark: SparkSession, pipeline: Pipeline) -> Outcome:
    home = Home.from_environment()
    ledger = Ledger.open(home.ledger_url)
    began = time.time()
    lines: list[str] = []
    services_for(pipeline, ledger, spark, home).run(clean=False, report=lines.append)
    ended = time.time()
    ledger.dispose()
    return Outcome(began, ended, -1)
