"""Checks before a transaction begins and before it commits; each raises and says why."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from hudi_ingest.exceptions import (
    DeadlineExceeded,
    Fenced,
    PlanOutdated,
    SchemaRefused,
    TableMismatch,
    WriteIncomplete,
)
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.hudi.files.live_files import hidden_text
from hudi_ingest.hudi.storage.paths import TIMELINE
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.ledger import TransactionRow
from hudi_ingest.ledger.tables import normal_base_path
from hudi_ingest.model.accounting import contradictions
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition, TopicVersion, intersection, ranges
from hudi_ingest.model.plan import BackfillPlan, IngestPlan, OffsetLoss, RangePlan, ReplayPlan, TransactionPlan
from hudi_ingest.model.report import BaseFile, FieldsSeen, SliceReport, whole_files
from hudi_ingest.model.transaction import OpenTransaction, TransactionState
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.arithmetic import is_stopped, loss_text


def shape_of(pipeline: Pipeline) -> str:
    """A digest of the settings that decide how records become files; all ops of a transaction must agree on it."""
    table = pipeline.table
    columns = pipeline.table_schema.spark_json if table.declares_schema else (table.schema_, table.kafka_columns)
    bad = (pipeline.on_bad_record, pipeline.dead_letters.keep_masked)
    parts: tuple[object, ...] = (table.base_path, table.partition_columns, columns, pipeline.rows_digest, bad)
    if table.is_keyed:
        parts += (table.buckets, table.cdc)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def require_fields(pipeline: Pipeline, reports: Sequence[SliceReport]) -> None:
    """Raises SchemaRefused if the rows of a transaction would be null in every column because no record has a field for any
    of them, as when an envelope is not taken off. Unless the pipeline allows that."""
    fields = FieldsSeen.combined(report.fields for report in reports)
    if pipeline.allow_null_rows or fields is None or fields.matched or not fields.others:
        return
    rows = sum(report.rows for report in reports)
    if rows:
        topics = ", ".join(sorted({report.slice.topic for report in reports if report.rows}))
        raise SchemaRefused(
            f"pipeline {pipeline.name}: no record of this transaction from {topics} has a field for any column, so its "
            f"{counted(rows, 'row')} would be null in each of {listed(fields.absent, 10)}. The records have {listed(fields.others, 10)}"
            f"{_envelope_text(set(fields.others))}. Nothing is visible. Correct `source.envelope` or the names in the schema, and "
            f"look at the rows with `hudi-ingest sample {pipeline.name}`; if such records are meant to be rows, set "
            "`allow_null_rows: true`."
        )


def _envelope_text(fields: set[str]) -> str:
    """Say which known envelope has these fields."""
    if {"op", "source"} <= fields and not {"before", "after"}.isdisjoint(fields):
        return ", like Debezium's change events: set `source.envelope: debezium`"
    if {"specversion", "source", "type"} <= fields:
        return ", like CloudEvents: declare `data` as a struct of the columns, and lift its fields with the transform `flatten`"
    return ""


def require_sound(table: PipelineTable, committed: CommittedState, listed_too: bool = True) -> None:
    """Raises TableMismatch if the checkpoint contradicts the accountings of its commits or, if `listed_too`, the table does not list a live
    file of a commit. Raises TableUnreachable."""
    pipeline, checkpoint = table.pipeline, committed.checkpoint
    key, commits = pipeline.transaction_key, committed.commits
    if checkpoint is not None:
        accountings = (commit.accounting(key) for commit in commits if key in commit.metadata)
        wrong = [*contradictions(checkpoint, accountings)]
        if wrong:
            raise TableMismatch(
                f"the table at {pipeline.table.base_path} contradicts itself: {listed(wrong, 5)}. Both are in its commits, so the file of "
                "one was changed later, and records would be written twice or not at all. Nothing was written. Put copies of the files in "
                f"{TIMELINE} in their place. Without any, `hudi-ingest audit {pipeline.name}` says which rows the table has; roll back the "
                "commits that are wrong, the newest first (`CALL rollback_to_instant(table => …, instant_time => …)`), or restore an "
                "earlier savepoint: the next transaction reads their offsets again."
            )
    unlisted = table.unlisted(commits) if listed_too else {}
    if unlisted:
        raise TableMismatch(hidden_text(pipeline.name, pipeline.table.base_path, unlisted))


def lost_commits(base_path: str, committed: CommittedState, rows: Iterable[TransactionRow]) -> list[TransactionRow]:
    """Select the committed transactions of this table that it does not count any more: its checkpoint is older. `rows`: of the
    pipeline."""
    sequence = committed.checkpoint.sequence if committed.checkpoint else 0
    return [
        row
        for row in rows
        if row.state is TransactionState.COMMITTED
        and row.table == normal_base_path(base_path)
        and row.sequence > sequence
        and row.instant not in committed.instants
    ]


def lost_text(rows: Sequence[TransactionRow]) -> str:
    """Say that the table has lost the commits of these transactions."""
    names = [f"{row.transaction_id} (instant {row.instant}, {counted(row.rows or 0, 'row')})" for row in rows]
    return (
        f"the ledger has {listed(names, 5)} as committed, but the table's timeline has lost {'it' if len(rows) == 1 else 'them'}: "
        "another writer rolled back or restored the table, a copy of it was put in its place, or files of its timeline were deleted. "
        "The next transaction reads these offsets again; what readers took from the lost rows is theirs to correct."
    )


def require_same_shape(transaction: OpenTransaction, pipeline: Pipeline) -> None:
    """Raises Fenced if the pipeline file has changed since the transaction began: its files would not fit together."""
    if transaction.shape != shape_of(pipeline):
        raise Fenced(
            f"transaction {transaction.plan.transaction_id}: the file of pipeline {pipeline.name} was changed while it ran "
            "(table.base_path, schema, partition_by, source.format or on_bad_record). It is rolled back; the next transaction "
            "uses the new file.",
            transaction_id=transaction.plan.transaction_id,
            instant=transaction.instant,
        )


def renumbered(plan: TransactionPlan, checkpoint: Checkpoint | None) -> TransactionPlan:
    """The plan with the table's next number if only commits that moved no offsets came between: a live run planned before
    a backfill's commit still continues exactly where the offsets end."""
    if not isinstance(plan, IngestPlan) or checkpoint is None or plan.sequence > checkpoint.sequence:
        return plan
    return plan if any(_jumps(plan, checkpoint)) else replace(plan, sequence=checkpoint.sequence + 1)


def require_current(plan: TransactionPlan, checkpoint: Checkpoint | None) -> None:
    """Raises PlanOutdated unless the plan is the table's next and, if it moves offsets, starts exactly where the table's
    checkpoint ends, or at an explicit reset."""
    sequence = checkpoint.sequence if checkpoint else 0
    jumps = [*_jumps(plan, checkpoint)]
    if plan.sequence != sequence + 1 or jumps:
        raise PlanOutdated(
            f"plan {plan.transaction_id} is no longer current: it is number {plan.sequence}, and the table's last "
            f"committed transaction is number {sequence}{'; ' + '; '.join(jumps) if jumps else ''}. Nothing was written. "
            "Plan again; the sensor does so automatically."
        )


def require_lost(plan: TransactionPlan, losses: Sequence[OffsetLoss]) -> None:
    """Raises PlanOutdated unless each reset gives up exactly what the broker has lost. `losses`: what it has lost now."""
    lost_now = {loss.source: loss for loss in losses}
    differences = [
        f"planned: {loss_text(loss)}; now: "
        + (loss_text(lost_now[loss.source]) if loss.source in lost_now else "nothing is lost, or it has no leader")
        for loss in plan.resets
        if not _is_lost(loss, lost_now.get(loss.source))
    ]
    if differences:
        raise PlanOutdated(
            f"plan {plan.transaction_id} gives up offsets, but the broker's losses have changed: {'; '.join(differences)}. "
            "Nothing was written. Plan again; the sensor does so automatically."
        )


def _is_lost(planned: OffsetLoss, now: OffsetLoss | None) -> bool:
    """Whether the loss is still the planned one: where the broker's first offset is, unless a person chose another that it still has."""
    if now is None or planned.first is None or now.restart is None or planned.restart is None:
        return now is not None and replace(now, diverges_at=None) == replace(planned, diverges_at=None)
    return (planned.committed, planned.reason) == (now.committed, now.reason) and now.restart <= planned.restart


def _jumps(plan: TransactionPlan, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Every way in which the plan does not fit the checkpoint."""
    if isinstance(plan, IngestPlan):
        yield from _gaps(plan, checkpoint)
        return
    versions = checkpoint.topics if checkpoint else {}
    for topic, version in sorted(plan.topics.items()):
        if versions.get(topic, version) != version:
            yield f"topic {topic} is {version}, but {versions[topic]} is committed"
    if isinstance(plan, RangePlan):
        yield from _misfits(plan, checkpoint)


def _gaps(plan: IngestPlan, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Every way in which a plan that moves offsets does not continue the checkpoint."""
    committed = checkpoint.offsets if checkpoint else {}
    versions = checkpoint.topics if checkpoint else {}
    if plan.take_over is not None:
        if checkpoint is not None:
            yield "it takes over a table that already has a checkpoint"
        committed = plan.take_over.offsets
        for source in sorted(committed.keys() - {slice_.source for slice_ in plan.slices}):
            yield f"{source} is taken over but has no slice"
    starts = {slice_.source: slice_.start for slice_ in plan.slices}
    reset = {loss.source for loss in plan.resets}
    for loss in plan.resets:
        if (loss.committed, loss.restart) != (committed.get(loss.source), starts.get(loss.source)):
            yield (
                f"{loss.source} is reset from {loss.committed} to {loss.restart}, but {committed.get(loss.source)} is "
                f"committed and its slice starts at {starts.get(loss.source)}"
            )
    for source, start in starts.items():
        if source not in reset and committed.get(source, start) != start:
            yield f"{source} starts at {start}, but {committed[source]} is committed"
        if is_stopped(source, plan.stopped):
            yield f"{source} is stopped but has a slice"
    for topic in sorted({slice_.topic for slice_ in plan.slices} | plan.topics.keys()):
        known, planned = versions.get(topic, TopicVersion("")), plan.topics.get(topic)
        reset_sources = {loss.source for loss in plan.resets if loss.topic == topic and loss.repeats}
        if planned is None:
            yield f"it has no id for topic {topic}"
        elif known.topic_id not in ("", planned.topic_id) and reset_sources != {
            partition for partition in committed if partition.topic == topic
        }:
            yield f"topic {topic} has id {planned.topic_id}, but {known.topic_id} is committed and not all of it is reset"
        elif planned.generation != known.generation + bool(reset_sources):
            yield f"topic {topic} has generation {planned.generation}, but {known.generation} is committed"


def _misfits(plan: RangePlan, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Backfill slices that are already in the table, and replay slices that are not."""
    committed = checkpoint.offsets if checkpoint else {}
    covered = {**plan.covered, **(checkpoint.covered if checkpoint else {})}
    for slice_ in plan.slices:
        whole = ranges([(slice_.start, slice_.end)])
        inside = intersection(covered.get(slice_.source, ()), whole)
        if slice_.end > committed.get(slice_.source, 0):
            yield f"{slice_} is not before the committed offset {committed.get(slice_.source)}"
        elif plan.upserts and slice_.end != committed.get(slice_.source):
            yield f"{slice_} of a keyed table does not end at the committed offset {committed.get(slice_.source)}"
        elif plan.upserts and isinstance(plan, BackfillPlan):
            continue
        elif inside != (whole if isinstance(plan, ReplayPlan) else ()):
            yield f"{slice_} is a {plan.kind.value}, but the table has {inside} of it"


def require_time(transaction: OpenTransaction) -> None:
    """Raises DeadlineExceeded if the transaction's timeout has passed."""
    if datetime.now(timezone.utc) > transaction.deadline:
        raise DeadlineExceeded(
            f"transaction {transaction.plan.transaction_id} began at {transaction.began_at:%H:%M:%S} UTC and is past its "
            "timeout_seconds. It is rolled back, none of it is visible, and the next transaction reads the same "
            "offsets. Raise transaction.timeout_seconds or lower transaction.max_records."
        )


def require_complete(plan: TransactionPlan, reports: Sequence[SliceReport]) -> None:
    """Raises WriteIncomplete unless each planned slice has exactly one report that accounts for all its offsets, and whose
    files hold exactly the reported rows."""
    _require_planned(plan, reports)
    for report in reports:
        _require_accounted(report)
    for file in whole_files(part for report in reports for part in report.log_files):
        if file.file_rows not in (None, file.rows):
            raise WriteIncomplete(
                f"transaction {plan.transaction_id}: {file.path} holds {file.file_rows} rows of several Kafka partitions, but "
                f"their reports have {file.rows} of them, so the reports are of different attempts. Nothing was published; "
                "run the op that wrote these partitions again."
            )
    expected = sorted((file.source, file.kept) for file in plan.replaces if file.kept)
    copied = sorted((report.slice.source, file.rows) for report in reports for file in report.copies)
    if expected != copied:
        raise WriteIncomplete(
            f"transaction {plan.transaction_id}: the files it replaces hold rows of other ranges: {expected}; but these were "
            f"copied: {copied}. Nothing was published; run the ops again."
        )
    _require_distinct(plan, [file for report in reports for file in (*report.files, *report.copies)])


def _require_planned(plan: TransactionPlan, reports: Sequence[SliceReport]) -> None:
    planned, reported = sorted(plan.slices), sorted(report.slice for report in reports)
    if planned != reported:
        missing = [str(slice_) for slice_ in planned if slice_ not in reported]
        foreign = [str(slice_) for slice_ in reported if slice_ not in planned] or [
            str(slice_) for slice_ in set(reported) if reported.count(slice_) > 1
        ]
        problems = [f"missing: {', '.join(missing)}"] if missing else []
        problems += [f"reported twice or not planned: {', '.join(foreign)}"] if foreign else []
        raise WriteIncomplete(
            f"the reports of transaction {plan.transaction_id} do not match its plan; {'; '.join(problems)}. Nothing was "
            "published. Re-execute the run from failure."
        )


def _require_accounted(report: SliceReport) -> None:
    if not report.accounted:
        raise WriteIncomplete(
            f"{report.slice}: {report.rows} rows + {report.skipped} skipped + {report.filtered} filtered + "
            f"{report.rejected} bad records + {report.gaps} gaps do not make {report.slice.count} offsets. Nothing was "
            "published; run the op again."
        )
    in_files = sum(file.rows for file in report.written)
    if report.rows_in_files != in_files:
        raise WriteIncomplete(
            f"{report.slice}: {report.rows_in_files} rows are reported, but its files hold {in_files}. Nothing was "
            "published; run the op again."
        )


def _require_distinct(plan: TransactionPlan, files: Sequence[BaseFile]) -> None:
    by_id = {file.file_id: file for file in files}
    if len(by_id) < len(files):
        # Two files with one id in a commit would be one file group, and readers would see only one of them.
        twin = next(file for file in files if by_id[file.file_id] is not file)
        raise WriteIncomplete(
            f"transaction {plan.transaction_id}: {twin.path} and {by_id[twin.file_id].path} begin with the same topic, "
            f"partition and offset ({twin.first_offset}), so the table already has that row more than once. Nothing was "
            "published. Delete the surplus rows, and then run the replay again."
        )


def require_sums(
    before: Checkpoint | None, after: Checkpoint, plan: TransactionPlan, reports: Sequence[SliceReport]
) -> None:
    """Raises WriteIncomplete unless each partition's next offset is the previous one, or its reset, plus the accounted
    offsets; a plan that moves no offsets must leave it unchanged."""
    committed = before.offsets if before else {}
    if not isinstance(plan, IngestPlan):
        if after.offsets != committed:
            raise WriteIncomplete(
                f"transaction {plan.transaction_id} is a {plan.kind.value} and must not change the committed offsets "
                f"{committed}, but would set them to {after.offsets}. Nothing was published."
            )
        return
    starts: dict[TopicPartition, int | None] = {slice_.source: slice_.start for slice_ in plan.slices}
    starts |= committed
    starts |= {loss.source: loss.restart for loss in plan.resets}
    counts = {report.slice.source: report.counted for report in reports}
    mismatches = [
        f"{source}: from {committed.get(source)} (start {start}) by {counts.get(source, 0)} to {after.offsets.get(source)}"
        for source, start in sorted(starts.items())
        if after.offsets.get(source) != (None if start is None else start + counts.get(source, 0))
    ]
    mismatches += [f"{source}: appears without a slice" for source in sorted(after.offsets.keys() - starts.keys())]
    mismatches += [
        f"{loss.source}: {loss.lost} offsets are given up between {loss.committed} and {loss.restart}"
        for loss in plan.resets
        if loss.lost is not None and (loss.restart is None or loss.committed + loss.lost != loss.restart)
    ]
    if mismatches:
        raise WriteIncomplete(
            f"transaction {plan.transaction_id}: the offsets do not add up: {'; '.join(mismatches)}. Nothing was published."
        )
