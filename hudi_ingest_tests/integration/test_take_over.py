"""X6: a table that another system wrote is continued where that ended, or refused; and the other system can come back.

The other systems' commits are made by the real Hudi client with the keys that those systems give them; Structured Streaming is
a real query.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from hudi_ingest.cli import app as cli
from hudi_ingest.exceptions import (
    CommitRefused,
    NothingToDo,
    OffsetsLost,
    PlanOutdated,
    TableMismatch,
    TransactionInFlight,
)
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import create_topic
from hudi_ingest.operations.upkeep.table_services import run_services
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.plan.planning import observe, plan_now
from hudi_ingest_tests.support.ground import Ground, contents, fresh_ground, make_pipeline, produced

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

VALUES = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "dt",
}
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
KEYED = {**VALUES, **HIVE}
STREAMER = "streamer.checkpoint.key.v2"
CONNECT = "kafka.commit.offsets"


def never(run_id: str) -> bool | None:
    return None


@pytest.fixture
def spark(spark_home: Home) -> SparkSession:
    """Another system's session: none of Hudi's settings is set in it."""
    return current_session(spark_home).newSession()


def record(partition: int, number: int) -> tuple[str, int, str]:
    return f"{partition}-{number}", number, f"2026-01-0{number % 3 + 1}"


def write(
    ground: Ground,
    spark: SparkSession,
    rows: list[tuple[str, int, str]],
    metadata: Mapping[str, str] | None = None,
    operation: str = "insert",
    options: Mapping[str, str] = KEYED,
) -> None:
    """A commit of another system's, with its key in the extra metadata."""
    metadata = metadata or {}
    named = {"hoodie.table.name": "theirs", "hoodie.datasource.write.operation": operation}
    prefix = {"hoodie.datasource.write.commitmeta.key.prefix": list(metadata)[-1]} if metadata else {}
    frame = spark.createDataFrame(rows, "id string, n long, dt string").coalesce(1)
    frame.write.format("hudi").options(**named, **prefix, **metadata, **options).mode("append").save(ground.base_path)


def streamer(ground: Ground, *offsets: int) -> dict[str, str]:
    return {STREAMER: ",".join([ground.name, *(f"{number}:{offset}" for number, offset in enumerate(offsets))])}


def streamed(ground: Ground, spark: SparkSession, options: Mapping[str, str] = KEYED) -> None:
    """Hudi Streamer committed twice, 10 records of the first partition and 5 of the second; more are in the topic."""
    ground.send_rows(0, 10 + 7)
    ground.send_rows(1, 5 + 4)
    write(ground, spark, [record(0, n) for n in range(10)], streamer(ground, 10, 0), "bulk_insert", options)
    write(ground, spark, [record(1, n) for n in range(5)], streamer(ground, 10, 5), options=options)


@pytest.fixture(scope="module")
def theirs(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A ground with a table of Hudi Streamer's, which nobody changes: see `elsewhere`."""
    with fresh_ground(bootstrap_servers, tmp_path_factory.mktemp("theirs")) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        streamed(ground, current_session(ground.home).newSession())
        yield ground


@pytest.fixture
def elsewhere(theirs: Ground, tmp_path: Path) -> Iterator[Ground]:
    """The same topic, which stays as it is, and a place of its own for a table."""
    home = Home(root=tmp_path, pipelines=tmp_path / "pipelines", ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    ground = replace(theirs, home=home, _ledgers=[])
    yield ground
    ground.close()


@pytest.fixture
def copied(theirs: Ground, elsewhere: Ground) -> Ground:
    """With a copy of the table, as `streamed` leaves it. No test sends records to the topic."""
    shutil.copytree(theirs.base_path, elsewhere.base_path)
    return elsewhere


def ours(ground: Ground) -> Pipeline:
    """A pipeline that continues the table, with a consumer group of its own."""
    return make_pipeline(ground, name=f"t{uuid.uuid4().hex[:10]}", table={"take_over": "hudi_streamer"})


def newest_metadata(ground: Ground) -> Mapping[str, str]:
    return Timeline(ground.base_path).completed()[0].metadata


LAYOUTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "keyed": (KEYED, {}),
    "values_alone_and_no_metadata_table": ({**VALUES, "hoodie.metadata.enable": "false"}, {"hive_style": False}),
    "keyless_not_partitioned_and_no_statistics": (
        {"hoodie.metadata.index.column.stats.enable": "false"},
        {"partition_by": []},
    ),
    "escaped_with_two_keys_record_index_and_statistics_of_one_column": (
        {
            **KEYED,
            "hoodie.datasource.write.recordkey.field": "id,n",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
            "hoodie.metadata.record.index.enable": "true",
            "hoodie.metadata.index.column.stats.column.list": "id",
        },
        {},
    ),
}
"""What a table can be like in one respect may go with what it is like in another: each pair is continued in the same way."""
IN_CI = ("keyed", "keyless_not_partitioned_and_no_statistics", "merge_on_read", "partitions", "columns")
"""The layouts, and the refused tables below, that CI has; unit/hudi/test_other_writers.py has refused properties, too."""


COUNTS = {
    "_kafka_offset is null": 15,
    "_kafka_offset >= 0": 11,
    "_kafka_offset = 16": 1,
    "n = 16": 1,
    "n >= 10": 7,
    "n = 3": 2,
    "id = '0-16'": 1,
    "id = '0-9'": 1,
    "id >= '1-4' and dt = '2026-01-01'": 1,
}


def counts(ground: Ground, spark: SparkSession) -> dict[str, int]:
    """How many rows each condition of COUNTS finds, each by its own look into the table's indexes, all in one job."""
    frame = spark.read.format("hudi").load(ground.base_path)
    looks = [frame.where(where).agg(F.lit(where).alias("where"), F.count("*").alias("rows")) for where in COUNTS]
    return {row["where"]: row["rows"] for row in reduce(DataFrame.union, looks).collect()}


@pytest.mark.parametrize(
    ("options", "table"),
    [
        pytest.param(*layout, id=name, marks=[] if name in IN_CI else [pytest.mark.tier(3)])
        for name, layout in LAYOUTS.items()
    ],
)
def test_x6_a_table_of_hudi_streamer_is_continued_where_it_ended(
    ground: Ground, topic: str, spark: SparkSession, options: dict[str, str], table: dict[str, Any]
) -> None:
    streamed(ground, spark, options)
    pipeline = make_pipeline(ground, table={**table, "take_over": "hudi_streamer"})
    receipt = ground.run(pipeline)
    assert [(each.start, each.end) for each in receipt.plan.slices] == [(10, 17), (5, 9)]
    assert newest_metadata(ground)[STREAMER] == f"{topic},0:17,1:9"
    # Statistics and indexes of the metadata table, which were made before us, must not hide a row of either.
    assert counts(ground, spark) == COUNTS
    with pytest.raises(NothingToDo):
        ground.run(pipeline)
    ground.send_rows(0, 3, 17)
    # The setting has no effect any more, and may go.
    later = make_pipeline(ground, table=table)
    assert ground.run(later).rows == 3
    assert contents(ground, spark) == produced(ground)
    placed = {(row["_kafka_partition"], row["_kafka_offset"]): row["id"] for row in ground.rows().to_pylist()}
    assert placed.pop((None, None)) in ground.produced.values()
    before = {(0, n) for n in range(10)} | {(1, n) for n in range(5)}
    assert placed == {place: each for place, each in ground.produced.items() if place not in before}


@pytest.mark.tier(1)
def test_x6_the_plan_says_what_was_found_and_changes_nothing(copied: Ground) -> None:
    pipeline, ground, topic = ours(copied), copied, copied.name
    before = (Path(ground.base_path) / ".hoodie" / "hoodie.properties").read_text()
    found = CliRunner().invoke(
        cli.app,
        ["plan", pipeline.name],
        env={"HUDI_INGEST_PIPELINES": str(ground.home.pipelines), "HUDI_INGEST_HOME": str(ground.home.root)},
    )
    assert found.exit_code == 0, found.output
    instant = Timeline(ground.base_path).completed()[0].instant
    said = " ".join(found.output.split())
    assert (
        f"Hudi Streamer wrote this table up to instant {instant}; its next offsets are {topic}:0 10, {topic}:1 5; the first "
        "transaction continues there"
    ) in said
    assert "column _kafka_offset long is added" in said.replace("bigint", "long")
    assert (Path(ground.base_path) / ".hoodie" / "hoodie.properties").read_text() == before


@pytest.mark.tier(1)
def test_x6_a_table_of_the_kafka_connect_sink_is_continued(ground: Ground, topic: str, spark: SparkSession) -> None:
    ground.send_rows(0, 10 + 7)
    ground.send_rows(1, 5 + 4)
    rows = [record(0, n) for n in range(10)] + [record(1, n) for n in range(5)]
    write(ground, spark, rows, {CONNECT: "0=10,1=5"}, "bulk_insert", {**VALUES, "hoodie.metadata.enable": "false"})
    with pytest.raises(
        TableMismatch, match=r"was written by the Hudi sink of Kafka Connect.*table\.take_over: kafka_connect"
    ):
        ground.run(make_pipeline(ground, table={"hive_style": False}))
    pipeline = make_pipeline(ground, table={"hive_style": False, "take_over": "kafka_connect"})
    assert [(each.start, each.end) for each in ground.run(pipeline).plan.slices] == [(10, 17), (5, 9)]
    # It was not stopped after all, and reads again what this pipeline has read.
    ground.send_rows(1, 2, 9)
    null = {"hoodie.write.set.null.for.missing.columns": "true"}
    write(ground, spark, [record(0, 10)], {CONNECT: "0=11,1=5"}, "bulk_insert", {**VALUES, **null})
    with pytest.raises(
        TableMismatch, match=r"after this pipeline took the table over.*Stop it and roll it back"
    ) as told:
        ground.run(pipeline)
    (instant,) = re.findall(r"instant_time => '(\d+)'", str(told.value))
    spark.sql(f"create table {ground.name} using hudi location '{ground.base_path}'")
    done = spark.sql(f"call rollback_to_instant(table => '{ground.name}', instant_time => '{instant}')").collect()
    assert [row.rollback_result for row in done] == [True]
    assert ground.run(pipeline).rows == 2
    assert contents(ground, spark) == produced(ground)


def stream(ground: Ground, spark: SparkSession, checkpoint: Path, options: Mapping[str, str]) -> None:
    """Takes all that the topic holds, as a plain Structured Streaming query would."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", ground.bootstrap_servers)
        .option("subscribe", ground.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "6")
        .load()
    )
    rows = records.select(F.from_json(F.col("value").cast("string"), "id string, n long, dt string").alias("r"))
    query = (
        rows.select("r.*")
        .writeStream.format("hudi")
        .options(**{"hoodie.table.name": "theirs", "hoodie.datasource.write.operation": "insert", **options})
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start(ground.base_path)
    )
    query.awaitTermination()


def test_x6_a_table_of_structured_streaming_is_continued_by_its_checkpoint(
    ground: Ground, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    ground.send_rows(0, 11)
    ground.send_rows(1, 5)
    stream(ground, spark, tmp_path / "checkpoint", KEYED)
    ground.send_rows(0, 3, 11)
    with pytest.raises(TableMismatch, match=r"Its offsets are in the checkpointLocation of its query"):
        ground.run(make_pipeline(ground))
    ours = {"take_over": {"spark_checkpoint": str(tmp_path / "checkpoint")}}
    stream_of_another = tmp_path / "another"
    (stream_of_another / "offsets").mkdir(parents=True)
    (stream_of_another / "offsets" / "0").write_text((tmp_path / "checkpoint" / "offsets" / "0").read_text())
    with pytest.raises(
        TableMismatch, match=r"the table's last micro-batch is \d, and the checkpoint at .*another has planned 0"
    ):
        observe(make_pipeline(ground, table={"take_over": {"spark_checkpoint": str(stream_of_another)}}))
    receipt = ground.run(make_pipeline(ground, table=ours))
    assert [(each.start, each.end) for each in receipt.plan.slices] == [(11, 14), (5, 5)]
    assert contents(ground, spark) == produced(ground)


def test_x6_p7_other_writers_change_rows_of_ours_by_the_tables_own_keys(copied: Ground, spark: SparkSession) -> None:
    ground, pipeline = copied, ours(copied)
    ground.run(pipeline)
    spark.sql(f"create table {pipeline.name} using hudi location '{ground.base_path}'")
    spark.sql(f"delete from {pipeline.name} where id in ('0-3', '0-12')")
    spark.sql(f"update {pipeline.name} set n = 100 where id in ('1-2', '1-7')")
    changed = [record(0, 14)]
    frame = spark.createDataFrame([(i, 200, dt) for i, _, dt in changed], "id string, n long, dt string")
    frame.createOrReplaceTempView("changed")
    kafka = ", ".join(
        f"cast(null as {kind}) as _kafka_{name}"
        for name, kind in (("topic", "string"), ("partition", "int"), ("offset", "long"), ("timestamp", "timestamp"))
    )
    wide = spark.sql(f"select *, {kafka} from changed")
    wide.write.format("hudi").options(
        **{"hoodie.table.name": "theirs", "hoodie.datasource.write.operation": "upsert", **KEYED}
    ).mode("append").save(ground.base_path)
    spark.catalog.refreshTable(pipeline.name)
    updates = {"1-2": 100, "1-7": 100, "0-14": 200}
    expected = sorted((updates.get(i, n), i) for n, i in produced(ground) if i not in ("0-3", "0-12"))
    assert contents(ground, spark) == expected


def test_x6_hudi_streamer_goes_on_behind_ours_and_a_new_pipeline_behind_it(
    ground: Ground, topic: str, spark: SparkSession
) -> None:
    """Back and forth; and while it writes again, the old pipeline must not."""
    streamed(ground, spark)
    first = make_pipeline(ground, table={"take_over": "hudi_streamer"})
    ground.run(first)
    there = newest_metadata(ground)[STREAMER]
    assert there == f"{topic},0:17,1:9"
    ground.send_rows(0, 6, 17)
    null = {"hoodie.write.set.null.for.missing.columns": "true"}
    write(ground, spark, [record(0, n) for n in range(17, 20)], streamer(ground, 20, 9), options={**KEYED, **null})
    with pytest.raises(
        TableMismatch, match=rf"has written into the table.*ends at {topic}:0 20.*give the pipeline a new name"
    ):
        ground.run(first)
    second = make_pipeline(ground, name=f"{ground.name}_again", table={"take_over": "hudi_streamer"})
    assert [(each.start, each.end) for each in ground.run(second).plan.slices] == [(20, 23), (9, 9)]
    assert contents(ground, spark) == produced(ground)
    with pytest.raises(TableMismatch, match=r"belongs to pipeline \S+_again|has written into the table"):
        ground.run(first)


@pytest.mark.tier(1)
def test_x6_p4_a_commit_of_the_other_system_meanwhile_refuses_ours(copied: Ground, spark: SparkSession) -> None:
    ground, pipeline, topic = copied, ours(copied), copied.name
    stale = ground.plan(pipeline)
    write(ground, spark, [record(0, 10)], streamer(ground, 11, 5))
    protocol = ground.protocol(pipeline)
    with pytest.raises(PlanOutdated, match=rf"planned for .*{topic}:0 10.*and now there is .*{topic}:0 11"):
        protocol.begin(stale, Owner.this_process(), never)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    write(ground, spark, [record(0, 11)], streamer(ground, 12, 5))
    with pytest.raises(PlanOutdated, match="is no longer current"):
        protocol.commit(opened, reports)
    protocol.abort(opened, "the other system goes on")
    # The first try left its properties in the table; that the table is not ours yet, the next one sees all the same.
    assert [(each.start, each.end) for each in ground.run(pipeline).plan.slices] == [(12, 17), (5, 9)]
    assert contents(ground, spark) == produced(ground)


def test_x6_p4_the_guard_refuses_a_take_over_of_a_table_that_was_not_seen_as_it_is(
    copied: Ground, spark: SparkSession
) -> None:
    """Inside Hudi's lock: what lies between our last look and the commit."""
    ground, pipeline = copied, ours(copied)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    seen = [each.instant for each in protocol.timeline.completed()]
    committed = protocol.table.committed()
    write(ground, spark, [record(0, 10)], streamer(ground, 11, 5))
    with pytest.raises(CommitRefused, match="was completed while the table was being taken over"):
        protocol._publish(opened, reports, committed, seen)
    protocol.abort(opened, "refused")
    assert ground.run(pipeline).rows == 6 + 4
    assert contents(ground, spark) == produced(ground)


def test_x6_a_table_that_is_still_being_written_is_refused(copied: Ground, spark: SparkSession) -> None:
    ground, pipeline = copied, ours(copied)
    writer = HudiWriter(spark, pipeline)
    with writer._client(writer._meta_client()) as theirs:
        instant = theirs.startCommit("commit")
        with pytest.raises(
            TransactionInFlight, match=rf"is still being written: {instant} \(commit\) open\. Stop Hudi Streamer"
        ):
            ground.run(pipeline)
    write(ground, spark, [record(0, 10)], streamer(ground, 11, 5))
    assert ground.run(pipeline).rows == 6 + 4
    assert contents(ground, spark) == produced(ground)


def test_x6_p6_where_there_is_no_table_nothing_is_begun(ground: Ground, topic: str, spark: SparkSession) -> None:
    ground.send_rows(0, 3)
    with pytest.raises(TableMismatch, match=r"there is no table at .*remove table\.take_over to begin a new table"):
        ground.run(make_pipeline(ground, table={"take_over": "hudi_streamer"}))
    assert not Path(ground.base_path).exists()


def contents_of_files(ground: Ground) -> dict[str, bytes]:
    root = Path(ground.base_path)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def upsert(ground: Ground, spark: SparkSession) -> None:
    write(ground, spark, [record(0, 0)], streamer(ground, 10, 5), "upsert")


def stranger(ground: Ground, spark: SparkSession) -> None:
    write(ground, spark, [("x", 1, "2026-01-01")])


def another_topic(ground: Ground, spark: SparkSession) -> None:
    write(ground, spark, [record(0, 0)], {STREAMER: "others,0:1"})


def another_system(ground: Ground, spark: SparkSession) -> None:
    write(ground, spark, [record(0, 0)], {CONNECT: "0=1"})


def another_source(ground: Ground, spark: SparkSession) -> None:
    write(ground, spark, [record(0, 0)], {STREAMER: "20260101000000000"})


def lost(ground: Ground, spark: SparkSession) -> None:
    write(ground, spark, [record(0, 0)], streamer(ground, 1000, 5))


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (upsert, r"its last commit is an UPSERT, but this pipeline only appends"),
        (stranger, r"later commits wrote rows and do not say from where: \d+ \(INSERT\)"),
        (another_topic, r"it read others, but source\.topics is"),
        (another_system, r"table\.take_over names Hudi Streamer"),
        (another_source, r"does not hold Kafka offsets"),
        (lost, r"the next offset to read is 1000, but this partition, or another one of the topic, ends before"),
    ],
)
def test_x6_p6_offsets_that_cannot_be_trusted_are_refused(
    copied: Ground, spark: SparkSession, act: Any, said: str
) -> None:
    act(copied, spark)
    before = contents_of_files(copied)
    with pytest.raises((TableMismatch, OffsetsLost), match=said):
        copied.run(ours(copied))
    assert contents_of_files(copied) == before


def test_x6_what_moves_or_removes_rows_does_not_stand_against_a_take_over(
    ground: Ground, topic: str, spark: SparkSession
) -> None:
    streamed(ground, spark)
    spark.sql(f"create table {ground.name} using hudi location '{ground.base_path}'")
    spark.sql(f"delete from {ground.name} where id = '0-3'")
    done = spark.sql(f"call run_clustering(table => '{ground.name}', op => 'scheduleAndExecute')").collect()
    assert [row.state for row in done] == ["COMPLETED"]
    pipeline = make_pipeline(ground, table={"take_over": "hudi_streamer"})
    ground.run(pipeline)
    run_services(pipeline, home=ground.home)
    ground.send_rows(0, 2, 17)
    ground.run(pipeline)
    assert contents(ground, spark) == [row for row in produced(ground) if row != (3, "0-3")]


FOREIGN_TABLES: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "merge_on_read": ({"hoodie.datasource.write.table.type": "MERGE_ON_READ"}, {}, r"its type is MERGE_ON_READ"),
    "no_meta_fields": (
        {"hoodie.populate.meta.fields": "false"},
        {},
        r"hoodie\.populate\.meta\.fields is false, and must be true",
    ),
    "folders": (
        {"hoodie.datasource.write.hive_style_partitioning": "false"},
        {},
        r"names its folders by values alone.*table\.hive_style",
    ),
    "partitions": ({}, {"partition_by": []}, r"is partitioned by \(dt\), pipeline \S+ says \(nothing\)"),
    "columns": (
        {},
        {"schema": "id string, n string, dt string"},
        r"column n: expected long, as in the table.*found string",
    ),
    "older_version": (
        {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"},
        {},
        r"its table version is 6, but hudi-ingest only writes version 9",
    ),
    "key_generator": (
        {
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
            "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
            "hoodie.keygen.timebased.output.dateformat": "yyyyMM",
        },
        {},
        r"its key generator is TIMESTAMP",
    ),
}


@pytest.mark.parametrize(
    ("options", "table", "said"),
    [
        pytest.param(*table, id=name, marks=[] if name in IN_CI else [pytest.mark.tier(3)])
        for name, table in FOREIGN_TABLES.items()
    ],
)
def test_x6_p6_a_table_that_rows_of_ours_would_not_fit_is_refused(
    theirs: Ground, elsewhere: Ground, options: dict[str, str], table: dict[str, Any], said: str
) -> None:
    if options:
        session = current_session(elsewhere.home).newSession()
        write(
            elsewhere,
            session,
            [record(0, n) for n in range(10)],
            streamer(elsewhere, 10, 0),
            options={**KEYED, **options},
        )
    else:
        shutil.copytree(theirs.base_path, elsewhere.base_path)
    before = contents_of_files(elsewhere)
    with pytest.raises(Exception, match=said) as told:
        elsewhere.run(make_pipeline(elsewhere, table={**table, "take_over": "hudi_streamer"}))
    assert type(told.value).__name__ in ("TableMismatch", "SchemaRefused")
    assert contents_of_files(elsewhere) == before


def test_x6_p6_rows_with_other_keys_or_folders_than_ours_would_have_are_refused(
    ground: Ground, topic: str, spark: SparkSession
) -> None:
    """What the properties do not tell, the rows do."""
    ground.send_rows(0, 2)
    ground.send_rows(1, 2)
    write(ground, spark, [("0-0", 0, "2026/01/01")], streamer(ground, 1, 0))
    with pytest.raises(
        TableMismatch, match=r"which rows of this pipeline cannot be in: column dt: '2026/01/01' has signs"
    ):
        observe(make_pipeline(ground, table={"take_over": "hudi_streamer"}))


def test_x6_d3_a_record_without_the_tables_key_is_a_bad_record(ground: Ground, topic: str, spark: SparkSession) -> None:
    streamed(ground, spark)
    ground.send(
        0, [json.dumps({"n": 1, "dt": "2026-01-01"}).encode(), json.dumps({"id": "z", "n": 1, "dt": "a/b"}).encode()]
    )
    pipeline = make_pipeline(ground, table={"take_over": "hudi_streamer"}, on_bad_record="skip")
    receipt = ground.run(pipeline)
    assert (receipt.rows, receipt.rejected) == (7 + 4, 2)
    said = sorted(str(each) for each in receipt.bad_records)
    assert "field dt: expected a value without signs like / : = %" in said[1]
    assert "field id: expected a value, because the table's record key is made of it" in said[0]
    assert contents(ground, spark) == produced(ground)


def test_x6_a_partition_that_is_new_since_begins_at_its_first_offset(ground: Ground, spark: SparkSession) -> None:
    create_topic(ground.bootstrap_servers, ground.name, 2)
    ground.send_rows(0, 12)
    ground.send_rows(1, 3)
    write(ground, spark, [record(0, n) for n in range(10)], streamer(ground, 10))
    pipeline = make_pipeline(ground, source={"starting_offsets": "latest"}, table={"take_over": "hudi_streamer"})
    assert [(each.start, each.end) for each in plan_now(pipeline).slices] == [(10, 12), (0, 3)]
    ground.run(pipeline)
    assert contents(ground, spark) == produced(ground)
