"""What must hold before a transaction begins and before it commits; each raises and says why."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from hudi_ingest.exceptions import (
    DeadlineExceeded,
    Fenced,
    PlanOutdated,
    WriteIncomplete,
)
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offset_ranges import intersection, ranges
from hudi_ingest.model.offsets import TopicPartition, TopicVersion
from hudi_ingest.model.plan import OffsetLoss, TransactionKind, TransactionPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.planning import is_stopped, loss_text


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
