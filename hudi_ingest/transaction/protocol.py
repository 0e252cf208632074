"""The protocol of one transaction: begin → write its slices → commit, or abort.

The table is the source of truth, the ledger the record. The ledger's table lock lets only one begin, commit or abort of a
table run at a time; the guard inside Hudi's own lock holds even if that lock is lost. A commit has three outcomes:
committed, refused, unknown; after an unknown one the timeline decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Protocol

import pyarrow as pa

from hudi_ingest.exceptions import (
    CommitOutcomeUnknown,
    CommitRefused,
    Fenced,
    IngestError,
    NothingToDo,
    PlanOutdated,
    TableUnreachable,
    TransactionInFlight,
)
from hudi_ingest.faults import reach
from hudi_ingest.hudi.durability import Durability
from hudi_ingest.hudi.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.options import (
    record_properties,
    statistics_properties,
    table_properties,
    take_over_properties,
)
from hudi_ingest.hudi.ownership import require_own_table, require_same_folders
from hudi_ingest.hudi.publication import Publication
from hudi_ingest.hudi.storage import StoredFile
from hudi_ingest.hudi.take_over import find_take_over
from hudi_ingest.hudi.timeline import PIPELINE_PROPERTY, CommittedState, Timeline
from hudi_ingest.ledger import Ledger, TransactionRow
from hudi_ingest.ledger.owner import Owner, is_dead
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead, next_checkpoint
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition
from hudi_ingest.model.plan import OffsetLoss, RetryPlan, TransactionPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport, mean_record_bytes
from hudi_ingest.model.transaction import OpenInstant, OpenTransaction, TransactionSchema, TransactionState
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import parse_spark_json, spark_json
from hudi_ingest.records.schema.evolution import evolve
from hudi_ingest.transaction.bad_records import require_bad_accounted, withholds_bytes
from hudi_ingest.transaction.checks import (
    renumbered,
    require_complete,
    require_current,
    require_lost,
    require_same_shape,
    require_sums,
    require_time,
    shape_of,
)
from hudi_ingest.transaction.commit_metadata import commit_metadata
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog

_logger = logging.getLogger(__name__)
SHORTEST_STALE_SECONDS = 60
"""A begin, commit or abort is not interrupted by another before this."""
COMMITS_A_CLEANING = 10
"""Looking for replaced files takes as long as half a small commit, and they are kept for some commits anyway."""


class InstantWriter(Protocol):
    """What the protocol needs from Hudi's write client; see hudi/write_client.py."""

    def create_table(self, schema: TransactionSchema) -> None: ...
    def update_properties(self, properties: dict[str, str]) -> None: ...
    def begin(self, plan: TransactionPlan, schema: TransactionSchema) -> str: ...
    def commit(self, publication: Publication) -> None: ...
    def roll_back(self, instant: str) -> bool: ...
    def roll_back_expired(self) -> None: ...
    def open_instants(self) -> tuple[OpenInstant, ...]: ...


class ConsumerGroups(Protocol):
    """Where committed offsets are acknowledged; see kafka/cluster.py."""

    def commit_group_offsets(self, group: str, offsets: Offsets) -> None: ...
    def group_offsets(self, group: str) -> dict[TopicPartition, int]: ...


LossFinder = Callable[[Checkpoint | None], tuple[OffsetLoss, ...]]
"""Asks the broker which committed offsets it cannot honour now; see situation.py. Raises KafkaUnreachable, KafkaRefused."""

LetterCopier = Callable[[LettersHead | None], int]
"""Copies listed dead letters to their topic and returns how many; see dead_letters/copies.py."""

SliceWriter = Callable[[OpenTransaction, Sequence[Slice], dict[TopicPartition, int], int], tuple[SliceReport, ...]]
"""Writes slices: (transaction, slices, attempt of each partition, mean record bytes) → a report of each slice."""

SchemaResolver = Callable[[], TransactionSchema]
"""Finds the columns of the next transaction; see columns.py."""


@dataclass(frozen=True, slots=True)
class TransactionProtocol:
    """The steps of one pipeline's transactions over their ports. Keeps no state between the steps."""

    pipeline: Pipeline
    resolve_schema: SchemaResolver
    timeline: Timeline
    epoch: TableEpoch
    durability: Durability
    ledger: Ledger
    instants: InstantWriter
    write_files: SliceWriter
    groups: ConsumerGroups
    find_losses: LossFinder
    letters: DeadLetterLog
    copy_letters: LetterCopier

    def begin(
        self, plan: TransactionPlan, owner: Owner, run_is_finished: Callable[[str], bool | None]
    ) -> OpenTransaction:
        """Open the plan's transaction, after rolling back what a dead one left.

        `run_is_finished` says whether an orchestrator's run has ended (None: unknown).
        Raises PlanOutdated, TransactionInFlight, TableMismatch, TableUnreachable, EngineLost, what `resolve_schema` of
        columns.py raises, and for a plan with resets KafkaUnreachable, KafkaRefused and TopicMissing.
        """
        started = time.monotonic()
        table = self.pipeline.table.base_path
        with self._table_lock():
            if self.timeline.restore_properties():
                _logger.warning("%s: hoodie.properties was damaged and has been restored from Hudi's backup", table)
            self._clear_dead_transaction(owner, run_is_finished)
            reach("begin_cleared")
            committed = self._committed()
            plan = renumbered(plan, committed.checkpoint)
            require_current(plan, committed.checkpoint)
            if plan.resets:
                # The plan may have waited for a long time, and records that are given up are gone for good.
                require_lost(plan, self.find_losses(committed.checkpoint))
            if committed.checkpoint is None:
                self._require_take_over(plan)
            schema = self._prepare_table(committed, plan.take_over is not None)
            plan = replace(self._with_unused_id(plan), schema_changes=schema.changes)
            began_at = datetime.now(timezone.utc)
            deadline = began_at + timedelta(seconds=self.pipeline.transaction.timeout_seconds)
            above = self.epoch.current().number
            number = self.ledger.begin(plan, table=table, owner=owner, deadline=deadline, above=above)
            try:
                reach("ledger_opened")
                # From here on, processes that still work for an older transaction are fenced.
                self.epoch.advance(number, plan.transaction_id)
                reach("epoch_advanced")
                with self._kept():
                    # Must follow advance(): by now any commit that passed its guard in the old epoch has a heartbeat.
                    self.instants.roll_back_expired()
                    instant = self.instants.begin(plan, schema)
                self.ledger.record_instant(plan.transaction_id, instant)
                reach("instant_recorded")
            except BaseException as error:
                # Whatever the error, Ctrl-C included: others would wait for a living owner until the deadline.
                self._roll_back(plan.transaction_id, f"begin failed: {type(error).__name__}: {error}")
                raise
        seconds = round(time.monotonic() - started, 3)
        return OpenTransaction(plan, instant, number, began_at, deadline, schema, shape_of(self.pipeline), seconds)

    def write(self, transaction: OpenTransaction, slices: Sequence[Slice]) -> tuple[SliceReport, ...]:
        """Write some of the plan's slices and report on each. Raises what `write.write_slices` raises."""
        transaction_id = transaction.plan.transaction_id
        require_time(transaction)
        require_same_shape(transaction, self.pipeline)
        self._require_epoch(transaction)
        attempts = {slice_.source: self.ledger.start_attempt(transaction_id, slice_.source) for slice_ in slices}
        reach("attempt_started")
        checkpoint = self._committed().checkpoint
        record_bytes = checkpoint.record_bytes if checkpoint else 0
        try:
            reports = self.write_files(transaction, slices, attempts, record_bytes)
            self._sync_files(reports)
        except IngestError as error:
            self._note_failed(transaction_id, attempts, error)
            raise
        reach("slices_written")
        for report in reports:
            self.ledger.finish_attempt(transaction_id, report.attempt, report)
        reach("attempt_reported")
        return reports

    def commit(self, transaction: OpenTransaction, reports: Sequence[SliceReport]) -> CommitReceipt:
        """Publish the transaction; it happens once, however often this is called.

        Raises WriteIncomplete, BadRecord, DeadlineExceeded, Fenced, CommitRefused (nothing landed) or
        CommitOutcomeUnknown (call again); for a retry, NothingToDo if none of its dead letters can become a row.
        """
        started = time.monotonic()
        plan = transaction.plan
        reports = with_idle_slices(plan, reports)
        require_complete(plan, reports)
        require_bad_accounted(self.pipeline, plan.kind, reports)
        self._require_rows_of_a_retry(plan, reports)
        require_same_shape(transaction, self.pipeline)
        # An earlier call may have committed, and how much it flushed is unknown.
        before: frozenset[StoredFile] = frozenset()
        with self._table_lock():
            reach("commit_locked")
            published = self.timeline.instant_of(self.pipeline.transaction_key, plan.transaction_id)
            committed = self._committed()
            if published is None:
                self._require_open(transaction)
                require_time(transaction)
                self._require_epoch(transaction)
                require_current(plan, committed.checkpoint)
                # The guard finds what completes after this look; the look itself judges what completed before.
                seen = [commit.instant for commit in self.timeline.completed()] if plan.take_over is not None else []
                if plan.take_over is not None:
                    self._require_take_over(plan, transaction.instant)
                before = self._look()
                reach("commit_checked")
                self._publish(transaction, reports, committed, seen)
                committed = self._committed()
            checkpoint = committed.checkpoint
            if checkpoint is None or checkpoint.sequence < plan.sequence:
                raise CommitOutcomeUnknown(
                    f"instant {transaction.instant} was published, but the table's timeline does not show its "
                    f"checkpoint yet. Try again."
                )
            unsynced = self._sync_commit(before)
        phases = {
            "begin": transaction.begin_seconds,
            "write": max((report.seconds for report in reports), default=0.0),
            "commit": time.monotonic() - started,
        }
        total = (datetime.now(timezone.utc) - transaction.began_at).total_seconds()
        # The rest is time between the steps: an orchestrator starting and ending processes.
        phases |= {"between": max(0.0, total - sum(phases.values())), "total": total}
        seconds = {phase: round(value, 3) for phase, value in phases.items()}
        receipt = CommitReceipt(plan, transaction.instant, checkpoint, tuple(reports), seconds)
        return self._tell_the_others(receipt, unsynced)

    def abort(self, transaction: OpenTransaction, reason: str) -> None:
        """Roll the transaction back unless its commit has landed.

        Raises no IngestError, because it runs while another error propagates: failures are logged, and the next begin
        does the rest.
        """
        transaction_id = transaction.plan.transaction_id
        try:
            with self._table_lock():
                if self.timeline.instant_of(self.pipeline.transaction_key, transaction_id) is None:
                    self._roll_back(transaction_id, reason)
        except IngestError as error:
            _logger.warning("%s is not rolled back yet; the next begin does it: %s", transaction_id, error)

    def end_instant(self, opened: OpenInstant) -> bool:
        """Roll back an open instant under the table's lock. False: its commit landed in the meantime and stands.

        Raises TableUnreachable, EngineLost, LedgerUnreachable.
        """
        # The epoch first: processes that still work for the transaction are fenced before its files are deleted.
        self.epoch.retire(opened.transaction_id)
        with self._kept():
            rolled_back = self.instants.roll_back(opened.instant)
        if not rolled_back:
            self.ledger.mark_committed_as_found(opened.transaction_id, opened.instant)
            return False
        try:
            self.letters.forget(opened.instant)
        except OSError as error:
            _logger.warning("dead letters of %s no longer count; the sweep will delete them: %s", opened.instant, error)
        return rolled_back

    def _table_lock(self) -> AbstractContextManager[None]:
        # After the transaction's timeout the lock's holder is fenced anyway: by the epoch, its lease and the guard.
        stale = max(SHORTEST_STALE_SECONDS, self.pipeline.transaction.timeout_seconds)
        return self.ledger.table_lock(self.pipeline.table.base_path, stale_seconds=stale)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Make the block's changes below .hoodie survive a power cut. Raises TableUnreachable."""
        before = self._look()
        yield
        try:
            self.durability.sync_changes(before)
        except OSError as error:
            raise self._not_flushed(error) from error

    def _look(self) -> frozenset[StoredFile]:
        try:
            return self.durability.look()
        except OSError as error:
            raise self._not_flushed(error) from error

    def _sync_files(self, reports: Iterable[SliceReport]) -> None:
        """Make the files survive a power cut, so that whatever is reported may be committed. Raises TableUnreachable."""
        files = [file.path for report in reports for file in (*report.files, *report.copies)]
        letters = [file.path for report in reports for file in report.letters]
        try:
            self.durability.sync_files([*files, *letters])
        except OSError as error:
            raise self._not_flushed(error) from error

    def _sync_commit(self, before: frozenset[StoredFile]) -> list[str]:
        """Flush the landed commit; returns a warning if it might not survive a power cut."""
        try:
            self.durability.sync_changes(before)
        except OSError as error:
            warning = f"the commit has landed, but might not survive a power cut: {self._not_flushed(error)}"
            _logger.warning(warning)
            return [warning]
        return []

    def _not_flushed(self, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"files of the table at {self.pipeline.table.base_path} could not be flushed to disk: {error}. Check the disk, its "
            "free space and the machine's log. If the file system cannot flush at all, set table.fsync: false."
        )

    def _committed(self) -> CommittedState:
        return self.timeline.committed(self.pipeline.checkpoint_key, self.pipeline.transaction_key)

    def _publish(
        self,
        transaction: OpenTransaction,
        reports: Sequence[SliceReport],
        committed: CommittedState,
        seen: Collection[str],
    ) -> None:
        plan = transaction.plan
        checkpoint = next_checkpoint(committed.checkpoint, plan, mean_record_bytes(reports), transaction.instant)
        require_sums(committed.checkpoint, checkpoint, plan, reports)
        withheld = withholds_bytes(self.pipeline, plan.kind)
        letters = self.letters.extend(committed.checkpoint, plan, transaction.instant, reports, withheld)
        checkpoint = replace(checkpoint, letters=letters)
        schema = transaction.schema
        if committed.checkpoint is not None or plan.take_over is not None:
            schema = with_columns_of_others(schema, self.timeline.schema(), plan.transaction_id)
        try:
            self.instants.commit(
                Publication(
                    instant=transaction.instant,
                    files=[file for report in reports for file in (*report.files, *report.copies)],
                    metadata=commit_metadata(self.pipeline, plan, checkpoint, reports),
                    expected_checkpoint=committed.checkpoint_text,
                    epoch=Epoch(transaction.epoch, plan.transaction_id),
                    schema=schema,
                    kind=plan.kind,
                    replaced=plan.replaces,
                    seen=seen,
                    clean=plan.sequence % COMMITS_A_CLEANING == 0,
                )
            )
        except IngestError as error:
            # Whatever the error says, the commit may have landed, perhaps through an earlier call whose caller was killed.
            try:
                published = self.timeline.instant_of(self.pipeline.transaction_key, plan.transaction_id)
            except TableUnreachable as unread:
                raise CommitOutcomeUnknown(
                    f"the commit of {plan.transaction_id} failed ({error}), and the timeline cannot be read to see "
                    f"whether it landed ({unread}). Nothing is deleted; the commit is retried."
                ) from error
            if published is not None:
                return
            if isinstance(error, (CommitRefused, Fenced)):
                raise
            raise CommitOutcomeUnknown(
                f"the commit of {plan.transaction_id} failed and has not landed so far: {error}"
            ) from error

    def _tell_the_others(self, receipt: CommitReceipt, warnings: list[str]) -> CommitReceipt:
        """Acknowledge a durable commit to the consumer group, the ledger and the topic of dead letters.

        No failure here may turn a durable commit into a failed one: each commit sets all the group's offsets again, begin
        corrects the ledger from the table, and missing copies are made after the next commit. Appends to `warnings`.
        """
        group = self.pipeline.group_id
        warnings.append(
            _tell(
                lambda: self.groups.commit_group_offsets(group, receipt.checkpoint.offsets),
                f"consumer group {group} was not updated",
            )
        )
        reach("group_told")
        warnings.append(_tell(lambda: self.ledger.mark_committed(receipt), "the ledger was not updated"))
        reach("ledger_told")
        letters = receipt.checkpoint.letters
        warnings.append(_tell(lambda: self.copy_letters(letters), "its dead letters are not copied yet"))
        return replace(receipt, warnings=tuple(filter(None, warnings)))

    def _require_rows_of_a_retry(self, plan: TransactionPlan, reports: Sequence[SliceReport]) -> None:
        if not isinstance(plan, RetryPlan) or any(
            report.rows or report.skipped or report.filtered for report in reports
        ):
            return
        if plan.request:
            self.ledger.pass_over(plan.request, [file.path for file in plan.retry.files])
        first = next((f" (the first: {note})" for report in reports for note in report.bad_records), "")
        raise NothingToDo(self.pipeline.name, f"none of {plan.retry.letters} dead letters can become a row now{first}")

    def _require_epoch(self, transaction: OpenTransaction) -> None:
        transaction_id = transaction.plan.transaction_id
        self.epoch.require(Epoch(transaction.epoch, transaction_id), f"transaction {transaction_id} must not continue")

    def _require_open(self, transaction: OpenTransaction) -> None:
        row = self.ledger.transaction(transaction.plan.transaction_id)
        if row is not None and row.state is not TransactionState.OPEN:
            raise Fenced(
                f"transaction {transaction.plan.transaction_id} is {row.state.value} ({row.reason or 'no reason recorded'}) "
                "and cannot be committed. The next transaction reads the same offsets."
            )

    def _clear_dead_transaction(self, owner: Owner, run_is_finished: Callable[[str], bool | None]) -> None:
        table = self.pipeline.table.base_path
        row = self.ledger.open_transaction(table)
        if row is not None:
            instant = self.timeline.instant_of(self.pipeline.transaction_key, row.transaction_id)
            if instant is not None:
                self.ledger.mark_committed_as_found(row.transaction_id, instant)
            elif is_dead(row.owner, run_is_finished) or (row.owner == owner and owner.kind == "dagster"):
                # A run has one begin op, so an open transaction of the same run was left by an earlier attempt of that op.
                self._roll_back(row.transaction_id, f"rolled back by the next begin: {row.owner} is gone")
            elif is_over(row, run_is_finished):
                self._require_no_commit_at_work(row)
                self._roll_back(row.transaction_id, "rolled back by the next begin: its timeout has passed")
            else:
                raise TransactionInFlight(
                    f"table {table}: transaction {row.transaction_id} of {row.owner} is open since "
                    f"{row.began_at:%H:%M:%S} UTC, until {row.deadline:%H:%M:%S} UTC at the latest. A table runs one "
                    "transaction at a time, so this one wrote nothing, and nothing is wrong: a tick plans again once that one "
                    "has ended. Without a sensor, try again then, or stop its run."
                )
        if not self.timeline.exists():
            return
        for opened in self.instants.open_instants():
            if self.ledger.transaction(opened.transaction_id) is not None:
                self.end_instant(opened)
            elif opened.leased:
                raise TransactionInFlight(
                    f"table {table}: instant {opened.instant} of transaction {opened.transaction_id} is open, but this ledger "
                    "does not know it (it belongs to another ledger, or this one was wiped). It is rolled back when its lease "
                    f"expires, {self.pipeline.transaction.timeout_seconds} s after it began; if it is still open then, end it "
                    f"with `hudi-ingest recover {self.pipeline.name} --roll-back`."
                )

    def _require_no_commit_at_work(self, row: TransactionRow) -> None:
        """Raises TransactionInFlight if the instant of a transaction past its deadline is leased.

        Only a commit renews a lease. One in another JVM, whose lock may differ from ours, would continue during the rollback
        and publish files that are gone.
        """
        if not self.timeline.exists():
            return
        if any(
            opened.leased for opened in self.instants.open_instants() if opened.transaction_id == row.transaction_id
        ):
            raise TransactionInFlight(
                f"table {row.table}: transaction {row.transaction_id} of {row.owner} is past its deadline "
                f"{row.deadline:%H:%M:%S} UTC, but its instant's heartbeat still beats, so its commit may still be running; "
                f"waiting for it. If {row.owner} hangs, kill it and its work is rolled back."
            )

    def _roll_back(self, transaction_id: str, reason: str) -> None:
        """End a transaction that the timeline does not show as committed.

        If its instant cannot be removed now, the next begin finds it ended in the ledger but open on the timeline, and
        removes it.
        """
        try:
            open_instants = self.instants.open_instants() if self.timeline.exists() else ()
            self.epoch.retire(transaction_id)
            reach("abort_retired")
            for opened in open_instants:
                if opened.transaction_id == transaction_id:
                    self.end_instant(opened)
            # A commit whose caller was killed may have landed since the last look.
            instant = self.timeline.instant_of(self.pipeline.transaction_key, transaction_id)
            if instant is not None:
                self.ledger.mark_committed_as_found(transaction_id, instant)
                return
        except IngestError as error:
            _logger.warning("%s is not rolled back yet; the next begin does it: %s", transaction_id, error)
        reach("abort_rolled_back")
        try:
            self.ledger.mark_aborted(transaction_id, reason)
        except IngestError as error:
            _logger.warning("the ledger could not record that %s is rolled back: %s", transaction_id, error)

    def _note_failed(self, transaction_id: str, attempts: Mapping[TopicPartition, int], error: IngestError) -> None:
        try:
            for source, attempt in attempts.items():
                self.ledger.fail_attempt(transaction_id, source, attempt, str(error))
        except IngestError as unnoted:
            # The op's own error is propagating and must not be hidden by this one.
            _logger.warning("the ledger could not record a failed attempt of %s: %s", transaction_id, unnoted)

    def _with_unused_id(self, plan: TransactionPlan) -> TransactionPlan:
        """The plan under an id that is new to the ledger: an earlier try to begin it may have used up its own."""
        candidate, tries = plan, 1
        while self.ledger.transaction(candidate.transaction_id) is not None:
            tries += 1
            candidate = replace(plan, transaction_id=f"{plan.transaction_id}-{tries}")
        return candidate

    def _require_take_over(self, plan: TransactionPlan, own: str = "") -> None:
        """Raises TransactionInFlight while any writer other than the instant `own` may still add rows; TableMismatch if the
        table belongs to another system, and PlanOutdated if the plan does not begin where that system ended."""
        # Before the commits are read: a writer that begins after this also completes after it, and the guard finds that.
        pending = [instant for instant in self.timeline.pending_writes() if not own or not instant.startswith(own)]
        take_over = find_take_over(self.pipeline, self.timeline)
        if take_over is not None and pending:
            raise TransactionInFlight(
                f"table {self.pipeline.table.base_path} is still being written: {', '.join(pending[:5])} open. Stop "
                f"{take_over.writer} after its open commits have ended; commits left open by a killed writer are rolled back at "
                "its next start. Then the table is taken over."
            )
        if take_over != plan.take_over:
            raise PlanOutdated(
                f"plan {plan.transaction_id} is no longer current: it was planned for '{plan.take_over or 'a new table'}', and "
                f"now there is '{take_over or 'nothing to be taken over'}'. Nothing was written. Plan again; the sensor does so "
                "automatically."
            )

    def _prepare_table(self, committed: CommittedState, taking_over: bool) -> TransactionSchema:
        """Create the table or update its properties; returns the columns of the transaction that begins."""
        if not committed.exists:
            schema = self.resolve_schema()
            with self._kept():
                self.instants.create_table(schema)
            return schema
        properties = self.timeline.properties()
        if PIPELINE_PROPERTY not in properties and self.timeline.is_empty():
            # A begin died between creating the table and writing its properties: the table has not been used yet.
            properties = {**properties, PIPELINE_PROPERTY: self.pipeline.name}
            with self._kept():
                self.instants.update_properties(table_properties(self.pipeline))
        if taking_over:
            require_same_folders(self.pipeline, properties)
        else:
            require_own_table(self.pipeline, properties)
        schema = self.resolve_schema()
        target = {**table_properties(self.pipeline), **record_properties(schema)}
        # Before any file has the new columns, so that no writer collects statistics of them.
        if taking_over:
            target |= take_over_properties(properties, self.timeline.schema(), self.timeline.statistics_columns())
        else:
            target |= statistics_properties(properties, schema)
        if any(properties.get(key) != value for key, value in target.items()):
            with self._kept():
                self.instants.update_properties(target)
        return schema


def with_columns_of_others(
    schema: TransactionSchema, table_columns: pa.Schema, transaction_id: str
) -> TransactionSchema:
    """The columns to publish if another writer may have changed the table's, now `table_columns`, since the begin.

    The newest commit's columns become the table's, so ours must not drop columns that another writer has added. Raises
    CommitRefused if the two are incompatible.
    """
    evolution = evolve(table_columns, parse_spark_json(schema.columns), loose=True)
    if evolution.refusals:
        raise CommitRefused(
            f"transaction {transaction_id}: another writer has changed the table's columns since it began: "
            f"{'; '.join(map(str, evolution.refusals))}. Nothing was published; the next transaction sees the new columns."
        )
    return replace(schema, columns=spark_json(evolution.schema))


def _tell(tell: Callable[[], object], failure: str) -> str:
    """Report a durable commit to one receiver; returns a warning if that fails, else ""."""
    try:
        tell()
    except Exception as error:
        # Broad, because the commit has landed: raising would report it as failed, and retries would fail the same way.
        description = str(error) if isinstance(error, IngestError) else f"{type(error).__name__}: {error}"
        warning = f"the commit is durable, but {failure}: {description}"
        _logger.warning(warning, exc_info=not isinstance(error, IngestError))
        return warning
    return ""


def with_idle_slices(plan: TransactionPlan, reports: Sequence[SliceReport]) -> tuple[SliceReport, ...]:
    """The reports, plus an empty one for each planned slice without offsets (no op was started for those), sorted by slice."""
    reported = {report.slice for report in reports}
    idle = (piece for piece in plan.slices if not piece.count and piece not in reported)
    reports = [*reports, *(SliceReport(piece, attempt=0) for piece in idle)]
    return tuple(sorted(reports, key=lambda report: report.slice))
