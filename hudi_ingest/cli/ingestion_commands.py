"""validate, plan, sample, run, accept-loss, status: live ingestion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hudi_ingest.exceptions import (
    ConfigError,
    IngestError,
    NothingToDo,
)
from hudi_ingest.home.folder import Home
from hudi_ingest.model.report import CommitReceipt

if TYPE_CHECKING:
    from hudi_ingest.operations.status import PipelineStatus
from hudi_ingest.cli.app import app
from hudi_ingest.cli.options import AsJson, DryRun, PipelineName, named_pipeline, partition_offset, topic_partition
from hudi_ingest.cli.printing import (
    err,
    out,
    print_json,
    print_nothing_to_do,
    print_plan,
    print_receipt,
    progress,
    say,
    say_losses,
    show_schema,
)


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
                err.print(str(error), markup=False)
    if as_json:
        print_json(problems)
    else:
        for name in (name for name, found in problems.items() if not found):
            say(f"{name}: ok; columns {columns[name]}")
    if any(problems.values()):
        raise typer.Exit(1)


@app.command()
def plan(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Show what the next transaction would read, and what becomes of the table's columns. Changes nothing."""
    from hudi_ingest.cli.views import schema_facts
    from hudi_ingest.hudi.timeline import Timeline
    from hudi_ingest.transaction.columns import resolve_schema
    from hudi_ingest.transaction.situation import plan_now

    found = named_pipeline(pipeline)
    timeline = Timeline(found.table.base_path)
    try:
        planned = plan_now(found)
    except NothingToDo as error:
        # Where nobody has declared them, columns may be found only once there are records.
        known = resolve_schema(found, timeline) if found.table.declares_schema or timeline.exists() else None
        if as_json:
            print_json({"skip": error.reason, **(schema_facts(known) if known else {})})
            return
        print_nothing_to_do(error, as_json)
        show_schema(known)
        return
    schema = resolve_schema(found, timeline)
    planned = replace(planned, schema_changes=schema.changes)
    if as_json:
        print_json({**planned.to_dict(), **schema_facts(schema)})
        return
    print_plan(planned, as_json)
    show_schema(schema)


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

    starts = dict(partition_offset(each) for each in from_ or ())
    if len(starts) < len(from_ or ()):
        raise typer.BadParameter("--from names a partition twice; name each once")
    found = take_sample(named_pipeline(pipeline), starts or None, most)
    if as_json:
        print_json(found.to_dict())
    else:
        out.print(sample_view(found))


@app.command()
def run(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Run one transaction now, in this process; uses the engine when one runs."""
    from hudi_ingest.transaction.run import run_transaction

    try:
        receipt = run_transaction(named_pipeline(pipeline), report=progress)
    except NothingToDo as error:
        print_nothing_to_do(error, as_json)
        return
    print_receipt(receipt, as_json)


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

    found = named_pipeline(pipeline)
    sources = [topic_partition(each) for each in partition or ()]
    if not sources and not topic:
        raise typer.BadParameter("name at least one --partition TOPIC:PARTITION or --topic TOPIC")
    if dry_run:
        print_plan(plan_accepting(found, sources, topic or ()), as_json)
        return

    def accept() -> CommitReceipt:
        return run_transaction(found, plan=plan_accepting(found, sources, topic or ()), report=progress)

    # The partitions that go on have transactions of their own, which soon end.
    print_receipt(when_table_is_free(accept, found.transaction.timeout_seconds, progress), as_json)


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
    found = [named_pipeline(pipeline)] if pipeline else list(load_pipelines(home.pipelines))
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
        print_json([*(each.to_dict() for each in statuses), *({"pipeline": n, "error": e} for n, e in failed.items())])
    else:
        for shown in statuses:
            out.print(status_view(shown))
            say_losses(shown.pipeline, shown.stopped)
        for name, text in failed.items():
            err.print(f"error: {name}: {text}", style="red", markup=False)
    if failed or any(each.stopped for each in statuses):
        raise typer.Exit(1)
