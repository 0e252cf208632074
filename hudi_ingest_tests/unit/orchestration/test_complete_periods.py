"""The hours and days of a table that Dagster is told are complete: each once, in order, and once more after a replay."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import DagsterInstance, Definitions

from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.model.accounting import Accounting, SliceAccount
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.complete_through import Completeness
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.orchestration.coordinator.memory import PipelineMemory
from hudi_ingest.orchestration.reports import complete_periods
from hudi_ingest.orchestration.reports.complete_periods import (
    Periods,
    ReportedPeriods,
    periods_assets,
    report_periods,
    said_through,
    seconds_to_period,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.observations import seen

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
ZERO = TopicPartition("orders", 0)


def pipeline_of(tmp_path: Path, complete: str | None = "hourly") -> Pipeline:
    home = Home(root=tmp_path, pipelines=tmp_path / "pipelines", ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    pipeline = make_pipeline(Ground("orders", "127.0.0.1:1", home))
    asset = pipeline.asset.model_copy(update={"complete": complete, "backfill_from": date(2026, 1, 1)})
    return pipeline.model_copy(update={"asset": asset})


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return pipeline_of(tmp_path)


def milliseconds(hours: float) -> int:
    """Since 1970, of so many hours after noon."""
    return int((NOON + timedelta(hours=hours)).timestamp() * 1000)


def complete_at(hours: float, sequence: int = 1, *commits: CommittedInstant) -> Situation:
    """A table without anything to read, which is complete through so many hours after noon."""
    checkpoint = Checkpoint(
        sequence, f"t{sequence}", {ZERO: 5}, topics={"orders": TopicVersion("id")}, complete={ZERO: Completeness()}
    )
    marks = Watermarks(0, 5, written=5, asked_at=milliseconds(hours))
    return Situation(
        CommittedState(exists=True, checkpoint=checkpoint, commits=commits),
        {ZERO: marks},
        {},
        {"orders": "id"},
        lateness_seconds=0.0,
    )


def replay_of(pipeline: Pipeline, sequence: int, earliest: float, latest: float) -> CommittedInstant:
    account = SliceAccount(
        Slice("orders", 0, 0, 5), earliest=milliseconds(earliest), latest=milliseconds(latest), rows=5
    )
    accounting = Accounting(f"t{sequence}", sequence, TransactionKind.REPLAY, (account,))
    return CommittedInstant("1", {pipeline.transaction_key: accounting.to_json()}, NOON)


class Process:
    """A process, which knows what it has reported."""

    def __init__(self) -> None:
        self.known: ReportedPeriods | None = None

    def report(self, pipeline: Pipeline, instance: DagsterInstance, situation: Situation) -> None:
        self.known = report_periods(seen(pipeline, situation), instance, self.known)


def reported(pipeline: Pipeline, instance: DagsterInstance) -> list[str]:
    records = instance.fetch_materializations(Periods(pipeline).key, limit=1000).records
    return [str(record.partition_key)[-5:] for record in reversed(records)]


def test_each_hour_is_reported_once_and_in_order_also_by_another_process(pipeline: Pipeline) -> None:
    process = Process()
    with DagsterInstance.ephemeral() as instance:
        for hours in (0.5, 0.9, 1.0, 1.2, 4.01, 4.5):
            process.report(pipeline, instance, complete_at(hours))
            if hours == 1.2:
                process.known = None
        assert reported(pipeline, instance) == ["11:00", "12:00", "13:00", "14:00", "15:00"]
        # A look that comes late says less.
        process.report(pipeline, instance, complete_at(2))
        assert len(reported(pipeline, instance)) == 5


def test_a_process_that_has_just_started_knows_what_was_said(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    with DagsterInstance.ephemeral() as instance:
        assert said_through(pipeline, instance, process.known) is None
        process.report(pipeline, instance, complete_at(1))
        process.report(pipeline, instance, complete_at(3.2, 2))
        assert said_through(pipeline, instance, process.known) == milliseconds(3)
        process.known = None
        assert said_through(pipeline, instance, process.known) == milliseconds(3)
        process.report(pipeline, instance, complete_at(3.3, 2))
        for name in ("fetch_materializations", "get_materialized_partitions"):
            monkeypatch.setattr(instance, name, None)
        assert said_through(pipeline, instance, process.known) == milliseconds(3)
        assert said_through(pipeline_of(Path(pipeline.table.base_path), None), instance) is None


def test_nothing_is_asked_of_dagster_while_there_is_nothing_to_report(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    with DagsterInstance.ephemeral() as instance:
        process.report(pipeline, instance, complete_at(1))
        for name in ("fetch_materializations", "get_materialized_partitions", "report_runless_asset_event"):
            monkeypatch.setattr(instance, name, None)
        process.report(pipeline, instance, complete_at(1.9))


def test_a_replay_reports_the_hours_of_its_records_once_more(pipeline: Pipeline) -> None:
    process = Process()
    with DagsterInstance.ephemeral() as instance:
        process.report(pipeline, instance, complete_at(0))
        process.report(pipeline, instance, complete_at(3, 2))
        replay = replay_of(pipeline, 3, 0.5, 1.5)
        for _ in range(2):
            process.report(pipeline, instance, complete_at(3.5, 3, replay))
            process.known = None
        process.report(pipeline, instance, complete_at(4, 4, replay))
        assert reported(pipeline, instance) == ["11:00", "12:00", "13:00", "14:00", "12:00", "13:00", "15:00"]


def test_a_replay_whose_report_was_interrupted_is_reported_whole(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    with DagsterInstance.ephemeral() as instance:
        process.report(pipeline, instance, complete_at(0))
        process.report(pipeline, instance, complete_at(3, 2))
        replay, left = replay_of(pipeline, 3, 0.5, 2.5), [1]
        report = instance.report_runless_asset_event

        def breaks(event: object) -> None:
            if not left:
                raise ConnectionError
            left.pop()
            report(event)  # type: ignore[arg-type]

        with monkeypatch.context() as patch, pytest.raises(ConnectionError):
            patch.setattr(instance, "report_runless_asset_event", breaks)
            process.report(pipeline, instance, complete_at(3.5, 3, replay))
        process.report(pipeline, instance, complete_at(3.5, 3, replay))
        assert reported(pipeline, instance)[4:] == ["12:00", "12:00", "13:00", "14:00"]


def test_after_an_outage_the_hours_come_in_portions(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete_periods, "MOST_AT_ONCE", 2)
    process = Process()
    with DagsterInstance.ephemeral() as instance:
        process.report(pipeline, instance, complete_at(0))
        for _ in range(3):
            process.report(pipeline, instance, complete_at(3))
        assert reported(pipeline, instance) == ["11:00", "12:00", "13:00", "14:00"]


def test_days_are_an_asset_of_their_own_and_hours_before_the_first_day_are_left_out(tmp_path: Path) -> None:
    days = pipeline_of(tmp_path, "daily")
    (spec,) = periods_assets(days)
    assert spec.key.to_user_string() == f"{days.name}_days"
    process = Process()
    with DagsterInstance.ephemeral() as instance:
        process.report(days, instance, complete_at(24))
        records = instance.fetch_materializations(spec.key, limit=5).records
        assert [record.partition_key for record in records] == ["2026-01-31"]
    assert Periods(days).complete(0, None) == []
    assert not periods_assets(pipeline_of(tmp_path, None))
    Definitions.validate_loadable(Definitions(assets=[spec]))


def test_the_partitions_are_those_that_the_asset_has(pipeline: Pipeline) -> None:
    (spec,) = periods_assets(pipeline)
    assert spec.partitions_def is not None
    now = NOON.replace(tzinfo=None)
    keys = spec.partitions_def.get_partition_keys(current_time=now.replace(tzinfo=timezone.utc))
    assert keys[-1] == Periods(pipeline).name(milliseconds(-1))
    assert keys[0] == "2026-01-01-00:00"
    assert Periods(pipeline).start(keys[-1]) == milliseconds(-1)


def test_an_idle_pipeline_is_looked_at_when_its_hour_ends(pipeline: Pipeline, tmp_path: Path) -> None:
    at = NOON.timestamp()
    late = pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"lateness_seconds": 60.0})})
    assert [seconds_to_period(each, at + 1) for each in (pipeline, late)] == [1, 59]
    assert seconds_to_period(pipeline_of(tmp_path, None), at) == float("inf")
    memory = PipelineMemory(pipeline)
    memory.idle = memory.idle_at(complete_at(0), "idle")
    assert memory.idle is not None
    assert 0 < memory.idle.period_seconds <= 3600
