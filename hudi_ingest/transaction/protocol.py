"""The protocol of one transaction: begin → write its slices → commit, or abort.

The table is the truth and the ledger is the record. Begin, commit and abort of one table exclude one another by the
ledger's table lock; the guard inside Hudi's own lock holds even where that lock is lost. A commit has three outcomes:
committed, refused, unknown; after an unknown one the timeline decides.
"""

from __future__ import annotations

import hashlib
import json
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
    DeadlineExceeded,
    Fenced,
    IngestError,
    NothingToDo,
    PlanOutdated,
    TableMismatch,
    TableUnreachable,
    TransactionInFlight,
    WriteIncomplete,
)
from hudi_ingest.faults import reach
from hudi_ingest.hudi.durability import Durability
from hudi_ingest.hudi.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.options import (
    HIVE_STYLE_PROPERTY,
    record_properties,
    statistics_properties,
    table_properties,
    take_over_properties,
)
from hudi_ingest.hudi.other_writers import STREAMER_KEY, streamer_text
from hudi_ingest.hudi.storage import StoredFile
from hudi_ingest.hudi.take_over import find_take_over
from hudi_ingest.hudi.timeline import PIPELINE_PROPERTY, CommittedState, Timeline
from hudi_ingest.ledger import Ledger, TransactionRow
from hudi_ingest.ledger.owner import Owner, is_dead
from hudi_ingest.model.offset_ranges import intersection, ranges
from hudi_ingest.model.records import (
    BaseFile,
    Checkpoint,
    CommitReceipt,
    LettersHead,
    OffsetLoss,
    Offsets,
    OpenInstant,
    OpenTransaction,
    ReplacedFile,
    Slice,
    SliceReport,
    TopicPartition,
    TopicVersion,
    TransactionKind,
    TransactionPlan,
    TransactionSchema,
    TransactionState,
    mean_record_bytes,
    next_checkpoint,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import parse_spark_json, spark_json
from hudi_ingest.records.schema.evolution import evolve
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog
from hudi_ingest.transaction.dead_letters.policy import require_bad_accounted, withholds_bytes
from hudi_ingest.transaction.planning import is_stopped, loss_text

_logger = logging.getLogger(__name__)
SHORTEST_STALE_SECONDS = 60
"""Nobody's begin, commit or abort is interrupted by another before this."""
COMMITS_A_CLEANING = 10
"""To look for replaced files takes as long as half a commit of few records, and these are kept for some commits anyway."""


class InstantWriter(Protocol):
    """What the protocol asks of Hudi's write client; see hudi/write_client.py."""

    def create_table(self, schema: TransactionSchema) -> None: ...
    def update_properties(self, wanted: dict[str, str]) -> None: ...
    def begin(self, plan: TransactionPlan, schema: TransactionSchema) -> str: ...
    def commit(
        self,
        instant: str,
        files: Iterable[BaseFile],
        extra_metadata: dict[str, str],
        expected_checkpoint: str | None,
        epoch: Epoch,
        schema: TransactionSchema,
        kind: TransactionKind = TransactionKind.INGEST,
        replaced: Sequence[ReplacedFile] = (),
        seen: Collection[str] = (),
        clean: bool = True,
    ) -> None: ...
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
"""Copies what the list of dead letters has to where copies go, and says how many that were; see dead_letters/copies.py."""

SliceWriter = Callable[[OpenTransaction, Sequence[Slice], dict[TopicPartition, int], int], tuple[SliceReport, ...]]
"""Writes slices: (transaction, slices, attempt of each partition, mean record bytes) → a report of each slice."""

SchemaResolver = Callable[[], TransactionSchema]
"""Finds the columns of the next transaction; see columns.py."""


@dataclass(frozen=True, slots=True)
class TransactionProtocol:
    """The steps of one pipeline's transactions over their ports. Holds no state of its own between the steps."""

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
        """Opens the plan's transaction, after clearing away what a dead one left.

        `run_is_finished` tells of an orchestrator's run whether it has ended (None: not known).
        Raises PlanOutdated, TransactionInFlight, TableMismatch, TableUnreachable, EngineLost, what `resolve_schema` of
        columns.py raises, and for a plan with resets KafkaUnreachable, KafkaRefused and TopicMissing.
        """
        started = time.monotonic()
        table = self.pipeline.table.base_path
        with self._table_lock():
            if self.timeline.restore_properties():
                _logger.warning("%s: hoodie.properties was damaged, and is restored from Hudi's backup of it", table)
            self._clear_dead_transaction(owner, run_is_finished)
            reach("begin_cleared")
            committed = self._committed()
            plan = renumbered(plan, committed.checkpoint)
            require_current(plan, committed.checkpoint)
            if plan.resets:
                # A plan may have waited for long, and records that are given up are gone for good.
                require_lost(plan, self.find_losses(committed.checkpoint))
            if committed.checkpoint is None:
                self._require_take_over(plan)
            schema = self._prepare_table(committed, plan.take_over is not None)
            plan = replace(self._with_unused_id(plan), schema_changes=schema.changes)
            began = datetime.now(timezone.utc)
            deadline = began + timedelta(seconds=self.pipeline.transaction.timeout_seconds)
            above = self.epoch.current().number
            number = self.ledger.begin(plan, table=table, owner=owner, deadline=deadline, above=above)
            try:
                reach("ledger_opened")
                # Whoever still works for an older transaction is fenced from here on.
                self.epoch.advance(number, plan.transaction_id)
                reach("epoch_advanced")
                with self._kept():
                    # Not before: a commit that passed its guard in the old epoch has a beating heart by now.
                    self.instants.roll_back_expired()
                    instant = self.instants.begin(plan, schema)
                self.ledger.record_instant(plan.transaction_id, instant)
                reach("instant_recorded")
            except BaseException as error:
                # Whatever it was, a Ctrl-C included: an owner that lives on would be waited for until the deadline.
                self._roll_back(plan.transaction_id, f"begin failed: {type(error).__name__}: {error}")
                raise
        seconds = round(time.monotonic() - started, 3)
        return OpenTransaction(plan, instant, number, began, deadline, schema, shape_of(self.pipeline), seconds)

    def write(self, transaction: OpenTransaction, slices: Sequence[Slice]) -> tuple[SliceReport, ...]:
        """Writes some of the plan's slices and reports on each. Raises what `write.write_slices` raises."""
        transaction_id = transaction.plan.transaction_id
        require_time(transaction)
        require_same_shape(transaction, self.pipeline)
        self._require_epoch(transaction)
        attempts = {each.source: self.ledger.start_attempt(transaction_id, each.source) for each in slices}
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
        """Publishes the transaction once, however often it is called.

        Raises WriteIncomplete, BadRecord, DeadlineExceeded, Fenced, CommitRefused (nothing landed) or
        CommitOutcomeUnknown (call again); of a retry NothingToDo when none of its dead letters can become a row.
        """
        started = time.monotonic()
        plan = transaction.plan
        reports = with_idle_slices(plan, reports)
        require_complete(plan, reports)
        require_bad_accounted(self.pipeline, plan.kind, reports)
        self._require_rows_of_a_retry(plan, reports)
        require_same_shape(transaction, self.pipeline)
        # Of a commit that an earlier call made, nobody knows how far that came.
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
                # What completes after this look the guard finds, and what completed before it the look has judged.
                seen = [each.instant for each in self.timeline.completed()] if plan.take_over is not None else []
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
            "write": max((each.seconds for each in reports), default=0.0),
            "commit": time.monotonic() - started,
        }
        total = (datetime.now(timezone.utc) - transaction.began_at).total_seconds()
        # What is left is the time between the steps: an orchestrator's processes that start and end.
        phases |= {"between": max(0.0, total - sum(phases.values())), "total": total}
        seconds = {phase: round(value, 3) for phase, value in phases.items()}
        receipt = CommitReceipt(plan, transaction.instant, checkpoint, tuple(reports), seconds)
        return self._tell_the_others(receipt, unsynced)

    def abort(self, transaction: OpenTransaction, reason: str) -> None:
        """Rolls the transaction back unless its commit has landed.

        Raises nothing of ours, because it runs while another error is on its way: what cannot be done now is logged, and
        the next begin does it.
        """
        transaction_id = transaction.plan.transaction_id
        try:
            with self._table_lock():
                if self.timeline.instant_of(self.pipeline.transaction_key, transaction_id) is None:
                    self._roll_back(transaction_id, reason)
        except IngestError as error:
            _logger.warning("%s is not rolled back yet, the next begin does it: %s", transaction_id, error)

    def end_instant(self, found: OpenInstant) -> bool:
        """Rolls an open instant back, under the table's lock. False: its commit landed meanwhile, and stands.

        Raises TableUnreachable, EngineLost, LedgerUnreachable.
        """
        # The epoch first: whoever still works for the transaction is fenced before its files go.
        self.epoch.retire(found.transaction_id)
        with self._kept():
            rolled_back = self.instants.roll_back(found.instant)
        if not rolled_back:
            self.ledger.mark_committed_as_found(found.transaction_id, found.instant)
            return False
        try:
            self.letters.forget(found.instant)
        except OSError as error:
            _logger.warning("dead letters of %s, which count no more, are left to the sweep: %s", found.instant, error)
        return rolled_back

    def _table_lock(self) -> AbstractContextManager[None]:
        # Past the transaction's timeout its holder is fenced anyway: by the epoch, its lease and the guard.
        stale = max(SHORTEST_STALE_SECONDS, self.pipeline.transaction.timeout_seconds)
        return self.ledger.table_lock(self.pipeline.table.base_path, stale_seconds=stale)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """What the block changes below .hoodie outlives a power cut. Raises TableUnreachable."""
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
        """Files outlive a power cut from here on, so that whatever is reported may be committed. Raises TableUnreachable."""
        files = [file.path for each in reports for file in (*each.files, *each.copies)]
        letters = [file.path for each in reports for file in each.letters]
        try:
            self.durability.sync_files([*files, *letters])
        except OSError as error:
            raise self._not_flushed(error) from error

    def _sync_commit(self, before: frozenset[StoredFile]) -> list[str]:
        """What is to be told where the commit, which has landed, might not outlive a power cut."""
        try:
            self.durability.sync_changes(before)
        except OSError as error:
            warning = f"the commit has landed, but might not outlive a power cut: {self._not_flushed(error)}"
            _logger.warning(warning)
            return [warning]
        return []

    def _not_flushed(self, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"files of the table at {self.pipeline.table.base_path} could not be flushed to the disk: {error}. Check the disk, its "
            "free space and the machine's log. A file system that cannot do it at all wants table.fsync: false."
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
                transaction.instant,
                [file for report in reports for file in (*report.files, *report.copies)],
                commit_metadata(self.pipeline, plan, checkpoint, reports),
                committed.checkpoint_text,
                Epoch(transaction.epoch, plan.transaction_id),
                schema,
                plan.kind,
                plan.replaces,
                seen,
                clean=plan.sequence % COMMITS_A_CLEANING == 0,
            )
        except IngestError as error:
            # Whatever the error says, the commit may have landed, also by an earlier call whose caller was killed.
            try:
                published = self.timeline.instant_of(self.pipeline.transaction_key, plan.transaction_id)
            except TableUnreachable as unread:
                raise CommitOutcomeUnknown(
                    f"the commit of {plan.transaction_id} failed ({error}), and the timeline cannot be read to see "
                    f"whether it landed ({unread}). Nothing is deleted; the commit is tried again."
                ) from error
            if published is not None:
                return
            if isinstance(error, (CommitRefused, Fenced)):
                raise
            raise CommitOutcomeUnknown(
                f"the commit of {plan.transaction_id} failed and has not landed so far: {error}"
            ) from error

    def _tell_the_others(self, receipt: CommitReceipt, warnings: list[str]) -> CommitReceipt:
        """Acknowledges a durable commit to the consumer group, the ledger and the topic of dead letters.

        None may turn a durable commit into a failed one: each commit tells the whole map of offsets again, begin corrects
        the ledger from the table, and copies that are missing are made after the next commit. `warnings` are added to.
        """
        group = self.pipeline.group_id
        warnings.append(
            _tell(
                lambda: self.groups.commit_group_offsets(group, receipt.checkpoint.offsets),
                f"consumer group {group} was not told",
            )
        )
        reach("group_told")
        warnings.append(_tell(lambda: self.ledger.mark_committed(receipt), "the ledger was not told"))
        reach("ledger_told")
        letters = receipt.checkpoint.letters
        warnings.append(_tell(lambda: self.copy_letters(letters), "its dead letters are not copied yet"))
        return replace(receipt, warnings=tuple(filter(None, warnings)))

    def _require_rows_of_a_retry(self, plan: TransactionPlan, reports: Sequence[SliceReport]) -> None:
        if plan.retry is None or any(report.rows or report.skipped or report.filtered for report in reports):
            return
        if plan.request:
            self.ledger.pass_over(plan.request, [file.path for file in plan.retry.files])
        first = next((f" (the first: {note})" for report in reports for note in report.bad_records), "")
        raise NothingToDo(self.pipeline.name, f"none of {plan.retry.letters} dead letters can become a row now{first}")

    def _require_epoch(self, transaction: OpenTransaction) -> None:
        transaction_id = transaction.plan.transaction_id
        self.epoch.require(Epoch(transaction.epoch, transaction_id), f"transaction {transaction_id} must not go on")

    def _require_open(self, transaction: OpenTransaction) -> None:
        row = self.ledger.transaction(transaction.plan.transaction_id)
        if row is not None and row.state is not TransactionState.OPEN:
            raise Fenced(
                f"transaction {transaction.plan.transaction_id} is {row.state.value} ({row.reason or 'no reason kept'}) "
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
                # A run has one begin op, so its own open transaction is what an earlier attempt of that op left.
                self._roll_back(row.transaction_id, f"rolled back by the next begin: {row.owner} is gone")
            elif is_over(row, run_is_finished):
                self._require_no_commit_at_work(row)
                self._roll_back(row.transaction_id, "rolled back by the next begin: its timeout has passed")
            else:
                raise TransactionInFlight(
                    f"table {table}: transaction {row.transaction_id} of {row.owner} is open since "
                    f"{row.began_at:%H:%M:%S} UTC, at the longest until {row.deadline:%H:%M:%S} UTC. One transaction of a "
                    "table runs at a time, so this one wrote nothing, and nothing is wrong: the next tick plans again when that "
                    "one has ended. Without a sensor try again then, or stop its run."
                )
        if not self.timeline.exists():
            return
        for each in self.instants.open_instants():
            if self.ledger.transaction(each.transaction_id) is not None:
                self.end_instant(each)
            elif each.leased:
                raise TransactionInFlight(
                    f"table {table}: instant {each.instant} of transaction {each.transaction_id} is open, and this ledger "
                    "does not know it (it is another ledger's, or this one was wiped). It is rolled back when its lease "
                    f"has run out, {self.pipeline.transaction.timeout_seconds} s after it began; if it is still here then, "
                    f"end it by `hudi-ingest recover {self.pipeline.name} --roll-back`."
                )

    def _require_no_commit_at_work(self, row: TransactionRow) -> None:
        """Raises TransactionInFlight when the instant of a transaction past its deadline is leased.

        Nothing but a commit renews a lease. One in another JVM, whose lock may not be ours, would go on under the rollback
        and then stand for files that are gone.
        """
        if not self.timeline.exists():
            return
        if any(each.leased for each in self.instants.open_instants() if each.transaction_id == row.transaction_id):
            raise TransactionInFlight(
                f"table {row.table}: transaction {row.transaction_id} of {row.owner} is past its deadline "
                f"{row.deadline:%H:%M:%S} UTC, and its instant's heartbeat still beats, so its commit may be at work. It is "
                f"waited for. If {row.owner} hangs, end it: what it left is then rolled back."
            )

    def _roll_back(self, transaction_id: str, reason: str) -> None:
        """Ends a transaction that the timeline does not show as committed.

        Where its instant cannot be removed now, the next begin finds it ended in the ledger and open on the timeline, and
        removes it.
        """
        try:
            found = self.instants.open_instants() if self.timeline.exists() else ()
            self.epoch.retire(transaction_id)
            reach("abort_retired")
            for each in found:
                if each.transaction_id == transaction_id:
                    self.end_instant(each)
            # A commit whose caller was killed may have landed since anybody looked.
            instant = self.timeline.instant_of(self.pipeline.transaction_key, transaction_id)
            if instant is not None:
                self.ledger.mark_committed_as_found(transaction_id, instant)
                return
        except IngestError as error:
            _logger.warning("%s is not rolled back yet, the next begin does it: %s", transaction_id, error)
        reach("abort_rolled_back")
        try:
            self.ledger.mark_aborted(transaction_id, reason)
        except IngestError as error:
            _logger.warning("the ledger was not told that %s is rolled back: %s", transaction_id, error)

    def _note_failed(self, transaction_id: str, attempts: Mapping[TopicPartition, int], error: IngestError) -> None:
        try:
            for source, attempt in attempts.items():
                self.ledger.fail_attempt(transaction_id, source, attempt, str(error))
        except IngestError as unnoted:
            # The op's own error is on its way and must not be hidden by this one.
            _logger.warning("the ledger was not told of a failed attempt of %s: %s", transaction_id, unnoted)

    def _with_unused_id(self, plan: TransactionPlan) -> TransactionPlan:
        """The plan under an id that the ledger has not seen: an earlier try to begin it has used up its own."""
        candidate, tries = plan, 1
        while self.ledger.transaction(candidate.transaction_id) is not None:
            tries += 1
            candidate = replace(plan, transaction_id=f"{plan.transaction_id}-{tries}")
        return candidate

    def _require_take_over(self, plan: TransactionPlan, own: str = "") -> None:
        """Raises TransactionInFlight while anybody may still add rows, but for the instant `own`; TableMismatch when the table
        is another system's, and PlanOutdated when the plan does not begin where that ended."""
        # Before the commits are read: who begins after this has completed after it, which the guard finds.
        pending = [each for each in self.timeline.pending_writes() if not own or not each.startswith(own)]
        found = find_take_over(self.pipeline, self.timeline)
        if found is not None and pending:
            raise TransactionInFlight(
                f"table {self.pipeline.table.base_path} is still being written: {', '.join(pending[:5])} open. Stop "
                f"{found.writer}, and let what it has begun end; what a killed one left open, its next start rolls back. Then the "
                "table is taken over."
            )
        if found != plan.take_over:
            raise PlanOutdated(
                f"plan {plan.transaction_id} is not current any more: planned was '{plan.take_over or 'a new table'}', and now "
                f"it is '{found or 'nothing to be taken over'}'. Nothing was written. Plan again; the sensor does so by itself."
            )

    def _prepare_table(self, committed: CommittedState, taking_over: bool) -> TransactionSchema:
        """Makes the table, or brings its properties up to date; the columns of the transaction that begins."""
        if not committed.exists:
            schema = self.resolve_schema()
            with self._kept():
                self.instants.create_table(schema)
            return schema
        properties = self.timeline.properties()
        if PIPELINE_PROPERTY not in properties and self.timeline.is_empty():
            # A begin that died between making the table and writing its properties: nobody has used the table yet.
            properties = {**properties, PIPELINE_PROPERTY: self.pipeline.name}
            with self._kept():
                self.instants.update_properties(table_properties(self.pipeline))
        if taking_over:
            require_same_folders(self.pipeline, properties)
        else:
            require_own_table(self.pipeline, properties)
        schema = self.resolve_schema()
        wanted = {**table_properties(self.pipeline), **record_properties(schema)}
        # Before any file has the new columns, so that no writer makes statistics of them.
        if taking_over:
            wanted |= take_over_properties(properties, self.timeline.schema(), self.timeline.statistics_columns())
        else:
            wanted |= statistics_properties(properties, schema)
        if any(properties.get(key) != value for key, value in wanted.items()):
            with self._kept():
                self.instants.update_properties(wanted)
        return schema


def shape_of(pipeline: Pipeline) -> str:
    """A digest of what decides how records become files; ops of one transaction must agree on it."""
    table = pipeline.table
    columns = pipeline.table_schema.spark_json if table.declares_schema else (table.schema_, table.kafka_columns)
    bad = (pipeline.on_bad_record, pipeline.dead_letters.keep_masked)
    parts = (table.base_path, table.partition_columns, columns, pipeline.rows_digest, bad)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def require_same_shape(transaction: OpenTransaction, pipeline: Pipeline) -> None:
    """Raises Fenced when the pipeline file was changed since the transaction began: its files would not fit together."""
    if transaction.shape != shape_of(pipeline):
        raise Fenced(
            f"transaction {transaction.plan.transaction_id}: the file of pipeline {pipeline.name} was changed while it ran "
            "(table.base_path, schema, partition_by, source.format or on_bad_record). It is rolled back; the next transaction uses the "
            "new file."
        )


def with_columns_of_others(schema: TransactionSchema, there: pa.Schema, transaction_id: str) -> TransactionSchema:
    """What to publish as the table's columns, where another writer may have changed those, now `there`, since the begin.

    The newest commit's columns are the table's, so ours must not take away what another has added. Raises CommitRefused when
    the two do not go together.
    """
    evolution = evolve(there, parse_spark_json(schema.columns), loose=True)
    if evolution.refusals:
        raise CommitRefused(
            f"transaction {transaction_id}: another writer has changed the table's columns since it began: "
            f"{'; '.join(map(str, evolution.refusals))}. Nothing was published; the next transaction sees the new columns."
        )
    return replace(schema, columns=spark_json(evolution.schema))


def is_over(row: TransactionRow, run_is_finished: Callable[[str], bool | None]) -> bool:
    """Whether an open transaction of the ledger can make no more progress: its owner is gone or its time is up."""
    return is_dead(row.owner, run_is_finished) or datetime.now(timezone.utc) > row.deadline


def _tell(tell: Callable[[], object], failure: str) -> str:
    """Tells somebody of a durable commit; a warning where that fails, else ""."""
    try:
        tell()
    except Exception as error:
        # Broad, because the commit has landed: raising would report it as failed, and its retries would fail alike.
        named = str(error) if isinstance(error, IngestError) else f"{type(error).__name__}: {error}"
        warning = f"the commit is durable, but {failure}: {named}"
        _logger.warning(warning, exc_info=not isinstance(error, IngestError))
        return warning
    return ""


def renumbered(plan: TransactionPlan, checkpoint: Checkpoint | None) -> TransactionPlan:
    """The plan as the table's next one, where others that moved no offsets came between: a live run that was planned before a
    backfill's commit still goes on exactly where the offsets end."""
    if not plan.kind.moves_offsets or checkpoint is None or plan.sequence > checkpoint.sequence:
        return plan
    return plan if any(_jumps(plan, checkpoint)) else replace(plan, sequence=checkpoint.sequence + 1)


def require_current(plan: TransactionPlan, checkpoint: Checkpoint | None) -> None:
    """Raises PlanOutdated unless the plan is the next of the table and, if it moves offsets, starts exactly where the table's
    checkpoint ends, or at an explicit reset."""
    sequence = checkpoint.sequence if checkpoint else 0
    moved = [*_jumps(plan, checkpoint)]
    if plan.sequence != sequence + 1 or moved:
        raise PlanOutdated(
            f"plan {plan.transaction_id} is not current any more: it is number {plan.sequence}, and the table's last "
            f"committed transaction is number {sequence}{'; ' + '; '.join(moved) if moved else ''}. Nothing was written. "
            "Plan again; the sensor does so by itself."
        )


def require_lost(plan: TransactionPlan, losses: Sequence[OffsetLoss]) -> None:
    """Raises PlanOutdated unless the broker has lost exactly what each reset gives up. `losses`: what it has lost now."""
    now = {each.source: each for each in losses}
    wrong = [
        f"planned: {loss_text(each)}; now: "
        + (loss_text(now[each.source]) if each.source in now else "nothing is lost")
        for each in plan.resets
        if now.get(each.source) != each
    ]
    if wrong:
        raise PlanOutdated(
            f"plan {plan.transaction_id} gives up offsets, and the broker was asked again: {'; '.join(wrong)}. Nothing was "
            "written. Plan again; the sensor does so by itself."
        )


def _jumps(plan: TransactionPlan, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Where the plan does not follow from the checkpoint."""
    committed = checkpoint.offsets if checkpoint else {}
    versions = checkpoint.topics if checkpoint else {}
    if plan.take_over is not None:
        if checkpoint is not None:
            yield "it takes the table over, which has a checkpoint"
        committed = plan.take_over.offsets
        for source in sorted(committed.keys() - {each.source for each in plan.slices}):
            yield f"{source} is taken over and has no slice"
    if not plan.kind.moves_offsets:
        for topic, version in sorted(plan.topics.items()):
            if versions.get(topic, version) != version:
                yield f"topic {topic} is {version}, committed is {versions[topic]}"
        yield from _misfits(plan, checkpoint)
        return
    starts = {each.source: each.start for each in plan.slices}
    reset = {each.source for each in plan.resets}
    for each in plan.resets:
        if (each.committed, each.restart) != (committed.get(each.source), starts.get(each.source)):
            yield (
                f"{each.source} is reset from {each.committed} to {each.restart}, committed is "
                f"{committed.get(each.source)} and its slice starts at {starts.get(each.source)}"
            )
    for source, start in starts.items():
        if source not in reset and committed.get(source, start) != start:
            yield f"{source} starts at {start}, committed is {committed[source]}"
        if is_stopped(source, plan.stopped):
            yield f"{source} is stopped and has a slice"
    for topic in sorted({each.topic for each in plan.slices} | plan.topics.keys()):
        known, found = versions.get(topic, TopicVersion("")), plan.topics.get(topic)
        again = {each.source for each in plan.resets if each.topic == topic and each.repeats}
        if found is None:
            yield f"it does not say which topic {topic} is"
        elif known.topic_id not in ("", found.topic_id) and again != {
            each for each in committed if each.topic == topic
        }:
            yield f"topic {topic} has id {found.topic_id}, committed is {known.topic_id}, and not all of it is reset"
        elif found.generation != known.generation + bool(again):
            yield f"topic {topic} has generation {found.generation}, committed is {known.generation}"


def _misfits(plan: TransactionPlan, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Slices of a backfill that are in the table, and of a replay that are not."""
    if plan.kind not in (TransactionKind.BACKFILL, TransactionKind.REPLAY):
        return
    committed = checkpoint.offsets if checkpoint else {}
    covered = {**plan.covered, **(checkpoint.covered if checkpoint else {})}
    for each in plan.slices:
        whole = ranges([(each.start, each.end)])
        inside = intersection(covered.get(each.source, ()), whole)
        if each.end > committed.get(each.source, 0):
            yield f"{each} is not before the committed offset {committed.get(each.source)}"
        elif inside != (whole if plan.kind is TransactionKind.REPLAY else ()):
            yield f"{each} is a {plan.kind.value}, and of it {inside} is in the table"


def require_time(transaction: OpenTransaction) -> None:
    """Raises DeadlineExceeded when the transaction's timeout has passed."""
    if datetime.now(timezone.utc) > transaction.deadline:
        raise DeadlineExceeded(
            f"transaction {transaction.plan.transaction_id} began at {transaction.began_at:%H:%M:%S} UTC and is past its "
            "timeout_seconds. It is rolled back, nothing of it is visible, and the next transaction reads the same "
            "offsets. Raise transaction.timeout_seconds or lower transaction.max_records."
        )


def with_idle_slices(plan: TransactionPlan, reports: Sequence[SliceReport]) -> tuple[SliceReport, ...]:
    """The reports, and an empty one of each planned slice without offsets, which no op was begun for; in the slices' order."""
    reported = {report.slice for report in reports}
    idle = (piece for piece in plan.slices if not piece.count and piece not in reported)
    reports = [*reports, *(SliceReport(piece, attempt=0) for piece in idle)]
    return tuple(sorted(reports, key=lambda report: report.slice))


def require_complete(plan: TransactionPlan, reports: Sequence[SliceReport]) -> None:
    """Raises WriteIncomplete unless each planned slice has exactly one report, which accounts for each of its offsets, and whose
    files hold exactly the rows that it reports."""
    planned, reported = sorted(plan.slices), sorted(each.slice for each in reports)
    if planned != reported:
        missing = [str(each) for each in planned if each not in reported]
        foreign = [str(each) for each in reported if each not in planned] or [
            str(each) for each in set(reported) if reported.count(each) > 1
        ]
        raise WriteIncomplete(
            f"transaction {plan.transaction_id} cannot be committed: not reported {missing or 'none'}, reported but not "
            f"planned or twice {foreign or 'none'}. Run its missing ops again."
        )
    for report in reports:
        if not report.accounted:
            raise WriteIncomplete(
                f"{report.slice}: {report.rows} rows + {report.skipped} skipped + {report.filtered} filtered + "
                f"{report.rejected} bad records + {report.gaps} gaps do not make {report.slice.count} offsets. Nothing was "
                "published; run the op again."
            )
        in_files = sum(file.rows for file in report.files)
        if report.rows != in_files:
            raise WriteIncomplete(
                f"{report.slice}: {report.rows} rows are reported, and its files hold {in_files}. Nothing was published; run "
                "the op again."
            )
    wanted = sorted((each.source, each.kept) for each in plan.replaces if each.kept)
    copied = sorted((each.slice.source, file.rows) for each in reports for file in each.copies)
    if wanted != copied:
        raise WriteIncomplete(
            f"transaction {plan.transaction_id}: the files that it replaces hold other ranges' rows {wanted}, and copied were "
            f"{copied}. Nothing was published; run the ops again."
        )
    ids = [file.file_id for each in reports for file in (*each.files, *each.copies)]
    if len(set(ids)) < len(ids):
        # One id in one commit twice would be one file group, of which readers see one file.
        raise WriteIncomplete(
            f"transaction {plan.transaction_id}: two of its files have the id {next(i for i in ids if ids.count(i) > 1)}: rows of "
            "the same topic, partition and offset are in the table more than once. Nothing was published."
        )


def require_own_table(pipeline: Pipeline, properties: dict[str, str]) -> None:
    """Raises TableMismatch unless the table at the path is this pipeline's, with its partition columns and folder names."""
    path = pipeline.table.base_path
    owner = properties.get(PIPELINE_PROPERTY)
    if owner != pipeline.name:
        whose = f"pipeline {owner}" if owner else "another writer"
        raise TableMismatch(
            f"the table at {path} belongs to {whose}, not to pipeline {pipeline.name}. Choose another table.base_path, or "
            f"{f'name this pipeline {owner}' if owner else 'move that table away'}."
        )
    require_same_folders(pipeline, properties)


def require_same_folders(pipeline: Pipeline, properties: Mapping[str, str]) -> None:
    """Raises TableMismatch unless the table at the path has the pipeline's partition columns and folder names."""
    path = pipeline.table.base_path
    columns = ",".join(pipeline.table.partition_columns)
    found = properties.get("hoodie.table.partition.fields", "")
    if found != columns:
        raise TableMismatch(
            f"the table at {path} is partitioned by ({found or 'nothing'}), pipeline {pipeline.name} says "
            f"({columns or 'nothing'}). Make table.partition_by equal to the table's, or choose another table.base_path."
        )
    hive_style = properties.get(HIVE_STYLE_PROPERTY, "false") == "true"
    if columns and hive_style != pipeline.table.hive_style:
        raise TableMismatch(
            f"the table at {path} names its folders {'column=value' if hive_style else 'by values alone'}, and a table's folders "
            f"never change their names. Set table.hive_style to {str(hive_style).lower()} in the file of pipeline "
            f"{pipeline.name}, or choose another table.base_path."
        )


def require_sums(
    before: Checkpoint | None, after: Checkpoint, plan: TransactionPlan, reports: Sequence[SliceReport]
) -> None:
    """Raises WriteIncomplete unless each partition's next offset is its last one, or its reset, plus what is accounted; and
    what it was where the plan moves no offsets."""
    committed = before.offsets if before else {}
    if not plan.kind.moves_offsets:
        if after.offsets != committed:
            raise WriteIncomplete(
                f"transaction {plan.transaction_id} is a {plan.kind.value} and must leave the committed offsets {committed} as "
                f"they are, and would make them {after.offsets}. Nothing was published."
            )
        return
    starts: dict[TopicPartition, int | None] = {each.source: each.start for each in plan.slices}
    starts |= committed
    starts |= {each.source: each.restart for each in plan.resets}
    counts = {
        each.slice.source: each.rows + each.skipped + each.filtered + each.rejected + each.gaps for each in reports
    }
    wrong = [
        f"{source}: from {committed.get(source)} (start {start}) by {counts.get(source, 0)} to {after.offsets.get(source)}"
        for source, start in sorted(starts.items())
        if after.offsets.get(source) != (None if start is None else start + counts.get(source, 0))
    ]
    wrong += [f"{source}: appears without a slice" for source in sorted(after.offsets.keys() - starts.keys())]
    wrong += [
        f"{each.source}: {each.lost} offsets are given up between {each.committed} and {each.restart}"
        for each in plan.resets
        if each.lost is not None and (each.restart is None or each.committed + each.lost != each.restart)
    ]
    if wrong:
        raise WriteIncomplete(
            f"transaction {plan.transaction_id}: the offsets do not add up: {'; '.join(wrong)}. Nothing was published."
        )


def commit_metadata(
    pipeline: Pipeline, plan: TransactionPlan, checkpoint: Checkpoint, reports: Sequence[SliceReport]
) -> dict[str, str]:
    """The commit's extra metadata: the checkpoint, this transaction's accounting, and Hudi Streamer's checkpoint for a
    pipeline of one topic (`topic,0:123,1:456`, next offsets), so that users can move to Hudi Streamer and back."""
    accounting = {
        "version": 1,
        "transaction": plan.transaction_id,
        "sequence": plan.sequence,
        "kind": plan.kind.value,
        "slices": [
            {
                "topic": each.slice.topic,
                "partition": each.slice.partition,
                "start": each.slice.start,
                "end": each.slice.end,
                "rows": each.rows,
                "skipped": each.skipped,
                "filtered": each.filtered,
                "rejected": each.rejected,
                "gaps": each.gaps,
                "attempt": each.attempt,
            }
            for each in sorted(reports, key=lambda report: report.slice)
        ],
        "resets": [each.to_dict() for each in plan.resets],
        **({"respect_deletes": True} if plan.respect_deletes else {}),
        "schema_changes": list(plan.schema_changes),
        **({"take_over": plan.take_over.to_dict()} if plan.take_over else {}),
    }
    metadata = {
        pipeline.checkpoint_key: checkpoint.to_json(),
        pipeline.transaction_key: json.dumps(accounting, separators=(",", ":")),
    }
    if len(pipeline.source.topics) == 1:
        topic = pipeline.source.topics[0]
        # The pipeline may have had other topics before.
        offsets = {source.partition: offset for source, offset in checkpoint.offsets.items() if source.topic == topic}
        metadata[STREAMER_KEY] = streamer_text(topic, offsets)
    return metadata
