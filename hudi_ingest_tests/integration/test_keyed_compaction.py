"""Compaction of a keyed table on the real Hudi: beside open transactions, after tries that died, and when it is due."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, RunRequest, SkipReason
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import CommitRefused, DeadlineExceeded, TransactionInFlight
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest.hudi import write_client
from hudi_ingest.hudi.files.read_amplification import read_amplification
from hudi_ingest.hudi.storage.paths import OWN_FILES, TIMELINE, heartbeat_path
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import create_topic
from hudi_ingest.operations.upkeep.table_services import ServicesResult, services_for
from hudi_ingest.orchestration.jobs.upkeep_jobs import compaction_run
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark import session
from hudi_ingest.spark.session import current_session, in_services_pool, job_group, reported_tasks
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.damage import NewestCommit, cut
from hudi_ingest_tests.support.ground import Ground, fresh_ground, make_pipeline
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass
class Keyed:
    """A ground whose topic holds changes, and the rows that the table must therefore hold."""

    ground: Ground
    schema: str = "id string, dt string, n long, gone boolean"
    expected: dict[tuple[str, str], int] = field(default_factory=dict)

    def pipeline(self) -> Pipeline:
        table = {
            "mode": "upsert",
            "key": ["id"],
            "buckets": 2,
            "delete_field": "gone",
            "schema": self.schema,
            "compaction": {"delta_commits": 2},
            "retain_commits": 1,
        }
        return make_pipeline(self.ground, table=table)

    def send(self, *changes: tuple[str, str, int | None], **more: Any) -> None:
        """Produce changes (dt, id, n); None deletes."""
        for dt, key, n in changes:
            record = {"id": key, "dt": dt, "n": n or 0, "gone": n is None, **more}
            self.ground.send(sum(key.encode()) % 2, [json.dumps(record).encode()])

    def committed(self, *changes: tuple[str, str, int | None]) -> None:
        for dt, key, n in changes:
            self.expected.pop((dt, key), None)
            if n is not None:
                self.expected[dt, key] = n

    def transaction(self, *changes: tuple[str, str, int | None]) -> None:
        self.send(*changes)
        self.ground.run(self.pipeline())
        self.committed(*changes)

    def require_expected(self, *, compacted: bool = False) -> None:
        """Spark, with and without the metadata table, and hudi-rs read exactly the expected rows; read-optimized as well if all is
        `compacted`."""
        spark = current_session(self.ground.home)
        expected = sorted((dt, key, n) for (dt, key), n in self.expected.items())
        for options in (
            {"hoodie.metadata.enable": "true"},
            {"hoodie.metadata.enable": "false"},
            *([{"hoodie.datasource.query.type": "read_optimized"}] if compacted else []),
        ):
            rows = spark.read.format("hudi").options(**options).load(self.ground.base_path).select("dt", "id", "n")
            assert sorted((row.dt, row.id, row.n) for row in rows.collect()) == expected, options
        by_rust = self.ground.rows().select(["dt", "id", "n"]).to_pylist()
        assert sorted((row["dt"], row["id"], row["n"]) for row in by_rust) == expected

    def log_files(self) -> list[Path]:
        paths = Path(self.ground.base_path).glob("*/.*.log.*")
        return [path for path in paths if path.suffix != ".crc" and path.parent.name != ".hoodie"]

    def services(self, pipeline: Pipeline | None = None, *, clean: bool = False) -> ServicesResult:
        spark = current_session(self.ground.home)
        table_services = services_for(pipeline or self.pipeline(), self.ground.ledger, spark, self.ground.home)
        return table_services.run(clean=clean, report=lambda line: None)


@pytest.fixture(scope="module")
def keyed(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """The table that the tests of this module change one after another."""
    with fresh_ground(bootstrap_servers, tmp_path_factory.mktemp("compaction")) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        yield Keyed(ground)


def test_p7_transactions_go_on_before_while_and_after_a_compaction(keyed: Keyed) -> None:
    keyed.transaction(*((f"d{n % 2}", f"k{n}", n) for n in range(20)))
    keyed.transaction(("d0", "k0", 100), ("d1", "k1", None))
    before = observe(keyed.pipeline()).committed.checkpoint
    # One that adds a column, with changes of keys that are being compacted, is open.
    keyed.schema += ", note string"
    wider = keyed.pipeline()
    changes = ("d0", "k0", 101), ("d0", "k2", None), ("d1", "k1", 7), ("d2", "z", 1)
    keyed.send(*changes, note="new")
    protocol = keyed.ground.protocol(wider)
    opened = protocol.begin(keyed.ground.plan(wider), Owner.this_process(), lambda run_id: None)
    first, second = opened.plan.slices
    reports = protocol.write(opened, [first])
    services = services_for(wider, keyed.ground.ledger, current_session(keyed.ground.home), keyed.ground.home)
    planned = services.compactor.plan_compaction()
    assert planned is not None
    # It commits while the compaction, which was planned after its begin, is pending.
    receipt = protocol.commit(opened, (*reports, *protocol.write(opened, [second])))
    assert receipt.rows == 4
    keyed.committed(*changes)
    keyed.require_expected()
    (done,) = services.run(clean=False, report=lambda line: None).compactions[:1]
    assert (done.instant, done.file_groups) == (planned.instant, planned.file_groups)
    assert done.rows == 19
    keyed.require_expected(compacted=True)
    state = observe(wider).committed
    assert state.checkpoint == receipt.checkpoint
    assert before is not None
    assert state.checkpoint.sequence == before.sequence + 1
    assert [commit.operation for commit in state.commits].count("COMPACT") == 2
    assert all(wider.checkpoint_key in commit.metadata for commit in state.commits)
    assert "note" in PipelineTable(wider).timeline.schema().names


def test_p8_a_compaction_that_is_ahead_of_the_drivers_clock_hides_no_rows(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log file belongs to the newest base file whose instant is before its commit. Another driver, whose clock is ahead, may plan a
    compaction after this one has waited for its clock, and before it commits."""
    keyed.transaction(("d0", "k0", 200))
    pipeline = keyed.pipeline()
    keyed.send(("d0", "k0", 201))
    protocol = keyed.ground.protocol(pipeline)
    opened = protocol.begin(keyed.ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    reports = protocol.write(opened, opened.plan.slices)
    services = services_for(pipeline, keyed.ground.ledger, current_session(keyed.ground.home), keyed.ground.home)
    planned = services.compactor.plan_compaction()
    assert planned is not None
    ahead = f"{datetime.now(timezone.utc) + timedelta(minutes=5):%Y%m%d%H%M%S}000"
    (plan,) = Path(keyed.ground.base_path, TIMELINE).glob(f"{planned.instant}.*")
    later = plan.rename(plan.with_name(plan.name.replace(planned.instant, ahead)))
    with monkeypatch.context() as patched, pytest.raises(CommitRefused, match=f"compaction {ahead} was planned by a"):
        patched.setattr(write_client, "wait_for_clock", lambda *_: None)
        protocol.commit(opened, reports)
    keyed.require_expected()
    # Its time comes.
    later.rename(plan)
    protocol.abort(opened, "the commit was refused")
    keyed.require_expected()
    keyed.ground.run(pipeline)
    keyed.committed(("d0", "k0", 201))
    keyed.services()
    keyed.require_expected()


@contextmanager
def all_cores_taken(spark: SparkSession, free: Path) -> Iterator[None]:
    """Until the block ends, no other task can start: the file `free` is made then."""
    cores = spark.sparkContext.defaultParallelism

    def hold(_: int) -> None:
        wait_for(free.exists, "the end of the block", 600)

    holding = InheritableThread(target=lambda: spark.sparkContext.parallelize(range(cores), cores).foreach(hold))
    holding.start()
    tracker = spark.sparkContext.statusTracker()

    def taken() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return bool(sum(stage.numActiveTasks for stage in stages if stage) == cores)

    try:
        wait_for(taken, "a task on each core")
        yield
    finally:
        free.touch()
        holding.join()


def test_p5_a_compaction_that_died_is_done_by_the_next_services_and_its_zombie_is_refused(keyed: Keyed) -> None:
    keyed.transaction(("d0", "k0", 200), ("d1", "k3", None), ("d3", "new", 1))
    pipeline, spark = keyed.pipeline(), current_session(keyed.ground.home)
    limits = pipeline.table.compaction.model_copy(update={"timeout_seconds": 0.0})
    hasty = pipeline.model_copy(update={"table": pipeline.table.model_copy(update={"compaction": limits})})
    compactor = services_for(pipeline, keyed.ground.ledger, spark, keyed.ground.home).compactor
    planned = compactor.plan_compaction()
    assert planned is not None
    with (
        all_cores_taken(spark, keyed.ground.home.root / "cores are free"),
        pytest.raises(DeadlineExceeded, match=r"was not done within table\.compaction\.timeout_seconds 0"),
    ):
        services_for(hasty, keyed.ground.ledger, spark, keyed.ground.home).compactor.compact(planned, lambda line: None)
    (left,) = compactor.pending_compactions()
    assert (left.instant, left.leased) == (planned.instant, False)
    assert PipelineTable(pipeline).timeline.pending_compactions() == (left.instant,)
    heartbeat = Path(keyed.ground.base_path, heartbeat_path(left.instant))
    heartbeat.touch()
    with DagsterInstance.ephemeral() as instance:
        skip = compaction_run(pipeline, instance, datetime.now(timezone.utc))
    assert isinstance(skip, SkipReason)
    assert f"compaction {left.instant} is running" in str(skip.skip_message)
    with pytest.raises(TransactionInFlight, match=f"compaction {left.instant} is running"):
        keyed.services()
    heartbeat.unlink()
    # A zombie: while it merges files, somebody takes it for dead and claims the compaction.
    claim = Path(keyed.ground.base_path, OWN_FILES, "compaction")
    claim.unlink()

    free = keyed.ground.home.root / "cores are free again"

    def take_over() -> None:
        wait_for(claim.exists, "the claim of the first try")
        claim.write_text("another")
        free.touch()

    other = threading.Thread(target=take_over)
    with all_cores_taken(spark, free):
        other.start()
        with pytest.raises(TransactionInFlight, match="another run of services took it for dead"):
            compactor.compact(left, lambda line: None)
    other.join()
    keyed.require_expected()
    keyed.transaction(("d0", "k4", 44))
    done = keyed.services().compactions
    assert done[0].instant == left.instant
    keyed.require_expected(compacted=True)
    # The power is cut right after a compaction, and then after a plan.
    newest = NewestCommit(keyed.ground.base_path)
    cut(newest.log_of_metadata_table)
    cut(newest.file, 0.5)
    (again,) = keyed.services().compactions
    assert again.instant == newest.instant
    assert len(newest.data_files()) == again.file_groups, "those of the first try are gone"
    keyed.require_expected(compacted=True)
    keyed.transaction(("d0", "k4", 45))
    lost = compactor.plan_compaction()
    assert lost is not None
    cut(Path(keyed.ground.base_path, TIMELINE, f"{lost.instant}.compaction.requested"))
    (planned_anew,) = keyed.services().compactions
    assert planned_anew.instant > lost.instant
    keyed.require_expected(compacted=True)
    assert keyed.services().compactions == ()
    # One that another writer has planned, and does not execute.
    keyed.transaction(("d0", "k6", 66))
    options = "hoodie.compact.inline.max.delta.commits=1"
    spark.sql(
        f"call run_compaction(op => 'schedule', path => '{keyed.ground.base_path}', options => '{options}')"
    ).collect()
    (of_other_writer,) = PipelineTable(pipeline).timeline.pending_compactions()
    assert [compaction.instant for compaction in keyed.services().compactions] == [of_other_writer]
    keyed.require_expected(compacted=True)
    assert not PipelineTable(pipeline).timeline.instants().pending
    assert not any(Path(keyed.ground.base_path, ".hoodie", ".heartbeat").iterdir())


def test_d1_a_due_compaction_is_a_run_that_shows_on_the_asset(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    home = keyed.ground.home
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    monkeypatch.setenv(PIPELINES_VARIABLE, str(home.pipelines))
    monkeypatch.setenv(LEDGER_VARIABLE, home.ledger_url)
    pipeline = keyed.pipeline()
    from hudi_ingest.orchestration.definitions import build_definitions

    with DagsterInstance.ephemeral() as instance:
        keyed.transaction(("d0", "k5", 55))
        skip = compaction_run(pipeline, instance, datetime.now(timezone.utc))
        assert isinstance(skip, SkipReason)
        assert "not due: 1 commit not compacted" in str(skip.skip_message)
        keyed.transaction(("d0", "k5", 56))
        request = compaction_run(pipeline, instance, datetime.now(timezone.utc))
        assert isinstance(request, RunRequest)
        (pipeline_status,) = json.loads(answer(home, "status", pipeline.name, "--json").stdout)
        status = pipeline_status["compaction"]
        assert (status["in_time"], status["due"], status["log files per file group (max)"]) == (True, "yes", 2)
        job = build_definitions([pipeline]).resolve_job_def("hudi_ingest_services")
        assert job.execute_in_process(
            run_config=request.run_config, instance=instance, partition_key=pipeline.name
        ).success
        (record,) = instance.fetch_observations(AssetKey([pipeline.name]), limit=5).records
        assert record.asset_observation is not None
        assert record.asset_observation.metadata["services/log files compacted"].value == 2
    assert read_amplification(PipelineTable(pipeline).timeline.completed()).log_files == 0
    keyed.require_expected(compacted=True)
    merged = set(keyed.log_files())
    assert merged
    # The table retains one commit: this one, which may clean by itself.
    keyed.transaction(("d0", "k5", 57))
    keyed.services(clean=True)
    assert not merged & set(keyed.log_files())
    keyed.require_expected()


def test_p7_a_transaction_gets_cores_while_a_service_has_tasks_waiting(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = current_session(keyed.ground.home)
    tracker = spark.sparkContext.statusTracker()
    monkeypatch.setattr(session, "REPORT_SECONDS", 0.2)
    reports = list[str]()

    def serve() -> None:
        with (
            job_group(spark, "service", "a service", 60),
            in_services_pool(spark),
            reported_tasks(spark, "service", "compaction 20261123", "file groups", reports.append, 30),
        ):
            spark.sparkContext.parallelize(range(30), 30).foreach(merge)

    both_wait, transaction_is_over = (keyed.ground.home.root / name for name in ("both wait", "transaction is over"))

    def merge(file_group: int) -> None:
        """The last ones wait for the transaction, which thus cannot wait for them."""
        wait_for((both_wait if file_group < 20 else transaction_is_over).exists, "the test lets it go on")

    service = InheritableThread(target=serve)
    service.start()
    wait_for(lambda: reports, "a report of the service's tasks")
    write = InheritableThread(target=spark.sparkContext.parallelize([0], 1).map(abs).collect)
    write.start()
    wait_for(lambda: len(tracker.getActiveStageIds()) == 2, "the transaction's task waits, too")
    both_wait.touch()
    write.join()
    transaction_is_over.touch()
    service.join()
    assert re.fullmatch(r"compaction 20261123: \d+ of 30 file groups", reports[-1])
