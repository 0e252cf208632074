"""backfill, replay, requests: what users request beside live ingestion."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hudi_ingest.cli.app import (
    AsJson,
    DryRun,
    FromTime,
    PipelineName,
    RangeEnd,
    RangePartition,
    RangeStart,
    ToTime,
    Wait,
    app,
    ended_by_nothing_to_do,
    letters,
    named_pipeline,
    out,
    print_json,
    print_result,
    progress,
    requests,
    say,
    topic_partition,
    usage_error_for_wrong_selection,
)
from hudi_ingest.home.folder import Home
from hudi_ingest.model.plan import TransactionKind

if TYPE_CHECKING:
    from hudi_ingest.ledger import Request
    from hudi_ingest.ledger.requests import RequestedCommit
    from hudi_ingest.operations.requests.asked_ranges import Selection
    from hudi_ingest.pipeline.pipeline import Pipeline


@app.command()
def backfill(
    name: PipelineName,
    partition: RangePartition = None,
    start: RangeStart = None,
    end: RangeEnd = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    skip_covered: Annotated[
        bool,
        typer.Option(
            "--skip-covered",
            help="Skip offsets that are already in the table, e.g. to resume a backfill that was interrupted.",
        ),
    ] = False,
    wait: Wait = True,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Ingest offsets that are not in the table yet, such as history. Takes turns with live transactions."""
    from hudi_ingest.cli.views import slices_view
    from hudi_ingest.operations.requests.allowed_ranges import as_slices, range_facts
    from hudi_ingest.operations.requests.work import file_backfill, survey_backfill

    pipeline, home = named_pipeline(name), Home.from_environment()
    with ended_by_nothing_to_do(as_json), usage_error_for_wrong_selection():
        selection = _selected(pipeline, (partition, start, end), (from_time, to_time))
        if dry_run:
            missing = survey_backfill(pipeline, selection, skip_covered=skip_covered)
        else:
            request = file_backfill(home, pipeline, selection, skip_covered=skip_covered)
    if not dry_run:
        follow_request(pipeline, request, wait, as_json)
    else:
        view = slices_view(f"backfill of {pipeline.name}", as_slices(missing))
        print_result(as_json, {"pipeline": pipeline.name, "ranges": range_facts(missing)}, view)


@app.command()
def replay(
    name: PipelineName,
    partition: RangePartition = None,
    start: RangeStart = None,
    end: RangeEnd = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    transaction: Annotated[
        str | None, typer.Option(metavar="ID", help="Everything that this transaction read.")
    ] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="All dead letters, same as `dead-letters retry`.")
    ] = False,
    respect_deletes: Annotated[
        bool, typer.Option("--respect-deletes", help="Write only offsets that still have a row in the table.")
    ] = False,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Create a savepoint first, so that the table can be restored.")
    ] = False,
    wait: Wait = True,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Read offsets that are in the table again and replace their rows, e.g. after fixing a converter, transform or mask."""
    from hudi_ingest.cli.views import replay_text, slices_view
    from hudi_ingest.operations.requests.allowed_ranges import as_slices
    from hudi_ingest.operations.requests.work import file_replay, survey_replay_of
    from hudi_ingest.operations.upkeep.savepoints import savepoints_of

    pipeline = named_pipeline(name)
    if dead_letters:
        if (
            respect_deletes
            or savepoint
            or any(option is not None for option in (partition, start, end, from_time, to_time, transaction))
        ):
            raise typer.BadParameter(
                "--dead-letters takes all pending dead letters; it combines with --wait, --dry-run and --json only"
            )
        retry_letters(pipeline, wait, dry_run, as_json)
        return
    with ended_by_nothing_to_do(as_json), usage_error_for_wrong_selection():
        selection = _selected(pipeline, (partition, start, end), (from_time, to_time), transaction)
        if dry_run:
            survey = survey_replay_of(pipeline, selection)
        else:
            if savepoint:
                with savepoints_of(pipeline, report=progress) as savepoints:
                    savepoints.create("before replay", progress)
            request = file_replay(Home.from_environment(), pipeline, selection, respect_deletes=respect_deletes)
    if not dry_run:
        follow_request(pipeline, request, wait, as_json)
    elif as_json:
        print_json(survey.to_dict())
    else:
        out.print(slices_view(f"replay of {pipeline.name}", as_slices(survey.remaining)))
        say(replay_text(survey))


@requests.command("list")
def list_requests(
    pipeline: Annotated[str, typer.Argument(metavar="[PIPELINE]", help="Default: all pipelines.")] = "",
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of requests, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show requests and their progress."""
    from hudi_ingest.cli.views import requests_view
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.requests.work import request_facts

    name = named_pipeline(pipeline).name if pipeline else None
    with Ledger.open(Home.from_environment().ledger_url) as ledger:
        listed = [
            (request, ledger.requests.progress(request.request_id)) for request in ledger.requests.newest(name, limit)
        ]
    print_result(as_json, [request_facts(*each) for each in listed], requests_view(listed) if listed else "no requests")


@requests.command()
def cancel(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST", help="The request's id, from `requests list`.")],
    as_json: AsJson = False,
) -> None:
    """Cancel a request. A running transaction still finishes; what is committed stays."""
    from hudi_ingest.ledger import Ledger, RequestState

    with Ledger.open(Home.from_environment().ledger_url) as ledger:
        request = ledger.requests.find(request_id)
        if request is None:
            raise typer.BadParameter(
                f"the ledger has no request {request_id}; list them with `hudi-ingest requests list`"
            )
        cancelled = ledger.requests.end(request_id, RequestState.CANCELLED, "cancelled from the command line")
    print_result(
        as_json,
        {"request": request_id, "cancelled": cancelled},
        f"{request_id} is cancelled" if cancelled else f"{request_id} had already ended: it is {request.state.value}",
    )


def follow_request(pipeline: Pipeline, request: Request, wait: bool, as_json: bool) -> None:
    """Show the commits of a filed request until it is done; without `wait`, only its id."""
    from hudi_ingest.cli.views import retry_text
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.requests.work import commit_text, fulfil, retry_result

    home = Home.from_environment()
    if not wait:
        print_result(
            as_json,
            {"request": request.request_id, "state": request.state.value},
            f"{request.request_id} is filed. `hudi-ingest requests list {pipeline.name}` shows its progress.",
        )
        return
    progress(f"{request.request_id} is filed; cancel it with `hudi-ingest requests cancel {request.request_id}`")
    commits: list[RequestedCommit] = []
    for commit in fulfil(pipeline, request, home=home, report=progress):
        commits.append(commit)
        if not as_json:
            say(commit_text(commit, commits))
    retry = None
    if request.kind is TransactionKind.RETRY:
        with Ledger.open(home.ledger_url) as ledger:
            retry = retry_result(pipeline, ledger, request.request_id)
    if as_json:
        facts = retry.to_dict() if retry else {"pipeline": pipeline.name}
        print_json({**facts, "request": request.request_id, "transactions": [asdict(commit) for commit in commits]})
    elif retry is not None:
        say(retry_text(retry))


def _selected(
    pipeline: Pipeline,
    offsets: tuple[str | None, int | None, int | None],
    times: tuple[str | None, str | None],
    transaction: str | None = None,
) -> Selection:
    """Return what the options select. Raises BadParameter, WrongSelection."""
    from hudi_ingest.operations.requests.asked_ranges import Names, named_time, select

    names = Names(
        choice="--partition, --start and --end; --from-time and --to-time; (replay only) --transaction or --dead-letters",
        partition="--partition",
        start="--start",
        end="--end",
        from_time="--from-time",
        to_time="--to-time",
    )
    # Values first, so that a wrong one is named before the option that it lacks.
    partition, start, end = offsets
    asked = (None if partition is None else topic_partition(partition), start, end)
    from_time, to_time = (
        named_time(name, text) for name, text in zip((names.from_time, names.to_time), times, strict=True)
    )
    return select(
        names,
        pipeline,
        ranges=[] if offsets == (None, None, None) else [asked],
        from_time=from_time,
        to_time=to_time,
        read_by=transaction,
    )


def retry_letters(pipeline: Pipeline, wait: bool, dry_run: bool, as_json: bool) -> None:
    from hudi_ingest.cli.views import retry_survey_text
    from hudi_ingest.operations.requests.dead_letter_retry import survey_retry
    from hudi_ingest.operations.requests.work import file_retry

    if not dry_run:
        follow_request(pipeline, file_retry(Home.from_environment(), pipeline), wait, as_json)
        return
    survey = survey_retry(pipeline)
    print_result(as_json, survey.to_dict(), retry_survey_text(survey))


@letters.command("list")
def list_letters(name: PipelineName, as_json: AsJson = False) -> None:
    """Count pending dead letters by commit, partition and error."""
    from hudi_ingest.cli.views import letters_text
    from hudi_ingest.operations.requests.dead_letter_retry import letter_counts

    counts = letter_counts(named_pipeline(name))
    print_result(as_json, [asdict(count) for count in counts], letters_text(counts))


@letters.command("show")
def show_letters(
    name: PipelineName,
    partition: Annotated[str, typer.Option(metavar="TOPIC:PARTITION", help="Only letters from this partition.")] = "",
    offset: Annotated[int | None, typer.Option(min=0, help="Only the letter at this offset.")] = None,
    error: Annotated[str, typer.Option(metavar="TEXT", help="Only letters whose error contains this text.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show pending dead letters: where each came from, what is wrong with it, and its bytes."""
    from hudi_ingest.cli.views import letter_text
    from hudi_ingest.operations.requests.dead_letter_retry import pending_letters

    source = topic_partition(partition) if partition else None
    matches = pending_letters(named_pipeline(name), source, offset, error, limit)
    print_result(
        as_json,
        [letter.to_dict() for letter in matches],
        "\n".join(letter_text(letter) for letter in matches) or "no dead letters match",
    )


@letters.command("retry")
def retry(name: PipelineName, wait: Wait = True, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Retry all dead letters after a fix. Those that can become rows now are added to the table, once."""
    retry_letters(named_pipeline(name), wait, dry_run, as_json)
