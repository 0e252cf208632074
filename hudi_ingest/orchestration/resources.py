"""What ops need from their process: Spark and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dagster import ConfigurableResource, InitResourceContext
from dagster_pyspark import PySparkResource
from pydantic import Field
from pyspark.sql import SparkSession

from hudi_ingest.home import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.spark import current_session


class EngineSparkResource(PySparkResource):
    """A Spark session: the engine's when one runs, else one that this process makes, with `spark_config` on top."""

    spark_config: dict[str, Any] = Field(default={}, description="Spark settings on top of ours")

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Nothing: the session is made inside the op, where a lost engine is an op failure that is tried again."""

    @property
    def spark_session(self) -> SparkSession:
        return current_session(Home.from_environment(), self.spark_config)


class LedgerResource(ConfigurableResource[Any]):
    """The ledger at `HUDI_INGEST_LEDGER_URL`."""

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        ledger = Ledger.open(Home.from_environment().ledger_url)
        try:
            yield ledger
        finally:
            ledger.dispose()
