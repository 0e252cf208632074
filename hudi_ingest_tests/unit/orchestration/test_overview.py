"""The table of all pipelines: worst first, with what is wrong, and reported again when something changes."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, SensorDefinition, TableMetadataValue, build_sensor_context

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.operations.health.judgement import LAG_RECORDS
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

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def _check(passed: bool = True, warning: bool = False, text: str = "") -> Finding:
    return answer("orders", "", passed, text, {}, warning, NOW)


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
            {"a": _check(False, True, "Slow."), "b": _check(False, False, "Broken here:\n- a.parquet\nMend it.")},
            False,
            "failing",
            "b: Broken here: - a.parquet; a: Slow",
        ),
    ],
)
def test_a_pipelines_state_is_that_of_its_worst_check(
    checks: dict[str, Finding], running: bool, state: str, wrong: str
) -> None:
    row = overview_row("orders", checks, running)
    assert (row["state"], row["what is wrong"]) == (state, wrong)


def test_the_table_has_the_worst_first_and_no_numbers_that_grow_old() -> None:
    rows = [
        overview_row("orders", {"up_to_date": _check()}, True),
        overview_row("b", {"x": _check(False)}, True),
        overview_row("a", {"x": _check(False)}, True),
    ]
    assert [*rows[0]] == ["pipeline", "state", "what is wrong"]
    assert [row["pipeline"] for row in worst_first(rows)] == ["a", "b", "orders"]
    assert summary(rows) == "2 failing, 1 well"


def test_a_long_text_is_cut_to_fit_its_cell() -> None:
    sentence = "The last 2 runs of orders failed, the newest is 47c9a80a: BadRecord: pipeline orders, topic orders:0, offset 7, field amount"
    assert overview_row("orders", {"runs_succeed": _check(False, text=f"{sentence}. See the run.")}, True)[
        "what is wrong"
    ].endswith(sentence)
    row = overview_row("orders", {"runs_succeed": _check(False, text="no " * 200)}, True)
    assert len(row["what is wrong"]) < 270
    assert row["what is wrong"].endswith("…")


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
        _report(instance, orders, answer("orders", "up_to_date", True, "Well.", {LAG_RECORDS: 7}))
        assert _tick(sensor, instance, cursor) == cursor, "a number is no news"
        _report(instance, orders, answer("orders", "up_to_date", False, "12 records waiting. See the runs."))
        assert _tick(sensor, instance, cursor) != cursor
        observations = instance.fetch_observations(AssetKey(["hudi_ingest_overview"]), limit=10).records
        with Ledger.open(Home.from_environment().ledger_url) as ledger:
            ledger.requests.switch("orders", False)
        paused, other = current_rows(instance, [orders, payments])
    assert (paused["state"], paused["what is wrong"], other["state"]) == ("paused", "", "not reported yet")
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
