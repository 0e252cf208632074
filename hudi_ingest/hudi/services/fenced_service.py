"""What compaction and clustering have in common: a plan and its execution, fenced by a claim and flushed to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import TableUnreachable, TransactionInFlight
from hudi_ingest.hudi.options import BY_LISTING
from hudi_ingest.hudi.services.service_claim import Service, ServiceClaim
from hudi_ingest.hudi.storage.choice import storage_at
from hudi_ingest.hudi.storage.durability import NoDurability, durability_of
from hudi_ingest.hudi.storage.storage import advice
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.hudi.write_client import HudiWriter, java_errors, java_messages
from hudi_ingest.pipeline.pipeline import Pipeline


class FencedService(HudiWriter):
    """Plans and executes one table service. Of several tries at a plan only the newest can commit: an earlier one that was taken
    for dead is refused inside Hudi's lock."""

    service: Service

    def __init__(self, spark: SparkSession, pipeline: Pipeline, options: Mapping[str, str]) -> None:
        super().__init__(spark, pipeline)
        # What a try that died has written is looked for in the folders: a power cut may have taken the markers.
        self.options = {**options, **BY_LISTING}
        self._storage = storage_at(self._base_path, pipeline.table.storage_options)
        self._durability = durability_of(self._storage, pipeline.table.fsync)
        self._claim = ServiceClaim(self._storage, self.service)

    def _plan(self, schedule: Callable[[Any], Any]) -> str | None:
        """Have Hudi's client make a plan, and flush it; returns its instant, or None if there is nothing to do.

        Raises TableUnreachable, EngineLost, and TransactionInFlight if other services take the claim at this moment.
        """
        newest = Timeline(self._base_path, self._pipeline.table.storage_options).newest_instant()
        with self._reaching_storage(f"claim a {self.service}"):
            self._claim.plan(newest)
            before = self._durability.look()
        with (
            java_errors(f"plan a {self.service} of {self._base_path}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            planned = schedule(client)
            instant = str(planned.get()) if planned.isPresent() else None
        with self._reaching_storage("flush the plan"):
            if instant is None:
                self._claim.drop()
            # Before anyone begins it: a plan that a power cut leaves empty cannot be read by any client of Hudi.
            self._durability.sync_changes(before)
        return instant

    def _execute(self, client: Any, instant: str) -> tuple[int, ...]:
        """Execute a plan, after removing files of an earlier try that died, and flush what it wrote; returns the figures of
        TableService.java. Raises TransactionInFlight if another try has taken over, TableUnreachable, Py4JJavaError."""
        with self._reaching_storage(f"claim {self.service} {instant}"):
            claim = self._claim.take(instant)
        flush = "" if isinstance(self._durability, NoDurability) else "flush"
        place = f"{self._base_path}/{self._claim.path}"
        # Not called directly: py4j caches methods by class name, and a driver may have several of that name.
        service = self._java_object("TableService", self.service, place, claim, instant, flush)
        try:
            figures: str = self._option(client).map(service).get()
        except Py4JJavaError as error:
            if any("hudi-ingest claim:" in message for message in java_messages(error.java_exception)):
                raise TransactionInFlight(
                    f"{self.service} {instant} of {self._base_path}: this try paused for so long that another run of services "
                    "took it for dead and took over. It committed nothing."
                ) from error
            raise
        return tuple(map(int, figures.split(",")))

    @contextmanager
    def _reaching_storage(self, operation: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TableUnreachable(
                f"cannot {operation} of the table at {self._base_path}: {error}. {advice(error)}"
            ) from error
