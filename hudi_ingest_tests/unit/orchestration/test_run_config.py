"""The plan comes back from Dagster's run config as it went in, and Dagster takes every key of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterInvalidConfigError,
    DagsterRun,
    DefaultSensorStatus,
    Definitions,
    Executor,
    ExecutorDefinition,
    Field,
    FilesystemIOManager,
    InitExecutorContext,
    SensorDefinition,
    build_resources,
    build_sensor_context,
    executor,
    in_process_executor,
    multiprocess_executor,
    validate_run_config,
)
from dagster._core.errors import DagsterResourceFunctionError
from dagster_pyspark import PySparkResource

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.model.offsets import Slice, TopicVersion
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss, TakeOver
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.coordinator.sensor import coordinator_sensor
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.orchestration.jobs.run_config import (
    BEGIN,
    BeginConfig,
    executor_tags,
    plan_in,
    run_config,
    run_is_finished,
    run_request,
)
from hudi_ingest.orchestration.pipeline_definitions import pipeline_definitions
from hudi_ingest.orchestration.switch import Switches
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.transaction import FAN_OUT_FROM
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.transactions import transaction_job

LOST = OffsetLoss("orders", 1, 5, 9, 4, LossReason.RETENTION)
PLAN = IngestPlan(
    "orders", "orders-000007-abc", 7, (Slice("orders", 0, 3, 9),), {"orders": TopicVersion("id", 1)}, (LOST,), (LOST,)
)


@executor(name="containers", config_schema={"image": Field(str, is_required=False)})
def containers(context: InitExecutorContext) -> Executor:
    """Its config is as strict as that of Dagster's executors for Docker and Kubernetes."""
    raise NotImplementedError


def orders(folder: Path) -> Pipeline:
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump(document()))
    return load_pipeline(path, {})


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        replace(PLAN, take_over=TakeOver("Hudi Streamer", "1", {LOST.source: 5})),
        replace(PLAN, leaderless=(LOST.source,)),
    ],
)
def test_p2_a_plan_survives_dagsters_run_config(tmp_path: Path, plan: IngestPlan) -> None:
    pipeline = orders(tmp_path)
    config = run_config(pipeline, plan)
    definitions = build_definitions([pipeline])
    assert validate_run_config(transaction_job(definitions, pipeline.name), config)
    begin = config["ops"]["orders"]["ops"][BEGIN]["config"]
    assert BeginConfig(**begin).plan("orders") == plan
    names = {each.name for each in definitions.resolve_all_job_defs()}
    assert {
        "hudi_ingest_backfill_hours",
        "hudi_ingest_backfill",
        "hudi_ingest_replay",
        "hudi_ingest_retry_dead_letters",
    } <= names


def test_a_keyed_table_has_the_jobs_that_can_read_up_to_its_committed_end(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document(table__mode="upsert", table__key=["id"])))
    definitions = build_definitions([load_pipeline(path, {})])
    jobs = {job.name for job in definitions.resolve_all_job_defs()}
    assert {"hudi_ingest_backfill", "hudi_ingest_replay"} <= jobs
    assert not {"hudi_ingest_backfill_hours", "hudi_ingest_retry_dead_letters"} & jobs, "they could only refuse"
    for name in ("backfill", "replay"):
        for asked in (
            {"from_time": "2026-01-31T00:00:00Z"},
            {"ranges": [{"topic": "orders", "partition": 0, "start": 7}]},
        ):
            config = {"ops": {name: {"config": asked}}}
            assert validate_run_config(definitions.resolve_job_def(f"hudi_ingest_{name}"), config)


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        (None, "multi_or_in_process_executor"),
        (in_process_executor, "in_process"),
        (multiprocess_executor, "multiprocess"),
        (containers, "containers"),
    ],
)
def test_r10_the_executor_is_the_code_locations_and_takes_the_sensors_config(
    tmp_path: Path, chosen: ExecutorDefinition | None, name: str
) -> None:
    pipeline = orders(tmp_path)
    location = Definitions.merge(Definitions(executor=chosen), pipeline_definitions(pipeline, []))
    transaction = transaction_job(location, pipeline.name)
    assert validate_run_config(transaction, run_config(pipeline, PLAN))
    assert {each.executor_def.name for each in location.resolve_all_job_defs()} == {name}


def test_r10_our_own_location_has_an_executor_that_spares_small_runs_processes(tmp_path: Path) -> None:
    pipeline = orders(tmp_path)
    transaction = transaction_job(build_definitions([pipeline]), pipeline.name)
    assert transaction.executor_def.name == "hudi_ingest"
    assert executor_tags(pipeline, PLAN) == {tags.IN_PROCESS: "true"}
    many = replace(PLAN, slices=(Slice("orders", 0, 3, 3 + FAN_OUT_FROM),))
    assert executor_tags(pipeline, many) == {}


def run_of(pipeline: Pipeline, run_config: dict[str, object], **run_tags: str) -> DagsterRun:
    return DagsterRun("__ASSET_JOB", run_config=run_config, asset_selection={AssetKey([pipeline.name])}, tags=run_tags)


def test_x1_a_run_without_the_plan_that_its_sensor_made_is_refused(tmp_path: Path) -> None:
    pipeline = orders(tmp_path)
    asked = run_config(pipeline, PLAN)
    config = BeginConfig(**asked["ops"]["orders"]["ops"][BEGIN]["config"])
    own, theirs = ({tags.SENSOR: name} for name in ("hudi_ingest_coordinator_1a2b", "their_sensor"))
    assert plan_in(run_of(pipeline, asked, **own), pipeline, config) == PLAN
    assert plan_in(run_of(pipeline, {}), pipeline, BeginConfig()) is None, "begin plans what a person launched"
    assert plan_in(run_of(pipeline, {}, **theirs), pipeline, BeginConfig()) is None, "or another sensor"
    with pytest.raises(ConfigError, match="the plan that it made is missing"):
        plan_in(run_of(pipeline, {}, **own), pipeline, BeginConfig())
    with pytest.raises(
        ConfigError, match=r"this run has no orderz\. Move what is below to ops\.orders\.ops\.begin\.config"
    ):
        plan_in(run_of(pipeline, {"ops": {"orderz": {}}}), pipeline, BeginConfig())


def test_x1_the_sensors_request_takes_its_table_alone_with_all_that_a_run_is_found_by(tmp_path: Path) -> None:
    pipeline = orders(tmp_path)
    definitions = build_definitions([pipeline])
    repository = definitions.get_repository_def()
    asked = run_request(pipeline, PLAN, "here")
    asking = SensorDefinition("asks", evaluation_fn=lambda _: asked, asset_selection=[AssetKey(["orders"])])
    with DagsterInstance.ephemeral() as instance:
        ticked = asking.evaluate_tick(build_sensor_context(instance, repository_def=repository))
    (request,) = ticked.run_requests or ()
    assert (request.job_name, request.asset_selection) == ("__ASSET_JOB", [AssetKey(["orders"])])
    assert request.asset_check_keys == [], "ticks report the checks"
    assert request.run_key == PLAN.transaction_id
    assert {
        tags.PIPELINE: "orders",
        tags.TABLE: pipeline.table.base_path,
        tags.MAX_RUNTIME: "420",
        tags.MAX_RETRIES: "0",
        tags.TRANSACTION: PLAN.transaction_id,
    }.items() <= request.tags.items()
    assert transaction_job(definitions, "orders").graph.pools == {"hudi_ingest_orders"}


OTHER_FOLDER = {"io_manager": {"config": {"base_dir": "/tmp/pickles"}}}
SPARK_SETTING = {"hudi_ingest_spark": {"config": {"spark_config": {"spark.jars": "/tmp/other.jar"}}}}


@pytest.mark.parametrize(
    "resources", [OTHER_FOLDER, SPARK_SETTING, {"hudi_ingest_ledger": {"config": {"url": "sqlite:///x"}}}]
)
def test_no_runs_config_changes_what_ops_load_and_start(tmp_path: Path, resources: dict[str, object]) -> None:
    definitions = build_definitions([orders(tmp_path)], {"spark.executor.memory": "2g"})
    jobs = [each for each in definitions.resolve_all_job_defs() if not each.name.startswith("__")]
    assert len(jobs) == 7
    jobs.append(transaction_job(definitions, "orders"))
    for job in jobs:
        with pytest.raises(DagsterInvalidConfigError, match="Received unexpected config entry"):
            validate_run_config(job, {"resources": resources})


def test_where_a_foreign_location_keeps_results_is_not_a_runs_to_say(tmp_path: Path) -> None:
    pipeline = orders(tmp_path)
    bound = FilesystemIOManager(base_dir=str(tmp_path))
    for location in (Definitions(), Definitions(resources={"io_manager": bound})):
        definitions = Definitions.merge(location, pipeline_definitions(pipeline, []))
        job = transaction_job(definitions, pipeline.name)
        config = {**run_config(pipeline, PLAN), "resources": OTHER_FOLDER}
        with DagsterInstance.ephemeral() as instance, pytest.raises(DagsterResourceFunctionError) as raised:
            job.execute_in_process(run_config=config, instance=instance)
        assert isinstance(raised.value.__cause__, ConfigError)
        assert "resources.io_manager: remove it" in str(raised.value.__cause__)


def test_spark_settings_of_the_location_are_the_resources(tmp_path: Path) -> None:
    definitions = build_definitions([orders(tmp_path)], {"spark": {"executor": {"memory": "2g"}}})
    with build_resources(definitions.resources or {}, instance=DagsterInstance.ephemeral()) as resources:
        assert isinstance(resources.hudi_ingest_spark, PySparkResource)
        assert resources.hudi_ingest_spark.spark_config == {"spark": {"executor": {"memory": "2g"}}}


@pytest.mark.parametrize(("settings", "on"), [({}, False), ({"enabled": False}, False), ({"enabled": True}, True)])
def test_the_file_says_whether_its_pipeline_begins_at_once_and_the_sensor_always_ticks(
    tmp_path: Path, settings: dict[str, bool], on: bool
) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump({**document(), **settings}))
    pipeline = load_pipeline(path, {})
    assert Switches().is_on(pipeline) == on
    assert coordinator_sensor([pipeline]).default_status is DefaultSensorStatus.RUNNING


@pytest.mark.parametrize(("interval", "seconds"), [(60, 5), (300, 30), (10, 1)])
def test_the_sensor_ticks_as_often_as_the_freshest_of_its_tables_needs(
    tmp_path: Path, interval: int, seconds: int
) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump({**document(), "transaction": {"interval_seconds": interval}}))
    rare = load_pipeline(path, {}).model_copy(update={"name": "rare"})
    rare = rare.model_copy(update={"transaction": rare.transaction.model_copy(update={"interval_seconds": 3600})})
    assert coordinator_sensor([rare, load_pipeline(path, {})]).minimum_interval_seconds == seconds


def test_p4_a_run_that_this_instance_does_not_know_may_be_alive() -> None:
    with DagsterInstance.ephemeral() as instance:
        assert run_is_finished(instance)("of another instance") is None
