"""The asset `hudi_ingest_overview`: all pipelines of the code location in one table, worst first, kept by a sensor.

It reads what the coordinators have reported, and the ledger, so it asks neither brokers nor tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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

from hudi_ingest.exceptions import LedgerUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.health.overview import STATES, OverviewRow, overview_row, summary, worst_first
from hudi_ingest.orchestration.coordinator.switch import is_on, switches_of
from hudi_ingest.orchestration.reports.check_results import newest_results
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.pipeline.pipeline import Pipeline

NAME = "hudi_ingest_overview"
SECONDS = 30
REPEAT_SECONDS = 300
"""How often the table is reported again when only numbers have changed."""
_COLUMNS = [
    TableColumn("pipeline", "string", description="name, as in its pipeline file"),
    TableColumn("state", "string", description="by the newest result of each check"),
    TableColumn(
        "what is wrong", "string", description="how each failing check begins; the check itself says what to do"
    ),
    TableColumn("last commit (UTC)", "string", description="? while unknown, as the next two"),
    TableColumn("records waiting", "string"),
    TableColumn("seconds behind", "string", description="age of the oldest waiting record"),
]


def overview_definitions(pipelines: Sequence[Pipeline], suffix: str = "") -> Definitions:
    """Return the asset and its sensor, which is on from the start. `suffix`: of their names, if a code location merges several."""
    if not pipelines:
        return Definitions()
    description = (
        "All pipelines, worst first: the newest observation has the table. A sensor reports it when a state changes, and changed "
        f"numbers every {REPEAT_SECONDS // 60} minutes."
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
        now = datetime.now(timezone.utc)
        rows = worst_first(current_rows(context.instance, pipelines))
        known = _Reported.read(context.cursor)
        reported = _Reported(_states(rows), _numbers(rows), now.timestamp())
        if known is None or known.is_outdated_by(reported):
            context.instance.report_runless_asset_event(observation(name, rows))
            context.update_cursor(json.dumps(asdict(reported)))
        return SkipReason(summary(rows))

    return overview


def observation(name: str, rows: Sequence[OverviewRow]) -> AssetObservation:
    """Build the observation of these rows, worst first."""
    metadata: dict[str, Any] = {
        "state": summary(rows),
        **{f"pipelines/{state}": MetadataValue.int(sum(row.state == state for row in rows)) for state in STATES},
        "pipelines": metadata_table(_COLUMNS, [row.to_dict() for row in rows]),
    }
    return AssetObservation(AssetKey([name]), description=f"{summary(rows)}.", metadata=metadata)


def current_rows(instance: DagsterInstance, pipelines: Sequence[Pipeline]) -> list[OverviewRow]:
    """Return a row for each pipeline, by the newest results of its checks and the ledger."""
    switches = switches_of(instance)
    results = newest_results(instance, pipelines)
    try:
        with Ledger.open(Home.from_environment().ledger_url) as ledger:
            committed = ledger.transactions.last_commits()
    except LedgerUnreachable:
        # The pipelines' own checks say so, and belong into the table.
        committed = {}
    return [
        overview_row(
            pipeline.name, results[pipeline.name], is_on(pipeline, switches), committed.get(pipeline.table.base_path)
        )
        for pipeline in pipelines
    ]


@dataclass(frozen=True, slots=True)
class _Reported:
    """What the newest observation says: the sensor's cursor. A lost one makes the table be reported again."""

    states: Mapping[str, str]
    numbers: Mapping[str, str]
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
        return self.numbers != now.numbers and now.at - self.at >= REPEAT_SECONDS


def _states(rows: Sequence[OverviewRow]) -> dict[str, str]:
    # A failing check's text has numbers in it, so only its name says that something else is wrong.
    return {row.pipeline: f"{row.state} {row.wrong.partition(':')[0]}" for row in rows}


def _numbers(rows: Sequence[OverviewRow]) -> dict[str, str]:
    return {row.pipeline: f"{row.behind} {row.waiting} {row.last_commit}" for row in rows}
