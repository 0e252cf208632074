"""What ops need from their process: Spark, the ledger, and where they hand results on. A run's config can change none of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dagster import (
    ConfigurableIOManagerFactory,
    ConfigurableResource,
    DagsterRun,
    FilesystemIOManager,
    InitResourceContext,
    IOManager,
    ResourceDefinition,
)
from dagster_pyspark import PySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.spark.session import current_session

SPARK = "pyspark"
LEDGER = "ledger"
IO_MANAGER = "io_manager"


class EngineSparkResource(PySparkResource):
    """A Spark session: the engine's when one runs, else one that this process makes, with `spark_config` on top."""

    spark_config: dict[str, Any] = Field(default={}, description="Spark settings on top of ours")

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Makes no session yet: in the op a lost engine is a failure that is tried again.

        It is set up before anything is loaded, so a run that names files of its own choice to unpickle ends here.
        """
        if context.run is not None:
            _require_bound_io_manager(context.run)

    @property
    def spark_session(self) -> SparkSession:
        settings = {key: str(value) for key, value in flatten_dict(self.spark_config)}  # type: ignore[no-untyped-call]
        return current_session(Home.from_environment(), settings)


class LedgerResource(ConfigurableResource[Any]):
    """The ledger at `HUDI_INGEST_LEDGER_URL`."""

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        ledger = Ledger.open(Home.from_environment().ledger_url)
        try:
            yield ledger
        finally:
            ledger.dispose()


class InstanceStorageIOManager(ConfigurableIOManagerFactory[IOManager]):
    """Dagster's default IO manager, always in the instance's own folder: it unpickles what it finds there."""

    def create_io_manager(self, context: InitResourceContext) -> IOManager:
        return FilesystemIOManager().create_io_manager(context)


def ingest_resources(spark_config: Mapping[str, Any] | None = None) -> dict[str, ResourceDefinition]:
    """What the ops of all pipelines of a code location share. `spark_config` is for processes that start a Spark of their own."""
    settings = {"spark_config": dict(spark_config or {})}
    spark = EngineSparkResource(**settings).get_resource_definition()
    return {
        # The fields of a resource are keys of the run's config unless they are bound.
        SPARK: spark.configured(lambda _: settings, config_schema={}),
        LEDGER: LedgerResource().get_resource_definition(),
    }


RESOURCES = ingest_resources()


def _require_bound_io_manager(run: DagsterRun) -> None:
    """Raises ConfigError. A code location's own IO manager may have keys in the run's config, and Dagster's default has: its folder."""
    configured: Any = run.run_config.get("resources") or {}
    if IO_MANAGER in configured:
        raise ConfigError(
            "the run's config",
            [
                f"resources.{IO_MANAGER}: remove it. Ops unpickle what they find where results are kept, so that is bound in "
                "the code location's Definitions only"
            ],
        )
