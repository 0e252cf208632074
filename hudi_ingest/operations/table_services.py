"""Table services between transactions: clustering merges small files into few large ones, cleaning deletes replaced files.

A transaction may be open meanwhile: clustering takes committed files only, and a transaction adds file groups of its own,
so both can commit. A transaction that replaces files refuses to while a clustering of them is pending. Clusterings are
planned under the table's lock but merge files alongside transactions, because that may take much longer than a
transaction. Only if the drivers do not share Hudi's own lock must transactions wait, for one piece of the work at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pyspark.sql import SparkSession

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.clustering import Clustering, HudiServices, PendingClustering
from hudi_ingest.hudi.ownership import require_own_table
from hudi_ingest.hudi.paths import HOODIE
from hudi_ingest.hudi.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.connection import connected
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import EngineConnection

_logger = logging.getLogger(__name__)
PIECES_BESIDE_TRANSACTIONS = 100
"""File groups, of 256 MiB or more each, that one clustering merges: few commits, but not too much to redo after a failure."""
PIECES_BETWEEN_TRANSACTIONS = 4
"""The same if transactions must wait meanwhile: it must finish well within their timeout."""


class ServicesClient(Protocol):
    """The calls to Hudi that services need; see hudi/clustering.py."""

    def pending_clusterings(self) -> tuple[PendingClustering, ...]: ...
    def plan_clustering(self) -> str | None: ...
    def cluster(self, instant: str) -> Clustering: ...
    def clean(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ServicesResult:
    """What the services did. `cleaned` counts deleted files; None if cleaning was not requested."""

    pipeline: str
    base_path: str
    clusterings: tuple[Clustering, ...]
    cleaned: int | None

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


@dataclass(frozen=True)
class TableServices:
    """Services of one pipeline's table."""

    pipeline: Pipeline
    ledger: Ledger
    client: ServicesClient
    one_lock: bool
    """Whether this driver and those of transactions share Hudi's lock on the table."""

    def run(self, *, cluster: bool, clean: bool, report: Callable[[str], None]) -> ServicesResult:
        """Run the requested services; `report` receives progress.

        Raises TableMismatch, TableUnreachable, EngineLost, LedgerUnreachable, and TransactionInFlight if other services are
        running on the table, or its lock is not free.
        """
        table = self.pipeline.table.base_path
        timeline = PipelineTable(self.pipeline).timeline
        if not timeline.exists():
            return ServicesResult(self.pipeline.name, table, (), 0 if clean else None)
        require_own_table(self.pipeline, timeline.properties())
        with self._alone():
            clusterings = self._cluster(report) if cluster else ()
            cleaned = self._clean(report) if clean else None
        return ServicesResult(self.pipeline.name, table, clusterings, cleaned)

    def _cluster(self, report: Callable[[str], None]) -> tuple[Clustering, ...]:
        clusterings = []
        for pending in self.client.pending_clusterings():
            if pending.leased:
                raise TransactionInFlight(
                    f"table {self.pipeline.table.base_path}: clustering {pending.instant} is running in a Spark driver, or that "
                    f"driver died within the last {self.pipeline.transaction.timeout_seconds} s. Nothing was changed. Try "
                    "again later; if the error persists, restart the engine."
                )
            report(f"clustering {pending.instant} was left unfinished; doing it again")
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

    def _cluster_a_piece(self, report: Callable[[str], None]) -> Clustering | None:
        table = self.pipeline.table.base_path
        with self._beside_transactions():
            with self.ledger.table_lock(table) if self.one_lock else nullcontext():
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
        with self._beside_transactions():
            return self.client.clean()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Allow one run of services per table at a time: two would cluster the same files."""
        table = self.pipeline.table.base_path
        with self.ledger.table_lock(f"{table}/{HOODIE}/services", timeout_seconds=1):
            yield


def services_for(pipeline: Pipeline, ledger: Ledger, spark: SparkSession, home: Home) -> TableServices:
    """Build the services of the pipeline's table, on the real table, ledger and Spark."""
    # All processes attached to one engine share its JVM, and so its lock, without a lock service. A session older than the
    # engine stays in its own JVM.
    engine = EngineConnection.read(home.engine_file)
    one_lock = pipeline.table.lock is not None or (engine is not None and engine.serves(spark))
    pieces = PIECES_BESIDE_TRANSACTIONS if one_lock else PIECES_BETWEEN_TRANSACTIONS
    client = HudiServices(spark, pipeline, pieces)
    return TableServices(pipeline, ledger, client, one_lock)


def run_services(
    pipeline: Pipeline,
    *,
    cluster: bool = True,
    clean: bool = True,
    home: Home | None = None,
    report: Callable[[str], None] = _logger.info,
) -> ServicesResult:
    """Merge small files and delete replaced ones now.

    Attaches to a running engine, else starts Spark in this process. Raises what `TableServices.run` raises.
    """
    home = home or Home.from_environment()
    with connected(pipeline, home, report) as (spark, ledger):
        return services_for(pipeline, ledger, spark, home).run(cluster=cluster, clean=clean, report=report)
