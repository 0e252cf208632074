"""backfill, replay, requests: what people ask for beside live ingestion."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hudi_ingest.exceptions import (
    NothingToDo,
)
from hudi_ingest.home.folder import Home
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind

if TYPE_CHECKING:
    from hudi_ingest.ledger import Request
    from hudi_ingest.ledger.requests import RequestedCommit
    from hudi_ingest.pipeline.pipeline import Pipeline
    from hudi_ingest.transaction.situation import Situation
from typing import TYPE_CHECKING

from hudi_ingest.cli.app import app, requests
from hudi_ingest.cli.options import (
    AsJson,
    DryRun,
    FromTime,
    PipelineName,
    RangeEnd,
    RangePartition,
    RangeStart,
    ToTime,
    Wait,
    named_pipeline,
    topic_partition,
)
from hudi_ingest.cli.printing import out, print_json, print_nothing_to_do, progress, say

if TYPE_CHECKING:
    from hudi_ingest.pipeline.pipeline import Pipeline


@app.command()
def backfill(
    pipeline: PipelineName,
    partition: RangePartition = None,
    start: RangeStart = None,
    end: RangeEnd = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    skip_covered: Annotated[
        bool,
        typer.Option("--skip-covered", help="Leave out what is in the table; so a backfill that broke off goes on."),
    ] = False,
    wait: Wait = True,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add offsets that are not in the table, such as history; live transactions go on, turn by turn."""
    from hudi_ingest.cli.views import ranges_view
    from hudi_ingest.operations.ranges import range_facts
    from hudi_ingest.operations.request_planning import new_request, what_is_missing

    found = named_pipeline(pipeline)
    try:
        asked, situation = _asked(found, partition, start, end, from_time, to_time)
        request = new_request(found, TransactionKind.BACKFILL, asked, skip_covered=skip_covered)
        standing = _standing(request)
        if standing is not None and not dry_run:
            fulfil(found, standing, wait, as_json)
            return
        missing = what_is_missing(found, situation, asked, skip_covered=skip_covered)
    except NothingToDo as error:
        print_nothing_to_do(error, as_json)
        return
    if not any(missing.values()):
        print_nothing_to_do(NothingToDo(found.name, "all of it is in the table"), as_json)
    elif dry_run and as_json:
        print_json({"pipeline": found.name, "ranges": range_facts(missing)})
    elif dry_run:
        out.print(ranges_view(f"backfill of {found.name}", missing))
    else:
        fulfil(found, filed(request), wait, as_json)


@app.command()
def replay(
    pipeline: PipelineName,
    partition: RangePartition = None,
    start: RangeStart = None,
    end: RangeEnd = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    transaction: Annotated[str | None, typer.Option(metavar="ID", help="All that this transaction read.")] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="All bad records that were kept, as `dead-letters retry` does.")
    ] = False,
    respect_deletes: Annotated[
        bool, typer.Option("--respect-deletes", help="Write only offsets that have a row in the table still.")
    ] = False,
    wait: Wait = True,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Write offsets anew that are in the table, in place of their rows: after a wrong converter, transform or mask."""
    from hudi_ingest.cli.views import ranges_view, replay_text
    from hudi_ingest.operations.replay import survey_replay
    from hudi_ingest.operations.request_planning import new_request

    found = named_pipeline(pipeline)
    if dead_letters:
        if respect_deletes or any(
            each is not None for each in (partition, start, end, from_time, to_time, transaction)
        ):
            raise typer.BadParameter(
                "--dead-letters takes all that wait, and goes with --wait, --dry-run and --json only"
            )
        retry_letters(found, wait, dry_run, as_json)
        return
    try:
        asked, situation = _asked(found, partition, start, end, from_time, to_time, transaction)
    except NothingToDo as error:
        print_nothing_to_do(error, as_json)
        return
    survey = survey_replay(found, situation, asked)
    if not dry_run:
        request = new_request(found, TransactionKind.REPLAY, asked, respect_deletes=respect_deletes)
        fulfil(found, filed(request), wait, as_json)
    elif as_json:
        print_json(survey.to_dict())
    else:
        out.print(ranges_view(f"replay of {found.name}", survey.left))
        say(replay_text(survey))


@requests.command("list")
def list_requests(
    pipeline: Annotated[str, typer.Argument(metavar="[PIPELINE]", help="All pipelines when left out.")] = "",
    most: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many at most, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show requests and how far they are."""
    from hudi_ingest.cli.views import request_facts, requests_view
    from hudi_ingest.ledger import Ledger

    name = named_pipeline(pipeline).name if pipeline else None
    ledger = Ledger.open(Home.from_environment().ledger_url)
    try:
        shown = [(request, ledger.progress(request.request_id)) for request in ledger.newest_requests(name, most)]
    finally:
        ledger.dispose()
    if as_json:
        print_json([request_facts(request, progress) for request, progress in shown])
    elif shown:
        out.print(requests_view(shown))
    else:
        say("no requests")


@requests.command()
def cancel(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="Its id, as `requests list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Begin no further transaction of a request. One that runs is let end; what is committed stays."""
    from hudi_ingest.ledger import Ledger, RequestState

    ledger = Ledger.open(Home.from_environment().ledger_url)
    try:
        known = ledger.request(request)
        if known is None:
            raise typer.BadParameter(f"the ledger knows no request {request}; `hudi-ingest requests list` shows all")
        cancelled = ledger.end_request(request, RequestState.CANCELLED, "cancelled from the command line")
    finally:
        ledger.dispose()
    if as_json:
        print_json({"request": request, "cancelled": cancelled})
    else:
        say(f"{request} is cancelled" if cancelled else f"{request} has ended before: it is {known.state.value}")


def _standing(request: Request) -> Request | None:
    """An active request that asks for the same: what broke off before goes on."""
    from hudi_ingest.ledger import Ledger

    ledger = Ledger.open(Home.from_environment().ledger_url)
    try:
        return ledger.standing_request(request)
    finally:
        ledger.dispose()


def filed(request: Request) -> Request:
    from hudi_ingest.operations.request_work import file_request

    return file_request(request, Home.from_environment())


def fulfil(pipeline: Pipeline, request: Request, wait: bool, as_json: bool) -> None:
    """Shows what becomes of a filed request, or only its id."""
    from hudi_ingest.cli.views import retry_text
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.request_work import commit_text, fulfil, retry_result

    home = Home.from_environment()
    if not wait:
        if as_json:
            print_json({"request": request.request_id, "state": request.state.value})
        else:
            say(f"{request.request_id} is filed. `hudi-ingest requests list {pipeline.name}` shows how far it is.")
        return
    progress(f"{request.request_id} is filed; `hudi-ingest requests cancel {request.request_id}` ends it")
    commits: list[RequestedCommit] = []
    for commit in fulfil(pipeline, request, home=home, report=progress):
        commits.append(commit)
        if not as_json:
            say(commit_text(commit, commits))
    retry = None
    if request.kind is TransactionKind.RETRY:
        ledger = Ledger.open(home.ledger_url)
        try:
            retry = retry_result(pipeline, ledger, request.request_id)
        finally:
            ledger.dispose()
    if as_json:
        facts = retry.to_dict() if retry else {"pipeline": pipeline.name}
        print_json({**facts, "request": request.request_id, "transactions": [asdict(commit) for commit in commits]})
    elif retry is not None:
        say(retry_text(retry))


def _asked(
    pipeline: Pipeline,
    partition: str | None,
    start: int | None,
    end: int | None,
    from_time: str | None,
    to_time: str | None,
    transaction: str | None = None,
) -> tuple[tuple[Slice, ...], Situation]:
    """What the options ask for, and what table and broker said. Raises BadParameter unless it is asked in one way."""
    from hudi_ingest.operations.asked_ranges import in_time, of_transaction
    from hudi_ingest.transaction.situation import observe

    by_offsets, by_time = (partition, start, end), (from_time, to_time)
    ways = [any(each is not None for each in way) for way in (by_offsets, by_time, (transaction,))]
    if sum(ways) != 1:
        raise typer.BadParameter(
            "give either --partition, --start and --end, or --from-time and --to-time, or (replay) --transaction or "
            "--dead-letters"
        )
    if ways[0] and (partition is None or start is None or end is None):
        raise typer.BadParameter("--partition, --start and --end go together")
    if ways[1] and (from_time is None or to_time is None):
        raise typer.BadParameter("--from-time and --to-time go together")
    if partition is not None and start is not None and end is not None:
        source = topic_partition(partition)
        if start >= end:
            raise typer.BadParameter(f"--start {start} is not before --end {end}")
        return (Slice(source.topic, source.partition, start, end),), observe(pipeline)
    if from_time is not None and to_time is not None:
        times = _time("--from-time", from_time), _time("--to-time", to_time)
        if times[0] >= times[1]:
            raise typer.BadParameter("--from-time is not before --to-time")
        situation = observe(pipeline)
        return in_time(pipeline, situation, *times), situation
    assert transaction is not None
    return of_transaction(pipeline, transaction), observe(pipeline)


def _time(option: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise typer.BadParameter(f"{option} wants ISO 8601 with a zone, like 2026-01-31T00:00:00Z; found {text!r}")
    return found


def retry_letters(pipeline: Pipeline, wait: bool, dry_run: bool, as_json: bool) -> None:
    from hudi_ingest.cli.views import retry_survey_text
    from hudi_ingest.operations.dead_letter_retry import survey_retry
    from hudi_ingest.operations.request_planning import new_request

    if not dry_run:
        fulfil(pipeline, filed(new_request(pipeline, TransactionKind.RETRY)), wait, as_json)
        return
    survey = survey_retry(pipeline)
    if as_json:
        print_json(survey.to_dict())
    else:
        say(retry_survey_text(survey))
