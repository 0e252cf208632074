"""recover, files, audit, sweep, services, sync-catalog, ttl, savepoints: upkeep of tables; doctor, test-alerts, housekeeping: of the installation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hudi_ingest.cli.app import (
    AsJson,
    FromTime,
    PipelineName,
    ToTime,
    app,
    clock,
    ended_by_nothing_to_do,
    err,
    named_pipeline,
    out,
    print_json,
    print_result,
    progress,
    say,
    usage_error_for_wrong_selection,
)
from hudi_ingest.exceptions import ConfigError, IngestError
from hudi_ingest.home.folder import Home

if TYPE_CHECKING:
    from hudi_ingest.model.finding import Finding


@app.command()
def recover(
    name: PipelineName,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Also roll back open instants that this ledger does not know.")
    ] = False,
    new_table: Annotated[
        bool,
        typer.Option(
            "--new-table",
            help="Also confirm that table.base_path was changed on purpose, to a table without the last commit.",
        ),
    ] = False,
    metadata_table: Annotated[
        bool,
        typer.Option(
            "--metadata-table",
            help="Also delete the metadata table and build it again from the stored files: when the table does not list files "
            "of its commits.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a lost ledger and consumer group from the table. Ingestion does not depend on it."""
    from hudi_ingest.cli.views import recovery_text
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.upkeep.recovery import recover
    from hudi_ingest.spark.session import current_session
    from hudi_ingest.transaction.run import protocol_for

    home, pipeline = Home.from_environment(), named_pipeline(name)
    with Ledger.open(home.ledger_url) as ledger, clock("connecting to Spark") as report:
        protocol = protocol_for(pipeline, ledger, current_session(home, report=report), home)
        recovery = recover(protocol, roll_back=roll_back, new_table=new_table, metadata_table=metadata_table)
    print_result(as_json, recovery.to_dict(), recovery_text(recovery))


@app.command()
def files(name: PipelineName, as_json: AsJson = False) -> None:
    """List the table's live files, with the Kafka partition and offsets of each base file."""
    from hudi_ingest.cli.views import files_text
    from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable

    pipeline = named_pipeline(name)
    timeline = PipelineTable(pipeline).timeline
    base_files, log_files = timeline.files(), timeline.log_files() if pipeline.table.is_keyed else []
    print_result(as_json, [*map(asdict, base_files), *map(asdict, log_files)], files_text(base_files, log_files))


@app.command()
def audit(name: PipelineName, from_time: FromTime = None, to_time: ToTime = None, as_json: AsJson = False) -> None:
    """Read the whole table and compare it with its commits, their certificates and the topics: name each offset that is lost, doubled,
    moved or altered, and say what was not examined. Changes nothing, needs no Spark; exits with 1 if anything is wrong."""
    from hudi_ingest.cli.views import audit_text
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.audit import audit
    from hudi_ingest.operations.requests.asked_ranges import named_time

    pipeline = named_pipeline(name)
    with usage_error_for_wrong_selection():
        start, end = named_time("--from-time", from_time), named_time("--to-time", to_time)
    if end is not None and start is None:
        raise typer.BadParameter("--to-time needs --from-time")
    with (
        ended_by_nothing_to_do(as_json),
        Ledger.open(Home.from_environment().ledger_url) as ledger,
        clock() as report,
    ):
        found = audit(pipeline, start, end, report, ledger)
    print_result(as_json, found.to_dict(), audit_text(found))
    if not found.is_right:
        raise typer.Exit(1)


@app.command()
def sweep(
    name: PipelineName,
    older_than: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS", help="Leave younger files alone. Default: 6, but at least twice timeout_seconds."
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files found. Without it, nothing changes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find orphans: files in the table's folder that belong to no commit, left behind by ops that died. Exits with 1 if the
    table does not list a live file of a commit."""
    from hudi_ingest.cli.views import sweep_text
    from hudi_ingest.operations.upkeep.sweep import run_sweep, safe_age

    pipeline = named_pipeline(name)
    try:
        age = safe_age(pipeline, older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from error
    with clock() as report:
        result = run_sweep(pipeline, age, delete=delete, report=report)
    print_result(as_json, result.to_dict(), sweep_text(result))
    if result.problem:
        raise typer.Exit(1)


@app.command()
def services(
    name: PipelineName,
    cluster: Annotated[
        bool | None,
        typer.Option(
            "--cluster/--no-cluster", help="Merge small files into large ones; by default, unless the table is keyed."
        ),
    ] = None,
    compact: Annotated[
        bool | None,
        typer.Option(
            "--compact/--no-compact",
            help="Merge log files into base files, due or not; by default, if the table is keyed.",
        ),
    ] = None,
    clean: Annotated[
        bool,
        typer.Option("--clean/--no-clean", help="Delete files that were replaced table.retain_commits commits ago."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Run the table services now: clustering or compaction, and cleaning. Transactions may run at the same time."""
    from hudi_ingest.cli.views import services_text
    from hudi_ingest.operations.upkeep.table_services import run_services

    with clock() as report:
        result = run_services(named_pipeline(name), cluster=cluster, compact=compact, clean=clean, report=report)
    print_result(as_json, result.to_dict(), services_text(result))


@app.command("sync-catalog")
def sync_catalog(name: PipelineName, as_json: AsJson = False) -> None:
    """Sync the table to its catalog now, with all partitions, and publish its commits to Iceberg, whichever it has. Commits do this
    automatically when something has changed."""
    from hudi_ingest.exceptions.problems import counted
    from hudi_ingest.transaction.catalog_sync import sync_catalog
    from hudi_ingest.transaction.iceberg_sync import publish_iceberg

    pipeline, texts = named_pipeline(name), []
    result: dict[str, Any] = {}
    with ended_by_nothing_to_do(as_json), clock() as report:
        if pipeline.catalog is not None or pipeline.table.iceberg is None:
            synced = sync_catalog(pipeline, report=report)
            known = f"before, {synced.lacked}" if synced.lacked else "it was up to date as far as is known"
            result |= synced.to_dict()
            texts.append(f"{synced.base_path} is in sync with {synced.catalog} ({synced.seconds:.1f} s; {known})")
        if pipeline.table.iceberg is not None:
            published = publish_iceberg(pipeline)
            result |= {"iceberg": published.to_dict()}
            texts.append(
                f"{published.base_path} is in Iceberg's {published.table} up to {published.instant} ({published.seconds:.1f} s; "
                f"{counted(published.snapshots, 'new snapshot')})"
            )
    print_result(as_json, result, "\n".join(texts))


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

    with clock() as report:
        result = run_ttl(named_pipeline(name), plan_only=plan, savepoint=savepoint, report=report)
    print_result(as_json, result.to_dict(), ttl_text(result))


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
            help="Roll back all later commits, with their checkpoint: the next transaction re-reads their offsets. Pause the "
            "pipeline before.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the table's savepoints, or make, delete or restore one."""
    from hudi_ingest.operations.upkeep.savepoints import savepoints_of

    if sum((create, delete is not None, restore is not None)) > 1:
        raise typer.BadParameter("--create, --delete and --restore exclude each other")
    with clock() as report, savepoints_of(named_pipeline(name), report=report) as found:
        if create:
            found.create("by hudi-ingest savepoints", report)
        if delete is not None:
            found.delete(delete)
        if restore is not None:
            found.restore(restore, report)
        listed = found.list()
    print_result(
        as_json,
        [asdict(savepoint) for savepoint in listed],
        "\n".join(f"{savepoint.instant}  by {savepoint.by}: {savepoint.comment}" for savepoint in listed)
        or "no savepoints",
    )


_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "bold red")}


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check the machine, ledger, engine, Dagster and every pipeline, and say how to fix what is wrong. Changes nothing; exits with 1
    if there is a problem."""
    from hudi_ingest.examination import examine
    from hudi_ingest.model.finding import State

    with clock() as report:
        examination = examine(Home.from_environment(), report)
    if as_json:
        print_json(examination.to_dict())
    else:
        for diagnosis in examination.diagnoses:
            _show(diagnosis)
        _show_summary(examination.diagnoses)
    if examination.state is State.PROBLEM:
        raise typer.Exit(1)


def _show(diagnosis: Finding) -> None:
    mark, style = _MARKS[diagnosis.state.value]
    out.print(f"{mark:<8}", style=style, end="", markup=False, highlight=False)
    out.print(f" {diagnosis.subject}: {diagnosis.text}", markup=False, highlight=False, soft_wrap=True)
    if diagnosis.remedy:
        out.print(f"         → {diagnosis.remedy}", markup=False, highlight=False, soft_wrap=True)


def _show_summary(diagnoses: Iterable[Finding]) -> None:
    counts = Counter(diagnosis.state.value for diagnosis in diagnoses)
    bad, doubtful = counts["problem"], counts["warning"]
    text = "All is well." if not bad and not doubtful else f"Problems: {bad}, warnings: {doubtful}."
    out.print(text, style="bold", markup=False, highlight=False)


@app.command("test-alerts")
def test_alerts() -> None:
    """Send a test message to every channel of alerts.yaml."""
    from hudi_ingest.operations.health.alerts import Incident, News, channels
    from hudi_ingest.pipeline.code_location import load_alert_settings

    home = Home.from_environment()
    reach = channels(load_alert_settings(home))
    if not reach:
        file = home.alerts_settings_file
        problem = "no channel; add" if file.exists() else "file not found; create it, with"
        raise ConfigError(str(file), [f"{problem} `webhooks` or `email`"])
    test = Incident("test", "test_alerts", "This is a test. Nothing is wrong.")
    failures = []
    for name, send in reach.items():
        progress(f"telling {name}")
        try:
            send(News((test,)))
            say(f"{name}: told")
        except IngestError as error:
            failures.append(name)
            err.print(f"error: {error}", style="red", markup=False)
    if failures:
        raise typer.Exit(1)


@app.command()
def housekeeping(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete old Dagster runs, events and ticks of the pipelines, and rows of the ledger, as housekeeping.yaml says.

    The Dagster is the one at DAGSTER_HOME, or the embedded stack's.
    """
    from hudi_ingest.ledger import Ledger

    # Loads the pipelines.
    from hudi_ingest.orchestration.definitions import defs
    from hudi_ingest.orchestration.housekeeping import housekeeping_of
    from hudi_ingest.pipeline.code_location import load_housekeeping_settings

    home = Home.from_environment()
    settings = load_housekeeping_settings(home)
    repository = defs.get_repository_def()
    with Ledger.open(home.ledger_url) as ledger, housekeeping_of(home, settings, ledger, repository) as kept:
        if kept.instance is None:
            progress(
                f"no Dagster: DAGSTER_HOME is not set, and there is none in {home.dagster}; only the ledger is cleaned"
            )
        done = kept.run(datetime.now(timezone.utc), progress, dry_run=dry_run)
    print_result(as_json, done.to_dict(), done.sentence)
