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
from hudi_ingest.transaction.plan.planning import plan_accepting
from hudi_ingest_tests.simulation.trace import CHANGED_BY_HAND, add
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


@pytest.mark.tier(3)
def test_p1_p2_s22_a_table_is_audited_through_replay_retry_and_clustering_and_each_fault_is_named(
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


def test_k1_p8_a_keyed_table_is_audited_through_compaction_and_damage_to_its_files_is_named(
    ground: Ground, topic: str
) -> None:
    keyed = {"mode": "upsert", "key": ["id"], "buckets": 2, "partition_by": [], "certificates": True}
    pipeline = make_pipeline(ground, table=keyed, source={"starting_offsets": "earliest"})
    ground.send_rows(0, 20)
    ground.run(pipeline)
    services = services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)
    assert services.run(compact=True, clean=False, report=lambda line: None).compactions
    # Some keys change, and new ones come, also in another Kafka partition.
    ground.send(0, [json.dumps({"id": f"0-{n}", "n": 100 + n, "dt": "2026-01-01"}).encode() for n in range(5, 10)])
    ground.send_rows(1, 10)
    ground.run(pipeline)
    found = audited(pipeline)
    assert (found.faults, found.problems, found.notes, found.unexamined) == ((), (), (), ())
    assert (found.rows, found.records) == (30, 35)
    assert found.through == {f"{ground.name}:0": 25, f"{ground.name}:1": 10}
    ended = answer(ground.home, "audit", pipeline.name)
    assert ended.returncode == 0, ended.stderr
    assert "with 30 rows (0 certified) and 35 records: no offset is lost" in ended.stdout
    assert "never examined: " in ended.stdout

    root = Path(ground.base_path)
    logs = [path for path in root.iterdir() if ".log." in path.name and path.stat().st_size]
    log = max(logs, key=lambda path: path.name)
    content = log.read_bytes()
    for damaged in (content[: len(content) // 2], content[:-9], b"", content.replace(b"#HUDI#", b"#HUD1#")):
        log.write_bytes(damaged)
        require_one_file_is_named(pipeline, log)
    # A block of Avro rows has no checksum: the row is another one.
    key = next(key for key in (b"0-7", b"0-8", b"1-3", b"1-4") if key in content)
    place = content.rindex(key)
    log.write_bytes(content[:place] + b"9" + content[place + 1 :])
    assert not audited(pipeline).is_right
    log.unlink()
    require_one_file_is_named(pipeline, log)
    log.write_bytes(content)

    base = next(path for path in root.glob("*.parquet") if "0-12" in pq.ParquetFile(path).read()["id"].to_pylist())
    before, rows = base.read_bytes(), pq.ParquetFile(base).read()
    row = rows["id"].to_pylist().index("0-12")
    values = [value + (number == row) for number, value in enumerate(rows["n"].to_pylist())]
    pq.write_table(rows.set_column(rows.schema.get_field_index("n"), "n", pa.array(values, rows["n"].type)), base)
    assert faults(ground, pipeline) == [("altered", 0, 12)]
    pq.write_table(pa.concat_tables([rows.slice(0, row), rows.slice(row + 1)]), base)
    assert faults(ground, pipeline) == [("lost", 0, 12)]
    base.write_bytes(before)
    assert audited(pipeline).is_right

    add(ground.home.transactions_log, CHANGED_BY_HAND)
    # The newest commit is gone: the table is right as of the one before, but the ledger and the group know better.
    newest = max(path for path in (root / ".hoodie" / "timeline").iterdir() if path.name.endswith(".deltacommit"))
    taken = {path: path.read_bytes() for path in newest.parent.iterdir() if path.name.startswith(newest.name[:17])}
    for path in taken:
        path.unlink()
    (problem,) = audit(pipeline, None, None, lambda line: None, ground.ledger).problems
    assert "the ledger has" in problem
    (problem,) = audited(pipeline).problems
    assert f"{ground.name}:0 25 instead of 20" in problem
    ended = answer(ground.home, "audit", pipeline.name)
    assert (ended.returncode, "wrong: the ledger has" in ended.stdout) == (1, True)
    for path, text in taken.items():
        path.write_bytes(text)
    assert audited(pipeline).is_right


def require_one_file_is_named(pipeline: Pipeline, path: Path) -> None:
    (fault,) = audited(pipeline).faults
    assert (fault.kind, path.name in fault.text) == ("damaged", True)


@pytest.mark.tier(1)
def test_p1_p2_s22_facts_that_contradict_each_other_are_named(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, table={"certificates": True})
    ground.send_rows(0, 20)
    ground.run(pipeline)
    root = Path(ground.base_path)
    (commit,) = (root / ".hoodie" / "timeline").glob("*_*commit")
    before = commit.read_bytes()
    source = f"{ground.name}:0"
    for offset in (15, 25):
        changed = before.replace(b'\\"0\\":20', f'\\"0\\":{offset}'.encode()) or before
        changed = changed if changed != before else before.replace(b'"0":20', f'"0":{offset}'.encode())
        assert changed != before
        commit.write_bytes(changed)
        found = audited(pipeline)
        (problem,) = found.problems
        assert f"{source} was read up to 20" in problem
        assert f"but the checkpoint says {offset}" in problem
        assert (found.faults, found.unexamined, found.through) == ((), (), {source: 20})
    commit.write_bytes(before)

    path, rows, _ = holding(ground, 0, 4)
    stray, copy = path.with_name("stray.parquet"), path.with_name(path.name.replace(path.name[:8], "deadbeef"))
    for each in (stray, copy):
        pq.write_table(rows, each)
    found = audited(pipeline)
    assert (found.faults, found.problems) == ((), ())
    (note,) = found.notes
    assert "2 data files that it does not list" in note
    assert stray.name in note
    assert copy.name in note
    assert f"hudi-ingest sweep {pipeline.name}" in note
    ended = answer(ground.home, "audit", pipeline.name)
    assert (ended.returncode, "note: the table's folders have 2 data files" in ended.stdout) == (0, True)
    for each in (stray, copy):
        each.unlink()

    times = pa.array(["20200101000000000", *rows["_hoodie_commit_time"].to_pylist()[1:]])
    content = path.read_bytes()
    pq.write_table(rows.set_column(0, "_hoodie_commit_time", times), path)
    (fault,) = audited(pipeline).faults
    assert (fault.kind, "commit time 20200101000000000" in fault.text) == ("altered", True)
    path.write_bytes(content[: len(content) // 2])
    (fault,) = audited(pipeline).faults
    assert (fault.kind, f"{rows.num_rows} rows from" in fault.text) == ("damaged", True)
    path.write_bytes(content)

    epoch = root / ".hoodie" / "hudi_ingest" / "epoch"
    taken = epoch.read_bytes()
    epoch.unlink()
    (problem,) = audited(pipeline).problems
    assert "the epoch" in problem
    epoch.write_bytes(taken)
    properties = root / ".hoodie" / "hoodie.properties"
    text = properties.read_text()
    properties.write_text("".join(line for line in text.splitlines(True) if not line.startswith("hudi_ingest.")))
    (problem,) = audited(pipeline).problems
    assert "belongs to another writer" in problem
    properties.write_text(text)
    assert audited(pipeline).is_whole


def test_p1_after_a_loss_was_accepted_and_offsets_started_over_todays_rows_are_audited(
    ground: Ground, topic: str
) -> None:
    """The record keys say which rows are of the records of today."""
    pipeline = make_pipeline(ground, table={"certificates": True})
    ground.send_rows(0, 20)
    ground.send_rows(1, 10)
    ground.run(pipeline)
    ground.make_again(2)
    ground.send_rows(0, 7)
    assert ground.run(pipeline, plan_accepting(pipeline, (), [ground.name])).rows == 7
    found = audited(pipeline)
    assert (found.faults, found.problems, found.unexamined) == ((), (), ())
    assert (found.rows, found.certified, found.through) == (7, 7, {f"{ground.name}:0": 7})
    path, rows, place = next(
        (file, rows, number)
        for file in Path(ground.base_path).glob("**/*.parquet")
        if ".hoodie" not in str(file)
        for rows in [pq.ParquetFile(file).read()]
        for number, key in enumerate(rows["_hoodie_record_key"].to_pylist())
        if key.endswith("-3-g1")
    )
    pq.write_table(pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)]), path)
    assert faults(ground, pipeline) == [("lost", 0, 3)]


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
