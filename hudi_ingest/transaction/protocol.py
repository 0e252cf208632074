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
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from operator import attrgetter

from hudi_ingest.exceptions import (
    CommitOutcomeUnknown,
    CommitRefused,
    Fenced,
    IngestError,
    LogTruncated,
    NothingToDo,
    SchemaOutdated,
    TableUnreachable,
)
from hudi_ingest.faults import reach
from hudi_ingest.hudi.storage.storage import StoredFile, reaching
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.timeline.pipeline_table import NEWEST_COMMITS, CommittedState
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import MET_PROPERTY, CommittedInstant
from hudi_ingest.ledger import TransactionRow
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.complete_through import late_before
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition
from hudi_ingest.model.plan import RetryPlan, TransactionPlan
from hudi_ingest.model.report import (
    CommitReceipt,
    SliceReport,
    certified_after,
    complete_after,
    last_after,
    mean_record_bytes,
    whole_files,
    with_commit,
)
from hudi_ingest.model.transaction import OpenTransaction, TransactionSchema, TransactionState, began
from hudi_ingest.model.transaction import committed as lineage_committed
from hudi_ingest.transaction.checks import (
    lost_commits,
    lost_text,
    renumbered,
    require_complete,
    require_current,
    require_fields,
    require_lost,
    require_same_shape,
    require_sound,
    require_sums,
    require_time,
    shape_of,
)
from hudi_ingest.transaction.commit_contents import commit_metadata, extended_groups, file_ids_at_begin
from hudi_ingest.transaction.dead_letters.letter_file import require_bad_accounted, withholds_bytes
from hudi_ingest.transaction.plan.arithmetic import require_offset_order
from hudi_ingest.transaction.plan.cut_logs import forget, remember
from hudi_ingest.transaction.ports import TransactionPorts
from hudi_ingest.transaction.rollback import clear_dead_transaction, roll_back
from hudi_ingest.transaction.table_preparation import (
    prepare_table,
    require_one_table,
    require_take_over,
    with_columns_of_others,
)
from hudi_ingest.transaction.timeline_repair import TimelineRepair

_logger = logging.getLogger(__name__)
SHORTEST_STALE_SECONDS = 60
"""A begin, commit or abort is not interrupted by another before this."""
COMMITS_A_CLEANING = 20
"""Such a commit takes twice the CPU of others. Replaced files are kept for some commits anyway, and Hudi archives twenty commits at once,
when there are more than thirty."""


def is_cleaning_due(plan: TransactionPlan) -> bool:
    """Whether the plan's commit is to clean, one of COMMITS_A_CLEANING."""
    return plan.turn % COMMITS_A_CLEANING == 0


LISTS_ON_A_STORE = 5
"""On an object store a look at the table's list takes several requests."""


def is_list_due(plan: TransactionPlan, is_local: bool) -> bool:
    """Whether the plan's begin compares what the table lists with its newest commits: each on a file system, one of LISTS_ON_A_STORE on an
    object store, so that each of LISTED_COMMITS commits is looked at twice."""
    return is_local or plan.turn % LISTS_ON_A_STORE == 0


class TransactionProtocol(TransactionPorts):
    """The steps of one pipeline's transactions over their ports. Keeps no state between the steps."""

    __slots__ = ()

    def begin(
        self, plan: TransactionPlan, owner: Owner, run_is_finished: Callable[[str], bool | None]
    ) -> OpenTransaction:
        """Open the plan's transaction, after rolling back what a dead one left.

        `run_is_finished` says whether an orchestrator's run has ended (None: unknown).
        Raises PlanOutdated, TransactionInFlight, TableMismatch, TableUnreachable, EngineLost, what `resolve_schema` of
        columns/schema_change.py raises, and for a plan with resets KafkaUnreachable, KafkaRefused and TopicMissing.
        """
        started = time.monotonic()
        with self._table_lock(), self.timeline.held(), self.step("begin", plan.transaction_id) as ended:
            if self.timeline.restore_properties():
                _logger.warning(
                    "%s: hoodie.properties was damaged and has been restored from Hudi's backup",
                    self.pipeline.table.base_path,
                )
            self._repair()
            clear_dead_transaction(self, owner, run_is_finished)
            reach("begin_cleared")
            newest = require_one_table(self)
            committed = self.table.committed()
            require_sound(self.table, committed, is_list_due(plan, self.timeline.storage.is_local))
            self._note_lost(newest, committed)
            plan = renumbered(plan, committed.checkpoint)
            require_current(plan, committed.checkpoint)
            require_offset_order(self.pipeline, committed.checkpoint, plan)
            if plan.resets:
                # The plan may have waited for a long time, and records that are given up are gone for good.
                require_lost(plan, self.find_losses(committed.checkpoint))
            if committed.checkpoint is None:
                require_take_over(self, plan)
            schema = prepare_table(self, committed, plan.take_over is not None)
            plan = replace(self._with_unused_id(plan), schema_changes=schema.changes)
            checkpoint = committed.checkpoint
            receipted = newest.transaction_id if newest is not None and newest.has_receipt else ""
            if checkpoint is None or checkpoint.transaction_id != receipted:
                # A begin that created the table or took it over may have died before it could flush it, a commit that another ledger knows
                # may not have done so yet, and one without a receipt could not.
                self.flush_all()
            transaction = self._open(plan, schema, owner, committed.commits)
            ended |= {
                "transaction": transaction.plan.transaction_id,
                "epoch": transaction.epoch,
                "instant": transaction.instant,
                "kind": plan.kind.value,
                "sequence": plan.sequence,
                "after": checkpoint.instant if checkpoint else None,
                "slices": {str(slice_.source): [slice_.start, slice_.end] for slice_ in plan.slices},
                "resets": {str(reset.source): reset.restart for reset in plan.resets},
            }
        transaction = replace(
            transaction,
            begin_seconds=round(time.monotonic() - started, 3),
            record_bytes=checkpoint.record_bytes if checkpoint else 0,
            late_before=late_before(
                map(attrgetter("source"), plan.slices), checkpoint.complete, checkpoint.topics, plan.said_through
            )
            if checkpoint and plan.kind.moves_offsets
            else {},
            follows=_follows(plan, checkpoint),
        )
        self.tell_lineage(began(transaction))
        return transaction

    def write(self, transaction: OpenTransaction, slices: Sequence[Slice], retry: int = 0) -> tuple[SliceReport, ...]:
        """Write some of the plan's slices and report on each. `retry`: how many tries of an orchestrator came before this one,
        which may have died before they started an attempt. Raises what `write.write_slices` raises."""
        transaction_id = transaction.plan.transaction_id
        with self.step("write", transaction_id, epoch=transaction.epoch, instant=transaction.instant) as ended:
            require_time(transaction)
            require_same_shape(transaction, self.pipeline)
            self._require_epoch(transaction)
            attempts = self.ledger.attempts.start(transaction_id, [slice_.source for slice_ in slices], retry)
            reach("attempt_started")
            try:
                reports = self.write_files(transaction, slices, attempts, transaction.record_bytes)
                self._sync_files(reports)
            except IngestError as error:
                self._note_failed(transaction_id, attempts, error)
                raise
            reach("slices_written")
            self.ledger.attempts.finish(transaction_id, reports)
            ended["attempts"] = {str(report.slice.source): report.attempt for report in reports}
        reach("attempt_reported")
        return reports

    def commit(self, transaction: OpenTransaction, reports: Sequence[SliceReport]) -> CommitReceipt:
        """Publish the transaction; it happens once, however often this is called.

        Raises WriteIncomplete, BadRecord, SchemaRefused, DeadlineExceeded, Fenced, CommitRefused (nothing landed) or
        CommitOutcomeUnknown, TransactionInFlight (call again); for a retry, NothingToDo if none of its dead letters can become a row.
        """
        started = time.monotonic()
        plan = transaction.plan
        reports = with_idle_slices(plan, reports)
        try:
            # First, because slices with too many bad records have no files.
            require_bad_accounted(self.pipeline, plan.kind, reports)
            require_complete(plan, reports)
            require_fields(self.pipeline, reports)
            self._require_rows_of_a_retry(plan, reports)
            require_same_shape(transaction, self.pipeline)
        except IngestError:
            # A transaction that was aborted is not published whatever its reports say, so that is the reason to give.
            if self.table.instant_of(plan.transaction_id) is None:
                self._require_open(transaction)
            raise
        # An earlier call may have committed, and how much it flushed is unknown.
        before: frozenset[StoredFile] = frozenset()
        known = {"epoch": transaction.epoch, "instant": transaction.instant}
        with self._table_lock(), self.timeline.held(), self.step("commit", plan.transaction_id, **known) as ended:
            reach("commit_locked")
            published = self.table.instant_of(plan.transaction_id)
            if published is not None and self._repair():
                # A power cut has damaged what an earlier call had published.
                published = self.table.instant_of(plan.transaction_id)
            committed = self.table.committed()
            ended["outcome"] = "committed"
            if published is None:
                seen = self._require_publishable(transaction, committed)
                self._require_files(plan, reports)
                before = self.look()
                reach("commit_checked")
                if self._publish(transaction, reports, committed, seen):
                    ended["outcome"] = "published"
                committed = self.table.committed()
            checkpoint = committed.checkpoint
            if checkpoint is None or checkpoint.sequence < plan.sequence:
                raise CommitOutcomeUnknown(
                    f"transaction {plan.transaction_id} of pipeline {plan.pipeline}: instant {transaction.instant} was "
                    "published, but the timeline does not show its checkpoint yet. Nothing is deleted; commit is called "
                    "again, and the timeline decides."
                )
            warnings = self._sync_commit(before)
            flushed = not warnings
        seconds = _phases(transaction, reports, time.monotonic() - started)
        receipt = CommitReceipt(plan, transaction.instant, checkpoint, tuple(reports), seconds)
        if receipt.fields is not None and receipt.fields.is_suspect:
            warnings.append(f"{plan.transaction_id}: {receipt.fields.text}")
        receipt = self._acknowledge(receipt, committed.commits, warnings, flushed)
        self.tell_lineage(lineage_committed(transaction, receipt))
        return receipt

    def abort(self, transaction: OpenTransaction, reason: str) -> None:
        """Roll the transaction back unless its commit has landed.

        Raises no IngestError or OSError, because it runs while another error propagates: failures are logged, and the next begin
        does the rest.
        """
        transaction_id = transaction.plan.transaction_id
        try:
            with self._table_lock(), self.step("abort", transaction_id, reason=reason) as ended:
                ended["outcome"] = "tried"
                if self.table.instant_of(transaction_id) is None:
                    roll_back(self, transaction_id, reason)
        except (IngestError, OSError) as error:
            _logger.warning("%s is not rolled back yet; the next begin does it: %s", transaction_id, error)

    def _repair(self) -> tuple[str, ...]:
        return TimelineRepair(self.pipeline, self.table, self.ledger, self.epoch).run()

    def _note_lost(self, newest: TransactionRow | None, committed: CommittedState) -> None:
        """Record commits that the ledger has and the table has lost, as by another writer's rollback: their offsets are read again."""
        path = self.pipeline.table.base_path
        if newest is None or not lost_commits(path, committed, [newest]):
            return
        for row in lost_commits(path, committed, self.ledger.transactions.history(newest.pipeline, NEWEST_COMMITS)):
            text = lost_text([row])
            self.ledger.transactions.mark_lost(row.transaction_id, text)
            _logger.warning("table %s: %s", path, text)

    def _table_lock(self) -> AbstractContextManager[None]:
        # After the transaction's timeout the lock's holder is fenced anyway: by the epoch, its lease and the guard.
        stale = max(SHORTEST_STALE_SECONDS, self.pipeline.transaction.timeout_seconds)
        return self.ledger.table_lock(self.pipeline.table.base_path, stale_seconds=stale)

    def _open(
        self, plan: TransactionPlan, schema: TransactionSchema, owner: Owner, commits: Sequence[CommittedInstant]
    ) -> OpenTransaction:
        """Open the transaction in the ledger, its epoch and its instant; rolled back if any of that fails."""
        began_at = datetime.now(timezone.utc)
        deadline = began_at + timedelta(seconds=self.pipeline.transaction.timeout_seconds)
        above, table = self.epoch.current().number, self.pipeline.table.base_path
        epoch = self.ledger.transactions.begin(plan, table=table, owner=owner, deadline=deadline, above=above)
        try:
            reach("ledger_opened")
            # From here on, processes that still work for an older transaction are fenced.
            self.epoch.advance(epoch, plan.transaction_id)
            self.timeline.forget()
            reach("epoch_advanced")
            with self.kept():
                # Must follow advance(): by now any commit that passed its guard in the old epoch has a heartbeat.
                instants = self.timeline.instants()
                if instants.pending:
                    self.instants.roll_back_expired()
                # The lock keeps no process out that works with another ledger; from this epoch on none can commit any more.
                if instants.completed - {commit.instant for commit in commits}:
                    require_current(plan, self.table.committed().checkpoint)
                instant = self.instants.begin(plan, schema)
            # A writer that changes file groups after this reading is found by the commit.
            groups = file_ids_at_begin(self, commits)
            self.ledger.transactions.record_instant(plan.transaction_id, instant)
            reach("instant_recorded")
        except BaseException as error:
            # Whatever the error, Ctrl-C included: others would wait for a living owner until the deadline.
            roll_back(self, plan.transaction_id, f"begin failed: {type(error).__name__}: {error}")
            raise
        return OpenTransaction(plan, instant, epoch, began_at, deadline, schema, shape_of(self.pipeline), groups=groups)

    def _sync_files(self, reports: Iterable[SliceReport]) -> None:
        """Make the files survive a power cut, so that whatever is reported may be committed. Raises TableUnreachable."""
        files = dict.fromkeys(file.path for report in reports for file in (*report.written, *report.copies))
        letters = [file.path for report in reports for file in report.letters]
        with self.flushing():
            self.durability.sync_files([*files, *letters])

    def _sync_commit(self, before: frozenset[StoredFile]) -> list[str]:
        """Flush the landed commit; returns a warning if it might not survive a power cut."""
        try:
            with self.flushing():
                self.durability.sync_changes(before)
        except TableUnreachable as error:
            warning = f"the commit has landed, but might not survive a power cut: {error}"
            _logger.warning(warning)
            return [warning]
        return []

    def _require_publishable(self, transaction: OpenTransaction, committed: CommittedState) -> list[str]:
        """Raises Fenced, DeadlineExceeded, PlanOutdated, and at a take-over what `require_take_over` raises, unless the transaction
        may be published now. Returns the completed instants that a take-over has judged, else none."""
        self._require_open(transaction)
        require_time(transaction)
        self._require_epoch(transaction)
        require_current(transaction.plan, committed.checkpoint)
        if transaction.plan.take_over is None:
            return []
        # The guard finds commits that complete after this reading; the reading itself judges those before.
        seen = [commit.instant for commit in self.timeline.completed()]
        require_take_over(self, transaction.plan, transaction.instant)
        return seen

    def _require_files(self, plan: TransactionPlan, reports: Sequence[SliceReport]) -> None:
        """Raises CommitRefused if a report's file is gone: a commit that was given the reports of other attempts, and was cut off, has
        deleted all files but theirs. Looks only if this ledger knows of several attempts at a slice, or of none."""
        attempts = self.ledger.attempts.counts(plan.transaction_id)
        unsure = [report for report in reports if attempts.get(report.slice.source) != 1]
        storage = self.table.storage
        with reaching(storage, "look for the files"):
            for report, file in [(each, file) for each in unsure for file in each.written]:
                if not storage.exists(file.path):
                    raise CommitRefused(
                        f"{report.slice}: file {file.path} of attempt {report.attempt} in transaction {plan.transaction_id} is gone: "
                        "a commit that was begun with the files of another attempt has deleted it. Nothing was published. The next "
                        "transaction reads the same offsets; no need to act, unless two orchestrators work on this pipeline."
                    )

    def _publish(
        self,
        transaction: OpenTransaction,
        reports: Sequence[SliceReport],
        committed: CommittedState,
        seen: Collection[str],
    ) -> bool:
        """Return whether this very call has published it."""
        plan = transaction.plan
        publication = self._publication(transaction, reports, committed, seen)
        try:
            try:
                self.instants.commit(publication)
            finally:
                self.timeline.forget()
        except IngestError as error:
            # Whatever the error says, the commit may have landed, perhaps through an earlier call whose caller was killed.
            try:
                published = self.table.instant_of(plan.transaction_id)
            except TableUnreachable as unread:
                raise CommitOutcomeUnknown(
                    f"the commit of {plan.transaction_id} failed ({error}), and the timeline cannot be read to see "
                    f"whether it landed ({unread}). Nothing is deleted; the commit is retried."
                ) from error
            if published is not None:
                return False
            if isinstance(error, (CommitRefused, Fenced)):
                first = self._first_failure(plan.transaction_id) if isinstance(error, Fenced) else ""
                if not first:
                    raise
                raise Fenced(
                    f"{error} {first}", transaction_id=plan.transaction_id, instant=transaction.instant
                ) from error
            with _noting(f"why the commit of {plan.transaction_id} failed"):
                self.ledger.transactions.note_failure(plan.transaction_id, str(error))
            raise CommitOutcomeUnknown(
                f"the commit of {plan.transaction_id} to table {self.pipeline.table.base_path} returned an error and is not "
                "on the timeline so far. It may still land, so nothing is deleted; commit is called again, and the timeline "
                f"decides. The error: {error}"
            ) from error
        return True

    def _first_failure(self, transaction_id: str) -> str:
        """Return a sentence on the failure of an earlier try to commit the transaction, which may have rolled its instant back; "" if
        there was none."""
        try:
            row = self.ledger.transactions.find(transaction_id)
        except IngestError as unread:
            return f"The ledger, which knows whether an earlier try failed, cannot be read: {unread}"
        return f"The first try failed: {row.reason}" if row is not None and row.reason else ""

    def _publication(
        self,
        transaction: OpenTransaction,
        reports: Sequence[SliceReport],
        committed: CommittedState,
        seen: Collection[str],
    ) -> Publication:
        plan = transaction.plan
        checkpoint = next_checkpoint(committed.checkpoint, plan, mean_record_bytes(reports), transaction.instant)
        require_sums(committed.checkpoint, checkpoint, plan, reports)
        withheld = withholds_bytes(self.pipeline, plan.kind)
        letters = self.letters.extend(committed.checkpoint, plan, transaction.instant, reports, withheld)
        totals = with_commit(checkpoint.totals, plan, reports, self.pipeline.on_bad_record == "dead_letter")
        complete = complete_after(committed.checkpoint, checkpoint, plan, self.confirm_marks(plan.marks), reports)
        certified = certified_after(committed.checkpoint, plan, reports)
        last = last_after(committed.checkpoint, plan, reports)
        checkpoint = replace(
            checkpoint, letters=letters, totals=totals, complete=complete, certified=certified, last=last
        )
        schema = transaction.schema
        if committed.checkpoint is not None or plan.take_over is not None:
            schema = with_columns_of_others(schema, self.timeline.schema(), plan.transaction_id)
        log_files = whole_files(file for report in reports for file in report.log_files)
        files = [file for report in reports for file in (*report.files, *report.copies)]
        groups = extended_groups(self, transaction, log_files, committed.commits)
        return Publication(
            instant=transaction.instant,
            files=[*files, *groups.first_files],
            log_files=log_files,
            before=groups.before,
            metadata=commit_metadata(self.pipeline, plan, checkpoint, reports),
            expected_checkpoint=committed.checkpoint_text,
            epoch=Epoch(transaction.epoch, plan.transaction_id),
            schema=schema,
            kind=plan.kind,
            replaced=plan.replaces,
            seen=seen,
            read=committed.instants,
            clean=is_cleaning_due(plan),
        )

    def _acknowledge(
        self, receipt: CommitReceipt, commits: Sequence[CommittedInstant], warnings: list[str], flushed: bool
    ) -> CommitReceipt:
        """Acknowledge a durable commit to the consumer group, the ledger, the topic of dead letters, the catalog and Iceberg.

        No failure here may turn a durable commit into a failed one: each commit sets all the group's offsets again, begin
        corrects the ledger from the table, and missing copies, the catalog and Iceberg are made up for after the next commit. Appends to
        `warnings`. `commits`: all on the active timeline, newest first.
        """
        group = self.pipeline.group_id
        warnings.append(
            _attempt(
                lambda: self.groups.commit_group_offsets(group, receipt.checkpoint.offsets),
                f"consumer group {group} was not updated",
            )
        )
        reach("group_told")
        accepted = [loss.source for loss in receipt.plan.resets if loss.repeats]
        if accepted:
            text = "that partitions were stopped is not forgotten, so they may be stopped once more"
            warnings.append(_attempt(lambda: forget(self.table.storage, receipt.checkpoint, accepted), text))
        transactions, transaction_id = self.ledger.transactions, receipt.plan.transaction_id
        # The repair does not look for damage where the ledger has a receipt.
        warnings.append(
            _attempt(
                lambda: (
                    transactions.mark_committed(receipt)
                    if flushed
                    else transactions.mark_committed_as_found(transaction_id, receipt.instant)
                ),
                "the ledger was not updated",
            )
        )
        reach("ledger_told")
        letters = receipt.checkpoint.letters
        warnings.append(_attempt(lambda: self.copy_letters(letters), "its dead letters are not copied yet"))
        # Last, because it may take the longest.
        warnings.append(_attempt(lambda: self.sync_catalog(commits), "its catalog does not have all of it yet"))
        reports = receipt.reports
        warnings.append(_attempt(lambda: self.publish_iceberg(commits, reports), "Iceberg does not have it yet"))
        return replace(receipt, warnings=tuple(filter(None, warnings)))

    def _require_rows_of_a_retry(self, plan: TransactionPlan, reports: Sequence[SliceReport]) -> None:
        if not isinstance(plan, RetryPlan) or any(
            report.rows or report.skipped or report.filtered for report in reports
        ):
            return
        if plan.request:
            self.ledger.requests.pass_over(plan.request, [file.path for file in plan.retry.files])
        first = next((f" (the first: {note})" for report in reports for note in report.bad_records), "")
        raise NothingToDo(
            self.pipeline.name,
            f"none of {plan.retry.letters} dead letters can become a row now{first}; correct the pipeline file or the "
            "converter, and retry",
        )

    def _require_epoch(self, transaction: OpenTransaction) -> None:
        transaction_id = transaction.plan.transaction_id
        self.epoch.require(Epoch(transaction.epoch, transaction_id), f"transaction {transaction_id} must not continue")

    def _require_open(self, transaction: OpenTransaction) -> None:
        row = self.ledger.transactions.find(transaction.plan.transaction_id)
        if row is not None and row.state is not TransactionState.OPEN:
            raise Fenced(
                f"transaction {transaction.plan.transaction_id} is {row.state.value} ({row.reason or 'no reason recorded'}) "
                "and cannot be committed. The next transaction reads the same offsets; or re-execute the whole run, not just its "
                "failed steps.",
                transaction_id=transaction.plan.transaction_id,
                instant=transaction.instant,
            )

    def _note_failed(self, transaction_id: str, attempts: Mapping[TopicPartition, int], error: IngestError) -> None:
        """Record failed attempts and, for the next begin, a schema or a cut log in the middle of a slice: begin looks at the newest records
        only, and offsets stop showing a cut."""
        with _noting(f"the failed write of {transaction_id}"):
            for source, attempt in attempts.items():
                self.ledger.attempts.fail(transaction_id, source, attempt, str(error))
        if isinstance(error, SchemaOutdated) and error.columns:
            with _noting("the schema of a record"), self._table_lock(), self.kept():
                self.instants.update_properties({MET_PROPERTY: error.columns})
        if isinstance(error, LogTruncated):
            with _noting(f"the cut in the log of {error.topic}:{error.partition}"):
                checkpoint = self.table.committed().checkpoint
                assert checkpoint is not None, "a slice that follows a record follows a commit"
                with self._table_lock(), self.kept():
                    remember(self.table.storage, checkpoint, error)

    def _with_unused_id(self, plan: TransactionPlan) -> TransactionPlan:
        """The plan under an id that is new to the ledger: an earlier try to begin it may have used up its own."""
        candidate, tries = plan, 1
        while self.ledger.transactions.find(candidate.transaction_id) is not None:
            tries += 1
            candidate = replace(plan, transaction_id=f"{plan.transaction_id}-{tries}")
        return candidate


@contextmanager
def _noting(subject: str) -> Iterator[None]:
    """Log that the block could not note its subject: the error that is propagating must not be hidden by one of the note, and without it
    the next transaction meets the same record."""
    try:
        yield
    except IngestError as unnoted:
        _logger.warning("%s is not noted: %s", subject, unnoted)


def _phases(transaction: OpenTransaction, reports: Sequence[SliceReport], commit_seconds: float) -> dict[str, float]:
    phases = {
        "begin": transaction.begin_seconds,
        "write": max((report.seconds for report in reports), default=0.0),
        "commit": commit_seconds,
    }
    known = sum(phases.values())
    # The transaction counts from the end of its begin. The rest is time between the steps: an orchestrator starting and ending processes.
    total = max(known, (datetime.now(timezone.utc) - transaction.began_at).total_seconds())
    phases |= {"between": total - known, "total": total}
    return {phase: round(value, 3) for phase, value in phases.items()}


def _attempt(step: Callable[[], object], failure: str) -> str:
    """Take a step after a durable commit; return a warning if that fails, else ""."""
    try:
        step()
    except Exception as error:
        # Broad, because the commit has landed: raising would report it as failed, and retries would fail the same way.
        description = str(error) if isinstance(error, IngestError) else f"{type(error).__name__}: {error}"
        warning = f"the commit is durable, but {failure}: {description}"
        _logger.warning(warning, exc_info=not isinstance(error, IngestError))
        return warning
    return ""


def _follows(plan: TransactionPlan, checkpoint: Checkpoint | None) -> dict[TopicPartition, LastRecord]:
    """The records that the plan's slices come after; none where it begins anew."""
    if checkpoint is None or not plan.kind.moves_offsets:
        return {}
    sources = {slice_.source for slice_ in plan.busy} - {loss.source for loss in plan.resets}
    return {source: record for source, record in checkpoint.last.items() if source in sources}


def with_idle_slices(plan: TransactionPlan, reports: Sequence[SliceReport]) -> tuple[SliceReport, ...]:
    """The reports, plus an empty one for each planned slice without offsets (no op was started for those), sorted by slice."""
    reported = {report.slice for report in reports}
    idle = (piece for piece in plan.slices if not piece.count and piece not in reported)
    reports = [*reports, *(SliceReport(piece, attempt=0) for piece in idle)]
    return tuple(sorted(reports, key=lambda report: report.slice))
