"""Iceberg's readers see what Hudi's do, commit by commit: real broker, Spark and Hudi; pyiceberg beside hudi-rs, each value compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from hudi_ingest.home.folder import HOME_VARIABLE
from hudi_ingest.hudi.iceberg.publisher import INSTANT, IcebergPublisher
from hudi_ingest.hudi.services.savepoints import HudiPartitions, HudiSavepoints
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.iceberg_sync import publish_iceberg
from hudi_ingest_tests.simulation.trace import CHANGED_BY_HAND, add
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
EVERY_TYPE = (
    "id string, dt string, n int, price decimal(12,2), big decimal(30,4), ratio double, small float, ok boolean, raw binary, day date, "
    "at timestamp, place struct<lat: double, tags: array<string>, more: map<string, decimal(9,2)>>, "
    "lines array<struct<sku: string, n: int>>"
)


def send(ground: Ground, *records: dict[str, Any]) -> None:
    ground.send(0, [json.dumps(record).encode() for record in records])


def record(number: int, dt: str | None) -> dict[str, Any]:
    if number % 5 == 4:
        return {"id": str(number), "dt": dt}
    return {
        "id": f"ü{number}" * (number % 7),
        "dt": dt,
        "n": number,
        "price": f"{number}.25",
        "big": f"-{10**20 + number}.5",
        "ratio": number / 3,
        "small": number / 4,
        "ok": number % 2 == 0,
        "raw": "AP8=",
        "day": "1500-01-31",
        "at": f"2026-01-31T10:00:{number % 60:02}.123456Z",
        "place": {"lat": 1.5, "tags": ["a", None], "more": {"k": "1.25"}},
        "lines": [{"sku": "s", "n": number}] * (number % 3),
    }


def publisher(ground: Ground, pipeline: Pipeline) -> IcebergPublisher:
    return IcebergPublisher(pipeline, Timeline.of(pipeline.table), ground.home)


def require_equal(ground: Ground, pipeline: Pipeline) -> int:
    """Every column and value of all rows, in hudi-rs and in pyiceberg; returns their number."""
    iceberg = publisher(ground, pipeline).table().scan().to_arrow()
    hudi = ground.rows()
    names = [name for name in hudi.column_names if not name.startswith("_hoodie_")]
    assert iceberg.column_names == names

    def rows(table: Any) -> list[str]:
        found = table.select(names).to_pylist()
        # pyiceberg 0.12 itself reads a null array of structs as an empty one.
        return sorted(repr([*{**row, "lines": row.get("lines") or []}.items()]) for row in found)

    assert rows(iceberg) == rows(hudi)
    return int(iceberg.num_rows)


@pytest.mark.tier(1)
def test_s24_iceberg_readers_see_each_commit_replay_clustering_ttl_and_restore(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    settings = {"schema": EVERY_TYPE, "partition_by": ["dt"], "iceberg": {}}
    pipeline = make_pipeline(ground, table=settings)
    days = ("2026-01-31", "a:b c/d%", None, "é")
    for start in (0, 9):
        send(ground, *(record(number, days[number % 4]) for number in range(start, start + 9)))
        receipt = ground.run(pipeline)
        assert receipt.warnings == ()
        assert all(file.columns for report in receipt.reports for file in report.files)
        assert require_equal(ground, pipeline) == start + 9
    iceberg = publisher(ground, pipeline).table()
    assert len(list(iceberg.scan(row_filter="dt == 'a:b c/d%'").plan_files())) == 2
    assert iceberg.scan(row_filter="day < '1600-01-01'").to_arrow().num_rows == 15

    # A column is added and one widened.
    wider = {**settings, "schema": f"{EVERY_TYPE.replace('n int, price', 'n long, price')}, extra struct<a: string>"}
    pipeline = make_pipeline(ground, table=wider)
    send(ground, {**record(18, "é"), "n": 2**40, "extra": {"a": "x"}})
    assert ground.run(pipeline).warnings == ()
    assert require_equal(ground, pipeline) == 19

    spark = current_session(ground.home)
    savepoints = HudiSavepoints(spark, pipeline)
    before = str(savepoints.newest_commit())
    savepoints.create(before, "before a replay")
    (replayed,) = requested(ground, pipeline, TransactionKind.REPLAY, [Slice(ground.name, 0, 2, 7)])
    assert replayed.warnings == ()
    assert require_equal(ground, pipeline) == 19
    services_for(pipeline, ground.ledger, spark, ground.home).run(cluster=True, clean=False, report=lambda line: None)
    assert publish_iceberg(pipeline, home=ground.home).made == 1
    assert require_equal(ground, pipeline) == 19
    HudiPartitions(spark, pipeline).delete(["dt=2026-01-31"])
    answered = answer(ground.home, "sync-catalog", pipeline.name, "--json")
    assert json.loads(answered.stdout)["iceberg"]["snapshots"] == 1, answered.stderr
    assert require_equal(ground, pipeline) == 14
    savepoints.restore(before)
    add(ground.home.transactions_log, CHANGED_BY_HAND)
    published = publish_iceberg(pipeline, home=ground.home)
    assert (published.made, published.newest.instant) == (0, before)
    assert require_equal(ground, pipeline) == 19
    send(ground, record(19, "é"))
    assert ground.run(pipeline).warnings == ()
    assert require_equal(ground, pipeline) == 20


def test_s24_a_keyed_table_is_there_as_its_compactions_left_it(ground: Ground, topic: str) -> None:
    keyed = {
        "schema": "id string, dt string, n long, gone boolean",
        "mode": "upsert",
        "key": ["id"],
        "buckets": 2,
        "delete_field": "gone",
        "partition_by": ["dt"],
        "iceberg": {},
    }
    pipeline = make_pipeline(ground, table=keyed)
    for start in (0, 5):
        send(
            ground,
            *({"id": str(n % 8), "dt": f"0{n % 8 % 2}", "n": n, "gone": n == 9} for n in range(start, start + 10)),
        )
        assert ground.run(pipeline).warnings == ()
    spark = current_session(ground.home)
    services_for(pipeline, ground.ledger, spark, ground.home).run(cluster=False, clean=False, report=lambda line: None)
    published = publish_iceberg(pipeline, home=ground.home)
    said = publisher(ground, pipeline).table().current_snapshot()
    assert said is not None and said.summary is not None
    offsets = json.loads(said.summary.additional_properties["hudi-ingest.offsets"])
    assert offsets[ground.name]["0"] == 20
    count = require_equal(ground, pipeline)
    assert count == len(ground.rows()) == 7
    send(ground, {"id": "0", "dt": "00", "n": 99})
    assert ground.run(pipeline).warnings == ()
    assert publish_iceberg(pipeline, home=ground.home).newest == published.newest
    found = publisher(ground, pipeline).table().scan().to_arrow()
    assert found.num_rows == count and pc.max(found["n"]).as_py() < 99


def test_s24_a_catalog_that_is_away_fails_no_commit_and_the_next_makes_up_for_it(ground: Ground, topic: str) -> None:
    away = make_pipeline(ground, table={"iceberg": {"catalog": {"uri": "http://127.0.0.1:9"}}})
    ground.send_rows(0, 5)
    receipt = ground.run(away)
    (warning,) = receipt.warnings
    assert "the commit is durable, but Iceberg does not have it yet: Iceberg table" in warning
    pipeline = make_pipeline(ground, table={"iceberg": {}})
    Path(ground.base_path, ".hoodie/hudi_ingest/iceberg.json").unlink()
    ground.send_rows(0, 5, 5)
    assert ground.run(pipeline).warnings == ()
    assert require_equal(ground, pipeline) == 10
    snapshots = publisher(ground, pipeline).table().snapshots()
    assert [each.summary.additional_properties[INSTANT] for each in snapshots if each.summary][-1] == ground_newest(
        pipeline
    )


def ground_newest(pipeline: Pipeline) -> str:
    return PipelineTable(pipeline).timeline.completed()[0].instant
