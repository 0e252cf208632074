"""Maintenance jobs, which all pipelines of a code location share: partitions, their tags, and who is due at a tick."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future, wait
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultScheduleStatus,
    Definitions,
    Failure,
    JobDefinition,
    OpExecutionContext,
    Output,
    RunRequest,
    SkipReason,
    build_schedule_context,
)
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations import looks
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.code_location import ingest_definitions
from hudi_ingest.orchestration.jobs import maintenance_job
from hudi_ingest.orchestration.jobs.maintenance_job import MaintenanceJob, MaintenanceSchedule, NoConfig
from hudi_ingest.orchestration.jobs.upkeep_jobs import catalog_run, nightly_services
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.waiting import wait_for

NIGHT = datetime(2026, 1, 31, 2, 59, tzinfo=timezone.utc)


def pipeline(name: str, **changes: Any) -> Pipeline:
    settings = document(**{"name": name, "table__base_path": f"/data/{name}", "enabled": True, **changes})
    return Pipeline.model_validate(settings)


ORDERS, PAYMENTS = pipeline("orders"), pipeline("payments")


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as found:
        yield found


def job_of(kind: MaintenanceJob, *pipelines: Pipeline) -> JobDefinition:
    built = kind.build(pipelines, "")
    assert built is not None
    return Definitions(jobs=[built]).resolve_job_def(kind.name)


def noted(done: list[str]) -> MaintenanceJob:
    def run(context: OpExecutionContext, pipeline: Pipeline, config: NoConfig) -> Output[None]:
        done.append(pipeline.name)
        return Output(None)

    return MaintenanceJob("polish", "hudi_ingest/polish", "Polishes tables.", run, resources=frozenset())


def test_a_run_has_its_pipelines_tags_also_if_a_script_gave_the_partition_alone(instance: DagsterInstance) -> None:
    done: list[str] = []
    job = job_of(noted(done), ORDERS, PAYMENTS)
    expected = {tags.PIPELINE: "payments", "hudi_ingest/polish": "payments", tags.MAINTENANCE: "polish"}
    by_picker = job.execute_in_process(instance=instance, partition_key="payments")
    by_script = job.execute_in_process(instance=instance, tags={tags.PARTITION: "payments"})
    for result in (by_picker, by_script):
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert expected.items() <= run.tags.items()
    assert done == ["payments", "payments"]


@pytest.mark.parametrize(("asked", "said"), [({}, "needs a pipeline"), ({tags.PARTITION: "gone"}, "no partition gone")])
def test_a_run_without_a_pipeline_is_refused(instance: DagsterInstance, asked: dict[str, str], said: str) -> None:
    done: list[str] = []
    job = job_of(noted(done), ORDERS, PAYMENTS)
    with pytest.raises(Failure, match=said) as refused:
        job.execute_in_process(instance=instance, tags=asked)
    assert "orders, payments" in str(refused.value.description)
    assert not done


@pytest.mark.parametrize(("error", "tries"), [(KafkaUnreachable("away"), 3), (RuntimeError("odd"), 3), (None, 1)])
def test_each_pipeline_is_retried_as_its_own_settings_say(
    instance: DagsterInstance, error: Exception | None, tries: int
) -> None:
    patient = pipeline("orders", transaction__retries=2, transaction__retry_delay_seconds=0)
    seen: list[int] = []

    def run(context: OpExecutionContext, pipeline: Pipeline, config: NoConfig) -> Output[None]:
        seen.append(context.retry_number)
        raise error or Failure("for good", allow_retries=False)

    kind = MaintenanceJob("polish", "x", "Polishes tables.", run, resources=frozenset(), retried=True)
    result = job_of(kind, patient).execute_in_process(instance=instance, partition_key="orders", raise_on_error=False)
    assert not result.success
    assert seen == [*range(tries)]


def test_a_tick_requests_a_run_for_each_pipeline_that_is_due_and_has_the_reasons_of_the_others(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def wait_half_a_second(looks: Collection[Future[Any]], timeout: float, until: str) -> Any:
        # Not before the others have answered, however busy the machine is.
        wait_for(
            lambda: sum(look.done() for look in looks) >= min(len(looks), 4) or (len(looks) == 1 and not over.is_set()),
            "all but the silent one have answered",
        )
        return wait(looks, timeout, until)

    monkeypatch.setattr(maintenance_job, "EVALUATION_SECONDS", 0.5)
    monkeypatch.setattr(looks, "wait", wait_half_a_second)

    def due(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
        if pipeline.name == "silent":
            over.wait(300)
        if pipeline.name == "broken":
            raise RuntimeError("no such table")
        return SkipReason("not yet") if pipeline.name == "payments" else RunRequest()

    pipelines = [ORDERS, PAYMENTS, *map(pipeline, ("silent", "broken", "refunds"))]
    schedule = MaintenanceSchedule("polish_daily", "0 1 * * *", "Polishes.", due)
    try:
        requests, reasons = schedule.evaluate(pipelines, instance, NIGHT)
    finally:
        over.set()
    assert [(request.partition_key, request.run_key) for request in requests] == [
        ("orders", "orders 2026-01-31T02:59:00Z"),
        ("refunds", "refunds 2026-01-31T02:59:00Z"),
    ]
    assert reasons == [
        "payments: not yet",
        "silent: its table has not answered within 0 s",
        "broken: RuntimeError: no such table",
    ]
    with pytest.raises(RuntimeError, match="no such table"):
        schedule.evaluate([pipeline("broken")], instance, NIGHT)


def test_merges_of_tables_with_frequent_commits_are_spread_over_minutes_and_others_are_not(
    instance: DagsterInstance,
) -> None:
    def due(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest:
        return RunRequest(tags={} if pipeline.name == "rare" else {tags.MERGING: "true"})

    pipelines = [*map(pipeline, ("a", "b", "rare", "c", "d"))]
    schedule = MaintenanceSchedule("merging", "* * * * *", "Merges.", due)
    merged = set()
    for minute in range(3):
        requests, reasons = schedule.evaluate(pipelines, instance, NIGHT + timedelta(minutes=minute))
        names = {request.partition_key for request in requests}
        assert (len(names), len(reasons), "rare" in names) == (3, 2, True)
        assert all(reason.endswith(": other tables' files are merged in this minute") for reason in reasons)
        merged |= names
    assert merged == {"a", "b", "c", "d", "rare"}


def test_a_pipeline_that_was_never_turned_on_is_left_alone_until_it_is(tmp_path: Path) -> None:
    off = pipeline("orders", enabled=False)
    schedule = MaintenanceSchedule("polish_daily", "0 1 * * *", "Polishes.", lambda *_: RunRequest())
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file="pipelines.py"), location_name="pipelines")
    sensor = RemoteRepositoryOrigin(location, "__repository__").get_instigator_origin("hudi_ingest_coordinator")
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        requests, (reason,) = schedule.evaluate([off], instance, NIGHT)
        assert not requests
        assert "`hudi-ingest resume orders` turns it on" in reason
        with Ledger.open(Home.from_environment().ledger_url) as ledger:
            ledger.requests.switch("orders", True)
            assert schedule.evaluate([off], instance, NIGHT)[0]
            state = InstigatorState(sensor, InstigatorType.SENSOR, InstigatorStatus.STOPPED)
            instance.add_instigator_state(state)
            assert not schedule.evaluate([off], instance, NIGHT)[0]
            instance.update_instigator_state(state.with_status(InstigatorStatus.DECLARED_IN_CODE))
            assert schedule.evaluate([off], instance, NIGHT)[0]
            ledger.requests.switch("orders", False)
        assert not schedule.evaluate([off], instance, NIGHT)[0]


def test_each_table_is_serviced_once_a_night_from_its_own_minute_on(instance: DagsterInstance) -> None:
    begin = datetime.now(timezone.utc).replace(hour=2, minute=0, second=0, microsecond=0)
    outcomes = [nightly_services(ORDERS, instance, begin + timedelta(minutes=minute)) for minute in range(60)]
    waiting = [outcome for outcome in outcomes if isinstance(outcome, SkipReason)]
    assert all(f"due at 02:{len(waiting):02} UTC" in str(outcome.skip_message) for outcome in waiting)
    assert all(isinstance(outcome, RunRequest) for outcome in outcomes[len(waiting) :])
    assert len({outcome.run_key for outcome in outcomes if isinstance(outcome, RunRequest)}) == 1, "once a night"
    if datetime.now(timezone.utc) > begin:
        run = DagsterRun("hudi_ingest_services", tags={tags.PIPELINE_SERVICES: "orders"})
        instance.add_run(run)
        again = nightly_services(ORDERS, instance, begin + timedelta(minutes=59))
        assert isinstance(again, SkipReason)
        assert run.run_id[:8] in str(again.skip_message)


def test_dagster_takes_many_requests_of_one_tick_with_tags_of_each(tmp_path: Path) -> None:
    many = [pipeline(f"p{number}") for number in range(30)]
    definitions = ingest_definitions(many)
    repository = definitions.get_repository_def()
    schedule = repository.get_schedule_def("hudi_ingest_services_daily")
    now = datetime.now(timezone.utc).replace(hour=2, minute=59)
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        tick = schedule.evaluate_tick(build_schedule_context(instance, now, repository_def=repository))
    assert len(tick.run_requests or ()) == len({request.run_key for request in tick.run_requests or ()}) == 30
    for request, each in zip(tick.run_requests or (), many, strict=True):
        assert (request.tags[tags.PIPELINE], request.tags[tags.PARTITION]) == (each.name, each.name)


def test_the_number_of_jobs_and_schedules_does_not_grow_with_the_pipelines() -> None:
    for count in (1, 40):
        pipelines = [pipeline(f"p{number}") for number in range(count)]
        repository = ingest_definitions(pipelines).get_repository_def()
        jobs = [job.name for job in repository.get_all_jobs() if not job.name.startswith("__")]
        assert len(jobs) == 7
        assert len(repository.schedule_defs) == 3


def test_a_catalog_that_lags_is_synced_although_no_file_says_that_its_pipeline_is_enabled(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    catalog = {"type": "hms", "uris": "thrift://127.0.0.1:9"}
    orders = pipeline("orders", enabled=False, catalog=catalog, table__base_path=str(tmp_path / "orders"))
    schedule = ingest_definitions([orders]).get_repository_def().get_schedule_def("hudi_ingest_catalog_retry")
    assert schedule.default_status is DefaultScheduleStatus.RUNNING, "it leaves those alone that are paused"
    waits = catalog_run(orders, instance, NIGHT)
    assert isinstance(waits, SkipReason)
    assert "has all of its table" in str(waits.skip_message), "there is none yet"
    instance.add_run(
        DagsterRun("__ASSET_JOB", tags={tags.TABLE: orders.table.base_path}, status=DagsterRunStatus.STARTED)
    )
    waits = catalog_run(orders, instance, NIGHT)
    assert isinstance(waits, SkipReason)
    assert "works on a transaction" in str(waits.skip_message)
