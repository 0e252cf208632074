"""The coordinator's decisions that need no broker, and that a dead broker is a reason and not a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    DagsterRunStatus,
    RunRequest,
    SkipReason,
    validate_run_config,
)
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.dagster_run import DagsterRun

from hudi_ingest.home.folder import LEDGER_VARIABLE, Home
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.ledger import Ledger, Owner
from hudi_ingest.local.processes import free_port
from hudi_ingest.model.offsets import Slice, TopicVersion
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss
from hudi_ingest.operations.health.judgement import UP_TO_DATE
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.coordinator import quiet_ticks
from hudi_ingest.orchestration.coordinator.runs import ENDING_SECONDS
from hudi_ingest.orchestration.coordinator.sensor import request_text
from hudi_ingest.orchestration.failures import LONGEST_BACKOFF_SECONDS, backoff_seconds
from hudi_ingest.orchestration.jobs.run_config import BeginConfig, run_config
from hudi_ingest.orchestration.jobs.table_asset import mapping_keys
from hudi_ingest.orchestration.reports.checks import BLIND_SECONDS
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.damaged_table import OURS, SERVICE, DamagedTable
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.properties_text import empty_properties, properties_text
from hudi_ingest_tests.support.ticks import MEMORY, tick
from hudi_ingest_tests.support.ticks import still_quiet as quiet
from hudi_ingest_tests.support.transactions import transaction_job


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    home = Home(root=tmp_path, pipelines=tmp_path / "pipelines", ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.setenv(LEDGER_VARIABLE, home.ledger_url)
    nobody = f"127.0.0.1:{free_port()}"
    return make_pipeline(Ground("orders", nobody, home), source={"request_timeout_seconds": 0.2})


def run_of(
    run_tags: Mapping[str, str],
    status: DagsterRunStatus = DagsterRunStatus.STARTED,
    assets: Sequence[str] = ("orders",),
) -> DagsterRun:
    """A run that materializes these assets."""
    selection = frozenset(AssetKey([name]) for name in assets)
    return DagsterRun(job_name="__ASSET_JOB", status=status, tags=run_tags, asset_selection=selection)


def still_quiet(pipeline: Pipeline, instance: DagsterInstance) -> str | None:
    with Ledger.open(os.environ[LEDGER_VARIABLE]) as ledger:
        return quiet(pipeline, instance, ledger.requests)


@contextmanager
def closing_ledger() -> Iterator[Ledger]:
    with Ledger.open(Home.from_environment().ledger_url) as ledger:
        yield ledger


def test_an_unreachable_broker_is_a_skip_with_the_reason(pipeline: Pipeline) -> None:
    began = time.monotonic()
    with DagsterInstance.ephemeral() as instance:
        found = tick(pipeline, instance, datetime.now(timezone.utc))
    assert isinstance(found, SkipReason)
    assert pipeline.source.bootstrap_servers in str(found.skip_message)
    assert "Check source.bootstrap_servers" in str(found.skip_message)
    assert time.monotonic() - began < 60


def test_d1_an_unreachable_ledger_is_a_skip_with_the_reason_and_red_on_the_asset(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, f"postgresql+psycopg2://nobody@127.0.0.1:{free_port()}/ledger")
    now = datetime.now(timezone.utc)
    check = AssetCheckKey(AssetKey(["orders"]), UP_TO_DATE)
    with DagsterInstance.ephemeral() as instance:
        for later in (now, now + timedelta(seconds=BLIND_SECONDS + 1)):
            skip = tick(pipeline, instance, later)
            assert isinstance(skip, SkipReason)
            assert "HUDI_INGEST_LEDGER_URL" in str(skip.skip_message)
        (red,) = instance.event_log_storage.get_asset_check_execution_history(check, limit=5)
    assert red.status is AssetCheckExecutionRecordStatus.FAILED


@pytest.mark.parametrize("status", [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING])
def test_f1_while_a_run_is_in_flight_no_other_is_launched(pipeline: Pipeline, status: DagsterRunStatus) -> None:
    with DagsterInstance.ephemeral() as instance:
        run_tags = {tags.TABLE: pipeline.table.base_path, tags.TRANSACTION: "orders-000007-abc"}
        instance.add_run(run_of(run_tags, status))
        found = tick(pipeline, instance, datetime.now(timezone.utc))
    assert isinstance(found, SkipReason)
    assert "orders-000007-abc" in str(found.skip_message)


def test_f1_while_its_run_is_at_work_a_tick_only_asks_whether_it_still_is(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a slow machine would be the reason.
    monkeypatch.setattr(quiet_ticks, "WHOLE_SECONDS", 3600.0)
    run_tags = {tags.TABLE: pipeline.table.base_path, tags.TRANSACTION: "orders-000007-abc"}
    with DagsterInstance.ephemeral() as instance:
        run = run_of(run_tags, DagsterRunStatus.STARTED)
        instance.add_run(run)
        assert still_quiet(pipeline, instance) is None, "the first tick of a process is whole"
        whole = tick(pipeline, instance, datetime.now(timezone.utc))
        assert isinstance(whole, SkipReason)
        assert still_quiet(pipeline, instance) == whole.skip_message
        assert still_quiet(pipeline.model_copy(), instance) is None, "the pipelines were loaded again"
        tick(pipeline, instance, datetime.now(timezone.utc))
        assert still_quiet(pipeline, instance) == whole.skip_message
        instance.report_run_canceled(run)
        assert still_quiet(pipeline, instance) is None, "the run has ended"
        tick(pipeline, instance, datetime.now(timezone.utc))
        instance.add_run(run_of(run_tags, DagsterRunStatus.STARTED))
        assert still_quiet(pipeline, instance) is None, "the last whole tick found no run"
        MEMORY.of(pipeline).remember_busy()
        assert still_quiet(pipeline, instance) is not None
        monkeypatch.setattr(quiet_ticks, "WHOLE_SECONDS", 0.0)
        assert still_quiet(pipeline, instance) is None, "it is time for a whole one"


def test_f1_a_run_launched_from_the_assets_page_counts_before_it_has_our_tags(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        selection = frozenset({AssetKey(["orders"])})
        run = DagsterRun(job_name="__ASSET_JOB", status=DagsterRunStatus.STARTING, asset_selection=selection)
        instance.add_run(run)
        found = tick(pipeline, instance, datetime.now(timezone.utc))
    assert isinstance(found, SkipReason)
    assert run.run_id[:8] in str(found.skip_message)


def test_p5_a_tick_restores_properties_that_a_crash_emptied_in_the_middle_of_a_transaction(pipeline: Pipeline) -> None:
    """Before it asks the table whether the dead transaction has landed: nothing can be read of the table until then."""
    properties = Path(pipeline.table.base_path, ".hoodie", "hoodie.properties")
    properties.parent.mkdir(parents=True)
    properties.write_text(properties_text({}))
    empty_properties(pipeline.table.base_path)
    now = datetime.now(timezone.utc)
    plan = IngestPlan("orders", "orders-000009-x", 9, (Slice("orders", 0, 5, 9),))
    with closing_ledger() as ledger:
        over = now - timedelta(minutes=5)
        ledger.transactions.begin(plan, table=pipeline.table.base_path, owner=Owner.dagster_run("gone"), deadline=over)
    with DagsterInstance.ephemeral() as instance:
        assert isinstance(tick(pipeline, instance, now), SkipReason)
    assert properties.read_text() == properties_text({})


def test_p5_a_tick_repairs_what_a_power_cut_left_and_shows_it_on_the_asset(pipeline: Pipeline) -> None:
    with closing_ledger() as ledger, DagsterInstance.ephemeral() as instance:
        DamagedTable(pipeline, ledger).put(f"{OURS}_{SERVICE}.commit", b"")
        assert isinstance(tick(pipeline, instance, datetime.now(timezone.utc)), SkipReason)
        records = instance.fetch_observations(AssetKey(["orders"]), limit=5).records
        row = ledger.transactions.find("t2")
    shown = [each.asset_observation.metadata for each in records if each.asset_observation]
    assert row is not None
    assert [each["repair"].value for each in shown if "repair" in each] == [row.reason]
    assert f"{OURS}_{SERVICE}.commit is empty, as a power cut leaves it" in str(row.reason)


def test_f1_a_transaction_of_the_command_line_is_waited_for(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(Home.from_environment().ledger_url) as ledger:
        now = datetime.now(timezone.utc)
        plan = IngestPlan("orders", "orders-000009-cli", 9, (Slice("orders", 0, 5, 9),))
        ledger.transactions.begin(
            plan, table=pipeline.table.base_path, owner=Owner.this_process(), deadline=now + timedelta(minutes=5)
        )
    opened, open_ledger = list[str](), Ledger.open

    def counted(url: str) -> Ledger:
        opened.append(url)
        return open_ledger(url)

    monkeypatch.setattr(Ledger, "open", counted)
    with DagsterInstance.ephemeral() as instance:
        found = tick(pipeline, instance, now)
    assert isinstance(found, SkipReason)
    assert "orders-000009-cli" in str(found.skip_message)
    assert len(opened) == 1, "each opening looks at the ledger's revision"


@pytest.mark.parametrize(
    ("assets", "status", "told"),
    [
        (["orders"], DagsterRunStatus.STARTED, DagsterRunStatus.FAILURE),
        (["orders"], DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED),
        (["orders", "report"], DagsterRunStatus.STARTED, DagsterRunStatus.STARTED),
    ],
    ids=["ours", "canceling", "of other assets too"],
)
def test_p5_a_run_past_its_transactions_deadline_is_not_waited_for(
    pipeline: Pipeline, assets: Sequence[str], status: DagsterRunStatus, told: DagsterRunStatus
) -> None:
    now = datetime.now(timezone.utc)
    deadline = now - timedelta(seconds=ENDING_SECONDS + 1)
    with DagsterInstance.ephemeral() as instance, closing_ledger() as ledger:
        run = run_of({tags.TABLE: pipeline.table.base_path}, status, assets)
        instance.add_run(run)
        plan = IngestPlan("orders", "orders-000007-abc", 7, (Slice("orders", 0, 5, 9),))
        owner = Owner.dagster_run(run.run_id)
        ledger.transactions.begin(plan, table=pipeline.table.base_path, owner=owner, deadline=deadline)
        waiting = tick(pipeline, instance, deadline)
        assert run.run_id[:8] in str(waiting)
        later = tick(pipeline, instance, now)
        assert run.run_id[:8] not in str(later)
        found = instance.get_run_by_id(run.run_id)
        assert found is not None
        assert found.status is told
        if told is not status:
            assert "orders-000007-abc passed at" in str(instance.all_logs(run.run_id)[-1].dagster_event)


class RecordingLauncher(SyncInMemoryRunLauncher):
    """Says which runs were to be terminated, and how they stood then."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, bool]] = []

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        self.asked.append((run_id, run is not None and run.is_finished))
        return True


def test_p5_the_processes_of_a_run_past_its_deadline_are_ended_before_the_run(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(timezone.utc)
    plan = IngestPlan("orders", "orders-000007-abc", 7, (Slice("orders", 0, 5, 9),))
    with DagsterInstance.ephemeral() as instance, closing_ledger() as ledger:
        launcher = RecordingLauncher()
        launcher.register_instance(instance)
        monkeypatch.setattr(type(instance), "run_launcher", property(lambda self: launcher))
        run = run_of({tags.TABLE: pipeline.table.base_path})
        instance.add_run(run)
        deadline = now - timedelta(seconds=ENDING_SECONDS + 1)
        ledger.transactions.begin(
            plan, table=pipeline.table.base_path, owner=Owner.dagster_run(run.run_id), deadline=deadline
        )
        tick(pipeline, instance, deadline)
        assert launcher.asked == []
        tick(pipeline, instance, now)
        assert launcher.asked == [(run.run_id, False)]


def test_p2_a_run_whose_commit_renews_its_lease_is_waited_for_past_its_deadline(pipeline: Pipeline) -> None:
    now = datetime.now(timezone.utc)
    plan = IngestPlan("orders", "orders-000007-abc", 7, (Slice("orders", 0, 5, 9),))
    with DagsterInstance.ephemeral() as instance, closing_ledger() as ledger:
        run = run_of({tags.TABLE: pipeline.table.base_path})
        instance.add_run(run)
        owner = Owner.dagster_run(run.run_id)
        ledger.transactions.begin(plan, table=pipeline.table.base_path, owner=owner, deadline=now - timedelta(hours=1))
        ledger.transactions.record_instant(plan.transaction_id, "20261122030001000")
        heartbeat = Path(pipeline.table.base_path) / heartbeat_path("20261122030001000")
        heartbeat.parent.mkdir(parents=True)
        heartbeat.touch()
        assert run.run_id[:8] in str(tick(pipeline, instance, now))
        seconds = pipeline.transaction.timeout_seconds + ENDING_SECONDS + 1
        os.utime(heartbeat, (now.timestamp() - seconds,) * 2)
        assert run.run_id[:8] not in str(tick(pipeline, instance, now))


def test_backoff_grows_and_is_bounded() -> None:
    waits = [backoff_seconds(failures, 60) for failures in range(8)]
    assert waits == [0, 0, 60, 120, 240, 480, 900, 900]
    assert backoff_seconds(10**6, 60) == LONGEST_BACKOFF_SECONDS


def test_x1_the_run_config_shows_the_whole_plan_and_gives_it_back(pipeline: Pipeline) -> None:
    plan = IngestPlan(
        "orders",
        "orders-000003-ab",
        3,
        (Slice("orders", 0, 5, 9), Slice("orders", 1, 2, 2)),
        {"orders": TopicVersion("id", 1)},
        (OffsetLoss("orders", 0, 3, 5, 2, LossReason.RETENTION),),
        (OffsetLoss("orders", 2, 8, None, None, LossReason.RECREATED),),
    )
    shown = run_config(pipeline, plan)["ops"]["orders"]["ops"]["begin"]["config"]
    assert shown["slices"][0] == {"topic": "orders", "partition": 0, "start": 5, "end": 9}
    assert BeginConfig(**shown).plan("orders") == plan
    assert BeginConfig().plan("orders") is None


def test_x1_dagster_accepts_the_run_config_of_every_plan(pipeline: Pipeline) -> None:
    from hudi_ingest.orchestration.pipeline_definitions import pipeline_definitions

    job = transaction_job(pipeline_definitions(pipeline, []), pipeline.name)
    plan = IngestPlan(
        "orders",
        "orders-000003-ab",
        3,
        (Slice("orders", 0, 5, 9),),
        {"orders": TopicVersion("id", 1)},
        (OffsetLoss("orders", 0, 3, 5, 2, LossReason.RETENTION),),
        (OffsetLoss("orders", 2, 8, None, None, LossReason.RECREATED),),
    )
    assert validate_run_config(job, run_config(pipeline, plan))


def test_x1_the_ticks_log_says_what_the_run_is_to_take(pipeline: Pipeline) -> None:
    slices = tuple(Slice("orders", number, 5, 5 + number) for number in range(13))
    plan = IngestPlan("orders", "orders-000003-ab", 3, slices, {"orders": TopicVersion("id", 1)})
    said = request_text(RunRequest(run_config=run_config(pipeline, plan)))
    assert said.startswith("orders-000003-ab will take 78 offsets: orders:1 [5,6), orders:2 [5,7), ")
    assert said.endswith("orders:10 [5,15) and 2 more")


def test_mapped_ops_are_named_after_their_partitions() -> None:
    def one(topic: str, partition: int) -> tuple[Slice, ...]:
        return (Slice(topic, partition, 0, 1),)

    assert mapping_keys([one("orders.eu-1", 0), one("orders.eu-1", 1)]) == ["orders_eu_1_0", "orders_eu_1_1"]
    assert mapping_keys([one("a.b", 0), one("a_b", 0)]) == ["a_b_0__0", "a_b_0__1"]
    assert mapping_keys([one("a", 0) + one("a", 1), one("a", 2)]) == ["group_0", "a_2"]
