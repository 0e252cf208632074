"""The asset `hudi_ingest_overview`: all pipelines of the code location in one table, worst first, kept by a sensor.

It reads what the coordinators have reported, so it asks neither brokers nor tables. Numbers are on the page of `hudi-ingest serve`, which
has them as they are: here they would be old, and leave no room for reasons.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    AssetSpec,
    DagsterInstance,
    DefaultSensorStatus,
    Definitions,
    MetadataValue,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    TableColumn,
    sensor,
)

from hudi_ingest.model.finding import Finding, first_sentence
from hudi_ingest.operations.health.judgement import LAG_BELOW_LIMIT, UP_TO_DATE
from hudi_ingest.orchestration.home_instance import kept_instance
from hudi_ingest.orchestration.reports.checks import newest_results
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.orchestration.switch import switches_of
from hudi_ingest.pipeline.pipeline import Pipeline

NAME = "hudi_ingest_overview"
SECONDS = 30
REPEAT_SECONDS = 300
"""How often the table is reported again when only the words about what is wrong have changed."""
_COLUMNS = [
    TableColumn("pipeline", "string", description="name, as in its pipeline file"),
    TableColumn("state", "string", description="by the newest result of each check"),
    TableColumn(
        "what is wrong", "string", description="how each failing check begins; the check itself says what to do"
    ),
]
WELL, WARNING, FAILING, PAUSED, UNKNOWN = "well", "warning", "failing", "paused", "not reported yet"
STATES = (FAILING, WARNING, UNKNOWN, PAUSED, WELL)
"""Worst first."""
_LONGEST = 240
"""Characters: some five lines in a window of 1,500 pixels, so that the other pipelines stay on the page."""


Row = dict[str, str]
"""A pipeline at a glance, by the names of `_COLUMNS`."""


def overview_definitions(pipelines: Sequence[Pipeline], suffix: str = "") -> Definitions:
    """Return the asset and its sensor, which is on from the start. `suffix`: of their names, if a code location merges several."""
    if not pipelines:
        return Definitions()
    description = (
        "All pipelines, worst first: the newest observation has the table. A sensor reports it when a state changes. `hudi-ingest serve` "
        "has a page with their numbers."
    )
    asset = AssetSpec(f"{NAME}{suffix}", description=description, group_name="hudi_ingest", kinds={"hudi", "kafka"})
    return Definitions(assets=[asset], sensors=[_sensor(f"{NAME}{suffix}", pipelines)])


def _sensor(name: str, pipelines: Sequence[Pipeline]) -> SensorDefinition:
    @sensor(
        name=name,
        minimum_interval_seconds=SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Keeps the table of the asset {name} up to date; launches nothing.",
    )
    def overview(context: SensorEvaluationContext) -> SkipReason:
        now, instance = datetime.now(timezone.utc), kept_instance(context)
        rows = worst_first(current_rows(instance, pipelines))
        known = _Reported.read(context.cursor)
        reported = _Reported(_states(rows), _texts(rows), now.timestamp())
        if known is None or known.is_outdated_by(reported):
            instance.report_runless_asset_event(observation(name, rows))
            context.update_cursor(json.dumps(asdict(reported)))
        return SkipReason(summary(rows))

    return overview


def observation(name: str, rows: Sequence[Row]) -> AssetObservation:
    """Build the observation of these rows, worst first."""
    metadata: dict[str, Any] = {
        "state": summary(rows),
        **{f"pipelines/{state}": MetadataValue.int(sum(row["state"] == state for row in rows)) for state in STATES},
        "pipelines": metadata_table(_COLUMNS, rows),
    }
    return AssetObservation(AssetKey([name]), description=f"{summary(rows)}.", metadata=metadata)


def current_rows(instance: DagsterInstance, pipelines: Sequence[Pipeline]) -> list[Row]:
    """Return a row for each pipeline, by the newest results of its checks."""
    switches = switches_of(instance)
    results = newest_results(instance, pipelines)
    return [
        overview_row(
            pipeline.name,
            _without_lag(results[pipeline.name]) if switches.is_paused(pipeline) else results[pipeline.name],
            switches.is_on(pipeline),
        )
        for pipeline in pipelines
    ]


def _without_lag(results: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return the last results of a paused pipeline's checks, without failures that it may well have been paused for: no tick takes them
    back."""
    return {name: check for name, check in results.items() if check.passed or name not in (LAG_BELOW_LIMIT, UP_TO_DATE)}


@dataclass(frozen=True, slots=True)
class _Reported:
    """The newest observation, as the sensor's cursor. A lost one makes the table be reported again."""

    states: Mapping[str, str]
    texts: Mapping[str, str]
    at: float

    @classmethod
    def read(cls, cursor: str | None) -> _Reported | None:
        try:
            return cls(**json.loads(cursor or ""))
        except (ValueError, TypeError):
            return None

    def is_outdated_by(self, now: _Reported) -> bool:
        if self.states != now.states:
            return True
        return self.texts != now.texts and now.at - self.at >= REPEAT_SECONDS


def _states(rows: Sequence[Row]) -> dict[str, str]:
    # A failing check's text has numbers in it, so only its name says that something else is wrong.
    return {row["pipeline"]: f"{row['state']} {row['what is wrong'].partition(':')[0]}" for row in rows}


def _texts(rows: Sequence[Row]) -> dict[str, str]:
    return {row["pipeline"]: row["what is wrong"] for row in rows if row["what is wrong"]}


def overview_row(pipeline: str, checks: Mapping[str, Finding], running: bool) -> Row:
    """Judge a pipeline by its checks' newest results. `running`: whether it is on."""
    failing = sorted(
        ((name, check) for name, check in checks.items() if not check.passed), key=lambda entry: entry[1].warning
    )
    wrong = "; ".join(f"{name}: {_beginning(check.text)}" for name, check in failing)
    return {"pipeline": pipeline, "state": state_of(checks.values(), running), "what is wrong": wrong}


def worst_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (STATES.index(row["state"]), row["pipeline"]))


def summary(rows: Sequence[Row]) -> str:
    """Count the pipelines by state, worst first."""
    counts = {state: sum(row["state"] == state for row in rows) for state in STATES}
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count) or "no pipelines"


def state_of(checks: Collection[Finding], running: bool) -> str:
    """Return which of STATES a pipeline is in, by its checks' newest results. `running`: whether it is on."""
    failing = [check for check in checks if not check.passed]
    if failing:
        return WARNING if all(check.warning for check in failing) else FAILING
    if not running:
        return PAUSED
    return WELL if checks else UNKNOWN


def _beginning(text: str) -> str:
    """The first sentence, or as much of it as fits into a cell."""
    sentence = first_sentence(text)
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST].rstrip()}…"
