"""X6: offsets that other systems left in a table's commits, and which of them are where the table ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableMismatch, TableUnreachable
from hudi_ingest.hudi.timeline.other_writers import LastIngest, OtherWriter, last_ingest, other_writer, streamer_text
from hudi_ingest.hudi.timeline.take_over import offsets_after, table_problems
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, instant_time
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.transaction.commit_contents import commit_metadata
from hudi_ingest_tests.support.pipeline_files import Write, load, problem

STREAMER = {"streamer.checkpoint.key.v2": "orders,0:12"}
WRITER = OtherWriter("Hudi Streamer", "orders", {0: 12})


def commit(instant: str, metadata: dict[str, str], operation: str = "INSERT") -> CommittedInstant:
    return CommittedInstant(instant, metadata, instant_time("20260101000000"), operation=operation)


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"streamer.checkpoint.key.v2": "orders,0:12,10:9"}, OtherWriter("Hudi Streamer", "orders", {0: 12, 10: 9})),
        ({"deltastreamer.checkpoint.key": "orders,0:12"}, WRITER),
        ({"deltastreamer.checkpoint.key": "old,0:1", **STREAMER}, WRITER),
        ({"streamer.checkpoint.key.v2": "1700000000000"}, OtherWriter("Hudi Streamer", "1700000000000")),
        ({"streamer.checkpoint.key.v2": "orders,0:12,x"}, OtherWriter("Hudi Streamer", "orders")),
        ({"kafka.commit.offsets": "0=12,1=9"}, OtherWriter("the Hudi sink of Kafka Connect", "", {0: 12, 1: 9})),
        (
            {"_hudi_streaming_sink_checkpoint": '{"query": "7"}'},
            OtherWriter("Spark Structured Streaming", batches={"query": 7}),
        ),
        ({"_hudi_streaming_sink_checkpoint": "{}"}, OtherWriter("Spark Structured Streaming")),
        ({"schema": "{}"}, None),
        ({}, None),
        ({**STREAMER, "hudi_ingest.transaction.orders": "{}"}, None),
    ],
)
def test_x6_each_tools_offsets_are_read(metadata: dict[str, str], found: OtherWriter | None) -> None:
    assert other_writer(metadata) == found


def test_x6_what_moves_or_removes_rows_is_passed_over_and_what_writes_them_is_named() -> None:
    told = commit("20260101", STREAMER)
    services = [commit("4", {}, "CLUSTER"), commit("3", {}, "DELETE_PARTITION")]
    assert last_ingest([*services, told]) == LastIngest(WRITER, "20260101", "INSERT", ())
    strangers = [commit("5", {}, "UPSERT"), commit("4", {}, ""), *services]
    found = last_ingest([*strangers, told])
    assert found is not None
    assert found.strangers == ("5 (UPSERT)", "4 (unknown operation)")


def test_x6_what_lies_before_a_commit_of_ours_is_nobodys_end() -> None:
    ours = commit("2", {**STREAMER, "hudi_ingest.transaction.orders": "{}"}, "BULK_INSERT")
    assert last_ingest([commit("3", {}, "CLUSTER"), ours, commit("1", STREAMER)]) is None
    assert last_ingest([]) is None
    assert last_ingest([commit("1", {})]) is None


def test_x6_our_offsets_read_as_hudi_streamer_writes_them() -> None:
    """Of Hudi's KafkaOffsetGen: the topic, then `partition:offset` in the partitions' order."""
    text = streamer_text("orders", {10: 9, 0: 12, 2: 0})
    assert text == "orders,0:12,2:0,10:9"
    assert other_writer({"streamer.checkpoint.key.v2": text}) == OtherWriter(
        "Hudi Streamer", "orders", {0: 12, 2: 0, 10: 9}
    )


def test_x6_topics_that_the_pipeline_had_before_are_not_in_hudi_streamers_key(write: Write) -> None:
    """Its key has one topic, and partitions without names."""
    offsets = {TopicPartition("orders", 1): 9, TopicPartition("orders", 0): 12, TopicPartition("former", 0): 5}
    plan = IngestPlan("orders", "orders-3", 3, ())
    metadata = commit_metadata(load(write), plan, Checkpoint(3, "orders-3", offsets), [])
    assert metadata["streamer.checkpoint.key.v2"] == "orders,0:12,1:9"


def checkpoint(folder: Path, planned: list[int], done: list[int], offsets: str = '{"orders":{"0":12,"1":9}}') -> str:
    """As Spark lays it out, with hidden checksum files beside."""
    for name, batches in (("offsets", planned), ("commits", done)):
        (folder / name).mkdir(parents=True)
        for batch in batches:
            metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
            (folder / name / str(batch)).write_text(f"v1\n{metadata}\n{offsets}")
            (folder / name / f".{batch}.crc").write_text("")
    return str(folder)


@pytest.mark.parametrize(
    ("planned", "done"),
    [([6, 7], [6, 7]), ([6, 7], [6]), ([6, 7, 8], [6, 7]), ([7], []), ([0, 1, 7, 8], [7])],
    ids=["ended", "published, not noted", "the next is planned", "the first", "older ones are gone"],
)
def test_x6_the_offsets_of_a_querys_last_batch(tmp_path: Path, planned: list[int], done: list[int]) -> None:
    assert offsets_after(checkpoint(tmp_path, planned, done), 7) == {
        TopicPartition("orders", 0): 12,
        TopicPartition("orders", 1): 9,
    }


@pytest.mark.parametrize(
    ("planned", "done", "said"),
    [
        ([], [], "it is not a checkpointLocation"),
        ([6], [6], "has planned 6 and committed 6, so it is of another query"),
        ([6, 8], [6], "has planned 8 and committed 6"),
        ([7, 8], [8], "has planned 8 and committed 8"),
        ([7, 8, 9], [7], "has planned 9 and committed 7"),
        ([5, 6, 7], [5], "has planned 7 and committed 5"),
    ],
)
def test_x6_p6_the_checkpoint_of_another_query_is_refused(
    tmp_path: Path, planned: list[int], done: list[int], said: str
) -> None:
    with pytest.raises(TableMismatch, match=said):
        offsets_after(checkpoint(tmp_path, planned, done), 7)


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ('{"orders":{"0":12}}\n{"other":{"0":1}}', "v1 and 2 sources"),
        ('{"logOffset":3}', "holds no Kafka offsets"),
        ("-", "holds no Kafka offsets"),
        ("{}", "holds no Kafka offsets"),
    ],
)
def test_x6_p6_a_query_that_did_not_read_kafka_alone_is_refused(tmp_path: Path, offsets: str, said: str) -> None:
    with pytest.raises(TableMismatch, match=said):
        offsets_after(checkpoint(tmp_path, [7], [7], offsets), 7)


def test_x6_a_checkpoint_that_is_not_text_is_told_of(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [7], [7])
    (tmp_path / "offsets" / "7").write_bytes(b"\xff\xfe")
    with pytest.raises(TableUnreachable, match="cannot read the Spark checkpoint"):
        offsets_after(folder, 7)


GOOD = {"hoodie.table.version": "9", "hoodie.table.type": "COPY_ON_WRITE"}


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"hoodie.table.version": "8"}, "its table version is 8, but hudi-ingest only writes version 9"),
        ({"hoodie.table.type": "MERGE_ON_READ"}, "its type is MERGE_ON_READ, and must be COPY_ON_WRITE"),
        ({"hoodie.table.base.file.format": "ORC"}, "its base files are ORC, and must be PARQUET"),
        ({"hoodie.table.cdc.enabled": "true"}, "hoodie.table.cdc.enabled is true, and must be false"),
        ({"hoodie.bootstrap.base.path": "/old"}, "it is bootstrapped from /old, and must be nothing"),
        ({"hoodie.table.keygenerator.type": "CUSTOM"}, "its key generator is CUSTOM; supported are COMPLEX"),
        ({"hoodie.table.metadata.partitions": "files,expr_index_x"}, "its metadata table has expr_index_x"),
        ({"hoodie.bucket.index.num.buckets": "4"}, "it has a bucket index"),
    ],
)
def test_x6_p6_properties_that_stand_against_rows_of_ours(properties: dict[str, str], said: str) -> None:
    (found,) = table_problems({**GOOD, **properties})
    assert said in found


def test_x6_a_table_with_plain_properties_has_no_problem() -> None:
    more = {
        "hoodie.table.keygenerator.type": "COMPLEX_AVRO",
        "hoodie.table.metadata.partitions": "column_stats,files,partition_stats,record_index",
        "hoodie.populate.meta.fields": "true",
    }
    assert table_problems({**GOOD, **more}) == []


def test_x6_who_wrote_the_table_is_named_in_the_pipeline_file(write: Write) -> None:
    assert load(write).table.take_over is None
    assert load(write, table__take_over="hudi_streamer").table.take_over == "hudi_streamer"
    found = load(write, table__take_over={"spark_checkpoint": "file:///checkpoints/orders/"}).table.take_over
    assert getattr(found, "spark_checkpoint", None) == "/checkpoints/orders"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("flink", "table.take_over: found 'flink'; allowed: hudi_streamer, kafka_connect, or {spark_checkpoint:"),
        ({"checkpoint": "/c"}, "table.take_over: found a mapping; allowed: hudi_streamer"),
        ({"spark_checkpoint": "c"}, "table.take_over.spark_checkpoint: not an absolute path"),
        (["hudi_streamer"], "table.take_over: found a list; allowed"),
    ],
)
def test_x6_a_take_over_that_is_refused(write: Write, given: object, said: str) -> None:
    assert said in problem(write, table__take_over=given)


def test_x6_a_system_that_reads_one_topic_hands_over_one(write: Write) -> None:
    said = problem(write, source__topics=["orders", "more"], table__take_over="hudi_streamer")
    assert said.startswith("table.take_over: hudi_streamer reads one topic into a table, and source.topics has 2")
    spark = {"spark_checkpoint": "/c"}
    assert load(write, source__topics=["orders", "more"], table__take_over=spark).table.take_over is not None
