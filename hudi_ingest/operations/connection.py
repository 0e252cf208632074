"""Spark and the ledger, opened for one operation on a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session


@contextmanager
def connected(pipeline: Pipeline, home: Home, report: Callable[[str], None]) -> Iterator[tuple[SparkSession, Ledger]]:
    report(f"{pipeline.name}: connecting to Spark")
    spark = current_session(home)
    with Ledger.open(home.ledger_url) as ledger:
        yield spark, ledger
