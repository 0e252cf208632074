"""The command line. Exit code 0: done, 1: failed, 2: wrong use."""

from __future__ import annotations

import itertools
import json
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hudi_ingest.exceptions import (
    ConfigError,
    IngestError,
    NothingToDo,
)
from hudi_ingest.home.folder import Home
from hudi_ingest.local.stack import StackSettings, bring_down, bring_up, remembered_settings
from hudi_ingest.model.records import (
    CommitReceipt,
    OffsetLoss,
    Slice,
    TopicPartition,
    TransactionKind,
    TransactionPlan,
    TransactionSchema,
)

if TYPE_CHECKING:
    from hudi_ingest.hudi.storage import TableStorage
    from hudi_ingest.ledger import Request
    from hudi_ingest.ledger.requests import RequestedCommit
    from hudi_ingest.operations.status import PipelineStatus
    from hudi_ingest.pipeline.pipeline import Pipeline
    from hudi_ingest.transaction.dead_letters.log import WaitingFile
    from hudi_ingest.transaction.situation import Situation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster.",
)
_PIPED_WIDTH = 140
"""Columns for tables that go into a file or a pipe."""
_out = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
_err = Console(stderr=True, soft_wrap=True, highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline's name, or the path of its file.")]
_KAFKA_PORT = typer.Option(min=1, max=65535, help="The broker's port on 127.0.0.1.")
_UI_PORT = typer.Option(min=1, max=65535, help="The Dagster UI's port on 127.0.0.1.")
_MASTER = typer.Option(help="Spark master of the engine.")
_MEMORY = typer.Option(help="Memory of the engine's driver.")
KafkaPort = Annotated[int, _KAFKA_PORT]
UiPort = Annotated[int, _UI_PORT]
Master = Annotated[str, _MASTER]
Memory = Annotated[str, _MEMORY]

RangePartition = Annotated[
    str | None, typer.Option("--partition", metavar="TOPIC:PARTITION", help="With --start and --end.")
]
RangeStart = Annotated[int | None, typer.Option(min=0, help="The first offset.")]
RangeEnd = Annotated[int | None, typer.Option(min=0, help="The end offset, exclusive.")]
FromTime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of all partitions, from this Kafka timestamp, as 2026-01-31T00:00:00Z."),
]
ToTime = Annotated[str | None, typer.Option(metavar="TIME", help="Up to, but not including, this Kafka timestamp.")]
Wait = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Show its commits until it is done, or leave it to the coordinator at once."),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]

_DEFAULTS = StackSettings()
letters = typer.Typer(no_args_is_help=True, help="See bad records that were kept, and try them again.")
app.add_typer(letters, name="dead-letters")
requests = typer.Typer(no_args_is_help=True, help="See and cancel backfills, replays and retries of dead letters.")
app.add_typer(requests, name="requests")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        _say(version("hudi-ingest"))
        raise typer.Exit()


@app.callback()
def top_level(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster."""


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Ingest 200,000 orders, check them, stop.")] = False,
    kafka_port: KafkaPort = _DEFAULTS.kafka_port,
    ui_port: UiPort = _DEFAULTS.ui_port,
    as_json: AsJson = False,
) -> None:
    """Start Kafka, Spark and Dagster here, produce sample orders, and ingest them. Ctrl-C stops all of it."""
    from hudi_ingest.cli.demo import run_demo, run_once

    home = Home.from_environment()
    settings = StackSettings(kafka_port=kafka_port, ui_port=ui_port)
    if not once:
        run_demo(home, settings, _out, _progress)
        return
    # A home of its own, made empty first: the count of records is fixed, so the topic and the table must be new.
    root = home.root / "demo-once"
    result = run_once(replace(home, root=root, ledger_url=f"sqlite:///{root / 'ledger.db'}"), settings, _progress)
    found = result.verification
    if as_json:
        _print_json({**asdict(found), "commits": result.commits, "seconds": round(result.seconds, 1)})
    else:
        _say(
            f"{'exactly once' if found.exact else 'NOT exactly once'}: {found.rows:,} rows in {result.commits} commits, "
            f"{found.lost} lost, {found.duplicate} duplicate, {found.foreign} foreign; {result.seconds:.0f} s in all"
        )
    if not found.exact:
        raise typer.Exit(1)


@app.command()
def up(
    kafka_port: Annotated[int | None, _KAFKA_PORT] = None,
    ui_port: Annotated[int | None, _UI_PORT] = None,
    master: Annotated[str | None, _MASTER] = None,
    memory: Annotated[str | None, _MEMORY] = None,
    as_json: AsJson = False,
) -> None:
    """Start what does not run of the embedded stack: Kafka, the Spark engine, Dagster. What runs is left alone.

    An option that is left out is as it was before, and at first 19092, 3000, local[*] and 2g. Of a part that runs it cannot
    be changed: use `down` first.
    """
    from hudi_ingest.pipeline.file import broken_files

    home = Home.from_environment()
    asked = {"kafka_port": kafka_port, "ui_port": ui_port, "master": master, "driver_memory": memory}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    stack = bring_up(home, replace(remembered_settings(home), **given), _progress)
    broken = broken_files(home.pipelines)
    if as_json:
        facts = {"bootstrap_servers": stack.bootstrap_servers, "url": stack.url}
        _print_json({**facts, "broken_files": {str(file.path): file.problems for file in broken}})
    else:
        _say(f"Kafka      {stack.bootstrap_servers}\nDagster UI {stack.url}\nStop it with `hudi-ingest down`.")
        for file in broken:
            _say(file.in_one_line)


@app.command()
def down() -> None:
    """Stop the embedded stack; topics, tables and history stay in its home."""
    home = Home.from_environment()
    _say("stopped" if bring_down(home, _progress) else f"nothing runs in {home.root}")


@app.command()
def validate(files: Annotated[list[Path], typer.Argument(metavar="FILE…")], as_json: AsJson = False) -> None:
    """Check pipeline files and name every problem at once."""
    from hudi_ingest.pipeline.file import load_pipeline
    from hudi_ingest.transaction.columns import source_text
    from hudi_ingest.transaction.write.row_maker import format_problems

    problems: dict[str, list[str]] = {}
    columns: dict[str, str] = {}
    for file in files:
        try:
            pipeline = load_pipeline(file)
            found = format_problems(pipeline)
            if found:
                raise ConfigError(str(file), found)
            columns[str(file)] = source_text(pipeline)
            problems[str(file)] = []
        except ConfigError as error:
            problems[str(file)] = list(error.problems)
            if not as_json:
                _err.print(str(error), markup=False)
    if as_json:
        _print_json(problems)
    else:
        for name in (name for name, found in problems.items() if not found):
            _say(f"{name}: ok; columns {columns[name]}")
    if any(problems.values()):
        raise typer.Exit(1)


@app.command()
def plan(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Show what the next transaction would read, and what becomes of the table's columns. Changes nothing."""
    from hudi_ingest.cli.views import schema_facts
    from hudi_ingest.hudi.timeline import Timeline
    from hudi_ingest.transaction.columns import resolve_schema
    from hudi_ingest.transaction.situation import plan_now

    found = _pipeline(pipeline)
    timeline = Timeline(found.table.base_path)
    try:
        planned = plan_now(found)
    except NothingToDo as error:
        # Where nobody has declared them, columns may be found only once there are records.
        known = resolve_schema(found, timeline) if found.table.declares_schema or timeline.exists() else None
        if as_json:
            _print_json({"skip": error.reason, **(schema_facts(known) if known else {})})
            return
        _print_nothing_to_do(error, as_json)
        _show_schema(known)
        return
    schema = resolve_schema(found, timeline)
    planned = replace(planned, schema_changes=schema.changes)
    if as_json:
        _print_json({**planned.to_dict(), **schema_facts(schema)})
        return
    _print_plan(planned, as_json)
    _show_schema(schema)


@app.command()
def sample(
    pipeline: PipelineName,
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="TOPIC:PARTITION:OFFSET",
            help="Where to begin; may be repeated. Without it, where the next transaction begins.",
        ),
    ] = None,
    most: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many records at most, in all.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what a few records would become, and which are bad and why. Starts no Spark, writes nothing."""
    from hudi_ingest.cli.sample_view import sample_view
    from hudi_ingest.operations.sample import take_sample

    starts = dict(_offset(each) for each in from_ or ())
    if len(starts) < len(from_ or ()):
        raise typer.BadParameter("--from names a partition twice; name each once")
    found = take_sample(_pipeline(pipeline), starts or None, most)
    if as_json:
        _print_json(found.to_dict())
    else:
        _out.print(sample_view(found))


@app.command()
def run(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Run one transaction now, in this process; uses the engine when one runs."""
    from hudi_ingest.transaction.run import run_transaction

    try:
        receipt = run_transaction(_pipeline(pipeline), report=_progress)
    except NothingToDo as error:
        _print_nothing_to_do(error, as_json)
        return
    _print_receipt(receipt, as_json)


@app.command("accept-loss")
def accept_loss(
    pipeline: PipelineName,
    partition: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC:PARTITION", help="A stopped partition; may be repeated.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="A topic that was deleted and made again; may be repeated.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give up what stopped partitions have lost, and go on at the broker's first offsets, in one transaction."""
    from hudi_ingest.transaction.run import run_transaction, when_table_is_free
    from hudi_ingest.transaction.situation import plan_accepting

    found = _pipeline(pipeline)
    sources = [_topic_partition(each) for each in partition or ()]
    if not sources and not topic:
        raise typer.BadParameter("name at least one --partition TOPIC:PARTITION or --topic TOPIC")
    if dry_run:
        _print_plan(plan_accepting(found, sources, topic or ()), as_json)
        return

    def accept() -> CommitReceipt:
        return run_transaction(found, plan=plan_accepting(found, sources, topic or ()), report=_progress)

    # The partitions that go on have transactions of their own, which soon end.
    _print_receipt(when_table_is_free(accept, found.transaction.timeout_seconds, _progress), as_json)


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

    found = _pipeline(pipeline)
    try:
        asked, situation = _asked(found, partition, start, end, from_time, to_time)
        request = new_request(found, TransactionKind.BACKFILL, asked, skip_covered=skip_covered)
        standing = _standing(request)
        if standing is not None and not dry_run:
            _fulfil(found, standing, wait, as_json)
            return
        missing = what_is_missing(found, situation, asked, skip_covered=skip_covered)
    except NothingToDo as error:
        _print_nothing_to_do(error, as_json)
        return
    if not any(missing.values()):
        _print_nothing_to_do(NothingToDo(found.name, "all of it is in the table"), as_json)
    elif dry_run and as_json:
        _print_json({"pipeline": found.name, "ranges": range_facts(missing)})
    elif dry_run:
        _out.print(ranges_view(f"backfill of {found.name}", missing))
    else:
        _fulfil(found, _filed(request), wait, as_json)


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

    found = _pipeline(pipeline)
    if dead_letters:
        if respect_deletes or any(
            each is not None for each in (partition, start, end, from_time, to_time, transaction)
        ):
            raise typer.BadParameter(
                "--dead-letters takes all that wait, and goes with --wait, --dry-run and --json only"
            )
        _retry_letters(found, wait, dry_run, as_json)
        return
    try:
        asked, situation = _asked(found, partition, start, end, from_time, to_time, transaction)
    except NothingToDo as error:
        _print_nothing_to_do(error, as_json)
        return
    survey = survey_replay(found, situation, asked)
    if not dry_run:
        request = new_request(found, TransactionKind.REPLAY, asked, respect_deletes=respect_deletes)
        _fulfil(found, _filed(request), wait, as_json)
    elif as_json:
        _print_json(survey.to_dict())
    else:
        _out.print(ranges_view(f"replay of {found.name}", survey.left))
        _say(replay_text(survey))


@requests.command("list")
def list_requests(
    pipeline: Annotated[str, typer.Argument(metavar="[PIPELINE]", help="All pipelines when left out.")] = "",
    most: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many at most, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show requests and how far they are."""
    from hudi_ingest.cli.views import request_facts, requests_view
    from hudi_ingest.ledger import Ledger

    name = _pipeline(pipeline).name if pipeline else None
    ledger = Ledger.open(Home.from_environment().ledger_url)
    try:
        shown = [(request, ledger.progress(request.request_id)) for request in ledger.newest_requests(name, most)]
    finally:
        ledger.dispose()
    if as_json:
        _print_json([request_facts(request, progress) for request, progress in shown])
    elif shown:
        _out.print(requests_view(shown))
    else:
        _say("no requests")


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
        _print_json({"request": request, "cancelled": cancelled})
    else:
        _say(f"{request} is cancelled" if cancelled else f"{request} has ended before: it is {known.state.value}")


@app.command()
def status(
    pipeline: Annotated[str, typer.Argument(metavar="[PIPELINE]", help="All pipelines when left out.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show committed offsets, lag and the last transactions. Exits with 1 while a partition is stopped."""
    from hudi_ingest.cli.views import status_view
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.status import pipeline_status
    from hudi_ingest.pipeline.file import load_pipelines
    from hudi_ingest.transaction.situation import observe

    home = Home.from_environment()
    found = [_pipeline(pipeline)] if pipeline else list(load_pipelines(home.pipelines))
    ledger = Ledger.open(home.ledger_url)
    statuses: list[PipelineStatus] = []
    failed: dict[str, str] = {}
    try:
        for each in found:
            try:
                statuses.append(pipeline_status(each, observe(each), ledger))
            except IngestError as error:
                # One pipeline's trouble must not hide the others' state.
                failed[each.name] = str(error)
    finally:
        ledger.dispose()
    if as_json:
        _print_json([*(each.to_dict() for each in statuses), *({"pipeline": n, "error": e} for n, e in failed.items())])
    else:
        for shown in statuses:
            _out.print(status_view(shown))
            _say_losses(shown.pipeline, shown.stopped)
        for name, text in failed.items():
            _err.print(f"error: {name}: {text}", style="red", markup=False)
    if failed or any(each.stopped for each in statuses):
        raise typer.Exit(1)


@app.command()
def recover(
    pipeline: PipelineName,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Also end open instants that this ledger does not know.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a lost ledger and consumer group back to what the table says. Ingestion goes on without it, too."""
    from hudi_ingest.cli.views import recovery_text
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.recovery import recover
    from hudi_ingest.spark.session import current_session
    from hudi_ingest.transaction.run import protocol_for

    home, found = Home.from_environment(), _pipeline(pipeline)
    ledger = Ledger.open(home.ledger_url)
    try:
        _progress("connecting to Spark")
        recovery = recover(protocol_for(found, ledger, current_session(home)), roll_back=roll_back)
    finally:
        ledger.dispose()
    if as_json:
        _print_json(recovery.to_dict())
    else:
        _say(recovery_text(recovery))


@app.command()
def files(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List the table's live files with the Kafka partition and offsets that each came from."""
    from hudi_ingest.cli.views import files_text
    from hudi_ingest.hudi.timeline import Timeline

    found = Timeline(_pipeline(pipeline).table.base_path).files()
    if as_json:
        _print_json([asdict(each) for each in found])
    else:
        _say(files_text(found))


@app.command()
def sweep(
    pipeline: PipelineName,
    older_than: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS", help="Leave younger files alone; by default 6, and twice timeout_seconds or more."
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete what is found; without it nothing is changed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find files in the table's folder that no transaction needs: what ops that died at the wrong moment left."""
    from hudi_ingest.cli.views import sweep_text
    from hudi_ingest.operations.sweep import run_sweep, safe_age

    found = _pipeline(pipeline)
    try:
        age = safe_age(found, older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from error
    result = run_sweep(found, age, delete=delete, report=_progress)
    if as_json:
        _print_json(result.to_dict())
    else:
        _say(sweep_text(result))


@letters.command("list")
def list_letters(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Count the dead letters that wait, by commit, partition and what is wrong."""
    from hudi_ingest.cli.views import letters_text
    from hudi_ingest.transaction.dead_letters.reading import count_letters

    storage, waiting = _waiting_letters(pipeline)
    found = count_letters(storage, waiting)
    if as_json:
        _print_json([asdict(each) for each in found])
    else:
        _say(letters_text(found))


@letters.command("show")
def show_letters(
    pipeline: PipelineName,
    partition: Annotated[str, typer.Option(metavar="TOPIC:PARTITION", help="Only those of this partition.")] = "",
    offset: Annotated[int | None, typer.Option(min=0, help="Only the one at this offset.")] = None,
    error: Annotated[str, typer.Option(metavar="TEXT", help="Only those with this text in what is wrong.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Not more than this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show dead letters that wait: where each is from, what is wrong with it, and its bytes."""
    from hudi_ingest.cli.views import letter_text
    from hudi_ingest.transaction.dead_letters.reading import find_letters

    storage, waiting = _waiting_letters(pipeline)
    source = _topic_partition(partition) if partition else None
    found = itertools.islice(find_letters(storage, waiting, source=source, offset=offset, text=error), limit)
    if as_json:
        _print_json([each.to_dict() for each in found])
    else:
        _say("\n".join(letter_text(each) for each in found) or "no dead letter matches")


@letters.command("retry")
def retry(pipeline: PipelineName, wait: Wait = True, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Try all dead letters again, after a fix: those that can become rows now are put into the table, once."""
    _retry_letters(_pipeline(pipeline), wait, dry_run, as_json)


@app.command()
def services(
    pipeline: PipelineName,
    cluster: Annotated[bool, typer.Option("--cluster/--no-cluster", help="Merge small files into large ones.")] = True,
    clean: Annotated[
        bool, typer.Option("--clean/--no-clean", help="Delete files that were replaced table.retain_commits ago.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Run the table's services, clustering and cleaning, now; transactions may go on meanwhile."""
    from hudi_ingest.cli.views import services_text
    from hudi_ingest.operations.table_services import run_services

    done = run_services(_pipeline(pipeline), cluster=cluster, clean=clean, report=_progress)
    if as_json:
        _print_json(done.to_dict())
    else:
        _say(services_text(done))


@app.command()
def engine(master: Master = _DEFAULTS.master, memory: Memory = _DEFAULTS.driver_memory) -> None:
    """Run the Spark engine in the foreground; ops of this machine attach to it."""
    from hudi_ingest.spark.engine import run_engine

    run_engine(Home.from_environment(), master=master, driver_memory=memory, report=_progress)


def main() -> None:
    """The entry point: errors of ours end in one message and exit code 1."""
    # A shell that starts us in the background lets us ignore Ctrl-C, and all that we start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Others' loggers, py4j's above all, print tracebacks of errors that are caught and explained here.
    logging.basicConfig(level=logging.CRITICAL, format="%(levelname)s: %(message)s")
    logging.getLogger("hudi_ingest").setLevel(logging.WARNING)
    try:
        app()
    except IngestError as error:
        _err.print(f"error: {error}", style="red", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _pipeline(name: str) -> Pipeline:
    from hudi_ingest.pipeline.file import find_pipeline

    return find_pipeline(Home.from_environment().pipelines, name)


def _waiting_letters(name: str) -> tuple[TableStorage, tuple[WaitingFile, ...]]:
    from hudi_ingest.hudi.storage import TableStorage
    from hudi_ingest.hudi.timeline import Timeline
    from hudi_ingest.transaction.dead_letters.log import DeadLetterLog

    pipeline = _pipeline(name)
    committed = Timeline(pipeline.table.base_path).committed(pipeline.checkpoint_key, pipeline.transaction_key)
    storage = TableStorage(pipeline.table.base_path)
    return storage, DeadLetterLog(storage).waiting(committed.checkpoint.letters if committed.checkpoint else None)


def _say(line: str) -> None:
    _out.print(line, markup=False, highlight=False, soft_wrap=True)


def _progress(line: str) -> None:
    _err.print(f"· {line}", style="dim", markup=False)


def _show_schema(schema: TransactionSchema | None) -> None:
    from hudi_ingest.cli.views import columns_view, schema_text
    from hudi_ingest.records.schema.columns import parse_spark_json

    if schema is not None:
        _say(schema_text(schema))
        _out.print(columns_view(parse_spark_json(schema.columns)))


def _print_nothing_to_do(error: NothingToDo, as_json: bool) -> None:
    if as_json:
        _print_json({"skip": error.reason})
    else:
        _say(f"nothing to do: {error.reason}")


def _print_plan(planned: TransactionPlan, as_json: bool) -> None:
    from hudi_ingest.cli.views import plan_view

    if as_json:
        _print_json(planned.to_dict())
    else:
        _out.print(plan_view(planned))
        if planned.take_over is not None:
            _say(f"{planned.take_over}")
        _say_losses(planned.pipeline, planned.stopped, planned.resets)


def _print_receipt(receipt: CommitReceipt, as_json: bool) -> None:
    from hudi_ingest.cli.views import receipt_text

    for warning in receipt.warnings:
        _err.print(f"warning: {warning}", markup=False)
    if as_json:
        _print_json(_receipt_facts(receipt))
    else:
        _say(receipt_text(receipt))
        _say_losses(receipt.plan.pipeline, receipt.plan.stopped, receipt.plan.resets)


def _receipt_facts(receipt: CommitReceipt) -> dict[str, Any]:
    return {
        "transaction_id": receipt.plan.transaction_id,
        "kind": receipt.plan.kind.value,
        "instant": receipt.instant,
        "rows": receipt.rows,
        "bad_records": receipt.rejected,
        "files": receipt.files,
        "bytes": receipt.size_bytes,
        "seconds": dict(receipt.seconds),
        "slices": [each.to_dict() for each in receipt.reports],
        "resets": [each.to_dict() for each in receipt.plan.resets],
        "stopped": [each.to_dict() for each in receipt.plan.stopped],
        "replaced": [each.path for each in receipt.plan.replaces],
    }


def _retry_letters(pipeline: Pipeline, wait: bool, dry_run: bool, as_json: bool) -> None:
    from hudi_ingest.cli.views import retry_survey_text
    from hudi_ingest.operations.dead_letter_retry import survey_retry
    from hudi_ingest.operations.request_planning import new_request

    if not dry_run:
        _fulfil(pipeline, _filed(new_request(pipeline, TransactionKind.RETRY)), wait, as_json)
        return
    survey = survey_retry(pipeline)
    if as_json:
        _print_json(survey.to_dict())
    else:
        _say(retry_survey_text(survey))


def _standing(request: Request) -> Request | None:
    """An active request that asks for the same: what broke off before goes on."""
    from hudi_ingest.ledger import Ledger

    ledger = Ledger.open(Home.from_environment().ledger_url)
    try:
        return ledger.standing_request(request)
    finally:
        ledger.dispose()


def _filed(request: Request) -> Request:
    from hudi_ingest.operations.request_work import file_request

    return file_request(request, Home.from_environment())


def _fulfil(pipeline: Pipeline, request: Request, wait: bool, as_json: bool) -> None:
    """Shows what becomes of a filed request, or only its id."""
    from hudi_ingest.cli.views import retry_text
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.request_work import commit_text, fulfil, retry_result

    home = Home.from_environment()
    if not wait:
        if as_json:
            _print_json({"request": request.request_id, "state": request.state.value})
        else:
            _say(f"{request.request_id} is filed. `hudi-ingest requests list {pipeline.name}` shows how far it is.")
        return
    _progress(f"{request.request_id} is filed; `hudi-ingest requests cancel {request.request_id}` ends it")
    commits: list[RequestedCommit] = []
    for commit in fulfil(pipeline, request, home=home, report=_progress):
        commits.append(commit)
        if not as_json:
            _say(commit_text(commit, commits))
    retry = None
    if request.kind is TransactionKind.RETRY:
        ledger = Ledger.open(home.ledger_url)
        try:
            retry = retry_result(pipeline, ledger, request.request_id)
        finally:
            ledger.dispose()
    if as_json:
        facts = retry.to_dict() if retry else {"pipeline": pipeline.name}
        _print_json({**facts, "request": request.request_id, "transactions": [asdict(commit) for commit in commits]})
    elif retry is not None:
        _say(retry_text(retry))


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
        source = _topic_partition(partition)
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


def _say_losses(pipeline: str, stopped: Sequence[OffsetLoss], resets: Sequence[OffsetLoss] = ()) -> None:
    # Not wrapped: the commands in it are there to be copied.
    from hudi_ingest.transaction.planning import losses_text

    for title, text in losses_text(pipeline, stopped, resets).items():
        _out.print(f"{title}:\n{text}", style="red", markup=False, highlight=False, soft_wrap=True)


def _topic_partition(text: str) -> TopicPartition:
    try:
        return TopicPartition.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"--partition: {error}") from error


def _offset(text: str) -> tuple[TopicPartition, int]:
    source, _, number = text.rpartition(":")
    topic, _, partition = source.rpartition(":")
    if not topic or not partition.isdecimal() or not number.isdecimal():
        raise typer.BadParameter(f"--from wants TOPIC:PARTITION:OFFSET, like orders:3:1200; found {text!r}")
    return TopicPartition(topic, int(partition)), int(number)


def _print_json(facts: Any) -> None:
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
