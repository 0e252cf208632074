"""P1–P3: `hudi-ingest audit` of a real table: clean after commits, a replay, a retry and clustering; then each fault made by hand, or by Spark
SQL, is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.audit import Audit, audit
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def audited(pipeline: Pipeline) -> Audit:
    return audit(pipeline, None, None, lambda line: None)


def cluster(ground: Ground, pipeline: Pipeline) -> None:
    services = services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)
    assert services.run(cluster=True, clean=False, report=lambda line: None).written


def holding(ground: Ground, partition: int, offset: int) -> tuple[Path, pa.Table, int]:
    """The live file that has a record's row, its rows, and the row's place."""
    from hudi_ingest.hudi.timeline.timeline import Timeline

    for live in Timeline(ground.base_path).files():
        path = Path(ground.base_path, live.path)
        rows = pq.ParquetFile(path).read()
        places = list(zip(rows["_kafka_partition"].to_pylist(), rows["_kafka_offset"].to_pylist(), strict=True))
        if (partition, offset) in places:
            return path, rows, places.index((partition, offset))
    raise AssertionError(f"no row of {partition}:{offset}")


def test_p1_p2_a_table_is_audited_through_replay_retry_and_clustering_and_each_fault_is_named(
    ground: Ground, topic: str
) -> None:
    letters = {"topic": f"{ground.name}.dead"}
    certified = {"certificates": True}
    pipeline = make_pipeline(ground, on_bad_record="dead_letter", dead_letters=letters, table=certified)
    ground.send_rows(0, 60)
    ground.send_rows(1, 40)
    ground.run(pipeline)
    ground.send(0, [b"{bad", None])
    ground.send_rows(0, 30, 60)
    receipt = ground.run(pipeline)
    clean = audited(pipeline)
    assert (clean.faults, clean.unexamined) == ((), ())
    assert (clean.rows, clean.certified, clean.records) == (130, 130, 132)
    assert clean.through == {f"{ground.name}:0": 92, f"{ground.name}:1": 40}
    totals = receipt.checkpoint.certified
    assert {source.partition: (each.start, each.rows) for source, each in totals.items()} == {0: (0, 90), 1: (0, 40)}

    (replayed,) = requested(ground, pipeline, TransactionKind.REPLAY, [Slice(ground.name, 0, 10, 75)])
    assert replayed.rows == 63
    cluster(ground, pipeline)
    clean = audited(pipeline)
    assert clean.faults == ()
    assert (clean.rows, clean.records) == (130, 132)
    assert clean.through == {f"{ground.name}:0": 92, f"{ground.name}:1": 40}

    ended = answer(ground.home, "audit", pipeline.name)
    assert ended.returncode == 0, ended.stderr
    assert "no offset is lost, doubled, moved or altered" in ended.stdout

    path, rows, place = holding(ground, 1, 7)
    before = path.read_bytes()
    values = rows["n"].to_pylist()
    values[place] += 1
    pq.write_table(rows.set_column(rows.schema.get_field_index("n"), "n", pa.array(values)), path)
    assert faults(ground, pipeline) == [("altered", 1, 7)]
    pq.write_table(pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)]), path)
    assert faults(ground, pipeline) == [("lost", 1, 7)]
    pq.write_table(pa.concat_tables([rows, rows.slice(place, 1)]), path)
    assert faults(ground, pipeline) == [("doubled", 1, 7)]

    path.write_bytes(before)
    require_damage_is_named(ground, pipeline, path)
    assert audited(pipeline).faults == ()

    # Another writer may change the table: an audit says that it did.
    spark = current_session(ground.home).newSession()
    spark.sql(f"CREATE TABLE deleting_{ground.name} USING hudi LOCATION '{ground.base_path}'")
    spark.sql(f"DELETE FROM deleting_{ground.name} WHERE id = '0-5'")
    assert faults(ground, pipeline) == [("lost", 0, 5)]


def require_damage_is_named(ground: Ground, pipeline: Pipeline, path: Path) -> None:
    """A flipped byte in one of Hudi's columns, which are not compared."""
    before, column = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0)
    flipped = bytearray(before)
    start = column.dictionary_page_offset or column.data_page_offset
    flipped[start + column.total_compressed_size - 2] ^= 0x55
    path.write_bytes(bytes(flipped))
    damaged = [fault.text for fault in audited(pipeline).faults if fault.kind == "damaged"]
    assert damaged and str(path.relative_to(ground.base_path)) in damaged[0]
    path.write_bytes(before)


def faults(ground: Ground, pipeline: Pipeline) -> list[tuple[str, int, int]]:
    """The faults that the command names, of single offsets; the slices that have them aside."""
    ended = answer(ground.home, "audit", pipeline.name, "--json")
    assert ended.returncode == 1, ended.stdout
    found: list[dict[str, Any]] = json.loads(ended.stdout)["faults"]
    assert all(each["end"] == each["offset"] + 1 for each in found), found
    return [(each["kind"], each["partition"], each["offset"]) for each in found]


def test_k1_the_records_of_a_keyed_table_are_audited(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(
        ground, table={"mode": "upsert", "key": ["id"], "buckets": 1, "partition_by": [], "certificates": True}
    )
    ground.send_rows(0, 20)
    ground.run(pipeline)
    found = audited(pipeline)
    assert (found.faults, found.rows, found.records) == ((), 0, 20)
    assert "rows of a keyed table" in found.unexamined[0]


def test_tables_without_certificates_are_compared_row_by_row(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground)
    ground.send_rows(0, 20)
    receipt = ground.run(pipeline)
    assert receipt.checkpoint.certified == {}
    found = audited(pipeline)
    assert (found.faults, found.rows, found.certified) == ((), 20, 0)
    path, rows, place = holding(ground, 0, 4)
    require_damage_is_named(ground, pipeline, path)
    pq.write_table(pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)]), path)
    ((fault),) = audited(pipeline).faults
    assert (fault.kind, fault.offset) == ("lost", 4)
