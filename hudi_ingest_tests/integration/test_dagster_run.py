"""The run as Dagster executes it, on the real broker, Spark and Hudi: fan-out, retries, metadata, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import yaml
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
    InputContext,
    IOManager,
    OutputContext,
    RunRequest,
    SkipReason,
)

from hudi_ingest.exceptions import EngineLost
from hudi_ingest.hudi.storage.paths import TIMELINE
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind, TransactionPlan
from hudi_ingest.model.transaction import OpenTransaction, TransactionState
from hudi_ingest.operations.health.judgement import ACCOUNTING_HOLDS, QUESTIONS
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.reports.checks import why_failed
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections import transaction as sections_transaction
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction import run as ingest
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest.transaction.write.job import write_slices
from hudi_ingest_tests.support.dg_project import load_project, make_project
from hudi_ingest_tests.support.ground import Ground, make_pipeline, write_pipeline
from hudi_ingest_tests.support.requesting import coordinated, dagster_on_disk, requested
from hudi_ingest_tests.support.ticks import tick
from hudi_ingest_tests.support.transactions import transaction_job

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(autouse=True)
def environment(ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.set_environment(monkeypatch)


class JsonResults(IOManager):
    """A location's own IO manager, which can store nothing but JSON, and no asset."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def handle_output(self, context: OutputContext, obj: object) -> None:
        assert not context.has_asset_key, "the table is no value of an op"
        text = json.dumps(obj)
        assert json.loads(text) == obj, "comes back as it was"
        self.texts["/".join(context.get_identifier()[1:])] = text

    def load_input(self, context: InputContext) -> object:
        assert context.upstream_output is not None
        return json.loads(self.texts["/".join(context.upstream_output.get_identifier()[1:])])


def after_the_interval() -> datetime:
    """A moment at which the next transaction is due, whenever the last one began."""
    return datetime.now(timezone.utc) + timedelta(hours=1)


def launch(pipeline: Pipeline, instance: DagsterInstance, planned: bool = True) -> ExecuteInProcessResult:
    """Executes what the sensor requests now, or what the Launchpad does without config."""
    request = tick(pipeline, instance, after_the_interval()) if planned else RunRequest()
    assert isinstance(request, RunRequest), request
    return execute(pipeline, instance, request)


def execute(pipeline: Pipeline, instance: DagsterInstance, request: RunRequest) -> ExecuteInProcessResult:
    from hudi_ingest.orchestration.definitions import build_definitions

    job = transaction_job(build_definitions([pipeline]), pipeline.name)
    return job.execute_in_process(
        run_config=request.run_config, tags=request.tags, instance=instance, raise_on_error=False
    )


@pytest.mark.tier(1)
def test_d1_a_commit_is_a_materialization_that_tells_all(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 40)
    with DagsterInstance.ephemeral() as instance:
        result = launch(pipeline, instance)
        assert result.success
        steps = {event.step_key for event in result.all_events if event.is_step_success}
        mapped = {f"{pipeline.name}.write[{pipeline.name}_0]"}
        assert steps == {f"{pipeline.name}.begin", f"{pipeline.name}.commit", *mapped}
        event = instance.get_latest_materialization_event(AssetKey([pipeline.name]))
        assert event is not None
        assert event.asset_materialization is not None
        # Told by the run itself, or Dagster would show them as not evaluated until the next tick.
        keys = [AssetCheckKey(AssetKey([pipeline.name]), name) for name in QUESTIONS]
        told = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        assert {key: (record.status.value, record.run_id) for key, record in told.items()} == dict.fromkeys(
            keys, ("SUCCEEDED", event.run_id)
        )
        metadata: dict[str, Any] = {key: each.value for key, each in event.asset_materialization.metadata.items()}
        run = instance.get_runs()[0]
    assert metadata["rows"] == metadata["dagster/row_count"] == 40
    assert (metadata["lag (records)"], metadata["lag (seconds)"]) == (0, 0)
    assert metadata["files"] == 3
    assert sum(row.data["rows"] for row in metadata["written files"].records) == 40
    rows = metadata["partitions"].records
    assert [(row.data["partition"], row.data["start"], row.data["end"], row.data["lag"]) for row in rows] == [
        (f"{ground.name}:0", 0, 40, 0),
        (f"{ground.name}:1", 0, 0, 0),
    ]
    assert "path" not in metadata, "Dagster's own file of the op's result would look like the table's path"
    assert {f"seconds/{phase}" for phase in ("begin", "write", "commit", "between", "total")} <= metadata.keys()
    assert run.tags["hudi_ingest/instant"] == metadata["instant"]
    assert run.tags["hudi_ingest/transaction"] == metadata["transaction"]
    assert verify(ground.base_path, ground.produced).exact


def test_d1_a_component_of_a_dg_project_does_its_run_and_its_checks_hold(
    ground: Ground, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = yaml.safe_load(write_pipeline(ground).read_text())
    project = load_project(make_project(tmp_path_factory.mktemp("project"), **{ground.name: settings}))
    results = JsonResults()
    definitions = Definitions.merge(Definitions(resources={"io_manager": results}), project)
    pipeline = make_pipeline(ground)
    ground.send_rows(0, 12)
    with DagsterInstance.ephemeral() as instance:
        request = tick(pipeline, instance, datetime.now(timezone.utc))
        assert isinstance(request, RunRequest), request
        job = transaction_job(definitions, ground.name)
        assert job.execute_in_process(run_config=request.run_config, tags=request.tags, instance=instance).success
        assert isinstance(tick(pipeline, instance, datetime.now(timezone.utc)), SkipReason)
        keys = [AssetCheckKey(AssetKey([ground.name]), name) for name in QUESTIONS]
        told = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        checks = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_check_selection=set(keys))
        by_hand = checks.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert {key.split(".")[1].split("[")[0].partition("/")[0] for key in results.texts} == {"begin", "write"}, (
        "the location's own IO manager hands results on, and never sees the table"
    )
    assert max(map(len, results.texts.values())) < 10_000, "small values, not records"
    assert {key: record.status.value for key, record in told.items()} == dict.fromkeys(keys, "SUCCEEDED")
    assert {each.asset_check_key: each.passed for each in by_hand} == dict.fromkeys(keys, True)
    accounting = {each.check_name: each.metadata for each in by_hand}[ACCOUNTING_HOLDS]
    assert (accounting["transactions"].value, accounting["offsets"].value) == (1, 12)
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_r3_r4_by_default_a_small_transaction_has_an_op_for_each_kafka_partition_in_the_runs_process(
    ground: Ground, topic: str
) -> None:
    pipeline = make_pipeline(ground, transaction={"ops": "auto"})
    ground.send_rows(0, 7)
    ground.send_rows(1, 5)
    with DagsterInstance.ephemeral() as instance:
        result = launch(pipeline, instance)
        assert result.success
        assert verify(ground.base_path, ground.produced).exact
        ground.send_rows(1, 13, 5)
        one_busy = launch(pipeline, instance)
    assert written(result) == [f"{pipeline.name}.write[{ground.name}_{number}]" for number in (0, 1)]
    assert written(one_busy) == [f"{pipeline.name}.write[{ground.name}_1]"], "an idle partition has no op"
    assert verify(ground.base_path, ground.produced).exact
    live = Timeline(ground.base_path).files()
    assert all(file.partitions is not None and file.partitions[0] == file.partitions[1] for file in live)
    assert {file.origin.partition for file in live if file.origin} == {0, 1}


def test_p4_a_plan_that_somebody_overtook_is_no_failure_of_the_coordinators_run(
    ground: Ground, pipeline: Pipeline
) -> None:
    from hudi_ingest.orchestration.definitions import build_definitions

    ground.send_rows(0, 7)
    job = transaction_job(build_definitions([pipeline]), pipeline.name)
    with DagsterInstance.ephemeral() as instance:
        request = tick(pipeline, instance, after_the_interval())
        assert isinstance(request, RunRequest), request
        ground.run(pipeline)
        by_tick, by_hand = (
            job.execute_in_process(
                run_config=request.run_config, tags={**request.tags, **by}, instance=instance, raise_on_error=False
            )
            for by in ({tags.SENSOR: "the coordinator"}, {})
        )
    assert (by_tick.success, written(by_tick)) == (True, [])
    assert not by_tick.get_asset_materialization_events()
    assert not by_hand.success
    assert "is no longer current" in failures(by_hand)
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_k2_more_partitions_than_ops_are_grouped(ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(ground)
    monkeypatch.setattr(sections_transaction, "MOST_OPS", 1)
    ground.send_rows(0, 7)
    ground.send_rows(1, 5)
    with DagsterInstance.ephemeral() as instance:
        result = launch(pipeline, instance)
    assert result.success
    assert written(result) == [f"{pipeline.name}.write[group_0]"]
    assert verify(ground.base_path, ground.produced).exact


def test_without_config_a_run_plans_for_itself_and_a_commit_from_outside_is_materialized_once(
    ground: Ground, pipeline: Pipeline
) -> None:
    ground.send_rows(1, 4)
    with DagsterInstance.ephemeral() as instance:
        assert launch(pipeline, instance, planned=False).success
        again = launch(pipeline, instance, planned=False)
        ground.send_rows(0, 6)
        outside = ground.run(pipeline)
        ground.send_rows(0, 2)
        live = tick(pipeline, instance, after_the_interval())
        assert isinstance(live, RunRequest)
        # Committed between the tick and its run, whose commit is the newest that Dagster is told of.
        (replayed,) = requested(ground, pipeline, TransactionKind.REPLAY, [Slice(ground.name, 1, 0, 4)])
        assert execute(pipeline, instance, live).success
        for _ in range(2):
            assert isinstance(tick(pipeline, instance, datetime.now(timezone.utc)), SkipReason)
        told = instance.fetch_materializations(AssetKey([pipeline.name]), limit=10).records
        materialized = [each.asset_materialization.metadata for each in told if each.asset_materialization]
    assert not again.success
    assert "no new records" in failures(again)
    rows = [(each.get("replay/rows"), each.get("rows")) for each in materialized]
    assert [(again.value if again else None, live.value if live else None) for again, live in rows] == [
        (4, None),
        (None, 2),
        (None, 6),
        (None, 4),
    ]
    # The replay, told last, was committed before the live run.
    assert [each["dagster/row_count"].value for each in materialized] == [10, 12, 10, 4]
    told_of = [each["transaction"].value for each in materialized]
    assert (told_of[0], told_of[2]) == (replayed.plan.transaction_id, outside.plan.transaction_id)
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.parametrize("more", [3, 0])
def test_without_config_a_run_that_another_transaction_overtakes_plans_anew(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    ground.send_rows(0, 4)
    begin, overtaken = TransactionProtocol.begin, list[TransactionPlan]()

    def overtaken_begin(
        self: TransactionProtocol, plan: TransactionPlan, owner: Owner, finished: Callable[[str], bool | None]
    ) -> OpenTransaction:
        if not overtaken:
            overtaken.append(plan)
            ground.run(pipeline)
            ground.send_rows(0, more)
        return begin(self, plan, owner, finished)

    monkeypatch.setattr(TransactionProtocol, "begin", overtaken_begin)
    with DagsterInstance.ephemeral() as instance:
        result = launch(pipeline, instance, planned=False)
        run = instance.get_run_by_id(result.run_id)
    assert result.success, failures(result)
    assert run is not None
    rows = [each.materialization.metadata["rows"].value for each in result.get_asset_materialization_events()]
    assert rows == ([more] if more else [])
    if more:
        assert run.tags[tags.TRANSACTION] != overtaken[0].transaction_id
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_x5_one_failed_op_is_retried_alone(ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.send_rows(0, 10)
    ground.send_rows(1, 10)
    real, lost = write_slices, list[str]()

    def lose_once(*arguments: Any) -> Any:
        reports = real(*arguments)
        if arguments[3][0].partition == 1 and not lost:
            lost.append("after its files were written, before its report was")
            raise EngineLost("the engine went away")
        return reports

    monkeypatch.setattr(ingest, "write_slices", lose_once)
    with DagsterInstance.ephemeral() as instance:
        result = launch(pipeline, instance)
    assert result.success
    transaction = ground.ledger.transactions.history(pipeline.name)[0]
    tried = [
        (each.source.partition, each.attempt)
        for each in ground.ledger.attempts.of_transaction(transaction.transaction_id)
    ]
    assert sorted(tried) == [(0, 0), (1, 0), (1, 1)]
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.parametrize(
    ("ops", "small"),
    [
        pytest.param("auto", (2, [(0, 0), (1, 0), (1, 1)]), marks=pytest.mark.tier(3)),
        ("one", (1, [(0, 0), (0, 1), (1, 0), (1, 1)])),
    ],
)
def test_r3_x5_ops_of_a_keyed_table_are_retried_with_all_that_shares_their_log_files(
    ground: Ground,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    ops: str,
    small: tuple[int, list[tuple[int, int]]],
) -> None:
    """By default there is an op for each partition, which shares no log file."""
    table = {"mode": "upsert", "key": ["id"], "buckets": 1, "partition_by": []}
    pipeline = make_pipeline(ground, table=table, transaction={"ops": ops})
    monkeypatch.setattr(sections_transaction, "FAN_OUT_FROM", 12)
    real, lost = write_slices, set[int]()

    def lose_once(*arguments: Any) -> Any:
        reports = real(*arguments)
        if (sequence := arguments[2].plan.sequence) not in lost and arguments[3][-1].partition == 1:
            lost.add(sequence)
            raise EngineLost("the engine went away")
        return reports

    monkeypatch.setattr(ingest, "write_slices", lose_once)
    steps = []
    with dagster_on_disk() as instance:
        for count in (5, 10):
            ground.send_rows(0, count)
            ground.send_rows(1, count)
            result = launch(pipeline, instance)
            assert result.success, failures(result)
            transaction = ground.ledger.transactions.history(pipeline.name)[0]
            tried = [
                (each.source.partition, each.attempt)
                for each in ground.ledger.attempts.of_transaction(transaction.transaction_id)
            ]
            steps.append((len(written(result)), sorted(tried)))
        rows = sorted(f"{partition}-{number}" for partition in (0, 1) for number in range(10))
        assert sorted(row["id"] for row in ground.rows().select(["id"]).to_pylist()) == rows
        require_replay_by_a_job(ground, pipeline, instance)
    assert steps == [small, (2, [(0, 0), (1, 0), (1, 1)])]
    assert sorted(row["id"] for row in ground.rows().select(["id"]).to_pylist()) == rows


def test_r3_the_newest_change_of_a_key_wins_whichever_op_wrote_it(ground: Ground, topic: str) -> None:
    """The ops of a transaction write log files for the same file group, and readers merge those by the ordering field."""
    table = {
        "mode": "upsert",
        "key": ["id"],
        "buckets": 1,
        "partition_by": [],
        "ordering": "n",
        "delete_field": "gone",
        "schema": "id string, n long, gone boolean",
    }
    pipeline = make_pipeline(ground, table=table, transaction={"ops": "auto"})

    def changes(*of_keys: tuple[str, int, bool]) -> list[bytes | None]:
        return [json.dumps({"id": key, "n": n, "gone": gone}).encode() for key, n, gone in of_keys]

    def table_now() -> dict[str, int]:
        by_spark = current_session(ground.home).read.format("hudi").load(ground.base_path).select("id", "n").collect()
        found = {row["id"]: row["n"] for row in ground.rows().select(["id", "n"]).to_pylist()}
        assert sorted(map(tuple, by_spark)) == sorted(found.items()), "Spark and hudi-rs agree"
        return found

    steps = [
        # The first op has the newer change of a, c and e, the second that of b and d.
        (
            [("a", 9, False), ("b", 1, False), ("c", 9, True), ("d", 1, False), ("e", 9, False)],
            [("a", 2, False), ("b", 8, False), ("c", 3, False), ("d", 8, True), ("e", 4, True)],
            {"a": 9, "b": 8, "e": 9},
        ),
        (
            [("a", 3, True), ("b", 20, True), ("c", 12, False), ("d", 7, False)],
            [("a", 11, False), ("b", 10, False), ("c", 11, True), ("e", 10, True)],
            {"a": 11, "c": 12},
        ),
    ]
    with DagsterInstance.ephemeral() as instance:
        for first, second, expected in steps:
            ground.send(0, changes(*first))
            ground.send(1, changes(*second))
            result = launch(pipeline, instance)
            assert result.success, failures(result)
            assert len(written(result)) == 2
            assert table_now() == expected
    services_for(pipeline, ground.ledger, current_session(ground.home), ground.home).run(
        clean=False, compact=True, report=lambda line: None
    )
    assert table_now() == expected


def require_replay_by_a_job(ground: Ground, pipeline: Pipeline, instance: DagsterInstance) -> None:
    """The job applies changes again up to the committed end, which it finds itself, in one run of the pipeline's own job."""
    from hudi_ingest.orchestration.definitions import build_definitions

    definitions = build_definitions([pipeline])
    job = definitions.resolve_job_def("hudi_ingest_replay")
    asked = {"topic": ground.name, "partition": 1, "start": 3}

    def launch_replay(**range_: int) -> ExecuteInProcessResult:
        config = {"ops": {"replay": {"config": {"ranges": [{**asked, **range_}]}}}}
        return job.execute_in_process(
            run_config=config, instance=instance, raise_on_error=False, partition_key=pipeline.name
        )

    with coordinated(pipeline, definitions, instance) as runs:
        replay = launch_replay()
        assert replay.success, failures(replay)
        early = launch_replay(end=14)
    assert runs == ["replay"]
    assert "ends before the committed offset 15. The table is keyed" in failures(early)
    (output,) = [event.step_output_data for event in replay.all_events if event.is_successful_output]
    told: dict[str, Any] = {key: value.value for key, value in output.metadata.items()}
    assert (told["offsets"], told["rows"], told["transactions"]) == (12, 12, 1)
    assert [row.data for row in told["partitions"].records] == [
        {"transaction": ANY, "partition": f"{ground.name}:1", "start": 3, "end": 15}
    ]
    newest = ground.ledger.transactions.history(pipeline.name)[0]
    assert (newest.owner.kind, newest.request_id, newest.instant) == ("dagster", told["request"], told["instants"])
    assert any(Path(ground.base_path, TIMELINE).glob(f"{newest.instant}_*.deltacommit"))


@pytest.mark.parametrize(
    "settings", [{"on_bad_record": "fail"}, {"on_bad_record": "dead_letter", "max_bad_records": 2}]
)
def test_the_bad_records_of_all_ops_fail_the_run_together_and_at_once(
    ground: Ground, topic: str, settings: dict[str, Any]
) -> None:
    pipeline = make_pipeline(ground, **settings)
    ground.send(0, [b"not json"] * 6)
    ground.send_rows(0, 3)
    ground.send_rows(1, 10)
    ground.send(1, [b"["])
    with DagsterInstance.ephemeral() as instance:
        result = launch(pipeline, instance)
        why = why_failed(instance, result.run_id)
    assert not result.success
    assert why.startswith("BadRecord: ") and "7 records cannot become rows" in why
    assert f"{ground.name}:0:0" in why and f"{ground.name}:1:10" in why and "and 2 more" in why
    assert f"hudi-ingest run {ground.name}" in why
    # One cause is one red op.
    assert [event.step_key for event in result.all_events if event.is_step_failure] == [f"{pipeline.name}.commit"]
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    refused = ground.ledger.transactions.history(pipeline.name)[0]
    assert refused.state is TransactionState.ABORTED
    counts = [
        (each.report.rows, each.report.rejected, each.report.gaps)
        for each in ground.ledger.attempts.of_transaction(refused.transaction_id)
        if each.report
    ]
    assert counts == [(3, 6, 0), (10, 1, 0)]
    assert ground.data_files() == []
    assert not [*Path(ground.base_path, ".hoodie/hudi_ingest").rglob("*.parquet")], "no letters stay"


def written(result: ExecuteInProcessResult) -> list[str]:
    """Keys of the write steps that succeeded."""
    keys = (str(event.step_key) for event in result.all_events if event.is_step_success)
    return sorted(key for key in keys if ".write[" in key)


def failures(result: ExecuteInProcessResult) -> str:
    found = []
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            found.append(str(data.error_display_string))
            found.append(str(data.user_failure_data))
    return "\n".join(found)
