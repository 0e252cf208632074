"""The order in which table services do their work, over a client that only remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.cli.views import services_text
from hudi_ingest.exceptions import ServiceRefused, TransactionInFlight
from hudi_ingest.hudi.options import BUCKETS_PROPERTY, ORDERING_PROPERTY, RECORD_KEY_PROPERTY, TYPE_PROPERTY
from hudi_ingest.hudi.services.table_services import Clustering, Compaction, PendingClustering, PlannedCompaction
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep.table_services import PIECES_BESIDE_TRANSACTIONS, TableServices
from hudi_ingest_tests.support.pipeline_files import Write, load
from hudi_ingest_tests.support.properties_text import properties_text


class Client:
    """A table that `plans` says how to cluster, one after the other: (files replaced, files written)."""

    def __init__(self, ledger: Ledger, table: str, plans: list[tuple[int, int]], left: tuple[PendingClustering, ...]):
        self._ledger, self._table, self._plans, self._left = ledger, table, plans, left
        self.done: list[str] = []

    def pending_clusterings(self) -> tuple[PendingClustering, ...]:
        return self._left

    def plan_clustering(self) -> str | None:
        assert self._is_held(), "plans are made under the table's lock"
        return f"plan {len(self.done)}" if self._plans else None

    def cluster(self, instant: str) -> Clustering:
        replaced, written = (2, 1) if instant.startswith("left") else self._plans.pop(0)
        self.done.append(f"{instant}{' locked' if self._is_locked() else ''}")
        return Clustering(instant, replaced, written, 10, 1000)

    def pending_compactions(self) -> tuple[PlannedCompaction, ...]:
        return tuple(PlannedCompaction(pending.instant, 2, pending.leased) for pending in self._left)

    def plan_compaction(self) -> PlannedCompaction | None:
        planned = self.plan_clustering()
        return PlannedCompaction(planned, 4) if planned else None

    def compact(self, planned: PlannedCompaction, report: Callable[[str], None]) -> Compaction:
        size = (1 if planned.instant.startswith("left") else self._plans.pop(0)[0]) << 30
        self.done.append(f"{planned.instant}{' locked' if self._is_locked() else ''}")
        return Compaction(planned.instant, planned.file_groups, 5, 10, 1000, size)

    def clean(self) -> int:
        self.done.append("clean")
        return 3

    def _is_held(self) -> bool:
        try:
            with self._ledger.table_lock(self._table, timeout_seconds=0):
                return False
        except TransactionInFlight:
            return True

    def _is_locked(self) -> bool:
        """And stays so, however long it takes: nothing would stop a clustering whose lock is taken away."""
        try:
            with self._ledger.table_lock(self._table, timeout_seconds=0.05, stale_seconds=0):
                return False
        except TransactionInFlight:
            return True


def services(
    write: Write,
    ledger: Ledger,
    tmp_path: Path,
    plans: list[tuple[int, int]],
    *left: PendingClustering,
    one_lock: bool = True,
    keyed: bool = False,
) -> tuple[TableServices, Client]:
    table = tmp_path / "table"
    (table / ".hoodie").mkdir(parents=True)
    mode: dict[str, Any] = {"table__mode": "upsert", "table__key": ["id"]} if keyed else {}
    pipeline = load(write, table__base_path=str(table), **mode)
    created = {
        TYPE_PROPERTY: "MERGE_ON_READ",
        RECORD_KEY_PROPERTY: "id",
        ORDERING_PROPERTY: ",".join(pipeline.table.ordering_fields),
        BUCKETS_PROPERTY: str(pipeline.table.buckets),
    }
    properties = {PIPELINE_PROPERTY: "orders", **(created if keyed else {})}
    (table / ".hoodie" / "hoodie.properties").write_text(properties_text(properties))
    client = Client(ledger, str(table), plans, left)
    return TableServices(pipeline, ledger, client, client, one_lock), client


def test_r11_files_are_merged_once_though_small_ones_keep_coming_and_then_cleaned(
    write: Write, ledger: Ledger, tmp_path: Path
) -> None:
    full = (900, PIECES_BESIDE_TRANSACTIONS)
    found, client = services(write, ledger, tmp_path, [full, (9, 3), (5, 1)])
    result = found.run(cluster=True, clean=True, report=lambda line: None)
    assert client.done == ["plan 0", "plan 1", "clean"], "a full plan may have left some; the last files came meanwhile"
    assert (result.replaced, result.written, result.size_bytes, result.cleaned) == (909, 103, 2000, 3)
    assert services_text(result).splitlines()[1] == "clustering plan 1: 9 files became 3, 10 rows, 1.0 kB"
    assert services_text(result).splitlines()[-1] == "cleaning: 3 replaced files deleted"
    noted = {run.service: (run.pipeline, run.done, run.error, run.succeeded_at) for run in ledger.service_runs.newest()}
    assert {service: facts[:3] for service, facts in noted.items()} == {
        "clustering": ("orders", 909, None),
        "cleaning": ("orders", 3, None),
    }
    assert all(facts[3] for facts in noted.values())


def test_r11_files_that_stay_small_are_not_merged_for_ever(write: Write, ledger: Ledger, tmp_path: Path) -> None:
    found, client = services(write, ledger, tmp_path, [(2, 2)] * 5)
    assert found.run(cluster=True, clean=False, report=lambda line: None).cleaned is None
    assert client.done == ["plan 0"]


def test_p7_without_a_lock_that_all_drivers_share_transactions_wait(
    write: Write, ledger: Ledger, tmp_path: Path
) -> None:
    found, client = services(write, ledger, tmp_path, [(9, 3)], PendingClustering("left", leased=False), one_lock=False)
    found.run(cluster=True, clean=False, report=lambda line: None)
    assert client.done == ["left locked", "plan 1 locked"]


def test_p7_what_another_is_at_work_on_is_left_alone(write: Write, ledger: Ledger, tmp_path: Path) -> None:
    found, client = services(write, ledger, tmp_path, [(9, 3)], PendingClustering("left", leased=True))
    with pytest.raises(TransactionInFlight, match="clustering left is running"):
        found.run(cluster=True, clean=True, report=lambda line: None)
    [noted] = ledger.service_runs.newest()
    assert (noted.service, noted.succeeded_at, noted.done) == ("clustering", None, None)
    assert noted.error is not None and "clustering left is running" in noted.error
    assert ledger.counters.read()[found.pipeline.table.base_path]["services/clustering/failed"] == 1
    with (
        ledger.table_lock(f"{found.pipeline.table.base_path}/.hoodie/services"),
        pytest.raises(TransactionInFlight, match="lock was not free"),
    ):
        found.run(cluster=True, clean=True, report=lambda line: None)
    assert client.done == []


def test_p7_a_keyed_table_is_compacted_until_a_plan_is_not_full(write: Write, ledger: Ledger, tmp_path: Path) -> None:
    found, client = services(
        write, ledger, tmp_path, [(8, 0), (1, 0), (9, 0)], PendingClustering("left", leased=False), keyed=True
    )
    result = found.run(clean=True, report=lambda line: None)
    assert client.done == ["left", "plan 1", "plan 2", "clean"]
    assert result.clusterings == ()
    assert services_text(result).splitlines() == [
        "compaction left: 5 log files, 1.0 kB, merged into 2 base files, 10 rows, 1,073.7 MB",
        "compaction plan 1: 5 log files, 1.0 kB, merged into 4 base files, 10 rows, 8,589.9 MB",
        "compaction plan 2: 5 log files, 1.0 kB, merged into 4 base files, 10 rows, 1,073.7 MB",
        "cleaning: 3 replaced files deleted",
    ]


def test_p7_without_a_lock_that_all_drivers_share_transactions_wait_for_a_compaction(
    write: Write, ledger: Ledger, tmp_path: Path
) -> None:
    found, client = services(write, ledger, tmp_path, [(0, 0), (1, 0)], one_lock=False, keyed=True)
    found.run(clean=False, report=lambda line: None)
    assert client.done == ["plan 0 locked"]


def test_p7_a_compaction_that_another_is_at_work_on_is_left_alone(write: Write, ledger: Ledger, tmp_path: Path) -> None:
    found, client = services(write, ledger, tmp_path, [(1, 0)], PendingClustering("left", leased=True), keyed=True)
    with pytest.raises(TransactionInFlight, match="compaction left is running"):
        found.run(clean=True, report=lambda line: None)
    found.run(compact=False, clean=False, report=lambda line: None)
    assert client.done == []


def test_a_service_that_the_table_does_not_have_is_refused(write: Write, ledger: Ledger, tmp_path: Path) -> None:
    keyed, client = services(write, ledger, tmp_path, [(9, 3)], keyed=True)
    with pytest.raises(ServiceRefused, match="cannot be clustered: a key's file group is its bucket"):
        keyed.run(cluster=True, clean=True, report=lambda line: None)
    append = TableServices(load(write, table__base_path="/data/t"), ledger, client, client, True)
    with pytest.raises(ServiceRefused, match="no log files to compact, because its mode is append"):
        append.run(compact=True, clean=True, report=lambda line: None)
    assert client.done == []
