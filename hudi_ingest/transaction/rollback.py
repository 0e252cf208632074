"""Ends transactions that do not commit: dead ones before the next begin, aborted ones, and unknown instants.

Nothing is rolled back that the timeline shows as committed; that is recorded in the ledger instead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

from hudi_ingest.exceptions import IngestError, LedgerUnreachable, TransactionInFlight
from hudi_ingest.faults import reach
from hudi_ingest.hudi.storage.paths import MARKERS, marked_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.ledger import TransactionRow, counters
from hudi_ingest.ledger.owner import Owner, is_dead
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.transaction import OpenInstant, found_committed, rolled_back
from hudi_ingest.transaction.ports import TransactionPorts

_logger = logging.getLogger(__name__)


def clear_dead_transaction(
    ports: TransactionPorts, owner: Owner, run_is_finished: Callable[[str], bool | None]
) -> None:
    """Before `owner` begins a transaction, end what a dead one left. Raises TransactionInFlight if one is alive."""
    try:
        _end_open_transaction(ports, owner, run_is_finished)
        _end_open_instants(ports)
    except TransactionInFlight:
        ports.ledger.counters.add(ports.pipeline.table.base_path, {counters.BEGINS_REFUSED: 1})
        raise


def roll_back(ports: TransactionPorts, transaction_id: str, reason: str) -> None:
    """End a transaction that the timeline does not show as committed.

    If its instant cannot be removed now, the next begin finds it ended in the ledger but open on the timeline, and
    removes it.
    """
    try:
        open_instants = ports.instants.open_instants() if ports.timeline.exists() else ()
        ports.epoch.retire(transaction_id)
        reach("abort_retired")
        for opened in open_instants:
            if opened.transaction_id == transaction_id:
                end_instant(ports, opened)
        # A commit whose caller was killed may have landed since the last reading.
        ports.timeline.forget()
        instant = ports.table.instant_of(transaction_id)
        if instant is not None:
            _note_commit(ports, transaction_id, instant)
            return
        ports.flush_all()
    except LedgerUnreachable as error:
        # Only commits that were found are recorded above, and one that has landed is never recorded as aborted.
        _logger.warning(
            "the ledger could not record that %s is committed; the next begin does it: %s", transaction_id, error
        )
        return
    except IngestError as error:
        _logger.warning("%s is not rolled back yet; the next begin does it: %s", transaction_id, error)
    reach("abort_rolled_back")
    try:
        ports.ledger.transactions.mark_aborted(transaction_id, reason)
    except IngestError as error:
        _logger.warning("the ledger could not record that %s is rolled back: %s", transaction_id, error)
    ports.tell_lineage(rolled_back(transaction_id, reason))


def end_instant(ports: TransactionPorts, opened: OpenInstant) -> bool:
    """Roll back an open instant under the table's lock. False: its commit landed in the meantime and stands.

    Raises TableUnreachable, EngineLost, LedgerUnreachable.
    """
    with ports.step("rollback", opened.transaction_id, instant=opened.instant) as ended:
        # The epoch first: processes that still work for the transaction are fenced before its files are deleted.
        ports.epoch.retire(opened.transaction_id)
        begun = _begun_files(ports.timeline.storage, opened.instant)
        with ports.kept():
            rolled_back = ports.instants.roll_back(opened.instant)
        ended["outcome"] = "done" if rolled_back else "committed"
    if not rolled_back:
        _note_commit(ports, opened.transaction_id, opened.instant)
        return False
    try:
        ports.letters.forget(opened.instant)
    except OSError as error:
        _logger.warning("dead letters of %s no longer count; the sweep will delete them: %s", opened.instant, error)
    try:
        abort_uploads(ports.timeline.storage, opened.instant, begun)
    except OSError as error:
        _logger.warning("uploads of %s remain open; the sweep will abort them: %s", opened.instant, error)
    return rolled_back


def _note_commit(ports: TransactionPorts, transaction_id: str, instant: str) -> None:
    """Record a commit whose op died after it."""
    ports.flush_all()
    if ports.ledger.transactions.mark_committed_as_found(transaction_id, instant):
        ports.tell_lineage(found_committed(transaction_id))


def _begun_files(storage: TableStorage, instant: str) -> list[str]:
    """List the files that have a marker, which Hudi's rollback deletes."""
    try:
        return [marked_path(instant, marker.path) for marker in storage.files(f"{MARKERS}/{instant}")]
    except OSError as error:
        _logger.warning("uploads of %s may remain open: its markers cannot be listed: %s", instant, error)
        return []


def abort_uploads(storage: TableStorage, instant: str, begun: Iterable[str]) -> None:
    """Abort the open uploads of a rolled-back instant's files, which were `begun`. Raises OSError.

    A process that still works for its transaction can then no longer complete them.
    """
    for upload in storage.unfinished_uploads(begun):
        if re.search(rf"_{instant}\.(parquet$|log\.)", upload.path):
            storage.abort_upload(upload)


def _end_open_transaction(ports: TransactionPorts, owner: Owner, run_is_finished: Callable[[str], bool | None]) -> None:
    """End the transaction that the ledger has as open. Raises TransactionInFlight if it may still be at work."""
    table = ports.pipeline.table.base_path
    row = ports.ledger.transactions.open_in(table)
    if row is None:
        return
    instant = ports.table.instant_of(row.transaction_id)
    if instant is not None:
        _note_commit(ports, row.transaction_id, instant)
    elif is_dead(row.owner, run_is_finished) or (row.owner == owner and owner.has_one_begin):
        # A run has one begin op, so an open transaction of the same run was left by an earlier attempt of that op.
        roll_back(ports, row.transaction_id, f"rolled back by the next begin: {row.owner} is gone")
    elif is_over(row, run_is_finished):
        _require_no_commit_at_work(ports, row)
        roll_back(ports, row.transaction_id, "rolled back by the next begin: its timeout has passed")
    else:
        raise TransactionInFlight(
            f"table {table}: transaction {row.transaction_id} of {row.owner} has been open since "
            f"{row.began_at:%H:%M:%S} UTC and ends by {row.deadline:%H:%M:%S} UTC. Only one transaction may run on a table, "
            "so this one wrote nothing. The sensor plans again by itself; without a sensor, try again after that, or stop "
            f"{row.owner}."
        )


def _end_open_instants(ports: TransactionPorts) -> None:
    """End the instants that are open although the ledger has their transactions as ended. Raises TransactionInFlight for a leased
    one that it does not know; an expired one is left to Hudi's own rollback."""
    if not ports.timeline.exists() or not ports.timeline.instants().pending:
        # Asking the driver takes a client of Hudi's, and there is hardly ever anything to find.
        return
    for opened in ports.instants.open_instants():
        if ports.ledger.transactions.find(opened.transaction_id) is not None:
            end_instant(ports, opened)
        elif opened.leased:
            raise TransactionInFlight(
                f"table {ports.pipeline.table.base_path}: instant {opened.instant} of transaction {opened.transaction_id} is "
                "open, but this ledger does not know it (it belongs to another ledger, or this one was wiped). It is rolled back when its lease "
                f"expires, {ports.pipeline.transaction.timeout_seconds} s after it began; if it is still open then, end it "
                f"with `hudi-ingest recover {ports.pipeline.name} --roll-back`."
            )


def _require_no_commit_at_work(ports: TransactionPorts, row: TransactionRow) -> None:
    """Raises TransactionInFlight if the instant of a transaction past its deadline is leased.

    Only a commit renews a lease. One in another JVM, whose lock may differ from ours, would continue during the rollback
    and publish files that are gone.
    """
    if not ports.timeline.exists():
        return
    if any(opened.leased for opened in ports.instants.open_instants() if opened.transaction_id == row.transaction_id):
        raise TransactionInFlight(
            f"table {row.table}: transaction {row.transaction_id} of {row.owner} is past its deadline "
            f"{row.deadline:%H:%M:%S} UTC, but its instant's heartbeat still beats, so its commit may still be running; "
            f"waiting for it. If {row.owner} hangs, kill it and its work is rolled back."
        )
