"""doctor, test-alerts, housekeeping: what is wrong, who is told, and upkeep of the records about transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from hudi_ingest.cli.app import AsJson, app
from hudi_ingest.cli.printing import err, out, print_json, print_result, progress, say
from hudi_ingest.exceptions import ConfigError, IngestError
from hudi_ingest.home.folder import Home

if TYPE_CHECKING:
    from hudi_ingest.model.finding import Finding


_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "bold red")}


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check the machine, ledger, engine, Dagster and every pipeline, and say how to fix what is wrong. Changes nothing; exits with 1
    if there is a problem."""
    from hudi_ingest.examination import examine
    from hudi_ingest.model.finding import State

    examination = examine(Home.from_environment(), progress)
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
    from hudi_ingest.orchestration.housekeeping.housekeeping import housekeeping_of
    from hudi_ingest.pipeline.code_location import load_housekeeping_settings

    home = Home.from_environment()
    settings = load_housekeeping_settings(home)
    with Ledger.open(home.ledger_url) as ledger, housekeeping_of(home, settings, ledger) as kept:
        if kept.instance is None:
            progress(
                f"no Dagster: DAGSTER_HOME is not set, and there is none in {home.dagster}; only the ledger is cleaned"
            )
        done = kept.run(datetime.now(timezone.utc), progress, dry_run=dry_run)
    print_result(as_json, done.to_dict(), done.sentence)
