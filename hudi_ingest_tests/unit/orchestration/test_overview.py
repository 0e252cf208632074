"""The table of all pipelines: worst first, with what is wrong, and reported again when something changes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, SensorDefinition, TableMetadataValue, build_sensor_context
from dagster._core.scheduler.instigation import InstigatorStatus

from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.orchestration.reports.checks import evaluation
from hudi_ingest.orchestration.reports.overview import (
    current_rows,
    overview_definitions,
    overview_row,
    summary,
    worst_first,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import Write, load
from hudi_ingest_tests.unit.orchestration.test_sensor_switch import seen

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def _check(passed: bool = True, warning: bool = False, text: str = "", **figures: float) -> Finding:
    shown = {name.replace("_", " ").replace("records", "(records)"): value for name, value in figures.items()}
    return answer("orders", "", passed, text, shown, warning, NOW)


@pytest.mark.parametrize(
    ("checks", "running", "state", "wrong"),
    [
        ({}, True, "not reported yet", ""),
        ({}, False, "paused", ""),
        ({"up_to_date": _check()}, True, "well", ""),
        ({"up_to_date": _check()}, False, "paused", ""),
        (
            {"dead_letters": _check(False, True, "3 bad records. Fix them.")},
            True,
            "warning",
            "dead_letters: 3 bad records",
        ),
        (
            {"a": _check(False, True, "Slow."), "b": _check(False, False, "Broken\nhere. Mend it.")},
            False,
            "failing",
            "b: Broken here; a: Slow",
        ),
    ],
)
def test_a_pipelines_state_is_that_of_its_worst_check(
    checks: dict[str, Finding], running: bool, state: str, wrong: str
) -> None:
    row = overview_row("orders", checks, running)
    assert (row.state, row.wrong) == (state, wrong)


def test_a_pipeline_without_lag_is_not_behind_and_its_last_commit_is_a_time() -> None:
    checks = {"lag_below_limit": _check(lag_records=0), "up_to_date": _check(seconds_since_the_last_commit=3600)}
    row = overview_row("orders", checks, True)
    assert (row.behind, row.waiting) == (0.0, 0)
    assert [*row.to_dict()][:4] == ["pipeline", "state", "what is wrong", "last commit (UTC)"]
    assert row.to_dict()["last commit (UTC)"] == "2026-01-31 11:00"
    paused = overview_row("orders", checks, False).to_dict()
    assert (paused["seconds behind"], paused["records waiting"]) == ("?", "?"), "nobody looks at them"
    rows = [row, overview_row("b", {"x": _check(False)}, True), overview_row("a", {"x": _check(False)}, True)]
    assert [row.pipeline for row in worst_first(rows)] == ["a", "b", "orders"]
    assert summary(rows) == "2 failing, 1 well"


def test_nothing_unknown_is_shown_as_zero_or_none() -> None:
    blind = {"lag_below_limit": _check(lag_records=0), "up_to_date": _check(False, text="Cannot tell: no broker.")}
    away = overview_row("orders", blind, True).to_dict()
    assert [away[name] for name in ("seconds behind", "records waiting", "last commit (UTC)")] == ["?", "?", "?"]
    in_ledger = overview_row("orders", blind, True, NOW - timedelta(hours=2)).to_dict()
    assert in_ledger["last commit (UTC)"] == "2026-01-31 10:00"
    by_command_line = overview_row("orders", {}, False, NOW).to_dict()
    assert by_command_line["last commit (UTC)"] == "2026-01-31 12:00"
    assert overview_row("orders", {}, False).to_dict()["last commit (UTC)"] == "?"
    assert overview_row("orders", {"up_to_date": _check()}, True).to_dict()["last commit (UTC)"] == "none"
    waiting = {"lag_below_limit": _check(lag_records=502), "up_to_date": _check(seconds_since_the_last_commit=9)}
    row = overview_row("orders", waiting, True)
    assert (row.waiting, row.behind) == (502, None)


def test_a_long_text_is_cut_to_fit_its_cell() -> None:
    row = overview_row("orders", {"runs_succeed": _check(False, text="no " * 100)}, True)
    assert len(row.wrong) < 110
    assert row.wrong.endswith("…")


def test_the_sensor_reports_what_has_changed(write: Write, tmp_path: Path) -> None:
    orders, payments = (
        load(write, name=name, table__base_path=f"/data/{name}", enabled=True) for name in ("orders", "payments")
    )
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        _report(instance, orders, answer("orders", "up_to_date", True, "Well."))
        definitions = overview_definitions([orders, payments])
        (sensor,) = definitions.sensors or ()
        assert isinstance(sensor, SensorDefinition)
        cursor = _tick(sensor, instance, None)
        assert _tick(sensor, instance, cursor) == cursor, "nothing has changed"
        _report(instance, orders, answer("orders", "up_to_date", False, "12 records waiting. See the runs."))
        assert _tick(sensor, instance, cursor) != cursor
        observations = instance.fetch_observations(AssetKey(["hudi_ingest_overview"]), limit=10).records
        instance.add_instigator_state(seen(InstigatorStatus.STOPPED))
        paused, other = current_rows(instance, [orders, payments])
    assert (paused.state, paused.wrong, other.state) == ("paused", "", "not reported yet")
    assert len(observations) == 2
    newest = observations[0].asset_observation
    assert newest is not None
    assert newest.metadata["state"].value == "1 failing, 1 not reported yet"
    table = newest.metadata["pipelines"]
    assert isinstance(table, TableMetadataValue)
    assert [dict(record.data)["what is wrong"] for record in table.records] == ["up_to_date: 12 records waiting", ""]


def _report(instance: DagsterInstance, pipeline: Pipeline, finding: Finding) -> None:
    instance.report_runless_asset_event(evaluation(pipeline, finding))


def _tick(sensor: SensorDefinition, instance: DagsterInstance, cursor: str | None) -> str | None:
    context = build_sensor_context(instance, cursor=cursor)
    sensor(context)
    return context.cursor
