"""Judge a pipeline's health: each finding answers one question, and says what to do if the answer is no.

Pure: takes the state of table and broker at one moment. The questions are the table's asset checks in Dagster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType

from hudi_ingest.exceptions.problems import counted, duration_text, listed
from hudi_ingest.hudi.files.live_files import hidden_text
from hudi_ingest.hudi.files.read_amplification import (
    DAY_SECONDS,
    read_amplification,
    small_files,
    small_files_warning,
    why_due,
)
from hudi_ingest.hudi.iceberg.waiting import waiting_commits
from hudi_ingest.hudi.services.catalog_state import CatalogState
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.ledger import TransactionRow
from hudi_ingest.model.accounting import Accounting, contradictions
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.complete_through import BROKER_TIME_SECONDS
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.model.offsets import TopicPartition, length
from hudi_ingest.model.plan import OffsetLoss
from hudi_ingest.model.report import FieldsSeen
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.times import time_text
from hudi_ingest.transaction.checks import lost_text
from hudi_ingest.transaction.plan.arithmetic import SHOWN, leaderless_text, sources_text, stop_text

OFFSETS_HONOURED = "offsets_honoured"
LAG_BELOW_LIMIT = "lag_below_limit"
UP_TO_DATE = "up_to_date"
RUNS_SUCCEED = "runs_succeed"
ACCOUNTING_HOLDS = "accounting_holds"
FILES_LARGE_ENOUGH = "files_large_enough"
DEAD_LETTERS = "dead_letters"
CATALOG_SYNCED = "catalog_synced"
ICEBERG_UP_TO_DATE = "iceberg_up_to_date"
COMPACTED_IN_TIME = "compacted_in_time"
NOTHING_LATE = "nothing_late"
EXPECTATION = "expect_"
"""How the names of checks of expectations begin."""

QUESTIONS = {
    OFFSETS_HONOURED: "Fails while a partition is stopped because the broker no longer has its committed offset.",
    LAG_BELOW_LIMIT: "Fails while the lag exceeds asset.max_lag, by default the records of two transactions, unless the pipeline is paused.",
    UP_TO_DATE: "Fails while records have waited longer than asset.late_after_seconds and nothing was committed meanwhile, unless "
    "the pipeline is paused.",
    RUNS_SUCCEED: "Fails while the newest runs since the last commit failed; a single failed run is a warning.",
    ACCOUNTING_HOLDS: "Fails if the commits on the timeline do not account for every offset, if their ranges are not contiguous, or if the "
    "table does not list a live file of theirs, so that readers do not see its rows.",
    FILES_LARGE_ENOUGH: "Fails if the commits create more than 15,000 small files a day, at the pace of those on the active timeline.",
    DEAD_LETTERS: "Fails while dead letters are pending, or the last transaction had bad records and committed without them, or "
    "no value for a column though its records have a field of nearly that name.",
}
"""The description of each check of every table."""
CATALOG_QUESTION = (
    "Fails while the catalog does not have the table's newest columns and partitions, a minute after their commit."
)
ICEBERG_QUESTION = "Fails while Iceberg's readers lack a commit of two minutes ago (plus `table.iceberg.every_seconds`), or a try failed."
COMPACTION_QUESTION = (
    "Fails while uncompacted changes exceed a limit of table.compaction twice over: queries become slower and slower."
)
LATE_QUESTION = (
    "Fails while the active timeline has commits of records that were later than source.lateness_seconds: their Kafka timestamps are "
    "before a time through which the table was complete already."
)
NOTHING_UNLISTED: Mapping[str, str] = MappingProxyType({})
ABOUT_COMMITS = (ACCOUNTING_HOLDS, FILES_LARGE_ENOUGH, DEAD_LETTERS)
"""Checks whose answer changes only with commits; their figure `transaction` names the last one considered."""
LAG_RECORDS, LAG_SECONDS, COMMIT_AGE = "lag (records)", "lag (seconds)", "seconds since the last commit"
"""Names of figures; commits have the lag under the same names, so Dagster plots them together."""
CLOCK_SECONDS = 60
"""Tolerated difference between two machines' clocks, in seconds."""
CATALOG_SECONDS = 60
"""How long after a commit the catalog may lack what it brought, in seconds."""


def questions(pipeline: Pipeline) -> dict[str, str]:
    """Return the description of each check of the pipeline's table."""
    return {
        **QUESTIONS,
        **({CATALOG_SYNCED: CATALOG_QUESTION} if pipeline.catalog else {}),
        **({ICEBERG_UP_TO_DATE: ICEBERG_QUESTION} if pipeline.table.iceberg else {}),
        **({COMPACTED_IN_TIME: COMPACTION_QUESTION} if pipeline.table.is_keyed else {}),
        **({NOTHING_LATE: LATE_QUESTION} if pipeline.declares_complete else {}),
        **{
            f"{EXPECTATION}{each.name}": f"Fails if records of the last transaction violate the expectation `{each.condition}`."
            for each in pipeline.expectations
        },
    }


def offsets_honoured(pipeline: Pipeline, stopped: Sequence[OffsetLoss]) -> Finding:
    """Check that the broker has every committed offset. `stopped`: losses that have not been accepted."""
    text = stop_text(pipeline.name, stopped) or "The broker holds every committed offset."
    return answer(pipeline.name, OFFSETS_HONOURED, not stopped, text, {"stopped": sources_text(stopped)})


def _paused_text(pipeline: Pipeline, waiting: int) -> str:
    return f"{counted(waiting, 'offset')} waiting; the pipeline is paused: `hudi-ingest resume {pipeline.name}` turns it on."


def lag_below_limit(pipeline: Pipeline, waiting: int, paused: bool = False) -> Finding:
    """Check the lag. `waiting`: offsets between the committed ones and the broker's ends; `paused`: whether the pipeline
    is paused."""
    limit = pipeline.max_lag
    figures: dict[str, int | float | str] = {LAG_RECORDS: waiting, "limit": f"{limit:,} records"}
    if waiting <= limit:
        return answer(
            pipeline.name,
            LAG_BELOW_LIMIT,
            True,
            f"{counted(waiting, 'offset')} waiting; the limit is {limit:,}.",
            figures,
        )
    if paused:
        return answer(pipeline.name, LAG_BELOW_LIMIT, True, _paused_text(pipeline, waiting), figures)
    text = (
        f"{counted(waiting, 'offset')} waiting; the limit is {limit:,} (asset.max_lag). Check that the ticks of "
        f"{pipeline.coordinator} launch runs and that the runs succeed: if not, they say why. If they do, records arrive "
        "faster than they are ingested: raise transaction.max_records, or give the engine more cores."
    )
    return answer(pipeline.name, LAG_BELOW_LIMIT, False, text, figures, warns=True)


def late_after(pipeline: Pipeline, last_seconds: float) -> float:
    """Return the seconds that may pass between two commits while records wait. `last_seconds`: how long the last transaction
    took; the next one may take as long."""
    default = 60 + 2 * pipeline.transaction.interval_seconds + 2 * last_seconds
    return pipeline.asset.late_after_seconds or default


def up_to_date(
    pipeline: Pipeline,
    waiting: int,
    committed: CommittedState,
    now: datetime,
    oldest_seconds: float | None = None,
    busy: str = "",
    paused: bool = False,
) -> Finding:
    """Check that waiting records are committed in time. `oldest_seconds`: how long the oldest record has waited; if None
    (unknown), records count as waiting since the last commit. `busy`: what is running now, as text; `paused`: as for the lag."""
    began_at, committed_at = committed.last_began_at, committed.last_committed_at
    if began_at is None or committed_at is None:
        return answer(
            pipeline.name, UP_TO_DATE, True, f"{counted(waiting, 'offset')} waiting for the table's first transaction."
        )
    age, limit = (now - committed_at).total_seconds(), late_after(pipeline, (committed_at - began_at).total_seconds())
    figures: dict[str, int | float | str] = {COMMIT_AGE: round(age, 1)}
    if oldest_seconds is not None:
        figures[LAG_SECONDS] = round(oldest_seconds, 1)
    if waiting < pipeline.transaction.min_records:
        limit += pipeline.transaction.max_wait_seconds
    if age < -CLOCK_SECONDS:
        text = (
            f"The last commit was at {committed_at:%Y-%m-%d %H:%M:%S} UTC, but it is only {now:%Y-%m-%d %H:%M:%S} now: a clock was "
            f"{-age:,.0f} s fast, or is slow now. Set the clocks of the engine's machine and of Dagster's. If a transaction "
            "cannot begin before that time, its error says so, and what to do."
        )
        return answer(pipeline.name, UP_TO_DATE, False, text, figures)
    if not waiting:
        return answer(pipeline.name, UP_TO_DATE, True, "No records are waiting.", figures)
    if paused:
        return answer(pipeline.name, UP_TO_DATE, True, _paused_text(pipeline, waiting), figures)
    if age <= limit:
        text = f"The last commit was {age:,.0f} s ago; the limit is {limit:,.0f} s."
        return answer(pipeline.name, UP_TO_DATE, True, text, figures)
    if oldest_seconds is not None and oldest_seconds <= limit:
        text = f"{counted(waiting, 'offset')} waiting, the oldest for {oldest_seconds:,.0f} s; the limit is {limit:,.0f} s."
        return answer(pipeline.name, UP_TO_DATE, True, text, figures)
    oldest = "" if oldest_seconds is None else f", the oldest for {oldest_seconds:,.0f} s"
    activity = busy or f"The ticks of {pipeline.coordinator} say why no run is launched"
    text = (
        f"{counted(waiting, 'offset')} waiting{oldest}, and the last commit was {age:,.0f} s ago, at {committed_at:%Y-%m-%d %H:%M:%S} "
        f"UTC; the limit is {limit:,.0f} s (asset.late_after_seconds). {activity[0].upper()}{activity[1:]}. See why "
        f"the newest runs of asset {pipeline.name} failed or hang."
    )
    return answer(pipeline.name, UP_TO_DATE, False, text, figures)


def held_by_producers(
    pipeline: Pipeline,
    through: datetime | None,
    sources: Sequence[TopicPartition],
    committed: CommittedState,
    now: datetime,
) -> Finding | None:
    """Answer that the table is behind although all that can be read is committed: producers have had transactions open for long. None
    if it is not. `through`: the time through which the table is complete; `sources`: partitions with open transactions."""
    began_at, committed_at = committed.last_began_at, committed.last_committed_at
    if through is None or not sources or began_at is None or committed_at is None:
        return None
    limit = late_after(pipeline, (committed_at - began_at).total_seconds()) + lateness_seconds(pipeline)
    behind = (now - through).total_seconds()
    if behind <= limit:
        return None
    text = (
        f"The table is complete only through {through:%Y-%m-%d %H:%M:%S} UTC, {behind:,.0f} s ago; the limit is {limit:,.0f} s. In "
        f"{listed(sources, SHOWN)} producers have transactions open, and nothing after their first records can be read. `hudi-ingest "
        f"status {pipeline.name}` says how to find and end them."
    )
    return answer(pipeline.name, UP_TO_DATE, False, text, {"seconds behind": round(behind, 1)})


def not_fresh(
    pipeline: Pipeline, through: datetime | None, held_by: Sequence[TopicPartition], now: datetime
) -> Finding | None:
    """Answer that the table is complete only through a time that is longer ago than asset.fresh_within_seconds allows. None if it is
    not, or the file does not declare both. `through`: None if it is complete through no time; `held_by`: the partitions that hold it back."""
    allowed = pipeline.asset.fresh_within_seconds
    if allowed is None or not pipeline.declares_complete:
        return None
    limit = allowed + lateness_seconds(pipeline)
    behind = None if through is None else (now - through).total_seconds()
    if behind is not None and behind <= limit:
        return None
    since = "no time" if through is None else f"{through:%Y-%m-%d %H:%M:%S} UTC"
    ago = "" if behind is None else f", {behind:,.0f} s ago"
    held = f" {listed(held_by, SHOWN)} hold{'s' if len(held_by) == 1 else ''} it back." if held_by else ""
    text = (
        f"The table is complete only through {since}{ago}; the limit is {limit:,.0f} s: asset.fresh_within_seconds and the lateness of "
        f"records.{held} `hudi-ingest status {pipeline.name}` says what waits there, and what to do."
    )
    return answer(
        pipeline.name, UP_TO_DATE, False, text, {} if behind is None else {"seconds behind": round(behind, 1)}
    )


def lateness_seconds(pipeline: Pipeline) -> float:
    """Return how late records may be, of topics with the broker's timestamps if the file does not say."""
    declared = pipeline.source.lateness_seconds
    return BROKER_TIME_SECONDS if declared is None else declared


def without_leader(pipeline: Pipeline, leaderless: Sequence[TopicPartition]) -> Finding:
    """Answer that it is unknown whether these partitions are up to date."""
    return answer(pipeline.name, UP_TO_DATE, False, leaderless_text(leaderless))


def runs_succeed(pipeline: Pipeline, failed: int, newest_run: str = "", error: str = "") -> Finding:
    """Check the runs since the last commit. `failed`: how many of the newest failed in a row; `error`: why the newest did."""
    figures: dict[str, int | float | str] = {"failed runs in a row": failed, "newest failed run": newest_run}
    if not failed:
        return answer(pipeline.name, RUNS_SUCCEED, True, "No run has failed since the last commit.", figures)
    runs = "The last run" if failed == 1 else f"The last {failed} runs"
    text = (
        f"{runs} of {pipeline.name} failed, the newest is {newest_run[:8]}: {error or 'its page says why.'}\n\nThe sensor "
        "retries on its own, at longer intervals after several failures. To retry at once, change the pipeline file, click "
        f"Materialize on the asset's page, or run `hudi-ingest run {pipeline.name}`."
    )
    return answer(pipeline.name, RUNS_SUCCEED, False, text, figures, warns=failed == 1)


def accounting_holds(
    pipeline: Pipeline,
    checkpoint: Checkpoint | None,
    commits: Sequence[CommittedInstant],
    unlisted: Mapping[str, str] = NOTHING_UNLISTED,
    lost: Sequence[TransactionRow] = (),
) -> Finding:
    """Check promises 1 and 2 against the table itself. `commits`: the pipeline's own on the active timeline; `unlisted`: live files that
    the table does not list, with their instants; `lost`: transactions that only the ledger has."""
    published = sorted(
        ((commit.accounting(pipeline.transaction_key), commit.rows) for commit in commits),
        key=lambda account_and_rows: account_and_rows[0].sequence,
    )
    accountings = [accounting for accounting, _ in published]
    offsets = sum(account.slice.count for accounting in accountings for account in accounting.slices)
    # From the checkpoint, which counts from the beginning: sums over the active timeline drop whenever commits are archived.
    figures: dict[str, int | float | str] = {
        "transactions": checkpoint.sequence if checkpoint else 0,
        "offsets": _read_offsets(checkpoint),
        "transaction": checkpoint.transaction_id if checkpoint else "",
    }
    errors = [*_unaccounted(published), *_untiled(accountings)]
    if checkpoint is not None:
        errors += map(str, contradictions(checkpoint, reversed(accountings)))
    if unlisted:
        figures["live files not listed"] = len(unlisted)
    if not errors and not unlisted and not lost:
        older = (
            "; older ones are archived, and were checked before" if accountings and accountings[0].sequence > 1 else ""
        )
        numbers = f"{accountings[0].sequence:,} to {accountings[-1].sequence:,} " if accountings else ""
        text = (
            f"Transactions {numbers}are on the active timeline. They account for each of their {offsets:,} offsets, and their "
            f"ranges are contiguous{older}."
            if accountings
            else "There are no transactions on the active timeline."
        )
        return answer(pipeline.name, ACCOUNTING_HOLDS, True, text, figures)
    text = " ".join(_broken(pipeline, errors, unlisted, lost))
    return answer(pipeline.name, ACCOUNTING_HOLDS, False, text, figures)


def _broken(
    pipeline: Pipeline, errors: Sequence[str], unlisted: Mapping[str, str], lost: Sequence[TransactionRow]
) -> Iterator[str]:
    if unlisted:
        yield hidden_text(pipeline.name, pipeline.table.base_path, unlisted)
    if lost:
        yield lost_text(lost)
    if errors:
        yield (
            f"{'; '.join(errors[:5])}{f'; and {len(errors) - 5} more' if errors[5:] else ''}. Pause it with `hudi-ingest pause "
            f"{pipeline.name}`, find out what changed the table's timeline, and restore the table to an earlier savepoint. The next transaction "
            "continues from the checkpoint that the table then has."
        )


def files_large_enough(
    pipeline: Pipeline, checkpoint: Checkpoint | None, commits: Sequence[CommittedInstant]
) -> Finding:
    """Check how many small files the commits make. `commits`: the pipeline's own on the active timeline."""
    last = max(commits, key=lambda commit: commit.instant, default=None)
    sizes = last.files if last else {}
    figures: dict[str, int | float | str] = {
        "files": len(sizes),
        "small files": len(small_files(sizes, pipeline.table.target_file_bytes)),
        "transaction": checkpoint.transaction_id if checkpoint else "",
    }
    a_day = _small_files_a_day(pipeline, checkpoint, commits)
    warning = small_files_warning(pipeline, sizes, a_day)
    text = f"{figures['small files']} of the last commit's {len(sizes)} files are small."
    if a_day is not None:
        text += f" The commits make {a_day:,.0f} a day."
    return answer(pipeline.name, FILES_LARGE_ENOUGH, not warning, warning or text, figures, warns=True)


def _small_files_a_day(
    pipeline: Pipeline, checkpoint: Checkpoint | None, commits: Sequence[CommittedInstant]
) -> float | None:
    """How many small files the newest day of the timeline made, or would at the pace of the part that it still has. None if it
    has too little to say."""
    times = sorted(commit.completed_at for commit in commits)
    if not times:
        return None
    seconds = (times[-1] - times[0]).total_seconds()
    is_whole = checkpoint is not None and checkpoint.sequence <= len(commits)
    if not is_whole and not seconds:
        return None
    # Of a part of the history, the first commit marks only where the time begins in which the others came.
    since = times[-1] - timedelta(seconds=DAY_SECONDS) if is_whole or seconds >= DAY_SECONDS else times[0]
    newest = [commit for commit in commits if commit.completed_at > since]
    made = sum(len(small_files(commit.files, pipeline.table.target_file_bytes)) for commit in newest)
    return made if is_whole else made * DAY_SECONDS / min(seconds, DAY_SECONDS)


def dead_letters(
    pipeline: Pipeline, checkpoint: Checkpoint | None, last_rejected: int, last_fields: FieldsSeen | None = None
) -> Finding:
    """Check for records of the last transaction that are no rows, `last_rejected`, and for columns that miss their field. Pending
    dead letters fail the check until they are rows, or are given up."""
    waiting = checkpoint.letters.waiting if checkpoint and checkpoint.letters else 0
    figures: dict[str, int | float | str] = {
        "bad records of the last transaction": last_rejected,
        "pending dead letters": waiting,
        "transaction": checkpoint.transaction_id if checkpoint else "",
    }
    bad = counted(last_rejected, "bad record")
    sentences = [] if waiting else ["The last transaction had no bad records."]
    if last_rejected and pipeline.on_bad_record == "dead_letter":
        sentences = [f"The last transaction had {bad}, kept as dead letters."]
    elif last_rejected:
        sentences = [
            f"The last transaction had {bad}, counted and left out. Set on_bad_record: dead_letter to keep such records."
        ]
    if waiting:
        sentences.append(
            f"{counted(waiting, 'dead letter')} pending: `hudi-ingest dead-letters list {pipeline.name}` says why. After a fix, "
            f"`hudi-ingest dead-letters retry {pipeline.name}` turns them into "
            + ("changes, but for those that could undo a newer one." if pipeline.table.is_keyed else "rows.")
        )
    suspect = last_fields is not None and last_fields.is_suspect
    if last_fields is not None and suspect:
        sentences.append(
            f"Fields of its records: {last_fields.text}. Correct the names in the schema, or rename the fields."
        )
    return answer(
        pipeline.name, DEAD_LETTERS, not (last_rejected or waiting or suspect), " ".join(sentences), figures, warns=True
    )


def expectations_met(
    pipeline: Pipeline, checkpoint: Checkpoint | None, commits: Sequence[CommittedInstant]
) -> Iterator[Finding]:
    """Check the records of the last transaction, by its accounting, one finding for each expectation. `commits`: the pipeline's own on the
    active timeline."""
    accountings = [commit.accounting(pipeline.transaction_key) for commit in commits] if pipeline.expectations else []
    last = max(accountings, key=lambda accounting: accounting.sequence, default=None)
    records = sum(account.rows + account.rejected for account in last.slices) if last else 0
    for expectation in pipeline.expectations:
        count = last.violations.get(expectation.name, 0) if last else 0
        figures: dict[str, int | float | str] = {
            "violations": count,
            "records": records,
            "transaction": checkpoint.transaction_id if checkpoint else "",
        }
        violate = f"{counted(count, 'record')} of the last transaction violate `{expectation.condition}`"
        if expectation.severity == "warn":
            text = f"{violate}; they are in the table. Correct their producer, or the condition."
        else:
            text = f"{violate}; they are bad records, of which the check `{DEAD_LETTERS}` says more."
        if not count:
            text = f"No record of the last transaction violates `{expectation.condition}`."
        yield answer(pipeline.name, f"{EXPECTATION}{expectation.name}", not count, text, figures, warns=True)


def nothing_late(pipeline: Pipeline, checkpoint: Checkpoint | None, commits: Sequence[CommittedInstant]) -> Finding:
    """Check for records that came later than declared. `commits`: the pipeline's own on the active timeline."""
    accountings = [commit.accounting(pipeline.transaction_key) for commit in commits]
    late = [(accounting, account) for accounting in accountings for account in accounting.slices if account.late]
    count = sum(account.late for _, account in late)
    figures: dict[str, int | float | str] = {
        "late records": count,
        "late records of all commits": checkpoint.totals.get("ingest", {}).get("late", 0) if checkpoint else 0,
        "transaction": checkpoint.transaction_id if checkpoint else "",
    }
    if not late:
        return answer(pipeline.name, NOTHING_LATE, True, "No commit on the active timeline has late records.", figures)
    newest = max((accounting for accounting, _ in late), key=lambda accounting: accounting.sequence)
    sources = listed(sorted({str(account.slice.source) for _, account in late}), SHOWN)
    earliest = min(account.earliest_late for _, account in late if account.earliest_late is not None)
    text = (
        f"{counted(count, 'record')} of {sources} came later than declared, the last ones with {newest.transaction_id}; the earliest "
        f"Kafka timestamp is {time_text(earliest)}. They are in the table, but what was read of those times before does not have them: "
        "read it once more, downstream. If records are late as a rule, raise source.lateness_seconds."
    )
    return answer(pipeline.name, NOTHING_LATE, False, text, figures, warns=True)


def catalog_synced(
    pipeline: Pipeline, state: CatalogState, commits: Sequence[CommittedInstant], now: datetime
) -> Finding:
    """Check that the catalog has the table's columns and partitions. `state`: what it is known to have; `commits`: all on the
    active timeline, newest first."""
    place, news, failure = pipeline.catalog_place, state.news(pipeline.catalog_place, commits), state.failure
    figures: dict[str, int | float | str] = {"catalog": place, "failed syncs in a row": failure.tries if failure else 0}
    if not commits:
        return answer(pipeline.name, CATALOG_SYNCED, True, f"{place} gets the table with its first commit.", figures)
    if not news:
        return answer(pipeline.name, CATALOG_SYNCED, True, f"{place} has the table's columns and partitions.", figures)
    retry = (
        f"It is retried automatically; `hudi-ingest sync-catalog {pipeline.name}` tries at once. The commits themselves are not "
        "affected, and readers that use the table's path see them."
    )
    if failure is not None:
        text = f"{place} is not up to date: {news}. The last try, at {failure.at[:19]} UTC, failed: {failure.error} {retry}"
        return answer(pipeline.name, CATALOG_SYNCED, False, text, figures)
    age = (now - commits[0].completed_at).total_seconds()
    recent = age <= CATALOG_SECONDS
    text = f"{place} is not up to date: {news}. {'It is being synced.' if recent else retry}"
    return answer(pipeline.name, CATALOG_SYNCED, recent, text, figures)


def iceberg_up_to_date(
    pipeline: Pipeline, state: CatalogState, commits: Sequence[CommittedInstant], now: datetime
) -> Finding:
    """Check that Iceberg's readers see the newest commits. `state`: what was published last; `commits`: all on the active timeline, newest
    first."""
    place, failure = pipeline.iceberg_table, state.failure
    waiting = waiting_commits(pipeline, state, commits)
    behind = max(0.0, (now - waiting[-1].completed_at).total_seconds()) if waiting else 0.0
    figures: dict[str, int | float | str] = {
        "Iceberg table": place,
        "instant": state.instant,
        "commits behind": len(waiting),
        "seconds behind": round(behind),
        "failed publications in a row": failure.tries if failure else 0,
    }
    if not waiting:
        text = (
            f"Iceberg table {place} has every commit." if commits else f"{place} gets the table with its first commit."
        )
        return answer(pipeline.name, ICEBERG_UP_TO_DATE, True, text, figures)
    text = f"Iceberg table {place} is {counted(len(waiting), 'commit')} behind, {duration_text(behind)}."
    if failure is not None:
        text += (
            f" The last try, at {failure.at[:19]} UTC, failed: {failure.error} It is retried automatically; `hudi-ingest sync-catalog "
            f"{pipeline.name}` tries at once. The Hudi table has all commits."
        )
        return answer(pipeline.name, ICEBERG_UP_TO_DATE, False, text, figures)
    every = pipeline.table.iceberg.every_seconds if pipeline.table.iceberg else 0
    return answer(pipeline.name, ICEBERG_UP_TO_DATE, behind <= every + 2 * CATALOG_SECONDS, text, figures)


def compacted_in_time(pipeline: Pipeline, commits: Sequence[CommittedInstant], now: datetime) -> Finding:
    """Check that log files are merged into base files, and show what readers have to merge. `commits`: all on the active
    timeline."""
    limits, found = pipeline.table.compaction, read_amplification(commits)
    due, overdue = why_due(limits, found, now), why_due(limits, found, now, times=2)
    figures: dict[str, int | float | str] = {
        "log files per file group (mean)": round(found.mean_log_files, 2),
        "log files per file group (max)": found.most_log_files,
        "log bytes": found.log_bytes,
        "commits not compacted": found.delta_commits,
        "last compaction": f"{found.compacted_at:%Y-%m-%d %H:%M:%S} UTC" if found.compacted_at else "none",
        "due": "yes" if due else "no",
    }
    if found.ratio is not None:
        figures["log bytes / base bytes"] = round(found.ratio, 3)
    last = f"Last compaction: {figures['last compaction']}."
    if not found.log_files:
        return answer(pipeline.name, COMPACTED_IN_TIME, True, f"All log files are compacted. {last}", figures)
    ratio = "" if found.ratio is None else f", {found.ratio:.0%} of their base files"
    logs = (
        f"{counted(found.log_files, 'log file')} of {counted(found.delta_commits, 'commit')} not compacted: {found.log_bytes:,} "
        f"bytes{ratio}, in {counted(found.file_groups, 'file group')} of {found.mean_log_files:.1f} log files on average and "
        f"{found.most_log_files} at most. {last}"
    )
    if not overdue:
        return answer(
            pipeline.name, COMPACTED_IN_TIME, True, f"{logs} {f'Due: {due}.' if due else 'Not due.'}", figures
        )
    text = (
        f"{logs} Overdue: {due}. Check that the schedule hudi_ingest_compaction is on and that its runs of "
        f"{pipeline.name} succeed: if not, they say why. `hudi-ingest services {pipeline.name}` compacts now. If "
        "compactions take too long, give the engine more cores, or choose more table.buckets for a new table."
    )
    return answer(pipeline.name, COMPACTED_IN_TIME, False, text, figures, warns=True)


def _read_offsets(checkpoint: Checkpoint | None) -> int:
    """Count the offsets that the table covers; a partition for which an older checkpoint does not say counts from offset 0."""
    if checkpoint is None:
        return 0
    return sum(
        length(checkpoint.covered[source]) if source in checkpoint.covered else end
        for source, end in checkpoint.offsets.items()
    )


def _unaccounted(published: Sequence[tuple[Accounting, int]]) -> Iterator[str]:
    """Yield commits whose counts do not add up. `published`: each commit's accounting, and the number of rows in its files."""
    for accounting, rows in published:
        for account in accounting.slices:
            slice_ = account.slice
            if account.counted != slice_.count:
                yield (
                    f"{accounting.transaction_id} counts {account.counted} of the offsets [{slice_.start},{slice_.end}) of "
                    f"{slice_.source}"
                )
        # Transactions of other kinds may also rewrite rows of the files that they replace.
        if accounting.kind.moves_offsets and accounting.rows_in_files != rows:
            yield f"{accounting.transaction_id} counts {accounting.rows_in_files} rows, but its commit published {rows}"


def _untiled(accountings: Sequence[Accounting]) -> Iterator[str]:
    ends: dict[TopicPartition, int] = {}
    last_sequence: int | None = None
    for accounting in accountings:
        if last_sequence is not None and accounting.sequence != last_sequence + 1:
            # Archival removed the commits in between but kept a savepoint's: nothing is known across the hole.
            ends = {}
        last_sequence = accounting.sequence
        if not accounting.kind.moves_offsets:
            continue
        for loss in accounting.resets:
            ends.pop(loss.source, None)
        for account in accounting.slices:
            source, slice_ = account.slice.source, account.slice
            if ends.get(source, slice_.start) != slice_.start:
                yield (
                    f"{accounting.transaction_id} starts {source} at {slice_.start}, but the transaction before it ended "
                    f"at {ends[source]}"
                )
            ends[source] = slice_.end
