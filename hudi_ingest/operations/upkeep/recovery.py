"""Restore the ledger and the consumer group from the table after either of them was lost, and the metadata table from the stored files.

Ingestion does not need it: the next transaction is planned from the table. It restores the history, and the lag that
other tools watch, and reports instants that this ledger does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hudi_ingest.exceptions import TableMismatch, TransactionInFlight
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.hudi.files.live_files import SHOWN, files_that_would_show
from hudi_ingest.hudi.storage.storage import reaching
from hudi_ingest.hudi.timeline.archived_commits import archived_commits
from hudi_ingest.hudi.timeline.ownership import require_own_table
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, instant_time
from hudi_ingest.ledger import TransactionRow
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.offsets import Offsets, TopicPartition
from hudi_ingest.model.plan import PLAN_TYPES
from hudi_ingest.model.transaction import CommittedTransaction, OpenInstant
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest.transaction.rollback import end_instant


@dataclass(frozen=True, slots=True)
class UnknownInstant:
    """An open instant whose transaction is not open in this ledger. Once its lease has expired (at `expires_at` at the
    latest), anyone may roll it back, and the next begin does."""

    instant: str
    transaction_id: str
    expires_at: datetime
    leased: bool
    rolled_back: bool = False

    @property
    def opened(self) -> OpenInstant:
        return OpenInstant(self.instant, self.transaction_id, self.leased)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The findings and changes of a recovery. `committed` counts the transactions on the active timeline, `restored` has the ids
    of those that the ledger did not know or had in another state, and `moved` maps partitions to their group offset (before,
    now)."""

    pipeline: str
    table: str
    committed: int
    restored: tuple[str, ...]
    group: str
    moved: Mapping[TopicPartition, tuple[int | None, int]]
    open_transaction: str | None
    unknown: tuple[UnknownInstant, ...]
    listed: int | None = None
    """Live files that the table lists, if its metadata table was built again."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "table": self.table,
            "committed": self.committed,
            "restored": list(self.restored),
            "group": self.group,
            "moved": {str(source): list(offsets) for source, offsets in sorted(self.moved.items())},
            "open_transaction": self.open_transaction,
            "unknown": [{**asdict(instant), "expires_at": instant.expires_at.isoformat()} for instant in self.unknown],
            "listed": self.listed,
        }


def recover(
    protocol: TransactionProtocol, *, roll_back: bool, new_table: bool = False, metadata_table: bool = False
) -> Recovery:
    """Rebuild ledger rows and group offsets from the table's active timeline. Idempotent.

    `roll_back` ends instants that this ledger does not know, even if they belong to a running transaction of another
    ledger: that one is fenced, so it does no harm, but its work is lost. `new_table` deletes the ledger's rows of other tables
    that the pipeline wrote to, so that it may begin to write to this one. `metadata_table` deletes the metadata table and builds it again
    from the stored files, where nothing else becomes visible by that. Raises TableUnreachable, TableMismatch,
    OffsetsLost, EngineLost, LedgerUnreachable, KafkaUnreachable, and TransactionInFlight while a begin or a commit is
    running.
    """
    pipeline, ledger = protocol.pipeline, protocol.ledger
    table = pipeline.table.base_path
    timeout = timedelta(seconds=pipeline.transaction.timeout_seconds)
    with ledger.table_lock(table):
        state = protocol.table.committed()
        if state.exists:
            require_own_table(pipeline, protocol.timeline.properties())
        if new_table:
            ledger.transactions.forget_other_tables(pipeline.name, table)
        if not state.exists:
            return Recovery(pipeline.name, table, 0, (), pipeline.group_id, {}, None, ())
        live = _rebuilt(protocol, state) if metadata_table else None
        commits = protocol.table.commits()
        # The repair after a power cut looks at no commit whose receipt is in the ledger.
        protocol.flush_all()
        restored = []
        for commit in commits:
            transaction = committed_transaction(pipeline.name, pipeline.transaction_key, commit)
            if ledger.transactions.restore_committed(
                transaction, table=table, owner=Owner.this_process(), deadline=transaction.began_at + timeout
            ):
                restored.append(transaction.plan.transaction_id)
        moved = _restore_group(protocol, state.checkpoint.offsets) if state.checkpoint else {}
        row = ledger.transactions.open_in(table)
        instants = protocol.instants.open_instants()
        unknown = unknown_instants(instants, row, timeout)
        if roll_back:
            unknown = tuple(replace(instant, rolled_back=end_instant(protocol, instant.opened)) for instant in unknown)
    return Recovery(
        pipeline=pipeline.name,
        table=table,
        committed=len(commits),
        restored=tuple(restored),
        group=pipeline.group_id,
        moved=moved,
        open_transaction=row.transaction_id if row else None,
        unknown=unknown,
        listed=live,
    )


def _rebuilt(protocol: TransactionProtocol, state: CommittedState) -> int:
    """Build the metadata table again and compare what it lists with the commits; returns the number of live files. The caller holds the
    table's lock, without which no transaction begins, commits or aborts."""
    pipeline, timeline, storage = protocol.pipeline, protocol.timeline, protocol.timeline.storage
    name, table = pipeline.name, pipeline.table.base_path
    pending = sorted(timeline.instants().pending)
    if pending:
        raise TransactionInFlight(
            f"table {table}: instants {listed(pending, SHOWN)} are open, and a metadata table is built from what is complete. Nothing was "
            f"changed. Wait until their transactions and table services have ended; `hudi-ingest recover {name} --roll-back` ends "
            f"transactions of other ledgers, `hudi-ingest services {name}` what a table service left."
        )
    with reaching(storage, "list the data files and the archived commits"):
        stored = [file.path for file in storage.data_files()]
        try:
            archived = archived_commits(storage, "")
        except ValueError as error:
            raise OSError(f"the archived commits cannot be read: {error}") from error
    # All that is stored gets listed, so what no reader may see must not be there.
    foreign = files_that_would_show(stored, state.commits, archived)
    if foreign:
        raise TableMismatch(
            f"table {table}: {counted(len(foreign), 'stored file')} would show as rows once the metadata table is built from what is "
            f"stored, although they belong to no commit or were replaced: {listed(foreign, SHOWN)}. Nothing was changed. `hudi-ingest "
            f"sweep {name} --delete` deletes those of dead transactions; move others out of the table's folder. Then run this again."
        )
    with protocol.kept():
        protocol.instants.rebuild_metadata_table()
    unlisted = protocol.table.unlisted(timeline.completed(), None)
    if unlisted:
        gone = [path for path in unlisted if not storage.exists(path)]
        raise TableMismatch(
            f"table {table}: its metadata table was built again, and still {listed(sorted(unlisted), SHOWN)} of commits "
            f"{listed(sorted({*unlisted.values()}), SHOWN)} are not listed; {counted(len(gone), 'file')} of these cannot be found in "
            "the table's folder. Put copies in their place and run this again, or restore an earlier savepoint: the next transaction reads the "
            "offsets after it again."
        )
    return len(timeline.live_paths())


def committed_transaction(pipeline: str, transaction_key: str, commit: CommittedInstant) -> CommittedTransaction:
    """Return the transaction that made the commit, from the accounting in the commit's metadata."""
    accounting = commit.accounting(transaction_key)
    own: dict[str, Any] = {"resets": accounting.resets} if accounting.resets else {}
    return CommittedTransaction(
        plan=PLAN_TYPES[accounting.kind](
            pipeline=pipeline,
            transaction_id=accounting.transaction_id,
            sequence=accounting.sequence,
            slices=tuple(account.slice for account in accounting.slices),
            **own,
        ),
        instant=commit.instant,
        began_at=instant_time(commit.instant),
        ended_at=commit.completed_at,
        rows=accounting.rows,
        files=len(commit.files),
        size_bytes=commit.size_bytes,
    )


def unknown_instants(
    instants: Sequence[OpenInstant], open_row: TransactionRow | None, timeout: timedelta
) -> tuple[UnknownInstant, ...]:
    """Return the open instants except that of the ledger's open transaction, which is its owner's business."""
    return tuple(
        UnknownInstant(opened.instant, opened.transaction_id, instant_time(opened.instant) + timeout, opened.leased)
        for opened in instants
        if open_row is None or opened.transaction_id != open_row.transaction_id
    )


def moved_offsets(before: Offsets, now: Offsets) -> dict[TopicPartition, tuple[int | None, int]]:
    return {source: (before.get(source), offset) for source, offset in now.items() if before.get(source) != offset}


def _restore_group(protocol: TransactionProtocol, offsets: Offsets) -> dict[TopicPartition, tuple[int | None, int]]:
    group = protocol.pipeline.group_id
    moved = moved_offsets(protocol.groups.group_offsets(group, offsets), offsets)
    if moved:
        protocol.groups.commit_group_offsets(group, offsets)
    return moved
