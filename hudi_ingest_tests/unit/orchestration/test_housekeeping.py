"""Housekeeping deletes what is old of ours in Dagster and in the ledger, and nothing that anybody reads or that is a team's own."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetSpec,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    RepositoryDefinition,
    RunRequest,
    SkipReason,
    execute_job,
    job,
    op,
)
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.events import StepMaterializationData
from dagster._core.execution.api import create_execution_plan
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.snap import snapshot_from_execution_plan
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster_shared.record import replace as replaced

from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import PUT_ASIDE
from hudi_ingest.ledger import Ledger, Owner, Request, ServiceRun
from hudi_ingest.ledger.tables import ATTEMPTS, SLICES, TRANSACTIONS
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan, TransactionKind
from hudi_ingest.operations.health.judgement import LAG_BELOW_LIMIT, UP_TO_DATE
from hudi_ingest.orchestration import housekeeping as kept
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.orchestration.embedded.retention import sqlite_files
from hudi_ingest.orchestration.failures import HOUSEKEEPING as JOB
from hudi_ingest.orchestration.housekeeping import Housekeeping, HousekeepingReport, next_run
from hudi_ingest.orchestration.pipeline_definitions import OwnDefinitions
from hudi_ingest.orchestration.reports.alerts_sensor import _housekeeping, failing_checks
from hudi_ingest.orchestration.reports.checks import why_housekeeping_failed
from hudi_ingest.orchestration.reports.overview import FAILING, current_rows, observation
from hudi_ingest.orchestration.reports.overview import NAME as OVERVIEW
from hudi_ingest.orchestration.run_retention import LEAST_FREE_BYTES, delete_run, run_bytes, shrink
from hudi_ingest.pipeline.code_location import AlertSettings, HousekeepingSettings
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.folder import BrokenFile
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.properties_text import properties_text

pytestmark = pytest.mark.fast

NOW = datetime.now(timezone.utc)
LEAST = 3
ORDERS, TOPIC = AssetKey(["orders"]), AssetKey(["kafka", "orders_topic"])
QUICK = """
telemetry: {enabled: false}
storage: {custom: {module: hudi_ingest.orchestration.embedded.sqlite_storage, class: QuickSqliteStorage, config: {base_dir: HOME}}}
"""
PIPELINE = """
name: orders
source: {bootstrap_servers: "127.0.0.1:1", topics: [orders]}
table: {base_path: /data/orders, schema: "id string, dt string", partition_by: [dt]}
"""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LEAST", LEAST)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A $DAGSTER_HOME whose databases exist."""
    home = tmp_path_factory.mktemp("dagster")
    (home / "dagster.yaml").write_text(QUICK.replace("HOME", str(home)))
    with DagsterInstance.from_config(str(home)):
        pass
    return home


@pytest.fixture(scope="module")
def server() -> Iterator[sa.URL | None]:
    """A PostgreSQL server with Dagster's tables in its database; None if it is not installed."""
    with postgres.running() as served, tempfile.TemporaryDirectory() as home:
        if served is None:
            yield None
            return
        url = sa.make_url(served)
        with on_postgresql(Path(home), url):
            pass
        yield url


def on_postgresql(home: Path, url: sa.URL) -> DagsterInstance:
    storage = {"postgres_url": url.set(drivername="postgresql").render_as_string(hide_password=False)}
    (home / "dagster.yaml").write_text(
        yaml.safe_dump({"telemetry": {"enabled": False}, "storage": {"postgres": storage}})
    )
    return DagsterInstance.from_config(str(home))


@pytest.fixture
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DagsterInstance]:
    """The same on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("instance")
        return
    url: sa.URL | None = request.getfixturevalue("server")
    if url is None:
        pytest.skip("PostgreSQL is not installed")
    name = f"dagster_{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(url.set(database="template1"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name} TEMPLATE {url.database}"))
    home = tmp_path / "postgresql"
    home.mkdir()
    with on_postgresql(home, url.set(database=name)) as opened:
        yield opened


EVERYWHERE = pytest.mark.parametrize(
    "anywhere", ["sqlite", pytest.param("postgresql", marks=pytest.mark.tier(2))], indirect=True
)


@pytest.fixture
def instance(prepared: Path, tmp_path: Path) -> Iterator[DagsterInstance]:
    home = tmp_path / "dagster"
    shutil.copytree(prepared, home)
    (home / "dagster.yaml").write_text(QUICK.replace("HOME", str(home)))
    with DagsterInstance.from_config(str(home)) as opened:
        yield opened


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    file = tmp_path_factory.mktemp("pipelines") / "orders.yaml"
    file.write_text(PIPELINE)
    return load_pipeline(file)


@pytest.fixture(scope="module")
def repository(orders: Pipeline) -> RepositoryDefinition:
    @op
    def theirs() -> None: ...

    @job
    def teams_job() -> None:
        theirs()

    teams = Definitions(jobs=[teams_job], assets=[AssetSpec(AssetKey(["kafka", "another_topic"]))])
    return Definitions.merge(build_definitions([orders]), teams).get_repository_def()


@pytest.fixture
def own(repository: RepositoryDefinition) -> OwnDefinitions:
    return OwnDefinitions.of(repository)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")


def run_of(
    instance: DagsterInstance,
    days: float,
    job_name: str = "hudi_ingest_services",
    status: DagsterRunStatus = DagsterRunStatus.SUCCESS,
    more: Mapping[str, str] | None = None,
    parent: str | None = None,
) -> str:
    """Add a run that is so many days old, with a log and a result, and return its id."""
    ours = {tags.PIPELINE: "orders"} if job_name in ("hudi_ingest_services", "__ASSET_JOB_0") else {}
    named = {**ours, **(more or {})}
    selection = frozenset({ORDERS}) if job_name.startswith("__ASSET_JOB") else None
    run = DagsterRun(
        job_name,
        str(uuid.uuid4()),
        status=status,
        tags=named,
        asset_selection=selection,
        parent_run_id=parent,
        root_run_id=parent,
    )
    instance.run_storage.add_historical_run(run, NOW - timedelta(days=days))
    materialized = StepMaterializationData(
        AssetMaterialization("orders" if job_name == "hudi_ingest_services" else "theirs")
    )
    event = DagsterEvent(DagsterEventType.ASSET_MATERIALIZATION.value, job_name, event_specific_data=materialized)
    if status is DagsterRunStatus.SUCCESS:
        instance.report_dagster_event(event, run.run_id)
    files = Path(instance.storage_directory(), run.run_id, "compute_logs")
    files.mkdir(parents=True)
    (files / "op.err").write_text("x" * 1000)
    return run.run_id


def keep(
    own: OwnDefinitions, ledger: Ledger, instance: DagsterInstance | None, *, dry_run: bool = False, **settings: int
) -> HousekeepingReport:
    chosen = HousekeepingSettings.model_construct(**{**HousekeepingSettings().model_dump(), **settings})
    return Housekeeping(chosen, own, ledger, instance).run(NOW, lambda line: None, dry_run=dry_run)


def test_the_names_of_ours_are_told_from_a_teams_own(own: OwnDefinitions) -> None:
    assert own.pipelines == ("orders",)
    assert {"hudi_ingest_sweep", "hudi_ingest_services", "hudi_ingest_replay", JOB} <= own.jobs
    assert "teams_job" not in own.jobs
    assert {"hudi_ingest_coordinator", "hudi_ingest_sweep_daily", "hudi_ingest_housekeeping_hourly"} <= own.instigators
    assert own.assets == {ORDERS, TOPIC}


@EVERYWHERE
def test_old_runs_go_with_all_their_files_and_those_that_are_read_stay(
    anywhere: DagsterInstance, own: OwnDefinitions, ledger: Ledger
) -> None:
    instance = anywhere
    teams = [run_of(instance, 90, "teams_job"), run_of(instance, 90, "teams_job", more={tags.PIPELINE: "orders"})]
    parent, *old = [run_of(instance, 60 - place) for place in range(4)]
    asked_on_page = run_of(instance, 50, "__ASSET_JOB_0")
    committed = [run_of(instance, 40 - place) for place in range(LEAST)]
    running = run_of(instance, 80, status=DagsterRunStatus.STARTED, parent=parent)
    failed = [run_of(instance, 20 - place, status=DagsterRunStatus.FAILURE) for place in range(LEAST + 2)]
    swept = [run_of(instance, 70, "hudi_ingest_sweep", more={tags.PIPELINE_SWEEP: "orders"}) for _ in range(LEAST)]
    before = {run.run_id for run in instance.get_runs()}

    would = keep(own, ledger, instance, dry_run=True, days=10)
    assert {run.run_id for run in instance.get_runs()} == before
    done = keep(own, ledger, instance, days=10)
    # The failed ones are the newest; checks and plots are about those that committed.
    gone = {*old, asked_on_page, *failed[:2]}
    assert {run.run_id for run in instance.get_runs()} == {*teams, running, parent, *committed, *failed[2:], *swept}
    assert (would.runs, done.runs, done.complete, done.runs_left) == (len(gone), len(gone), True, 12)
    assert done.freed_bytes >= len(gone) * 1000
    events = instance.event_log_storage
    for run_id in gone:
        assert not Path(instance.storage_directory(), run_id).exists()
        assert not instance.all_logs(run_id)
        assert not (isinstance(events, SqliteEventLogStorage) and Path(events.path_for_shard(run_id)).exists())
    assert instance.all_logs(teams[0])
    materialized = [record.run_id for record in instance.fetch_materializations(ORDERS, limit=50).records]
    assert materialized == [*reversed(committed), parent]
    assert keep(own, ledger, instance, days=10).runs == 0


def test_a_dry_run_counts_the_bytes_of_table_files_beside_those_of_runs(
    instance: DagsterInstance, own: OwnDefinitions, ledger: Ledger, tmp_path: Path
) -> None:
    for _ in range(LEAST + 1):
        run_of(instance, 60)
    table = LocalStorage(str(tmp_path / "table"))
    table.write_whole(".hoodie/hoodie.properties", properties_text({}).encode())
    table.write_whole(f"{PUT_ASIDE}/old.inflight", b"x" * 10_000_000)
    (tmp_path / "orders.yaml").write_text(PIPELINE.replace("/data/orders", table.base_path))
    settings = HousekeepingSettings()
    later = NOW + timedelta(days=settings.ledger_days + 1)
    pipelines = [load_pipeline(tmp_path / "orders.yaml")]
    housekeeping = Housekeeping(settings, own, ledger, instance, pipelines=pipelines)
    would = housekeeping.run(later, lambda line: None, dry_run=True)
    assert (would.runs, would.files, would.unreadable) == (1, 1, ())
    assert would.freed_bytes > 10_000_000
    done = housekeeping.run(later, lambda line: None)
    assert (done.runs, done.files) == (1, 1)
    assert done.freed_bytes > 10_000_000


def test_dagsters_own_sqlite_storage_leaves_no_files_either(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with DagsterInstance.from_config(str(tmp_path)) as stock:
        run = run_of(stock, 1)
        events = stock.event_log_storage
        assert isinstance(events, SqliteEventLogStorage)
        assert run_bytes(stock, run) > 1000
        delete_run(stock, run)
        assert not [path for path in tmp_path.rglob("*") if run in path.name]
        assert {Path(file).name for file in sqlite_files(stock)} == {"index.db", ".db", "runs.db", "schedules.db"}


def test_more_runs_than_are_kept_go_however_young(
    instance: DagsterInstance, own: OwnDefinitions, ledger: Ledger
) -> None:
    runs = [run_of(instance, 0.1 - place / 1000) for place in range(7)]
    assert keep(own, ledger, instance, keep=4).runs == 3
    assert {run.run_id for run in instance.get_runs()} == {*runs[3:]}


def events_without_a_run(instance: DagsterInstance) -> list[tuple[str, int]]:
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    kind = SqlEventLogStorageTable.c.dagster_event_type
    counts = sa.select(kind, sa.func.count()).where(SqlEventLogStorageTable.c.run_id == RUNLESS_RUN_ID).group_by(kind)
    found = []
    for connect in (storage.index_connection, lambda: storage.run_connection(RUNLESS_RUN_ID)):
        with connect() as connection:
            found.append(sorted(map(tuple, connection.execute(counts).all())))
    assert found[0] == found[1], "SQLite has them twice"
    return found[0]


def evaluations(instance: DagsterInstance) -> dict[str, int]:
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    check = AssetCheckExecutionsTable.c.check_name
    with storage.index_connection() as connection:
        return dict(map(tuple, connection.execute(sa.select(check, sa.func.count()).group_by(check)).all()))


@EVERYWHERE
def test_old_events_without_a_run_go_and_the_newest_stay(
    anywhere: DagsterInstance, own: OwnDefinitions, ledger: Ledger
) -> None:
    instance = anywhere
    for number in range(12):
        for key in (ORDERS, TOPIC, AssetKey("theirs")):
            instance.report_runless_asset_event(AssetObservation(key, metadata={"number": number}))
        for check in (UP_TO_DATE, "a_teams_own"):
            evaluated = AssetCheckEvaluation(asset_key=ORDERS, check_name=check, passed=True, metadata={"n": number})
            instance.report_runless_asset_event(evaluated)
    would = keep(own, ledger, instance, dry_run=True, keep=4)
    assert would.events == 3 * 4
    assert evaluations(instance) == {UP_TO_DATE: 12, "a_teams_own": 12}
    assert keep(own, ledger, instance, keep=4).events == 3 * 4
    assert evaluations(instance) == {UP_TO_DATE: 8, "a_teams_own": 12}
    assert events_without_a_run(instance) == [("ASSET_CHECK_EVALUATION", 8 + 12), ("ASSET_OBSERVATION", 2 * 8 + 12)]
    newest = instance.fetch_observations(ORDERS, limit=1).records[0].asset_observation
    assert newest is not None
    assert newest.metadata["number"].value == 11
    # By age: the clock goes on by a year, and all but the newest go.
    settings = HousekeepingSettings()
    later = Housekeeping(settings, own, ledger, instance).run(NOW + timedelta(days=365), lambda line: None)
    assert later.events == 3 * (8 - LEAST)
    assert evaluations(instance) == {UP_TO_DATE: LEAST, "a_teams_own": 12}


@EVERYWHERE
def test_overview_and_alerts_read_what_ticks_have_reported(anywhere: DagsterInstance, orders: Pipeline) -> None:
    evaluated = partial(
        AssetCheckEvaluation,
        asset_key=ORDERS,
        check_name=LAG_BELOW_LIMIT,
        description="7 records wait.",
    )
    for passed in (True, False):
        anywhere.report_runless_asset_event(evaluated(passed=passed))
    code = GrpcServerCodeLocationOrigin(host="h", port=1, location_name="ours")
    origin = RemoteRepositoryOrigin(code, "__repository__").get_instigator_origin("hudi_ingest_coordinator")
    anywhere.add_instigator_state(
        InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING, SensorInstigatorData())
    )
    [row] = current_rows(anywhere, [orders])
    assert (row["state"], row["what is wrong"]) == (FAILING, "lag_below_limit: 7 records wait")
    [incident] = failing_checks(anywhere, [orders], AlertSettings())
    assert (incident.pipeline, incident.check, incident.text) == ("orders", LAG_BELOW_LIMIT, "7 records wait.")
    anywhere.report_runless_asset_event(observation(OVERVIEW, [row]))
    assert anywhere.fetch_observations(AssetKey(OVERVIEW), limit=1).records


def tick_of(instance: DagsterInstance, name: str, location: str, days: float) -> Path:
    """Add a tick of a sensor with a log, and return the log's path."""
    code = GrpcServerCodeLocationOrigin(host="h", port=1, location_name=location)
    origin = RemoteRepositoryOrigin(code, "__repository__").get_instigator_origin(name)
    state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING, SensorInstigatorData())
    if instance.get_instigator_state(state.instigator_origin_id, state.selector_id) is None:
        instance.add_instigator_state(state)
    key = ["__repository__", name, f"{location}-{days}"]
    instance.create_tick(
        TickData(
            state.instigator_origin_id,
            name,
            InstigatorType.SENSOR,
            TickStatus.SUCCESS,
            (NOW - timedelta(days=days)).timestamp(),
            selector_id=state.selector_id,
            run_ids=[],
            log_key=key,
        )
    )
    manager = instance.compute_log_manager
    assert isinstance(manager, LocalComputeLogManager)
    log = Path(manager.get_captured_local_path(key, "err"))
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("requested a run")
    return log


@EVERYWHERE
def test_old_ticks_of_our_location_go_with_their_logs(
    anywhere: DagsterInstance, own: OwnDefinitions, ledger: Ledger
) -> None:
    instance = anywhere
    old, new = (tick_of(instance, "hudi_ingest_coordinator", "ours", days) for days in (8, 6))
    others = [tick_of(instance, "theirs", "ours", 8), tick_of(instance, "hudi_ingest_coordinator", "another", 8)]
    housekeeping = Housekeeping(HousekeepingSettings(), own, ledger, instance, "ours")
    assert housekeeping.run(NOW, lambda line: None, dry_run=True).ticks == 1
    assert old.exists()
    assert housekeeping.run(NOW, lambda line: None).ticks == 1
    assert not old.exists()
    assert all(log.exists() for log in (new, *others))
    assert housekeeping.run(NOW, lambda line: None).ticks == 0


def begin(ledger: Ledger, number: int, request: str = "") -> str:
    plan = IngestPlan("orders", f"t{number}", number, (Slice("orders", 0, number, number + 1),))
    ledger.transactions.begin(
        plan, table="/data/orders", owner=Owner.dagster_run("r"), deadline=NOW + timedelta(days=1)
    )
    with ledger.database.writing() as connection:
        connection.execute(
            TRANSACTIONS.update()
            .where(TRANSACTIONS.c.transaction_id == f"t{number}")
            .values(request_id=request or None)
        )
    return plan.transaction_id


def test_old_transactions_leave_the_ledger_but_not_open_ones_nor_those_of_requests(
    own: OwnDefinitions, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("replay-1", "orders", "/data/orders", TransactionKind.REPLAY, NOW, (Slice("orders", 0, 0, 1),))
    ledger.requests.file(request)
    for number in range(1, 13):
        begin(ledger, number, "replay-1" if number == 2 else "")
        ledger.transactions.mark_aborted(f"t{number}", "the test")
    begin(ledger, 13)
    monkeypatch.setattr(kept, "_TRANSACTIONS", 8)
    assert keep(own, ledger, None, dry_run=True).transactions == 4
    assert keep(own, ledger, None).transactions == 4
    assert [row.sequence for row in ledger.transactions.history("orders", 50)] == [13, 12, 11, 10, 9, 8, 7, 6, 2]
    epoch = max(row.epoch for row in ledger.transactions.history("orders", 50))
    later = Housekeeping(HousekeepingSettings(), own, ledger, None).run(NOW + timedelta(days=365), lambda line: None)
    assert (later.transactions, later.requests, later.runs) == (5, 0, 0)
    left = ledger.transactions.history("orders", 50)
    assert [row.sequence for row in left] == [13, 12, 11, 2]
    with ledger.database.reading() as connection:
        for table in (SLICES, ATTEMPTS):
            assert {*connection.execute(sa.select(table.c.transaction_id)).scalars()} <= {
                r.transaction_id for r in left
            }
    ledger.transactions.mark_aborted("t13", "the test")
    assert begin(ledger, 14) and max(row.epoch for row in ledger.transactions.history("orders", 50)) == epoch + 1


def test_all_of_a_deleted_pipeline_goes_once_it_is_idle_for_long(
    instance: DagsterInstance, own: OwnDefinitions, ledger: Ledger
) -> None:
    ended = run_of(instance, 60, "hudi_ingest_services", more={tags.PIPELINE: "gone"})
    teams = run_of(instance, 60, "teams_job", more={tags.PIPELINE: "gone"})
    run_of(instance, 60, "hudi_ingest_services", more={tags.PIPELINE: "busy"})
    ours = run_of(instance, 60)
    for number, pipeline in enumerate(("gone", "busy", "orders"), start=1):
        plan = IngestPlan(pipeline, f"{pipeline}-1", 1, (Slice(pipeline, 0, 0, 1),))
        ledger.transactions.begin(plan, table=f"/data/{pipeline}", owner=Owner.dagster_run("r"), deadline=NOW)
        ledger.transactions.mark_aborted(f"{pipeline}-1", "the test")
        ledger.service_runs.ended(ServiceRun(f"/data/{pipeline}", "ttl", pipeline, NOW, NOW))
        assert len(ledger.counters.read()) == number

    def at(days: int, dry_run: bool = False, broken: Sequence[BrokenFile] = ()) -> HousekeepingReport:
        settings = HousekeepingSettings.model_construct(**{**HousekeepingSettings().model_dump(), "days": 1000})
        done = Housekeeping(settings, own, ledger, instance, "ours", broken=broken)
        return done.run(NOW + timedelta(days=days), lambda line: None, dry_run=dry_run)

    assert at(80).deleted_pipelines == ()
    ledger.requests.note_tick("busy", NOW + timedelta(days=50))
    misspelt = BrokenFile(Path("gone.yaml"), None, ("line 3: not YAML",))
    assert at(95, broken=[misspelt]).deleted_pipelines == (), "its file is there, but cannot be loaded"
    would = at(95, dry_run=True)
    assert (would.deleted_pipelines, would.transactions, would.runs) == (("gone",), 1, 1)
    done = at(95)
    assert (done.deleted_pipelines, done.transactions, done.runs) == (("gone",), 1, 1)
    left = {run.run_id for run in instance.get_runs()}
    assert ended not in left and {teams, ours} <= left
    assert ledger.counters.read().keys() == {"", "/data/busy", "/data/orders"}
    assert {run.pipeline for run in ledger.service_runs.newest()} == {"busy", "orders", ""}
    assert [row.pipeline for name in ("gone", "busy", "orders") for row in ledger.transactions.history(name)] == [
        "busy",
        "orders",
    ]
    assert "All of gone, which no file has." in done.sentence


def test_topics_of_a_template_go_with_its_last_pipeline(own: OwnDefinitions, ledger: Ledger) -> None:
    ledger.topics.remember("gone_{topic}", ["a", "b"], NOW)
    ledger.topics.remember("busy_{topic}_{route}", ["a", "b"], NOW)
    ledger.topics.remember("{topic}", ["orders", "dropped"], NOW)
    ledger.topics.remember("empty_{topic}", [], NOW)
    ledger.requests.note_tick("busy_b_eu", NOW + timedelta(days=50))

    def at(days: int, dry_run: bool = False) -> int:
        housekeeping = Housekeeping(HousekeepingSettings(), own, ledger, None)
        return housekeeping.run(NOW + timedelta(days=days), lambda line: None, dry_run=dry_run).topics

    assert (at(80), at(95, dry_run=True)) == (0, 2)
    assert len(ledger.topics.of_template("gone_{topic}")) == 2
    assert at(95) == 2
    assert ledger.topics.of_all().keys() == {"busy_{topic}_{route}", "{topic}"}
    assert at(145) == 2
    assert [topic.name for topic in ledger.topics.of_template("{topic}")] == ["dropped", "orders"], (
        "one of its pipelines has a file"
    )
    ledger.topics.remember("empty_{topic}", ["late"], NOW)
    assert not ledger.topics.of_template("empty_{topic}")[0].at_start, "it is known that there was none"


@EVERYWHERE
def test_snapshots_of_our_jobs_go_when_no_run_has_them(
    anywhere: DagsterInstance, own: OwnDefinitions, ledger: Ledger, repository: RepositoryDefinition
) -> None:
    snapshots = {}
    for name in ("hudi_ingest_sweep", "hudi_ingest_services", "teams_job"):
        job_definition = repository.get_job(name)
        snapshots[name] = anywhere.run_storage.add_job_snapshot(job_definition.get_job_snapshot())
        plan = snapshot_from_execution_plan(create_execution_plan(job_definition), snapshots[name])
        snapshots[f"{name} plan"] = anywhere.run_storage.add_execution_plan_snapshot(plan)
    run = DagsterRun("hudi_ingest_services", str(uuid.uuid4()), job_snapshot_id=snapshots["hudi_ingest_services"])
    anywhere.run_storage.add_historical_run(run, NOW)
    has = anywhere.run_storage.has_snapshot
    assert keep(own, ledger, anywhere, dry_run=True).snapshots == 2
    assert all(map(has, snapshots.values()))
    assert keep(own, ledger, anywhere).snapshots == 2
    assert {name for name, snapshot in snapshots.items() if not has(snapshot)} == {
        "hudi_ingest_sweep",
        "hudi_ingest_sweep plan",
    }
    assert keep(own, ledger, anywhere).snapshots == 0


@EVERYWHERE
def test_snapshots_of_transactions_go_and_of_all_assets_those_that_no_transactions_run_was_taken_from(
    anywhere: DagsterInstance, own: OwnDefinitions, ledger: Ledger, repository: RepositoryDefinition
) -> None:
    storage, whole = anywhere.run_storage, repository.get_job("__ASSET_JOB").get_job_snapshot()
    part = repository.get_job("__ASSET_JOB").get_subset(asset_selection={ORDERS}).get_job_snapshot()
    assert part.lineage_snapshot is not None
    versions = {}
    for version in ("gone", "old", "current"):
        above = storage.add_job_snapshot(replaced(whole, description=version))
        lineage = replaced(part.lineage_snapshot, parent_snapshot_id=above)
        below = storage.add_job_snapshot(replaced(part, description=version, lineage_snapshot=lineage))
        versions[version] = (above, below)
    run = DagsterRun("__ASSET_JOB", str(uuid.uuid4()), job_snapshot_id=versions["old"][1])
    storage.add_historical_run(run, NOW)
    assert keep(own, ledger, anywhere).snapshots == 3
    left = {version: tuple(map(storage.has_snapshot, both)) for version, both in versions.items()}
    assert left == {"gone": (False, False), "old": (True, True), "current": (True, False)}
    assert anywhere.get_historical_job(versions["old"][1])


def test_runs_of_shared_jobs_count_by_their_own_kind(
    instance: DagsterInstance, own: OwnDefinitions, ledger: Ledger
) -> None:
    both = {tags.PIPELINE: "orders", tags.PIPELINE_SWEEP: "orders"}
    oldest, *swept = [run_of(instance, 70 - place, "hudi_ingest_sweep", more=both) for place in range(LEAST + 1)]
    committed = [run_of(instance, 90 - place) for place in range(LEAST)]
    done = keep(own, ledger, instance, days=10)
    assert {run.run_id for run in instance.get_runs()} == {*swept, *committed}, f"without {oldest}"
    assert (done.runs, done.runs_left) == (1, 2 * LEAST)


def test_housekeeping_that_is_out_of_time_says_so(
    instance: DagsterInstance, own: OwnDefinitions, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(LEAST + 3):
        run_of(instance, 60 - place)
    monkeypatch.setattr(kept, "MOST_SECONDS", -1.0)
    done = keep(own, ledger, instance, days=10)
    assert (done.runs, done.complete) == (0, False)
    assert "Time ran out; the next run continues." in done.sentence


def test_the_jobs_run_has_a_report(instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, place in ((HOME_VARIABLE, tmp_path), (PIPELINES_VARIABLE, tmp_path / "pipelines")):
        monkeypatch.setenv(variable, str(place))
    (tmp_path / "pipelines").mkdir()
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    code = tmp_path / "code.py"
    code.write_text(
        "from hudi_ingest.orchestration.definitions import build_definitions\ndefs = build_definitions([])\n"
    )
    job = ReconstructableJob(ReconstructableRepository.for_file(str(code), "defs"), JOB)
    result = execute_job(job, instance)
    (report,) = [event.step_output_data.metadata for event in result.all_events if event.is_successful_output]
    assert (report["runs"].value, report["deleted pipelines"].value, report["unreadable"].value) == (0, [], [])


def test_a_failed_run_is_a_diagnosis_and_an_incident_until_one_succeeds(instance: DagsterInstance) -> None:
    ours = {tags.HOUSEKEEPING: "true"}
    assert why_housekeeping_failed(instance) == ""
    failed = run_of(instance, 1, JOB, DagsterRunStatus.FAILURE, more=ours)
    why = why_housekeeping_failed(instance)
    assert why.startswith(f"The last run of hudi_ingest_housekeeping, {failed[:8]}, failed: ")
    assert [incident.text for incident in _housekeeping(instance)] == [why]
    run_of(instance, 0, JOB, DagsterRunStatus.STARTED, more=ours)
    assert why_housekeeping_failed(instance) == why, "a run that has not ended proves nothing"
    run_of(instance, 0, JOB, more=ours)
    assert (why_housekeeping_failed(instance), _housekeeping(instance)) == ("", [])


def test_the_sentence_of_freed_bytes_alone(instance: DagsterInstance, own: OwnDefinitions, ledger: Ledger) -> None:
    assert (
        replace(keep(own, ledger, instance), freed_bytes=33_505_536).sentence
        == "Housekeeping deleted 33,505,536 bytes."
    )


def test_one_run_an_hour_whatever_the_number_of_schedules(instance: DagsterInstance) -> None:
    later = NOW + timedelta(minutes=20)
    assert isinstance(next_run(instance, NOW), RunRequest)
    active = run_of(instance, 0, "hudi_ingest_housekeeping", DagsterRunStatus.STARTED, more={tags.HOUSEKEEPING: "true"})
    skipped = next_run(instance, later)
    assert isinstance(skipped, SkipReason)
    assert "has not ended" in str(skipped.skip_message)
    instance.delete_run(active)
    run_of(instance, 0, "hudi_ingest_housekeeping", more={tags.HOUSEKEEPING: "true"})
    assert isinstance(next_run(instance, later), SkipReason)
    assert isinstance(next_run(instance, later + timedelta(hours=1)), RunRequest)


def test_a_database_gives_the_space_of_deleted_rows_back_while_another_process_writes(tmp_path: Path) -> None:
    database = tmp_path / "some.db"
    shrink(database)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE texts (text TEXT)")
        for _ in range(2):
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO texts VALUES (?)", [("x" * 1000,)] * (2 * LEAST_FREE_BYTES // 1000))
            connection.execute("COMMIT")
            full = database.stat().st_size
            connection.execute("DELETE FROM texts WHERE rowid > 1000")
            shrink(database)
            # Also this connection, which is older than the copy, keeps to the new layout.
            connection.execute("INSERT INTO texts VALUES ('more')")
            assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            assert database.stat().st_size < full / 4
    assert database.stat().st_size < LEAST_FREE_BYTES
