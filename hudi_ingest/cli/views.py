"""What the terminal shows: tables of offsets, slices and transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.timeline import TableFile
from hudi_ingest.ledger import Request, RequestProgress
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.operations.dead_letter_retry import RetryResult, RetrySurvey
from hudi_ingest.operations.ranges import RemainingRanges, as_slices, shown_slices, total
from hudi_ingest.operations.recovery import Recovery, UnknownInstant
from hudi_ingest.operations.replaced_files import ReplaySurvey
from hudi_ingest.operations.status import PipelineStatus
from hudi_ingest.operations.sweep import SweepResult
from hudi_ingest.operations.table_services import ServicesResult
from hudi_ingest.records.kafka_times import time_text
from hudi_ingest.records.schema.columns import columns_to_dicts, ddl, ddl_type, parse_spark_json
from hudi_ingest.transaction.dead_letters.reading import DeadLetter, LetterCount, preview


def status_view(status: PipelineStatus) -> RenderableType:
    offsets = Table(title=f"{status.pipeline} → {status.base_path}", title_justify="left")
    offsets.add_column("partition")
    for name in ("committed", "end", "lag"):
        offsets.add_column(name, justify="right")
    stopped = {each.source for each in status.stopped}
    for each in status.partitions:
        committed = "-" if each.committed is None else f"{each.committed:,}"
        end = "-" if each.end is None else f"{each.end:,}"
        style = "red" if TopicPartition(each.topic, each.partition) in stopped else None
        offsets.add_row(f"{each.topic}:{each.partition}", committed, end, f"{each.lag:,}", style=style)
    offsets.add_row("all", "", "", f"{status.lag:,}", style="bold")
    letters = [Text(f"dead letters that wait: {status.dead_letters:,}")] if status.dead_letters else []
    return Group(offsets, Text(age_text(status, datetime.now(timezone.utc))), *letters, transactions_view(status))


def age_text(status: PipelineStatus, now: datetime) -> str:
    """How old the last commit is, and the oldest record that waits."""
    done = status.last_committed_at
    commit = "nothing is committed yet"
    if done is not None:
        commit = f"last commit {duration_text((now - done).total_seconds())} ago, at {done:%Y-%m-%d %H:%M:%S} UTC"
    if not status.lag:
        return f"{commit}; no records wait"
    if status.lag_seconds is None:
        return f"{commit}; how old the oldest waiting record is, is not known"
    return f"{commit}; the oldest waiting record is {duration_text(status.lag_seconds)} old"


def duration_text(seconds: float) -> str:
    """Whole seconds up to ten minutes, then minutes, hours and days."""
    for unit, size, most in (("s", 1, 600), ("min", 60, 10_800), ("h", 3600, 259_200)):
        if seconds < most:
            return f"{max(0.0, seconds) / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def transaction_notes(status: PipelineStatus) -> Iterator[str]:
    """Why transactions were aborted, and which are dead, a line each."""
    for row in status.transactions:
        if row.transaction_id in status.dead:
            yield f"{row.transaction_id} is dead: {row.owner} is gone, or its time is up. The next begin clears it."
        elif row.reason:
            first, *more = row.reason.splitlines()
            yield f"{row.transaction_id} was aborted: {' '.join([first, *(line.strip() for line in more[:1])])}"


def transactions_view(status: PipelineStatus) -> RenderableType:
    rows = status.transactions
    if not rows:
        return Text("no transaction in the ledger yet")
    table = Table(title="last transactions", title_justify="left")
    table.add_column("transaction")
    table.add_column("state")
    table.add_column("instant")
    for name in ("rows", "files", "size", "seconds"):
        table.add_column(name, justify="right")
    for each in rows:
        seconds = ((each.ended_at or datetime.now(timezone.utc)) - each.began_at).total_seconds()
        table.add_row(
            each.transaction_id,
            "dead" if each.transaction_id in status.dead else each.state.value,
            each.instant or "-",
            "-" if each.rows is None else f"{each.rows:,}",
            "-" if each.files is None else str(each.files),
            "-" if each.size_bytes is None else size_text(each.size_bytes),
            f"{seconds:.1f}",
        )
    return Group(table, *(Text(note) for note in transaction_notes(status)))


def plan_view(plan: TransactionPlan) -> RenderableType:
    table = Table(title=f"{plan.transaction_id}: {plan.count:,} offsets", title_justify="left")
    table.add_column("partition")
    for name in ("start", "end", "offsets"):
        table.add_column(name, justify="right")
    for each in plan.slices:
        table.add_row(f"{each.topic}:{each.partition}", f"{each.start:,}", f"{each.end:,}", f"{each.count:,}")
    return table


def columns_view(columns: pa.Schema) -> RenderableType:
    """What a table's rows hold."""
    table = Table(title="columns of the table", title_justify="left")
    for name in ("column", "type", "null"):
        table.add_column(name)
    for each in columns:
        table.add_row(each.name, Text(ddl_type(each.type)), "may be" if each.nullable else "never")
    return table


def ranges_view(title: str, left: RemainingRanges) -> RenderableType:
    """What a backfill or a replay reads."""
    table = Table(title=f"{title}: {total(left):,} offsets", title_justify="left")
    table.add_column("partition")
    for name in ("start", "end", "offsets"):
        table.add_column(name, justify="right")
    for each in as_slices(left):
        table.add_row(str(each.source), f"{each.start:,}", f"{each.end:,}", f"{each.count:,}")
    return table


def replay_text(survey: ReplaySurvey) -> str:
    """What a replay costs, and what it would bring back."""
    whole = [each for each in survey.replaces if not each.kept]
    lines = [
        f"transactions: {survey.transactions}",
        f"files replaced whole: {len(whole)}, {sum(each.size_bytes for each in whole) / 1e6:.1f} MB, "
        f"{sum(each.rows for each in whole):,} rows",
        f"files rewritten, because they hold other ranges' rows too: {len(survey.rewritten)}, "
        f"{sum(each.size_bytes for each in survey.rewritten) / 1e6:.1f} MB, "
        f"{sum(each.rows for each in survey.rewritten):,} rows replaced, "
        f"{sum(each.kept for each in survey.rewritten):,} rows copied",
        f"rows deleted since they were ingested: {survey.missing.deleted:,}"
        + (", which come back unless --respect-deletes is given" if survey.missing.deleted else ""),
    ]
    if survey.missing.unknown:
        lines.append(
            f"offsets without a row, of which nobody can tell whether they had one: {survey.missing.unknown:,} (their commits "
            "are archived, or only partly in the range)"
        )
    return "\n".join(lines)


def receipt_text(receipt: CommitReceipt) -> str:
    seconds = ", ".join(f"{phase} {value:.1f} s" for phase, value in receipt.seconds.items())
    return (
        f"committed {receipt.plan.transaction_id} as instant {receipt.instant}: {counted(receipt.rows, 'row')} in "
        f"{counted(receipt.files, 'file')}, {size_text(receipt.size_bytes)} ({seconds})"
        + (
            f"; {counted(receipt.rejected, 'bad record')}, such as {receipt.bad_records[0]}"
            if receipt.bad_records
            else ""
        )
    )


def recovery_text(recovery: Recovery) -> str:
    """What was found and what was changed, a line each."""
    lines = [
        f"{recovery.pipeline}: the table's active timeline has {recovery.committed} transactions of this pipeline",
        f"ledger: {f'restored {len(recovery.restored)}: ' if recovery.restored else 'says the same, nothing changed'}"
        + ", ".join(recovery.restored),
    ]
    moves = [
        f"{source} {'none' if old is None else old} → {new}" for source, (old, new) in sorted(recovery.moved.items())
    ]
    lines.append(f"consumer group {recovery.group}: {', '.join(moves) or 'has the same offsets, nothing changed'}")
    if recovery.open_transaction:
        lines.append(f"{recovery.open_transaction} is open in the ledger; the next begin waits for it or clears it")
    for each in recovery.unknown:
        lines.append(
            f"instant {each.instant} of {each.transaction_id} is open and unknown to this ledger: {_fate(each)}"
        )
    return "\n".join(lines)


def _fate(each: UnknownInstant) -> str:
    if each.rolled_back:
        return "rolled back"
    if not each.leased:
        return "its lease has run out, the next begin rolls it back"
    return (
        f"it may still run; rolled back by the first begin after {each.expires_at:%H:%M:%S} UTC, or now by --roll-back"
    )


def files_text(files: Sequence[TableFile]) -> str:
    """A line for each file, aligned: its path is too long for a table in a terminal."""
    if not files:
        return "no files"
    rows = [("KAFKA", "OFFSETS", "ROWS", "SIZE", "INSTANT", "FILE")]
    for each in files:
        offsets = f"{each.offsets[0]}-{each.offsets[1]}" if each.offsets else "-"
        rows.append((kafka_text(each), offsets, str(each.rows), size_text(each.size_bytes), each.instant, each.path))
    return _aligned(rows)


def sweep_text(result: SweepResult) -> str:
    """What a sweep found, a line for each, and a last line that says what was done."""
    hours = f"{result.safe_age.total_seconds() / 3600:g} h"
    if not result.orphans:
        return f"no orphans older than {hours} in {result.base_path}"
    rows = [("KAFKA", "FROM OFFSET", "BYTES", "AGE H", "INSTANT", "WHY", "FILE")]
    for each, facts in zip(result.orphans, result.rows(), strict=True):
        source = f"?:{each.origin.partition}" if each.origin else "-"
        offset = str(each.origin.first_offset) if each.origin else "-"
        rows.append(
            (
                source,
                offset,
                str(facts["bytes"]),
                str(facts["age_hours"]),
                each.instant or "-",
                each.reason,
                facts["path"],
            )
        )
    done = "deleted" if result.deleted else "would be deleted with --delete"
    return f"{_aligned(rows)}\n{len(result.orphans)} older than {hours}, {result.size_bytes / 1e6:.1f} MB: {done}"


def services_text(result: ServicesResult) -> str:
    """What was clustered and cleaned, a line each."""
    lines = [
        f"clustering {each.instant}: {counted(each.replaced, 'file')} became {each.written}, {counted(each.rows, 'row')}, "
        f"{size_text(each.size_bytes)}"
        for each in result.clusterings
    ]
    if result.cleaned is not None:
        lines.append(f"cleaning: {counted(result.cleaned, 'replaced file')} deleted")
    return "\n".join(lines) or "no small files to cluster"


def letters_text(counts: Sequence[LetterCount]) -> str:
    """A line for each kind of dead letters, and a last one with their number."""
    if not counts:
        return "no dead letters wait"
    rows = [("INSTANT", "KAFKA", "OFFSETS", "LETTERS", "STAGE", "FIELD", "EXPECTED")]
    for each in counts:
        offsets = f"{each.first_offset}-{each.last_offset}"
        kafka = f"{each.topic}:{each.partition}"
        rows.append((each.instant, kafka, offsets, str(each.letters), each.stage, each.field or "-", each.expected))
    withheld = sum(each.letters for each in counts if each.withheld)
    more = f", {withheld} of them without their bytes, because the pipeline masks fields" if withheld else ""
    return f"{_aligned(rows)}\ndead letters that wait: {sum(each.letters for each in counts)}{more}"


def letter_text(letter: DeadLetter) -> str:
    """One dead letter, on a line for what is wrong and one for each thing that Kafka had."""
    withheld = "not kept, because the pipeline masks fields"
    lines = [
        f"{letter.topic}:{letter.partition}:{letter.offset} of {time_text(letter.timestamp)}, "
        f"{letter.stage}: {letter.reason}",
        f"  key    {withheld if letter.withheld else preview(letter.key) or '-'}",
        f"  value  {withheld if letter.withheld else preview(letter.value) or '-'}",
    ]
    lines += [f"  header {name} = {preview(value)}" for name, value in letter.headers]
    return "\n".join(lines)


def retry_text(result: RetryResult) -> str:
    """What a retry came to, and why letters stay."""
    if not result.tried and not result.waiting:
        return "no dead letters wait"
    commits = "1 commit" if len(result.instants) == 1 else f"{len(result.instants)} commits"
    lines = [
        f"dead letters tried: {result.tried}, became rows: {result.rows}"
        + (f", filtered out: {result.filtered}" if result.filtered else "")
        + f", in {commits}; {result.waiting} wait"
    ]
    return "\n".join([*lines, *_why_letters_stay(result)])


def retry_survey_text(survey: RetrySurvey) -> str:
    """What a retry would come to, and why letters would stay."""
    if not survey.tried and not survey.withheld:
        return "no dead letters wait"
    transactions = "1 transaction" if survey.transactions == 1 else f"{survey.transactions} transactions"
    lines = [
        f"dead letters that would be tried: {survey.tried}, in {transactions}; {survey.rows} would become rows, "
        f"{survey.left_out} would be left out, {survey.bad} would stay"
    ]
    return "\n".join([*lines, *_why_letters_stay(survey)])


def _why_letters_stay(found: RetryResult | RetrySurvey) -> Iterator[str]:
    yield from (f"  - {each}" for each in found.reasons)
    if found.withheld:
        yield (
            f"{found.withheld} cannot be tried: their bytes were not kept, because the pipeline masks fields and "
            "dead_letters.keep_masked is not set. Read their offsets from Kafka again while it has them."
        )


def size_text(size: int) -> str:
    """Bytes as people read them, with a unit that leaves at least one digit before the point."""
    return f"{size / 1e6:,.1f} MB" if size >= 1_000_000 else f"{size / 1e3:,.1f} kB"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as their widest cell, the last one as it is."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows)


def kafka_text(file: TableFile) -> str:
    """`topic:partition` of a file's rows; from the file's own columns, else from its id; "several" when mixed."""
    if file.partitions is None:
        return f"?:{file.origin.partition}" if file.origin else "-"
    topics = file.topics or ("?", "?")
    if topics[0] != topics[1] or file.partitions[0] != file.partitions[1]:
        return "several"
    return f"{topics[0]}:{file.partitions[0]}"


def schema_facts(schema: TransactionSchema) -> dict[str, Any]:
    """A transaction's columns for programs: where they are from, what is found in records, and the table's."""
    facts = {
        "origin": schema.origin,
        "declared": schema.declared,
        "record": ddl(parse_spark_json(schema.record)),
        "changes": list(schema.changes),
        "warnings": list(schema.warnings),
    }
    return {"schema": facts, "columns": columns_to_dicts(parse_spark_json(schema.columns))}


def schema_text(schema: TransactionSchema) -> str:
    """A transaction's columns for people: where they are from, what changes, and what is a guess."""
    lines = [f"columns {schema.origin}"]
    if not schema.declared:
        lines.append(f"records are read as: {ddl(parse_spark_json(schema.record))}")
    lines += [f"the table's schema evolves: {each}" for each in schema.changes]
    lines += [f"warning: {each}" for each in schema.warnings]
    return "\n".join(lines)


def request_facts(request: Request, progress: RequestProgress) -> dict[str, Any]:
    """A request for programs."""
    return {
        "request": request.request_id,
        "pipeline": request.pipeline,
        "kind": request.kind.value,
        "state": request.state.value,
        "filed_at": request.filed_at.isoformat(),
        "ended_at": request.ended_at.isoformat() if request.ended_at else None,
        "ranges": [asdict(piece) for piece in request.ranges],
        "transactions": len(progress.commits),
        "offsets": sum(piece.count for piece in progress.done),
        "rows": progress.rows,
        "failed_tries": progress.failures,
        "reason": request.reason or progress.reason or None,
    }


def requests_view(requests: Sequence[tuple[Request, RequestProgress]]) -> RenderableType:
    """Requests for people, and why those that failed have, or are late."""
    table = Table("request", "filed, UTC", "state", "asked for", "done", "rows", box=None)
    reasons = []
    for request, progress in requests:
        table.add_row(
            request.request_id,
            f"{request.filed_at:%Y-%m-%d %H:%M:%S}",
            request.state.value,
            shown_slices(request.ranges) or "all dead letters",
            f"{sum(piece.count for piece in progress.done):,} in {len(progress.commits)} transactions",
            f"{progress.rows:,}",
        )
        reason = request.reason or (progress.reason if progress.failures else "")
        if reason:
            reasons.append(Text(f"{request.request_id}: {reason}"))
    return Group(table, *reasons)
