"""Table services between transactions: clustering merges small files into few large ones, cleaning deletes what was replaced.

A transaction may be open meanwhile: clustering takes committed files only, and a transaction adds file groups of its own, so
both commit. What replaces files in a transaction must refuse while a clustering is pending. Plans are made under the table's
lock; the merging goes on beside transactions, because it may take much longer than one. Only where Hudi's own lock is not one
for all drivers do transactions wait, for one piece of the work at a time.
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
from hudi_ingest.hudi.timeline import Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.connection import connected
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import EngineConnection

_logger = logging.getLogger(__name__)
PIECES_BESIDE_TRANSACTIONS = 100
"""Groups of files, of 256 MiB or more each, that one clustering merges: few commits, and not too much to do again."""
PIECES_BETWEEN_TRANSACTIONS = 4
"""The same where transactions wait meanwhile: it must be done well within their timeout."""


class ServicesClient(Protocol):
    """What services ask of Hudi; see hudi/clustering.py."""

    def pending_clusterings(self) -> tuple[PendingClustering, ...]: ...
    def plan_clustering(self) -> str | None: ...
    def cluster(self, instant: str) -> Clustering: ...
    def clean(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ServicesResult:
    """What was done. `cleaned` are files that were deleted, None when cleaning was not asked for."""

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
        """Of the files written."""
        return sum(clustering.size_bytes for clustering in self.clusterings)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TableServices:
    """Services of one pipeline's table."""

    pipeline: Pipeline
    timeline: Timeline
    ledger: Ledger
    client: ServicesClient
    one_lock: bool
    """Whether Hudi's lock of the table is the same for this driver and for those of transactions."""

    def run(self, *, cluster: bool, clean: bool, report: Callable[[str], None]) -> ServicesResult:
        """Does what is asked for; `report` receives progress.

        Raises TableMismatch, TableUnreachable, EngineLost, LedgerUnreachable, and TransactionInFlight when other services of
        the table are at work, or its lock is not free.
        """
        table = self.pipeline.table.base_path
        if not self.timeline.exists():
            return ServicesResult(self.pipeline.name, table, (), 0 if clean else None)
        require_own_table(self.pipeline, self.timeline.properties())
        with self._alone():
            clusterings = self._cluster(report) if cluster else ()
            cleaned = self._clean(report) if clean else None
        return ServicesResult(self.pipeline.name, table, clusterings, cleaned)

    def _cluster(self, report: Callable[[str], None]) -> tuple[Clustering, ...]:
        clusterings = []
        for pending in self.client.pending_clusterings():
            if pending.leased:
                raise TransactionInFlight(
                    f"table {self.pipeline.table.base_path}: clustering {pending.instant} is at work in a Spark driver, or that "
                    f"driver died within the last {self.pipeline.transaction.timeout_seconds} s. Nothing was changed. Try "
                    "again later; if it stays so, restart the engine."
                )
            report(f"clustering {pending.instant} was left unfinished; doing it again")
            with self._beside_transactions():
                clusterings.append(self.client.cluster(pending.instant))
        while (piece := self._cluster_a_piece(report)) is not None:
            clusterings.append(piece)
            # All that was small has been merged, unless the plan was full: what is small now came meanwhile, and to merge it
            # would rewrite what was merged just now. Files that stay small although they are merged would be merged for ever.
            if piece.written < self._pieces or piece.written >= piece.replaced:
                break
        if not clusterings:
            report("no small files to cluster")
        return tuple(clusterings)

    @property
    def _pieces(self) -> int:
        """How many groups of files one plan takes at most; each becomes a file or more."""
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
        """What holds while files are merged or cleaned: nothing, where Hudi's lock keeps the commits of all drivers apart.

        Else the table's lock, until the work is done: no epoch and no guard would stop a clustering that has lost it.
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
        """One run of services of a table at a time: two would cluster the same files."""
        table = self.pipeline.table.base_path
        with self.ledger.table_lock(f"{table}/{HOODIE}/services", timeout_seconds=1):
            yield


def services_for(pipeline: Pipeline, ledger: Ledger, spark: SparkSession, home: Home) -> TableServices:
    """The table services of the pipeline's table over the real ports."""
    # Whoever attaches to one engine is in one JVM, and so has one lock without any further service. A session that is older
    # than the engine stays in the JVM that it has.
    engine = EngineConnection.read(home.engine_file)
    one_lock = pipeline.table.lock is not None or (engine is not None and engine.serves(spark))
    pieces = PIECES_BESIDE_TRANSACTIONS if one_lock else PIECES_BETWEEN_TRANSACTIONS
    client = HudiServices(spark, pipeline, pieces)
    return TableServices(pipeline, Timeline(pipeline.table.base_path), ledger, client, one_lock)


def run_services(
    pipeline: Pipeline,
    *,
    cluster: bool = True,
    clean: bool = True,
    home: Home | None = None,
    report: Callable[[str], None] = _logger.info,
) -> ServicesResult:
    """Merges small files and deletes replaced ones now.

    Attaches to the engine when one runs, else starts Spark in this process. Raises what `TableServices.run` raises.
    """
    home = home or Home.from_environment()
    with connected(pipeline, home, report) as (spark, ledger):
        return services_for(pipeline, ledger, spark, home).run(cluster=cluster, clean=clean, report=report)
