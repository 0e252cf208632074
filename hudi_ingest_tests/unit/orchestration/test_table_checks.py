"""How the ticks tell Dagster of the checks: what is news, once; and trouble that keeps a tick from looking."""

from __future__ import annotations

import asyncio
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
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    TableMetadataValue,
)
from dagster._core.events import StepMaterializationData
from dagster._core.execution.plan.objects import StepFailureData, UserFailureData
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.dagster_run import DagsterRun

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable, OffsetsLost
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.offsets import TopicPartition, TopicVersion, Watermarks
from hudi_ingest.operations.health.judgement import (
    ACCOUNTING_HOLDS,
    DEAD_LETTERS,
    LAG_BELOW_LIMIT,
    OFFSETS_HONOURED,
    QUESTIONS,
    RUNS_SUCCEED,
    UP_TO_DATE,
    runs_succeed,
)
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.failures import STOPPED
from hudi_ingest.orchestration.reports.checks import (
    BLIND_SECONDS,
    REPEAT_SECONDS,
    evaluation,
    report_checks,
    report_trouble,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.pipeline_files import Write, load

P0 = TopicPartition("orders", 0)
TABLE, TOPIC = AssetKey(["orders"]), AssetKey(["kafka", "orders_topic"])


@pytest.fixture
def pipeline(write: Write, tmp_path: Path) -> Pipeline:
    return load(write, table__base_path=str(tmp_path / "table"), asset__max_lag=50, asset__late_after_seconds=10_000)


def situation(committed: int, end: int, begin: int = 0) -> Situation:
    checkpoint = Checkpoint(1, "orders-1", {P0: committed}, 0, {"orders": TopicVersion("id")}, "20261121030000000")
    moment = datetime.now(timezone.utc)
    state = CommittedState(True, checkpoint, checkpoint.to_json(), moment, moment)
    return Situation(state, {P0: Watermarks(begin, end)}, {}, {"orders": "id"})


def told(instance: DagsterInstance, check: str) -> list[str]:
    found = instance.event_log_storage.get_asset_check_execution_history(AssetCheckKey(TABLE, check), limit=20)
    return [each.status.value for each in reversed(found)]


def materialize(instance: DagsterInstance, run: DagsterRun) -> None:
    """The run makes the table anew."""
    instance.add_run(run)
    data = StepMaterializationData(AssetMaterialization(TABLE))
    event = DagsterEvent(DagsterEventType.ASSET_MATERIALIZATION.value, run.job_name, event_specific_data=data)
    instance.report_dagster_event(event, run_id=run.run_id)


def now() -> datetime:
    return datetime.now(timezone.utc)


def test_d3_a_check_is_told_once_and_again_when_it_turns_and_after_each_materialization(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        for _ in range(3):
            report_checks(seen(pipeline, situation(5, 5), now()), instance)
        assert {name: told(instance, name) for name in QUESTIONS} == {name: ["SUCCEEDED"] for name in QUESTIONS}
        materialize(instance, DagsterRun(job_name="__ASSET_JOB", status=DagsterRunStatus.STARTED))
        for _ in range(2):
            report_checks(seen(pipeline, situation(5, 5), now()), instance)
        assert {name: told(instance, name) for name in QUESTIONS} == {name: ["SUCCEEDED"] * 2 for name in QUESTIONS}
        for _ in range(2):
            report_checks(seen(pipeline, situation(5, 20, begin=9), now()), instance)
        assert told(instance, OFFSETS_HONOURED) == ["SUCCEEDED"] * 2 + ["FAILED"]
        assert told(instance, LAG_BELOW_LIMIT) == ["SUCCEEDED"] * 3, (
            "with the lag of the moment at which another turned"
        )
        report_checks(seen(pipeline, situation(5, 100), now()), instance)
        assert told(instance, LAG_BELOW_LIMIT) == ["SUCCEEDED"] * 3 + ["FAILED"]


def test_d1_lag_that_only_grows_is_told_often_enough_for_a_plot_with_the_topics_ends(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        for end, after in ((10, 0), (20, 5), (30, REPEAT_SECONDS + 1), (30, REPEAT_SECONDS + 1)):
            report_checks(seen(pipeline, situation(5, end), now() + timedelta(seconds=after)), instance)
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
        report_checks(seen(pipeline, situation(5, 5), now()), instance)
        for _ in range(2):
            report_trouble(pipeline, instance, OffsetsLost("the commit was rolled back"), now())
        assert told(instance, ACCOUNTING_HOLDS) == ["SUCCEEDED", "FAILED"]
        report_checks(seen(pipeline, situation(5, 5), now()), instance)
        assert told(instance, ACCOUNTING_HOLDS) == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_p7_a_table_that_hides_rows_is_red_as_soon_as_a_run_fails_and_green_once_it_lists_them(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed meanwhile, so no newer transaction says that the check is outdated."""
    lists = dict[str, str]()
    monkeypatch.setattr(PipelineTable, "unlisted", lambda self, commits: dict(lists))
    state = situation(5, 5)
    with DagsterInstance.ephemeral() as instance:
        report_checks(seen(pipeline, state, now()), instance)
        lists |= {"dt=1/a_0-0-0_20260101000000000.parquet": "20260101000000000"}
        report_checks(seen(pipeline, state, now()), instance)
        assert told(instance, ACCOUNTING_HOLDS) == ["SUCCEEDED"], "a look at the list at each tick would cost too much"
        failed_run(pipeline, instance, "TableMismatch: hides rows")
        report_checks(seen(pipeline, state, now()), instance)
        assert told(instance, ACCOUNTING_HOLDS) == ["SUCCEEDED", "FAILED"]
        assert "recover orders --metadata-table" in str(evaluated(instance, ACCOUNTING_HOLDS).description)
        lists.clear()
        later = replace(state, committed=replace(state.committed, last_began_at=now() + timedelta(seconds=1)))
        report_checks(seen(pipeline, later, now()), instance)
        assert told(instance, ACCOUNTING_HOLDS) == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_d1_a_broker_that_is_away_for_a_minute_is_red_on_the_asset(pipeline: Pipeline) -> None:
    away, since = KafkaUnreachable("no broker answered"), now().timestamp()
    soon, late = now() + timedelta(seconds=BLIND_SECONDS - 5), now() + timedelta(seconds=BLIND_SECONDS + 5)
    with DagsterInstance.ephemeral() as instance:
        report_trouble(pipeline, instance, away, soon, since)
        assert told(instance, UP_TO_DATE) == []
        for _ in range(2):
            report_trouble(pipeline, instance, away, late, since)
        assert told(instance, UP_TO_DATE) == ["FAILED"]
        report_checks(seen(pipeline, situation(5, 5), now()), instance)
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
        for sequence, waiting, rejected in (
            (1, 0, 0),
            (2, 3, 3),
            (2, 3, 3),
            (3, 7, 4),
            (4, 5, 2),
            (5, 5, 0),
            (6, 0, 0),
        ):
            report_checks(seen(pipeline, with_letters(situation(5, 5), sequence, waiting, rejected), now()), instance)
        assert told(instance, DEAD_LETTERS) == ["SUCCEEDED", "FAILED", "FAILED", "FAILED", "FAILED", "SUCCEEDED"]
        key = AssetCheckKey(TABLE, DEAD_LETTERS)
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=20)
    evaluation = history[2].evaluation
    assert isinstance(evaluation, AssetCheckEvaluation)
    assert evaluation.severity is AssetCheckSeverity.WARN
    figures = {name: each.value for name, each in evaluation.metadata.items()}
    assert figures == {
        "bad records of the last transaction": 2,
        "pending dead letters": 5,
        "transaction": "orders-4",
    }


def failed_run(pipeline: Pipeline, instance: DagsterInstance, *sentences: str) -> str:
    """A run of the pipeline whose ops failed with these sentences, in this order."""
    run = DagsterRun(
        job_name="__ASSET_JOB", status=DagsterRunStatus.STARTED, tags={tags.TABLE: pipeline.table.base_path}
    )
    instance.add_run(run)
    for number, sentence in enumerate(sentences):
        failure = UserFailureData("", description=sentence)  # type: ignore[no-untyped-call]
        data = StepFailureData(error=None, user_failure_data=failure)  # type: ignore[no-untyped-call]
        event = DagsterEvent(
            DagsterEventType.STEP_FAILURE.value, "__ASSET_JOB", step_key=f"w{number}", event_specific_data=data
        )
        instance.report_dagster_event(event, run_id=run.run_id)
    instance.report_run_failed(run)
    return run.run_id


def evaluated(instance: DagsterInstance, check: str) -> AssetCheckEvaluation:
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([AssetCheckKey(TABLE, check)])
    (found,) = record.values()
    assert isinstance(found.evaluation, AssetCheckEvaluation)
    return found.evaluation


def test_d3_runs_that_fail_one_after_another_are_red_with_the_error_of_the_op_that_failed_first(
    pipeline: Pipeline,
) -> None:
    state = situation(5, 5)
    with DagsterInstance.ephemeral() as instance:
        report_checks(seen(pipeline, state, now()), instance)
        failed_run(pipeline, instance, "BadRecord: orders:3:17: field n")
        report_checks(seen(pipeline, state, now()), instance)
        assert evaluated(instance, RUNS_SUCCEED).severity is AssetCheckSeverity.WARN
        newest = failed_run(
            pipeline, instance, f"{STOPPED}orders:3 failed: …", "BadRecord: orders:3:18: field n\nCorrect it."
        )
        for _ in range(2):
            report_trouble(pipeline, instance, KafkaUnreachable("no broker answered"), now())
        assert told(instance, RUNS_SUCCEED) == ["SUCCEEDED", "FAILED", "FAILED"]
        found = evaluated(instance, RUNS_SUCCEED)
        assert found.severity is AssetCheckSeverity.ERROR
        assert f"The last 2 runs of orders failed, the newest is {newest[:8]}: BadRecord: orders:3:18" in str(
            found.description
        )
        assert "field n\n\nCorrect it.\n\nThe sensor" in str(found.description), "lines of Markdown are paragraphs"
        later = replace(state, committed=replace(state.committed, last_began_at=now() + timedelta(seconds=1)))
        report_checks(seen(pipeline, later, now()), instance)
        assert told(instance, RUNS_SUCCEED)[-1] == "SUCCEEDED", "a transaction was committed since, by whomever"


def test_d3_checks_that_the_commits_own_run_told_are_not_told_again_by_the_tick(pipeline: Pipeline) -> None:
    run = DagsterRun(job_name="__ASSET_JOB", status=DagsterRunStatus.STARTED)
    state = situation(5, 5)
    with DagsterInstance.ephemeral() as instance:
        observation = seen(pipeline, state, now())
        for finding in (*observation.findings_now, *observation.findings_on_commits, runs_succeed(pipeline, 0)):
            event = DagsterEvent(
                DagsterEventType.ASSET_CHECK_EVALUATION.value,
                "__ASSET_JOB",
                event_specific_data=evaluation(pipeline, finding),
            )
            instance.report_dagster_event(event, run_id=run.run_id)
        materialize(instance, run)
        report_checks(seen(pipeline, state, now()), instance)
        assert {name: told(instance, name) for name in QUESTIONS} == {name: ["SUCCEEDED"] for name in QUESTIONS}
        # Dagster's own judgement of what it shows as not evaluated.
        keys = [AssetCheckKey(TABLE, name) for name in QUESTIONS]
        records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        context = LoadingContextForTest(instance)
        assert all(asyncio.run(each.targets_latest_materialization(context)) for each in records.values())
