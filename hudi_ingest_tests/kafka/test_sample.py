"""K7: `hudi-ingest sample` on a real broker, where offsets have gaps, without Spark and without writing anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from hudi_ingest.exceptions import NoSuchOffset
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.records import ReadRequest, read_records
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.operations.sample import Outcome, take_sample
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.transaction.columns.topic_sample import first_values
from hudi_ingest_tests.support.command_line import answer, environment
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

STEPS = [
    {"filter": {"field": "n", "op": ">=", "value": 0}},
    {"mask": {"fields": ["id"], "method": "keep_last", "characters": 1}},
    {"insert_kafka": {"key": "message_key", "headers": "message_headers"}},
]
WITHOUT_SPARK = """
import json, sys
from pathlib import Path
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.operations.sample import take_sample

print(json.dumps(take_sample(load_pipeline(Path(sys.argv[1])), None, 20).to_dict()))
assert not {"pyspark", "py4j", "dagster"} & sys.modules.keys()
"""


def value(identifier: object, number: object) -> bytes:
    return json.dumps({"id": identifier, "n": number, "dt": "2026-01-01"}).encode()


def abort_two(ground: Ground, source: KafkaSource) -> None:
    """Two records and a marker that no reader is given, at the end of partition 0."""
    zero, cluster = TopicPartition(ground.name, 0), KafkaCluster(source)
    end = cluster.watermarks([zero])[zero].end
    producer = ground.transactional_producer()
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(ground.name, value("aborted", 1), partition=0)
    producer.flush(120)
    producer.abort_transaction(120)
    # The coordinator answers before its marker is in the log.
    wait_for(lambda: cluster.watermarks([zero])[zero].end == end + 3, "the transaction's marker is in the log")


@pytest.mark.tier(1)
def test_k7_a_sample_shows_rows_bad_records_and_what_is_left_out(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, transforms=STEPS)
    ground.send(0, [value("secret-1", 1), value("secret-2", "many"), None])
    abort_two(ground, pipeline.source)
    ground.send(0, [value("secret-3", -1), value("secret-4", 4)])
    ground.producer.produce(topic, value("secret-5", 5), b"k", partition=1, headers=[("h", b"1"), ("h", None)])
    assert ground.producer.flush(300) == 0

    command = [sys.executable, "-c", WITHOUT_SPARK, str(ground.home.pipelines / f"{pipeline.name}.yaml")]
    told = subprocess.run(
        command, env=environment(ground.home), capture_output=True, text=True, timeout=300, check=False
    )
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["counts"] == {"row": 3, "delete": 0, "bad": 1, "filtered": 1, "skipped": 1}
    assert [(each["partition"], each["offset"], each["outcome"]) for each in found["records"]] == [
        (0, 0, "row"),
        (0, 1, "bad"),
        (0, 2, "skipped"),
        (0, 6, "filtered"),
        (0, 7, "row"),
        (1, 0, "row"),
    ]
    assert "secret" not in told.stdout
    assert found["records"][5]["row"] == {
        "id": "****5",
        "n": 5,
        "dt": "2026-01-01",
        "message_key": "aw==",
        "message_headers": [{"key": "h", "value": "MQ=="}, {"key": "h", "value": None}],
    }
    assert not Path(ground.base_path).exists()

    machines = answer(ground.home, "sample", pipeline.name, "--json")
    assert (machines.returncode, json.loads(machines.stdout)) == (0, found)
    people = answer(ground.home, "sample", pipeline.name, "--from", f"{topic}:0:1", "-n", "2")
    assert people.returncode == 0, people.stderr
    assert f"{topic}:0:1" in people.stdout and "bad records" in people.stdout
    assert "2 records: 0 rows, 1 bad, 0 filtered, 1 skipped" in people.stdout
    assert answer(ground.home, "sample", pipeline.name, "--from", f"{topic}:0").returncode == 2

    # Begins in the gap, and ends where the broker's records do.
    zero = TopicPartition(topic, 0)
    in_the_gap = take_sample(pipeline, {zero: 4}, 100)
    assert [(each.offset, each.outcome) for each in in_the_gap.records] == [(6, Outcome.FILTERED), (7, Outcome.ROW)]
    assert take_sample(pipeline, {zero: 8}, 5).records == ()
    shared = take_sample(pipeline, None, 2).records
    assert [(each.source.partition, each.offset) for each in shared] == [(0, 0), (1, 0)]


def test_k7_an_offset_that_is_not_there_is_told_with_those_that_are(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground)
    ground.send_rows(0, 3)
    for start, told in (
        (
            TopicPartition(topic, 0),
            "has no offset 4. The broker has offsets 0 to 2, and the next offset is 3",
        ),
        (TopicPartition(topic, 1), "The broker has no records, and the next offset is 0"),
        (TopicPartition(topic, 2), f"topic {topic} has no partition 2; choose one of 0, 1"),
        (TopicPartition("other", 0), f"other is not a topic of pipeline {pipeline.name}; choose one of {topic}"),
    ):
        with pytest.raises(NoSuchOffset) as raised:
            take_sample(pipeline, {start: 4}, 1)
        assert told in str(raised.value)
        assert (raised.value.topic, raised.value.partition) == (start.topic, start.partition)


def test_k7_when_no_record_waits_the_newest_of_all_partitions_are_shown(ground: Ground, topic: str) -> None:
    at_the_end = {"starting_offsets": "latest"}
    pipeline = make_pipeline(ground, source=at_the_end)
    assert take_sample(pipeline, None, 3).newest and not take_sample(pipeline, None, 3).records
    for partition, times in ((0, (10, 20, 60)), (1, (30, 40, 50))):
        for time in times:
            ground.producer.produce(
                topic, value(str(time), time), partition=partition, timestamp=1_700_000_000_000 + time
            )
    assert ground.producer.flush(300) == 0
    # Three offsets at the end of partition 0 without a record, so its last ones lie further back.
    abort_two(ground, pipeline.source)
    found = take_sample(pipeline, None, 3)
    assert [record.row and record.row["n"] for record in found.records] == [60, 40, 50]
    assert found.newest
    assert [record.row and record.row["n"] for record in take_sample(pipeline, None, 5).records] == [20, 60, 30, 40, 50]
    told = answer(ground.home, "sample", pipeline.name, "-n", "1")
    assert "1 record, the newest, because none wait: 1 row" in told.stdout, told.stderr
    assert f"{topic}:0:2" in told.stdout


def test_x1_the_first_values_are_of_all_partitions_and_of_what_retention_has_left(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground)
    assert first_values(pipeline, 10) == []
    ground.send(0, [b"gone", b"a0", None, b"a2", b"a3"])
    ground.send(1, [b"b0"])
    delete_before(ground, 1)
    every = [(f"{topic}:0:1", b"a0"), (f"{topic}:0:3", b"a2"), (f"{topic}:0:4", b"a3"), (f"{topic}:1:0", b"b0")]
    assert first_values(pipeline, 10) == every
    assert first_values(pipeline, 3) == [every[0], every[3]], "the tombstone counts, and has no value"


def test_k7_records_are_read_up_to_a_number_of_bytes_and_from_where_they_are(ground: Ground, topic: str) -> None:
    source = make_pipeline(ground).source
    for partition in (0, 1):
        ground.send(partition, [bytes(100)] * 5)
    wanted = [ReadRequest(Slice(topic, partition, 0, 5), 4) for partition in (0, 1)]

    def counts(**how: object) -> list[int]:
        found = read_records(source, f"{topic}.test", wanted, **how)  # type: ignore[arg-type]
        return [found[each.slice.source].num_rows for each in wanted]

    assert counts() == [4, 4]
    assert sum(counts(most_bytes=250)) == 3, "the one that reaches it is the last"
    assert sum(counts(most_bytes=100)) == 1
    assert counts(most_bytes=1_000_000) == [4, 4]
    delete_before(ground, 3)
    with pytest.raises(NoSuchOffset, match=f"{topic}:0: the broker no longer has offset 0"):
        counts()
    assert counts(skip_gone=True) == [2, 4]


def delete_before(ground: Ground, offset: int) -> None:
    """Deletes the records of partition 0 before the offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    for each in admin.delete_records([KafkaTopicPartition(ground.name, 0, offset)]).values():
        each.result(300)
