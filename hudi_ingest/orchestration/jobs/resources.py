"""Resources of the ops: Spark, the ledger, and the IO manager for their results. A run's config can change none of them.

Without `HUDI_INGEST_LEDGER_URL` a ledger is a file in the process's own home. Steps that run in containers of their own would
each get an empty one, so the ops check that they have the ledger of the sensor and of the run's begin op.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from dagster import (
    ConfigurableIOManagerFactory,
    ConfigurableResource,
    DagsterRun,
    Failure,
    FilesystemIOManager,
    InitResourceContext,
    InputContext,
    IOManager,
    OutputContext,
    ResourceDefinition,
)
from dagster_pyspark import PySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import LEDGER_VARIABLE, Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.spark.session import current_session

SPARK = "hudi_ingest_spark"
LEDGER = "hudi_ingest_ledger"
IO_MANAGER = "io_manager"
_REMEDY = (
    f"Set {LEDGER_VARIABLE} to the same PostgreSQL for the code server, the runs and every step (for k8s_job_executor, in the "
    "environment of the step's pods)."
)


class EngineSparkResource(PySparkResource):
    """A Spark session: the engine's if one is running, else one that this process starts, with `spark_config` on top."""

    spark_config: dict[str, Any] = Field(default={}, description="Spark settings on top of ours")

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Create no session yet: in the op, a lost engine is a failure that is retried.

        Runs before anything is loaded, so a run whose config chooses the files to unpickle ends here.
        """
        if context.run is not None:
            _require_bound_io_manager(context.run)

    @property
    def spark_session(self) -> SparkSession:
        settings = {key: str(value) for key, value in flatten_dict(self.spark_config)}  # type: ignore[no-untyped-call]
        return current_session(Home.from_environment(), settings)


class LedgerResource(ConfigurableResource[Any]):
    """The ledger at `HUDI_INGEST_LEDGER_URL`."""

    def open(self) -> Ledger:
        return Ledger.open(Home.from_environment().ledger_url)


class InstanceStorageIOManager(ConfigurableIOManagerFactory[IOManager]):
    """Dagster's default IO manager, always in the instance's own folder: it unpickles what it finds there."""

    def create_io_manager(self, context: InitResourceContext) -> IOManager:
        return _LocalResults(FilesystemIOManager().create_io_manager(context))


class _LocalResults(IOManager):
    """Op results in files; says why one is missing that an op on another host has written."""

    def __init__(self, files: IOManager) -> None:
        self._files = files

    def handle_output(self, context: OutputContext, obj: object) -> None:
        self._files.handle_output(context, obj)

    def load_input(self, context: InputContext) -> object:
        try:
            return self._files.load_input(context)
        except FileNotFoundError as error:
            raise Failure(
                f"This op cannot read the result of the op before it: {error.filename or error} is not on host "
                f"{socket.gethostname()}. If each op has a host or a container of its own, give the code location an IO manager "
                "that all of them reach: Definitions(executor=..., resources={'io_manager': ...}), see \"Your own Dagster\" in "
                "docs/getting-started.md.",
                allow_retries=False,
            ) from error


def ingest_resources(spark_config: Mapping[str, Any] | None = None) -> Mapping[str, ResourceDefinition]:
    """Return the resources shared by all pipelines of a code location. `spark_config`: for processes that start their own Spark."""
    return _resources(spark_config) if spark_config else RESOURCES


_LEDGER = LedgerResource().get_resource_definition()


def _resources(spark_config: Mapping[str, Any]) -> dict[str, ResourceDefinition]:
    settings = {"spark_config": dict(spark_config)}
    spark = EngineSparkResource(**settings).get_resource_definition()
    return {
        # Unbound fields of a resource would be keys of the run's config.
        SPARK: spark.configured(lambda _: settings, config_schema={}),
        LEDGER: _LEDGER,
    }


LEDGER_ONLY: Mapping[str, ResourceDefinition] = {LEDGER: _LEDGER}
RESOURCES: Mapping[str, ResourceDefinition] = _resources({})
"""The same objects for every use: `Definitions.merge` refuses two resources of one name."""


def _require_bound_io_manager(run: DagsterRun) -> None:
    """Raises ConfigError if the run's config sets the IO manager, as Dagster's default IO manager allows for its folder."""
    configured: Any = run.run_config.get("resources") or {}
    if IO_MANAGER in configured:
        raise ConfigError(
            "the run's config",
            [
                f"resources.{IO_MANAGER}: remove it. Ops unpickle the results they find in its folder, so only the code "
                "location's Definitions may set it"
            ],
        )


def require_ledger_of_begin(ledger: Ledger, transaction_id: str, place: str) -> None:
    """Raise ConfigError if `ledger` is not the one at `place`, in which begin opened the transaction. A wiped ledger is the same."""
    if place and place != ledger.place and ledger.transactions.find(transaction_id) is None:
        raise ConfigError(
            LEDGER_VARIABLE,
            [
                f"the run's begin op opened transaction {transaction_id} in the {place}, but this op has the {ledger.place}, "
                f"which does not know it. {_REMEDY}"
            ],
        )


def require_ledger_of_sensor(ledger: Ledger, pipeline: str, place: str) -> None:
    """Raise ConfigError if `ledger` is not the one at `place`, in which the coordinator notes its ticks."""
    if place and place != ledger.place and ledger.requests.ticked_at(pipeline) is None:
        raise ConfigError(
            LEDGER_VARIABLE,
            [
                f"the sensor of pipeline {pipeline} has the {place}, but this op has the {ledger.place}, in which no tick is "
                f"noted. {_REMEDY}"
            ],
        )
