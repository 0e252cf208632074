"""How the ticks tell Dagster of the checks: what is news, once; and trouble that keeps a tick from looking."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    TableMetadataValue,
)

from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import Situation
from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable, OffsetsLost
from hudi_ingest.health import ACCOUNTING_HOLDS, DEAD_LETTERS, LAG_BELOW_LIMIT, OFFSETS_HONOURED, QUESTIONS, UP_TO_DATE
from hudi_ingest.hudi.timeline import CommittedState
from hudi_ingest.model import Checkpoint, LettersHead, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.orchestration.check_reports import RETOLD_SECONDS, report_checks, report_trouble
from hudi_ingest_tests.support.pipeline_files import Write, load

P0 = TopicPartition("orders", 0)
TABLE, TOPIC = AssetKey(["orders"]), AssetKey(["kafka", "orders_topic"])


@pytest.fixture
def pipeline(write: Write, tmp_path: Path) -> Pipeline:
    return load(write, table__base_path=str(tmp_path / "table"), asset__max_lag=50)


def situation(committed: int, end: int, begin: int = 0) -> Situation:
    checkpoint = Checkpoint(1, "orders-1", {P0: committed}, 0, {"orders": TopicVersion("id")}, "20261121030000000")
    state = CommittedState(True, checkpoint, checkpoint.to_json(), datetime.now(timezone.utc))
    return Situation(state, {P0: Watermarks(begin, end)}, {}, {"orders": "id"})


def told(instance: DagsterInstance, check: str) -> list[str]:
    found = instance.event_log_storage.get_asset_check_execution_history(AssetCheckKey(TABLE, check), limit=20)
    return [each.status.value for each in reversed(found)]


def now() -> datetime:
    return datetime.now(timezone.utc)


def test_d3_a_check_is_told_once_and_again_when_it_turns_and_after_each_materialization(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        for _ in range(3):
            report_checks(pipeline, instance, situation(5, 5), now())
        assert {name: told(instance, name) for name in QUESTIONS} == {name: ["SUCCEEDED"] for name in QUESTIONS}
        instance.report_runless_asset_event(AssetMaterialization(TABLE))
        for _ in range(2):
            report_checks(pipeline, instance, situation(5, 5), now())
        assert {name: told(instance, name) for name in QUESTIONS} == {name: ["SUCCEEDED"] * 2 for name in QUESTIONS}
        for _ in range(2):
            report_checks(pipeline, instance, situation(5, 20, begin=9), now())
        assert told(instance, OFFSETS_HONOURED) == ["SUCCEEDED"] * 2 + ["FAILED"]
        report_checks(pipeline, instance, situation(5, 100), now())
        assert told(instance, LAG_BELOW_LIMIT) == ["SUCCEEDED"] * 2 + ["FAILED"]


def test_d1_lag_that_only_grows_is_told_often_enough_for_a_plot_with_the_topics_ends(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        for end, after in ((10, 0), (20, 5), (30, RETOLD_SECONDS + 1), (30, RETOLD_SECONDS + 1)):
            report_checks(pipeline, instance, situation(5, end), now() + timedelta(seconds=after))
        assert told(instance, LAG_BELOW_LIMIT) == ["SUCCEEDED"] * 2
        observed = [
            record.asset_observation
            for record in instance.fetch_observations(TOPIC, limit=10, ascending=True).records
            if record.asset_observation is not None
        ]
    assert [each.metadata["lag/orders"].value for each in observed] == [5, 25]
    assert observed[0].metadata["end offsets"].value == 10
    table = observed[0].metadata["offsets/orders"]
    assert isinstance(table, TableMetadataValue)
    (row,) = table.records
    assert row.data == {"partition": 0, "committed": 5, "end": 10, "lag": 5}


def test_p6_a_table_that_lost_its_checkpoint_is_red_on_the_asset_until_it_is_well(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        report_checks(pipeline, instance, situation(5, 5), now())
        for _ in range(2):
            report_trouble(pipeline, instance, OffsetsLost("the commit was rolled back"), now())
        assert told(instance, ACCOUNTING_HOLDS) == ["SUCCEEDED", "FAILED"]
        report_checks(pipeline, instance, situation(5, 5), now())
        assert told(instance, ACCOUNTING_HOLDS) == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_d1_a_broker_that_is_away_for_long_is_red_on_the_asset(pipeline: Pipeline) -> None:
    away = KafkaUnreachable("no broker answered")
    late = timedelta(seconds=pipeline.late_after_seconds + 1)
    with DagsterInstance.ephemeral() as instance:
        report_trouble(pipeline, instance, away, now())
        assert told(instance, UP_TO_DATE) == [], "nothing was ever committed"
        instance.report_runless_asset_event(AssetMaterialization(TABLE))
        report_trouble(pipeline, instance, away, now())
        assert told(instance, UP_TO_DATE) == []
        for _ in range(2):
            report_trouble(pipeline, instance, away, now() + late)
        assert told(instance, UP_TO_DATE) == ["FAILED"]
        report_checks(pipeline, instance, situation(5, 5), now())
        assert told(instance, UP_TO_DATE) == ["FAILED", "SUCCEEDED"]
        report_trouble(pipeline, instance, KafkaRefused("the login was refused"), now())
        assert told(instance, UP_TO_DATE)[-1] == "FAILED", "a person must act, so at once"


def with_letters(state: Situation, sequence: int, waiting: int, rejected: int) -> Situation:
    checkpoint = state.committed.checkpoint
    assert checkpoint is not None
    later = replace(
        checkpoint, sequence=sequence, transaction_id=f"orders-{sequence}", letters=LettersHead("m", waiting)
    )
    return replace(state, committed=replace(state.committed, checkpoint=later, last_rejected=rejected))


def test_d3_bad_records_are_a_warning_and_a_retry_of_dead_letters_is_told_at_once(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        # Two commits with bad records, and a retry, which is no materialization, of some of the letters.
        for sequence, waiting, rejected in ((1, 0, 0), (2, 3, 3), (2, 3, 3), (3, 7, 4), (4, 5, 2), (5, 5, 0)):
            report_checks(pipeline, instance, with_letters(situation(5, 5), sequence, waiting, rejected), now())
        assert told(instance, DEAD_LETTERS) == ["SUCCEEDED", "FAILED", "FAILED", "FAILED", "SUCCEEDED"]
        key = AssetCheckKey(TABLE, DEAD_LETTERS)
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=20)
    evaluation = history[1].evaluation
    assert isinstance(evaluation, AssetCheckEvaluation)
    assert evaluation.severity is AssetCheckSeverity.WARN
    figures = {name: each.value for name, each in evaluation.metadata.items()}
    assert figures == {
        "bad records of the last transaction": 2,
        "dead letters that wait": 5,
        "transaction": "orders-4",
    }
