"""Records that nobody expects, in number or in kind, become rows or bad records and stop no pipeline."""

from __future__ import annotations

import json

import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from hudi_ingest.exceptions import BadRecord
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.local.broker import create_topic
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog, find_letters
from hudi_ingest_tests.support.ground import Ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NOON = 1_767_268_800_000
TIMES = (NOON, NOON * 1_000_000 + 1, NOON * 1000, 2**63 - 1, NOON + 1)


def accept_any_time(ground: Ground) -> None:
    """As brokers before 4.0 do."""
    changes = [
        ConfigEntry("message.timestamp.after.max.ms", str(2**63 - 1), incremental_operation=AlterConfigOpType.SET)
    ]
    resource = ConfigResource(ResourceType.TOPIC, ground.name, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(300)


def test_d3_p1_a_kafka_timestamp_of_any_number_is_a_row_or_a_bad_record_by_the_policy(
    ground: Ground, topic: str
) -> None:
    accept_any_time(ground)
    for number, time in enumerate(TIMES):
        value = json.dumps({"id": f"a{number}", "n": number, "dt": "2026-01-01"})
        ground.producer.produce(topic, value.encode(), partition=0, timestamp=time)
    assert ground.producer.flush(300) == 0
    ground.send_rows(1, 4)
    with pytest.raises(BadRecord) as raised:
        ground.run(make_pipeline(ground))
    assert f"{topic}:0:1 field _kafka_timestamp" in str(raised.value)
    assert "2026-01-01 12:00:00 UTC in nanoseconds: the producer sets the wrong unit" in str(raised.value)

    create_topic(ground.bootstrap_servers, f"{topic}.dead", 1)
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"topic": f"{topic}.dead"}}
    receipt = ground.run(make_pipeline(ground, **letters))
    assert (receipt.rows, sum(each.rejected for each in receipt.reports)) == (6, 3)
    assert receipt.warnings == (), "the letters were copied, too"
    rows = [row for row in ground.rows().to_pylist() if row["_kafka_partition"] == 0]
    assert {row["id"]: int(row["_kafka_timestamp"].timestamp() * 1000) for row in rows} == {"a0": NOON, "a4": NOON + 1}
    log = DeadLetterLog(LocalStorage(ground.base_path))
    found = [*find_letters(LocalStorage(ground.base_path), log.waiting(receipt.checkpoint.letters))]
    assert [(each.offset, each.timestamp) for each in found] == [*enumerate(TIMES)][1:4]


def test_records_of_a_megabyte_beside_small_ones(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, table={"schema": "id string, n long, note string, dt string"})
    options = {"compression.type": "zstd", "message.max.bytes": 2_000_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": ground.bootstrap_servers, **options})
    lengths = [10] * 300 + [1_000_000] * 200 + [10] * 300
    for number, length in enumerate(lengths):
        value = {"id": f"b{number}", "n": number, "note": "x" * length, "dt": "2026-01-01"}
        producer.produce(topic, json.dumps(value).encode(), partition=0)
        if number % 20 == 19:
            assert producer.flush(300) == 0
    assert producer.flush(300) == 0
    assert ground.run(pipeline).rows == 800
    rows = ground.rows()
    found = dict(zip(rows["n"].to_pylist(), pc.utf8_length(rows["note"]).to_pylist(), strict=True))
    assert [found[number] for number in range(800)] == lengths
