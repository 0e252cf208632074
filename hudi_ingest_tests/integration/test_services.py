"""Table services on the real Hudi: small files become few, no row and no column changes, and transactions go on meanwhile."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import AssetKey, DagsterInstance, DefaultScheduleStatus

from hudi_ingest.exceptions import CommitRefused, RestoreUnfinished, ServiceRefused, TransactionInFlight
from hudi_ingest.faults import InjectedFault
from hudi_ingest.hudi.files.read_amplification import files_to_merge
from hudi_ingest.hudi.services.savepoints import HudiPartitions
from hudi_ingest.hudi.services.table_services import HudiServices
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import HEARTBEATS, TIMELINE
from hudi_ingest.hudi.timeline.ownership import ServiceClaim
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.operations.upkeep.partition_ttl import aged_partitions, expired, ttl_for
from hudi_ingest.operations.upkeep.table_services import ServicesResult, TableServices, services_for
from hudi_ingest.orchestration.jobs.upkeep_jobs import SERVICES
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.jars import spark_jars
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction import protocol as transaction
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.simulation.trace import CHANGED_BY_HAND, add
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.damage import NewestCommit, cut
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.hudi_option_names import kept_names, option_names
from hudi_ingest_tests.support.transactions import transaction_job
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def rows(ground: Ground) -> list[dict[str, object]]:
    """All rows with all columns but the one that names a row's file and the one that numbers it in its commit."""
    found: pa.Table = ground.rows()
    kept = [name for name in found.column_names if name not in ("_hoodie_file_name", "_hoodie_commit_seqno")]
    return sorted(found.select(kept).to_pylist(), key=lambda row: str(row["_hoodie_record_key"]))


def live_files(ground: Ground) -> set[str]:
    from hudi_ingest.hudi.timeline.timeline import Timeline

    return {each.path for each in Timeline(ground.base_path).files()}


def services(ground: Ground, pipeline: Pipeline) -> TableServices:
    return services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)


def run(ground: Ground, pipeline: Pipeline, **asked: bool) -> ServicesResult:
    return services(ground, pipeline).run(**{"cluster": True, "clean": True, **asked}, report=lambda line: None)


def due_to_merge(pipeline: Pipeline) -> int:
    return files_to_merge(PipelineTable(pipeline).timeline.file_groups(), pipeline.table.target_file_bytes)


@pytest.mark.tier(1)
def test_p7_r11_an_open_transaction_survives_clustering_and_every_row_stays(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, table={"retain_commits": 1, "compression": "snappy"})
    for start in (0, 30, 60):
        ground.send_rows(0, 30, start)
        ground.run(pipeline)
    before, files, checkpoint = rows(ground), live_files(ground), observe(pipeline).committed.checkpoint
    assert len(files) == 9
    assert due_to_merge(pipeline) == 9
    ground.send_rows(1, 7, 100)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    first, second = opened.plan.slices
    reports = protocol.write(opened, [first])
    done = run(ground, pipeline)
    assert (done.replaced, done.written, done.clusterings[0].rows) == (9, 3, 90)
    footers = [pq.read_metadata(Path(ground.base_path, file)) for file in live_files(ground)]
    assert [footer.row_group(0).column(0).compression for footer in footers] == 3 * ["SNAPPY"]
    assert all(len(footer.metadata[b"org.apache.hudi.bloomfilter"]) < 100 for footer in footers), (
        "the smallest that Hudi writes"
    )
    assert due_to_merge(pipeline) == 0
    assert rows(ground) == before, "also the Kafka columns, the record keys and the commit times"
    assert observe(pipeline).committed.checkpoint == checkpoint
    receipt = protocol.commit(opened, (*reports, *protocol.write(opened, [second])))
    assert receipt.rows == 7
    assert verify(ground.base_path, ground.produced).exact
    again = run(ground, pipeline, cluster=False)
    assert again.cleaned is not None
    ground.send_rows(0, 5, 200)
    assert ground.run(pipeline).rows == 5
    assert run(ground, pipeline, cluster=False).cleaned is not None
    assert verify(ground.base_path, ground.produced).exact
    assert not files & {str(path.relative_to(ground.base_path)) for path in ground.data_files()}, "cleaned away"


@pytest.mark.tier(1)
@pytest.mark.parametrize(
    "table",
    [
        pytest.param({"column_statistics": False}, id="Hudi's Java client"),
        pytest.param({"column_statistics": True}, id="Hudi's Spark client"),
        pytest.param({"mode": "upsert", "key": ["id"], "buckets": 1}, id="keyed"),
    ],
)
def test_s11_options_of_hudi_reach_the_client_of_each_transaction(
    ground: Ground, topic: str, known_turns: None, table: dict[str, Any]
) -> None:
    def compactions_of_metadata() -> int:
        return len([*Path(ground.base_path, ".hoodie/metadata/.hoodie/timeline").glob("*.commit")])

    pipeline = make_pipeline(ground, table=table)
    # One begin of ten looks after the metadata table, or one of two then: the first, the third and the fifth.
    for start in (0, 3, 6, 9):
        ground.send_rows(0, 3, start)
        ground.run(pipeline)
    assert compactions_of_metadata() == 0, "by default the tenth is the first"
    pipeline = make_pipeline(ground, table={**table, "hudi": {"hoodie.metadata.compact.max.delta.commits": 2}})
    ground.send_rows(0, 3, 12)
    ground.run(pipeline)
    assert compactions_of_metadata() == 1
    assert len({row["id"] for row in rows(ground)}) == ground.rows().num_rows == 15


def test_s11_the_shipped_hudi_has_no_option_that_nobody_has_read_about() -> None:
    new = option_names(spark_jars(print)) ^ kept_names()
    assert not new, (
        "read what these do, list them in hudi_ingest/pipeline/hudi_options.py, and run "
        f"`python -m hudi_ingest_tests.support.hudi_option_names`: {sorted(new)}"
    )


def test_s11_options_of_hudi_reach_clustering(ground: Ground, topic: str) -> None:
    """And ours keep their place: the rows of all files of a folder are in one."""
    options = {"hoodie.clustering.plan.strategy.sort.columns": "n"}
    pipeline = make_pipeline(ground, table={"partition_by": [], "hudi": options})
    for start in (20, 10, 0):
        ground.send_rows(0, 10, start)
        ground.run(pipeline)
    before = rows(ground)
    assert run(ground, pipeline).written == 1
    (file,) = live_files(ground)
    in_file = pq.read_table(Path(ground.base_path, file))["n"].to_pylist()
    assert in_file == sorted(in_file) and len(in_file) == 30
    assert rows(ground) == before


@pytest.mark.tier(1)
def test_s9_a_commit_that_cleans_deletes_what_was_replaced(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "COMMITS_A_CLEANING", 2**33)
    pipeline = make_pipeline(ground, table={"retain_commits": 1})
    for start in (0, 9):
        ground.send_rows(0, 9, start)
        ground.run(pipeline)
    replaced = live_files(ground)
    assert run(ground, pipeline, clean=False).replaced == len(replaced)
    ground.send_rows(0, 9, 18)
    assert ground.run(pipeline).plan.sequence == 3
    assert replaced <= {str(path.relative_to(ground.base_path)) for path in ground.data_files()}
    ground.send_rows(0, 9, 27)
    monkeypatch.setattr(transaction, "COMMITS_A_CLEANING", 1)
    assert ground.run(pipeline).plan.sequence == 4
    assert not replaced & {str(path.relative_to(ground.base_path)) for path in ground.data_files()}
    assert verify(ground.base_path, ground.produced).exact
    # The power is cut before the flush of that cleaning's plan.
    timeline = Path(ground.base_path, TIMELINE)
    (cleaned,) = timeline.glob("*_*.clean")
    cleaned.unlink()
    cut(timeline / f"{cleaned.name.partition('_')[0]}.clean.requested")
    assert run(ground, pipeline, cluster=False).cleaned is not None
    assert verify(ground.base_path, ground.produced).exact


def test_p5_a_clustering_that_was_left_unfinished_is_done_by_the_next_services(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in (0, 9):
        ground.send_rows(0, 9, start)
        ground.run(pipeline)
    client = services(ground, pipeline).client
    planned = client.plan_clustering()
    assert planned is not None
    beat = Path(ground.base_path) / ".hoodie" / ".heartbeat" / planned
    beat.touch()
    with pytest.raises(TransactionInFlight, match=f"clustering {planned} is running"):
        run(ground, pipeline)
    beat.unlink()
    # A zombie: while it merges files, somebody takes it for dead and claims the clustering.
    claim = ServiceClaim(LocalStorage(ground.base_path), "clustering")

    def take_over() -> None:
        wait_for(lambda: claim.owns(planned), "the claim of the first try")
        claim.take("of another process")

    other = threading.Thread(target=take_over)
    other.start()
    with pytest.raises(TransactionInFlight, match="another run of services took it for dead"):
        client.cluster(planned)
    other.join()
    assert not beat.exists(), "the next try need not wait"
    # A transaction adds a column after the clustering has read the columns.
    ground.send_rows(1, 3)
    wider = make_pipeline(ground, table={"schema": "id string, n long, dt string, note string"})
    read_columns = HudiServices.table_columns

    def read_columns_too_early(self: HudiServices) -> str:
        columns = read_columns(self)
        if ground.ledger.transactions.history(pipeline.name, 1)[0].sequence == 2:
            assert ground.run(wider).rows == 3, "transactions go on"
        return columns

    monkeypatch.setattr(HudiServices, "table_columns", read_columns_too_early)
    assert services(ground, wider).client.cluster(planned).rows == 18
    newest = NewestCommit(ground.base_path)
    assert newest.instant == planned
    assert "note" in PipelineTable(wider).timeline.schema().names
    # The power is cut before the flush.
    cut(newest.in_metadata_table)
    cut(newest.file)
    lines: list[str] = []
    done = services(ground, wider).run(clean=False, report=lines.append)
    assert "The clustering is pending again" in lines[0]
    assert done.clusterings[0].instant == planned
    assert len(newest.data_files()) == done.clusterings[0].written, "those of the first try are gone"
    assert verify(ground.base_path, ground.produced).exact
    output = answer(ground.home, "services", pipeline.name, "--json")
    assert output.returncode == 0, output.stderr
    assert json.loads(output.stdout)["clusterings"] == []


def test_d1_services_are_a_job_that_shows_on_the_asset(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.set_environment(monkeypatch)
    from hudi_ingest.orchestration.definitions import build_definitions

    definitions = build_definitions([pipeline])
    job = definitions.resolve_job_def("hudi_ingest_services")
    assert not job.graph.pools & transaction_job(definitions, pipeline.name).graph.pools
    schedule = definitions.resolve_schedule_def("hudi_ingest_services_daily")
    assert schedule.default_status is DefaultScheduleStatus.STOPPED, "as the pipeline's sensor"
    sizes = list[int]()
    for start, count in ((0, 9), (9, 9), (18, 900)):
        ground.send_rows(0, count, start)
        ground.run(pipeline)
        sizes.append(max(path.stat().st_size for path in ground.data_files()))
    assert sizes[1] < sizes[2]
    smaller = SERVICES.config_of({"merge_below_bytes": sizes[1] + 1})
    with DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(run_config=smaller, instance=instance, partition_key=pipeline.name)
        assert done.success
        (record,) = instance.fetch_observations(AssetKey([pipeline.name]), limit=5).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["services/files replaced"].value == 6
    assert record.asset_observation.metadata["services/files written"].value == 3
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.parametrize("table", [{}, {"mode": "upsert", "key": ["id"], "buckets": 1}], ids=["append", "upsert"])
def test_p1_s12_old_partitions_go_beside_a_transaction_and_a_savepoint_brings_all_back(
    ground: Ground, topic: str, table: dict[str, Any]
) -> None:
    pipeline = make_pipeline(ground, table={"ttl": {"days": 2}, **table})
    ground.send_rows(0, 30)
    first = ground.run(pipeline)
    before = ids(ground)
    protocol = ground.protocol(pipeline)
    ground.send_rows(1, 6, 100)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    reports = protocol.write(opened, opened.plan.slices)
    ttl = ttl_for(pipeline, ground.ledger, current_session(ground.home))
    now, lines = datetime(2026, 1, 5, 12, tzinfo=timezone.utc), list[str]()
    planned = ttl.run(now, lines.append, plan_only=True)
    groups = PipelineTable(pipeline).timeline.file_groups()
    assert expired(aged_partitions(pipeline.table, groups), 2, now) == list(planned.expired), "as metrics see it"
    assert [partition.path for partition in planned.expired] == ["dt=2026-01-01", "dt=2026-01-02"]
    assert (planned.kept, planned.instant, planned.size_bytes > 0, ids(ground)) == (1, None, True, before)
    dropped = ttl.run(now, lines.append, savepoint=True)
    assert (dropped.expired, dropped.savepoint) == (planned.expired, first.instant)
    assert {dt for dt, _ in ids(ground)} == {"2026-01-03"}
    checkpoint = observe(pipeline).committed.checkpoint
    assert checkpoint is not None
    assert (checkpoint.sequence, checkpoint.transaction_id) == (1, first.plan.transaction_id)
    if pipeline.table.is_keyed:
        # Its log files are in file groups that were replaced, where no reader would find them.
        with pytest.raises(CommitRefused):
            protocol.commit(opened, reports)
        protocol.abort(opened, "refused")
        ground.run(pipeline)
    else:
        protocol.commit(opened, reports)
    late = {(f"2026-01-0{n % 3 + 1}", f"1-{n}") for n in range(100, 106)}
    kept = {row for row in before if row[0] == "2026-01-03"}
    assert ids(ground) == kept | late, "a record that comes later for a dropped partition is a row"
    again = ttl.run(now, lines.append)
    assert len(again.expired) == 2
    [noted] = ground.ledger.service_runs.newest()
    assert (noted.service, noted.due, noted.done, noted.error) == ("ttl", 2, 2, None)
    assert ids(ground) == {row for row in kept | late if row[0] == "2026-01-03"}
    dying = replace(ttl, client=DyingPartitions(current_session(ground.home), pipeline))
    with pytest.raises(InjectedFault):
        dying.run(now + timedelta(days=3), lines.append)
    # Begins must not fail at the open drop while its heartbeat may still beat, and roll it back when that has expired.
    ground.send_rows(0, 3, 150)
    ground.run(pipeline)
    for heartbeat in Path(ground.base_path, HEARTBEATS).iterdir():
        heartbeat.unlink()
    ground.send_rows(0, 3, 200)
    ground.run(pipeline)

    savepoints = ttl.savepoints
    assert [(savepoint.instant, savepoint.comment) for savepoint in savepoints.list()] == [
        (first.instant, "before ttl")
    ]
    with pytest.raises(ServiceRefused, match=f"there is {first.instant}"):
        savepoints.restore("20260101000000000", lines.append)
    savepoints.restore(first.instant, lines.append)
    # As if the process had been killed before the restore's last step.
    (restored,) = Path(ground.base_path, TIMELINE).glob("*_*.restore")
    restored.unlink()
    with pytest.raises(RestoreUnfinished, match="savepoints NAME --restore INSTANT` to finish"):
        ground.run(pipeline)
    savepoints.restore(first.instant, lines.append)
    add(ground.home.transactions_log, CHANGED_BY_HAND)
    assert ids(ground) == before
    checkpoint = observe(pipeline).committed.checkpoint
    assert checkpoint is not None
    assert (checkpoint.sequence, checkpoint.transaction_id) == (1, first.plan.transaction_id), (
        "went back with the table"
    )
    assert ground.run(pipeline).rows == 12
    assert verify(ground.base_path, ground.produced).exact
    savepoints.delete(first.instant)
    assert savepoints.list() == ()


class DyingPartitions(HudiPartitions):
    """Dies before the commit of a drop, with its instant open."""

    def _java_map(self, entries: Any) -> Any:
        if "hudi_ingest.ttl" in entries:
            raise InjectedFault
        return super()._java_map(entries)


def ids(ground: Ground) -> set[tuple[str, str]]:
    return {(row["dt"], row["id"]) for row in ground.rows().to_pylist()}
