"""Files what users request: backfills, replays and retries of dead letters. The coordinator works them off."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger, Request, RequestProgress
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.requests.asked_ranges import Asked, asked_slices
from hudi_ingest.operations.requests.planning import new_request, what_is_missing
from hudi_ingest.operations.requests.ranges import RemainingRanges
from hudi_ingest.operations.requests.replaced_files import ReplaySurvey
from hudi_ingest.operations.requests.replay import survey_replay
from hudi_ingest.operations.requests.work import file_request
from hudi_ingest.pipeline.pipeline import Pipeline


def survey_backfill(pipeline: Pipeline, asked: Asked, *, skip_covered: bool) -> RemainingRanges:
    """Return what a backfill would read. Raises NothingToDo if that is nothing, and what `file_backfill` raises."""
    slices, situation = asked_slices(pipeline, asked)
    missing = what_is_missing(pipeline, situation, slices, skip_covered=skip_covered)
    if not any(missing.values()):
        raise NothingToDo(pipeline.name, "all of these offsets are already in the table")
    return missing


def file_backfill(home: Home, pipeline: Pipeline, asked: Asked, *, skip_covered: bool) -> Request:
    """File a backfill, or return the active one for the same ranges, which resumes what broke off.

    Raises NothingToDo, RangeRefused, KafkaUnreachable, KafkaRefused, TableUnreachable, LedgerUnreachable, EmptyRange.
    """
    slices, situation = asked_slices(pipeline, asked)
    request = new_request(pipeline, TransactionKind.BACKFILL, slices, skip_covered=skip_covered)
    with Ledger.open(home.ledger_url) as ledger:
        active = ledger.requests.standing(request)
    if active is not None:
        return active
    if not any(what_is_missing(pipeline, situation, slices, skip_covered=skip_covered).values()):
        raise NothingToDo(pipeline.name, "all of these offsets are already in the table")
    return file_request(request, home)


def survey_replay_of(pipeline: Pipeline, asked: Asked) -> ReplaySurvey:
    """Return what a replay would cost and bring back. Raises what `file_replay` raises."""
    slices, situation = asked_slices(pipeline, asked)
    return survey_replay(pipeline, situation, slices)


def file_replay(home: Home, pipeline: Pipeline, asked: Asked, *, respect_deletes: bool) -> Request:
    """File a replay, or return the active one for the same ranges. Raises what `file_backfill` raises."""
    slices, situation = asked_slices(pipeline, asked)
    survey_replay(pipeline, situation, slices)
    return file_request(new_request(pipeline, TransactionKind.REPLAY, slices, respect_deletes=respect_deletes), home)


def file_retry(home: Home, pipeline: Pipeline) -> Request:
    """File a retry of all dead letters, or return the active one. Raises RangeRefused, TableUnreachable, LedgerUnreachable."""
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
