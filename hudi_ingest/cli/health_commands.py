"""doctor, test-alerts: what is wrong, and who is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hudi_ingest.cli.app import app
from hudi_ingest.cli.options import AsJson
from hudi_ingest.cli.printing import err, out, print_json, progress, say
from hudi_ingest.exceptions import ConfigError, IngestError
from hudi_ingest.home.folder import Home

if TYPE_CHECKING:
    from hudi_ingest.operations.doctor.diagnosis import Diagnosis

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "bold red")}


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Examine machine, ledger, engine, Dagster and every pipeline, and say what to do. Changes nothing; exits with 1 if there
    is a problem."""
    from hudi_ingest.operations.doctor.diagnosis import State, distinct, worst

    diagnoses = distinct(_diagnoses(Home.from_environment()))
    if as_json:
        print_json({"state": worst(diagnoses).value, "diagnoses": [diagnosis.to_dict() for diagnosis in diagnoses]})
    else:
        for diagnosis in diagnoses:
            _show(diagnosis)
        _show_summary(diagnoses)
    if worst(diagnoses) is State.PROBLEM:
        raise typer.Exit(1)


def _diagnoses(home: Home) -> Iterator[Diagnosis]:
    from hudi_ingest.local.stack_diagnoses import STACK, stack_diagnoses
    from hudi_ingest.model.storage_options import is_s3
    from hudi_ingest.operations.doctor.diagnosis import examined
    from hudi_ingest.operations.doctor.engine import ENGINE, engine_diagnoses
    from hudi_ingest.operations.doctor.ledger import LEDGER, ledger_diagnoses
    from hudi_ingest.operations.doctor.machine import machine_diagnoses
    from hudi_ingest.operations.doctor.pipelines import folder_diagnoses, pipelines_diagnoses
    from hudi_ingest.orchestration.dagster_diagnoses import dagster_diagnoses
    from hudi_ingest.pipeline.folder import load_each
    from hudi_ingest.transaction.decoding import format_problems

    progress("examining this machine")
    pipelines, broken = load_each(home.pipelines, check=format_problems) if home.pipelines.is_dir() else ((), ())
    paths = [pipeline.table.base_path for pipeline in pipelines]
    yield from machine_diagnoses(home, [Path(path) for path in paths if not is_s3(path)])
    yield from examined(LEDGER, lambda: ledger_diagnoses(home))
    progress("examining the engine and Dagster")
    yield from examined(STACK, lambda: stack_diagnoses(home))
    yield from examined(ENGINE, lambda: engine_diagnoses(home))
    yield from dagster_diagnoses(home, pipelines)
    yield from folder_diagnoses(home, pipelines, broken)
    yield from pipelines_diagnoses(home, pipelines, progress)


def _show(diagnosis: Diagnosis) -> None:
    mark, style = _MARKS[diagnosis.state.value]
    out.print(f"{mark:<8}", style=style, end="", markup=False, highlight=False)
    out.print(f" {diagnosis.subject}: {diagnosis.text}", markup=False, highlight=False, soft_wrap=True)
    if diagnosis.remedy:
        out.print(f"         → {diagnosis.remedy}", markup=False, highlight=False, soft_wrap=True)


def _show_summary(diagnoses: list[Diagnosis]) -> None:
    counts = Counter(diagnosis.state.value for diagnosis in diagnoses)
    bad, doubtful = counts["problem"], counts["warning"]
    text = "All is well." if not bad and not doubtful else f"Problems: {bad}, warnings: {doubtful}."
    out.print(text, style="bold", markup=False, highlight=False)


@app.command("test-alerts")
def test_alerts() -> None:
    """Send a test message to every channel of alerts.yaml."""
    from hudi_ingest.operations.channels import channels
    from hudi_ingest.operations.incidents import Incident, News
    from hudi_ingest.pipeline.alerts import load_alert_settings

    home = Home.from_environment()
    reach = channels(load_alert_settings(home))
    if not reach:
        raise ConfigError(str(home.alerts_settings_file), ["no channel; add `webhooks` or `email`"])
    test = Incident("test", "test_alerts", "This is a test. Nothing is wrong.")
    failures = []
    for name, send in reach.items():
        progress(f"telling {name}")
        try:
            send(News((test,), ()))
            say(f"{name}: told")
        except IngestError as error:
            failures.append(name)
            err.print(f"error: {error}", style="red", markup=False)
    if failures:
        raise typer.Exit(1)
