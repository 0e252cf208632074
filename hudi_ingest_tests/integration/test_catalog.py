"""Tables appear in a real Hive metastore, where another Spark session finds them, and a metastore that is away fails no commit."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from dagster import DagsterInstance, RunRequest, SkipReason

from hudi_ingest.hudi.services import catalog_client, catalog_state
from hudi_ingest.hudi.services.catalog_client import COMPLETE_PROPERTY
from hudi_ingest.hudi.services.catalog_state import CatalogState, read_state
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, free_port, stop
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.lab.spark_servers import MetastoreSettings, start_metastore
from hudi_ingest_tests.support.catalog_reader import CatalogReader
from hudi_ingest_tests.support.command_line import answer, environment
from hudi_ingest_tests.support.ground import Ground, make_pipeline, write_pipeline
from hudi_ingest_tests.support.java import QUICK, java_options
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
NESTED = "id string, dt string, at timestamp, place struct<lat: double, tags: array<string>, more: map<string, decimal(9,2)>>"


@dataclass
class Metastore:
    """A metastore that may be stopped and started again."""

    settings: MetastoreSettings
    record: ProcessRecord | None = None

    def start(self) -> None:
        with java_options(QUICK):
            self.record = start_metastore(self.settings, lambda line: None)

    def stop(self) -> None:
        if self.record is not None:
            stop([self.record])
            self.record = None


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    server = Metastore(MetastoreSettings(tmp_path_factory.mktemp("metastore"), free_port()))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def reader(metastore: Metastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogReader]:
    process = CatalogReader(metastore.settings.uri, tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


def in_catalog(ground: Ground, metastore: Metastore, schema: str, *partition_by: str, **table: Any) -> Pipeline:
    return make_pipeline(
        ground,
        table={"schema": schema, "partition_by": [*partition_by], **table},
        catalog={"type": "hms", "uris": metastore.settings.uri},
    )


def send(ground: Ground, *records: dict[str, Any]) -> None:
    ground.send(0, [json.dumps(record).encode() for record in records])


def state(pipeline: Pipeline) -> CatalogState:
    return read_state(PipelineTable(pipeline).storage)


def test_s4_a_table_appears_with_its_new_partitions_and_columns_and_stays_after_replay_and_clustering(
    ground: Ground, topic: str, metastore: Metastore, reader: CatalogReader
) -> None:
    pipeline = in_catalog(ground, metastore, NESTED, "dt")
    name = pipeline.catalog_table
    place = {"lat": 1.5, "tags": ["a"], "more": {"k": "1.25"}}
    send(ground, *({"id": dt, "dt": dt, "at": "2026-01-31T10:00:00Z", "place": place} for dt in ("01", "02")))
    assert ground.run(pipeline).warnings == ()
    row = ["01", "2026-01-31 10:00:00", [1.5, ["a"], {"k": "1.25"}]]
    assert reader.table(name, "id, at, place", "dt = '01'") == [row]

    synced = state(pipeline)
    send(ground, {"id": "3", "dt": "02"})
    ground.run(pipeline)
    assert state(pipeline) == synced, "nothing was new to the catalog, so it was not asked"
    assert reader.property(name, "last_commit_time_sync") == synced.instant
    assert reader.table(name) == [[3]]

    send(ground, {"id": "4", "dt": "a:b c/d"}, {"id": "5"})
    ground.run(pipeline)
    # Hudi leaves values in the catalog as they are escaped in folders' names, and Hive's names escape them once more.
    assert reader.partitions(name) == ["dt=01", "dt=02", "dt=__HIVE_DEFAULT_PARTITION__", "dt=a%253Ab c%252Fd"]
    assert reader.table(name, where="dt = 'a:b c/d'") == [[1]]

    pipeline = in_catalog(ground, metastore, f"{NESTED}, extra long", "dt")
    send(ground, {"id": "6", "dt": "01", "extra": 7})
    ground.run(pipeline)
    assert reader.table(name, "sum(extra)") == [[7]]

    (receipt,) = requested(ground, pipeline, TransactionKind.REPLAY, [Slice(ground.name, 0, 0, 6)])
    assert receipt.warnings == ()
    assert reader.table(name) == [[6]]
    services = services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)
    services.run(cluster=True, clean=False, report=lambda line: None)
    assert reader.table(name) == [[6]]
    assert state(pipeline).news(pipeline.catalog_place, PipelineTable(pipeline).timeline.completed()) == ""


def test_s4_a_keyed_table_appears_as_its_snapshot_and_as_what_is_compacted(
    ground: Ground, topic: str, metastore: Metastore, reader: CatalogReader
) -> None:
    columns = "id long not null, dt string, text string"
    keyed = {"mode": "upsert", "key": ["id"], "buckets": 1}
    pipeline = in_catalog(ground, metastore, columns, "dt", **keyed)
    name, realtime, compacted = pipeline.catalog_tables

    def texts(table: str) -> list[list[Any]]:
        return reader.table(table, "id, text")

    send(ground, {"id": 1, "dt": "01", "text": "a"}, {"id": 2, "dt": "01", "text": "b"})
    assert ground.run(pipeline).warnings == ()
    assert texts(name) == texts(realtime) == [[1, "a"], [2, "b"]]
    assert texts(compacted) == []

    synced = state(pipeline)
    send(ground, {"id": 1, "dt": "01", "text": "c"})
    ground.run(pipeline)
    services = services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)
    services.run(cluster=False, clean=False, report=lambda line: None)
    assert texts(compacted) == texts(name) == [[1, "c"], [2, "b"]]
    send(ground, {"id": 2, "dt": "01", "text": "d"})
    ground.run(pipeline)
    assert state(pipeline) == synced, "nothing was new to the catalog, so it was not asked"
    assert texts(name) == texts(realtime) == [[1, "c"], [2, "d"]]

    pipeline = in_catalog(ground, metastore, f"{columns}, extra long", "dt", **keyed)
    send(ground, {"id": 3, "dt": "02", "text": "e", "extra": 7})
    ground.run(pipeline)
    for table in (name, realtime, compacted):
        assert reader.partitions(table) == ["dt=01", "dt=02"]
    assert reader.table(name, "sum(extra)") == reader.table(realtime, "sum(extra)") == [[7]]


def test_folders_without_names_several_partition_columns_and_none(
    ground: Ground, topic: str, metastore: Metastore, reader: CatalogReader
) -> None:
    pipeline = in_catalog(ground, metastore, "id string, n int, day date", "day", "n", hive_style=False)
    send(ground, {"id": "a", "n": 1, "day": "2026-01-31"}, {"id": "b", "n": 2, "day": "2026-01-31"})
    ground.run(pipeline)
    assert reader.partitions(pipeline.catalog_table) == ["day=2026-01-31/n=1", "day=2026-01-31/n=2"]
    assert reader.table(pipeline.catalog_table, "id, day", "n = 2") == [["b", "2026-01-31"]]

    flat = make_pipeline(
        ground,
        name=f"{ground.name}_flat",
        table={"schema": "id string", "partition_by": [], "base_path": f"{ground.base_path}_flat"},
        catalog={"type": "hms", "uris": metastore.settings.uri, "database": "Lake", "table": "Flat"},
    )
    ground.run(flat)
    assert reader.table("lake.flat", "id") == [["a"], ["b"]]

    taken = make_pipeline(
        ground,
        name=f"{ground.name}_other",
        table={"schema": "id string", "partition_by": [], "base_path": f"{ground.base_path}_other"},
        catalog={"type": "hms", "uris": metastore.settings.uri, "database": "lake", "table": "flat"},
    )
    (warning,) = ground.run(taken).warnings
    assert f"it already has a table flat, at file:{ground.base_path}_flat" in warning
    assert "Set catalog.table to another name" in warning
    assert reader.table("lake.flat", "id") == [["a"], ["b"]]


def test_commits_land_without_the_metastore_and_the_catalog_follows_without_a_new_record(
    ground: Ground, topic: str, metastore: Metastore, reader: CatalogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = in_catalog(ground, metastore, "id string, dt string", "dt")
    monkeypatch.setattr(catalog_state, "FIRST_RETRY_SECONDS", 600)
    metastore.stop()
    for dt in ("01", "02"):
        send(ground, {"id": dt, "dt": dt})
        receipt = ground.run(pipeline)
        assert receipt.seconds["total"] < 120
    # The second commit did not try again so soon.
    failure = state(pipeline).failure
    assert failure is not None and failure.tries == 1
    expected = f"could not be synced to {pipeline.catalog_place}: no metastore answers there"
    assert expected in failure.error
    status = answer(ground.home, "status", pipeline.name, "--json")
    assert expected in json.loads(status.stdout)[0]["catalog"]["text"]

    for variable, value in environment(ground.home).items():
        monkeypatch.setenv(variable, value)
    from hudi_ingest.operations.health.judgement import CATALOG_SYNCED
    from hudi_ingest.orchestration.definitions import build_definitions
    from hudi_ingest.orchestration.jobs.upkeep_jobs import catalog_run
    from hudi_ingest_tests.support.ticks import tick

    job = build_definitions([pipeline]).resolve_job_def("hudi_ingest_catalog")
    with DagsterInstance.ephemeral() as instance:
        failed_at = datetime.fromisoformat(failure.at)
        assert isinstance(catalog_run(pipeline, instance, failed_at + timedelta(seconds=599)), SkipReason), (
            "not that soon"
        )
        assert isinstance(tick(pipeline, instance, failed_at + timedelta(seconds=599)), SkipReason)
        check = check_of(pipeline, instance, CATALOG_SYNCED)
        assert check == (False, True), "failed, with the reason"
        assert isinstance(catalog_run(pipeline, instance, failed_at + timedelta(seconds=600)), RunRequest)
        metastore.start()
        monkeypatch.setattr(catalog_state, "FIRST_RETRY_SECONDS", 0)
        assert job.execute_in_process(instance=instance, partition_key=pipeline.name).success
        assert isinstance(catalog_run(pipeline, instance, datetime.now(timezone.utc)), SkipReason)
        assert isinstance(tick(pipeline, instance, datetime.now(timezone.utc)), SkipReason)
        assert check_of(pipeline, instance, CATALOG_SYNCED) == (True, False)
    assert reader.table(pipeline.catalog_table) == [[2]]

    by_hand = answer(ground.home, "sync-catalog", pipeline.name, "--json")
    assert json.loads(by_hand.stdout)["lacked"] == "", by_hand.stderr
    with socket.socket() as silent, monkeypatch.context() as patience:
        patience.setattr(catalog_client, "SYNC_SECONDS", 2)
        silent.bind((LOOPBACK, 0))
        silent.listen()
        uris = f"thrift://{LOOPBACK}:{silent.getsockname()[1]}"
        write_pipeline(ground, catalog={"type": "hms", "uris": uris})
        by_hand = answer(ground.home, "sync-catalog", pipeline.name)
        assert by_hand.returncode == 1
        assert "no answer within 2 s, so it was given up" in " ".join(by_hand.stderr.split())


def check_of(pipeline: Pipeline, instance: DagsterInstance, check: str) -> tuple[bool, bool]:
    """Whether the check passed, and whether it says that the metastore does not answer."""
    from dagster import AssetCheckEvaluation, AssetCheckKey, AssetKey

    key = AssetCheckKey(AssetKey([pipeline.name]), check)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert isinstance(record.evaluation, AssetCheckEvaluation)
    return record.evaluation.passed, "no metastore answers there" in (record.evaluation.description or "")


def test_the_catalog_has_the_time_through_which_the_table_is_complete(
    ground: Ground, topic: str, metastore: Metastore, reader: CatalogReader
) -> None:
    pipeline = make_pipeline(
        ground,
        source={"lateness_seconds": 60},
        table={"schema": "id string, dt string", "partition_by": ["dt"]},
        catalog={"type": "hms", "uris": metastore.settings.uri},
    )
    times = []
    for day in ("01", "02"):
        send(ground, {"id": day, "dt": day})
        assert ground.run(pipeline).warnings == ()
        metadata = PipelineTable(pipeline).timeline.completed()[0].metadata[pipeline.complete_key]
        times.append(json.loads(metadata)["complete_through"])
        assert reader.property(pipeline.catalog_table, COMPLETE_PROPERTY) == times[-1]
    assert times[0] < times[1]
