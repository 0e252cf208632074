"""R9: what a dead op left is found and deleted, and nothing else, on real Hudi; hudi-rs and Spark read the same before and after."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    DagsterEventType,
    DefaultScheduleStatus,
    ExecuteInProcessResult,
    TableMetadataValue,
    build_schedule_context,
)

from hudi_ingest.exceptions import TableMismatch, TableUnreachable, TransactionInFlight
from hudi_ingest.hudi.storage.paths import heartbeat_path, marker_path
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.operations.upkeep.sweep import SweepResult, run_sweep
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import dagster_on_disk
from hudi_ingest_tests.support.transactions import transaction_job

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

AGE = timedelta(hours=6)


def begin(ground: Ground, pipeline: Pipeline) -> OpenTransaction:
    return ground.protocol(pipeline).begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)


def write(ground: Ground, pipeline: Pipeline, opened: OpenTransaction) -> dict[Path, bytes]:
    """Writes the transaction's slices and returns what is in the files of this attempt."""
    before = set(ground.data_files())
    ground.protocol(pipeline).write(opened, opened.plan.slices)
    return {path: path.read_bytes() for path in ground.data_files() if path not in before}


def come_back(ground: Ground, files: dict[Path, bytes], instant: str) -> set[str]:
    """What a paused op does when it goes on and then dies: its markers and whole files are there again."""
    for path, content in files.items():
        assert not path.exists(), "Hudi deletes the files of lost attempts"
        path.write_bytes(content)
        marker = Path(ground.base_path) / marker_path(instant, relative(ground, path))
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    return {relative(ground, path) for path in files}


def make_old(ground: Ground, paths: Iterable[Path] | None = None) -> None:
    """All data files, markers and heartbeats, unless `paths`, were last changed seven hours ago."""
    then = time.time() - 7 * 3600
    hoodie = Path(ground.base_path) / ".hoodie"
    everything = [
        *ground.data_files(),
        *(hoodie / ".temp").rglob("*"),
        *(hoodie / ".heartbeat").glob(".*"),
        *(hoodie / ".heartbeat").glob("*"),
    ]
    for path in everything if paths is None else paths:
        os.utime(path, (then, then))


def relative(ground: Ground, path: Path) -> str:
    return path.relative_to(ground.base_path).as_posix()


def rows(ground: Ground) -> tuple[list[Any], list[Any]]:
    """The table's rows by hudi-rs and by Spark."""
    spark = current_session(ground.home)
    by_spark = spark.read.format("hudi").load(ground.base_path).select("id", "_kafka_offset").collect()
    by_rust = ground.rows().select(["id", "_kafka_offset"]).to_pylist()
    return sorted(map(str, by_rust)), sorted(map(str, by_spark))


def swept(result: SweepResult) -> set[str]:
    return {each.file.path for each in result.orphans}


def sweep(ground: Ground, pipeline: Pipeline, delete: bool) -> SweepResult:
    return run_sweep(pipeline, AGE, delete=delete, home=ground.home, report=lambda line: None)


def zombies(ground: Ground, pipeline: Pipeline) -> tuple[set[str], set[str], list[str]]:
    """Files written after their instant was published, and after it was rolled back; and the two instants."""
    protocol = ground.protocol(pipeline)
    ground.send_rows(0, 6)
    first = begin(ground, pipeline)
    lost = write(ground, pipeline, first)
    protocol.commit(first, protocol.write(first, first.plan.slices))
    published = come_back(ground, lost, first.instant)
    ground.send_rows(1, 6)
    second = begin(ground, pipeline)
    lost = write(ground, pipeline, second)
    protocol.abort(second, "the test gives up")
    return published, come_back(ground, lost, second.instant), [first.instant, second.instant]


@pytest.mark.tier(1)
def test_r9_zombie_files_are_found_and_deleted_and_nothing_else(ground: Ground, pipeline: Pipeline) -> None:
    published, rolled_back, dead = zombies(ground, pipeline)
    orphans = published | rolled_back
    assert len(orphans) == 6
    ground.run(pipeline)
    ground.send_rows(0, 6, 6)
    opened = begin(ground, pipeline)
    reports = ground.protocol(pipeline).write(opened, opened.plan.slices)
    foreign = Path(ground.base_path) / "dt=2026-01-01" / "somebody-elses.parquet"
    foreign.write_bytes(b"not ours")
    # What is left where somebody deletes a heartbeat without its checksum.
    crc = {f".hoodie/.heartbeat/.{dead[1]}.crc"}
    (Path(ground.base_path) / next(iter(crc))).write_bytes(b"crc")
    before, files = rows(ground), set(ground.data_files())
    young = sweep(ground, pipeline, delete=True)
    assert swept(young) == set(), "all of it is too young"
    reasons = {kept.file.path: kept.reason for kept in young.kept}
    assert all(reasons[path].startswith("too young") for path in orphans)
    assert reasons[relative(ground, foreign)].startswith("not a name that this pipeline gives")
    make_old(ground)
    found = sweep(ground, pipeline, delete=False)
    left = {f".hoodie/.temp/{instant}" for instant in dead}
    assert swept(found) == orphans | left | crc
    open_files = {kept.file.path for kept in found.kept if kept.reason.endswith("is still open")}
    assert open_files == {
        *(file.path for report in reports for file in report.files),
        f".hoodie/.temp/{opened.instant}",
        heartbeat_path(opened.instant),
        f".hoodie/.heartbeat/.{opened.instant}.crc",
    }
    assert {kept.file.path for kept in found.kept} == {relative(ground, foreign), *open_files}
    for each in found.orphans:
        if each.file.path in published:
            assert (each.instant, each.reason) == (dead[0], "its instant is committed without it")
        elif each.file.path in rolled_back:
            assert (each.instant, each.reason) == (dead[1], "its instant was never committed with it")
        if each.file.path in orphans:
            assert each.origin is not None
            assert each.origin.partition == dead.index(each.instant)
    assert set(ground.data_files()) == files
    done = sweep(ground, pipeline, delete=True)
    assert swept(done) == swept(found)
    assert {relative(ground, path) for path in files - set(ground.data_files())} == orphans
    assert not any((Path(ground.base_path) / path).exists() for path in left | crc)
    assert rows(ground) == before
    assert swept(sweep(ground, pipeline, delete=True)) == set()
    # The test made it old with the rest, and the sweep left it: it is a pending instant's.
    os.utime(Path(ground.base_path) / heartbeat_path(opened.instant))
    ground.protocol(pipeline).commit(opened, reports)
    assert verify(ground.base_path, ground.produced).exact


def test_r9_what_clustering_replaced_stays_for_hudi_to_clean(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, table={"partition_by": []})
    for start in (0, 10):
        ground.send_rows(0, 10, start)
        ground.run(pipeline)
    spark = current_session(ground.home)
    spark.sql(f"create table {ground.name} using hudi location '{ground.base_path}'")
    spark.sql(f"update {ground.name} set id = 'changed' where n = 3")
    updated = set(ground.data_files())
    spark.sql(f"call run_clustering(table => '{ground.name}')").collect()
    assert set(ground.data_files()) > updated, "clustering wrote a new file and deleted none"
    make_old(ground)
    files, before = ground.data_files(), rows(ground)
    listed = HudiWriter(spark, pipeline).listed_files()
    assert listed == {relative(ground, path) for path in files}
    assert swept(sweep(ground, pipeline, delete=True)) == set()
    assert ground.data_files() == files
    assert rows(ground) == before


def test_r9_the_table_lists_its_files_in_folders_of_any_name(ground: Ground, pipeline: Pipeline) -> None:
    values = ["a/b", "x=1", "50%", "line\nbreak", "", None, "🙂 ü", "../up", "a:b", "a b", "a+b", ".hidden"]
    ground.send(0, [json.dumps({"id": str(n), "n": n, "dt": value}).encode() for n, value in enumerate(values)])
    ground.run(pipeline)
    writer = HudiWriter(current_session(ground.home), pipeline)
    assert writer.listed_files() == {relative(ground, path) for path in ground.data_files()}
    make_old(ground)
    assert swept(sweep(ground, pipeline, delete=True)) == set()


def test_r9_nothing_is_swept_beside_a_rollback_without_a_listing_or_in_another_table(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert swept(sweep(ground, pipeline, delete=True)) == set(), "no table yet"
    zombies(ground, pipeline)
    make_old(ground)
    files = ground.data_files()
    timeline = Path(ground.base_path) / ".hoodie" / "timeline"
    pending = timeline / "20990101000000000.rollback.requested"
    pending.touch()
    with pytest.raises(TransactionInFlight, match="20990101000000000"):
        sweep(ground, pipeline, delete=True)
    pending.unlink()
    with pytest.raises(TableMismatch, match="belongs to pipeline"):
        sweep(ground, make_pipeline(ground, name="another"), delete=True)
    real = Ledger.table_lock
    with ground.ledger.table_lock(ground.base_path), monkeypatch.context() as patched:
        patched.setattr(Ledger, "table_lock", lambda ledger, table: real(ledger, table, 0))
        with pytest.raises(TransactionInFlight, match="lock was not free"):
            sweep(ground, pipeline, delete=True)
    HudiWriter(current_session(ground.home), pipeline).update_properties({"hoodie.table.metadata.partitions": ""})
    with pytest.raises(TableUnreachable, match="has no metadata table at the moment"):
        sweep(ground, pipeline, delete=True)
    assert ground.data_files() == files


@pytest.mark.tier(1)
def test_r9_k7_the_command_shows_before_it_deletes(ground: Ground, pipeline: Pipeline) -> None:
    published = zombies(ground, pipeline)[0]
    make_old(ground)
    files = ground.data_files()
    shown = answer(ground.home, "sweep", pipeline.name)
    assert shown.returncode == 0, shown.stderr
    assert "would be deleted with --delete" in shown.stdout
    assert all(path in shown.stdout for path in published)
    assert "left alone" not in shown.stdout
    assert ground.data_files() == files
    done = answer(ground.home, "sweep", pipeline.name, "--older-than", "1", "--delete", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["deleted"], facts["older_than_hours"], facts["kept"]) == (True, 1.0, [])
    gone = {each["path"]: each for each in facts["orphans"] if each["first_offset"] is not None}
    assert gone.keys() == {relative(ground, path) for path in set(files) - set(ground.data_files())}
    assert gone.keys() >= published
    for each in gone.values():
        assert each["age_hours"] == 7.0
        assert each["bytes"] > 0
        assert each["kafka_partition"] in (0, 1)
        assert each["why"]
    wrong = answer(ground.home, "sweep", pipeline.name, "--older-than", "0.01")
    assert wrong.returncode == 2
    assert "timeout_seconds" in wrong.stderr


def test_r9_d1_the_sweep_is_a_job_that_no_transaction_waits_for(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.set_environment(monkeypatch)
    from hudi_ingest.orchestration import tags
    from hudi_ingest.orchestration.definitions import build_definitions

    pipeline = pipeline.model_copy(update={"enabled": True})
    definitions = build_definitions([pipeline])
    job = definitions.resolve_job_def("hudi_ingest_sweep")
    transaction = transaction_job(definitions, pipeline.name)
    assert not job.graph.pools & transaction.graph.pools
    schedule = definitions.resolve_schedule_def("hudi_ingest_sweep_daily")
    assert schedule.default_status is DefaultScheduleStatus.STOPPED
    published, rolled_back, _ = zombies(ground, pipeline)
    ground.run(pipeline)
    make_old(ground)
    files, before = ground.data_files(), rows(ground)
    with dagster_on_disk() as instance:
        shown = job.execute_in_process(instance=instance, partition_key=pipeline.name)
        assert ground.data_files() == files, "nothing is deleted without config"
        assert set(table_paths(shown)) >= published | rolled_back
        context = build_schedule_context(
            instance, datetime.now(timezone.utc), repository_def=definitions.get_repository_def()
        )
        (request,) = schedule.evaluate_tick(context).run_requests or ()
        assert request.tags[tags.PIPELINE] == pipeline.name
        done = job.execute_in_process(
            run_config=request.run_config, instance=instance, partition_key=request.partition_key
        )
        assert done.success
        too_young = {"ops": {"sweep": {"config": {"older_than_hours": 0.01}}}}
        refused = job.execute_in_process(
            run_config=too_young, instance=instance, raise_on_error=False, partition_key=pipeline.name
        )
        assert not refused.success
    assert table_paths(done) == table_paths(shown)
    assert {relative(ground, path) for path in set(files) - set(ground.data_files())} == published | rolled_back
    assert rows(ground) == before


def table_paths(result: ExecuteInProcessResult) -> list[str]:
    (event,) = [each for each in result.all_events if each.event_type is DagsterEventType.STEP_OUTPUT]
    table = event.step_output_data.metadata["files"]
    assert isinstance(table, TableMetadataValue)
    return [str(record.data["path"]) for record in table.records]
