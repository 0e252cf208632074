"""A request from the user's side: file it, and follow it while the coordinator works on it; if no coordinator is running, work
it off in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import Any

from hudi_ingest.exceptions import NothingToDo, PlanOutdated, RangeRefused, Terminal, TransactionInFlight
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger, Owner, Request, RequestProgress, RequestState
from hudi_ingest.ledger.owner import is_dead, is_of_this_host
from hudi_ingest.ledger.requests import RequestedCommit
from hudi_ingest.model.plan import RequestPlan, TransactionKind
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.operations.observation import look_at
from hudi_ingest.operations.requests.allowed_ranges import RemainingRanges, shown_slices
from hudi_ingest.operations.requests.asked_ranges import Selection, selected_slices
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult, waiting_letters, withheld_letters
from hudi_ingest.operations.requests.planning import (
    completed,
    ending_reason,
    new_request,
    next_transaction,
    remaining_offsets,
    settled_progress,
    survey_replay,
    what_is_missing,
)
from hudi_ingest.operations.requests.replaced_files import ReplaySurvey
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest.transaction.run import run_transaction, when_table_is_free

ASK_AGAIN_SECONDS = 1.0
COORDINATOR_GONE_SECONDS = 120.0
"""A coordinator that has not ticked for this long counts as off. It ticks at least every 35 s, and records that every 30 s."""
WAIT_TIMEOUTS = 3
"""How long a transaction waits for the table, in multiples of the pipeline's timeout."""


def file_request(request: Request, home: Home) -> Request:
    """Keep the request in the ledger, and return the request in force: an active one for the same work if there is one.

    Raises LedgerUnreachable.
    """
    with Ledger.open(home.ledger_url) as ledger:
        return ledger.requests.file(request)


def fulfil(
    pipeline: Pipeline, request: Request, *, home: Home, report: Callable[[str], None]
) -> Iterator[RequestedCommit]:
    """Yield each commit of a filed request until it is done, by the coordinator or, if none is running, by this process.

    Raises RangeRefused if the request failed or was cancelled, and what `run_transaction` raises. Earlier commits stay.
    After a transient error the request stays active, and the same command continues it.
    """
    working: Iterator[CommitReceipt] | None = None

    def work(standing: Request) -> None:
        nonlocal working
        if working is None:
            report(f"{pipeline.name}: no coordinator is running, so this process works off {standing.request_id}")
            working = work_off(pipeline, standing, home=home, report=report)
        next(working, None)

    with Ledger.open(home.ledger_url) as ledger:
        yield from follow(ledger, pipeline, request, alone=work)


def follow(
    ledger: Ledger, pipeline: Pipeline, request: Request, *, alone: Callable[[Request], None]
) -> Iterator[RequestedCommit]:
    """Yield each commit of a filed request until it is done. `alone` is called repeatedly while nothing else works on it.

    Raises RangeRefused if the request failed or was cancelled, LedgerUnreachable, and what `alone` raises.
    """
    yielded = 0
    while True:
        standing = ledger.requests.find(request.request_id)
        commits = ledger.requests.progress(request.request_id).commits
        yield from commits[yielded:]
        yielded = len(commits)
        if standing is None or standing.state is not RequestState.ACTIVE:
            _require_done(pipeline, request.request_id, standing, commits)
            return
        if is_worked_on(ledger, standing, pipeline.transaction.timeout_seconds):
            time.sleep(ASK_AGAIN_SECONDS)
        else:
            alone(standing)


def commit_text(commit: RequestedCommit, commits: Sequence[RequestedCommit]) -> str:
    """Say what a commit added, and how far its request is after these `commits`."""
    offsets = sum(slice_.count for done in commits for slice_ in done.slices)
    rows = "rows" if commit.rows is None else counted(commit.rows, "row")
    return (
        f"{commit.transaction_id}: {rows} of {shown_slices(commit.slices)} {'is' if commit.rows == 1 else 'are'} in the table; {counted(offsets, 'offset')} done in "
        f"{counted(len(commits), 'transaction')}"
    )


def has_worker(ledger: Ledger, request: Request, timeout_seconds: float, now: datetime) -> bool:
    """Return whether a process runs the request without the coordinator. Raises LedgerUnreachable.

    A process that this host cannot inspect counts as gone once the request's last transaction has been over for longer than
    its next one would wait for the table. If it lives after all, the two take turns: each of their plans starts from what is
    in the table by then.
    """
    if request.worker is None or is_dead(request.worker, lambda run_id: None):
        return False
    if is_of_this_host(request.worker):
        return True
    last_sign = ledger.requests.last_deadline(request.request_id) or request.filed_at
    return now <= last_sign + timedelta(seconds=WAIT_TIMEOUTS * timeout_seconds)


def is_worked_on(ledger: Ledger, request: Request, timeout_seconds: float) -> bool:
    """Return whether a coordinator or another process works on the request. `timeout_seconds`: of the pipeline's transactions.
    Raises LedgerUnreachable."""
    if request.worker == Owner.this_process():
        return False
    if has_worker(ledger, request, timeout_seconds, datetime.now(timezone.utc)):
        return True
    ticked = ledger.requests.ticked_at(request.pipeline)
    if ticked is None:
        return False
    return abs((datetime.now(timezone.utc) - ticked).total_seconds()) < COORDINATOR_GONE_SECONDS


def work_off(
    pipeline: Pipeline, request: Request, *, home: Home, report: Callable[[str], None]
) -> Iterator[CommitReceipt]:
    """Run the transactions of a filed request one after another in this process, and yield each one's receipt.

    Waits for other transactions on the table. The request ends as done or, after an error that a retry would hit again, as
    failed; after any other error it stays active, for the coordinator or the same command to continue. Raises
    RangeRefused, TransactionInFlight if the table was not free in time, and what `run_transaction` raises.
    """
    with Ledger.open(home.ledger_url) as ledger:
        try:
            ledger.requests.work_on(request.request_id, Owner.this_process())
            yield from _receipts(pipeline, ledger, request, home, report)
        except (TransactionInFlight, PlanOutdated):
            raise
        except Terminal as error:
            ledger.requests.end(request.request_id, RequestState.FAILED, str(error))
            raise
        finally:
            ledger.requests.work_on(request.request_id, None)


def _receipts(
    pipeline: Pipeline, ledger: Ledger, request: Request, home: Home, report: Callable[[str], None]
) -> Iterator[CommitReceipt]:
    if request.kind is not TransactionKind.RETRY:
        progress = settled_progress(pipeline, ledger, request.request_id)
        offsets = remaining_offsets(look_at(pipeline).whole(), request, progress)
        report(f"{request.request_id}: {counted(offsets, 'offset')} to write")
    patience = WAIT_TIMEOUTS * pipeline.transaction.timeout_seconds

    def run_next() -> CommitReceipt | None:
        plan = _planned(pipeline, ledger, request.request_id)
        return run_transaction(pipeline, home=home, plan=plan, report=report) if plan else None

    while True:
        try:
            receipt = when_table_is_free(run_next, patience, report)
        except NothingToDo:
            # The ledger knows which dead letters became no row; the others are next.
            continue
        if receipt is None:
            end_as_done(ledger, request.request_id)
            return
        yield receipt


def end_as_done(ledger: Ledger, request_id: str) -> None:
    """End a request that has no next transaction. If it was cancelled meanwhile, it stays cancelled."""
    request = ledger.requests.find(request_id)
    if request is not None:
        ledger.requests.end(request_id, RequestState.DONE, ending_reason(request, ledger.requests.progress(request_id)))


def _planned(pipeline: Pipeline, ledger: Ledger, request_id: str) -> RequestPlan | None:
    request = ledger.requests.find(request_id)
    if request is None or request.state is not RequestState.ACTIVE:
        return None
    progress, observation = settled_progress(pipeline, ledger, request_id), look_at(pipeline).whole()
    plan = next_transaction(observation, request, progress)
    return completed(observation, request, progress, plan) if plan else None


def _require_done(
    pipeline: Pipeline, request_id: str, request: Request | None, commits: tuple[RequestedCommit, ...]
) -> None:
    if request is not None and request.state is RequestState.DONE:
        return
    remedy = "file it again to finish it"
    if request is None:
        outcome = f"is no longer in the ledger, which {'was' if commits else 'may have been'} wiped"
    elif request.state is RequestState.FAILED:
        outcome = "failed"
        remedy = "correct the cause and file it again; `hudi-ingest requests list` shows how far it came"
    else:
        outcome = f"was {request.state.value}"
    kept = (
        f"{counted(len(commits), 'transaction')} committed before that; their rows stay"
        if commits
        else "nothing was written"
    )
    problems = [line for line in (request and request.reason, kept, remedy) if line]
    raise RangeRefused(f"request {request_id} of pipeline {pipeline.name} {outcome}", problems)


def retry_result(pipeline: Pipeline, ledger: Ledger, request_id: str) -> RetryResult:
    """Return the result of a retry that has ended. Raises TableUnreachable, LedgerUnreachable."""
    waiting, request = waiting_letters(pipeline), ledger.requests.find(request_id)
    checkpoint = observe(pipeline).committed.checkpoint
    passed_over = set(request.passed_over) if request else set()
    reports, instants = [], []
    for commit in ledger.requests.progress(request_id).commits:
        instants.append(commit.instant)
        attempts = ledger.attempts.of_transaction(commit.transaction_id)
        reports.append([attempt.report for attempt in attempts if attempt.report is not None])
    all_reports = [report for transaction in reports for report in transaction]
    notes = [next((note for report in transaction for note in report.bad_records), None) for transaction in reports]
    ending = [request.reason] if request and request.reason else []
    return RetryResult(
        pipeline=pipeline.name,
        tried=sum(report.rows + report.skipped + report.filtered + report.rejected for report in all_reports)
        + sum(waiting_file.file.letters for waiting_file in waiting if waiting_file.file.path in passed_over),
        rows=sum(report.rows for report in all_reports),
        filtered=sum(report.filtered for report in all_reports),
        waiting=checkpoint.letters.waiting if checkpoint and checkpoint.letters else 0,
        withheld=withheld_letters(waiting),
        instants=tuple(instants),
        reasons=(*(str(note) for note in notes if note is not None), *ending),
    )


def survey_backfill(pipeline: Pipeline, selection: Selection, *, skip_covered: bool) -> RemainingRanges:
    """Return what a backfill would read. Raises NothingToDo if that is nothing, and what `file_backfill` raises."""
    slices, observation = selected_slices(pipeline, selection)
    missing = what_is_missing(observation, slices, skip_covered=skip_covered)
    if not any(missing.values()):
        raise NothingToDo(pipeline.name, "all of these offsets are already in the table")
    return missing


def file_backfill(home: Home, pipeline: Pipeline, selection: Selection, *, skip_covered: bool) -> Request:
    """File a backfill, or return the active one for the same ranges, which resumes what broke off.

    Raises NothingToDo, RangeRefused, KafkaUnreachable, KafkaRefused, TableUnreachable, LedgerUnreachable, EmptyRange.
    """
    slices, observation = selected_slices(pipeline, selection)
    request = new_request(pipeline, TransactionKind.BACKFILL, slices, skip_covered=skip_covered)
    with Ledger.open(home.ledger_url) as ledger:
        active = ledger.requests.standing(request)
    if active is not None:
        return active
    if not any(what_is_missing(observation, slices, skip_covered=skip_covered).values()):
        raise NothingToDo(pipeline.name, "all of these offsets are already in the table")
    return file_request(request, home)


def survey_replay_of(pipeline: Pipeline, selection: Selection) -> ReplaySurvey:
    """Return what a replay would cost and bring back. Raises what `file_replay` raises."""
    slices, observation = selected_slices(pipeline, selection)
    return survey_replay(observation, slices)


def file_replay(home: Home, pipeline: Pipeline, selection: Selection, *, respect_deletes: bool) -> Request:
    """File a replay, or return the active one for the same ranges. Raises what `file_backfill` raises."""
    slices, observation = selected_slices(pipeline, selection)
    survey_replay(observation, slices)
    return file_request(new_request(pipeline, TransactionKind.REPLAY, slices, respect_deletes=respect_deletes), home)


def file_retry(home: Home, pipeline: Pipeline) -> Request:
    """File a retry of all dead letters, or return the active one. Raises LedgerUnreachable."""
    return file_request(new_request(pipeline, TransactionKind.RETRY), home)


def request_facts(request: Request, progress: RequestProgress) -> dict[str, Any]:
    """Describe a request for programs."""
    return {
        "request": request.request_id,
        "pipeline": request.pipeline,
        "kind": request.kind.value,
        "state": request.state.value,
        "filed_at": request.filed_at.isoformat(),
        "ended_at": request.ended_at.isoformat() if request.ended_at else None,
        "ranges": [asdict(slice_) for slice_ in request.ranges],
        "transactions": len(progress.commits),
        "offsets": sum(slice_.count for slice_ in progress.done),
        "rows": progress.rows,
        "failed_tries": progress.failures,
        "reason": request.reason or progress.reason or None,
    }
