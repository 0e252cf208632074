"""Renders results for the terminal: tables of offsets, slices and transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hudi_ingest.exceptions.problems import counted, duration_text, listed
from hudi_ingest.hudi.timeline.timeline import TableFile, TableLogFile
from hudi_ingest.ledger import Request, RequestProgress
from hudi_ingest.model.counts import Counts
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.operations.audit import NEVER_EXAMINED, Audit
from hudi_ingest.operations.requests.allowed_ranges import shown_slices
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult, RetrySurvey
from hudi_ingest.operations.requests.replaced_files import ReplaySurvey
from hudi_ingest.operations.state import PipelineState
from hudi_ingest.operations.upkeep.partition_ttl import TtlResult
from hudi_ingest.operations.upkeep.recovery import Recovery, UnknownInstant
from hudi_ingest.operations.upkeep.sweep import SweepResult
from hudi_ingest.operations.upkeep.table_services import ServicesResult
from hudi_ingest.operations.validation import CheckedFiles
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.convert.converter import shortened
from hudi_ingest.records.schema.columns import ddl, ddl_type, parse_spark_json
from hudi_ingest.records.times import time_text
from hudi_ingest.transaction.dead_letters.log import DeadLetter, LetterCount, preview
from hudi_ingest.transaction.plan.arithmetic import SHOWN, leaderless_text

_SHOWN_PIPELINES = 20
_SHOWN_FAULTS = 20
_MOST_CHARACTERS = 200
"""The shown characters of a type."""
_MOST_OF_LINE = 1_000
"""Characters of a list of columns, or of a change: more than one screen of them hides the rest."""


def status_view(status: PipelineState) -> RenderableType:
    """Render a state for `status`."""
    # Not the table's title, which would break the path at the table's width.
    title = Text(f"{status.name} → {status.pipeline.table.base_path}", style="italic")
    offsets = _table("partition", ">committed", ">end", ">lag")
    stopped = {loss.source for loss in status.stopped}
    for partition in status.partitions:
        committed = "-" if partition.committed is None else f"{partition.committed:,}"
        end = ("?" if partition.lag is None else "-") if partition.end is None else f"{partition.end:,}"
        style = "red" if partition.source in stopped else None
        offsets.add_row(str(partition.source), committed, end, _count_text(partition.lag), style=style)
    offsets.add_row("all", "", "", _count_text(status.lag), style="bold")
    letters = [Text(f"pending dead letters: {status.dead_letters:,}")] if status.dead_letters else []
    broken = status.table if status.is_table_broken else None
    # Of a table that does not exist yet there is nothing to say.
    found = (broken, status.catalog, status.iceberg, status.compaction if status.sequence else None)
    findings = [Text(each.text, style="" if each.passed else "red") for each in found if each is not None]
    age = Text(age_text(status, datetime.now(timezone.utc)))
    unread = [Text(leaderless_text(status.leaderless), style="red")] if status.leaderless else []
    open_transactions = [Text(text, style="red") for text in undecided_texts(status)]
    change = status.schema_change
    approval = [Text(f"waits for approval: {change.sentence}", style="red")] if change else []
    switch = [] if status.activity == "?" else [Text(f"Dagster: {status.activity}")]
    return Group(
        title,
        *switch,
        offsets,
        age,
        *[Text(text) for text in complete_texts(status)],
        *unread,
        *open_transactions,
        *letters,
        *[
            Text(f"expectation {name}: {counted(count, 'record')} of all commits violate it")
            for name, count in status.violations.items()
            if count
        ],
        *findings,
        *approval,
        transactions_view(status),
    )


def summary_view(states: Sequence[PipelineState], now: datetime) -> Table:
    """Render a line for each pipeline."""
    table = _table("pipeline", "state", ">lag", ">oldest waiting", ">last commit", "look at")
    for status in states:
        look_at = [
            *(["the table"] if status.is_table_broken else []),
            *(["stopped partitions"] if status.stopped else []),
            *(["partitions without a leader"] if status.leaderless else []),
            *(["open transactions of producers"] if any(undecided_texts(status)) else []),
            *([counted(status.dead_letters, "dead letter")] if status.dead_letters else []),
            *(["a schema change"] if status.schema_change else []),
            *(["the catalog"] if status.catalog is not None and not status.catalog.passed else []),
            *(["Iceberg"] if status.iceberg is not None and not status.iceberg.passed else []),
            *(["compaction"] if status.compaction is not None and not status.compaction.passed else []),
        ]
        behind, committed = status.lag_seconds if status.lag else None, status.last_committed_at
        table.add_row(
            status.name,
            re.split("[:,]", status.activity)[0],
            _count_text(status.lag),
            "-" if behind is None else duration_text(behind),
            "-" if committed is None else f"{duration_text((now - committed).total_seconds())} ago",
            ", ".join(look_at),
            style="red" if status.stopped or status.error or status.is_table_broken else None,
        )
    return table


def _table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table; `>` in front of a column's name puts its cells to the right."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left")
    return table


def _count_text(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def by_error(errors: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each error once, after the names of its pipelines: a cluster that is away is an error of all that read it."""
    pipelines: dict[str, list[str]] = {}
    for pipeline, error in errors.items():
        pipelines.setdefault(error, []).append(pipeline)
    return [(listed(names, _SHOWN_PIPELINES), error) for error, names in pipelines.items()]


def age_text(status: PipelineState, now: datetime) -> str:
    """Say how old the last commit and the oldest waiting record are."""
    committed_at = status.last_committed_at
    commit = "nothing committed yet"
    if committed_at is not None:
        commit = f"last commit {duration_text((now - committed_at).total_seconds())} ago, at {committed_at:%Y-%m-%d %H:%M:%S} UTC"
    if status.lag is None:
        return f"{commit}; the number of waiting records is unknown"
    if not status.lag:
        return f"{commit}; no records are waiting"
    if status.lag_seconds is None:
        return f"{commit}; the age of the oldest waiting record is unknown"
    return f"{commit}; the oldest waiting record is {duration_text(status.lag_seconds)} old"


def complete_texts(status: PipelineState) -> Iterator[str]:
    """Say through which Kafka timestamp the table is complete, and which partitions hold it back; nothing without any timestamp."""
    through, observed = status.complete_through, status.observed_through
    back = (
        f"; {listed(status.holding_back, SHOWN)} hold{'s' if len(status.holding_back) == 1 else ''} it back"
        if status.holding_back
        else ""
    )
    if through is not None:
        yield f"complete through {through:%Y-%m-%d %H:%M:%S} UTC{back}"
    elif any(partition.complete.through is not None for partition in status.partitions):
        yield f"complete through no time{back}"
    elif observed is not None:
        yield (
            f"records observed through {observed:%Y-%m-%d %H:%M:%S} UTC; earlier ones may still come, as producers set the timestamps and "
            "source.lateness_seconds does not say how late"
        )


def undecided_texts(status: PipelineState) -> Iterator[str]:
    """Explain why records after a partition's end are not read, a sentence for each partition."""
    for partition in status.partitions:
        if partition.undecided:
            yield (
                f"{partition.undecided.source} has {counted(partition.undecided.count, 'offset')} from "
                f"{partition.undecided.start:,} on that are not readable yet: a producer has a transaction open there. If this "
                "stays, its producer hangs: find it with kafka-transactions.sh find-hanging and abort it, or wait for its "
                "transaction.timeout.ms."
            )


def transaction_notes(status: PipelineState) -> Iterator[str]:
    """Explain aborted and dead transactions, a line each, but one for those that were aborted for the same reason."""
    aborted: dict[str, list[str]] = {}
    for row in status.transactions:
        if row.transaction_id in status.dead:
            yield f"{row.transaction_id} is dead: {row.owner} is gone, or past its deadline. The next begin clears it."
        elif row.reason:
            lines = [line.strip().removeprefix("- ") for line in row.reason.splitlines()[:2]]
            aborted.setdefault(" ".join(lines), []).append(row.transaction_id)
    for reason, ids in aborted.items():
        yield f"{listed(ids, len(ids))} {'was' if len(ids) == 1 else 'were'} aborted: {reason}"


def transactions_view(status: PipelineState) -> RenderableType:
    rows = status.transactions
    if not rows:
        return Text("no transactions in the ledger yet")
    columns = ("transaction", "state", "instant", ">rows", ">files", ">size", ">seconds")
    table = _table(*columns, title="last transactions")
    for row in rows:
        seconds = ((row.ended_at or datetime.now(timezone.utc)) - row.began_at).total_seconds()
        table.add_row(
            row.transaction_id,
            "dead" if row.transaction_id in status.dead else row.state.value,
            row.instant or "-",
            "-" if row.rows is None else f"{row.rows:,}",
            "-" if row.files is None else str(row.files),
            "-" if row.size_bytes is None else size_text(row.size_bytes),
            f"{seconds:.1f}",
        )
    return Group(table, *(Text(note) for note in transaction_notes(status)))


def slices_view(title: str, slices: Sequence[Slice]) -> RenderableType:
    title = f"{title}: {counted(sum(each.count for each in slices), 'offset')}"
    table = _table("partition", ">start", ">end", ">offsets", title=title)
    for slice_ in slices:
        table.add_row(str(slice_.source), f"{slice_.start:,}", f"{slice_.end:,}", f"{slice_.count:,}")
    return table


def columns_view(columns: pa.Schema) -> RenderableType:
    """Render a table's columns and their types; a long type is cut, and --json shows all of it."""
    table = _table("column", "type", "null", title="columns of the table")
    for column in columns:
        kind = shortened(ddl_type(column.type), _MOST_CHARACTERS)
        table.add_row(column.name, Text(kind), "may be" if column.nullable else "never")
    return table


def replay_text(survey: ReplaySurvey) -> str:
    """Say what a replay costs, and which deleted rows it would bring back."""
    if survey.upserts:
        return (
            "transactions: 1\nThe table is keyed: these changes are applied again, and no file is replaced. Rows that they do "
            "not touch stay."
        )
    whole_files = [file for file in survey.replaces if not file.kept]
    lines = [
        f"transactions: {survey.transactions}",
        f"files replaced whole: {len(whole_files)}, {size_text(sum(file.size_bytes for file in whole_files))}, "
        f"{sum(file.rows for file in whole_files):,} rows",
        f"files rewritten, because they hold other ranges' rows too: {len(survey.rewritten)}, "
        f"{size_text(sum(file.size_bytes for file in survey.rewritten))}, "
        f"{sum(file.rows for file in survey.rewritten):,} rows replaced, "
        f"{sum(file.kept for file in survey.rewritten):,} rows copied",
        f"rows deleted since they were ingested: {survey.missing.deleted:,}"
        + (", which come back unless --respect-deletes is given" if survey.missing.deleted else ""),
    ]
    if survey.missing.unknown:
        lines.append(
            f"offsets without a row that may or may not have had one: {survey.missing.unknown:,} (their commits are "
            "archived, or only partly in the range)"
        )
    return "\n".join(lines)


def receipt_text(receipt: CommitReceipt) -> str:
    seconds = ", ".join(f"{phase} {value:.1f} s" for phase, value in receipt.seconds.items())
    return (
        f"committed {receipt.plan.transaction_id} as instant {receipt.instant}: {written_text(receipt)} in "
        f"{counted(receipt.files, 'file')}, {size_text(receipt.size_bytes)} ({seconds})"
        + (
            f"; {counted(receipt.rejected, 'bad record')}, such as {receipt.bad_records[0]}"
            if receipt.bad_records
            else ""
        )
        + (f"; {receipt.fields.text}" if receipt.fields is not None and receipt.fields.text else "")
    )


def written_text(receipt: CommitReceipt) -> str:
    """Count the rows, or the changes of a keyed table: of those of one key only the last is written."""
    if not any(report.log_files for report in receipt.reports):
        return counted(receipt.rows, "row")
    counts = Counts.total(receipt.reports)
    parts = [
        *([f"{counts.deletes:,} of them deletes"] if counts.deletes else []),
        *([f"{counts.superseded:,} replaced by later ones of their keys"] if counts.superseded else []),
    ]
    return f"{counted(receipt.rows, 'change')}{f' ({listed(parts, 2)})' if parts else ''}"


def recovery_text(recovery: Recovery) -> str:
    """Say what the recovery found and changed, a line each."""
    lines = [
        f"{recovery.pipeline}: the table's active timeline has {counted(recovery.committed, 'transaction')} of this pipeline",
        f"ledger: {f'restored {len(recovery.restored)}: ' if recovery.restored else 'up to date, nothing changed'}"
        + ", ".join(recovery.restored),
    ]
    if recovery.listed is not None:
        lines.append(
            f"metadata table: built again; it lists {counted(recovery.listed, 'live file')}, all that the commits name among them"
        )
    moves = [
        f"{source} {'none' if old is None else old} → {new}" for source, (old, new) in sorted(recovery.moved.items())
    ]
    lines.append(f"consumer group {recovery.group}: {', '.join(moves) or 'up to date, nothing changed'}")
    if recovery.open_transaction:
        lines.append(f"{recovery.open_transaction} is open in the ledger; the next begin waits for it or clears it")
    for instant in recovery.unknown:
        lines.append(
            f"instant {instant.instant} of {instant.transaction_id} is open and not in this ledger: {_fate(instant)}"
        )
    return "\n".join(lines)


def _fate(instant: UnknownInstant) -> str:
    if instant.rolled_back:
        return "rolled back"
    if not instant.leased:
        return "its lease has expired, so the next begin rolls it back"
    return f"it may still be running; the first begin after {instant.expires_at:%H:%M:%S} UTC rolls it back, or --roll-back does so now"


def files_text(files: Sequence[TableFile], log_files: Sequence[TableLogFile] = ()) -> str:
    """List files, a line each, aligned: paths are too long for a table in a terminal."""
    if not files and not log_files:
        return "no files"
    rows = [("KAFKA", "OFFSETS", "ROWS", "SIZE", "INSTANT", "FILE")]
    for file in files:
        offsets = f"{file.offsets[0]}-{file.offsets[1]}" if file.offsets else "-"
        rows.append((kafka_text(file), offsets, str(file.rows), size_text(file.size_bytes), file.instant, file.path))
    rows += [("-", "-", "-", size_text(file.size_bytes), file.instant, file.path) for file in log_files]
    return _aligned(rows)


def sweep_text(result: SweepResult) -> str:
    """List the orphans of a sweep, a line each, and end with what was done."""
    hours = f"{result.safe_age.total_seconds() / 3600:g} h"
    problem = [f"PROBLEM: {result.problem}"] if result.problem else []
    if not result.orphans:
        return "\n".join([*_kept_lines(result), f"no orphans older than {hours} in {result.base_path}", *problem])
    facts = [
        {**row, "kafka": "" if row["kafka_partition"] is None else f"?:{row['kafka_partition']}"}
        for row in result.rows()
    ]
    outcome = "deleted" if result.deleted else "would be deleted with --delete"
    found = f"{len(result.orphans)} older than {hours}, {result.size_bytes / 1e6:.1f} MB: {outcome}"
    return "\n".join([*_kept_lines(result), _facts_text(_SWEPT, facts), found, *problem])


_KEPT = {"bytes": "BYTES", "age_hours": "AGE H", "instant": "INSTANT"}
_SWEPT = {"kafka": "KAFKA", "first_offset": "FROM OFFSET", **_KEPT, "why": "WHY", "path": "FILE"}
"""Titles of columns, by the name of the fact."""


def _kept_lines(result: SweepResult) -> list[str]:
    """The files that stay although the table does not list them."""
    if not result.kept:
        return []
    count = f"{counted(len(result.kept), 'file')} not in the table's listing and left alone"
    return [_facts_text({**_KEPT, "why": "WHY KEPT", "path": "FILE"}, result.kept_rows()), f"{count}\n"]


def services_text(result: ServicesResult) -> str:
    """Say what was clustered, compacted and cleaned, a line each."""
    lines = [
        f"compaction {compaction.instant}: {counted(compaction.log_files, 'log file')}, {size_text(compaction.log_bytes)}, merged "
        f"into {counted(compaction.file_groups, 'base file')}, {counted(compaction.rows, 'row')}, "
        f"{size_text(compaction.size_bytes)}"
        for compaction in result.compactions
    ]
    lines += [
        f"clustering {clustering.instant}: {counted(clustering.replaced, 'file')} became {clustering.written}, {counted(clustering.rows, 'row')}, "
        f"{size_text(clustering.size_bytes)}"
        for clustering in result.clusterings
    ]
    if result.cleaned is not None:
        lines.append(f"cleaning: {counted(result.cleaned, 'replaced file')} deleted")
    return "\n".join(lines) or "nothing to merge"


def ttl_text(result: TtlResult) -> str:
    lines = _aligned(
        [
            (partition.path, size_text(partition.size_bytes), f"ended {partition.ended_at:%Y-%m-%d %H:%M} UTC")
            for partition in result.expired
            if partition.ended_at is not None
        ]
    )
    what = f"{len(result.expired)} of {len(result.expired) + result.kept} partitions are older than {result.days} days"
    done = f", dropped by {result.instant}" if result.instant else ""
    unknown = [f"age unknown, kept: {', '.join(result.unknown)}"] if result.unknown else []
    return "\n".join([*([lines] if result.expired else []), f"{what}{done}", *unknown])


def audit_text(found: Audit) -> str:
    """Say what was examined, name all problems and the first faults, all that was not examined, and up to which offsets the rest is
    right."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.counts.items())
    examined = (
        f"{counted(found.files, 'file')} with {counted(found.rows, 'row')} ({found.certified:,} certified) and "
        f"{counted(found.records, 'record')}"
    )
    all_right = "no offset is lost, doubled, moved or altered" if found.is_whole else "no fault in what was examined"
    through = ", ".join(f"{source} up to {offset}" for source, offset in found.through.items())
    return "\n".join(
        [
            f"{examined}: {f'faults: {kinds}' if kinds else all_right}",
            *(f"wrong: {text}" for text in found.problems),
            *(str(fault) for fault in found.faults[:_SHOWN_FAULTS]),
            *(
                [f"… and {len(found.faults) - _SHOWN_FAULTS} more: --json has all"]
                if found.faults[_SHOWN_FAULTS:]
                else []
            ),
            *(f"note: {text}" for text in found.notes),
            *(f"not examined: {text}" for text in found.unexamined),
            f"never examined: {NEVER_EXAMINED}",
            f"as it was written: {through or 'nothing'}",
        ]
    )


def letters_text(counts: Sequence[LetterCount]) -> str:
    """List each kind of dead letter on a line, and end with the total."""
    if not counts:
        return "no pending dead letters"
    rows = [("INSTANT", "KAFKA", "OFFSETS", "LETTERS", "STAGE", "FIELD", "EXPECTED")]
    for count in counts:
        offsets = f"{count.first_offset}-{count.last_offset}"
        kafka = f"{count.topic}:{count.partition}"
        rows.append(
            (count.instant, kafka, offsets, str(count.letters), count.stage, count.field or "-", count.expected)
        )
    withheld = sum(count.letters for count in counts if count.withheld)
    note = f", {withheld} of them without their bytes, because the pipeline masks fields" if withheld else ""
    return f"{_aligned(rows)}\npending dead letters: {sum(count.letters for count in counts)}{note}"


def letter_text(letter: DeadLetter) -> str:
    """Show one dead letter: a line for its error, then one each for its key, value and headers."""
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
    """Say what a retry achieved, and why letters remain."""
    if not result.tried and not result.waiting:
        return "no pending dead letters"
    lines = [
        f"dead letters retried: {result.tried}, became rows: {result.rows}"
        + (f", filtered out: {result.filtered}" if result.filtered else "")
        + f", in {counted(len(result.instants), 'commit')}; {result.waiting} still pending"
    ]
    return "\n".join([*lines, *_why_letters_remain(result)])


def retry_survey_text(survey: RetrySurvey) -> str:
    """Say what a retry would achieve, and why letters would remain."""
    if not survey.tried and not survey.withheld:
        return "no pending dead letters"
    lines = [
        f"dead letters to retry: {survey.tried}, in {counted(survey.transactions, 'transaction')}; {survey.rows} would become rows, "
        f"{survey.left_out} would be left out, {survey.bad} would stay"
    ]
    return "\n".join([*lines, *_why_letters_remain(survey)])


def _why_letters_remain(result: RetryResult | RetrySurvey) -> Iterator[str]:
    yield from (f"  - {reason}" for reason in result.reasons)
    if result.withheld:
        yield (
            f"{result.withheld} cannot be retried: their bytes were not kept, because the pipeline masks fields and "
            "dead_letters.keep_masked is not set. Read their offsets from Kafka again while it still has them."
        )


def size_text(size: int) -> str:
    """Format bytes with a unit that leaves at least one digit before the point."""
    return f"{size / 1e6:,.1f} MB" if size >= 1_000_000 else f"{size / 1e3:,.1f} kB"


def _facts_text(titles: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Show a row's facts by the names in `titles`, with "-" for one that is missing."""
    cells = (tuple("-" if row[name] in (None, "") else str(row[name]) for name in titles) for row in rows)
    return _aligned([(*titles.values(),), *cells])


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Pad every column but the last to its widest cell."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows)


def kafka_text(file: TableFile) -> str:
    """Return `topic:partition` of a file's rows, from its columns or else its id; "several" when mixed."""
    if file.partitions is None:
        return f"?:{file.origin.partition}" if file.origin else "-"
    topics = file.topics or ("?", "?")
    if topics[0] != topics[1] or file.partitions[0] != file.partitions[1]:
        return "several"
    return f"{topics[0]}:{file.partitions[0]}"


def schema_text(schema: TransactionSchema) -> str:
    """Describe a transaction's columns for people: their origin, the changes, and the guesses. Long lines are cut; --json shows all
    of them."""
    lines = [f"columns {schema.origin}"]
    if not schema.declared:
        lines.append(f"records are read as: {ddl(parse_spark_json(schema.record))}")
    lines += [f"the table's schema evolves: {note}" for note in schema.changes]
    lines = [shortened(line, _MOST_OF_LINE) for line in lines]
    return "\n".join([*lines, *(f"warning: {note}" for note in schema.warnings)])


def requests_view(requests: Sequence[tuple[Request, RequestProgress]]) -> RenderableType:
    """Render requests, and why any failed or are delayed."""
    table = Table("request", "filed, UTC", "state", "requested", "done", "rows", box=None)
    reasons = []
    for request, progress in requests:
        table.add_row(
            request.request_id,
            f"{request.filed_at:%Y-%m-%d %H:%M:%S}",
            request.state.value,
            shown_slices(request.ranges) or "all dead letters",
            f"{sum(slice_.count for slice_ in progress.done):,} in {counted(len(progress.commits), 'transaction')}",
            f"{progress.rows:,}",
        )
        reason = request.reason or (progress.reason if progress.failures else "")
        if reason:
            reasons.append(Text(f"{request.request_id}: {reason}"))
    return Group(table, *reasons)


def checked_lines(found: CheckedFiles) -> Iterator[str]:
    """Yield what services say of checked files, and the columns of those that are valid."""
    for name, check in found.online.items():
        yield from (f"{name}: {line}" for line in (*check.facts, *check.changes))
    yield from (f"{name}: ok; {pipelines_text(pipelines)}" for name, pipelines in found.valid.items())


def pipelines_text(pipelines: Sequence[Pipeline]) -> str:
    """Show a valid file: its columns or, for a template, its pipelines."""
    from hudi_ingest.transaction.columns.schema_change import source_text

    if len(pipelines) == 1:
        return f"columns {source_text(pipelines[0])}"
    if not pipelines:
        return "a template that has seen no topic yet; `hudi-ingest topics NAME --refresh` lists the broker's"
    lines = [
        f"  {pipeline.source.topics_text} → {pipeline.name}, table {pipeline.table.base_path}" for pipeline in pipelines
    ]
    more = [f"  and {len(lines) - _SHOWN_PIPELINES} more"] if len(lines) > _SHOWN_PIPELINES else []
    return "\n".join([f"a template of {len(pipelines)} pipelines", *lines[:_SHOWN_PIPELINES], *more])
