"""recover, files, sweep, services: care of a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hudi_ingest.cli.app import app
from hudi_ingest.cli.options import AsJson, PipelineName, named_pipeline
from hudi_ingest.cli.printing import print_json, progress, say
from hudi_ingest.home.folder import Home


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

    home, found = Home.from_environment(), named_pipeline(pipeline)
    ledger = Ledger.open(home.ledger_url)
    try:
        progress("connecting to Spark")
        recovery = recover(protocol_for(found, ledger, current_session(home)), roll_back=roll_back)
    finally:
        ledger.dispose()
    if as_json:
        print_json(recovery.to_dict())
    else:
        say(recovery_text(recovery))


@app.command()
def files(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List the table's live files with the Kafka partition and offsets that each came from."""
    from hudi_ingest.cli.views import files_text
    from hudi_ingest.hudi.timeline import Timeline

    found = Timeline(named_pipeline(pipeline).table.base_path).files()
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        say(files_text(found))


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

    found = named_pipeline(pipeline)
    try:
        age = safe_age(found, older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from error
    result = run_sweep(found, age, delete=delete, report=progress)
    if as_json:
        print_json(result.to_dict())
    else:
        say(sweep_text(result))


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

    done = run_services(named_pipeline(pipeline), cluster=cluster, clean=clean, report=progress)
    if as_json:
        print_json(done.to_dict())
    else:
        say(services_text(done))
