"""Table services between transactions: clustering merges small files of an append table into few large ones, compaction merges
the log files of a keyed table into its base files, cleaning deletes replaced files.

A transaction may be open meanwhile: clustering takes committed files only, and a transaction adds file groups of its own,
so both can commit. A transaction that replaces files refuses to while a clustering of them is pending. Clusterings are
planned under the table's lock but merge files alongside transactions, because that may take much longer than a
transaction. Only if the drivers do not share Hudi's own lock must transactions wait, for one piece of the work at a time.

A compaction merges the log files that were committed when it was planned. Those of a transaction that commits later, even if
it began earlier, belong to the new base files: Hudi orders them by the time of completion. Keyed tables are not clustered,
because a key's file group is its bucket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pyspark.sql import SparkSession

from hudi_ingest.exceptions import ServiceRefused, TransactionInFlight
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.services.table_services import (
    Clustering,
    Compaction,
    HudiCompaction,
    HudiServices,
    PendingClustering,
    PlannedCompaction,
)
from hudi_ingest.hudi.storage.paths import HOODIE
from hudi_ingest.hudi.timeline.ownership import require_own_table
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger, Service
from hudi_ingest.operations.upkeep.service_log import connected, logged
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import EngineConnection
from hudi_ingest.transaction.timeline_repair import repair_timeline

_logger = logging.getLogger(__name__)
PIECES_BESIDE_TRANSACTIONS = 100
"""File groups, of 256 MiB or more each, that one clustering merges: few commits, but not too much to redo after a failure."""
PIECES_BETWEEN_TRANSACTIONS = 4
"""The same if transactions must wait meanwhile: it must finish well within their timeout."""
BYTES_BESIDE_TRANSACTIONS = 16 << 30
"""Bytes that one compaction reads and writes."""
BYTES_BETWEEN_TRANSACTIONS = 1 << 30
"""The same if transactions must wait meanwhile."""


class ServicesClient(Protocol):
    """The calls to Hudi that services need; see hudi/services/table_services.py."""

    def pending_clusterings(self) -> tuple[PendingClustering, ...]: ...
    def plan_clustering(self) -> str | None: ...
    def cluster(self, instant: str) -> Clustering: ...
    def clean(self) -> int: ...


class CompactionClient(Protocol):
    """The calls to Hudi that compaction needs; see hudi/services/table_services.py."""

    def pending_compactions(self) -> tuple[PlannedCompaction, ...]: ...
    def plan_compaction(self) -> PlannedCompaction | None: ...
    def compact(self, planned: PlannedCompaction, report: Callable[[str], None]) -> Compaction: ...


@dataclass(frozen=True, slots=True)
class ServicesResult:
    """The outcome of the services. `cleaned` counts deleted files; None if cleaning was not requested."""

    pipeline: str
    base_path: str
    clusterings: tuple[Clustering, ...]
    cleaned: int | None
    compactions: tuple[Compaction, ...] = ()

    @property
    def replaced(self) -> int:
        return sum(clustering.replaced for clustering in self.clusterings)

    @property
    def written(self) -> int:
        return sum(clustering.written for clustering in self.clusterings)

    @property
    def size_bytes(self) -> int:
        """The total size of the files written."""
        return sum(clustering.size_bytes for clustering in self.clusterings)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def require_services(pipeline: Pipeline, *, cluster: bool | None, compact: bool | None) -> None:
    """Raises ServiceRefused if the table's mode has no service that is asked for."""
    where = f"table {pipeline.table.base_path} of pipeline {pipeline.name}"
    if cluster and pipeline.table.is_keyed:
        raise ServiceRefused(
            f"{where} is keyed and cannot be clustered: a key's file group is its bucket, and clustering would move rows to "
            "other file groups, where later changes would not find them. Compaction merges its files."
        )
    if compact and not pipeline.table.is_keyed:
        raise ServiceRefused(
            f"{where} has no log files to compact, because its mode is append. Clustering merges its files."
        )


@dataclass(frozen=True)
class TableServices:
    """Services of one pipeline's table."""

    pipeline: Pipeline
    ledger: Ledger
    client: ServicesClient
    compactor: CompactionClient
    one_lock: bool
    """Whether this driver and those of transactions share Hudi's lock on the table."""

    def run(
        self, *, clean: bool, report: Callable[[str], None], cluster: bool | None = None, compact: bool | None = None
    ) -> ServicesResult:
        """Run the requested services; `report` receives progress. Whether to `cluster` or `compact` is up to the table if None.

        Raises ServiceRefused if this kind of table has no such service.

        Raises TableMismatch, TableUnreachable, EngineLost, LedgerUnreachable, and TransactionInFlight if other services are
        running on the table, or its lock is not free.
        """
        require_services(self.pipeline, cluster=cluster, compact=compact)
        is_keyed = self.pipeline.table.is_keyed
        table = self.pipeline.table.base_path
        own = PipelineTable(self.pipeline)
        if not own.timeline.exists():
            return ServicesResult(self.pipeline.name, table, (), 0 if clean else None)
        require_own_table(self.pipeline, own.timeline.properties())
        with self._alone():
            for text in repair_timeline(own, self.ledger):
                report(text)
            clusterings = self._cluster(report) if not is_keyed and cluster is not False else ()
            compactions = self._compact(report) if is_keyed and compact is not False else ()
            cleaned = self._clean(report) if clean else None
        return ServicesResult(self.pipeline.name, table, clusterings, cleaned, compactions)

    def _compact(self, report: Callable[[str], None]) -> tuple[Compaction, ...]:
        with logged(self.ledger, Service.COMPACTION, self.pipeline) as work:
            compactions = self._compact_all(report)
            work.done = sum(compaction.log_files for compaction in compactions)
        return compactions

    def _compact_all(self, report: Callable[[str], None]) -> tuple[Compaction, ...]:
        compactions = []
        for pending in self.compactor.pending_compactions():
            if pending.leased:
                raise self._is_running(f"compaction {pending.instant}")
            report(f"compaction {pending.instant} was left unfinished; redoing it")
            with self._beside_transactions():
                compactions.append(self.compactor.compact(pending, report))
        while (piece := self._compact_a_piece(report)) is not None:
            compactions.append(piece)
            # It read the log files and about as many bytes of base files as it wrote. Unless that fills the plan, all that was
            # there is compacted, and what has come since is for the next run.
            if piece.log_bytes + 2 * piece.size_bytes < self._piece_bytes / 2:
                break
        if not compactions:
            report("no log files to compact")
        return tuple(compactions)

    def _compact_a_piece(self, report: Callable[[str], None]) -> Compaction | None:
        with self._beside_transactions():
            with self._planning():
                planned = self.compactor.plan_compaction()
            if planned is None:
                return None
            report(
                f"compaction {planned.instant} is planned; merging the log files of {planned.file_groups} file groups"
            )
            return self.compactor.compact(planned, report)

    def _planning(self) -> AbstractContextManager[None]:
        return self.ledger.table_lock(self.pipeline.table.base_path) if self.one_lock else nullcontext()

    def _is_running(self, service: str) -> TransactionInFlight:
        return TransactionInFlight(
            f"table {self.pipeline.table.base_path}: {service} is running in a Spark driver, or that driver died within the last "
            f"{self.pipeline.transaction.timeout_seconds} s. Nothing was changed. Try again later; if the error persists, restart "
            "the engine."
        )

    def _cluster(self, report: Callable[[str], None]) -> tuple[Clustering, ...]:
        with logged(self.ledger, Service.CLUSTERING, self.pipeline) as work:
            clusterings = self._cluster_all(report)
            work.done = sum(clustering.replaced for clustering in clusterings)
        return clusterings

    def _cluster_all(self, report: Callable[[str], None]) -> tuple[Clustering, ...]:
        clusterings = []
        for pending in self.client.pending_clusterings():
            if pending.leased:
                raise self._is_running(f"clustering {pending.instant}")
            report(f"clustering {pending.instant} was left unfinished; redoing it")
            with self._beside_transactions():
                clusterings.append(self.client.cluster(pending.instant))
        while (piece := self._cluster_a_piece(report)) is not None:
            clusterings.append(piece)
            # Unless the plan was full, all small files are merged: those that are small now were added meanwhile, and merging
            # them would rewrite the files just written. Files that stay small after a merge would be merged for ever.
            if piece.written < self._pieces or piece.written >= piece.replaced:
                break
        if not clusterings:
            report("no small files to cluster")
        return tuple(clusterings)

    @property
    def _pieces(self) -> int:
        """Maximum number of file groups in a plan; each becomes one or more files."""
        return PIECES_BESIDE_TRANSACTIONS if self.one_lock else PIECES_BETWEEN_TRANSACTIONS

    @property
    def _piece_bytes(self) -> int:
        return BYTES_BESIDE_TRANSACTIONS if self.one_lock else BYTES_BETWEEN_TRANSACTIONS

    def _cluster_a_piece(self, report: Callable[[str], None]) -> Clustering | None:
        with self._beside_transactions():
            with self._planning():
                instant = self.client.plan_clustering()
            if instant is None:
                return None
            report(f"clustering {instant} is planned; merging files")
            return self.client.cluster(instant)

    def _beside_transactions(self) -> AbstractContextManager[None]:
        """Return the lock to hold while files are merged or cleaned: none if all drivers share Hudi's lock.

        Otherwise the table's lock, until the work is done: no epoch and no guard would stop a clustering that has lost it.
        """
        if self.one_lock:
            return nullcontext()
        return self.ledger.table_lock(self.pipeline.table.base_path, unfenced=True)

    def _clean(self, report: Callable[[str], None]) -> int:
        report("cleaning")
        with logged(self.ledger, Service.CLEANING, self.pipeline) as work, self._beside_transactions():
            work.done = self.client.clean()
        return work.done

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Allow one run of services per table at a time: two would cluster the same files."""
        table = self.pipeline.table.base_path
        with self.ledger.table_lock(f"{table}/{HOODIE}/services", timeout_seconds=1, unfenced=True):
            yield


def services_for(
    pipeline: Pipeline, ledger: Ledger, spark: SparkSession, home: Home, below_bytes: int | None = None
) -> TableServices:
    """Build the services of the pipeline's table, on the real table, ledger and Spark. `below_bytes`: see `clustering_options`."""
    # All processes attached to one engine share its JVM, and so its lock, without a lock service. A session older than the
    # engine stays in its own JVM.
    engine = EngineConnection.read(home.engine_file)
    one_lock = pipeline.table.lock is not None or (engine is not None and engine.serves(spark))
    pieces = PIECES_BESIDE_TRANSACTIONS if one_lock else PIECES_BETWEEN_TRANSACTIONS
    piece_bytes = BYTES_BESIDE_TRANSACTIONS if one_lock else BYTES_BETWEEN_TRANSACTIONS
    client = HudiServices(spark, pipeline, pieces, below_bytes)
    return TableServices(pipeline, ledger, client, HudiCompaction(spark, pipeline, piece_bytes), one_lock)


def run_services(
    pipeline: Pipeline,
    *,
    cluster: bool | None = None,
    compact: bool | None = None,
    clean: bool = True,
    home: Home | None = None,
    report: Callable[[str], None] = _logger.info,
) -> ServicesResult:
    """Merge small files or log files and delete replaced files now.

    Attaches to a running engine, else starts Spark in this process. Raises what `TableServices.run` raises.
    """
    home = home or Home.from_environment()
    require_services(pipeline, cluster=cluster, compact=compact)
    with connected(pipeline, home, report) as (spark, ledger):
        return services_for(pipeline, ledger, spark, home).run(
            cluster=cluster, compact=compact, clean=clean, report=report
        )
