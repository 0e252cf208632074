"""Repairs a timeline that a power cut damaged, where nothing can be lost by it.

A damaged commit of our own becomes pending again: its files are put aside, and the next begin rolls it back and reads its
offsets again, because they are in the commit itself. A compaction or clustering becomes pending again and is redone. A plan of
one that has not been executed is dropped. What another writer wrote, or later commits build on, is left alone, and the
error says what to do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import cast

from hudi_ingest.exceptions import TableUnreachable, TransactionInFlight
from hudi_ingest.hudi.storage.paths import METADATA_TABLE, PUT_ASIDE, TIMELINE
from hudi_ingest.hudi.storage.storage import TableStorage, advice
from hudi_ingest.hudi.timeline.damaged_instants import DamagedInstant, damaged_instants
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.ownership import Service, ServiceClaim
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.pipeline.pipeline import Pipeline

_logger = logging.getLogger(__name__)
SAFE_SECONDS = 60.0
"""A file that was written less than this ago may still be being written: Hudi takes milliseconds."""
_ROWS = 20
"""Transactions in the ledger that are asked whether they were flushed."""
_HARMLESS = ("clean", "rollback")


@dataclass(frozen=True)
class TimelineRepair:
    """Repairs one pipeline's table. The caller of `run` holds the table's lock."""

    pipeline: Pipeline
    table: PipelineTable
    ledger: Ledger
    epoch: TableEpoch

    def damaged(self) -> tuple[DamagedInstant, ...]:
        """List the damaged instants. Raises TableUnreachable, LedgerUnreachable."""
        try:
            return damaged_instants(self._storage, self.pipeline.transaction_key, self._flushed)
        except OSError as error:
            raise self._failed("looked for damaged instants", error) from error

    def run(self, now: datetime | None = None) -> tuple[str, ...]:
        """Repair every damaged instant; returns what was done, a text for each.

        Raises TransactionInFlight if a file may still be being written; TableUnreachable if an instant must not be repaired
        without a person, or the storage fails.
        """
        damaged = self.damaged()
        now = now or datetime.now(timezone.utc)
        for instant in damaged:
            self._require_settled(instant, now)
            self._require_safe(instant)
        return tuple(self._repair(instant) for instant in damaged)

    @property
    def _storage(self) -> TableStorage:
        return self.table.storage

    def _flushed(self) -> Iterable[str]:
        """Return the instants of commits that were flushed before the ledger got their receipts."""
        if not self.pipeline.table.fsync:
            return ()
        rows = self.ledger.transactions.history(self.pipeline.name, _ROWS)
        return [row.instant for row in rows if row.instant and row.has_receipt]

    def _require_settled(self, damaged: DamagedInstant, now: datetime) -> None:
        safe = damaged.modified + timedelta(seconds=SAFE_SECONDS)
        if now < safe:
            raise TransactionInFlight(
                f"table {self._storage.base_path}: {damaged.why}, and was written at {damaged.modified:%H:%M:%S} UTC. Its "
                f"writer may still be at it, so nothing was changed; from {safe:%H:%M:%S} UTC on it counts as a power cut's, "
                "and is repaired by the next tick or `hudi-ingest run`."
            )

    def _require_safe(self, damaged: DamagedInstant) -> None:
        why = self._obstacle(damaged)
        if not why:
            return
        base_path = self._storage.base_path
        moves = " && ".join(f"mv {base_path}/{path} {base_path}/{_aside(path)}" for path in damaged.files)
        raise TableUnreachable(
            f"the table at {base_path} cannot be read: {damaged.why}, as a power cut leaves it. It is not repaired "
            f"automatically, because {why} Nothing was changed. If there is a copy of the file, put it in its place. Otherwise "
            f"stop all writers of the table, run `mkdir -p {base_path}/{PUT_ASIDE} && {moves}`, and start them again: "
            f"{damaged.action} {damaged.instant} is then {'gone' if damaged.plan else 'pending, and its writer rolls it back or redoes it'}."
        )

    def _obstacle(self, damaged: DamagedInstant) -> str:
        """Say why the instant must not be repaired without a person; "" if it may be."""
        if damaged.action == "clean":
            # It deletes only what no reader needs, and a new plan has whatever this one left.
            return ""
        if damaged.action in ("compaction", "clustering"):
            return self._obstacle_of_service(damaged)
        if not damaged.transaction_id:
            return "another writer made it, and what it wrote is only in that file."
        later = [name for name in damaged.later if not name.partition(".")[2].startswith(_HARMLESS)]
        if later:
            return (
                f"later instants may build on it ({', '.join(later[:3])}), so its offsets would not be read again. After the "
                f"command, `hudi-ingest run {self.pipeline.name}` says which commits to roll back as well."
            )
        return ""

    def _obstacle_of_service(self, damaged: DamagedInstant) -> str:
        claim = ServiceClaim(self._storage, cast(Service, damaged.action))
        if damaged.plan:
            return "" if claim.planned(damaged.instant) else "hudi-ingest's services did not plan it."
        if not claim.owns(damaged.instant):
            return "hudi-ingest's services did not execute it."
        # Cleaning deletes what it replaced; whatever else followed may have replaced the files that it wrote.
        later = [name for name in damaged.later if not self._only_adds(name)]
        return f"later instants may build on it ({', '.join(later[:3])})." if later else ""

    def _only_adds(self, name: str) -> bool:
        """Whether a timeline file is of one of our own transactions that add files, or of a rollback."""
        instant = re.split(r"[_.]", name, maxsplit=1)[0]
        action = name.partition(".")[2]
        if action.startswith("rollback"):
            return True
        return "replacecommit" not in action and any(
            row.instant == instant for row in self.ledger.transactions.history(self.pipeline.name, _ROWS)
        )

    def _repair(self, damaged: DamagedInstant) -> str:
        if damaged.transaction_id:
            # First, so that a process that still works for it cannot publish anything any more.
            self.epoch.retire(damaged.transaction_id)
        try:
            if damaged.action in ("compaction", "clustering"):
                # Likewise.
                ServiceClaim(self._storage, cast(Service, damaged.action)).drop()
            for path in damaged.files:
                self._put_aside(path)
        except OSError as error:
            raise self._failed(f"put {', '.join(damaged.files)} aside", error) from error
        text = f"{damaged.why}, as a power cut leaves it. {_outcome(damaged)} The damaged files are in {PUT_ASIDE}."
        if damaged.transaction_id:
            row = self.ledger.transactions.find(damaged.transaction_id)
            if row is not None and row.state is not TransactionState.ABORTED:
                self.ledger.transactions.mark_lost(damaged.transaction_id, text)
        _logger.warning("table %s: %s", self._storage.base_path, text)
        return text

    def _put_aside(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._storage.replace(_aside(path), self._storage.read(path))
        self._storage.delete(path)
        # Hadoop's checksum of the file; a new one of that name must not be judged by it.
        self._storage.delete(f"{folder}/.{name}.crc")
        # Also on disk, or another power cut could bring it back.
        self._storage.sync([folder])

    def _failed(self, operation: str, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"the table at {self._storage.base_path} could not be repaired: {operation}: {error}. {advice(error)} The next "
            "tick tries again."
        )


def _aside(path: str) -> str:
    name = path.rpartition("/")[2]
    return (
        f"{PUT_ASIDE}/{name}"
        if path.startswith(f"{TIMELINE}/")
        else f"{PUT_ASIDE}/{METADATA_TABLE.rpartition('/')[2]}-{name}"
    )


def _outcome(damaged: DamagedInstant) -> str:
    if damaged.action == "clean":
        return "This plan of a cleaning was dropped; the next cleaning makes a new one."
    if damaged.plan:
        return f"No one had executed this {damaged.action}, so the plan was dropped; the next services make a new one."
    if damaged.action in ("compaction", "clustering"):
        return f"The {damaged.action} is pending again, and the next services redo it; no row is affected."
    return (
        f"Transaction {damaged.transaction_id} is pending again and is rolled back; the next transaction reads its offsets "
        "again."
    )


def repair_timeline(table: PipelineTable, ledger: Ledger) -> tuple[str, ...]:
    """Repair the pipeline's table if a power cut has damaged its timeline; returns what was done. Raises what `run` raises."""
    pipeline = table.pipeline
    repair = TimelineRepair(pipeline, table, ledger, TableEpoch(table.storage))
    if not repair.damaged():
        return ()
    with ledger.table_lock(pipeline.table.base_path, stale_seconds=pipeline.transaction.timeout_seconds):
        return repair.run()
