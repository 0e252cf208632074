"""ttl, savepoints: how long data is kept, and ways back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hudi_ingest.cli.app import app
from hudi_ingest.cli.options import AsJson, PipelineName, named_pipeline
from hudi_ingest.cli.printing import print_json, progress, say


@app.command()
def ttl(
    name: PipelineName,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show which partitions would be dropped and change nothing.")
    ] = False,
    savepoint: Annotated[
        bool,
        typer.Option("--savepoint/--no-savepoint", help="Create a savepoint first, so that the table can be restored."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Drop table partitions older than table.ttl now. The nightly schedule does the same, without a savepoint."""
    from hudi_ingest.cli.views import ttl_text
    from hudi_ingest.operations.upkeep.partition_ttl import run_ttl

    result = run_ttl(named_pipeline(name), plan_only=plan, savepoint=savepoint, report=progress)
    if as_json:
        print_json(result.to_dict())
    else:
        say(ttl_text(result))


@app.command()
def savepoints(
    name: PipelineName,
    create: Annotated[bool, typer.Option("--create", help="Make a savepoint of the newest commit.")] = False,
    delete: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Delete this savepoint; cleaning and archival go on.")
    ] = None,
    restore: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANT",
            help="Take back all later commits, with their checkpoint: the next transaction reads their offsets again. Pause the "
            "pipeline before.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the table's savepoints, or make, delete or restore one."""
    from hudi_ingest.operations.upkeep.savepoints import savepoints_of

    if sum((create, delete is not None, restore is not None)) > 1:
        raise typer.BadParameter("--create, --delete and --restore exclude each other")
    with savepoints_of(named_pipeline(name), report=progress) as found:
        if create:
            found.create("by hudi-ingest savepoints", progress)
        if delete is not None:
            found.delete(delete)
        if restore is not None:
            found.restore(restore, progress)
        listed = found.list()
    if as_json:
        print_json([asdict(savepoint) for savepoint in listed])
    else:
        say(
            "\n".join(f"{savepoint.instant}  by {savepoint.by}: {savepoint.comment}" for savepoint in listed)
            or "no savepoints"
        )
